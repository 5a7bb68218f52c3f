"""The first and last offsets and run ends: all that the host must read of the data to check whether they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch

__all__ = ["OffsetBounds", "offset_bounds"]


class OffsetBounds(NamedTuple):
    """The first and the last offset of a node, or its first and last run end."""

    node: int
    first: int
    last: int
    bound: int
    """What the last should not pass: bytes, slots of the child, or for run ends the length of the node."""
    is_runs: bool


def offset_bounds(batch: Batch) -> list[OffsetBounds]:
    """Return the ends of every node that has slots and offsets or run ends, with one read by the host.

    Raises
    ------
    InvalidBody
        A buffer is too short for its slots.
    """
    layout, spans = batch.layout, batch.spans
    if not layout.offsets and not layout.run_ends:
        return []
    rows: list[int] = []
    at: list[int] = []
    widths: list[int] = []
    found: list[tuple[int, int, bool]] = []
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
    values = spans.fetch(batch.device, rows, at, widths)
    return [
        OffsetBounds(node, first, last, bound, is_runs)
        for (node, bound, is_runs), first, last in zip(found, values[::2], values[1::2], strict=True)
    ]
