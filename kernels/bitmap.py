"""Bitmaps: one bit per slot, least significant bit first, at any bit offset.

On a device the kernels of :mod:`bowstring.kernels.validity` do the work where a compiler for it is installed. On
the host, and elsewhere without one, forms over whole arrays do: there NumPy is as quick (expanding and packing
10 million bits takes it a tenth of the kernels' time, counting half), and needs no 0.3 s to load a compiler.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.errors import InvalidBody
from bowstring.kernels import validity
from bowstring.kernels.launch import can_launch, launch, run_arrays

_ALL = 0xFF
_WORD = 64
_PACKED = 32


def bytes_for(bits: int) -> int:
    """Return how many bytes hold `bits` bits."""
    return (bits + 7) >> 3


def shifted(bitmap: Any, start: int, length: int) -> Any:
    """Return a new bitmap with the bits ``[start, start + length)`` of another; the bits behind them are 0."""
    # bitmap: array of uint8; on any device; it holds at least ``start + length`` bits
    # Returns array of uint8, shape (ceil(length / 8),): on the same device
    _check(bitmap, start, length)
    if not _has_kernels(bitmap):
        return run_arrays(_shifted, bitmap, start, length)
    words = _empty(bitmap, _words(length), np.uint64)
    launch(validity.shift_bits, len(words), *with_words(bitmap), start, length, words)
    return words.view(np.uint8)[: bytes_for(length)]


def count_set(bitmap: Any, start: int, length: int) -> Any:
    """Return the number of set bits in ``[start, start + length)``."""
    # bitmap: array of uint8; on any device; it holds at least ``start + length`` bits
    # Returns array of int64, shape (1,): on the same device, so that many counts can be fetched at once
    _check(bitmap, start, length)
    if not _has_kernels(bitmap) or not length:
        return run_arrays(_count_set, bitmap, start, length)
    tiles = -(-_words(length) // int(validity.LANES * validity.COUNTED))
    counts = _empty(bitmap, tiles * int(validity.LANES), np.int64)
    launch(validity.count_bits, len(counts), *with_words(bitmap), start, length, counts)
    return run_arrays(lambda _, each: each.sum(dtype=np.int64, keepdims=True), counts)


def expanded(bitmap: Any, start: int, length: int) -> Any:
    """Return the bits ``[start, start + length)`` as an array of bool."""
    _check(bitmap, start, length)
    if not _has_kernels(bitmap):
        return run_arrays(_expanded, bitmap, start, length)
    words = _empty(bitmap, bytes_for(length), np.uint64)
    launch(validity.expand_bits, len(words), bitmap, start, words)
    return words.view(np.bool_)[:length]


def packed(flags: Any) -> Any:
    """Return an array of bool as a bitmap."""
    if not _has_kernels(flags):
        return run_arrays(lambda xp, bits: xp.packbits(bits, bitorder="little"), flags)
    packed = _empty(flags, -(-len(flags) // _PACKED), np.uint32)
    launch(validity.pack_flags, len(packed), *with_words(flags.view(np.uint8)), packed)
    return packed.view(np.uint8)[: bytes_for(len(flags))]


def both(left: Any, left_start: int, right: Any, right_start: int, length: int) -> Any:
    """Return a new bitmap of the slots that are set in two others, each from a bit of its own on."""
    # left, right: array of uint8; on one device; they hold at least so many bits
    # Returns array of uint8, shape (ceil(length / 8),): on the same device; the bits behind the last are
    # 0
    return _combined(validity.and_bits, "bitwise_and", left, left_start, right, right_start, length)


def either(left: Any, left_start: int, right: Any, right_start: int, length: int) -> Any:
    """Return a new bitmap of the slots that are set in one of two others; see :func:`both`."""
    return _combined(validity.or_bits, "bitwise_or", left, left_start, right, right_start, length)


def with_words(data: Any) -> tuple[Any, Any, int]:
    """Return bytes, the whole words of 64 bits among them, and with which byte these begin."""
    on_host = isinstance(data, np.ndarray)
    address = data.__array_interface__["data"][0] if on_host else data.data.ptr
    lead = min(-address & 7, len(data))
    return data, data[lead : lead + (len(data) - lead & ~7)].view(np.uint64), lead


def _has_kernels(array: Any) -> bool:
    return type(array) is not np.ndarray and can_launch(array)


def _words(bits: int) -> int:
    return -(-bits // _WORD)


def _empty(beside: Any, size: int, dtype: Any) -> Any:
    """Return a new array on the device of another."""
    return run_arrays(lambda xp, _: xp.empty(size, dtype), beside)


def _combined(
    kernel: Any, name: str, left: Any, left_start: int, right: Any, right_start: int, length: int
) -> Any:
    _check(left, left_start, length)
    _check(right, right_start, length)
    if not _has_kernels(left):
        moved = shifted(left, left_start, length), shifted(right, right_start, length)
        return run_arrays(lambda xp, *bits: getattr(xp, name)(*bits), *moved)
    words = _empty(left, _words(length), np.uint64)
    ours, others = (*with_words(left), left_start), (*with_words(right), right_start)
    launch(kernel, len(words), *ours, *others, length, words)
    return words.view(np.uint8)[: bytes_for(length)]


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
    end = start + length
    whole = bitmap[start >> 3 : bytes_for(end)]
    before, behind = xp.uint8(_ALL >> 8 - (start & 7)), xp.uint8(_ALL & ~(_ALL >> (-end & 7)))
    parts = (
        whole,
        whole[:1] & before,
        whole[-1:] & behind,
    )  # all bits of its bytes, and those that are not asked for
    total, *others = (xp.bitwise_count(each).sum(dtype=xp.int64, keepdims=True) for each in parts)
    return total - sum(others)


def _expanded(xp: Any, bitmap: Any, start: int, length: int) -> Any:
    first, end = start >> 3, bytes_for(start + length)
    bits = xp.unpackbits(bitmap[first:end], bitorder="little")
    return bits[start & 7 : (start & 7) + length].view(np.bool_)
