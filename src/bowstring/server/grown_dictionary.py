"""The values of a dictionary that grows with a data set: they lie once, with room behind them for what comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.errors import OutOfBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.memory import Buffer

_OFFSETS = {Kind.OFFSETS32: "<i4", Kind.OFFSETS64: "<i8"}


class GrownValues(NamedTuple):
    """Where the values lie, and how many bytes of each buffer were written, which are never written again."""

    buffers: Sequence[Buffer]
    used: Sequence[int]

    def arrays(self) -> list[Any]:
        """Return what was written."""
        return [buffer.array()[:used] for buffer, used in zip(self.buffers, self.used, strict=True)]


def grown(
    values: Batch, before: Batch, known: GrownValues | None, allocate: Callable[[int], Buffer]
) -> tuple[Batch, GrownValues] | None:
    """Return values in shared memory that they share with those before, which they begin with.

    ``None`` where they begin otherwise, there is no room, or they are no plain numbers or texts of the host.
    """
    arrays = _arrays(values)
    if arrays is None:
        return None
    if known is None or not (_fit(arrays, known) and _begin_alike(arrays, known.arrays())):
        old = _arrays(before)
        if old is None or values.num_rows <= before.num_rows or not _begin_alike(arrays, old):
            return None
        try:
            buffers = [allocate(2 * len(array)) for array in arrays]
        except OutOfBudget:
            return None
        for buffer in buffers:
            buffer.freeze()
        known = GrownValues(buffers, [0] * len(arrays))
    for buffer, used, array in zip(*known, arrays, strict=True):
        if used < len(array):
            new = buffer.region.array(buffer.offset + used, len(array) - used, writable=True)
            new[:] = array[used:]
    parts = [buffer.slice(0, len(array)) for buffer, array in zip(known.buffers, arrays, strict=True)]
    made = make_batch(
        Batch, values.layout, values.num_rows, batch_parts(values).nodes, [None, *parts], device=values.device
    )
    made.validated = values.validated
    return made, known._replace(used=[max(pair) for pair in zip(known.used, map(len, arrays), strict=True)])


def _arrays(values: Batch) -> list[Any] | None:
    """Return the bytes of compact values without nulls, of one node, as arrays; ``None`` for any others."""
    layout, _, spans, _ = batch_parts(values)
    node, rows = layout.nodes[0], values.num_rows
    if len(layout.nodes) > 1 or values.dictionaries or not values.device.is_host or not rows:
        return None
    kinds, has = node.buffer_kinds, spans.table[:, 2].tolist()
    if kinds == (Kind.VALIDITY, Kind.DATA) and not node.bits % 8:
        wanted = [rows * node.width]
    elif len(kinds) == 3 and kinds[1] in _OFFSETS and has[1]:
        offsets = spans.array(1, _OFFSETS[kinds[1]])[: rows + 1]
        if offsets[0]:
            return None
        wanted = [(rows + 1) * offsets.itemsize, int(offsets[-1])]
    else:
        return None
    if has[0] or any(size > there for size, there in zip(wanted, has[1:], strict=True)):
        return None
    return [spans.array(index)[:size] for index, size in enumerate(wanted, 1)]


def _fit(arrays: Sequence[Any], known: GrownValues) -> bool:
    return all(len(array) <= buffer.nbytes for array, buffer in zip(arrays, known.buffers, strict=True))


def _begin_alike(arrays: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether one is the beginning of the other, in each buffer, byte for byte."""
    pairs = ((one, other, min(len(one), len(other))) for one, other in zip(arrays, others, strict=True))
    return all(np.array_equal(one[:size], other[:size]) for one, other, size in pairs)
