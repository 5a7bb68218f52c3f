"""A column of a batch, or a child of one."""

from __future__ import annotations

import html
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.interchange import export
from bowstring.columnar.interchange.conversions import Converting, needed, shortened, shown_variants
from bowstring.columnar.interchange.polars import polars_frame
from bowstring.columnar.interchange.to_array import (
    array_of_numbers,
    array_of_values,
    numpy_array,
    warn_of_writes,
)
from bowstring.columnar.marks import is_variant, with_mark
from bowstring.columnar.nodes import Kind, Node
from bowstring.columnar.parts import Parts, batch_parts, derived, is_released, nodes_of
from bowstring.errors import NotOnDevice, NotPicklable, UnknownColumn, Unsupported, UsageError
from bowstring.kernels import bitmap
from bowstring.memory import Buffer
from bowstring.memory.dlpack import device_pair, dlpack_capsule

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch

_UNSIGNED: Final = frozenset((pa.lib.Type_UINT8, pa.lib.Type_UINT16, pa.lib.Type_UINT32, pa.lib.Type_UINT64))
_FLOATING: Final = frozenset((pa.lib.Type_HALF_FLOAT, pa.lib.Type_FLOAT, pa.lib.Type_DOUBLE))
_BYTEWISE: Final = frozenset((pa.lib.Type_FIXED_SIZE_BINARY, pa.lib.Type_INTERVAL_DAY_TIME))
_WIDEST_NUMBER: Final = 8
_CUDA: Final = 2  # ARROW_DEVICE_CUDA


