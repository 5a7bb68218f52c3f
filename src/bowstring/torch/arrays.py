"""Columns as arrays that become tensors: views of the batch where numbers lie as tensors want them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.errors import InvalidData, NotExportable, Unsupported
from bowstring.torch.batching import Arrays

_EXACT_POWERS: Final = 22  # of ten, as float64
_NARROW: Final = 18  # digits that fit into 64 bits
_NUMBERS: Final = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_temporal,
)  # fmt: skip
_NO_NUMBERS: Final = (pa.types.is_interval,)
_DECIMALS: Final = ("float64", "unscaled")


def check_type(name: str, type_: pa.DataType, decimals: str | None) -> None:
    """Raise `Unsupported` for a column that makes no tensor, as decimals do unless `decimals` says how."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        check_type(f"{name}.element", type_.value_type, decimals)
        return
    if pa.types.is_decimal(type_):
        if decimals in _DECIMALS:
            return
        hint = 'Say decimals="float64", or decimals="unscaled" for integers of the last digit.'
    elif any(is_one(type_) for is_one in _NUMBERS) and not any(is_one(type_) for is_one in _NO_NUMBERS):
        return
    elif pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_dictionary(type_):
        hint = "Say decode={name: function}, or let Spark make numbers of it, as StringIndexer or hash() do."
    else:
        hint = "Say decode={name: function}, leave it out of columns=…, or take its fields as columns."
    raise Unsupported(
        "a column of this type makes no tensor", found=str(type_), where=f"column {name!r}", hint=hint
    )


def arrays_of(
    batch: Batch, columns: Sequence[str], decimals: str | None, objects: Collection[str] = ()
) -> Arrays:
    """Return some columns of a batch as arrays of numbers, equally long; those of `objects` as Python's values.

    Times and dates are integers of their unit. Lists must be equally long in a batch and have two dimensions.
    """
    return {
        name: _objects(batch[name]) if name in objects else _array(name, batch[name], decimals)
        for name in columns
    }


def _objects(column: Column) -> Any:
    objects = np.empty(len(column), object)
    for row, value in enumerate(column.to_arrow().to_pylist()):
        objects[row] = value
    return objects


def _array(name: str, column: Column, decimals: str | None) -> Any:
    if column.null_count:
        raise NotExportable(
            "a column with nulls makes no tensor",
            found=f"{column.null_count} nulls in {len(column)} rows",
            where=f"column {name!r}",
            hint="Let Spark fill them (df.fillna, coalesce) or leave those rows out.",
        )
    type_ = column.type
    if pa.types.is_fixed_size_list(type_):
        inner = _array(f"{name}.element", column.children[0], decimals)
        return inner.reshape(len(column), type_.list_size, *inner.shape[1:])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _lists(name, column, decimals)
    if pa.types.is_decimal(type_):
        return _decimals(name, column, decimals)
    return column.raw_values


def _lists(name: str, column: Column, decimals: str | None) -> Any:
    offsets = column.device.to_host(column.offsets)
    lengths = np.diff(offsets)
    width = int(lengths[0]) if len(column) else 0
    if (lengths != width).any():
        raise InvalidData(
            "lists that differ in length make no tensor",
            expected=f"{width} elements in each row",
            found=f"{int(lengths.min())} to {int(lengths.max())}",
            where=f"column {name!r}",
        )
    inner = _array(f"{name}.element", column.children[0], decimals)
    first = int(offsets[0]) if len(column) else 0
    return inner[first : first + width * len(column)].reshape(len(column), width, *inner.shape[1:])


def _decimals(name: str, column: Column, decimals: str | None) -> Any:
    raw = column.raw_values
    words = raw.reshape(len(column), -1) if raw.ndim == 1 else raw.view("<i8")
    low = words[:, 0]
    fits = column.type.precision <= _NARROW or bool((words[:, 1:] == (low >> 63)[:, None]).all())
    if decimals == "float64":
        # Rounded once where the integer has at most 53 bits; Arrow's cast rounds more often.
        exact = fits and 0 <= column.type.scale <= _EXACT_POWERS
        if exact:
            return low / 10.0**column.type.scale
        return np.array(column.to_arrow().cast(pa.float64()).to_numpy(zero_copy_only=False))
    if raw.ndim == 1:
        return raw
    if not fits:
        raise InvalidData(
            "an unscaled decimal has more than 64 bits",
            expected=f"decimals of at most {_NARROW} digits",
            found=str(column.type),
            where=f"column {name!r}",
            hint='Say decimals="float64".',
        )
    return np.ascontiguousarray(low)
