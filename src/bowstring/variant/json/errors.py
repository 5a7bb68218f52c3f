"""What is wrong with a JSON text, in words."""

from __future__ import annotations

import json
from typing import Final

from bowstring.errors import BowstringError, InvalidBody, LimitExceeded
from bowstring.kernels.json import format as status
from bowstring.limits import Limits

__all__ = ["error_of"]

_SHOWN: Final = 20
_LONGEST_KEY: Final = 80
_LEAD_OF_HALF: Final = 0xED
_FIRST_OF_HALF: Final = 0xA0
_WHAT: Final = {
    int(status.END): "the text ends before its value does",
    int(status.UNEXPECTED): "this cannot be here",
    int(status.CONTROL): "a control character in a string",
    int(status.ESCAPE): "no escape",
    int(status.TRAILING): "something behind the value",
}


def error_of(code: int, text: bytes, place: int, row: int, limits: Limits) -> BowstringError:
    """Return the error of a row.

    Parameters
    ----------
    code
        What became of it, of :mod:`bowstring.kernels.json.format`.
    text
        Its bytes, empty where they are too many.
    place
        The byte that it is about.

    Examples
    --------
    >>> from bowstring.limits import DEFAULT_LIMITS
    >>> print(error_of(3, b"[1,]", 3, 7, DEFAULT_LIMITS))
    not JSON: this cannot be here; found ']'; at row 7, byte 3
    """
    where = f"row {row}, byte {place}"
    shown = _shown(text, place)
    if code == status.TOO_DEEP:
        return LimitExceeded(
            "JSON is nested too deeply",
            expected=f"at most {limits.depth} levels",
            where=where,
            hint="Raise Limits.depth.",
        )
    if code == status.TOO_LONG:
        return LimitExceeded(
            "a JSON text is too long",
            expected=f"at most {limits.json_bytes} bytes",
            where=f"row {row}",
            hint="Raise Limits.json_bytes.",
        )
    if code == status.OUTSIDE:
        return InvalidBody("a text is not within its buffer", where=f"row {row}")
    if code == status.TWICE:
        return InvalidBody("a JSON object has a key twice", found=_key(text, place), where=where)
    if code == status.RANGE:
        return InvalidBody("a number of JSON is beyond the doubles", found=shown, where=where)
    if code == status.SURROGATE:
        return InvalidBody("half a surrogate pair has no UTF-8", found=shown, where=where)
    if code == status.NO_TEXT:
        return _no_text(text, place, row)
    return InvalidBody(f"not JSON: {_WHAT[code]}", found=shown, where=where)


def _shown(text: bytes, place: int) -> str:
    part = text[place : place + _SHOWN].decode(errors="replace")
    return repr(part) if part else "the end"


def _key(text: bytes, place: int) -> str:
    key, _ = json.JSONDecoder().raw_decode(text[place:].decode(errors="replace"))
    return repr(key)[:_LONGEST_KEY]


def _no_text(text: bytes, place: int, row: int) -> InvalidBody:
    """Return the error of a string that is not UTF-8, which begins at `place`."""
    what, found = "JSON text is not UTF-8", ""
    try:
        text[place:].decode()
    except UnicodeDecodeError as error:
        wrong = text[place + error.start : place + error.end + 1]
        if len(wrong) > 1 and wrong[0] == _LEAD_OF_HALF and wrong[1] >= _FIRST_OF_HALF:
            what = "half a surrogate pair has no UTF-8"
        place, found = place + error.start, f"{error.reason}: {wrong[:1].hex()}"
    return InvalidBody(what, found=found, where=f"row {row}, byte {place}")
