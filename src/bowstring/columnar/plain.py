"""Plain numbers: the columns that other libraries know as arrays, with every slot a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.nodes import storage_type
from bowstring.errors import NotExportable
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from bowstring.columnar.column import Column

__all__ = ["array_of_numbers", "array_without_nulls"]


def array_of_numbers(column: Column) -> Any:
    """Return the column as a read-only array over its own memory, of its device's namespace.

    Returns
    -------
    array
        Of shape (rows,); for lists of a fixed size (rows, size), and so on for lists of lists.

    Raises
    ------
    NotExportable
        It is no integer or floating-point number, or has nulls; the message names the column.
    """
    lists = pa.types.is_fixed_size_list(storage_type(column.type))
    if not lists and not _is_number(column.type):
        raise NotExportable(
            "the column does not hold plain numbers",
            found=str(column.type),
            where=column.name,
            hint=_hint(column),
        )
    _refuse_nulls(column)
    if not lists:
        return column.values
    [child] = column.children
    size = storage_type(column.type).list_size
    inner = array_of_numbers(child)
    return inner[: len(column) * size].reshape(len(column), size, *inner.shape[1:])


def array_without_nulls(column: Column, na_value: Any = None) -> Any:
    """Return the column as an array; Booleans are unpacked, and nulls, if `na_value` is given, become that.

    Both copy; all else is :func:`array_of_numbers`.

    Raises
    ------
    NotExportable
        It holds neither numbers nor Booleans, or has nulls, or its type does not hold `na_value`.
    """
    if na_value is not None and column.null_count and (_is_number(column.type) or _is_boolean(column.type)):
        values = column.values
        valid = bitmap.expanded(column.validity, 0, len(column))
        filler = _held(column, values.dtype, na_value)
        with column.device.use():
            return column.device.xp.where(valid, values, filler)
    if _is_boolean(column.type):
        _refuse_nulls(column)
        return column.values
    return array_of_numbers(column)


def _held(column: Column, dtype: np.dtype[Any], value: Any) -> Any:
    """Return a value as a number of a type that holds it: for integers exactly, for others as near as they come."""
    try:
        given = np.asarray(value)
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                held = given.astype(dtype)
            fits = np.isinf(held) == np.isinf(given.astype(np.float64))
        else:
            held = np.array(value, dtype)
            fits = held == value
    except (OverflowError, ValueError, TypeError):
        fits = False
    if np.ndim(fits) or not fits:
        raise NotExportable(
            "the column's type does not hold na_value",
            expected=str(dtype),
            found=repr(value),
            where=column.name,
        )
    return held[()]


def _refuse_nulls(column: Column) -> None:
    if column.null_count:
        raise NotExportable(
            "the column has nulls, which an array of numbers cannot say",
            found=f"{column.null_count} of {len(column)}",
            where=column.name,
            hint="Batch.to_cupy(na_value=...) fills them; `values` and `validity` give both.",
        )


def _is_number(type_: pa.DataType) -> bool:
    type_ = storage_type(type_)
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _is_boolean(type_: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(storage_type(type_)))


def _hint(column: Column) -> str:
    if _is_boolean(column.type):
        return "Arrow packs Booleans into bits; `values` unpacks them."
    if pa.types.is_dictionary(column.type):
        return "`values` are its indices, `dictionary` what they point to."
    return "`values` gives the numbers behind dates and times; select() leaves columns out."
