"""How numbers and foreign text are written."""

from __future__ import annotations

__all__ = ["clipped", "duration", "number", "shown", "size"]

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP = 1024


def size(nbytes: float) -> str:
    """Write a number of bytes.

    Examples
    --------
    >>> size(512), size(48_500_000)
    ('512 bytes', '46.3 MiB')
    """
    if nbytes < _STEP:
        return f"{nbytes:,.0f} byte{'' if nbytes == 1 else 's'}"
    value = float(nbytes)
    for unit in _UNITS:
        value /= _STEP
        if value < _STEP or unit == _UNITS[-1]:
            break
    return f"{value:,.1f} {unit}"


def duration(seconds: float) -> str:
    """Write a time.

    Examples
    --------
    >>> duration(0.0000123), duration(0.0123), duration(1.23)
    ('12.3 µs', '12.3 ms', '1.23 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.2f} ms" if seconds < 1e-2 else f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def number(value: int | None) -> str:
    """Write a count, ``?`` where nobody knows it.

    Examples
    --------
    >>> number(336776), number(None)
    ('336,776', '?')
    """
    return "?" if value is None else f"{value:,}"


def shown(text: object) -> str:
    r"""Return text as it may be printed: what a terminal would take as a command is spelled out.

    Examples
    --------
    >>> shown("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in plain)


def clipped(text: str, width: int) -> str:
    """Return text that takes at most `width` places.

    Examples
    --------
    >>> clipped("Endeavor", 5)
    'Ende…'
    """
    return text if len(text) <= width else text[: width - 1] + "…"
