"""Whether the header of one record batch fits its schema and its body, in Python's integers: none overflows.

O(columns): counts, spans, and the first and last of offsets; full validation reads what is in between. The kernels
of :mod:`bowstring.kernels.ipc.read` have the same rules. This form covers what they lack, and names the error.
Stricter than Arrow C++: a validity bitmap must be long enough even where the null count is 0, and unions and
run-end encoded nodes have a null count of 0 (a stream's reader sets it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import batch_parts, offset_bounds
from bowstring.columnar.spans import region_table
from bowstring.errors import InvalidBody, InvalidMetadata
from bowstring.kernels.host import ALL_MEMORY, bound
from bowstring.kernels.ipc import batch, read
from bowstring.kernels.library import address_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.flatbuf.message import RecordBatchHeader

_UNKNOWN: Final = -1
_WORD: Final = 8
_VALIDITY, _BYTES = int(Kind.VALIDITY), int(Kind.BYTES)
DONE: Final = int(batch.DONE)

Table = npt.NDArray[np.int64]


def check(header: RecordBatchHeader, layout: Layout, body_length: int) -> None:
    """Check the header of a batch whose buffers lie in one body."""
    check_counts(header, layout)
    check_spans(header, layout, body_length)
    nodes = check_nodes(header, layout)
    check_sizes(header, layout, nodes, header.buffers[:, 1].tolist())


def check_pairs(header: RecordBatchHeader, layout: Layout, lengths: npt.NDArray[np.integer[Any]]) -> None:
    """Check the header of a batch whose buffers are given by address (a type 1 body)."""
    check_counts(header, layout)
    sizes, claimed = header.buffers[:, 1].tolist(), lengths.tolist()
    if len(claimed) != len(sizes):
        raise InvalidMetadata(
            "wrong number of pairs", expected=f"{len(sizes)}, one a buffer", found=len(claimed)
        )
    if claimed != sizes:
        position = next(at for at, size in enumerate(sizes) if size != claimed[at])
        raise InvalidMetadata(
            "a pair and the metadata differ in a buffer's length",
            expected=sizes[position],
            found=claimed[position],
            where=buffer_name(header, layout, position),
        )
    if min(sizes, default=0) < 0:
        _refuse_buffer("the length of a buffer is negative", header, layout, sizes.index(min(sizes)))
    check_sizes(header, layout, check_nodes(header, layout), sizes)


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
            _refuse_buffer("the offset or length of a buffer is negative", header, layout, position)
        if offset + length > body_length:
            expected = f"an end of at most {body_length}"
            _refuse_buffer("a buffer lies outside the body", header, layout, position, expected)
        expected = "an offset that is a multiple of 8"
        _refuse_buffer("a buffer is misaligned", header, layout, position, expected)


def check_nodes(header: RecordBatchHeader, layout: Layout) -> list[list[int]]:
    """Check lengths and null counts against the schema and each other; return them, node by node."""
    nodes: list[list[int]] = header.nodes.tolist()
    rows = header.length
    for column in layout.columns:
        if nodes[column][0] != rows:
            raise InvalidMetadata(
                "a column has another length than the batch",
                expected=rows,
                found=nodes[column][0],
                where=node_name(layout, column),
            )
    if not layout.is_flat:
        _check_children(layout, nodes)
    for node, (length, nulls) in enumerate(nodes):
        if not _UNKNOWN <= nulls <= length:
            raise InvalidMetadata(
                "impossible null count",
                expected=f"0 to {length}, or -1 for unknown",
                found=nulls,
                where=node_name(layout, node),
            )
    for node in layout.never_null.tolist():
        if nodes[node][1]:
            raise InvalidMetadata(
                "unions, runs, and entries and keys of maps cannot be null",
                found=f"null count {nodes[node][1]}",
                where=node_name(layout, node),
            )
        if nodes[node][0] and not layout.nodes[node].children and pa.types.is_union(layout.nodes[node].type):
            raise InvalidMetadata(
                "a union without children has no value for any row",
                found=f"{nodes[node][0]} rows",
                where=node_name(layout, node),
            )
    return nodes


def _check_children(layout: Layout, nodes: list[list[int]]) -> None:
    """Check the lengths of children against their parents'."""
    for node, (length, _) in enumerate(nodes):
        if length < 0:
            where = node_name(layout, node)
            raise InvalidMetadata("the length of a node is negative", found=length, where=where)
    bounds = layout.bounded_children, layout.bounding_parents, layout.bounding_factors
    for child, parent, factor in zip(*(each.tolist() for each in bounds), strict=True):
        if nodes[child][0] < nodes[parent][0] * factor:
            raise InvalidMetadata(
                "a child is shorter than its parent needs",
                expected=f"at least {nodes[parent][0] * factor}",
                found=nodes[child][0],
                where=node_name(layout, child),
            )
    for node in layout.run_ends:
        ends, values = (nodes[child][0] for child in layout.nodes[node].children)
        if values < ends or (nodes[node][0] and not ends):
            raise InvalidMetadata(
                "too few runs or too few values of runs",
                expected=f"{ends or 1} of each",
                found=f"{ends} ends and {values} values",
                where=node_name(layout, node),
            )


