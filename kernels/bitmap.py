"""Bitmaps: one bit per slot, least significant bit first, at any bit offset.

Work item: one byte of the bitmap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.errors import InvalidBody
from bowstring.kernels.launch import launch

__all__ = ["bytes_for", "count_set", "expanded", "packed", "shifted"]

_ALL = 0xFF


def bytes_for(bits: int) -> int:
    """Return how many bytes hold `bits` bits.

    Examples
    --------
    >>> bytes_for(0), bytes_for(8), bytes_for(9)
    (0, 1, 2)
    """
    return (bits + 7) >> 3


def shifted(bitmap: Any, start: int, length: int) -> Any:
    """Return a new bitmap with the bits ``[start, start + length)`` of another; the bits behind them are 0.

    Parameters
    ----------
    bitmap : array of uint8
        On any device; it holds at least ``start + length`` bits.

    Returns
    -------
    array of uint8, shape (ceil(length / 8),)
        On the same device.

    Raises
    ------
    InvalidBody
        The bitmap is too short.

    Examples
    --------
    >>> shifted(np.array([0b10110000, 0b00000001], np.uint8), 4, 5).tolist()
    [27]
    """
    _check(bitmap, start, length)
    return launch(_shifted, bitmap, start, length)


def count_set(bitmap: Any, start: int, length: int) -> Any:
    """Return the number of set bits in ``[start, start + length)``.

    Parameters
    ----------
    bitmap : array of uint8
        On any device; it holds at least ``start + length`` bits.

    Returns
    -------
    array of int64, shape (1,)
        On the same device, so that many counts can be fetched at once.

    Raises
    ------
    InvalidBody
        The bitmap is too short.

    Examples
    --------
    >>> count_set(np.array([0b10110000, 0b00000001], np.uint8), 4, 5).tolist()
    [4]
    """
    _check(bitmap, start, length)
    return launch(_count_set, bitmap, start, length)


def expanded(bitmap: Any, start: int, length: int) -> Any:
    """Return the bits ``[start, start + length)`` as an array of bool.

    Raises
    ------
    InvalidBody
        The bitmap is too short.

    Examples
    --------
    >>> expanded(np.array([0b101], np.uint8), 0, 3).tolist()
    [True, False, True]
    """
    _check(bitmap, start, length)
    return launch(_expanded, bitmap, start, length)


def packed(flags: Any) -> Any:
    """Return an array of bool as a bitmap.

    Examples
    --------
    >>> packed(np.array([True, False, True])).tolist()
    [5]
    """
    return launch(_packed, flags)


def _check(bitmap: Any, start: int, length: int) -> None:
    if start < 0 or length < 0 or bytes_for(start + length) > len(bitmap):
        raise InvalidBody(
            "a bitmap is too short", expected=f"{start + length} bits", found=f"{len(bitmap)} bytes"
        )


def _shifted(xp: Any, bitmap: Any, start: int, length: int) -> Any:
    size = bytes_for(length)
    if not size:
        return xp.empty(0, xp.uint8)
    first, shift = start >> 3, start & 7
    if shift:
        out = xp.right_shift(bitmap[first : first + size], xp.uint8(shift))
        following = bitmap[first + 1 : first + 1 + size]  # one byte less where the bitmap ends
        out[: len(following)] |= xp.left_shift(following, xp.uint8(8 - shift))
    else:
        out = bitmap[first : first + size].copy()
    if length & 7:
        out[-1:] &= xp.uint8(_ALL >> (8 - (length & 7)))
    return out


def _count_set(xp: Any, bitmap: Any, start: int, length: int) -> Any:
    first, last = start >> 3, (start + length) >> 3
    if first == last:
        return _count_bits(xp, bitmap[first : first + 1], start & 7, (start + length) & 7)
    total = _count_bits(xp, bitmap[first : first + 1], start & 7, 8)
    total = total + xp.bitwise_count(bitmap[first + 1 : last]).sum(dtype=xp.int64, keepdims=True)
    return total + _count_bits(xp, bitmap[last : last + 1], 0, (start + length) & 7)


def _count_bits(xp: Any, byte: Any, start: int, stop: int) -> Any:
    mask = (_ALL << start) & (_ALL >> (8 - stop))
    return xp.bitwise_count(byte & xp.uint8(mask)).sum(dtype=xp.int64, keepdims=True)


def _expanded(xp: Any, bitmap: Any, start: int, length: int) -> Any:
    first, end = start >> 3, bytes_for(start + length)
    bits = xp.unpackbits(bitmap[first:end], bitorder="little")
    return bits[start & 7 : (start & 7) + length].view(np.bool_)


def _packed(xp: Any, flags: Any) -> Any:
    return xp.packbits(flags, bitorder="little")
