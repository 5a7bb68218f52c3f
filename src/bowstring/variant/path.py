"""Paths into a Variant: ``$.a.b[0]['x.y']["z"][-1][*]``, or a list of steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import EllipsisType
from typing import Final, NoReturn

from bowstring.errors import UsageError

Step = str | int
Path = tuple[Step, ...]
AnyStep = Step | EllipsisType
"""A step, or ``...`` for each element of an array."""
AnyPath = tuple[AnyStep, ...]

_ESCAPES: Final = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "/": "/",
}
_NAME: Final = re.compile(r"[^.\[\]'\"]*")
_INDEX: Final = re.compile(r"-?[0-9]*")
_CODE: Final = re.compile(r"u([0-9a-fA-F]{4})")
_LARGEST: Final = (1 << 32) - 1
_HINT: Final = "Quote names that hold . or [: $['a.b']; or give the steps as a list."


def parse_path(path: str | Sequence[AnyStep]) -> AnyPath:
    r"""Return the steps of a path: names of fields, and indices of elements.

    Parameters
    ----------
    path
        ``$`` is optional. A name stands after a dot, up to the next dot or bracket, or in brackets and quotes,
        where a backslash escapes quotes, itself, and what JSON escapes (``\n``, ``\u00e9`` …). An index stands in
        brackets; ``[-1]`` is the last element, and ``[*]`` each. A list of steps is taken as it is: strings are
        names, whole numbers indices, and ``...`` is each element.

    Raises
    ------
    UsageError
        It is not a path; the message points at the character.

    Examples
    --------
    >>> parse_path("$.user['first.name'][0]")
    ('user', 'first.name', 0)
    >>> parse_path(["a.b", 2]), parse_path("$"), parse_path("$.items[*].prices[-1]")
    (('a.b', 2), (), ('items', Ellipsis, 'prices', -1))
    """
    if isinstance(path, bytes | bytearray) or not isinstance(path, Iterable):
        raise UsageError("not a path", expected="a string, or a list of steps", found=repr(path))
    if not isinstance(path, str):
        return tuple(_step(step, place) for place, step in enumerate(path))
    return _parsed(path)


def single_path(path: str | Sequence[AnyStep], call: str) -> Path:
    """Return the steps of a path that leads to one value of each row: without ``[*]``."""
    head, *rest = divided(parse_path(path))
    if rest:
        raise UsageError(
            f"{call}() takes a path to one value",
            expected="no [*]",
            found=str(path),
            hint='Use get() of the path with "variant" as the type, which gives lists, or an index such as [0].',
        )
    return head


def divided(path: AnyPath) -> list[Path]:
    """Return the paths before, between and behind the steps ``...`` of a path."""
    paths: list[list[Step]] = [[]]
    for step in path:
        if isinstance(step, EllipsisType):
            paths.append([])
        else:
            paths[-1].append(step)
    return list(map(tuple, paths))


def _step(step: object, place: int) -> AnyStep:
    if isinstance(step, str):
        return _text(step, f"step {place}")
    if step is ...:
        return ...
    if isinstance(step, bool) or not isinstance(step, int) or not -_LARGEST <= step <= _LARGEST:
        raise UsageError(
            "a step of a path is a name or an index",
            expected="a string, less than 2^32, or ...",
            found=repr(step),
            where=f"step {place}",
        )
    return int(step)


def _text(name: str, where: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError("a name is not Unicode text", found=repr(name), where=where) from None
    return name


def _parsed(text: str) -> AnyPath:
    if not text:
        _refuse(text, 0, "an empty path", "$, or a step")
    steps: list[AnyStep] = []
    at = int(text[0] == "$")
    is_bare = text[0] not in "$.["  # a name without a dot before it
    while at < len(text):
        if is_bare or text[at] == ".":
            at += not is_bare
            is_bare = False
            end = _NAME.match(text, at).end()  # type: ignore[union-attr]  # of no letters, too
            if text[end : end + 1] in tuple("]'\""):
                _refuse(text, end, "a name holds what must be quoted", "a letter, . or [")
            if end == at:
                _refuse(text, at, "a name is empty", "a name")
            steps.append(_text(text[at:end], f"character {at}"))
            at = end
        elif text[at] == "[":
            step, at = _bracket(text, at + 1)
            steps.append(step)
        else:
            _refuse(text, at, "no step begins here", ". or [")
    return tuple(steps)


def _bracket(text: str, at: int) -> tuple[AnyStep, int]:
    """Return the step in a bracket, and where the bracket ends."""
    step: AnyStep = ...
    end = at + 1
    if text[at : at + 1] in ("'", '"'):
        step, end = _quoted(text, at)
    elif text[at : at + 1] != "*":
        end = _INDEX.match(text, at).end()  # type: ignore[union-attr]  # of no digits, too
        if not text[at:end].strip("-"):
            _refuse(text, end, "neither an index nor a quoted name", "digits, *, ' or \"")
        # Anything longer is out of range, and slow to convert.
        step = int(text[at:end]) if end - at <= 20 else _LARGEST + 1
        if abs(step) > _LARGEST:
            _refuse(text, at, "an index is too large", f"at most {_LARGEST}")
    if text[end : end + 1] != "]":
        _refuse(text, end, "a bracket is not closed", "]")
    return step, end + 1


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Return the name in quotes, and where the quotes end."""
    at, letters = start + 1, []
    while text[at : at + 1] != text[start]:
        if at >= len(text):
            _refuse(text, start, "a quote is not closed", text[start])
        letter, at = text[at], at + 1
        if letter == "\\":
            code = _CODE.match(text, at)
            if code is None and text[at : at + 1] not in _ESCAPES:
                _refuse(text, at, "no such escape", "one of \\ ' \" b f n r t / or u and four digits")
            letter = chr(int(code[1], 16)) if code else _ESCAPES[text[at]]
            at = code.end() if code else at + 1
        letters.append(letter)
    # Escaped halves of one character belong together.
    name = "".join(letters).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return _text(name, f"character {start}"), at + 1


def _refuse(text: str, at: int, what: str, expected: str) -> NoReturn:
    found = repr(text[at]) if at < len(text) else "the end"
    pointer = f"character {at} of\n    {text}\n    {' ' * at}^\n"
    raise UsageError(what, expected=expected, found=found, where=pointer, hint=_HINT)
