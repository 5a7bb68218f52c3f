"""Memory of a pool that a user chose.

pyarrow's buffers give their memory back to their pool, and do not keep it alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["kept_with"]


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
