"""Python objects from Variant columns.

Rows are validated by a kernel; those that are right are then read without looking back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from bowstring.errors import BowstringError, InvalidBody
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.codec.decode import decode, decode_names
from bowstring.variant.codec.primitives import Budget, Value, primitive
from bowstring.variant.codec.rows import in_row, open_on_host, raw_rows, values
from bowstring.variant.column import VariantColumn
from bowstring.variant.python_leaves import python_leaf
from bowstring.variant.status import Status
from bowstring.variant.validate import statuses_of


def to_python(
    column: Any, *, typed: bool = False, plain: bool = False, limits: Limits | None = None
) -> list[Any]:
    """Return a Variant column as Python objects.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    typed
        Give trees of :class:`Value`, which say the type and tell a Variant null, ``Value("null", None)``, from
        an SQL NULL, None. Else both are None, and only what Python has no exact type for stays a Value:
        timestamps of nanoseconds, and dates and timestamps outside of the years 1 to 9999.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``depth`` bounds the nesting.

    Raises
    ------
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep; the error says its row and its place.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> from bowstring.variant.builder import from_python
    >>> column = from_python([{"id": 1}, 2.5, None])
    >>> to_python(column)
    [{'id': 1}, 2.5, None]
    >>> to_python(column, typed=True)[1]
    Value(type='double', value=2.5)
    """
    limits = limits_or_default(limits)
    opened = open_on_host(column, "to_python", plain=plain)
    if typed:
        return list(values(opened, limits=limits))
    right = _right(opened, limits)
    read = _Reader().read
    rows: list[Any] = []
    for row, raw in enumerate(raw_rows(opened)):
        if raw is None:
            rows.append(None)
        elif right[row]:
            rows.append(read(*raw))
        else:
            # Also what is read for all that: an old order of fields.
            try:
                rows.append(python_of(decode(*raw, limits=limits)))
            except BowstringError as error:
                raise in_row(error, row) from error
    return rows


def _right(opened: VariantColumn, limits: Limits) -> list[bool]:
    """Return which rows are what the specification says."""
    try:
        found: list[bool] = (statuses_of(opened, limits=limits) == Status.OK).tolist()
    except InvalidBody:  # offsets that decrease: the rows are looked at one by one
        found = [False] * opened.rows
    return found


def python_of(value: Value) -> Any:
    """Return a typed tree as plain Python objects; leaves as
    :func:`~bowstring.variant.python_leaves.python_leaf`.
    """
    root: list[Any] = []
    work: list[tuple[Value, str | None, Any]] = [(value, None, root)]
    while work:
        value, key, target = work.pop()
        found: Any
        if value.type == "object":
            found = {}
            work.extend((child, name, found) for name, child in reversed(value.value.items()))
        elif value.type == "array":
            found = []
            work.extend((child, None, found) for child in reversed(value.value))
        else:
            found = python_leaf(value)
        if key is None:
            target.append(found)
        else:
            target[key] = found
    return root[0]


_NO_BUDGET: Final = Budget(nodes=1 << 62, bytes=1 << 62)
_LONG: Final = 4
_KEPT: Final = 64
_SHAPES_KEPT: Final = 4096
_Leaf = Callable[[bytes, int], Any]


def _number(letter: str) -> _Leaf:
    unpack = struct.Struct(letter).unpack_from
    return lambda data, at: unpack(data, at + 1)[0]


def _short(size: int) -> _Leaf:
    return lambda data, at: data[at + 1 : at + 1 + size].decode()


def _long(data: bytes, at: int) -> str:
    size = int.from_bytes(data[at + 1 : at + 5], "little")
    return data[at + 5 : at + 5 + size].decode()


def _other(data: bytes, at: int) -> Any:
    return python_leaf(primitive(data, at, len(data), _NO_BUDGET, None))


# By the header: None for containers.
_LEAVES: Final[list[_Leaf | None]] = [None if header & 2 else _other for header in range(256)]
_LEAVES[0] = lambda _, __: None
_LEAVES[1 << 2] = lambda _, __: True
_LEAVES[2 << 2] = lambda _, __: False
for _kind, _letter in ((3, "<b"), (4, "<h"), (5, "<i"), (6, "<q"), (7, "<d"), (14, "<f")):
    _LEAVES[_kind << 2] = _number(_letter)
_LEAVES[16 << 2] = _long
for _size in range(64):
    _LEAVES[1 | _size << 2] = _short(_size)


class _Reader:
    """Reads values that are right. The names of objects are found once for those that begin with the same bytes."""

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[tuple[str, ...], dict[bytes, list[str]]]] = {}

    def read(self, metadata: bytes, data: bytes) -> Any:
        """Return a value as Python objects."""
        leaf = _LEAVES[data[0]]
        if leaf is not None:
            return leaf(data, 0)
        known = self._names.get(metadata)
        if known is None:
            if len(self._names) >= _KEPT:
                self._names.clear()
            known = self._names[metadata] = decode_names(metadata), {}
        root: Any = {} if data[0] & 3 == 2 else []
        work = [(0, root)]
        while work:
            at, target = work.pop()
            if type(target) is dict:
                keys, begin, places = self._fields(known, data, at)
                for key, offset in zip(keys, places, strict=False):
                    place = begin + offset
                    header = data[place]
                    leaf = _LEAVES[header]
                    if leaf is not None:
                        target[key] = leaf(data, place)
                    else:
                        child: Any = {} if header & 3 == 2 else []
                        target[key] = child
                        work.append((place, child))
            else:
                begin, places = _elements(data, at)
                for offset in places:
                    place = begin + offset
                    header = data[place]
                    leaf = _LEAVES[header]
                    if leaf is not None:
                        target.append(leaf(data, place))
                    else:
                        child = {} if header & 3 == 2 else []
                        target.append(child)
                        work.append((place, child))
        return root

    def _fields(
        self, known: tuple[tuple[str, ...], dict[bytes, list[str]]], data: bytes, at: int
    ) -> tuple[list[str], int, Any]:
        """Return the keys of an object, where its values begin, and the place of each behind that."""
        header = data[at]
        width, id_width = (header >> 2 & 3) + 1, (header >> 4 & 3) + 1
        ids = at + (5 if header & 0x40 else 2)
        count = data[at + 1] if ids == at + 2 else int.from_bytes(data[at + 1 : ids], "little")
        offsets = ids + count * id_width
        names, shapes = known
        keys = shapes.get(data[at:offsets])
        if keys is None:
            if len(shapes) >= _SHAPES_KEPT:
                shapes.clear()
            keys = [names[number] for number in _unpacked(data, ids, id_width, count)]
            shapes[data[at:offsets]] = keys
        return keys, offsets + (count + 1) * width, _unpacked(data, offsets, width, count)


def _elements(data: bytes, at: int) -> tuple[int, Any]:
    """Return where the values of an array begin, and the place of each behind that."""
    header = data[at]
    width = (header >> 2 & 3) + 1
    offsets = at + (5 if header & 0x10 else 2)
    count = int.from_bytes(data[at + 1 : offsets], "little")
    return offsets + (count + 1) * width, _unpacked(data, offsets, width, count)


def _unpacked(data: bytes, at: int, width: int, count: int) -> Any:
    """Return `count` unsigned numbers."""
    if width == 1:
        return data[at : at + count]
    if width == 2:
        return struct.unpack_from(f"<{count}H", data, at)
    if width == _LONG:
        return struct.unpack_from(f"<{count}I", data, at)
    return [
        int.from_bytes(data[each : each + width], "little") for each in range(at, at + count * width, width)
    ]
