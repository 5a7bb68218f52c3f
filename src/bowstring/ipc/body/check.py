"""Whether the header of one record batch fits its schema and its body, in Python's integers: none overflows.

The kernels of :mod:`bowstring.kernels.ipc.read` have the same rules; this form covers what they lack, and names the
error. Stricter than Arrow C++: a validity bitmap must be long enough even where the null count is 0, and unions and
run-end encoded nodes have a null count of 0 (a stream's reader sets it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import batch_parts
from bowstring.columnar.spans import region_table
from bowstring.columnar.validation.rules import check_ends, check_nodes, check_sizes
from bowstring.errors import InvalidMetadata
from bowstring.kernels.host import ALL_MEMORY, bound
from bowstring.kernels.ipc import batch, read
from bowstring.kernels.library import address_of

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.flatbuf.message import RecordBatchHeader

_WORD: Final = 8
DONE: Final = int(batch.DONE)

Table = npt.NDArray[np.int64]


def check(header: RecordBatchHeader, layout: Layout, body_length: int) -> None:
    """Check the header of a batch whose buffers lie in one body."""
    check_counts(header, layout)
    check_spans(header, layout, body_length)
    check_counted(header, layout, header.buffers[:, 1])


def check_pairs(header: RecordBatchHeader, layout: Layout, lengths: npt.NDArray[np.integer[Any]]) -> None:
    """Check the header of a batch whose buffers are given by address (a type 1 body)."""
    check_counts(header, layout)
    sizes = header.buffers[:, 1]
    if len(lengths) != len(sizes):
        raise InvalidMetadata(
            "wrong number of pairs", expected=f"{len(sizes)}, one a buffer", found=len(lengths)
        )
    # As Python's integers: those of pairs may be unsigned.
    for position, (size, length) in enumerate(zip(sizes.tolist(), lengths.tolist(), strict=True)):
        if size != length or size < 0:
            what = "a pair and the metadata differ in a buffer's length, or it is negative"
            where = buffer_name(header, layout, position)
            raise InvalidMetadata(what, expected=size, found=length, where=where)
    check_counted(header, layout, sizes)


def check_counts(header: RecordBatchHeader, layout: Layout) -> None:
    """Check that a batch has as many nodes and buffers as its layout."""
    if header.length < 0:
        raise InvalidMetadata("the length of the batch is negative", found=header.length)
    if len(header.nodes) != layout.num_nodes:
        raise InvalidMetadata("wrong number of nodes", expected=layout.num_nodes, found=len(header.nodes))
    expected = layout.num_buffers
    counts = header.variadic_counts
    if counts or layout.variadic_nodes:
        if len(counts) != len(layout.variadic_nodes):
            raise InvalidMetadata(
                "wrong number of variadic buffer counts",
                expected=len(layout.variadic_nodes),
                found=len(counts),
            )
        if min(counts) < 0:
            raise InvalidMetadata("a variadic buffer count is negative", found=min(counts))
        expected += sum(counts)
    if len(header.buffers) != expected:
        raise InvalidMetadata("wrong number of buffers", expected=expected, found=len(header.buffers))


def check_spans(header: RecordBatchHeader, layout: Layout, body_length: int) -> None:
    """Check that all buffers lie in the body, at multiples of 8 bytes; the offset of an empty one is ignored."""
    for position, (offset, length) in enumerate(header.buffers.tolist()):
        if not length or (0 <= offset <= body_length - length <= body_length and not offset % _WORD):
            continue
        if length < 0 or offset < 0:
            what, expected = "the offset or length of a buffer is negative", "0 or more"
        elif offset + length > body_length:
            what, expected = "a buffer lies outside the body", f"an end of at most {body_length}"
        else:
            what, expected = "a buffer is misaligned", "an offset that is a multiple of 8"
        found, where = f"{length} bytes at {offset}", buffer_name(header, layout, position)
        raise InvalidMetadata(what, expected=expected, found=found, where=where)


def check_counted(header: RecordBatchHeader, layout: Layout, sizes: Table, slack: int | None = None) -> None:
    """Check nodes, and the sizes of all buffers against them: see :func:`check_sizes`."""
    nodes = header.nodes.tolist()
    check_nodes(layout, header.length, nodes, InvalidMetadata)
    for node in layout.never_null.tolist():
        length, nulls = nodes[node]
        if nulls:
            what, where = "unions, runs, and entries and keys of maps cannot be null", layout.name_of(node)
            raise InvalidMetadata(what, found=f"null count {nulls}", where=where)
        if length and not layout.nodes[node].children and pa.types.is_union(layout.nodes[node].type):
            what, where = "a union without children has no value for any row", layout.name_of(node)
            raise InvalidMetadata(what, found=f"{length} rows", where=where)
    if header.variadic_counts:
        sizes = sizes[layout.fixed_buffers(header.variadic_counts)]
    check_sizes(layout, nodes, sizes.tolist(), InvalidMetadata, slack)


def check_offsets(batch: Batch) -> None:
    """Check the first and the last offset of every offsets buffer of a batch, and its run ends alike.

    Of a device it reads once.
    """
    parts = batch_parts(batch)
    layout = batch.layout
    if not (layout.offsets or layout.run_ends):
        return
    if batch.device.is_host:
        counts, spans = np.array(parts.variadic_counts, np.int64), parts.spans.table
        regions = region_table(parts.spans.regions)
        if right_offsets(layout, parts.nodes, counts, np.zeros(1, np.int64), spans, regions) == [DONE]:
            return
    check_ends(batch)


def right_offsets(
    layout: Layout,
    nodes: Table,
    counts: Table,
    firsts: Table,
    spans: Table,
    regions: Table,
    *,
    drops: bool = False,
) -> list[int]:
    """Return a status for each of some batches: DONE if its offsets are surely right; none without a library.

    The spans of each begin with a row of `firsts`. With `drops`, bitmaps of nodes without nulls are emptied.
    """
    plan, call = layout.reading_plan, bound(read.check_batches, one=False)
    if call is None or plan is None or not (spans.flags.c_contiguous and nodes.flags.c_contiguous):
        return []
    statuses = np.empty(len(firsts), np.int64)
    known = address_of(plan), plan.size, address_of(regions), regions.size
    given = address_of(nodes), nodes.size, address_of(counts), counts.size, address_of(firsts), firsts.size
    out = address_of(spans), spans.size, address_of(statuses), statuses.size
    call(len(firsts), *ALL_MEMORY, *known, drops, *given, *out)
    right: list[int] = statuses.tolist()
    return right


def leave_out_unused_bitmaps(
    spans: Table, nodes: Table, layout: Layout, variadic_counts: Sequence[int] = ()
) -> None:
    """Empty the validity bitmaps of nodes with a null count of 0.

    Their bits may be anything: Arrow's readers skip them, but slices, kernels and other libraries would count
    them.
    """
    at = layout.fixed_buffers(variadic_counts)[layout.validity_buffers]
    spans[at[nodes[layout.validity_nodes, 1] == 0], 2] = 0


def buffer_name(header: RecordBatchHeader, layout: Layout, position: int) -> str:
    """Return how errors call a buffer of a batch; the counts have been checked."""
    first = layout.first_buffers(header.variadic_counts)
    node = int(np.searchsorted(first, position, side="right")) - 1
    kinds = layout.nodes[node].buffer_kinds
    within = position - int(first[node])
    kind = kinds[within] if within < len(kinds) else Kind.VARIADIC
    return f"{layout.name_of(node)}, {kind.name}, buffer {position}"
