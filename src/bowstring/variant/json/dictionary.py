"""The keys of a block of rows: those that its chunks found, joined, in the order of their UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import LimitExceeded

__all__ = ["Keys", "join_keys"]

_Array = np.ndarray[Any, Any]
Keys = tuple[_Array, _Array]
"""Keys as they were numbered: their bytes, one behind the other, and the length of each."""

_SORTED: Final = 0x11
_EMPTY: Final = b"\x01\x00\x00"
_LARGEST: Final = (1 << 31) - 1


def join_keys(chunks: Sequence[Keys]) -> tuple[bytes, list[_Array]]:
    """Return the metadata of the distinct keys of all chunks, and the rank of each key of each chunk.

    Raises
    ------
    LimitExceeded
        The distinct keys take more than 2 GiB.
    """
    import pyarrow.compute as pc  # takes long to import

    lengths = np.concatenate([np.zeros(1, np.uint64), *(chunk[1] for chunk in chunks)])
    data = np.concatenate([np.zeros(0, np.uint8), *(chunk[0] for chunk in chunks)])
    offsets = np.cumsum(lengths, dtype=np.int64)
    keys = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    # Sorted, not hashed: Arrow's hash has no seed, so that keys could be chosen to collide.
    order = pc.array_sort_indices(keys)
    ascending = keys.take(order)
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = pc.not_equal(ascending[1:], ascending[:-1]).to_numpy(zero_copy_only=False)
    ranks = np.empty(len(keys), np.uint32)
    ranks[order.to_numpy()] = np.cumsum(is_new, dtype=np.uint32) - np.uint32(1)
    bounds = np.cumsum([len(chunk[1]) for chunk in chunks])[:-1]
    return _metadata(ascending.filter(pa.array(is_new))), np.split(ranks, bounds)


def _metadata(names: pa.LargeBinaryArray) -> bytes:
    """Return the metadata of distinct names that ascend."""
    if not len(names):
        return _EMPTY
    _, buffer, data = names.buffers()
    offsets = np.frombuffer(buffer, np.int64)[names.offset : names.offset + len(names) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    largest = max(last - first, len(names))
    if largest > _LARGEST:
        raise LimitExceeded("the keys of a block of rows", expected="at most 2 GiB", found=largest)
    width = (largest.bit_length() + 7) // 8
    numbers = np.append(len(names), offsets - first).astype("<u4")
    packed = numbers.view(np.uint8).reshape(-1, 4)[:, :width].tobytes()
    text = memoryview(data)[first:last] if data is not None else b""
    return b"".join((bytes((_SORTED | (width - 1) << 6,)), packed, text))
