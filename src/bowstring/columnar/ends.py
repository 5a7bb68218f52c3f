"""Where offsets and run ends begin and end: all that the host must know of the data to tell whether they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bowstring.columnar.spans import Asked

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch

__all__ = ["End", "Wanted", "ends_of", "wanted_ends"]


class End(NamedTuple):
    """The first and the last offset of a node, or its first and last run end."""

    node: int
    first: int
    last: int
    bound: int
    """What the last should not pass: bytes, slots of the child, or for run ends the length of the node."""
    is_runs: bool


def ends_of(batch: Batch) -> list[End]:
    """Return the ends of every node that has slots and offsets or run ends, with one read by the host.

    Raises
    ------
    InvalidBody
        A buffer is too short for its slots.

    Examples
    --------
    >>> from bowstring.columnar.batch import Batch
    >>> [(end.first, end.last, end.bound) for end in ends_of(Batch.from_arrow({"a": ["x", "yz"]}))]
    [(0, 3, 3)]
    """
    if not batch.layout.offsets and not batch.layout.run_ends:
        return []
    wanted = wanted_ends(batch)
    _, rows, at, widths = wanted.asked
    return wanted.given(batch.spans.fetch(batch.device, rows, at, widths))


class Wanted(NamedTuple):
    """The ends of one batch, before they are fetched."""

    asked: Asked
    found: list[tuple[int, int, bool]]

    def given(self, values: list[int]) -> list[End]:
        """Return the ends, now that their values are known."""
        return [
            End(node, first, last, bound, is_runs)
            for (node, bound, is_runs), first, last in zip(self.found, values[::2], values[1::2], strict=True)
        ]


def wanted_ends(batch: Batch) -> Wanted:
    """Return what must be fetched to know the ends of a batch."""
    layout, spans = batch.layout, batch.spans
    rows: list[int] = []
    at: list[int] = []
    widths: list[int] = []
    found: list[tuple[int, int, bool]] = []
    wanted = Wanted(Asked(spans, rows, at, widths), found)
    if not layout.offsets and not layout.run_ends:
        return wanted
    fixed = layout.fixed_buffers(batch.variadic_counts).tolist()
    lengths = batch.nodes[:, 0].tolist()
    sizes = spans.table[:, 2].tolist()
    for node, position, width, child in layout.offsets:
        if lengths[node]:
            rows += [fixed[position]] * 2
            at += [0, lengths[node] * width]
            widths += [width] * 2
            found.append((node, lengths[child] if child >= 0 else sizes[fixed[position + 1]], False))
    for node in layout.run_ends:
        ends = layout.nodes[node].children[0]
        if lengths[node] and lengths[ends]:
            width = layout.nodes[ends].width
            rows += [fixed[layout.nodes[ends].first_buffer + 1]] * 2
            at += [0, (lengths[ends] - 1) * width]
            widths += [width] * 2
            found.append((node, lengths[node], True))
    return wanted
