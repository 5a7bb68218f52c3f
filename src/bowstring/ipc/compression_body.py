"""Compressed bodies: the buffers of a batch, decompressed into memory of their own on the body's device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.errors import InvalidBody
from bowstring.ipc.check import buffer_name
from bowstring.ipc.compression import PREFIX_BYTES, decompressed, pays_for_threads
from bowstring.ipc.compression_claims import check_claims
from bowstring.ipc.compression_device import DeviceBodies, Frames
from bowstring.memory import foreign_region

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.layout import Layout
    from bowstring.ipc.compression_claims import Claims
    from bowstring.ipc.metadata import RecordBatchHeader
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Region

__all__ = ["decompressed_body", "framed_regions"]

_LAST_ADDRESS: Final = (1 << 63) - 1

Table = npt.NDArray[np.int64]


def decompressed_body(
    header: RecordBatchHeader,
    layout: Layout,
    body: Buffer,
    limits: Limits,
    *,
    use_threads: bool = True,
    target: DeviceBodies | None = None,
) -> tuple[Table, list[Region]]:
    """Check the header of a batch against its compressed body, and decompress it.

    On the host, buffers that the writer did not compress stay where they are in the body. For any other device
    there is one upload, of what the device decompresses itself, and of what the host has decompressed.

    Parameters
    ----------
    header, layout, body, limits, use_threads
        As for :func:`bowstring.ipc.packing.unpack`.
    target
        Where the buffers go; by default to the device of the body.

    Returns
    -------
    spans : ndarray of int64, shape (buffers, 3)
        As :class:`~bowstring.columnar.spans.Spans` has them.
    regions
        What they point into.

    Raises
    ------
    InvalidMetadata, InvalidBody
        The header does not fit, or a frame is not what its prefix says; the message names the column.
    LimitExceeded
        The body would be too large.
    """
    whole = body.to_arrow() if body.device.is_host else pa.py_buffer(body.to_host())
    on_host = np.frombuffer(whole, np.uint8)
    claims = check_claims(header, layout, on_host, limits)
    threads = use_threads and pays_for_threads(claims.total)

    def opened(rows: Table) -> list[pa.Buffer]:
        buffers = _decompressed(header, layout, whole, rows, use_threads=threads)
        if [buffer.size for buffer in buffers] != claims.lengths[rows].tolist():
            raise InvalidBody("the body changed while it was read")
        return buffers

    if target is None and body.device.is_host:
        return _where_they_are(header, claims, body, opened(claims.framed))
    bodies = target or DeviceBodies(body.device)
    return bodies.decompressed(Frames(header, claims, on_host, opened))


def _decompressed(
    header: RecordBatchHeader, layout: Layout, whole: pa.Buffer, rows: Table, *, use_threads: bool
) -> list[pa.Buffer]:
    codec = header.compression
    assert codec is not None
    if not len(rows):
        return []
    places = header.buffers[rows]
    try:
        return decompressed(whole, places, codec, use_threads=use_threads)
    except InvalidBody:
        for row, place in zip(rows.tolist(), places, strict=True):
            try:
                decompressed(whole, place[None], codec, use_threads=False)
            except InvalidBody as error:
                error.where = buffer_name(header, layout, row)
                raise
        raise


def framed_regions(
    tables: Table, framed: npt.NDArray[np.bool_], buffers: Sequence[pa.Buffer]
) -> list[list[Region]]:
    """Return the regions of decompressed messages: for each one around all its frames, or none.

    Parameters
    ----------
    tables : ndarray of int64, shape (messages, buffers, 3)
        The spans of each message, with their lengths; indices and offsets of the frames are written.
    framed : ndarray of bool, shape (messages, buffers)
        Which buffers were frames.
    buffers
        What was in them, message by message.
    """
    starts = np.zeros(framed.shape, np.int64)
    starts[framed] = [buffer.address for buffer in buffers]
    present = framed & (tables[:, :, 2] > 0)
    begins = np.where(present, starts, _LAST_ADDRESS).min(axis=1, initial=_LAST_ADDRESS)
    ends = np.where(present, starts + tables[:, :, 2], 0).max(axis=1, initial=0)
    tables[:, :, 1] = np.where(present, starts - begins[:, None], 0)
    regions = []
    first = 0
    for begin, end, count in zip(begins.tolist(), ends.tolist(), framed.sum(axis=1).tolist(), strict=True):
        owner = buffers[first : first + count]
        regions.append([foreign_region(begin, end - begin, owner)] if end else [])
        first += count
    return regions


def _where_they_are(
    header: RecordBatchHeader, claims: Claims, body: Buffer, buffers: list[pa.Buffer]
) -> tuple[Table, list[Region]]:
    spans = np.zeros((len(claims.lengths), 3), np.int64)
    spans[:, 2] = claims.lengths
    framed = np.zeros(len(spans), np.bool_)
    framed[claims.framed] = True
    [regions] = framed_regions(spans[None], framed[None], buffers)
    if len(claims.stored):
        spans[claims.stored, 0] = len(regions)
        spans[claims.stored, 1] = header.buffers[claims.stored, 0] + (body.offset + PREFIX_BYTES)
        regions.append(body.region)
    return spans, regions
