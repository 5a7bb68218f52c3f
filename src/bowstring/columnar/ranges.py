"""Which slots of each node make up some rows of a batch, top down.

What the host must know of the data for that (where offsets begin and end, which runs are meant) is fetched level by
level, one fetch a level.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.layout import Kind, Layout
from bowstring.columnar.spans import Spans
from bowstring.errors import InvalidBody
from bowstring.memory import Device

__all__ = ["FIXED_LIST", "PARALLEL", "RUNS", "Parts", "Ranges", "is_offsets", "refuse"]

PARALLEL = (pa.lib.Type_STRUCT, pa.lib.Type_SPARSE_UNION)
FIXED_LIST = pa.lib.Type_FIXED_SIZE_LIST
RUNS = pa.lib.Type_RUN_END_ENCODED

Table = npt.NDArray[np.int64]


class Parts(NamedTuple):
    """What a batch is made of, beside its rows: nodes, shape (nodes, 2), and buffers."""

    layout: Layout
    nodes: Table
    spans: Spans
    variadic_counts: tuple[int, ...]


class Ranges:
    """The slots of each node that some rows need.

    Parameters
    ----------
    parts, device
        What is cut, and where it is.
    offsets : ndarray of int64, shape (nodes,)
        Where the slots of each node start in its buffers, as in Arrow's C data interface.
    trim
        Leave out what no offset points to.

    Attributes
    ----------
    starts, lengths : ndarray of int64, shape (nodes,)
        First slot, counted from the start of the buffers, and number of slots.
    ends : dict of int to (int, int)
        First and last offset of each node with offsets; only with `trim`.
    runs : dict of int to (int, int)
        Of each run-end encoded node that needs new run ends: what to subtract, and the most that is left.
    """

    def __init__(self, parts: Parts, device: Device, offsets: Table, *, trim: bool) -> None:
        self.parts = parts
        self.device = device
        self.offsets = offsets
        self.trim = trim
        self.first = parts.layout.first_buffers(parts.variadic_counts)
        self.starts = np.zeros(parts.layout.num_nodes, np.int64)
        self.lengths = np.zeros(parts.layout.num_nodes, np.int64)
        self.ends: dict[int, tuple[int, int]] = {}
        self.runs: dict[int, tuple[int, int]] = {}

    def descend(self, start: int, length: int) -> None:
        """Find the slots for the rows ``[start, start + length)``.

        Raises
        ------
        InvalidBody
            A node has fewer slots than its parent needs, or offsets decrease.
        """
        layout = self.parts.layout
        if layout.is_flat:
            self.starts[:] = self.offsets + start
            self.lengths[:] = length
            if (self.parts.nodes[:, 0] < start + length).any():
                refuse(layout, int(np.argmin(self.parts.nodes[:, 0])), "a column is shorter than its batch")
            self._find_ends(range(layout.num_nodes))
            return
        level = [(node, start, length) for node in layout.columns]
        while level:
            level = self._below(level)

    def _below(self, level: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        layout, nodes = self.parts.layout, self.parts.nodes
        for node, start, length in level:
            if start < 0 or start + length > nodes[node, 0]:
                what = "a column or child is too short"
                refuse(layout, node, what, f"{start + length} slots", f"{nodes[node, 0]}")
            self.starts[node] = self.offsets[node] + start
            self.lengths[node] = length
        self._find_ends(node for node, _, _ in level)
        self._find_runs([node for node, _, _ in level if layout.nodes[node].type.id == RUNS])
        return [
            piece for node, _, _ in level if layout.nodes[node].children for piece in self._children(node)
        ]

    def _children(self, index: int) -> Iterable[tuple[int, int, int]]:
        node = self.parts.layout.nodes[index]
        start, length = int(self.starts[index]), int(self.lengths[index])
        type_id = node.type.id
        if type_id in PARALLEL:
            return [(child, start, length) for child in node.children]
        if type_id == FIXED_LIST:
            size = node.type.list_size
            return [(node.children[0], start * size, length * size)]
        if type_id == RUNS:
            return self._run_children(index)
        if index in self.ends:
            first, last = self.ends[index]
            return [(node.children[0], first, last - first)]
        return [(child, 0, int(self.parts.nodes[child, 0])) for child in node.children]

    def _find_ends(self, nodes: Iterable[int]) -> None:
        """Fetch the first and the last offset of some nodes."""
        layout = self.parts.layout
        if not self.trim or not layout.offsets:
            return
        rows: list[int] = []
        at: list[int] = []
        widths: list[int] = []
        found: list[int] = []
        for index in nodes:
            kinds = layout.nodes[index].buffer_kinds
            if not is_offsets(kinds):
                continue
            if not self.lengths[index]:
                self.ends[index] = 0, 0
                continue
            start, width = int(self.starts[index]), 4 if kinds[1] is Kind.OFFSETS32 else 8
            found.append(index)
            rows += [int(self.first[index]) + 1] * 2
            at += [start * width, (start + int(self.lengths[index])) * width]
            widths += [width] * 2
        values = self.parts.spans.fetch(self.device, rows, at, widths)
        for index, first, last in zip(found, values[::2], values[1::2], strict=True):
            if not 0 <= first <= last:
                refuse(layout, index, "offsets decrease", found=f"first {first}, last {last}")
            self.ends[index] = first, last

    def run_ends(self, index: int) -> Any:
        """Return all run ends of a node, an array of its device."""
        ends = self.parts.layout.nodes[index].children[0]
        at, runs = int(self.offsets[ends]), int(self.parts.nodes[ends, 0])
        width = self.parts.layout.nodes[ends].width
        array = self.parts.spans.array(int(self.first[ends]) + 1, f"<i{width}")[at : at + runs]
        if len(array) != runs or not runs:
            refuse(self.parts.layout, ends, "run ends are missing", runs or "at least 1", len(array))
        return array

    def _find_runs(self, nodes: list[int]) -> None:
        asked = []
        found = []
        for index in nodes:
            start, length = int(self.starts[index]), int(self.lengths[index])
            if length and (start or self.trim):
                ends = self.run_ends(index)
                wanted = self.device.xp.asarray(np.array([start, start + length - 1], ends.dtype))
                within = self.device.xp.searchsorted(ends, wanted, side="right")
                asked += [within.astype(np.int64), ends[-1:].astype(np.int64)]
                found.append(index)
        if not found:
            return
        values = iter(self.device.to_host(self.device.xp.concatenate(asked)).tolist())
        for index in found:
            first, end, last = next(values), next(values) + 1, next(values)
            start, length = int(self.starts[index]), int(self.lengths[index])
            if last < start + length:
                refuse(self.parts.layout, index, "run ends do not cover the column", start + length, last)
            self.ends[index] = first, end
            if start or last != length:
                self.runs[index] = start, length

    def _run_children(self, index: int) -> list[tuple[int, int, int]]:
        ends, values = self.parts.layout.nodes[index].children
        if not self.lengths[index]:
            return [(ends, 0, 0), (values, 0, 0)]
        first, end = self.ends.get(index, (0, int(self.parts.nodes[ends, 0])))
        return [(ends, first, end - first), (values, first, end - first)]


def is_offsets(kinds: tuple[Kind, ...]) -> bool:
    """Whether a node with these buffers has offsets with one more element than it has slots."""
    return len(kinds) > 1 and (kinds[1] is Kind.OFFSETS32 or kinds[1] is Kind.OFFSETS64)


def refuse(layout: Layout, node: int, what: str, expected: object = None, found: object = None) -> NoReturn:
    """Raise :class:`~bowstring.errors.InvalidBody` that names a node."""
    raise InvalidBody(what, expected=expected, found=found, where=".".join(layout.nodes[node].path))
