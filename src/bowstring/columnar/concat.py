"""Concatenation: the rows of several batches one after the other, by one copy where they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.columnar.compact import compacted
from bowstring.columnar.nodes import Kind
from bowstring.columnar.spans import buffer_of
from bowstring.errors import LimitExceeded
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.memory import Buffer

__all__ = ["can_concatenate", "concatenate"]

_FLAT = (
    (Kind.VALIDITY, Kind.DATA),
    (Kind.VALIDITY, Kind.OFFSETS32, Kind.BYTES),
    (Kind.VALIDITY, Kind.OFFSETS64, Kind.BYTES),
)

_MOST_32 = (1 << 31) - 1
_MOST_64 = (1 << 63) - 1


def can_concatenate(batch: Batch) -> bool:
    """Whether a batch is one column of numbers, times, text or bytes."""
    nodes = batch.layout.nodes
    return len(nodes) == 1 and nodes[0].dictionary_id is None and nodes[0].buffer_kinds in _FLAT


def concatenate(parts: Sequence[Batch]) -> Batch:
    """Return the rows of some batches in new memory of their device.

    Parameters
    ----------
    parts
        At least one, all of one column that :func:`can_concatenate` takes.

    Raises
    ------
    LimitExceeded
        They are too many bytes for the column's offsets.
    """
    full = [compacted(part) for part in parts if part.num_rows] or [parts[0]]
    first = full[0]
    if len(full) == 1:
        return first
    with first.device.use():
        kinds = first.layout.nodes[0].buffer_kinds
        arrays = [_validity(full)]
        if kinds[1] is Kind.DATA:
            arrays.append(first.device.xp.concatenate([part.spans.array(1) for part in full]))
        else:
            arrays += [_offsets(full, kinds[1]), _bytes(full)]
        nodes = sum(part.nodes for part in full)
        assert not isinstance(nodes, int)
        return type(first).from_parts(
            first.layout,
            int(nodes[0, 0]),
            nodes,
            [_buffer(each, first) for each in arrays],
            device=first.device,
        )


def _validity(parts: list[Batch]) -> Any:
    if not any(part.nodes[0, 1] for part in parts):
        return None
    xp = parts[0].device.xp

    def flags(part: Batch) -> Any:
        if part.nodes[0, 1]:
            return bitmap.expanded(part.spans.array(0), 0, part.num_rows)
        return xp.ones(part.num_rows, np.bool_)

    return bitmap.packed(xp.concatenate([flags(part) for part in parts]))


def _offsets(parts: list[Batch], kind: Kind) -> Any:
    dtype, most = (np.int32, _MOST_32) if kind is Kind.OFFSETS32 else (np.int64, _MOST_64)
    *starts, total = accumulate((_text_bytes(part) for part in parts), initial=0)
    if total > most:
        raise LimitExceeded("text is too long for its offsets", expected=f"at most {most} bytes", found=total)
    # Each part's first offset is the last one of the part before.
    pieces = [
        part.spans.array(1, dtype)[min(index, 1) :] + dtype(start)
        for index, (part, start) in enumerate(zip(parts, starts, strict=True))
    ]
    return parts[0].device.xp.concatenate(pieces)


def _text_bytes(part: Batch) -> int:
    return int(part.spans.table[2, 2])


def _bytes(parts: list[Batch]) -> Any:
    return parts[0].device.xp.concatenate([part.spans.array(2) for part in parts])


def _buffer(array: Any, model: Batch) -> Buffer | None:
    if array is None or not len(array):
        return None
    return buffer_of(array.view(np.uint8), model.device)
