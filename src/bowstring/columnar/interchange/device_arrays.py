"""A batch of arrays that lie on a device: nothing is copied but Booleans, which Arrow has as bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.columnar.column_errors import ColumnNamed, name_of_column, one_length
from bowstring.columnar.layout import Layout
from bowstring.columnar.spans import buffer_of
from bowstring.errors import Unsupported, UsageError
from bowstring.kernels import bitmap
from bowstring.memory import Buffer, Device
from bowstring.memory.arrays import device_array

__all__ = ["batch_of_device_arrays"]


def batch_of_device_arrays(source: Mapping[str, Any]) -> Batch | None:
    """Return arrays of one device as a batch there; ``None`` where all are the host's.

    Parameters
    ----------
    source
        Names and arrays of one dimension and of one length, of a type that NumPy and Arrow share.

    Raises
    ------
    UsageError
        They are of several devices, or of the host and of a device; of more dimensions, or of different lengths.
    Unsupported
        Arrow has no such type.
    """
    found = {}
    for name, values in source.items():
        with ColumnNamed(name):
            found[name] = _found(values)
    present = [each for each in found.values() if each is not None]
    if not present:
        return None
    places = {each[0].name for each in present} | {"cpu" for each in found.values() if each is None}
    if len(places) > 1:
        raise UsageError(
            "the columns are in several places", expected="all on one device", found=", ".join(sorted(places))
        )
    device = present[0][0]
    rows = _rows({name: array for name, (_, array) in zip(found, present, strict=True)})
    fields = [
        pa.field(name, _arrow_type(name, array)) for name, (_, array) in zip(found, present, strict=True)
    ]
    with device.use():
        buffers: list[Buffer | None] = []
        for _, array in present:
            buffers += [None, _buffer(array, device)]
        layout = Layout.of(pa.schema(fields))
        nodes = np.array([(rows, 0)] * len(fields), np.int64)
        return Batch.from_parts(layout, rows, nodes, buffers, device=device)


def _rows(arrays: Mapping[str, Any]) -> int:
    for name, array in arrays.items():
        with ColumnNamed(name_of_column(name)):
            if array.ndim != 1:
                raise UsageError("a column has one dimension", expected="shape (rows,)", found=array.shape)
    one_length({name: len(array) for name, array in arrays.items()})
    return len(next(iter(arrays.values())))


def _found(values: Any) -> tuple[Device, Any] | None:
    if isinstance(values, Column) and not values.device.is_host:
        raise UsageError("a column of a batch is no array", hint="Batch.select() chooses columns of a batch.")
    return device_array(values)


def _arrow_type(name: str, array: Any) -> pa.DataType:
    try:
        return pa.from_numpy_dtype(np.dtype(array.dtype))
    except pa.ArrowException as error:
        raise Unsupported(
            "Arrow has no such type", found=str(array.dtype), where=f"column {name!r}"
        ) from error


def _buffer(array: Any, device: Device) -> Buffer | None:
    if not array.size:
        return None
    array = device.xp.ascontiguousarray(array)
    return buffer_of(bitmap.packed(array) if array.dtype == np.bool_ else array, device)
