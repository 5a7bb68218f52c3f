"""Variant's bytes written: metadata, and whole trees of Values.

What is written follows the strictest readers: dictionaries sorted and unique and flagged so, fields in the order
of their names' UTF-8, children in that same order with offsets that start at 0 and rise, reserved bits 0, and
the narrowest width that holds each id, offset and count.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from bowstring.errors import LimitExceeded
from bowstring.variant.codec.primitives import Value, primitive_bytes, utf8

__all__ = ["encode_with", "metadata_bytes", "names_in"]

_OBJECT, _ARRAY = 2, 3
_SMALL_COUNT: Final = 255
_LARGEST: Final = (1 << 32) - 1


def metadata_bytes(names: Sequence[str]) -> bytes:
    """Return the metadata component that holds names in this order: those of :func:`names_in`.

    Raises
    ------
    UsageError
        A name that has no UTF-8: it holds half a surrogate pair.
    LimitExceeded
        The names take more than 4 GiB.
    """
    encoded = [utf8(name, "a key") for name in names]
    offsets = _offsets(encoded)
    width = _needed(max(offsets[-1], len(names)))
    header = 1 | bool(names) << 4 | (width - 1) << 6
    return bytes((header,)) + _packed((len(names), *offsets), width) + b"".join(encoded)


def names_in(values: Iterable[Value]) -> list[str]:
    """Return the keys of all objects in some trees, each once, in the order of their UTF-8."""
    found: set[str] = set()
    work = list(values)
    while work:
        value = work.pop()
        if value.type == "object":
            found.update(value.value)
            work.extend(value.value.values())
        elif value.type == "array":
            work.extend(value.value)
    # The order of code points is that of UTF-8.
    return sorted(found)


def encode_with(ids: Mapping[str, int], value: Value) -> bytes:
    """Return the value component of one tree, over a dictionary that holds all its keys.

    Raises
    ------
    UsageError
        A value that its type cannot hold, or text that has no UTF-8.
    LimitExceeded
        A text, binary or container of 4 GiB or more.
    """
    done: list[bytes] = []
    # A container comes twice: first for its children to be put before it, then to be closed around them.
    work: list[tuple[Value, bool]] = [(value, False)]
    while work:
        value, children_done = work.pop()
        if value.type not in ("object", "array"):
            done.append(primitive_bytes(value))
            continue
        if not children_done:
            work.append((value, True))
            inside = value.value if value.type == "array" else [field for _, field in _in_order(value)]
            work.extend((child, False) for child in reversed(inside))
            continue
        first = len(done) - len(value.value)
        children = done[first:]
        del done[first:]
        keys = None if value.type == "array" else [ids[name] for name, _ in _in_order(value)]
        done.append(_container(keys, children))
    return done[0]


def _container(ids: list[int] | None, children: list[bytes]) -> bytes:
    """Return an object of encoded children in the order of their names, or an array where there are no ids."""
    offsets = _offsets(children)
    width = _needed(offsets[-1])
    large = len(children) > _SMALL_COUNT
    count = len(children).to_bytes(4 if large else 1, "little")
    if ids is None:
        header, tables = _ARRAY | (width - 1 | large << 2) << 2, b""
    else:
        id_width = _needed(max(ids, default=0))
        header = _OBJECT | (width - 1 | (id_width - 1) << 2 | large << 4) << 2
        tables = _packed(ids, id_width)
    return b"".join((bytes((header,)), count, tables, _packed(offsets, width), *children))


def _in_order(value: Value) -> list[tuple[str, Value]]:
    return sorted(value.value.items(), key=operator.itemgetter(0))


def _offsets(values: Sequence[bytes]) -> list[int]:
    return [0, *itertools.accumulate(map(len, values))]


def _needed(number: int) -> int:
    """Return how many bytes an unsigned number takes, at least one."""
    if number > _LARGEST:
        raise LimitExceeded("a part of a Variant is too large", expected="less than 4 GiB", found=number)
    return max(1, (number.bit_length() + 7) // 8)


def _packed(numbers: Iterable[int], width: int) -> bytes:
    if width == 1:
        return bytes(numbers)
    return b"".join([number.to_bytes(width, "little") for number in numbers])
