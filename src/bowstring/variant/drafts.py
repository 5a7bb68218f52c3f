"""Rows of Python objects, encoded as they come.

The ids of names, and so the heads of objects, depend on all names of a block. What does not is made at once: an
object is a *draft*, its shape (the keys, in their order) and its encoded children, until its block is whole.
"""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from bowstring.errors import LimitExceeded, UsageError
from bowstring.variant.codec.encode import array_bytes, metadata_bytes, needed, packed
from bowstring.variant.codec.primitives import Path, at, primitive_bytes, utf8
from bowstring.variant.python_leaves import children_of, is_missing, leaf_of

_SMALL_COUNT: Final = 255
_OBJECT: Final = 2

_BYTES: Final = [struct.pack("<Bb", 3 << 2, (number + 128) % 256 - 128) for number in range(256)]
_INT16, _INT32, _INT64 = struct.Struct("<Bh").pack, struct.Struct("<Bi").pack, struct.Struct("<Bq").pack
_DOUBLE: Final = struct.Struct("<Bd").pack
_SHORT: Final = [bytes((1 | length << 2,)) for length in range(64)]
_STRING: Final = struct.Struct("<BI").pack


def _integer(number: int) -> bytes:
    if -0x80 <= number < 0x80:
        return _BYTES[number & 0xFF]
    if -0x8000 <= number < 0x8000:
        return _INT16(4 << 2, number)
    if -0x8000_0000 <= number < 0x8000_0000:
        return _INT32(5 << 2, number)
    if -(1 << 63) <= number < 1 << 63:
        return _INT64(6 << 2, number)
    return primitive_bytes(leaf_of(number, None))


def _text(text: str) -> bytes:
    encoded = text.encode()
    size = len(encoded)
    return _SHORT[size] + encoded if size < 64 else _STRING(16 << 2, size) + encoded


# The exact types of most leaves; what raises here is looked at again, for the place of the error.
_LEAVES: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"\x00",
    bool: lambda flag: b"\x04" if flag else b"\x08",
    int: _integer,
    float: lambda number: _DOUBLE(7 << 2, number),
    str: _text,
}
_WRONG: Final = (UsageError, UnicodeEncodeError, struct.error)


class _Shape:
    """The keys of objects, as they came: rows are alike, so a shape is sorted once for many objects."""

    __slots__ = ("heads", "names", "order")

    def __init__(self, keys: tuple[Any, ...]) -> None:
        for key in keys:
            utf8(key, "a key")
        # In the order of their UTF-8.
        self.names = sorted(str.__str__(key) for key in keys)
        places = sorted(range(len(keys)), key=keys.__getitem__)
        ascending = places == list(range(len(keys)))
        # What brings values into that order; None where they are in it.
        self.order = None if ascending else operator.itemgetter(*places)
        # By the width of offsets: what stands before the offsets, in the present block.
        self.heads: dict[int, bytes] = {}

    def head(self, width: int, ids: Mapping[str, int]) -> bytes:
        """Return what stands before offsets of a width."""
        found = self.heads.get(width)
        if found is None:
            numbers = [ids[name] for name in self.names]
            id_width, count = needed(numbers[-1] if numbers else 0), len(numbers)
            large = count > _SMALL_COUNT
            header = _OBJECT | (width - 1 | (id_width - 1) << 2 | large << 4) << 2
            counted = count.to_bytes(4 if large else 1, "little")
            found = self.heads[width] = b"".join((bytes((header,)), counted, packed(numbers, id_width)))
        return found


_Flat = tuple[_Shape, int, bytes]
"""An object whose children are encoded: its shape, the width of its offsets, and offsets and children."""


class _Nested:
    """A container that holds objects: an array where it has no shape. `made` are its bytes, once they are known."""

    __slots__ = ("made", "parts", "shape")

    def __init__(self, shape: _Shape | None, parts: list[_Draft]) -> None:
        self.shape = shape
        self.parts = parts
        self.made = b""


_Draft = bytes | _Flat | _Nested


class _Frame:
    """A container whose children are being encoded."""

    __slots__ = ("left", "parts", "path", "shape")

    def __init__(self, shape: _Shape | None, left: Iterator[tuple[str | int, Any]], path: Path) -> None:
        self.shape = shape
        self.left = left
        self.parts: list[_Draft] = []
        self.path = path


def _tail(parts: Any) -> tuple[int, bytes]:
    """Return the width of the offsets of children, and offsets and children."""
    ends = [0, *itertools.accumulate(map(len, parts))]
    if ends[-1] < 256:
        return 1, bytes(ends) + b"".join(parts)
    width = needed(ends[-1])
    return width, b"".join((packed(ends, width), *parts))


