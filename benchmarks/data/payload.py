"""The payload of Arrow tables: exactly the bytes that their slots need, whichever way brought the table."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]


def payload(batches: Iterable[pa.RecordBatch]) -> list[Bytes]:
    """Return views of the buffers of some batches, cut to what the slots need.

    Validity without a null counts for nothing; a dictionary that several batches share counts once.
    """
    known: set[int] = set()
    return [view for batch in batches for column in batch.columns for view in _views(column, known)]


def _views(array: pa.Array, known: set[int]) -> Iterator[Bytes]:
    if array.offset:
        raise ValueError("a sliced array shares its bytes with other rows")
    count, buffers = len(array), array.buffers()
    if array.null_count:
        yield _bytes(buffers[0], -(-count // 8))
    if pa.types.is_dictionary(array.type):
        yield _bytes(buffers[1], count * array.type.index_type.byte_width)
        values = array.dictionary
        address = values.buffers()[-1].address
        if address not in known:
            known.add(address)
            yield from _views(values, known)
    elif pa.types.is_string(array.type):
        offsets = _bytes(buffers[1], (count + 1) * 4)
        yield offsets
        yield _bytes(buffers[2], int(offsets[-4:].view(np.int32)[0]))
    elif array.type.bit_width % 8 == 0 and len(buffers) == 2:
        yield _bytes(buffers[1], count * array.type.byte_width)
    else:
        raise ValueError(f"no case uses {array.type}")


def _bytes(buffer: pa.Buffer, size: int) -> Bytes:
    view: Bytes = np.frombuffer(buffer, np.uint8, size)
    return view


def nbytes(views: Sequence[Bytes]) -> int:
    """Return the bytes of the payload."""
    return sum(view.nbytes for view in views)


def read_every_byte(views: Iterable[Bytes]) -> int:
    """Read all bytes once, eight at a time, and return their sum: what every reader is timed with."""
    total = 0
    for view in views:
        whole = view.nbytes - view.nbytes % 8
        total += int(view[:whole].view(np.uint64).sum())
        total += int(view[whole:].sum())
    return total


def fingerprint(views: Iterable[Any]) -> str:
    """Return the CRC-32 and the number of all bytes, in order."""
    crc = size = 0
    for view in views:
        crc = zlib.crc32(view, crc)
        size += len(view)
    return f"{crc:08x} of {size} bytes"


def valid_values(table: pa.Table) -> str:
    """Return the nulls of each column, and the fingerprint of the other values: what a format must keep."""
    nulls, views = [], []
    for column in table.columns:
        nulls.append(column.null_count)
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        dense = pa.concat_arrays(plain.drop_null().chunks or [pa.array([], plain.type)])
        views += payload([pa.record_batch([dense], ["values"])])
    return f"nulls {nulls}, {fingerprint(views)}"
