"""Texts in the order of their bytes: sorted by a few bytes at a time, as numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["in_order"]

# So many times bytes are taken; what is not in order then is compared as a whole.
_ROUNDS: Final = 8
# So long a beginning of all texts is passed over at most: long texts are not looked at word by word.
_PREFIX: Final = 512
_WORD: Final = 8
_BITS: Final = 64
_MARK_BITS: Final = 4
_MARK: Final = np.uint64((1 << _MARK_BITS) - 1)

_Array = np.ndarray[Any, Any]


def in_order(data: _Array, offsets: _Array) -> tuple[_Array, _Array]:
    """Return which text comes at each place of their order, and whether it is another than the one before.

    Parameters
    ----------
    data : ndarray of uint8
        All texts, one behind the other.
    offsets : ndarray of int64, shape (texts + 1,)

    Examples
    --------
    >>> order, is_new = in_order(np.frombuffer(b"bab", np.uint8), np.arange(4))
    >>> order[is_new].tolist(), is_new.tolist()
    ([1, 0], [True, True, False])
    """
    count = len(offsets) - 1
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    # NumPy takes bytes from anywhere faster than it takes numbers from places that are not theirs.
    words: _Array = np.ndarray((len(data) + 1,), f"V{_WORD}", padded.data, strides=(1,))
    starts, lengths = offsets[:-1], np.diff(offsets)
    order, is_new = np.arange(count), np.zeros(count, np.bool_)
    is_new[:1] = True
    done = _common(words, starts, lengths)
    # Places whose texts are alike so far, and which group of such each is in.
    tied, groups, bits = np.arange(count), np.zeros(count, np.uint64), 0
    for _ in range(_ROUNDS):
        if not len(tied):
            break
        width = (_BITS - _MARK_BITS - bits) // 8
        texts = order[tied]
        numbers = _numbers(words, starts[texts] + done, lengths[texts] - done, width)
        if bits:
            numbers |= groups << np.uint64(_BITS - bits)
        sort = np.argsort(numbers)
        order[tied], numbers = texts[sort], numbers[sort]
        first = np.ones(len(tied) + 1, np.bool_)
        np.not_equal(numbers[1:], numbers[:-1], out=first[1:-1])
        is_new[tied] |= first[:-1]
        alike = ~(first[:-1] & first[1:]) & (numbers & _MARK == np.uint64(width + 1))
        groups = np.cumsum(first[:-1], dtype=np.uint64)[alike]
        tied = tied[alike]
        done += width
        bits = count.bit_length()
    if len(tied):
        _compare(data, offsets, order, is_new, tied)
    return order, is_new


def _common(words: _Array, starts: _Array, lengths: _Array) -> int:
    """Return how many bytes all texts begin with, in whole words, as far as that is looked at."""
    shortest, done = int(lengths.min(initial=1 << 62)), 0
    while len(starts) and done + _WORD <= min(shortest, _PREFIX):
        here = words[starts + done]
        if (here != here[0]).any():
            break
        done += _WORD
    return done


def _numbers(words: _Array, places: _Array, left: _Array, width: int) -> _Array:
    """Return the next `width` bytes of texts as numbers, and how many there are, one more than these at most.

    So what is shorter comes first, where the other goes on with zeros.
    """
    beyond = (8 * np.maximum(width - left, 0)).astype(np.uint64)
    numbers: _Array = words[places].view(">u8").astype(np.uint64)
    numbers >>= np.uint64(_BITS - 8 * width)
    numbers >>= beyond
    numbers <<= beyond
    numbers <<= np.uint64(_MARK_BITS)
    numbers |= np.minimum(left, width + 1).astype(np.uint64)
    return numbers


def _compare(data: _Array, offsets: _Array, order: _Array, is_new: _Array, tied: _Array) -> None:
    """Put in order what is tied."""
    import pyarrow.compute as pc  # it takes long to import

    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    chosen = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers).take(
        pa.array(order[tied])
    )
    sort = pc.array_sort_indices(chosen)
    order[tied] = order[tied][sort.to_numpy()]
    ascending = chosen.take(sort)
    is_new[tied[1:]] |= pc.not_equal(ascending[1:], ascending[:-1]).to_numpy(zero_copy_only=False)
