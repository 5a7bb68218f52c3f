"""Surveys: all that the host must know of some batches to make them compact, from one read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bowstring.columnar.ends import wanted_ends
from bowstring.columnar.layout import Kind
from bowstring.columnar.spans import fetch
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.ends import End

__all__ = ["Survey", "surveyed"]


class Survey(NamedTuple):
    """What was found out about one batch.

    Attributes
    ----------
    ends
        Where offsets and run ends begin and end.
    valid
        How many slots are valid, of each node whose null count is unknown and that has a bitmap.
    """

    ends: list[End]
    valid: dict[int, int]

    def first_and_last(self) -> dict[int, tuple[int, int]]:
        """Return the first and last offset, or run end, of each node."""
        return {end.node: (end.first, end.last) for end in self.ends}


def surveyed(batches: Sequence[Batch]) -> list[Survey]:
    """Look at some batches of one device: the host reads once, however many they are.

    Raises
    ------
    InvalidBody
        A buffer is too short for its slots.

    Examples
    --------
    >>> from bowstring.columnar.batch import Batch
    >>> [survey] = surveyed([Batch.from_arrow({"a": ["x", None]}).slice(1)])
    >>> survey.first_and_last(), survey.valid
    ({0: (1, 1)}, {0: 0})
    """
    if not batches:
        return []
    if all(_is_plain(batch) for batch in batches):
        return [Survey([], {}) for _ in batches]
    wanted = [wanted_ends(batch) for batch in batches]
    counted = [_counted(batch) for batch in batches]
    counts = [count for each in counted for count in each.values()]
    ends, numbers = fetch(batches[0].device, [each.asked for each in wanted], counts)
    left = iter(numbers)
    return [
        Survey(each.given(values), {node: next(left) for node in nodes})
        for each, values, nodes in zip(wanted, ends, counted, strict=True)
    ]


def _is_plain(batch: Batch) -> bool:
    """Whether there is nothing to find out about a batch."""
    layout = batch.layout
    return not layout.offsets and not layout.run_ends and batch.nodes[:, 1].min(initial=0) >= 0


def _counted(batch: Batch) -> dict[int, Any]:
    """Return the number of set bits of every bitmap that nobody has counted, on the device."""
    found: dict[int, Any] = {}
    unknown = np.flatnonzero(batch.nodes[:, 1] < 0).tolist()
    if not unknown:
        return found
    first = batch.layout.first_buffers(batch.variadic_counts)
    for node in unknown:
        kinds = batch.layout.nodes[node].buffer_kinds
        row, length = int(first[node]), int(batch.nodes[node, 0])
        # One that is too short is refused by whoever cuts it, by its name.
        if kinds and kinds[0] is Kind.VALIDITY and 8 * int(batch.spans.table[row, 2]) >= max(length, 1):
            found[node] = bitmap.count_set(batch.spans.array(row), 0, length)
    return found
