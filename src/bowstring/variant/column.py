"""Which columns are Variant columns, and their buffers as kernels take them.

Bowstring never registers ``arrow.parquet.variant`` with pyarrow: writing such a column to Parquet crashes pyarrow
24 to 26. The name travels in the metadata of the field; arrays of pyarrow's, which have no field, are marked as
:mod:`bowstring.columnar.marks` says.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.columnar.marks import VARIANT_NAMES, is_variant
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.errors import ClosedError, InvalidBody, LimitExceeded, UsageError
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from bowstring.columnar.column import Column

__all__ = [
    "EXTENSION_NAME",
    "Slots",
    "VariantColumn",
    "VariantType",
    "binary_view_slots",
    "check_mark",
    "is_shredded",
    "mark",
    "metadata_of",
    "one_column",
    "open_column",
    "slots_of",
    "type",
]


_VIEW: Final = 16
_LONGEST_INSIDE: Final = 12
_PREFIX: Final = 4

EXTENSION_NAME: Final = VARIANT_NAMES[0]
_KEY: Final = b"ARROW:extension:name"
_SERIALIZED: Final = b"ARROW:extension:metadata"
_BINARY: Final = (pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY)
_MOST_ROWS: Final = (1 << 31) - 1

_TABULAR: Final = pa.RecordBatch | pa.Table | pa.RecordBatchReader


def binary_view_slots(column: Column) -> tuple[Any, Any, Any]:
    """Return starts, stops and bytes of a column of binary views: one copy of its buffers, on their device.

    A view that points outside of its buffer becomes a slot that is nowhere.
    """
    xp, rows = column.device.xp, len(column)
    batch, node = column.batch, column._node
    raw = column._array(np.uint8, Kind.VIEWS)[: rows * _VIEW]
    if len(raw) < rows * _VIEW:
        raise InvalidBody("a buffer of views is too short", expected=rows * _VIEW, found=len(raw))
    first = int(batch.layout.first_buffers(batch.variadic_counts)[column._index])
    first += node.buffer_kinds.index(Kind.VIEWS) + 1
    count = dict(zip(batch.layout.variadic_nodes, batch.variadic_counts, strict=True))[column._index]
    table = batch.spans.table[first : first + count]
    ends = np.cumsum(table[:, 2]) + rows * _VIEW
    bases = np.append(ends - table[:, 2], -1)
    sizes = np.append(table[:, 2], 0)
    data = xp.concatenate(
        [raw, *(batch.spans.array(first + each) for each in range(count) if table[each, 2])]
    )
    words = raw.view(np.int32).reshape(rows, 4)
    length = words[:, 0].astype(np.int64)
    buffer = words[:, 2].astype(np.int64)
    offset = words[:, 3].astype(np.int64)
    known = xp.where((buffer >= 0) & (buffer < count), buffer, np.int64(count))
    fits = (offset >= 0) & (offset + length <= xp.asarray(sizes)[known])
    outside = xp.where(fits, xp.asarray(bases)[known] + offset, np.int64(-1))
    inside = xp.arange(rows, dtype=np.int64) * np.int64(_VIEW) + np.int64(_PREFIX)
    starts = xp.where(length <= _LONGEST_INSIDE, inside, outside)
    starts = xp.where(length >= 0, starts, np.int64(-1))
    return starts, starts + length, data


class VariantType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """The type of a Variant, where a type is asked for; never registered."""

    def __init__(self) -> None:
        storage = pa.struct(
            [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())]
        )
        super().__init__(storage, EXTENSION_NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> VariantType:
        return cls()


def type() -> VariantType:  # noqa: A001  bowstring.variant.type() is its name
    """Return the type of a Variant, for :func:`~bowstring.variant.get` and wherever else a type is asked for.

    Examples
    --------
    >>> type().extension_name, type().storage_type.names
    ('arrow.parquet.variant', ['metadata', 'value'])
    """
    return VariantType()


def mark(field: pa.Field) -> pa.Field:
    """Return a field of a struct marked as a Variant."""
    return field.with_metadata({**(field.metadata or {}), _KEY: EXTENSION_NAME.encode(), _SERIALIZED: b""})


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    """Slots of bytes: slot ``k`` is ``data[starts[k]:stops[k]]``, and nothing where that is not in `data`.

    Attributes
    ----------
    starts, stops : array of int32 or int64, shape (slots,)
    data : array of uint8
    validity : array of uint8
        A bitmap, empty where nothing is null.
    shared
        Whether slots may overlap, as views do.
    """

    starts: Any
    stops: Any
    data: Any
    validity: Any
    shared: bool


@dataclasses.dataclass(frozen=True, slots=True)
class VariantColumn:
    """A Variant column as kernels take it.

    Attributes
    ----------
    column
        The struct.
    validity : array of uint8
        Its bitmap, empty where nothing is null.
    value
        The values, one for each row.
    metadata
        The distinct metadata; or one for each row, where `indices` is None.
    indices : array of int32, shape (rows,), or None
        Which of the metadata is that of each row; -1 for none.
    """

    column: Column
    validity: Any
    value: Slots
    metadata: Slots
    indices: Any | None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.column)


def open_column(source: Any, *, plain: bool = False) -> VariantColumn:
    """Return a Variant column as kernels take it, without a copy of its values.

    Parameters
    ----------
    source
        A Column, a Batch of one column, or Arrow data of one column, marked ``arrow.parquet.variant`` or
        ``parquet.variant``. Its children are found by name: ``metadata`` and ``value``, each Binary, LargeBinary
        or BinaryView; the metadata may be dictionary- or run-end encoded. A row that is not null, and whose
        ``value`` is, has a Variant null: to every call, as Parquet says. A shredded column, which has a child
        ``typed_value``, is unshredded first: see :func:`bowstring.variant.unshred`.
    plain
        Take a struct that is not marked.

    Raises
    ------
    UsageError
        It is no Variant column.
    Unsupported
        It is shredded, and a column has a type that the specification does not have.
    InvalidBody
        Its offsets decrease, or a child is shorter than the column.

    Examples
    --------
    >>> rows = pa.array([{"metadata": bytes([1, 0, 0]), "value": bytes([12, 42])}], type().storage_type)
    >>> open_column(pa.record_batch({"v": rows}), plain=True).rows
    1
    """
    column = one_column(source, "variant")
    with column.device.use():
        check_mark(column, plain=plain)
        if is_shredded(column):
            from bowstring.variant.shredded.unshred import unshredded  # it stands on this module

            return open_column(unshredded(column), plain=True)
        metadata, value = _children(column)
        rows = len(column)
        blobs, indices = metadata_of(column, metadata)
        if len(value) < rows:
            raise InvalidBody("a child of a Variant column is too short", expected=rows, where=column.name)
        return VariantColumn(column, _validity(column), slots_of(value), blobs, indices)


def is_shredded(column: Column) -> bool:
    """Return whether a struct has a child ``typed_value``."""
    storage = storage_type(column.type)
    return bool(storage.id == pa.lib.Type_STRUCT and storage.get_field_index("typed_value") >= 0)


def metadata_of(column: Column, metadata: Column) -> tuple[Slots, Any | None]:
    """Return the metadata of a Variant column, and which of them is that of each row.

    Raises
    ------
    LimitExceeded
        The column has too many rows.
    UsageError
        They are of another type.
    InvalidBody
        They are fewer than the rows.
    """
    rows = len(column)
    if rows > _MOST_ROWS:
        raise LimitExceeded("too many rows", expected=f"at most {_MOST_ROWS}", found=rows, where=column.name)
    if metadata.dictionary is not None:
        blobs = metadata.dictionary
        _refuse_other(blobs, "metadata")
        indices = _masked(metadata, metadata.raw_values, rows)
    elif metadata.type.id == pa.lib.Type_RUN_END_ENCODED:
        ends, blobs = metadata.children
        _refuse_other(blobs, "metadata")
        xp = column.device.xp
        positions = xp.arange(rows, dtype=ends.raw_values.dtype)
        indices = xp.searchsorted(ends.raw_values, positions, side="right").astype(np.int32)
    else:
        blobs, indices = metadata, None
        _refuse_other(blobs, "metadata")
        if len(blobs) < rows:
            raise InvalidBody("a child of a Variant column is too short", expected=rows, where=column.name)
    return slots_of(blobs), indices


def slots_of(column: Column) -> Slots:
    """Return a column of bytes or text as slots."""
    storage = storage_type(column.type)
    if storage.id in (pa.lib.Type_BINARY_VIEW, pa.lib.Type_STRING_VIEW):
        return Slots(*binary_view_slots(column), _validity(column), shared=True)
    rows = len(column)
    offsets = column.offsets
    buffer = column._buffer(Kind.OFFSETS32, Kind.OFFSETS64)
    if buffer is not None and buffer.address % offsets.dtype.itemsize:
        offsets = offsets.copy()  # kernels take aligned arrays
    if not len(offsets):  # Arrow lets them be left out where there are no rows
        offsets = column.device.xp.zeros(1, np.int64)
    if len(offsets) <= rows:
        raise InvalidBody("a buffer of offsets is too short", expected=rows + 1, found=len(offsets))
    data = column._array(np.uint8, Kind.BYTES)
    return Slots(offsets[:rows], offsets[1 : rows + 1], data, _validity(column), shared=False)


def check_mark(column: Column, *, plain: bool) -> None:
    """Check that a column is a struct marked as a Variant, or any struct with `plain`.

    Raises
    ------
    UsageError
        It is not.
    """
    name = (column.field.metadata or {}).get(_KEY)
    is_struct = storage_type(column.type).id == pa.lib.Type_STRUCT
    if not is_struct or not (is_variant(column.field) or plain):
        raise UsageError(
            "the column is no Variant",
            expected=f"a struct marked {EXTENSION_NAME}",
            found=f"{column.type}, marked {name.decode(errors='replace') if name else 'nothing'}",
            where=column.name,
            hint="Give plain=True for a struct that is not marked." if is_struct else "",
        )


def _children(column: Column) -> tuple[Column, Column]:
    storage = storage_type(column.type)
    names = [storage.field(index).name for index in range(storage.num_fields)]
    if sorted(names) != ["metadata", "value"]:
        raise UsageError(
            "no Variant has these children", expected="metadata, value", found=names, where=column.name
        )
    children = {child.name: child for child in column.children}
    _refuse_other(children["value"], "value")
    return children["metadata"], children["value"]


def _refuse_other(column: Column, name: str) -> None:
    storage = storage_type(column.type)
    if column.dictionary is not None or (storage.id not in _BINARY and storage.id != pa.lib.Type_BINARY_VIEW):
        raise UsageError(
            f"the {name} of a Variant is of another type",
            expected="binary, large_binary or binary_view"
            + (", also dictionary- or run-end encoded" if name == "metadata" else ""),
            found=str(column.type),
            where=column.name,
        )


def _validity(column: Column) -> Any:
    validity = column.validity
    return column.device.xp.empty(0, np.uint8) if validity is None else validity


def _masked(indexed: Column, indices: Any, rows: int) -> Any:
    """Return indices as int32, -1 where one is null or out of its range."""
    xp = indexed.device.xp
    narrow = indices[:rows]
    if narrow.dtype.itemsize > 4 or narrow.dtype == np.uint32:
        least, most = narrow.dtype.type(0), narrow.dtype.type(_MOST_ROWS)
        narrow = xp.where((narrow >= least) & (narrow < most), narrow, most)
    buffer = indexed._buffer(Kind.DATA)
    if narrow.dtype != np.int32 or (buffer is not None and buffer.address % narrow.dtype.itemsize):
        narrow = narrow.astype(np.int32)
    if indexed.validity is None:
        return narrow
    valid = bitmap.expanded(indexed.validity, 0, rows)
    return xp.where(valid, narrow, np.int32(-1)).astype(np.int32)


def one_column(source: Any, name: str) -> Column:
    """Return a column, or the only column of a batch; an array alone gets the name.

    Raises
    ------
    UsageError
        It is not Arrow data, or has another number of columns.
    """
    if isinstance(source, Column):
        return source
    alone = _alone(source, name)
    if alone is not None:
        batch = Batch.from_arrow(alone)
    else:
        try:
            batch = Batch.from_arrow(source)
        except UsageError:
            # Streams say only when they are opened whether they are of columns or of one array.
            if isinstance(source, _TABULAR | Batch) or not hasattr(source, "__arrow_c_stream__"):
                raise
            with _not_a_column(source):
                chunks = pa.chunked_array(source)
            batch = Batch.from_arrow(pa.table({name: _widened(chunks)}))
    if batch.num_columns != 1:
        raise UsageError("one column is needed", expected="one column", found=batch.schema.names)
    return batch[0]


def _alone(source: Any, name: str) -> pa.Table | None:
    """Return an array as a table of it, ``None`` where it is none, or holds the columns of a batch."""
    if isinstance(source, pa.Array):
        return pa.table({name: source})
    if isinstance(source, pa.ChunkedArray):
        return pa.table({name: _widened(source)})
    if isinstance(source, Batch | Mapping | _TABULAR) or not hasattr(source, "__arrow_c_array__"):
        return None
    with _not_a_column(source):
        # The field has the metadata that mark an extension type.
        field = None
        if hasattr(source, "__arrow_c_schema__"):
            field = pa.Field._import_from_c_capsule(source.__arrow_c_schema__())
        found = pa.Array._import_from_c_capsule(*source.__arrow_c_array__())
    metadata = (field.metadata or {}) if field is not None else {}
    if found.type.id == pa.lib.Type_STRUCT and _KEY not in metadata:
        return None
    return pa.table([found], schema=pa.schema([pa.field(name, found.type, metadata=metadata)]))


@contextlib.contextmanager
def _not_a_column(source: Any) -> Iterator[None]:
    try:
        yield
    except ClosedError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError("not a column", found=f"{source.__class__.__name__}: {error}") from error


def _widened(chunks: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return chunks that can be concatenated: the offsets of all texts together may not fit 32 bits."""
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(chunks.type)
    return chunks.cast(wide) if wide is not None and chunks.num_chunks > 1 else chunks
