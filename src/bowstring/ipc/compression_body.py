"""Compressed bodies: the buffers of a batch, decompressed into memory of their own on the body's device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.spans import buffer_of
from bowstring.errors import InvalidBody
from bowstring.ipc.check import buffer_name
from bowstring.ipc.compression import PREFIX_BYTES, decompressed, pays_for_threads
from bowstring.ipc.compression_claims import check_claims
from bowstring.ipc.framing import ALIGNMENT
from bowstring.memory import foreign_region

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.layout import Layout
    from bowstring.ipc.compression_claims import Claims
    from bowstring.ipc.metadata import RecordBatchHeader
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Device, Region

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
) -> tuple[Table, list[Region]]:
    """Check the header of a batch against its compressed body, and decompress it.

    On the host, buffers that the writer did not compress stay where they are in the body. For any other device
    everything is decompressed on the host, and copied to the device once.

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
    on_host = _as_array(whole)
    claims = check_claims(header, layout, on_host, limits)
    threads = use_threads and pays_for_threads(claims.total)
    buffers = _decompressed(header, layout, whole, claims.framed, use_threads=threads)
    if [buffer.size for buffer in buffers] != claims.lengths[claims.framed].tolist():
        raise InvalidBody("the body changed while it was read")
    if body.device.is_host:
        return _where_they_are(header, claims, body, buffers)
    places = header.buffers[claims.stored, 0] + PREFIX_BYTES
    pieces = dict(zip(claims.framed.tolist(), map(_as_array, buffers), strict=True))
    for row, place in zip(claims.stored.tolist(), places.tolist(), strict=True):
        pieces[row] = on_host[place : place + int(claims.lengths[row])]
    return _uploaded(pieces, len(header.buffers), body.device)


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


def _uploaded(pieces: dict[int, Any], count: int, device: Device) -> tuple[Table, list[Region]]:
    """Copy some buffers to a device at once, each at a multiple of 64 bytes."""
    spans = np.zeros((count, 3), np.int64)
    end = 0
    for row, piece in pieces.items():
        spans[row, 1:] = end, len(piece)
        end += -(-len(piece) // ALIGNMENT) * ALIGNMENT
    if not end:
        return spans, []
    together = np.zeros(end, np.uint8)
    for row, piece in pieces.items():
        start = int(spans[row, 1])
        together[start : start + len(piece)] = piece
    return spans, [buffer_of(device.from_host(together), device).region]


def _as_array(buffer: pa.Buffer) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer, np.uint8)
