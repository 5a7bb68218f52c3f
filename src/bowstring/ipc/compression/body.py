"""Compressed bodies: what they claim to hold is bounded before memory is allocated for it, then decompressed.

A ZSTD frame of 2 kB can unfold to gigabytes. The claims of a message are bounded together, absolutely and in
proportion to its body (:class:`~bowstring.limits.Limits`), and each claim by what its node needs where the layout
fixes that: only text, binary and the data of views may be of any length. Messages that a kernel has read are
decompressed many at a time, any other one alone, in Python's integers, for errors that name the place.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.parts import Dictionaries, Dictionary, make_batch
from bowstring.errors import InvalidBody, LimitExceeded
from bowstring.ipc.body import check
from bowstring.ipc.body.check import Table, buffer_name
from bowstring.ipc.body.decode import COUNT, FIRST, Decoded
from bowstring.ipc.compression.codec import (
    DEFAULT_DECOMPRESSION,
    PREFIX_BYTES,
    STORED,
    Claims,
    DecompressOptions,
    decompressed,
)
from bowstring.ipc.compression.device.decompress import DeviceBodies
from bowstring.ipc.source import kept_with
from bowstring.limits import Limits, most_decompressed
from bowstring.memory import Buffer, Lease, Region, foreign_region, wrap

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.flatbuf.message import RecordBatchHeader

# Bytes that a buffer may be longer than twice what its node needs: some writers send all that they allocated.
_SLACK: Final = 1 << 16
_INT64: Final = struct.Struct("<q")
_FAR: Final = 1 << 62  # an address behind all memory


def check_claims(header: RecordBatchHeader, layout: Layout, body: Buffer, limits: Limits) -> Claims:
    """Check the header of a batch against its layout and its compressed body."""
    check.check_counts(header, layout)
    check.check_spans(header, layout, body.nbytes)
    view = memoryview(body.to_arrow())
    lengths: list[int] = []
    framed: list[int] = []
    stored: list[int] = []
    for row, (offset, size) in enumerate(header.buffers.tolist()):
        claimed = 0
        if size:
            if size < PREFIX_BYTES:
                raise InvalidBody(
                    "a compressed buffer is too short for its length",
                    expected=f"at least {PREFIX_BYTES} bytes, or none",
                    found=f"{size} bytes",
                    where=buffer_name(header, layout, row),
                )
            (claimed,) = _INT64.unpack_from(view, offset)
            if claimed == STORED:
                claimed = size - PREFIX_BYTES
                stored.append(row)
            elif claimed < 0:
                raise InvalidBody(
                    "the length of a compressed buffer is negative",
                    expected=f"0 or more, or {STORED} for one that is not compressed",
                    found=claimed,
                    where=buffer_name(header, layout, row),
                )
            # No frame is that short, but some writers put a length of 0 before nothing.
            elif claimed or size > PREFIX_BYTES:
                framed.append(row)
        lengths.append(claimed)
    total, most = sum(lengths), most_decompressed(body.nbytes, limits)
    if total > most:
        name = "decompressed_bytes" if total > limits.decompressed_bytes else "decompression_ratio"
        raise LimitExceeded(
            "a body would be too large when it is decompressed",
            expected=f"at most {most} bytes of a body of {body.nbytes}",
            found=f"{total} bytes",
            hint=f"Limits.{name} sets the bound.",
        )
    check.check_counted(header, layout, np.array(lengths, np.int64), _SLACK)
    return Claims(lengths, framed, stored, total)


def decompressed_batches(
    decoded: Decoded,
    layout: Layout,
    memory: Buffer,
    dictionaries: Mapping[int, Dictionary],
    lease: Lease | None,
    decompression: DecompressOptions,
) -> list[Batch]:
    """Return the batches of messages that a kernel has read, as far as their frames are right."""
    assert decoded.codec is not None
    heads, count = decoded.heads, len(decoded.heads)
    spans = decoded.spans[: heads[-1][FIRST] + heads[-1][COUNT]].copy()
    claims, sizes = spans[:, 0].copy(), spans[:, 2]
    is_stored = claims == STORED
    # No frame is that short, but some writers put a length of 0 before nothing.
    rows = ((claims > 0) | ((claims == 0) & (sizes > PREFIX_BYTES))).nonzero()[0]
    opened: list[pa.Buffer] = []
    if len(rows):
        places = spans[rows, 1:] - (memory.offset, 0)
        decompression = decompression.for_bytes(int(claims[rows].sum()))
        try:
            opened = decompressed(
                memory.to_arrow(), places.astype("<i8").tobytes(), decoded.codec, decompression
            )
        except (InvalidBody, LimitExceeded):
            # One of them is wrong, or together they need more memory than there is.
            return []
    firsts = np.array([head[FIRST] for head in heads], np.int64)
    batch_of = np.repeat(np.arange(count), [head[COUNT] for head in heads])
    # Two regions of each batch: around what was decompressed, and of the body.
    bounds = np.zeros((count, 2, 2), np.int64)
    bounds[:, 1] = memory.region.address, memory.region.nbytes
    spans[:, 0] = 2 * batch_of + is_stored
    spans[is_stored, 1] += PREFIX_BYTES
    spans[:, 2] = np.where(is_stored, sizes - PREFIX_BYTES, claims)
    good = count
    if len(rows):
        bounds[:, 0] = _around(opened, spans, rows, firsts)
        changed = (spans[rows, 2] != claims[rows]).nonzero()[0]
        if len(changed):  # the body, while it was read
            good = int(batch_of[rows[changed[0]]])
    variadic = np.array(decoded.counts, np.int64)
    statuses = check.right_offsets(layout, decoded.nodes, variadic, firsts, spans, bounds, drops=True)
    spans[:, 0] = is_stored & (bounds[batch_of, 0, 1] > 0)
    frames = [*rows.searchsorted(firsts).tolist(), len(rows)]
    keeps_body = [False] * count
    if is_stored.any():
        keeps_body = np.logical_or.reduceat(is_stored, firsts).tolist()
    known, around, device = Dictionaries(dictionaries), bounds[:, 0].tolist(), memory.device
    batches: list[Batch] = []
    for index, status in enumerate(statuses[:good]):
        if status != check.DONE:
            break
        num_rows, first, many, *_ = heads[index]
        address, size = around[index]
        regions = [memory.region] if keeps_body[index] else []
        if size:
            owner = kept_with(opened[frames[index] : frames[index + 1]], decompression.memory_pool)
            regions.insert(0, foreign_region(address, size, owner))
        batches.append(
            make_batch(
                Batch,
                layout,
                num_rows,
                decoded.nodes[index],
                None,
                decoded.counts[index],
                known,
                None if lease is None else Lease([*regions, lease.export()]),
                spans=spans[first : first + many],
                regions=regions,
                device=device,
            )
        )
    return batches


def _around(opened: list[pa.Buffer], spans: Table, rows: Table, firsts: Table) -> Table:
    """Return address and bytes of a region around what was decompressed of each batch; note the places in it."""
    addresses, nbytes = np.array([(each.address, each.size) for each in opened], np.int64).reshape(-1, 2).T
    begins, ends = np.full(len(spans), _FAR), np.zeros(len(spans), np.int64)
    begins[rows] = np.where(nbytes > 0, addresses, _FAR)
    ends[rows] = np.where(nbytes > 0, addresses + nbytes, 0)
    low, high = np.minimum.reduceat(begins, firsts), np.maximum.reduceat(ends, firsts)
    starts = low[firsts.searchsorted(rows, side="right") - 1]
    spans[rows, 1] = np.where(nbytes > 0, addresses - starts, 0)
    spans[rows, 2] = nbytes
    low = np.where(high > 0, low, 0)
    return np.stack((low, high - low), axis=1)


def decompressed_body(
    header: RecordBatchHeader,
    layout: Layout,
    body: Buffer,
    limits: Limits,
    *,
    decompression: DecompressOptions = DEFAULT_DECOMPRESSION,
    target: DeviceBodies | None = None,
) -> tuple[Table, list[Region]]:
    """Check the header of a batch against its compressed body, and decompress it.

    On the host, buffers that are not compressed stay in the body; to a device there is one upload, of the frames
    that it decompresses and of what the host has decompressed.
    """
    on_host = body if body.device.is_host else wrap(body.to_host())
    whole = on_host.to_arrow()
    claims = check_claims(header, layout, on_host, limits)
    decompression = decompression.for_bytes(claims.total)

    def opened(rows: list[int]) -> list[pa.Buffer]:
        if not rows:
            return []
        codec, places = str(header.compression), header.buffers[rows].astype("<i8")
        try:
            buffers = decompressed(whole, places.tobytes(), codec, decompression)
        except InvalidBody:
            for row, place in zip(rows, places, strict=True):
                try:
                    decompressed(whole, place.tobytes(), codec, decompression._replace(use_threads=False))
                except InvalidBody as error:
                    error.where = buffer_name(header, layout, row)
                    raise
            raise
        if [buffer.size for buffer in buffers] != [claims.lengths[row] for row in rows]:
            raise InvalidBody("the body changed while it was read")
        return buffers

    if target is None and body.device.is_host:
        spans, regions = np.zeros((len(claims.lengths), 3), np.int64), []
        if claims.framed:
            buffers = opened(claims.framed)
            ((address, nbytes),) = _around(buffers, spans, np.array(claims.framed), np.zeros(1, np.int64))
            if nbytes:
                owner = kept_with(buffers, decompression.memory_pool)
                regions.append(foreign_region(int(address), int(nbytes), owner))
        if claims.stored:
            spans[claims.stored, 0] = len(regions)
            spans[claims.stored, 1] = header.buffers[claims.stored, 0] + (body.offset + PREFIX_BYTES)
            spans[claims.stored, 2] = [claims.lengths[row] for row in claims.stored]
            regions.append(body.region)
    else:
        bodies = target or DeviceBodies(body.device)
        spans, regions = bodies.decompressed(header, claims, np.frombuffer(whole, np.uint8), opened)
    check.leave_out_unused_bitmaps(spans, header.nodes, layout, header.variadic_counts)
    return spans, regions
