"""Which columns are Variant columns, and their buffers as kernels take them.

Bowstring never registers ``arrow.parquet.variant`` with pyarrow: writing such a column to Parquet crashes pyarrow
24 to 26. The name travels in the metadata of the field; arrays of pyarrow's, which have no field, are marked as
:mod:`bowstring.columnar.marks` says.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY, VARIANT_NAMES, is_variant
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.columnar.one_column import one_column
from bowstring.columnar.slots import Slots, bitmap_of, slots_of
from bowstring.errors import InvalidBody, LimitExceeded, UsageError
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from bowstring.columnar.column import Column

EXTENSION_NAME: Final = VARIANT_NAMES[0]
_BINARY: Final = (pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY)
_MOST_ROWS: Final = (1 << 31) - 1


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


@dataclasses.dataclass(frozen=True, slots=True)
class VariantColumn:
    """A Variant column as kernels take it.

    Attributes
    ----------
    column
        The struct.
    rows
        How many it has.
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
    rows: int
    validity: Any
    value: Slots
    metadata: Slots
    indices: Any | None


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
    LimitExceeded
        It has too many rows.

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
        rows = len(column)
        metadata, value = _children(column)
        blobs, indices = metadata_of(column, metadata)
        if len(value) < rows:
            raise InvalidBody("a child of a Variant column is too short", expected=rows, where=column.name)
        return VariantColumn(column, rows, bitmap_of(column), slots_of(value), blobs, indices)


def is_shredded(column: Column) -> bool:
    """Return whether a struct has a child ``typed_value``."""
    storage = storage_type(column.type)
    return bool(storage.id == pa.lib.Type_STRUCT and storage.get_field_index("typed_value") >= 0)


def metadata_of(column: Column, metadata: Column) -> tuple[Slots, Any | None]:
    """Return the distinct metadata of a Variant column, and for each row an index into them; None for the
    indices if each row has its own metadata.
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


def check_mark(column: Column, *, plain: bool) -> None:
    """Check that a column is a struct marked as a Variant, or any struct with `plain`."""
    name = (column.field.metadata or {}).get(NAME_KEY)
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
    names = storage_type(column.type).names
    if sorted(names) != ["metadata", "value"]:
        raise UsageError(
            "no Variant has these children", expected="metadata, value", found=names, where=column.name
        )
    first, second = column.children
    metadata, value = (first, second) if names[0] == "metadata" else (second, first)
    _refuse_other(value, "value")
    return metadata, value


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
