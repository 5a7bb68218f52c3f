"""Conversions to pandas, polars and Python, which batches, columns and streams share: those of pyarrow.

What polars has no type for is decoded or cast without loss, or is an error.
"""

from __future__ import annotations

import abc
import importlib
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import LimitExceeded, MissingDependency, Unsupported

_MOST_DIGITS: Final = 38
_OFFSET: Final = re.compile(r"[+-]\d\d:?\d\d|Z")
_LISTS: Final = {
    pa.lib.Type_LIST: pa.list_,
    pa.lib.Type_LARGE_LIST: pa.large_list,
    pa.lib.Type_LIST_VIEW: pa.list_,
    pa.lib.Type_LARGE_LIST_VIEW: pa.large_list,
}
_LIST_VIEWS: Final = (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW)
_HINT: Final = "Cast the column first, or leave it out."


class Converting(abc.ABC):
    """Converts by way of pyarrow; data of a device are copied to the host."""

    __slots__ = ()

    @abc.abstractmethod
    def _as_pyarrow(self) -> Any:
        """Return the data as a table, a batch or an array of pyarrow's, extension types included."""

    def to_pandas(self, **options: Any) -> Any:
        """Return a ``pandas.DataFrame``, or of a column a ``pandas.Series``.

        Parameters
        ----------
        **options
            Those of pyarrow's ``to_pandas``.

        Raises
        ------
        MissingDependency
            pandas is not installed.

        Examples
        --------
        >>> from bowstring import Batch
        >>> Batch.from_arrow({"a": [1, 2]}).to_pandas()["a"].sum()
        np.int64(3)
        """
        needed("pandas")
        return self._as_pyarrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``, or of a column a ``polars.Series``, without a copy where polars can.

        Runs and views of lists are decoded. Timestamps whose zone is an offset that polars has no zone for, such as
        ``+05:30``, are the same instants in UTC; seconds become milliseconds, and decimals those of 128 bits.

        Raises
        ------
        Unsupported
            polars has no type for a column (unions, intervals, decimals of more than 38 digits, unknown time
            zones), or its type cannot hold a value; the message names the column.
        LimitExceeded
            A column cannot be decoded in the memory that there is.
        MissingDependency
            polars is not installed.

        Examples
        --------
        >>> from bowstring import Batch
        >>> Batch.from_arrow({"a": [1, 2]}).to_polars().shape
        (2, 1)
        """
        return polars_frame(self._as_pyarrow(), needed("polars"))

    def to_pylist(self) -> list[Any]:
        """Return the rows as Python objects: of a batch a dict each, of a column its values.

        Examples
        --------
        >>> from bowstring import Batch
        >>> batch = Batch.from_arrow({"a": [1, None]})
        >>> batch.to_pylist(), batch["a"].to_pylist()
        ([{'a': 1}, {'a': None}], [1, None])
        """
        result: list[Any] = self._as_pyarrow().to_pylist()
        return result


def needed(name: str, method: str = "", package: str = "") -> Any:
    """Import the module that a method needs, ``to_name()`` by default, or name the package to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        what = f"{method or f'to_{name}'}() needs {name.partition('.')[0]}"
        raise MissingDependency(what, hint=f"pip install {package or name}") from error


