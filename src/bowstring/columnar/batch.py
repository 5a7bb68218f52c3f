"""Record batches, equally long columns over buffers that stay where they are, and the columns."""

from __future__ import annotations

import html
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, SupportsIndex, overload

import pyarrow as pa

from bowstring.columnar.display import shortened, shown_variants, table_of_batch
from bowstring.columnar.interchange import cudf, export
from bowstring.columnar.interchange.conversions import Converting, needed, polars_frame
from bowstring.columnar.interchange.foreign import Importer
from bowstring.columnar.interchange.source import one_batch, open_batches
from bowstring.columnar.interchange.to_array import ColumnArrays
from bowstring.columnar.lookup import column_index
from bowstring.columnar.marks import is_variant, with_mark
from bowstring.columnar.materialize import on_device
from bowstring.columnar.nodes import storage_type
from bowstring.columnar.parts import (
    BatchData,
    Parts,
    ReleasedDictionaries,
    batch_parts,
    derived,
    is_released,
    nodes_of,
)
from bowstring.columnar.slice import sliced
from bowstring.errors import NotPicklable, Unsupported, UsageError
from bowstring.memory import Device, Pool


class Batch(BatchData, export.Exporting, Converting, cudf.RapidsExport):
    """Some rows of a table, as Arrow lays them out, on one device: from :meth:`from_arrow` or from a stream.

    It never changes, and it and all that is made from it outlive its stream, its connection and its producer.

    Attributes
    ----------
    layout : Layout
        The nodes and buffers of the schema.
    num_rows : int
    dictionaries : dict of int to Dictionary
        By dictionary id, those inside the values of others included.
    lease : Lease
        Ends when the last view of the batch is collected, or by :meth:`release`.
    custom_metadata : dict of bytes to bytes, or None
        Key-value pairs of the message of this batch. One that was read is a
        :class:`bowstring.ipc.KeyValueMetadata`, which keeps repeated keys: ``get_all(key)``, ``pairs``.
    device : Device
        Where the buffers are.
    validated : {"structure", "full"}
        What was checked of the buffers since they came: sizes and ends, or every element that can lead outside of
        them, and text. Slices, selections and copies have what their batch has; a batch of this process begins with
        ``"structure"``.

    Examples
    --------
    >>> import numpy as np
    >>> batch = Batch.from_arrow({"id": np.arange(3), "fare": np.array([2.5, 3.0, 4.5])})
    >>> batch
    <Batch 3 rows × 2 columns, 48 bytes on cpu>
    >>> batch["fare"].values
    array([2.5, 3. , 4.5])
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise UsageError("a Batch is not made by hand", hint="Use Batch.from_arrow(data).")

    @classmethod
    def from_arrow(cls, source: Any) -> Batch:
        """Return Arrow data as one batch: zero-copy but for what must be re-based.

        Parameters
        ----------
        source
            Anything with ``__arrow_c_array__`` (of a struct), ``__arrow_c_stream__`` or their forms for devices
            (pyarrow, polars, nanoarrow, cuDF …), a mapping of names to NumPy or Arrow arrays, or to arrays of one
            device (CuPy, or ``__cuda_array_interface__``), or a Batch or Column. What lies on a device stays there.
            Where it has several chunks on the host they are joined, which copies them;
            :func:`batches` takes them one by one.

        Raises
        ------
        UsageError
            It is not Arrow data, or not a record batch.
        Unsupported
            A type that Bowstring does not know.
        """
        return one_batch(source, Importer(cls))

    @property
    def num_columns(self) -> int:
        """Number of columns."""
        return len(self.layout.columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns."""
        return tuple(self[index] for index in range(self.num_columns))

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        names: list[str] = self.schema.names
        return names

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.num_rows, self.num_columns

    @overload
    def __getitem__(self, key: str | SupportsIndex) -> Column: ...

    @overload
    def __getitem__(self, key: list[str] | list[int]) -> Batch: ...

    def __getitem__(self, key: str | SupportsIndex | list[str] | list[int]) -> Column | Batch:
        if isinstance(key, list):
            return self.select(key)
        return Column(self, column_index(self.schema, key))

    def column(self, key: str | SupportsIndex) -> Column:
        """Return the column of a name or a position, as ``batch[key]``.

        Raises
        ------
        UnknownColumn
            There is none, or several have the name.

        Examples
        --------
        >>> Batch.from_arrow({"a": [1, 2]}).column("a").to_pylist()
        [1, 2]
        """
        return Column(self, column_index(self.schema, key))

    __iter__ = None  # len() counts rows: `for column in batch.columns` is clear

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        size = "released" if is_released(self) else f"{self.nbytes} bytes on {self.device.name}"
        return f"<Batch {self.num_rows} rows × {self.num_columns} columns, {size}>"

    def _repr_html_(self) -> str:
        """Return what notebooks show: the columns with their types, and the first rows."""
        if is_released(self):
            return html.escape(repr(self))
        size = f"{self.nbytes:,} bytes on {self.device.name}"
        return table_of_batch(f"Batch of {self.num_rows:,} rows × {self.num_columns} columns, {size}", self)

    def __reduce__(self) -> NoReturn:
        raise NotPicklable(
            "a Batch is a view of memory of this process", hint="Publish it and send the Endpoint."
        )

    def equals(self, other: Any, *, check_metadata: bool = False) -> bool:
        """Whether another batch, or other Arrow data, holds the same values; copies from a device to the host.

        Examples
        --------
        >>> Batch.from_arrow({"a": [0, 1, 2]}).equals(pa.record_batch({"a": [0, 1, 2]}))
        True
        """
        batch = Batch.from_arrow(other)
        return bool(
            self.to_device("cpu").to_arrow().equals(batch.to_device("cpu").to_arrow(), check_metadata)
        )

    def select(self, names: Iterable[str | int]) -> Batch:
        """Return some of the columns, by name or position, in the order given, without a copy.

        Raises
        ------
        UnknownColumn
            There is no such column, or several have the name.
        UsageError
            These are not names and positions, or one name that is in no list.

        Examples
        --------
        >>> Batch.from_arrow({"a": [0, 1, 2], "b": [0, 1, 2]}).select(["b"]).schema.names
        ['b']
        """
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise UsageError(
                "columns are chosen by a list", expected=f"[{names!r}]"[:80], found=repr(names)[:80]
            )
        chosen = [column_index(self.schema, name) for name in names]
        parts = batch_parts(self)
        layout, nodes, buffers = parts.layout.select(chosen, parts.variadic_counts)
        counts = dict(zip(parts.layout.variadic_nodes, parts.variadic_counts, strict=True))
        kept = tuple(counts[node] for node in nodes.tolist() if node in counts) if counts else ()
        return derived(
            self, Parts(layout, parts.nodes[nodes], parts.spans.take(buffers), kept), self.num_rows
        )

    def slice(self, offset: int = 0, length: int | None = None) -> Batch:
        """Return some of the rows, without a copy but for what must be re-based.

        Parameters
        ----------
        offset
            First row.
        length
            Number of rows; all that follow by default, and fewer where there are not so many.

        Examples
        --------
        >>> Batch.from_arrow({"a": [0, 1, 2, 3, 4]}).slice(2, 2)["a"].values.tolist()
        [2, 3]
        """
        if offset < 0 or (length is not None and length < 0):
            raise UsageError("a slice begins and ends inside the batch", found=f"{offset}, {length}")
        start = min(offset, self.num_rows)
        rows = self.num_rows - start if length is None else min(length, self.num_rows - start)
        return sliced(self, start, rows)

    def to_arrow(self) -> pa.RecordBatch:
        """Return a ``pyarrow.RecordBatch``: zero-copy on the host, from a device through a copy to the host.

        Examples
        --------
        ``pyarrow.Table.from_batches`` takes pyarrow's batches only:

        >>> batches = [Batch.from_arrow({"a": [0] * n}) for n in (2, 3)]
        >>> pa.Table.from_batches([batch.to_arrow() for batch in batches]).num_rows
        5
        """
        return export.to_pyarrow_batch(self if self.device.is_host else self.to_device("cpu"))

    def to_pydict(self) -> dict[str, list[Any]]:
        """Return the columns as lists of Python objects, by name.

        Examples
        --------
        >>> Batch.from_arrow({"a": [1, None], "b": ["x", "y"]}).to_pydict()
        {'a': [1, None], 'b': ['x', 'y']}
        """
        result: dict[str, list[Any]] = self.to_arrow().to_pydict()
        return result

    _as_pyarrow = to_arrow

    def to_device(self, device: Device | str, pool: Pool | None = None) -> Batch:
        """Return the batch on a device: itself where it is there already, else a copy in regions of that device.

        Parameters
        ----------
        device
            A device, or ``"cpu"``.
        pool
            Where the regions come from: on the host the default pool, on a device one of its own.

        Raises
        ------
        OutOfBudget
            The pool's budget is used up.
        """
        return on_device(self, device, pool)

    def validate(self, *, full: bool = False) -> None:
        """Check that the buffers fit the nodes.

        Parameters
        ----------
        full
            Look at every element, where the data are, not only at sizes and at first and last offsets; also at
            times, dates and decimals. Then :attr:`validated` is ``"full"``.

        Raises
        ------
        InvalidBody
            They do not; the message names the column, and with `full` the row.
        MissingDependency
            With `full`, on a device: no compiler of kernels is installed.

        Examples
        --------
        >>> Batch.from_arrow({"a": ["x", "yz"]}).validate(full=True)
        """
        from bowstring.columnar.validation.structure import validate  # kernels that only this needs

        validate(self, full=full)

    def release(self) -> None:
        """Release the batch now, and with it the producer's memory. Does nothing the second time.

        Raises
        ------
        ViewsAlive
            Arrays, Arrow objects, or parts made from the batch are alive.

        Examples
        --------
        >>> batch = Batch.from_arrow({"a": [0, 1, 2]})
        >>> batch.release()
        >>> batch["a"].values
        Traceback (most recent call last):
          ...
        bowstring.errors.ClosedError: the batch was released. Copy what you need before release().
        """
        self.lease.release()
        if not is_released(self):
            self._nodes = nodes_of(self)  # columns go on telling their lengths
            self._later = self._parts = None
        self.dictionaries = ReleasedDictionaries()

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def _root(self) -> tuple[Batch, int]:
        return self, self.layout.num_nodes


