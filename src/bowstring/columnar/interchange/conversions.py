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
    types = [_fitting(field.type, field.name, polars) for field in data.schema]
    if types != data.schema.types:
        names = data.schema.names
        columns = list(map(_converted, names, data.columns, types))
        data = pa.Table.from_arrays(columns, names=names)
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


def _fitting(type_: pa.DataType, name: str, polars: Any) -> pa.DataType:
    """Return the type that values of a column are given to polars in: the same, where polars takes it."""
    types = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        storage = _fitting(type_.storage_type, name, polars)
        return type_ if storage == type_.storage_type else storage
    if types.is_run_end_encoded(type_):
        return _fitting(type_.value_type, name, polars)
    if types.is_dictionary(type_):
        values = _fitting(type_.value_type, name, polars)
        return type_ if values == type_.value_type else pa.dictionary(type_.index_type, values, type_.ordered)
    if type_.num_fields and not types.is_union(type_):
        return _fitting_nested(type_, name, polars)
    if types.is_decimal(type_):
        scale = max(type_.scale, 0)
        precision = type_.precision + scale - type_.scale
        if precision > _MOST_DIGITS or scale > precision:
            raise _no_type(type_, name)
        return pa.decimal128(precision, scale)  # of narrower ones polars makes lists whose export panics
    if types.is_timestamp(type_):
        zone = type_.tz
        if zone not in (None, "UTC"):
            one = pa.table({"zone": pa.array([0], pa.timestamp("us", zone))})
            if _taken(one, polars)[1] is not None:
                if not _OFFSET.fullmatch(zone):
                    what, where = "polars has no such time zone", f"column {name!r}"
                    raise Unsupported(what, found=repr(zone), where=where, hint=_HINT)
                zone = "UTC"  # the same instants; polars has names of zones, and none for most offsets
        # polars counts at least milliseconds, and wraps around where seconds are too many for that.
        return pa.timestamp("ms" if type_.unit == "s" else type_.unit, zone)
    if types.is_duration(type_) and type_.unit == "s":
        return pa.duration("ms")
    if types.is_fixed_size_binary(type_) and not type_.byte_width:
        return pa.binary()
    if types.is_union(type_) or types.is_interval(type_):
        raise _no_type(type_, name)
    return type_


def _fitting_nested(type_: pa.DataType, name: str, polars: Any) -> pa.DataType:
    fields = [type_.field(at) for at in range(type_.num_fields)]
    fitting = [each.with_type(_fitting(each.type, name, polars)) for each in fields]
    if type_.id not in _LIST_VIEWS and [each.type for each in fitting] == [each.type for each in fields]:
        return type_
    if pa.types.is_struct(type_):
        return pa.struct(fitting)
    if pa.types.is_map(type_):
        key, item = fitting[0].type
        return pa.map_(key, item, type_.keys_sorted)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(fitting[0], type_.list_size)
    return _LISTS[type_.id](fitting[0])


def _no_type(type_: pa.DataType, name: str) -> Unsupported:
    return Unsupported(
        "polars has no type for a column", found=str(type_), where=f"column {name!r}", hint=_HINT
    )


def _converted(name: str, column: Any, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a column as another type."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    try:
        return pa.chunked_array([_cast(each, type_) for each in chunks], type_)
    except MemoryError as error:
        raise LimitExceeded(
            "a column for polars does not fit into memory", found=str(error), where=f"column {name!r}"
        ) from error
    except pa.ArrowException as error:
        raise Unsupported(
            "the type that polars has cannot hold a value of a column",
            expected=str(type_),
            found=f"{column.type}: {error}"[:500],
            where=f"column {name!r}",
            hint=_HINT,
        ) from error


def _cast(array: Any, type_: pa.DataType) -> Any:
    """Return an array as the type that :func:`_fitting` gave for its own."""
    own, types = array.type, pa.types
    if own == type_:
        return array
    if isinstance(own, pa.BaseExtensionType):
        return _cast(array.storage, type_)
    if types.is_run_end_encoded(own):
        places = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
        return _cast(array.values, type_).take(pa.array(runs))
    if types.is_dictionary(own):
        return pa.DictionaryArray.from_arrays(
            array.indices, _cast(array.dictionary, type_.value_type), ordered=own.ordered
        )
    if own.id in _LIST_VIEWS:
        # pyarrow's cast gives arrays that are not valid where an array is a slice.
        missing = array.is_null().to_numpy(zero_copy_only=False)
        ends = np.cumsum(np.where(missing, 0, array.sizes.to_numpy()), dtype=np.int64)
        narrow = types.is_list(type_)
        if narrow and ends.size and ends[-1] > np.iinfo(np.int32).max:
            raise pa.ArrowCapacityError("more elements than offsets of 32 bits count")
        offsets = pa.array(np.append(np.int64(0), ends), pa.int32() if narrow else pa.int64())
        values = _cast(array.flatten(), type_.value_type)
        make = pa.ListArray if narrow else pa.LargeListArray
        return make.from_arrays(offsets, values, type=type_, mask=pa.array(missing))
    if types.is_struct(own):
        fields = list(type_)
        children = [_cast(array.field(at), each.type) for at, each in enumerate(fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if type_.num_fields:
        buffers = array.buffers()[: 1 if types.is_fixed_size_list(own) else 2]
        children = [_cast(array.values, type_.field(0).type)]
        return pa.Array.from_buffers(type_, len(array), buffers, -1, array.offset, children)
    return array.cast(type_)
