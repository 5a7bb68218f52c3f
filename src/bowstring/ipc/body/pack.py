"""Packed bodies: the buffers of a batch one after the other, as streams, files and type 0 messages carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.ipc import Alignment

from bowstring.columnar.batch import Batch
from bowstring.columnar.copy_pieces import Pieces, fill
from bowstring.columnar.interchange.swap import swapped, with_rows_moved
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import Dictionary, batch_parts, make_batch, owner_of
from bowstring.errors import InvalidMetadata
from bowstring.ipc.body.check import check, check_offsets, leave_out_unused_bitmaps
from bowstring.ipc.compression.body import decompressed_body
from bowstring.ipc.compression.codec import DEFAULT_DECOMPRESSION, DecompressOptions, all_compressed
from bowstring.ipc.flatbuf.message import MetadataVersion, RecordBatchHeader, without_bitmaps_of_4
from bowstring.ipc.framing import ALIGNMENT
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Buffer, Lease, Region
from bowstring.memory.copying import DeviceBody

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.compression.device.decompress import DeviceBodies

_NATURAL = 8
_LENGTH = 2  # column of a table of spans
PADDING = tuple(bytes(count) for count in range(ALIGNMENT))


_WIDEST = 8
_ALL = 64

Table = npt.NDArray[np.int64]


class Packed(NamedTuple):
    """Where the buffers of a batch are in its packed body, and the body in pieces."""

    nodes: npt.NDArray[np.int64]  # shape (nodes, 2): length and null count
    buffers: npt.NDArray[np.int64]  # shape (buffers, 2): offset in the body, a multiple of 64, and length
    body_length: int  # a multiple of 64
    pieces: list[Any]  # bytes-like: the buffers themselves if on the host, and padding; or one `DeviceBody`


def laid_out(batch: Batch) -> Packed:
    """Lay out the body of a batch without its pieces, as a message needs it whose body goes by pointers.

    As `pack` and `pack_on_device` do: metadata and bodies may go by connections of their own.
    """
    parts = batch_parts(batch)
    return _placed(parts.nodes, parts.spans.table[:, _LENGTH], batch.device.alignment)


def _placed(
    nodes: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], alignment: int = ALIGNMENT
) -> Packed:
    table = np.zeros((len(lengths), 2), dtype=np.int64)
    padded = (lengths + (alignment - 1)) & -alignment
    ends = np.cumsum(padded)
    table[:, 0] = ends - padded
    table[:, 1] = lengths
    return Packed(nodes, table, int(ends[-1]) if len(ends) else 0, [])


def pack(batch: Batch, codec: pa.Codec | None = None, *, use_threads: bool = True) -> Packed:
    """Lay out the body of a batch, without copying what is on the host."""
    parts = batch_parts(batch)
    lengths = parts.spans.table[:, _LENGTH].tolist()
    if codec is not None:
        buffers = [buffer.to_host() for buffer in batch.buffers if buffer is not None]
        lengths, pieces = compressed_pieces(buffers, lengths, codec, use_threads=use_threads)
        return _placed(parts.nodes, np.array(lengths, np.int64))._replace(pieces=pieces)
    if batch.device.is_host:
        pieces = host_pieces(zip(parts.spans.addresses().tolist(), lengths, strict=True), owner_of(batch))
    else:
        pieces = []
        for buffer in batch.buffers:
            if buffer is not None:
                pieces.append(buffer.to_host())
                if buffer.nbytes % ALIGNMENT:
                    pieces.append(PADDING[-buffer.nbytes % ALIGNMENT])
    return _placed(parts.nodes, parts.spans.table[:, _LENGTH])._replace(pieces=pieces)


def compressed_pieces(
    buffers: Sequence[Any], sizes: Sequence[int], codec: pa.Codec, *, use_threads: bool
) -> tuple[list[int], list[Any]]:
    """Return the bytes that each buffer of these sizes takes compressed, and pieces; `buffers` are not empty."""
    framed = iter(all_compressed(buffers, codec, use_threads=use_threads))
    lengths: list[int] = []
    pieces: list[Any] = [b""]
    for size in sizes:
        lengths.append(0)
        if size:
            prefix, frame = next(framed)
            lengths[-1] = len(prefix) + memoryview(frame).nbytes
            pieces[-1] += prefix  # each piece has a cost for its sender
            pieces += frame, PADDING[-lengths[-1] % ALIGNMENT]
    return lengths, pieces


def pack_on_device(batch: Batch) -> Packed:
    """Lay out the body of a batch of a device; its bytes are put together when it is known where they go."""
    parts, device = batch_parts(batch), batch.device
    packed = laid_out(batch)
    if not packed.body_length:
        return packed
    present = packed.buffers[:, 1] > 0
    starts, sizes = packed.buffers[present].T
    pieces = Pieces(
        parts.spans.addresses()[present], sizes, starts, np.append(starts[1:], packed.body_length)
    )
    regions, seconds = list(parts.spans.regions), DEFAULT_LIMITS.device_timeout

    def put(target: Buffer) -> None:
        fill(target, pieces, batch.device, regions, seconds)

    return packed._replace(pieces=[DeviceBody(device, packed.body_length, put)])


def host_pieces(buffers: Iterable[tuple[int, int]], owner: object) -> list[Any]:
    """Return the memory of buffers, given address and bytes of each, and the zeros that pad it."""
    pieces: list[Any] = []
    begun = end = 0  # the piece that may still grow
    for address, nbytes in buffers:
        if not nbytes:
            continue
        # What lies one after the other goes as one piece: each piece has a cost for its sender.
        if begun and address == end:
            pieces.pop()
        else:
            begun = address
        end = address + nbytes
        pieces.append(memoryview(pa.foreign_buffer(begun, end - begun, owner)).cast("B"))
        if nbytes % ALIGNMENT:
            pieces.append(PADDING[-nbytes % ALIGNMENT])
            begun = 0
    return pieces


def unpack(
    header: RecordBatchHeader,
    layout: Layout,
    body: Buffer,
    *,
    version: MetadataVersion = MetadataVersion.V5,
    dictionaries: Mapping[int, Dictionary] | None = None,
    lease: Lease | None = None,
    custom_metadata: dict[bytes, bytes] | None = None,
    is_big_endian: bool = False,
    alignment: Alignment = Alignment.Any,
    decompression: DecompressOptions = DEFAULT_DECOMPRESSION,
    limits: Limits = DEFAULT_LIMITS,
    target: DeviceBodies | None = None,
) -> Batch:
    """Check a header against its layout and a body, and make the batch.

    Only what is compressed, what is in the other byte order, and what lies where its type cannot be read is copied.
    """
    if version is MetadataVersion.V4:
        header = without_bitmaps_of_4(header, layout)
    if (layout.bitmapless.size or layout.null_nodes.size) and len(header.nodes) == layout.num_nodes:
        # Some writers count the nulls of children as those of a union or of runs, and none in a column of type
        # null; Arrow C++ goes by the type, too.
        nodes = header.nodes.copy()
        nodes[layout.bitmapless, 1] = 0
        nodes[layout.null_nodes, 1] = nodes[layout.null_nodes, 0]
        header = header._replace(nodes=nodes)
    if lease is None:
        lease = body.lease
    if header.compression is None:
        check(header, layout, body.nbytes)
        spans = np.zeros((len(header.buffers), 3), dtype=np.int64)
        spans[:, 1:] = header.buffers
        spans[:, 1] += body.offset
        leave_out_unused_bitmaps(spans, header.nodes, layout, header.variadic_counts)
        regions: Sequence[Region] = (body.region,)
    else:
        target = None if is_big_endian else target
        spans, regions = decompressed_body(
            header, layout, body, limits, decompression=decompression, target=target
        )
        if target is not None:
            lease = lease and Lease(regions)  # nothing is left of the body there
        else:
            lease = None if lease is None else Lease([*regions, lease.export()])
    batch = make_batch(
        Batch,
        layout,
        header.length,
        header.nodes,
        spans=spans,
        regions=regions,
        variadic_counts=header.variadic_counts,
        dictionaries=dict(dictionaries or {}),
        lease=lease,
        custom_metadata=custom_metadata,
        device=body.device if target is None or header.compression is None else target.device,
    )
    if is_big_endian:
        _refuse_overlaps(batch, body)
        batch = swapped(batch)
    if batch.device is body.device and (alignment is Alignment.At64Byte or body.address % _NATURAL):
        _refuse_overlaps(batch, body)
        batch = aligned(batch, alignment)
    check_offsets(batch)
    return batch


def _refuse_overlaps(batch: Batch, body: Buffer) -> None:
    # Else a body of buffers that all span it would be copied as many times. Its region may be a whole file.
    there = body.nbytes + sum(
        region.nbytes for region in batch_parts(batch).spans.regions if region is not body.region
    )
    if batch.nbytes > there:
        raise InvalidMetadata(
            "the buffers of a body overlap", expected=f"at most {there} bytes", found=f"{batch.nbytes} bytes"
        )


def aligned(batch: Batch, how: Alignment = Alignment.Any) -> Batch:
    """Return a batch whose buffers can all be read where they are: the batch itself where they can already."""
    parts = batch_parts(batch)
    if how is Alignment.At64Byte:
        needed: Table | int = _ALL
    else:
        needed = needed_alignment(batch.layout, parts.variadic_counts)
    wrong = np.flatnonzero(parts.spans.addresses() % needed)
    if not len(wrong):
        return batch

    def copy(row: int, out: Any) -> None:
        out[:] = parts.spans.array(row)

    return with_rows_moved(batch, wrong, copy)


def needed_alignment(layout: Layout, variadic_counts: tuple[int, ...] = ()) -> Table:
    """Return what the address of each buffer must be a multiple of, so that its elements can be read."""
    fixed: Table = np.clip(layout.buffer_bits >> 3, 1, _WIDEST)
    for node in layout.nodes:
        if node.type.id == pa.lib.Type_FIXED_SIZE_BINARY:
            fixed[node.first_buffer + node.buffer_kinds.index(Kind.DATA)] = 1
    if not variadic_counts:
        return fixed
    needed = np.ones(layout.num_buffers + sum(variadic_counts), np.int64)
    needed[layout.fixed_buffers(variadic_counts)] = fixed
    return needed
