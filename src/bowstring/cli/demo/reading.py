"""Reading every byte once: the same for what Bowstring hands over and for what Arrow Flight brings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar import Batch

__all__ = ["arrays_of_arrow", "arrays_of_batch", "read_every_byte"]

_WORD = 8


def read_every_byte(arrays: Iterable[Any]) -> tuple[int, int]:
    """Add up the 64-bit words of buffers, the bytes behind the last word too.

    Parameters
    ----------
    arrays
        Of uint8, one per buffer, validity bitmaps, offsets and dictionaries among them.

    Returns
    -------
    nbytes, total
        How much was read, and the sum modulo 2**64.

    Examples
    --------
    >>> read_every_byte([np.arange(10, dtype=np.uint8)])
    (10, 506097522914230545)
    """
    nbytes = total = 0
    for array in arrays:
        whole = array.nbytes - array.nbytes % _WORD
        nbytes += array.nbytes
        total += int(array[:whole].view(np.uint64).sum()) + int(array[whole:].sum())
    return nbytes, total % (1 << 64)


def arrays_of_batch(batch: Batch) -> Iterator[Any]:
    """Return the buffers of a batch and of its dictionaries, as views."""
    yield from (buffer.array() for buffer in batch.buffers if buffer is not None)
    for dictionary in batch.dictionaries.values():
        yield from arrays_of_batch(dictionary.values)


def arrays_of_arrow(batch: pa.RecordBatch) -> Iterator[Any]:
    """Return the same of a pyarrow record batch."""
    for column in batch.columns:
        yield from _arrays(column)


def _arrays(column: pa.Array) -> Iterator[Any]:
    yield from (np.frombuffer(buffer, np.uint8) for buffer in column.buffers() if buffer is not None)
    if pa.types.is_dictionary(column.type):
        yield from _arrays(column.dictionary)
