"""Variant's bytes written: metadata and arrays.

What is written follows the strictest readers: dictionaries sorted and unique and flagged so, fields in the order
of their names' UTF-8, children in that same order with offsets that start at 0 and rise, reserved bits 0, and
the narrowest width that holds each id, offset and count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from bowstring.errors import LimitExceeded
from bowstring.variant.codec.primitives import utf8

_ARRAY: Final = 3
_SMALL_COUNT: Final = 255
_LARGEST: Final = (1 << 32) - 1


def metadata_bytes(names: Sequence[str]) -> bytes:
    """Return the metadata component that holds distinct names in the order of their UTF-8."""
    encoded = [utf8(name, "a key") for name in names]
    offsets = _offsets(encoded)
    width = needed(max(offsets[-1], len(names)))
    header = 1 | bool(names) << 4 | (width - 1) << 6
    return bytes((header,)) + packed((len(names), *offsets), width) + b"".join(encoded)


def array_bytes(children: Sequence[bytes]) -> bytes:
    """Return an array of encoded children."""
    offsets = _offsets(children)
    width = needed(offsets[-1])
    large = len(children) > _SMALL_COUNT
    count = len(children).to_bytes(4 if large else 1, "little")
    header = _ARRAY | (width - 1 | large << 2) << 2
    return b"".join((bytes((header,)), count, packed(offsets, width), *children))


def _offsets(values: Sequence[bytes]) -> list[int]:
    return [0, *itertools.accumulate(map(len, values))]


def needed(number: int) -> int:
    """Return how many bytes an unsigned number takes, at least one."""
    if number > _LARGEST:
        raise LimitExceeded("a part of a Variant is too large", expected="less than 4 GiB", found=number)
    return max(1, (number.bit_length() + 7) // 8)


def packed(numbers: Iterable[int], width: int) -> bytes:
    """Return unsigned numbers of `width` bytes each."""
    if width == 1:
        return bytes(numbers)
    return b"".join([number.to_bytes(width, "little") for number in numbers])
