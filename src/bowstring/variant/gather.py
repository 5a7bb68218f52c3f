"""Gathering: the values that paths lead to, as columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import storage_type
from bowstring.columnar.spans import buffer_of
from bowstring.errors import LimitExceeded
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant_bytes import VALUE, copy_bytes, copy_fixed, measure_bytes
from bowstring.variant.cast import Bytes, FixedBytes, Numbers, Target
from bowstring.variant.column import mark
from bowstring.variant.locate import ROWS_PER_CALL
from bowstring.variant.status import Status

if TYPE_CHECKING:
    from bowstring.memory import Buffer, Device
    from bowstring.variant.column import VariantColumn
    from bowstring.variant.locate import Places

__all__ = ["Gathered", "batch_of", "gather", "status_column"]

_MOST_32: Final = (1 << 31) - 1
_ANY_WIDTH: Final = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Gathered:
    """One column, in the parts that a batch is put together from."""

    field: pa.Field
    nodes: list[tuple[int, int]]
    buffers: list[Buffer | None]
    variadic_counts: tuple[int, ...] = ()
    dictionary_ids: tuple[int, ...] = ()


def batch_of(columns: Sequence[Gathered], opened: VariantColumn) -> Batch:
    """Put columns together, beside the column that they were gathered from."""
    ids = [each for column in columns for each in column.dictionary_ids]
    layout = Layout.of(pa.schema([column.field for column in columns]), ids)
    source = opened.column.batch
    return Batch.from_parts(
        layout,
        opened.rows,
        np.array([node for column in columns for node in column.nodes], np.int64).reshape(-1, 2),
        [buffer for column in columns for buffer in column.buffers],
        [count for column in columns for count in column.variadic_counts],
        {id_: source.dictionaries[id_] for id_ in ids},
        device=opened.column.device,
    )


def status_column(name: str, places: Places, device: Device) -> Gathered:
    """Return the statuses as a column of uint8."""
    field = pa.field(name, pa.uint8(), nullable=False)
    return Gathered(field, [(len(places.statuses), 0)], [None, buffer_or_none(places.statuses, device)])


def gather(opened: VariantColumn, places: Places, name: str, type_: pa.DataType, target: Target) -> Gathered:
    """Cast the values at some places, and write into the statuses there what became of them.

    Raises
    ------
    LimitExceeded
        Text or binary is too long for 32-bit offsets.
    """
    device, rows = opened.column.device, opened.rows
    data = opened.value.data
    field = pa.field(name, type_)
    if isinstance(target, Numbers):
        arrays = [_numbers(data, places, target, device)]
    elif isinstance(target, FixedBytes):
        arrays = [_fixed_bytes(data, places, target, device)]
    elif isinstance(target, Bytes):
        arrays = _bytes(data, places, target.family, device, name, large=target.large)
    else:
        return _values(opened, places, name)
    buffers = [validity_of(places, device), *(buffer_or_none(each, device) for each in arrays)]
    return Gathered(field, [(rows, -1)], buffers)


def validity_of(places: Places, device: Device) -> Buffer | None:
    """Return the bitmap of the rows with a value."""
    return buffer_or_none(bitmap.packed(places.statuses == np.uint8(Status.OK)), device)


def buffer_or_none(array: Any, device: Device) -> Buffer | None:
    """Return an array as a buffer, ``None`` where it is empty."""
    return buffer_of(array.view(np.uint8), device) if len(array) else None


def _numbers(data: Any, places: Places, target: Numbers, device: Device) -> Any:
    rows = len(places.statuses)
    out = device.xp.empty(rows * target.repeat, target.dtype)
    if target.blocks:
        block = ROWS_PER_CALL if device.is_host else 1
        launch(
            target.kernel,
            -(-rows // block),
            data,
            places.places,
            *target.arguments,
            block,
            places.statuses,
            out,
        )
    else:
        launch(target.kernel, rows, data, places.places, *target.arguments, places.statuses, out)
    return bitmap.packed(out != np.int8(0)) if target.bits else out


def _fixed_bytes(data: Any, places: Places, target: FixedBytes, device: Device) -> Any:
    rows, width = len(places.statuses), target.width
    sizes = device.xp.empty(rows, np.int64)
    launch(measure_bytes, rows, data, places.places, target.family, width, places.statuses, sizes)
    out = device.xp.zeros(rows * width, np.uint8)
    launch(copy_fixed, rows, data, places.places, width, places.statuses, out)
    return out


def _bytes(data: Any, places: Places, family: int, device: Device, name: str, *, large: bool) -> list[Any]:
    """Return offsets and bytes: sizes, their sums, and a copy."""
    rows, xp = len(places.statuses), device.xp
    sizes = xp.empty(rows, np.int64)
    launch(measure_bytes, rows, data, places.places, family, _ANY_WIDTH, places.statuses, sizes)
    offsets = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(sizes)])
    total = int(device.to_host(offsets[rows:])[0])
    if total > _MOST_32 and not large:
        raise LimitExceeded(
            "the values are too long for 32-bit offsets",
            expected=f"at most {_MOST_32} bytes",
            found=total,
            where=name,
            hint="Ask for large_string or large_binary, or take fewer rows.",
        )
    out = xp.empty(total, np.uint8)
    launch(copy_bytes, rows, data, places.places, family, places.statuses, offsets, out)
    return [offsets if large else offsets.astype(np.int32), out]


def _values(opened: VariantColumn, places: Places, name: str) -> Gathered:
    """Return sub-values as a Variant column: their bytes are copied, the metadata are those of the source."""
    column = opened.column
    batch, device = column.batch, column.device
    metadata, value = column.child("metadata"), column.child("value")
    large = storage_type(value.type) == pa.large_binary()
    arrays = _bytes(opened.value.data, places, int(VALUE), device, name, large=large)
    # A Variant null is a value here, of the one byte that was written for it.
    null = np.uint8(Status.VARIANT_NULL)
    places.statuses[places.statuses == null] = np.uint8(Status.OK)
    first, end = metadata._index, metadata._node.end
    bounds = batch.layout.first_buffers(batch.variadic_counts)
    counts = zip(batch.layout.variadic_nodes, batch.variadic_counts, strict=True)
    kept = pa.field(
        "metadata", metadata.type, nullable=metadata.field.nullable, metadata=metadata.field.metadata
    )
    storage = pa.struct([kept, pa.field("value", pa.large_binary() if large else pa.binary())])
    return Gathered(
        mark(pa.field(name, storage)),
        [(opened.rows, -1), *map(tuple, batch.nodes[first:end].tolist()), (opened.rows, 0)],
        [
            validity_of(places, device),
            *batch.buffers[int(bounds[first]) : int(bounds[end])],
            None,
            *(buffer_or_none(each, device) for each in arrays),
        ],
        tuple(count for node, count in counts if first <= node < end),
        tuple(metadata._dictionary_ids(end)),
    )