class Block:
    """Rows that share a dictionary of names."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._shapes: dict[tuple[Any, ...], _Shape] = {}
        self._nested: list[_Nested] = []
        self.rows: list[_Draft | None] = []
        self.nbytes = 0

    def append(self, thing: Any) -> None:
        """Add a row; where it cannot be encoded, nothing is added."""
        made = self._plain(thing, 0) if type(thing) is dict else None
        if made is not None or thing is None:
            self.rows.append(made)
            return
        shapes, nested, nbytes = len(self._shapes), len(self._nested), self.nbytes
        try:
            self.rows.append(None if is_missing(thing) else self._draft(thing))
        except BaseException:
            while len(self._shapes) > shapes:
                self._shapes.popitem()
            del self._nested[nested:]
            self.nbytes = nbytes
            raise

    def _draft(self, thing: Any) -> _Draft:
        frames: list[_Frame] = []
        made = self._start(thing, None, frames)
        while frames:
            frame = frames[-1]
            parts, path = frame.parts, frame.path
            for step, child in frame.left:
                leaf = _LEAVES.get(type(child))
                found = (
                    self._start(child, (path, step), frames)
                    if leaf is None
                    else self._leaf(child, path, step)
                )
                if found is None:
                    break
                parts.append(found)
            else:
                frames.pop()
                made = self._close(frame)
                if frames:
                    frames[-1].parts.append(made)
        assert made is not None
        return made

    def _leaf(self, thing: Any, path: Path, step: str | int) -> bytes:
        try:
            return _LEAVES[type(thing)](thing)
        except _WRONG:
            return _other_leaf(thing, (path, step))

    def _start(self, thing: Any, path: Path, frames: list[_Frame]) -> _Draft | None:
        """Return the draft of an object, or None where its children are to be encoded first."""
        kind = type(thing)
        if kind is dict or kind is list:
            made = self._plain(thing, len(frames))
            if made is not None:
                return made
        elif kind in _LEAVES:
            try:
                made = _LEAVES[kind](thing)
            except _WRONG:
                made = _other_leaf(thing, path)
            self.nbytes += len(made)
            return made
        if isinstance(thing, np.ndarray) and not thing.ndim:
            thing = thing[()]
        steps = children_of(thing, path)
        if steps is None:
            made = _other_leaf(thing, path)
            self.nbytes += len(made)
            return made
        if len(frames) >= self._depth:
            raise LimitExceeded(
                "an object is nested too deeply for a Variant",
                expected=f"at most {self._depth} levels",
                where=at(path),
                hint="An object that holds itself has no Variant; else raise Limits.depth.",
            )
        what, children = steps
        shape = None
        if what == "object":
            try:
                shape = self._shape(tuple(key for key, _ in children))
            except UsageError as error:
                raise UsageError(
                    error.what, expected=error.expected, found=error.found, where=at(path)
                ) from error
        frames.append(_Frame(shape, iter(children), path))
        return None

    def _plain(self, thing: Any, depth: int) -> _Draft | None:
        """Return the draft of a dict or list of plain leaves; None where it is anything else."""
        if depth >= self._depth:
            return None
        try:
            if type(thing) is dict:
                keys = tuple(thing)
                parts: Any = [_LEAVES[type(child)](child) for child in thing.values()]
                shape = self._shapes.get(keys) or self._shape(keys)
                if shape.order is not None:
                    parts = shape.order(parts)
                width, tail = _tail(parts)
                self.nbytes += len(tail)
                return shape, width, tail
            made = array_bytes([_LEAVES[type(child)](child) for child in thing])
        except (KeyError, *_WRONG):
            return None
        self.nbytes += len(made)
        return made

    def _shape(self, keys: tuple[Any, ...]) -> _Shape:
        for key in keys:
            if not isinstance(key, str):
                raise UsageError("a key is not text", found=repr(key)[:80])
        found = self._shapes.get(keys)
        if found is None:
            found = self._shapes[keys] = _Shape(keys)
        return found

    def _close(self, frame: _Frame) -> _Draft:
        parts, shape = frame.parts, frame.shape
        if shape is not None and shape.order is not None:
            parts = list(shape.order(parts))
        self.nbytes += sum(len(each) for each in parts if type(each) is bytes)
        if shape is not None and all(type(each) is bytes for each in parts):
            return shape, *_tail(parts)
        if shape is None and all(type(each) is bytes for each in parts):
            return array_bytes(parts)  # type: ignore[arg-type]  # all are
        made = _Nested(shape, parts)
        self._nested.append(made)
        return made

    def finish(self) -> tuple[bytes, list[bytes | None]]:
        """Return the metadata of the block, and its rows."""
        names = sorted({name for shape in self._shapes.values() for name in shape.names})
        ids = dict(zip(names, range(len(names)), strict=True))

        def made(draft: Any) -> Any:
            kind = type(draft)
            if kind is tuple:
                shape, width, tail = draft
                return (shape.heads.get(width) or shape.head(width, ids)) + tail
            return draft.made if kind is _Nested else draft

        # A container is behind those that it holds.
        for nested in self._nested:
            parts = list(map(made, nested.parts))
            shape = nested.shape
            if shape is None:
                nested.made = array_bytes(parts)
            else:
                width, tail = _tail(parts)
                nested.made = shape.head(width, ids) + tail
            nested.parts = []
        return metadata_bytes(names), list(map(made, self.rows))


def _other_leaf(thing: Any, path: Path) -> bytes:
    try:
        return primitive_bytes(leaf_of(thing, path))
    except UsageError as error:
        where = error.where or at(path)
        raise UsageError(error.what, expected=error.expected, found=error.found, where=where) from error
