"""Packed bodies: the buffers of a batch one after the other, as streams, files and type 0 messages carry them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.columnar.batch import Batch
from bowstring.columnar.nodes import Kind
from bowstring.errors import InvalidMetadata, Unsupported
from bowstring.ipc.check import check
from bowstring.ipc.framing import ALIGNMENT
from bowstring.ipc.metadata import MetadataVersion, RecordBatchHeader
from bowstring.ipc.offsets import check_offsets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.memory import Buffer, Lease

__all__ = ["Packed", "laid_out", "pack", "unpack"]

_LENGTH = 2  # column of a table of spans
_PADDING = tuple(bytes(count) for count in range(ALIGNMENT))


class Packed(NamedTuple):
    """Where the buffers of a batch are in its packed body, and the body in pieces.

    Attributes
    ----------
    nodes : ndarray of int64, shape (nodes, 2)
        Length and null count.
    buffers : ndarray of int64, shape (buffers, 2)
        Offset in the body, a multiple of 64, and length.
    body_length : int
        A multiple of 64.
    pieces : list
        Bytes-like: the buffers themselves, where they are on the host, and the zeros between them.
    """

    nodes: npt.NDArray[np.int64]
    buffers: npt.NDArray[np.int64]
    body_length: int
    pieces: list[Any]


def laid_out(batch: Batch) -> Packed:
    """Lay out the body of a batch without its pieces, as a message needs it whose body goes by pointers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> laid_out(Batch.from_arrow(pa.record_batch({"a": [1, 2, 3]}))).body_length
    64
    """
    spans = batch.spans.table
    table = np.zeros((len(spans), 2), dtype=np.int64)
    lengths = table[:, 1]
    lengths[:] = spans[:, _LENGTH]
    padded = (lengths + (ALIGNMENT - 1)) & -ALIGNMENT
    ends = np.cumsum(padded)
    table[:, 0] = ends - padded
    return Packed(batch.nodes, table, int(ends[-1]) if len(ends) else 0, [])


def pack(batch: Batch) -> Packed:
    """Lay out the body of a batch, without copying what is on the host.

    Examples
    --------
    >>> import pyarrow as pa
    >>> packed = pack(Batch.from_arrow(pa.record_batch({"a": [1, 2, 3], "b": ["x", "y", "z"]})))
    >>> packed.body_length, packed.buffers.tolist()
    (192, [[0, 0], [0, 24], [64, 0], [64, 16], [128, 3]])
    """
    pieces = _host_pieces(batch, batch.spans.table) if batch.device.is_host else _device_pieces(batch)
    return laid_out(batch)._replace(pieces=pieces)


def _host_pieces(batch: Batch, spans: npt.NDArray[np.int64]) -> list[Any]:
    owner = batch.owner()
    regions = [region.array(0, region.nbytes, owner).data for region in batch.spans.regions]
    pieces: list[Any] = []
    for region, offset, length in spans[spans[:, _LENGTH] > 0].tolist():
        pieces.append(regions[region][offset : offset + length])
        if length % ALIGNMENT:
            pieces.append(_PADDING[-length % ALIGNMENT])
    return pieces


def _device_pieces(batch: Batch) -> list[Any]:
    pieces: list[Any] = []
    for buffer in batch.buffers:
        if buffer is not None and buffer.nbytes:
            pieces.append(buffer.to_host())
            if buffer.nbytes % ALIGNMENT:
                pieces.append(_PADDING[-buffer.nbytes % ALIGNMENT])
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
) -> Batch:
    """Check a header against its layout and a packed body, and make the batch, without copying.

    Parameters
    ----------
    header, layout
        From the message, and of the stream's schema.
    body
        All of the message's body.
    version
        Of the message: unions of V4 carry a validity bitmap, which is left out.
    dictionaries, lease, custom_metadata
        Handed on to the batch.

    Raises
    ------
    InvalidMetadata, InvalidBody
        Structure or offsets do not fit.
    Unsupported
        The body is compressed, or V4 unions have nulls of their own.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> from bowstring.ipc.metadata import decode_message, decode_record_batch
    >>> from bowstring.memory import wrap
    >>> record_batch = pa.record_batch({"a": [1, 2, 3]})
    >>> message = pa.ipc.read_message(record_batch.serialize())
    >>> header = decode_record_batch(decode_message(message.metadata))
    >>> unpack(header, Layout.of(record_batch.schema), wrap(message.body)).num_rows
    3
    """
    if header.compression is not None:
        raise Unsupported(f"bodies compressed with {header.compression}")
    if version is MetadataVersion.V4:
        header = _without_union_bitmaps(header, layout)
    if layout.bitmapless.size and np.count_nonzero(header.nodes[:, 1]):
        header = _without_impossible_nulls(header, layout)
    check(header, layout, body.nbytes)
    spans = np.zeros((len(header.buffers), 3), dtype=np.int64)
    spans[:, 1] = header.buffers[:, 0]
    spans[:, 1] += body.offset
    spans[:, 2] = header.buffers[:, 1]
    batch = Batch.from_parts(
        layout,
        header.length,
        header.nodes,
        spans=spans,
        regions=(body.region,),
        variadic_counts=header.variadic_counts,
        dictionaries=dict(dictionaries or {}),
        lease=body.lease if lease is None else lease,
        custom_metadata=custom_metadata,
    )
    check_offsets(batch)
    return batch


def _without_union_bitmaps(header: RecordBatchHeader, layout: Layout) -> RecordBatchHeader:
    unions = [index for index, node in enumerate(layout.nodes) if node.buffer_kinds[:1] == (Kind.TYPE_IDS,)]
    if not unions:
        return header
    extra = [layout.nodes[index].first_buffer + nth for nth, index in enumerate(unions)]
    if len(header.nodes) != layout.num_nodes or len(header.buffers) <= extra[-1]:
        raise InvalidMetadata(
            "wrong number of nodes or buffers for a schema with unions",
            expected=f"{layout.num_nodes} and {layout.num_buffers + len(unions)}",
            found=f"{len(header.nodes)} and {len(header.buffers)}",
        )
    if np.count_nonzero(header.nodes[unions, 1]):
        raise Unsupported("unions with nulls of their own, as Arrow had them before 1.0")
    return header._replace(buffers=np.delete(header.buffers, extra, axis=0))


def _without_impossible_nulls(header: RecordBatchHeader, layout: Layout) -> RecordBatchHeader:
    # Some writers count the nulls of children as those of a union or of runs; Arrow C++ ignores that, too.
    if len(header.nodes) != layout.num_nodes:
        return header
    nodes = header.nodes.copy()
    nodes[layout.bitmapless, 1] = 0
    return header._replace(nodes=nodes)