class Column(ColumnArrays["Batch"], export.Exporting, Converting):
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

    __slots__ = ()

    @overload
    def __getitem__(self, key: SupportsIndex) -> pa.Scalar: ...

    @overload
    def __getitem__(self, key: slice) -> Column: ...

    def __getitem__(self, key: SupportsIndex | slice) -> pa.Scalar | Column:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise UsageError("a slice of a column has the step 1", found=step, where=self.name)
            return self.as_batch().slice(start, max(stop - start, 0))[0]
        row = operator.index(key)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a column of {len(self)} rows")
        return self.as_batch().slice(row % len(self), 1).to_arrow().column(0)[0]

    def __iter__(self) -> Iterator[pa.Scalar]:
        return iter(self._as_pyarrow())

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
        return self.as_batch().to_arrow().column(0)

    def to_arrow(self) -> pa.Array:
        """Return a ``pyarrow.Array`` of the storage type: zero-copy on the host, from a device through a copy.

        A Variant is a ``pyarrow.ExtensionArray``, because an array has no field whose metadata could mark it; its
        ``storage`` is the struct. pyarrow's tables, batches, chunks and slices of it are marked, and so are the
        Arrow and Parquet files that they are written to. The struct alone (``storage``) is not: in a
        ``pyarrow.Table`` the metadata of its field can mark it.
        """
        column = self.as_batch().to_device("cpu")
        type_ = storage_type(self.type)
        try:
            array = pa.Array._import_from_c(export.Block(column, 0).root, type_)
        except KeyError as error:
            what, hint = (
                f"arrays of {type_}: pyarrow has no class for them",
                "Batch.to_arrow() takes them along.",
            )
            raise Unsupported(what, hint=hint) from error
        return with_mark(array, self.field)

    @property
    def __arrow_array__(self) -> Callable[..., pa.Array]:
        """What ``pyarrow.array`` and ``pyarrow.table`` call, for Variants alone: else they would drop the mark."""
        if not (self.device.is_host and is_variant(self.field)):
            raise AttributeError("__arrow_array__")

        def arrow_array(type: pa.DataType | None = None) -> pa.Array:  # noqa: A002  pyarrow's name for it
            array = self.to_arrow()
            return array if type is None else array.storage.cast(type)

        return arrow_array

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
        title = f"Column {name} of {len(self):,} rows on {self.device.name}"
        return table_of_batch(title, self.as_batch())


def batches(source: Any, schema: pa.Schema | None = None) -> tuple[pa.Schema, Iterator[Batch]]:
    """Return the schema of Arrow data and its batches, taken one by one and not before they are asked for.

    Parameters
    ----------
    source
        A Batch or Column; anything with ``__arrow_c_stream__``, ``__arrow_c_array__`` or their device forms; a
        cuDF DataFrame; a mapping of names to arrays; or an iterable of such things, of which a generator may make
        each when it is wanted.
    schema
        That of an iterable. Without it, the first batch is taken at once to see; with it nothing is.

    Raises
    ------
    UsageError
        It is not Arrow data, or an iterable without a schema gives nothing. While iterating: a batch has another
        schema than the first.

    Examples
    --------
    >>> schema, taken = batches({"a": [1, 2]} for _ in range(3))
    >>> schema.names, [batch.num_rows for batch in taken]
    (['a'], [2, 2, 2])
    """
    return open_batches(source, schema, Importer(Batch))
