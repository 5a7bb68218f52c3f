"""Memory of a pool that a user chose.

pyarrow's buffers give their memory back to their pool, and do not keep it alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bowstring.memory import foreign_region

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from bowstring.memory import Region

__all__ = ["kept_with", "region_around"]


def kept_with(buffers: Any, memory_pool: pa.MemoryPool | None) -> object:
    """Return an owner of buffers and of the pool that they come from; None is pyarrow's own, which lives for good.

    Examples
    --------
    >>> import pyarrow as pa
    >>> pool = pa.proxy_memory_pool(pa.default_memory_pool())
    >>> owner = kept_with(pa.allocate_buffer(64, pool), pool)
    >>> pool.bytes_allocated()
    64
    >>> del owner
    >>> pool.bytes_allocated()
    0
    """
    # A tuple lets go of its last member first.
    return buffers if memory_pool is None else (memory_pool, buffers)


def region_around(
    buffers: Sequence[pa.Buffer], memory_pool: pa.MemoryPool | None
) -> tuple[list[int], list[Region]]:
    """Return where each buffer begins in one region around them all, and that region; none where all are empty.

    Without NumPy: what was decompressed has driven its code from the caches, and a buffer is asked one by one.

    Examples
    --------
    >>> import pyarrow as pa
    >>> whole = pa.py_buffer(bytes(64))
    >>> offsets, [region] = region_around([whole.slice(8, 8), whole.slice(0, 0), whole.slice(40, 4)], None)
    >>> offsets, region.nbytes
    ([0, 0, 32], 36)
    """
    places = [(buffer.address, buffer.size) for buffer in buffers]
    begin = min((address for address, nbytes in places if nbytes), default=0)
    end = max((address + nbytes for address, nbytes in places if nbytes), default=0)
    offsets = [address - begin if nbytes else 0 for address, nbytes in places]
    return offsets, [foreign_region(begin, end - begin, kept_with(buffers, memory_pool))] if end else []
