"""The parts that columns of results are put together from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.dictionary import Dictionary
from bowstring.columnar.layout import Layout
from bowstring.columnar.spans import buffer_of
from bowstring.kernels import bitmap
from bowstring.variant.status import Status

if TYPE_CHECKING:
    from bowstring.memory import Buffer, Device
    from bowstring.variant.column import VariantColumn
    from bowstring.variant.walk import Places, Read

__all__ = ["Gathered", "batch_of", "buffer_or_none", "status_column", "validity_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class Gathered:
    """One column, in the parts that a batch is put together from.

    `dictionaries` has, in pre-order, the id of one of the source's, or the values of a new one.
    """

    field: pa.Field
    nodes: list[tuple[int, int]]
    buffers: list[Buffer | None]
    variadic_counts: tuple[int, ...] = ()
    dictionaries: tuple[int | Batch, ...] = ()


def batch_of(columns: Sequence[Gathered], opened: VariantColumn) -> Batch:
    """Put columns together, beside the column that they were gathered from."""
    source = opened.column.batch.dictionaries
    known: dict[int, Dictionary] = {}
    made: dict[int, Dictionary] = {}
    ids = []
    for each in (each for column in columns for each in column.dictionaries):
        if isinstance(each, int):
            known[each] = source[each]
            ids.append(each)
        else:
            new = max(source, default=-1) + 1 + len(made)
            ids.append(made.setdefault(id(each), Dictionary(new, each)).id)
    layout = Layout.of(pa.schema([column.field for column in columns]), ids)
    return Batch.from_parts(
        layout,
        opened.rows,
        np.array([node for column in columns for node in column.nodes], np.int64).reshape(-1, 2),
        [buffer for column in columns for buffer in column.buffers],
        [count for column in columns for count in column.variadic_counts],
        {**known, **{each.id: each for each in made.values()}},
        device=opened.column.device,
    )


def status_column(name: str, places: Places | Read, device: Device) -> Gathered:
    """Return the statuses as a column of uint8."""
    field = pa.field(name, pa.uint8(), nullable=False)
    return Gathered(field, [(len(places.statuses), 0)], [None, buffer_or_none(places.statuses, device)])


def validity_of(places: Places | Read, device: Device) -> Buffer | None:
    """Return the bitmap of the rows with a value."""
    return buffer_or_none(bitmap.packed(places.statuses == np.uint8(Status.OK)), device)


def buffer_or_none(array: Any, device: Device) -> Buffer | None:
    """Return an array as a buffer, ``None`` where it is empty."""
    return buffer_of(array.view(np.uint8), device) if len(array) else None
