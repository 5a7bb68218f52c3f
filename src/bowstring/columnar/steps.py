"""Steps: the tables that tell kernels how to walk down the nodes of a batch, and which bitmaps to count."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bowstring.columnar.layout import Kind
from bowstring.columnar.ranges import FIXED_LIST, PARALLEL, RUNS, is_offsets
from bowstring.kernels import ranges

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.layout import Layout, Node
    from bowstring.columnar.spans import Table

__all__ = ["Steps", "steps_of"]


class Steps(NamedTuple):
    """How to walk down one batch, as :mod:`bowstring.kernels.ranges` takes it, but with addresses for places.

    Attributes
    ----------
    nodes : ndarray of int64, shape (nodes, ranges.FIELDS)
    bitmaps : ndarray of int64, shape (any, ranges.COUNT_FIELDS)
    """

    nodes: Table
    bitmaps: Table


class _Plan(NamedTuple):
    """What the layout says: fields of each node, its buffer and its bitmap among the fixed buffers, or -1."""

    fields: Table
    buffers: Table
    run_ends: Table
    """The node of the run ends of a node; itself where it has none."""
    bitmaps: Table
    by_data: Table
    """Whether its slots are known only to the data."""


def steps_of(batch: Batch) -> Steps:
    """Return how to walk down a batch; a buffer that lies outside of its memory has no bytes here.

    Examples
    --------
    >>> from bowstring.columnar.batch import Batch
    >>> steps = steps_of(Batch.from_arrow({"a": [["x", None]]}))
    >>> steps.nodes[:, [0, 1, 3, 7]].tolist(), len(steps.bitmaps)
    ([[0, -1, 1, 4], [2, 0, 2, 4]], 1)
    """
    layout = batch.layout
    plan = _plan(layout)
    lengths, nulls = batch.nodes[:, 0], batch.nodes[:, 1]
    fixed = layout.fixed_buffers(batch.variadic_counts)
    addresses, sizes = _where(batch)
    nodes = plan.fields.copy()
    nodes[:, 3] = lengths
    given = nodes[:, 0] == 0
    nodes[given, 2] = lengths[given]
    nodes[layout.column_nodes, 2] = batch.num_rows
    has = np.flatnonzero(plan.buffers >= 0)
    rows = fixed[plan.buffers[has]]
    nodes[has, 5], nodes[has, 6] = addresses[rows], sizes[rows]
    # Run ends are as many as their node says, or none of them is looked at.
    runs = np.flatnonzero(nodes[:, 4] == ranges.RUNS)
    wanted = lengths[plan.run_ends[runs]] * nodes[runs, 7]
    nodes[runs, 6] = np.where(wanted <= nodes[runs, 6], wanted, 0)
    exact = lengths[layout.bounded_children] == lengths[layout.bounding_parents] * layout.bounding_factors
    cut = (
        plan.by_data.astype(bool) | (not exact.all()) | (lengths[layout.column_nodes] != batch.num_rows).any()
    )
    counted = np.flatnonzero((plan.bitmaps >= 0) & (nulls != 0) & (nulls != lengths) & ((nulls < 0) | cut))
    rows = fixed[plan.bitmaps[counted]]
    spared = np.where(nulls[counted] < 0, -1, lengths[counted])
    bitmaps = np.stack([counted, addresses[rows], sizes[rows], spared], axis=1)
    return Steps(nodes, bitmaps[sizes[rows] > 0])


def _where(batch: Batch) -> tuple[Table, Table]:
    """Return the addresses and sizes of all buffers; 0 for those that are not in their memory."""
    spans = batch.spans
    bounds = np.array([*(region.nbytes for region in spans.regions), 0], np.int64)
    table = spans.table
    inside = (table[:, 1] >= 0) & (table[:, 2] >= 0) & (table[:, 1] <= bounds[table[:, 0]] - table[:, 2])
    return spans.addresses() * inside, table[:, 2] * inside


@functools.lru_cache(maxsize=64)
def _plan(layout: Layout) -> _Plan:
    count = layout.num_nodes
    fields = np.zeros((count, ranges.FIELDS), np.int64)
    fields[:, 1] = -1
    buffers, bitmaps = np.full(count, -1), np.full(count, -1)
    run_ends, by_data = np.arange(count), np.zeros(count, np.int64)
    for index, node in enumerate(layout.nodes):
        kinds = node.buffer_kinds
        if kinds and kinds[0] is Kind.VALIDITY:
            bitmaps[index] = node.first_buffer
        if is_offsets(kinds):
            fields[index, 4], fields[index, 7] = ranges.OFFSETS, kinds[1].bits >> 3
            buffers[index] = node.first_buffer + 1
        elif node.type.id == RUNS:
            ends = run_ends[index] = node.children[0]
            fields[index, 4], fields[index, 7] = ranges.RUNS, layout.nodes[ends].width
            buffers[index] = layout.nodes[ends].first_buffer + 1
        how, factor = _children(node)
        for child in node.children:
            fields[child, :3] = how, index, factor
            by_data[child] = how == ranges.OF_ENDS or (how == ranges.OF_PARENT and by_data[index])
    return _Plan(fields, buffers, run_ends, bitmaps, by_data)


def _children(node: Node) -> tuple[int, int]:
    """Return where the slots of a node's children are said, and how many there are for each of the node's."""
    if node.type.id in PARALLEL:
        return ranges.OF_PARENT, 1
    if node.type.id == FIXED_LIST:
        return ranges.OF_PARENT, node.type.list_size
    if node.type.id == RUNS or is_offsets(node.buffer_kinds):
        return ranges.OF_ENDS, 0
    return 0, 0
