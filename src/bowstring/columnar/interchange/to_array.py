"""Columns as arrays: of numbers where they lie, of all values, and of NumPy as pyarrow makes them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.nodes import storage_type
from bowstring.columnar.parts import batch_parts
from bowstring.errors import NotExportable, Unsupported, warn_caller
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.column import Column

_RAW: Final = "`raw_values` gives what its memory holds, as integers or bytes."


def array_of_numbers(column: Column) -> Any:
    """Return the column as an array over its own memory, of shape (rows,) or (rows, size, …) for fixed-size lists.

    It is read-only unless that memory is private.
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
        return column.raw_values
    [child] = column.children
    size = storage_type(column.type).list_size
    inner = array_of_numbers(child)
    return inner[: len(column) * size].reshape(len(column), size, *inner.shape[1:])


def array_without_nulls(column: Column, na_value: Any = None) -> Any:
    """Return the column as an array; Booleans are unpacked, and nulls, if `na_value` is given, become that.

    Both copy; all else is :func:`array_of_numbers`.
    """
    if na_value is not None and column.null_count and (_is_number(column.type) or _is_boolean(column.type)):
        values = column.raw_values
        valid = bitmap.expanded(column.validity, 0, len(column))
        filler = _held(column, values.dtype, na_value)
        with column.device.use():
            return column.device.xp.where(valid, values, filler)
    if _is_boolean(column.type):
        _refuse_nulls(column)
        return column.raw_values
    return array_of_numbers(column)


def array_of_values(column: Column) -> Any:
    """Return a column without nulls as an array of its device's namespace, each value as what it is."""
    _refuse_nulls(column)
    type_ = column.type
    values = column.raw_values if _is_boolean(type_) else _view_of_values(column)
    if values is not None:
        return values
    if not column.device.is_host:
        raise Unsupported(
            f"arrays of a device hold numbers and Booleans, and not {type_}",
            where=column.name,
            hint=f"{_RAW} to_numpy(zero_copy_only=False) copies it to the host.",
        )
    return numpy_array(column, zero_copy_only=False)


def _view_of_values(column: Column) -> Any | None:
    """Return the memory of a column as its values, ``None`` where a copy is needed."""
    type_, storage = column.type, storage_type(column.type)
    if isinstance(type_, pa.Bool8Type):
        return column.raw_values.view(np.bool_)
    if isinstance(type_, pa.BaseExtensionType):
        return column.raw_values if _is_number(type_) and not column.device.is_host else None
    if _is_number(type_):
        return column.raw_values
    if column.device.is_host and pa.types.is_timestamp(storage):
        return column.raw_values.view(f"<M8[{storage.unit}]")
    if column.device.is_host and pa.types.is_duration(storage):
        return column.raw_values.view(f"<m8[{storage.unit}]")
    return None


def numpy_array(column: Column, *, zero_copy_only: bool, writable: bool = False) -> np.ndarray[Any, Any]:
    """Return a column as the array that ``pyarrow.Array.to_numpy`` makes; one of a device is copied to the host."""
    if len(column) and column.device.is_host and not writable and not column.null_count:
        values = _view_of_values(column)
        if values is not None:
            return np.asarray(values)
    batch = column.as_batch().to_arrow()
    try:
        array = batch.column(0)  # with its extension type, which can have a to_numpy of its own
        result: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=zero_copy_only, writable=writable)
    except (KeyError, pa.ArrowNotImplementedError) as error:
        raise Unsupported(
            f"NumPy arrays of {column.type}: pyarrow makes none", where=column.name, hint=_RAW
        ) from error
    except ValueError as error:
        raise NotExportable(
            "the column cannot be a NumPy array" + " without a copy" * zero_copy_only,
            found=str(error),
            where=column.name,
            hint="Use to_numpy(zero_copy_only=False)." if zero_copy_only else _RAW,
        ) from error
    return result


def _held(column: Column, dtype: np.dtype[Any], value: Any) -> Any:
    """Return a value as a number of a type that holds it: for integers exactly, for others as near as they come."""
    try:
        given = np.asarray(value)
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                stored = given.astype(dtype)
            fits = np.isinf(stored) == np.isinf(given.astype(np.float64))
        else:
            stored = np.array(value, dtype)
            fits = stored == value
    except (OverflowError, ValueError, TypeError):
        fits = False
    if np.ndim(fits) or not fits:
        raise NotExportable(
            "the column's type does not hold na_value",
            expected=str(dtype),
            found=repr(value),
            where=column.name,
        )
    return stored[()]


def _refuse_nulls(column: Column) -> None:
    if column.null_count:
        raise NotExportable(
            "the column has nulls, which an array of its values cannot show",
            found=f"{column.null_count} of {len(column)}",
            where=column.name,
            hint="to_numpy(zero_copy_only=False) puts NaN, NaT or None in their place; on a device, "
            "Batch.to_cupy(na_value=...) puts a number there. "
            "`raw_values` and `validity` are the column's memory as it is.",
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
        return "`raw_values` are its indices, `dictionary` what they point to."
    return "`raw_values` gives the numbers behind dates and times; select() leaves columns out."


def warn_of_writes(batch: Batch) -> None:
    """Warn, once in a process, of arrays over GPU memory of another process, which nothing marks as read-only."""
    mapped = any(
        region.slab is not None and not region.slab.writable for region in batch_parts(batch).spans.regions
    )
    if mapped and not batch.device.is_host:
        warn_once()


@functools.cache
def warn_once() -> None:
    """Warn of what :func:`warn_of_writes` names, when it is called first."""
    text = (
        "an array lies over GPU memory of the producer's process, and must not be written: CuPy and torch cannot "
        "mark it read-only. Where the driver maps it read-only, a kernel that writes it ends this process's work "
        "on the GPU; where it does not, all readers see what was written. connect(mode='copy') gives memory of "
        "its own."
    )
    warn_caller([text])
