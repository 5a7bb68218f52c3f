"""The metadata of names, written.

What is written follows the strictest readers: sorted, unique and flagged so, reserved bits 0, and the narrowest
width that holds each offset.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from bowstring.errors import LimitExceeded
from bowstring.variant.codec.primitives import utf8

_LARGEST: Final = (1 << 32) - 1


def metadata_bytes(names: Sequence[str]) -> bytes:
    """Return the metadata component that holds distinct names in the order of their UTF-8."""
    encoded = [utf8(name, "a key") for name in names]
    numbers = [len(names), 0, *itertools.accumulate(map(len, encoded))]
    largest = max(numbers)
    if largest > _LARGEST:
        raise LimitExceeded("a part of a Variant is too large", expected="less than 4 GiB", found=largest)
    width = max(1, (largest.bit_length() + 7) // 8)
    header = bytes((1 | bool(names) << 4 | (width - 1) << 6,))
    return b"".join((header, *(number.to_bytes(width, "little") for number in numbers), *encoded))
