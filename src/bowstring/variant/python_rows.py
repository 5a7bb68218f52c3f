"""Python rows made plain: copies that hold nothing but what ``marshal`` writes, and values that are encoded."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from bowstring.errors import LimitExceeded, UsageError
from bowstring.variant.codec.primitives import Path, at, primitive_bytes, utf8
from bowstring.variant.python_leaves import (
    EPOCH,
    EPOCH_UTC,
    FIRST_DAY,
    MICROSECOND,
    children_of,
    is_missing,
    leaf_of,
)

LARGEST: Final = (1 << 31) - 1
"""Bytes that the values of a column take at most."""
_KEPT: Final = 4096
_INT32, _INT64 = struct.Struct("<Bi").pack, struct.Struct("<Bq").pack
_INT32_SCALED, _INT64_SCALED = struct.Struct("<BBi").pack, struct.Struct("<BBq").pack
_SHORT, _SHORT_HEAD, _LONG_HEAD = 63, 1, 5


def _integer_size(number: int) -> int:
    if -0x80 <= number < 0x80:
        return 2
    bits = (number if number >= 0 else ~number).bit_length()
    if bits > 63:
        raise UsageError("an integer that is encoded as a decimal")
    return 3 if bits < 16 else 5 if bits < 32 else 9


def _text_size(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode())
    return size + (_SHORT_HEAD if size <= _SHORT else _LONG_HEAD)


# The exact types that stay as they are, and how many bytes each value takes; what raises is looked at again.
_SIZES: Final[dict[type, Callable[[Any], int]]] = {
    type(None): lambda _: 1,
    bool: lambda _: 1,
    int: _integer_size,
    float: lambda _: 9,
    str: _text_size,
}
_TEXT: Final = frozenset({str})


def _decimal(number: decimal.Decimal) -> bytes:
    whole, _, fraction = str(number).partition(".")
    unscaled, scale = int(whole + fraction), len(fraction)  # with an exponent, or no number: ValueError
    if scale <= 9 and -(10**9) < unscaled < 10**9:
        return _INT32_SCALED(8 << 2, scale, unscaled)
    if scale <= 18 and -(10**18) < unscaled < 10**18:
        return _INT64_SCALED(9 << 2, scale, unscaled)
    raise ValueError("more digits than a word holds")


def _moment(moment: dt.datetime) -> bytes:
    since = moment - (EPOCH if moment.tzinfo is None else EPOCH_UTC)
    return _INT64((13 if moment.tzinfo is None else 12) << 2, since // MICROSECOND)


# The exact types of most leaves that are encoded here: what the general way makes of them, without its search.
_ENCODE: Final[dict[type, Callable[[Any], bytes]]] = {
    decimal.Decimal: _decimal,
    dt.date: lambda day: _INT32(11 << 2, day.toordinal() - FIRST_DAY),
    dt.datetime: _moment,
    bytes: lambda payload: _INT32(15 << 2, len(payload)) + payload,
}
_ODD: Final = (KeyError, UsageError, ValueError)


def too_large(most: int, nbytes: int) -> LimitExceeded:
    """Return the error for values of a column that take too many bytes."""
    return LimitExceeded(
        "the values of a Variant column take too many bytes",
        expected=f"at most {most} bytes",
        found=nbytes,
        hint="Make several columns of fewer rows."
        if most == LARGEST
        else "Make several columns of fewer rows, or raise Limits.extracted_bytes.",
    )


class _Frame:
    """A container whose children are being copied."""

    __slots__ = ("left", "made", "path")

    def __init__(self, made: Any, left: Iterator[tuple[str | int, Any]], path: Path) -> None:
        self.made, self.left, self.path = made, left, path


class PlainRows:
    """Copies rows. `nbytes` counts what their values take, with one byte for the head of each container."""

    def __init__(self, depth: int, most: int) -> None:
        self._depth = depth
        self._most = most
        self._keys: set[tuple[str, ...]] = set()
        self.nbytes = 0

    def copy(self, thing: Any) -> Any:
        """Return a row of dict, list, str, int of 64 bits, float, bool and None; bytes are an encoded value, and
        None is an SQL NULL at the top.
        """
        if type(thing) is dict and (made := self._plain(thing)) is not None:
            return made
        return None if is_missing(thing) else self._copied(thing)

    def _plain(self, thing: dict[Any, Any]) -> dict[str, Any] | None:
        """Return the copy of a dict of plain leaves; None where it is anything else."""
        if tuple(thing) not in self._keys or not _TEXT.issuperset(map(type, thing)):
            return None
        made = thing.copy()
        total = 1
        try:
            for key, child in thing.items():
                size = _SIZES.get(type(child))
                if size is None:
                    made[key] = encoded = _ENCODE[type(child)](child)
                    total += len(encoded)
                else:
                    total += size(child)
        except _ODD:
            return None
        self.nbytes += total
        return made

    def _copied(self, thing: Any) -> Any:
        frames: list[_Frame] = []
        made = self._start(thing, None, frames)
        while frames:
            frame = frames[-1]
            for step, child in frame.left:
                depth = len(frames)
                found = self._start(child, (frame.path, step), frames)
                if type(frame.made) is list:
                    frame.made.append(found)
                else:
                    frame.made[step] = found
                if len(frames) > depth:
                    break
            else:
                frames.pop()
        return made

    def _start(self, thing: Any, path: Path, frames: list[_Frame]) -> Any:
        """Return the copy of a value; of a container, an empty one, whose frame is the last."""
        kind = type(thing)
        if kind in _SIZES:
            try:
                self.nbytes += _SIZES[kind](thing)
            except _ODD:
                return self._encoded(thing, path)
            # At the top None is an SQL NULL, and was returned.
            return thing
        if kind is dict and len(frames) < self._depth and (plain := self._plain(thing)) is not None:
            return plain
        if isinstance(thing, np.ndarray) and not thing.ndim:
            thing = thing[()]
        steps = children_of(thing, path)
        if steps is None:
            return self._encoded(thing, path)
        if len(frames) >= self._depth:
            raise LimitExceeded(
                "an object is nested too deeply for a Variant",
                expected=f"at most {self._depth} levels",
                where=at(path),
                hint="An object that holds itself has no Variant; else raise Limits.depth.",
            )
        if self.nbytes > self._most:
            # Before all of it is copied: what holds something twice, in each other, has no end.
            raise too_large(self._most, self.nbytes)
        what, children = steps
        made: Any = {} if what == "object" else []
        if what == "object":
            children = self._named(children, path)
        self.nbytes += 1
        frames.append(_Frame(made, iter(children), path))
        return made

    def _named(self, children: list[tuple[str | int, Any]], path: Path) -> list[tuple[str | int, Any]]:
        """Return fields by their very text, which is checked."""
        keys = tuple(str.__str__(key) for key, _ in children)
        if keys not in self._keys:
            try:
                for key in keys:
                    utf8(key, "a key")
            except UsageError as error:
                raise UsageError(
                    error.what, expected=error.expected, found=error.found, where=at(path)
                ) from error
            if len(set(keys)) < len(keys):
                raise UsageError("an object has a key twice", found=repr(keys)[:80], where=at(path))
            if len(self._keys) >= _KEPT:
                self._keys.clear()
            self._keys.add(keys)
        return list(zip(keys, (child for _, child in children), strict=True))

    def _encoded(self, thing: Any, path: Path) -> bytes:
        made = b""
        if type(thing) in _ENCODE:
            with contextlib.suppress(ValueError):
                made = _ENCODE[type(thing)](thing)
        try:
            made = made or primitive_bytes(leaf_of(thing, path))
        except UsageError as error:
            where = error.where or at(path)
            raise UsageError(error.what, expected=error.expected, found=error.found, where=where) from error
        self.nbytes += len(made)
        return made
