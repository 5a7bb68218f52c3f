"""What counts, sizes and ends of a batch must be: O(columns), in Python's integers, so that none overflows.

The kernels of :mod:`bowstring.kernels.ipc.read` have the same rules. Full validation reads what is in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import BatchData, offset_bounds
from bowstring.errors import BowstringError, InvalidBody

_VALIDITY, _BYTES = int(Kind.VALIDITY), int(Kind.BYTES)
_UNKNOWN = -1
Error = type[BowstringError]


def check_nodes(layout: Layout, num_rows: int, nodes: Sequence[Sequence[int]], error: Error) -> None:
    """Check lengths and null counts of nodes against the schema and each other."""
    for column in layout.columns:
        length = nodes[column][0]
        if length != num_rows:
            what = "a column has another length than the batch"
            raise error(what, expected=num_rows, found=length, where=layout.name_of(column))
    for node, (length, nulls) in enumerate(nodes):
        if length < 0:
            raise error("the length of a node is negative", found=length, where=layout.name_of(node))
        if not _UNKNOWN <= nulls <= length:
            expected, where = f"0 to {length}, or -1 for unknown", layout.name_of(node)
            raise error("impossible null count", expected=expected, found=nulls, where=where)
    bounds = layout.bounded_children, layout.bounding_parents, layout.bounding_factors
    for child, parent, factor in zip(*(table.tolist() for table in bounds), strict=True):
        if nodes[child][0] < nodes[parent][0] * factor:
            raise error(
                "a child is shorter than its parent needs",
                expected=f"at least {nodes[parent][0] * factor}",
                found=nodes[child][0],
                where=layout.name_of(child),
            )
    for node in layout.run_ends:
        ends, values = (nodes[child][0] for child in layout.nodes[node].children)
        if values < ends or (nodes[node][0] and not ends):
            raise error(
                "too few runs or too few values of runs",
                expected=f"{ends or 1} of each",
                found=f"{ends} ends and {values} values",
                where=layout.name_of(node),
            )


def check_sizes(
    layout: Layout,
    nodes: Sequence[Sequence[int]],
    sizes: Sequence[int],
    error: Error,
    slack: int | None = None,
) -> None:
    """Check that every buffer has the bytes that its node needs, and at most twice that and `slack` where given.

    `sizes` are those of the layout's own buffers.
    """
    rules = layout.buffer_nodes, layout.buffer_bits, layout.buffer_end_bits, layout.buffer_kinds
    tables = (table.tolist() for table in rules)
    for node, bits, end_bits, kind, size in zip(*tables, sizes, strict=True):
        slots, nulls = nodes[node]
        needed = (slots * bits + end_bits + 7) >> 3 if slots else 0
        if size < needed:
            what, expected = "a buffer is too short for its node", f"{needed} bytes for {slots} slots"
            if kind == _VALIDITY and not size:
                if nulls <= 0:
                    continue
                what, expected = "a validity bitmap is missing", f"{needed} bytes for {nulls} nulls"
        elif slack is not None and size - slack > 2 * needed and kind != _BYTES:
            what, expected = "a buffer claims to be longer than its node needs", f"{needed} bytes"
            error = InvalidBody
        else:
            continue
        where = f"{layout.name_of(node)}, {Kind(kind).name}"
        raise error(what, expected=expected, found=f"{size} bytes", where=where)


def check_ends(batch: BatchData) -> None:
    """Check the first and the last offset of every offsets buffer, and run ends alike: of a device by one read."""
    for node, first, last, most, is_runs in offset_bounds(batch):
        if is_runs:
            is_right, what = 0 < first <= last and last >= most, "runs do not cover their column"
        else:
            what = "offsets decrease, or point outside what they delimit"
            is_right = 0 <= first <= last <= most
        if not is_right:
            found, where = f"{first} to {last}", batch.layout.name_of(node)
            raise InvalidBody(what, expected=f"against {most}", found=found, where=where)
