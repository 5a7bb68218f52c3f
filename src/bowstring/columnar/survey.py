"""Surveys: all that the host must know of some batches to make them compact, from one read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.columnar.offset_bounds import End
from bowstring.columnar.steps import steps_of
from bowstring.kernels.launch import launch
from bowstring.kernels.ranges import RESULTS, count_in_ranges, find_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.spans import Table
    from bowstring.columnar.steps import Steps

__all__ = ["Found", "Survey", "surveyed"]

# So many words does a work item count at least, so many of them are there at most for one bitmap.
_WORDS: Final = 16
_MOST_LANES: Final = 4096


class Found(NamedTuple):
    """What was found out about one node."""

    start: int
    """The first slot that its parent, or the batch, needs; -1 where something did not fit."""
    length: int
    first: int
    """The first offset, or the first run; -1 where it has none or something did not fit."""
    end: int
    """The last offset, or the run behind the last."""
    last: int
    """The last run end of all."""


class Survey(NamedTuple):
    """What was found out about one batch.

    Attributes
    ----------
    nodes
        One for each node, or none where nobody had to look.
    valid
        How many of the slots are valid, of each node where they were counted.
    """

    nodes: list[Found]
    valid: dict[int, int]

    def found(self, node: int, start: int, length: int) -> Found | None:
        """Return what is known of a node, if it is known of these slots."""
        if not self.nodes:
            return None
        found = self.nodes[node]
        return found if (found.start, found.length) == (start, length) else None

    def ends(self, batch: Batch) -> list[End]:
        """Return the ends of every node that has slots and offsets or run ends; -1 where something did not fit."""
        if not self.nodes:
            return []
        layout = batch.layout
        lengths = batch.nodes[:, 0].tolist()
        sizes = batch.spans.table[layout.fixed_buffers(batch.variadic_counts), 2].tolist()
        offsets = [
            End(node, self.nodes[node].first, self.nodes[node].end, bound, False)
            for node, position, _, child in layout.offsets
            for bound in [lengths[child] if child >= 0 else sizes[position + 1]]
            if lengths[node]
        ]
        runs = [
            End(node, self.nodes[node].first, self.nodes[node].last, lengths[node], True)
            for node in layout.run_ends
            if lengths[node] and lengths[layout.nodes[node].children[0]]
        ]
        return offsets + runs


def surveyed(batches: Sequence[Batch]) -> list[Survey]:
    """Look at some batches of one device: the host reads once, however many they are and however deep.

    Whatever does not fit, such as offsets that lead nowhere, is said to be unknown: whoever needs it looks for
    itself and refuses it by its name.

    Raises
    ------
    MissingDependency
        No compiler of kernels is installed.

    Examples
    --------
    >>> from bowstring.columnar.batch import Batch
    >>> [survey] = surveyed([Batch.from_arrow({"a": ["x", None]}).slice(1)])
    >>> survey.nodes, survey.valid
    ([Found(start=0, length=1, first=1, end=1, last=-1)], {0: 0})
    """
    if all(_is_plain(batch) for batch in batches):
        return [Survey([], {}) for _ in batches]
    steps = [steps_of(batch) for batch in batches]
    found, valid = _walked(batches, steps)
    return list(_split(steps, found, valid))


def _is_plain(batch: Batch) -> bool:
    """Whether there is nothing to find out about a batch."""
    layout = batch.layout
    return not layout.offsets and not layout.run_ends and batch.nodes[:, 1].min(initial=0) >= 0


def _walked(batches: Sequence[Batch], steps: Sequence[Steps]) -> tuple[Table, Table]:
    """Return what was found for each node, and how many bits are set of each bitmap: one read."""
    device = batches[0].device
    begins = np.cumsum([0, *(len(each.nodes) for each in steps)])
    nodes = np.concatenate([each.nodes for each in steps])
    bitmaps = np.concatenate([each.bitmaps for each in steps])
    nodes[:, 1] += np.repeat(begins[:-1], [len(each.nodes) for each in steps])
    bitmaps[:, 0] += np.repeat(begins[:-1], [len(each.bitmaps) for each in steps])
    columns = [batch.layout.column_nodes + begin for batch, begin in zip(batches, begins, strict=False)]
    firsts = np.concatenate([*columns, begins[-1:]])
    longest = int(nodes[bitmaps[:, 0], 3].max(initial=0))
    lanes = min(max(longest // (64 * _WORDS), 1), _MOST_LANES)
    with device.use():
        words = _window(batches, nodes[:, 5:7], bitmaps[:, 1:3])
        table = device.from_host(np.concatenate([firsts, nodes.reshape(-1), bitmaps.reshape(-1)]))
        split = len(firsts) + nodes.size
        found = device.xp.empty(len(nodes) * RESULTS, np.int64)
        launch(find_ranges, len(firsts) - 1, words, table[:split], len(firsts) - 1, found)
        if len(bitmaps):
            counts = device.xp.empty(len(bitmaps) * lanes, np.int64)
            launch(count_in_ranges, len(counts), words, table[split:], found, lanes, counts)
            found = device.xp.concatenate([found, counts.reshape(-1, lanes).sum(axis=1)])
        together = device.to_host(found)
    return together[: len(nodes) * RESULTS].reshape(-1, RESULTS), together[len(nodes) * RESULTS :]


def _window(batches: Sequence[Batch], *places: Table) -> Any:
    """Return all memory between the first and the last of some places as words; places are counted from there.

    Kernels take arrays, and the buffers may lie in as many allocations: see `bowstring.columnar.copy_pieces`.
    """
    device = batches[0].device
    together = np.concatenate(places)
    present = together[:, 1] > 0
    if not present.any():
        return device.xp.empty(0, np.uint64)
    lowest = int(together[present, 0].min()) & -8
    highest = int(together[present].sum(axis=1).max())
    for each in places:
        each[:, 0] = np.where(each[:, 1] > 0, each[:, 0] - lowest, 0)
    owners = [region for batch in batches for region in batch.spans.regions]
    return device.array(lowest, -(-(highest - lowest) // 8) * 8, owners).view(np.uint64)


def _split(steps: Sequence[Steps], found: Table, valid: Table) -> Any:
    """Yield the survey of each batch."""
    node = bitmap = 0
    for each in steps:
        mine = found[node : node + len(each.nodes)]
        counts = valid[bitmap : bitmap + len(each.bitmaps)].tolist()
        counted = {}
        for (index, _, size, spared), count in zip(each.bitmaps.tolist(), counts, strict=True):
            start, length = mine[index, :2].tolist()
            if start >= 0 and start + length <= 8 * size and (start or length != spared):
                counted[index] = count
        yield Survey([Found(*row) for row in mine.tolist()], counted)
        node += len(each.nodes)
        bitmap += len(each.bitmaps)
