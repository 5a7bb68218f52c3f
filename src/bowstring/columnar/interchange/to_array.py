"""Columns as arrays: of numbers where they lie, of all values, of NumPy as pyarrow makes them, and for others."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.column import ColumnData
from bowstring.columnar.interchange.export import to_pyarrow_batch
from bowstring.columnar.materialize import on_device
from bowstring.columnar.nodes import storage_type
from bowstring.columnar.parts import AnyBatch, BatchData, batch_parts
from bowstring.errors import NotExportable, NotOnDevice, Unsupported, warn_caller
from bowstring.kernels import bitmap
from bowstring.memory.dlpack import device_pair, dlpack_capsule

_RAW: Final = "`raw_values` gives what its memory holds, as integers or bytes."
_CUDA: Final = 2  # ARROW_DEVICE_CUDA


class ColumnArrays(ColumnData[AnyBatch]):
    """A column as arrays of NumPy, of CuPy, and of whatever takes DLPack."""

    __slots__ = ()

    @property
    def values(self) -> npt.NDArray[Any]:
        """The values as an array of ``device.xp``; a column with nulls has none.

        Returns
        -------
        array
            On the host what ``to_numpy(zero_copy_only=False)`` gives: numbers, timestamps and durations are a
            view of the batch, of their own dtype (``datetime64`` and ``timedelta64`` with the unit), read-only
            unless the batch came by ``connect(writable=True)``;
            anything else is copied: Booleans, dates (``datetime64``), the decoded values of a
            dictionary-encoded column, and Python objects for text, decimals, times and nested values.
            On a device numbers are a read-only view, and Booleans are copied.

        Raises
        ------
        NotExportable
            The column has nulls, or values that Python does not have (see :meth:`to_numpy`).
        Unsupported
            On a device: arrays of the device have no such values. On the host: unions, and intervals of months
            or days.

        Examples
        --------
        >>> from bowstring.columnar.batch import Batch
        >>> Batch.from_arrow({"t": pa.array([0, 90], pa.timestamp("s"))})["t"].values
        array(['1970-01-01T00:00:00', '1970-01-01T00:01:30'], dtype='datetime64[s]')
        """
        _refuse_nulls(self)
        type_ = self.type
        values: npt.NDArray[Any] | None = self.raw_values if _is_boolean(type_) else _view_of_values(self)
        if values is not None:
            return values
        if not self.device.is_host:
            raise Unsupported(
                f"arrays of a device hold numbers and Booleans, and not {type_}",
                where=self.name,
                hint=f"{_RAW} to_numpy(zero_copy_only=False) copies it to the host.",
            )
        return self.to_numpy(zero_copy_only=False)

    def to_numpy(self, zero_copy_only: bool = True, writable: bool = False) -> np.ndarray[Any, Any]:
        """Return a NumPy array, as ``pyarrow.Array.to_numpy`` does.

        Parameters
        ----------
        zero_copy_only
            Raise where a copy is needed. With ``False`` nulls become NaN, NaT or ``None``, Booleans are unpacked,
            dictionary-encoded columns are decoded, text, decimals, times and nested values are Python objects,
            and columns of a device are copied to the host.
        writable
            Return an array that can be written: a copy, also where the batch itself can be written.

        Raises
        ------
        NotOnDevice
            The column is not on the host, and `zero_copy_only`.
        NotExportable
            A copy is needed (nulls, Booleans, dates, text), and `zero_copy_only`; or Python has no such value
            (times in nanoseconds that are not whole microseconds, text that is not UTF-8).
        Unsupported
            pyarrow has no array for the type: unions, and intervals of months or days.

        Examples
        --------
        >>> from bowstring.columnar.batch import Batch
        >>> Batch.from_arrow({"a": pa.array([10, None, 30])})["a"].to_numpy(zero_copy_only=False)
        array([10., nan, 30.])
        """
        if zero_copy_only:
            self._check_on_host()
        if len(self) and self.device.is_host and not writable and not self.null_count:
            values = _view_of_values(self)
            if values is not None:
                return np.asarray(values)
        batch = self.as_batch()
        try:
            # With its extension type, which can have a to_numpy of its own.
            array = to_pyarrow_batch(on_device(batch, "cpu")).column(0)
            result: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=zero_copy_only, writable=writable)
        except (KeyError, pa.ArrowNotImplementedError) as error:
            raise Unsupported(
                f"NumPy arrays of {self.type}: pyarrow makes none", where=self.name, hint=_RAW
            ) from error
        except ValueError as error:
            raise NotExportable(
                "the column cannot be a NumPy array" + " without a copy" * zero_copy_only,
                found=str(error),
                where=self.name,
                hint="Use to_numpy(zero_copy_only=False)." if zero_copy_only else _RAW,
            ) from error
        return result

    def _check_on_host(self) -> None:
        if not self.device.is_host:
            raise NotOnDevice(
                "the column is not on the host",
                found=self.device.name,
                hint="Use to_numpy(zero_copy_only=False), which copies, or `values`, an array of the device.",
            )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        self._check_on_host()
        return np.array(self.to_numpy(zero_copy_only=copy is False), dtype=dtype, copy=copy)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return plain numbers without nulls as a DLPack capsule: what ``from_dlpack(column)`` calls.

        The consumer may write them only if the batch came by ``connect(writable=True)``: on a GPU, CuPy and torch
        take no notice, and one warning in a process says so. The batch cannot be released while the consumer has
        it. Where it was mapped, name the stream on which the consumer works: ``connect(cuda_stream=…)``.

        Raises
        ------
        NotExportable
            The column is of another type, or has nulls; or the consumer could not know that it is read-only.

        Examples
        --------
        >>> from bowstring.columnar.batch import Batch
        >>> np.from_dlpack(Batch.from_arrow({"a": np.arange(3)})["a"])
        array([0, 1, 2])
        """
        if not copy:
            warn_of_writes(self.batch)
        return dlpack_capsule(
            array_of_numbers(self),
            self.device,
            stream=stream,
            max_version=max_version,
            dl_device=dl_device,
            copy=copy,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_pair(self.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Plain numbers without nulls on a GPU, version 3, read-only; no such attribute anywhere else.

        The batch cannot be released while this column lives: consumers hold on to it.

        Raises
        ------
        NotExportable
            The column is of another type, or has nulls.
        """
        if self.device.arrow_device_type != _CUDA:
            raise AttributeError(f"the column is on {self.device.name}, and not on a GPU")
        # What the caller gets is a dict, which keeps nothing alive.
        warn_of_writes(self.batch)
        self._lent = array = array_of_numbers(self)
        self.batch.lease.read_on(self.device.handed_out())
        interface = dict(array.__cuda_array_interface__)
        interface["data"] = interface["data"][0], True  # read-only
        return interface


def array_of_numbers(column: ColumnData[Any]) -> Any:
    """Return the column as an array over its own memory, of shape (rows,) or (rows, size, …) for fixed-size lists.

    It is read-only unless that memory is private.
    """
    lists = pa.types.is_fixed_size_list(storage_type(column.type))
    if not lists and not _is_number(column.type):
        hint = "`raw_values` gives the numbers behind dates and times; select() leaves columns out."
        if _is_boolean(column.type):
            hint = "Arrow packs Booleans into bits; `values` unpacks them."
        elif pa.types.is_dictionary(column.type):
            hint = "`raw_values` are its indices, `dictionary` what they point to."
        what = "the column does not hold plain numbers"
        raise NotExportable(what, found=str(column.type), where=column.name, hint=hint)
    _refuse_nulls(column)
    if not lists:
        return column.raw_values
    [child] = column.children
    size = storage_type(column.type).list_size
    inner = array_of_numbers(child)
    return inner[: len(column) * size].reshape(len(column), size, *inner.shape[1:])


def array_without_nulls(column: ColumnData[Any], na_value: Any = None) -> Any:
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


def _view_of_values(column: ColumnData[Any]) -> Any | None:
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


def _held(column: ColumnData[Any], dtype: np.dtype[Any], value: Any) -> Any:
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


def _refuse_nulls(column: ColumnData[Any]) -> None:
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


def warn_of_writes(batch: BatchData) -> None:
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
