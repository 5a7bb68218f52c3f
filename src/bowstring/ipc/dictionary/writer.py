"""Whether dictionaries changed between two batches: only what did must be written."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bowstring.columnar.parts import batch_parts, dictionaries_of

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch


def has_grown(before: Batch, after: Batch) -> bool:
    """Whether a dictionary has only new values behind the old ones: then a delta will do.

    Not where values use dictionaries themselves: Arrow C++ reads no deltas of those.
    """
    count = before.num_rows
    if after.dictionaries or not 0 < count < after.num_rows:
        return False
    return same_values(before, after.slice(0, count))


def same_values(before: Batch, after: Batch) -> bool:
    """Whether two dictionaries hold the same values, looking at them only where they lie in different memory."""
    if before is after:
        return True
    if before.num_rows != after.num_rows:
        return False
    if np.array_equal(batch_parts(before).nodes, batch_parts(after).nodes) and (
        _places(before) == _places(after) or _same_bytes(before, after)
    ):
        return True
    # Floating-point numbers lie deeper, where `_bits` does not see them: then only the bytes count.
    within = (dictionary.values.layout.nodes for _, dictionary in dictionaries_of(before))
    nodes = itertools.chain(before.layout.nodes[1:], *within)
    if any(pa.types.is_floating(node.type) for node in nodes):
        return False
    one, other = before.to_arrow(), after.to_arrow()
    # pyarrow follows what it compares, wherever that leads.
    return _is_valid(one) and _is_valid(other) and bool(_bits(one).equals(_bits(other)))


def _bits(values: pa.RecordBatch) -> pa.Array:
    """Return the one column, floating-point numbers as integers: pyarrow takes 0.0 and -0.0 for the same."""
    column = values.column(0)
    return column.view(f"int{column.type.bit_width}") if pa.types.is_floating(column.type) else column


def _is_valid(values: pa.RecordBatch) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowException:
        return False
    return True


def _places(batch: Batch) -> list[object]:
    return [
        None if buffer is None else (buffer.address, buffer.nbytes)
        for each in (batch, *(dictionary.values for _, dictionary in dictionaries_of(batch)))
        for buffer in each.buffers
    ]


def _same_bytes(before: Batch, after: Batch) -> bool:
    """Whether all buffers hold the same bytes: so a NaN is like itself, and most comparisons end here."""
    if not (before.device.is_host and after.device.is_host) or before.dictionaries or after.dictionaries:
        return False
    one, other = batch_parts(before).spans, batch_parts(after).spans
    if len(one) != len(other):
        return False
    pairs = ((one.array(index), other.array(index)) for index in range(len(one)))
    return all(np.array_equal(first, second) for first, second in pairs)
