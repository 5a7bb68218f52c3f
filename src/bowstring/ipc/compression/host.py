"""Compressed bodies: the buffers of a batch, decompressed into memory of their own on the body's device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.errors import InvalidBody
from bowstring.ipc.body.check_bulk import leave_out_unused_bitmaps
from bowstring.ipc.body.check_scalar import buffer_name
from bowstring.ipc.compression.claims import check_claims
from bowstring.ipc.compression.codec import (
    DEFAULT_DECOMPRESSION,
    PREFIX_BYTES,
    DecompressOptions,
    decompressed,
)
from bowstring.ipc.compression.device.decompress import DeviceBodies, Frames
from bowstring.ipc.source import region_around
from bowstring.memory import wrap

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.compression.claims import Claims
    from bowstring.ipc.flatbuf.message import RecordBatchHeader
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Region

__all__ = ["decompressed_body"]

Table = npt.NDArray[np.int64]


def decompressed_body(
    header: RecordBatchHeader,
    layout: Layout,
    body: Buffer,
    limits: Limits,
    *,
    means: DecompressOptions = DEFAULT_DECOMPRESSION,
    target: DeviceBodies | None = None,
) -> tuple[Table, list[Region]]:
    """Check the header of a batch against its compressed body, and decompress it.

    On the host, buffers that the writer did not compress stay where they are in the body. For any other device
    there is one upload, of what the device decompresses itself, and of what the host has decompressed.

    Parameters
    ----------
    header, layout, body, limits, means
        As for :func:`bowstring.ipc.body.pack.unpack`.
    target
        Where the buffers go; by default to the device of the body.

    Returns
    -------
    spans : ndarray of int64, shape (buffers, 3)
        As :class:`~bowstring.columnar.spans.Spans` has them; bitmaps without nulls are left out.
    regions
        What they point into.

    Raises
    ------
    InvalidMetadata, InvalidBody
        The header does not fit, or a frame is not what its prefix says; the message names the column.
    LimitExceeded
        The body would be too large.
    """
    on_host = body if body.device.is_host else wrap(body.to_host())
    whole = on_host.to_arrow()
    claims = check_claims(header, layout, on_host, limits)
    means = means.for_bytes(claims.total)

    def opened(rows: list[int]) -> list[pa.Buffer]:
        buffers = _decompressed(header, layout, whole, rows, means)
        if [buffer.size for buffer in buffers] != [claims.lengths[row] for row in rows]:
            raise InvalidBody("the body changed while it was read")
        return buffers

    if target is None and body.device.is_host:
        spans, regions = _where_they_are(header, claims, body, opened(claims.framed), means)
    else:
        bodies = target or DeviceBodies(body.device)
        spans, regions = bodies.decompressed(Frames(header, claims, np.frombuffer(whole, np.uint8), opened))
    leave_out_unused_bitmaps(spans, header.nodes, layout, header.variadic_counts)
    return spans, regions


def _decompressed(
    header: RecordBatchHeader, layout: Layout, whole: pa.Buffer, rows: list[int], means: DecompressOptions
) -> list[pa.Buffer]:
    codec = header.compression
    assert codec is not None
    if not rows:
        return []
    places = header.buffers[rows]
    try:
        return decompressed(whole, places.astype("<i8").tobytes(), codec, means)
    except InvalidBody:
        for row, place in zip(rows, places, strict=True):
            try:
                decompressed(whole, place.astype("<i8").tobytes(), codec, means._replace(use_threads=False))
            except InvalidBody as error:
                error.where = buffer_name(header, layout, row)
                raise
        raise


def _where_they_are(
    header: RecordBatchHeader,
    claims: Claims,
    body: Buffer,
    buffers: list[pa.Buffer],
    means: DecompressOptions,
) -> tuple[Table, list[Region]]:
    spans = np.zeros((len(claims.lengths), 3), np.int64)
    spans[:, 2] = claims.lengths
    offsets, regions = region_around(buffers, means.memory_pool)
    spans[claims.framed, 1] = offsets
    if claims.stored:
        spans[claims.stored, 0] = len(regions)
        spans[claims.stored, 1] = header.buffers[claims.stored, 0] + (body.offset + PREFIX_BYTES)
        regions.append(body.region)
    return spans, regions