def polars_frame(data: pa.Table | pa.RecordBatch, polars: Any) -> Any:
    """Return a ``polars.DataFrame``; a copy is made of what polars cannot take as it is."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    own = data.columns
    columns = [_fitted_column(*each, polars) for each in zip(data.schema, own, strict=True)]
    if any(new is not column for new, column in zip(columns, own, strict=True)):
        # What stays as it is keeps its metadata, which say what an enumeration is of.
        fields = [
            field if new is column else pa.field(field.name, new.type)
            for field, new, column in zip(data.schema, columns, own, strict=True)
        ]
        data = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    frame, refused = _taken(data, polars)
    if refused is None:
        return frame
    for name, column in zip(data.schema.names, data.columns, strict=True):
        _, error = _taken(pa.table([column], names=["column"]), polars)
        if error is not None:
            raise Unsupported(
                "polars cannot take a column",
                found=f"{column.type}: {error}"[:500],
                where=f"column {name!r}",
                hint=_HINT,
            ) from None
    raise Unsupported("polars cannot take the columns together", found=str(refused)[:500]) from None


def _taken(data: Any, polars: Any) -> tuple[Any, BaseException | None]:
    """Return data as polars has them, or its error."""
    try:
        return polars.from_arrow(data), None
    except BaseException as error:
        # What is written in Rust panics where it meets the unexpected, and that is not an Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        return None, error


def _no_type(type_: pa.DataType) -> Unsupported:
    return Unsupported("polars has no type for a column", found=str(type_), hint=_HINT)


def _fitted_column(field: pa.Field, column: pa.ChunkedArray, polars: Any) -> pa.ChunkedArray:
    chunks = column.chunks or pa.schema([field]).empty_table().column(0).chunks
    where = f"column {field.name!r}"
    try:
        fitted = [_fitted(chunk, polars) for chunk in chunks]
    except Unsupported as error:
        error.where = where
        raise
    except MemoryError as error:
        what = "a column for polars does not fit into memory"
        raise LimitExceeded(what, found=str(error), where=where) from error
    except pa.ArrowException as error:
        raise Unsupported(
            "the type that polars has cannot hold a value of a column",
            found=f"{column.type}: {error}"[:500],
            where=where,
            hint=_HINT,
        ) from error
    unchanged = all(new is chunk for new, chunk in zip(fitted, chunks, strict=True))
    return column if unchanged else pa.chunked_array(fitted)


def _fitted(array: Any, polars: Any) -> Any:
    """Return an array in the type that its values are given to polars in: itself, where polars takes it."""
    own, types = array.type, pa.types
    if isinstance(own, pa.BaseExtensionType):
        storage = array.storage
        fitted = _fitted(storage, polars)
        return array if fitted is storage else fitted
    if types.is_run_end_encoded(own):
        places = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
        return _fitted(array.values, polars).take(pa.array(runs))
    if types.is_dictionary(own):
        words = array.dictionary
        fitted = _fitted(words, polars)
        if fitted is words:
            return array
        return pa.DictionaryArray.from_arrays(array.indices, fitted, ordered=own.ordered)
    if types.is_union(own) or types.is_interval(own):
        raise _no_type(own)
    if types.is_struct(own):
        children = [array.field(at) for at in range(own.num_fields)]
        fitted = [_fitted(child, polars) for child in children]
        if all(new is child for new, child in zip(fitted, children, strict=True)):
            return array
        fields = [field.with_type(new.type) for field, new in zip(own, fitted, strict=True)]
        return pa.StructArray.from_arrays(fitted, fields=fields, mask=array.is_null())
    if own.num_fields:
        return _fitted_list(array, polars)
    type_ = _fitting(own, polars)
    return array if type_ == own else array.cast(type_)


def _fitted_list(array: Any, polars: Any) -> Any:
    own, types = array.type, pa.types
    is_view = own.id in _LIST_VIEWS
    child = array.flatten() if is_view else array.values
    fitted = _fitted(child, polars)
    if fitted is child and not is_view:
        return array
    field = own.field(0).with_type(fitted.type)
    if types.is_map(own):
        type_ = pa.map_(*fitted.type, own.keys_sorted)
    elif types.is_fixed_size_list(own):
        type_ = pa.list_(field, own.list_size)
    else:
        type_ = _LISTS[own.id](field)
    if not is_view:
        buffers = array.buffers()[: 1 if types.is_fixed_size_list(own) else 2]
        return pa.Array.from_buffers(type_, len(array), buffers, -1, array.offset, [fitted])
    # pyarrow's cast gives arrays that are not valid where an array is a slice.
    missing = array.is_null().to_numpy(zero_copy_only=False)
    ends = np.cumsum(np.where(missing, 0, array.sizes.to_numpy()), dtype=np.int64)
    narrow = types.is_list(type_)
    if narrow and ends.size and ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowCapacityError("more elements than offsets of 32 bits count")
    offsets = pa.array(np.append(np.int64(0), ends), pa.int32() if narrow else pa.int64())
    make = pa.ListArray if narrow else pa.LargeListArray
    return make.from_arrays(offsets, fitted, type=type_, mask=pa.array(missing))


def _fitting(type_: pa.DataType, polars: Any) -> pa.DataType:
    """Return the type that values without children are given to polars in."""
    types = pa.types
    if types.is_decimal(type_):
        scale = max(type_.scale, 0)
        precision = type_.precision + scale - type_.scale
        if precision > _MOST_DIGITS or scale > precision:
            raise _no_type(type_)
        return pa.decimal128(precision, scale)  # of narrower ones polars makes lists whose export panics
    if types.is_timestamp(type_):
        zone = type_.tz
        if zone not in (None, "UTC"):
            one = pa.table({"zone": pa.array([0], pa.timestamp("us", zone))})
            if _taken(one, polars)[1] is not None:
                if not _OFFSET.fullmatch(zone):
                    raise Unsupported("polars has no such time zone", found=repr(zone), hint=_HINT)
                zone = "UTC"  # the same instants; polars has names of zones, and none for most offsets
        # polars counts at least milliseconds, and wraps around where seconds are too many for that.
        return pa.timestamp("ms" if type_.unit == "s" else type_.unit, zone)
    if types.is_duration(type_) and type_.unit == "s":
        return pa.duration("ms")
    return pa.binary() if types.is_fixed_size_binary(type_) and not type_.byte_width else type_