class Column(export.Exporting, Converting):
    """One column of a batch; cheap to make, and true as long as the batch is not released.

    Attributes
    ----------
    batch : Batch
        What it is a column of.
    field : pyarrow.Field
        Name, type, whether it may hold nulls, and metadata, the name of an extension type among it.
    device : Device
        Where it is.

    Examples
    --------
    >>> from bowstring.columnar.batch import Batch
    >>> column = Batch.from_arrow({"a": pa.array([1, None, 3])})["a"]
    >>> column, column.null_count, column.to_numpy(zero_copy_only=False), column.validity.tolist()
    (<Column 'a' 3 × int64 on cpu>, 1, array([ 1., nan,  3.]), [5])
    """

    __slots__ = ("_index", "_lent", "_node", "batch", "device", "field")
    batch: Batch
    field: pa.Field

    def __init__(self, batch: Batch, column: int) -> None:
        self._bind(batch, batch.layout.columns[column], batch.schema.field(column))

    def _bind(self, batch: Batch, index: int, field: pa.Field) -> None:
        self.batch = batch
        self.device = batch.device
        self.field = field
        self._index = index
        self._node: Node = batch.layout.nodes[index]

    @property
    def name(self) -> str:
        """Name of the field."""
        return str(self.field.name)

    @property
    def type(self) -> pa.DataType:
        """Type of the field."""
        return self.field.type

    def __len__(self) -> int:
        return int(nodes_of(self.batch)[self._index, 0])

    @overload
    def __getitem__(self, key: SupportsIndex) -> pa.Scalar: ...

    @overload
    def __getitem__(self, key: slice) -> Column: ...

    def __getitem__(self, key: SupportsIndex | slice) -> pa.Scalar | Column:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise UsageError("a slice of a column has the step 1", found=step, where=self.name)
            return self._rows(start, max(stop - start, 0))
        row = operator.index(key)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a column of {len(self)} rows")
        return self._rows(row % len(self), 1)._as_pyarrow()[0]

    def __iter__(self) -> Iterator[pa.Scalar]:
        return iter(self._as_pyarrow())

    def _rows(self, start: int, count: int) -> Column:
        return self.as_batch().slice(start, count)[0]

    @property
    def null_count(self) -> int:
        """Number of nulls; counted on first use where it is unknown (one read by the host)."""
        nodes = nodes_of(self.batch)
        if nodes[self._index, 1] < 0:
            validity = self.validity
            length = len(self)
            valid = length
            if validity is not None:
                valid = int(self.device.to_host(bitmap.count_set(validity, 0, length))[0])
            nodes[self._index, 1] = length - valid
        return int(nodes[self._index, 1])

    # What it holds

    def _buffer(self, *kinds: Kind) -> Buffer | None:
        """Return the buffer of one of these kinds, or ``None`` where it is empty."""
        counts = batch_parts(self.batch).variadic_counts
        first = int(self.batch.layout.first_buffers(counts)[self._index])
        for position, kind in enumerate(self._node.buffer_kinds, first):
            if kind in kinds:
                return self.batch.buffers[position]
        wanted = " or ".join(kind.name for kind in kinds)
        raise Unsupported(
            f"a column of type {self.type} has no {wanted} buffer",
            where=self.name,
            hint="Use to_arrow(), or the children of a nested column.",
        )

    def _array(self, dtype: npt.DTypeLike, *kinds: Kind) -> Any:
        buffer = self._buffer(*kinds)
        if buffer is not None:
            return buffer.array(dtype)
        with self.device.use():
            return self.device.xp.empty(0, dtype)

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
        values: npt.NDArray[Any] = array_of_values(self)
        return values

    @property
    def raw_values(self) -> Any:
        """What the column's memory holds, as an array of ``device.xp``: a read-only view, null slots included.

        What a null slot holds is not defined; :attr:`validity` says which slots are null.

        Returns
        -------
        array
            Numbers have their own dtype; dates, times, timestamps, durations and narrow decimals are integers
            of their width; dictionary-encoded columns give their indices; text and binary give all bytes as
            uint8, to be used with :attr:`offsets`; anything else of a fixed width has shape (rows, width),
            uint8. Booleans are unpacked, the one case that copies.

        Raises
        ------
        Unsupported
            Nested columns, views and nulls have no memory of their own that is one array.
        """
        length = len(self)
        kinds = self._node.buffer_kinds
        if Kind.BITS in kinds:
            bits = self._array(np.uint8, Kind.BITS)
            return bitmap.expanded(bits, 0, length)
        if Kind.BYTES in kinds:
            return self._array(np.uint8, Kind.BYTES)
        dtype = self._dtype()
        if dtype is not None:
            return self._array(dtype, Kind.DATA)[:length]
        width = self._node.width
        raw = self._array(np.uint8, Kind.DATA)
        return raw[: length * width].reshape(length, width)

    def _dtype(self) -> np.dtype[Any] | None:
        type_id, width = self._node.type.id, self._node.width
        if type_id in _BYTEWISE or not 0 < width <= _WIDEST_NUMBER:
            return None
        letter = "u" if type_id in _UNSIGNED else "f" if type_id in _FLOATING else "i"
        return np.dtype(f"<{letter}{width}")

    @property
    def offsets(self) -> Any:
        """Where each value of text, binary, lists or maps begins, and where the last ends: ``rows + 1`` integers.

        For list views and dense unions: where each slot begins in its child, ``rows`` integers.

        Raises
        ------
        Unsupported
            The column has none.
        """
        narrow = Kind.OFFSETS32 in self._node.buffer_kinds or Kind.STARTS32 in self._node.buffer_kinds
        dtype = np.int32 if narrow else np.int64
        return self._array(dtype, Kind.OFFSETS32, Kind.OFFSETS64, Kind.STARTS32, Kind.STARTS64)

    @property
    def validity(self) -> Any | None:
        """The bitmap as an array of uint8, least significant bit first, or ``None`` where nothing is null."""
        if Kind.VALIDITY not in self._node.buffer_kinds:
            return None
        buffer = self._buffer(Kind.VALIDITY)
        return None if buffer is None else buffer.array()

    @property
    def children(self) -> tuple[Column, ...]:
        """The columns inside a nested one.

        Examples
        --------
        >>> from bowstring.columnar.batch import Batch
        >>> column = Batch.from_arrow({"a": pa.array([[1, 2], [3]])})["a"]
        >>> column.offsets.tolist(), column.children[0].values.tolist()
        ([0, 2, 3], [1, 2, 3])
        """
        type_ = self._node.type
        return tuple(
            self._at(self.batch, index, type_.field(position))
            for position, index in enumerate(self._node.children)
        )

    @classmethod
    def _at(cls, batch: Batch, index: int, field: pa.Field) -> Column:
        column = cls.__new__(cls)
        column._bind(batch, index, field)
        return column

    def child(self, key: int | str) -> Column:
        """Return one of :attr:`children`, by position or name.

        Raises
        ------
        UnknownColumn
            There is none, or several have the name.
        """
        children = self.children
        if isinstance(key, str):
            matches = [child for child in children if child.name == key]
        else:
            matches = list(children[key : key + 1]) if key >= 0 else []
        if len(matches) != 1:
            raise UnknownColumn(
                "no such child" if not matches else "several children have this name",
                expected=f"one of {[child.name for child in children]}",
                found=repr(key),
                where=self.name,
            )
        return matches[0]

    @property
    def dictionary(self) -> Column | None:
        """The values of a dictionary-encoded column, else ``None``."""
        if self._node.dictionary_id is None:
            return None
        return self.batch.dictionaries[self._node.dictionary_id].column

    # Out of it

    def as_batch(self) -> Batch:
        """Return a batch of this column alone, over the same memory."""
        layout, nodes, spans, counts = batch_parts(self.batch)
        first = layout.first_buffers(counts)
        end = self._node.end
        counted = zip(layout.variadic_nodes, counts, strict=True)
        parts = Parts(
            layout.alone(self._index, self.field),
            nodes[self._index : end],
            spans.take(slice(int(first[self._index]), int(first[end]))),
            tuple(count for node, count in counted if self._index <= node < end),
        )
        return derived(self.batch, parts, len(self))

    def to_pandas(self, **options: Any) -> Any:
        """Return a ``pandas.Series`` of the column's name; `options` are those of pyarrow's ``to_pandas``."""
        return super().to_pandas(**options).rename(self.name)

    def to_polars(self) -> Any:
        """Return a ``polars.Series`` of the column's name, without a copy where polars can.

        Raises
        ------
        BowstringError
            As :meth:`bowstring.Batch.to_polars`.
        """
        return polars_frame(pa.table([self._as_pyarrow()], names=[self.name]), needed("polars")).to_series()

    def _as_pyarrow(self) -> pa.Array:
        batch = self.as_batch()
        return export.to_pyarrow_batch(batch if self.device.is_host else batch.to_device("cpu")).column(0)

    def to_arrow(self) -> pa.Array:
        """Return a ``pyarrow.Array`` of the storage type: zero-copy on the host, from a device through a copy.

        A Variant is a ``pyarrow.ExtensionArray``, because an array has no field whose metadata could mark it; its
        ``storage`` is the struct. pyarrow's tables, batches, chunks and slices of it are marked, and so are the
        Arrow and Parquet files that they are written to. The struct alone (``storage``) is not: in a
        ``pyarrow.Table`` the metadata of its field can mark it.
        """
        column = self.as_batch()
        array = export.to_pyarrow_array(column if self.device.is_host else column.to_device("cpu"))
        return with_mark(array, self.field)

    @property
    def __arrow_array__(self) -> Callable[..., pa.Array]:
        """What ``pyarrow.array`` and ``pyarrow.table`` call, for Variants alone: else they would drop the mark."""
        if not (self.device.is_host and is_variant(self.field)):
            raise AttributeError("__arrow_array__")
        return self._arrow_array

    def _arrow_array(self, type: pa.DataType | None = None) -> pa.Array:  # noqa: A002  pyarrow's name for it
        array = self.to_arrow()
        return array if type is None else array.storage.cast(type)

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
        return numpy_array(self, zero_copy_only=zero_copy_only, writable=writable)

    def _check_on_host(self) -> None:
        if not self.device.is_host:
            raise NotOnDevice(
                "the column is not on the host",
                found=self.device.name,
                hint="Use to_numpy(zero_copy_only=False), which copies, or `values`, an array of the device.",
            )

    # As an array, for others; see also `values`

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

    def __arrow_c_schema__(self) -> Any:
        return self.field.__arrow_c_schema__()

    def _root(self) -> tuple[Batch, int]:
        return self.as_batch(), 0

    def __reduce__(self) -> NoReturn:
        raise NotPicklable(
            "a Column is a view of memory of this process", hint="Send column.to_arrow() instead."
        )

    def __repr__(self) -> str:
        if is_released(self.batch):
            return f"<Column {self.name!r} of {self.type}, released>"
        if is_variant(self.field):
            rows = shown_variants(self)
            return f"<Column {self.name!r} {len(self)} × variant on {self.device.name}{rows and ': '}{rows}>"
        return f"<Column {self.name!r} {len(self)} × {self.type} on {self.device.name}>"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the type, and the first rows."""
        if is_released(self.batch):
            return html.escape(repr(self))
        name = shortened(repr(self.name))
        return self.as_batch()._html(f"Column {name} of {len(self):,} rows on {self.device.name}")