def check_sizes(
    header: RecordBatchHeader,
    layout: Layout,
    nodes: list[list[int]],
    sizes: list[int],
    slack: int | None = None,
) -> None:
    """Check that every buffer has the bytes that its node needs, and at most twice that and `slack` where given."""
    if header.variadic_counts:
        sizes = [sizes[at] for at in layout.fixed_buffers(header.variadic_counts).tolist()]
    rules = layout.buffer_nodes, layout.buffer_bits, layout.buffer_end_bits, layout.buffer_kinds
    for position, (node, bits, end_bits, kind, size) in enumerate(
        zip(*(each.tolist() for each in rules), sizes, strict=True)
    ):
        slots, nulls = nodes[node]
        needed = (slots * bits + end_bits + 7) >> 3 if slots else 0
        if size < needed:
            if kind == _VALIDITY and not size:
                if nulls > 0:
                    where = node_name(layout, node)
                    raise InvalidMetadata("a validity bitmap is missing", found=f"{nulls} nulls", where=where)
                continue
            at = int(layout.fixed_buffers(header.variadic_counts)[position])
            raise InvalidMetadata(
                "a buffer is too short for its node",
                expected=f"{needed} bytes for {slots} slots",
                found=f"{size} bytes",
                where=buffer_name(header, layout, at),
            )
        if slack is not None and size - slack > 2 * needed and kind != _BYTES:
            at = int(layout.fixed_buffers(header.variadic_counts)[position])
            raise InvalidBody(
                "a compressed buffer claims to be longer than its node needs",
                expected=f"{needed} bytes",
                found=f"{size} bytes",
                where=buffer_name(header, layout, at),
            )


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
    for node in layout.run_ends:
        child = layout.nodes[node].children[0]
        if parts.nodes[node, 0] and parts.nodes[child, 0] <= 0:
            raise InvalidBody("run ends are missing", found="0 runs", where=node_name(layout, child))
    for node, first, last, most, is_runs in offset_bounds(batch):
        if is_runs:
            right, what = 0 < first <= last and last >= most, "runs do not cover their column"
        else:
            right, what = 0 <= first <= last <= most, "offsets decrease, or point outside what they delimit"
        if not right:
            found = f"{first} to {last}"
            raise InvalidBody(what, expected=f"against {most}", found=found, where=node_name(layout, node))


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
    call(
        len(firsts),
        *ALL_MEMORY,
        address_of(plan),
        plan.size,
        address_of(regions),
        regions.size,
        drops,
        address_of(nodes),
        nodes.size,
        address_of(counts),
        counts.size,
        address_of(firsts),
        firsts.size,
        address_of(spans),
        spans.size,
        address_of(statuses),
        statuses.size,
    )
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


def _refuse_buffer(
    what: str, header: RecordBatchHeader, layout: Layout, position: int, expected: object = None
) -> NoReturn:
    offset, length = header.buffers[position].tolist()
    found = f"{length} bytes at {offset}"
    raise InvalidMetadata(what, expected=expected, found=found, where=buffer_name(header, layout, position))


def node_name(layout: Layout, node: int) -> str:
    """Return how errors call a node."""
    return f"column {'.'.join(layout.nodes[node].path)!r} (node {node})"


def buffer_name(header: RecordBatchHeader, layout: Layout, position: int) -> str:
    """Return how errors call a buffer of a batch; the counts have been checked."""
    first = layout.first_buffers(header.variadic_counts)
    node = int(np.searchsorted(first, position, side="right")) - 1
    kinds = layout.nodes[node].buffer_kinds
    within = position - int(first[node])
    kind = kinds[within] if within < len(kinds) else Kind.VARIADIC
    return f"{kind.name} of {node_name(layout, node)}, buffer {position}"
