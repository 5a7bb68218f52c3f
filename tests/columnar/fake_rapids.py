"""pylibcudf and cuDF as far as they speak Arrow, with the signatures and checks of 26.10, over any device of ours.

Tables have columns without names, and keep what they took until the last column is gone.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts, derived

__all__ = [
    "CategoricalDtype",
    "Index",
    "ListDtype",
    "RangeIndex",
    "StructDtype",
    "install",
]


class _Taken:
    """An object that gives the capsules that another one gave."""

    def __init__(self, pair: Any) -> None:
        self.pair = pair

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.pair


def nameless(type_: pa.DataType) -> pa.DataType:
    """Return a type as libcudf knows it: fields of structs have no names, times have no zone."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field("", nameless(field.type), field.nullable) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", nameless(type_.value_type)))
    return pa.timestamp(type_.unit) if pa.types.is_timestamp(type_) else type_


# ``arrow_to_cudf_type`` of libcudf 26.10, by pyarrow's names of types.
# fmt: off
TYPES = (
    "null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double",
    "date32[day]", "string", "large_string", "string_view",
)
FAMILIES = (
    "timestamp", "duration", "decimal32", "decimal64", "decimal128", "list<", "large_list<", "struct<",
)
# fmt: on
SIZE_TYPE = (1 << 31) - 1


def refuse_as_libcudf(column: Any) -> None:
    """Raise what ``from_arrow_device`` of libcudf 26.10 raises, and where it would count wrongly, end the test."""
    type_ = column.type.index_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_dictionary(column.type):
        if pa.types.is_unsigned_integer(type_):
            raise TypeError("Unsupported type_id for dictionary indices")
        refuse_as_libcudf(column.dictionary)
    elif str(type_) not in TYPES and not str(type_).startswith(FAMILIES):
        raise TypeError("Unsupported type_id conversion to cudf")
    elif pa.types.is_large_list(type_):
        raise TypeError("Large list types are not supported")
    assert len(column) < SIZE_TYPE, "a size_type wraps around"
    for child in column.children:
        refuse_as_libcudf(child)


class Column:
    """``pylibcudf.Column``: it keeps the memory of its table alive."""

    def __init__(self, owner: Batch, index: int) -> None:
        self.owner = owner
        self.index = index


class Table:
    """``pylibcudf.Table``."""

    def __init__(self, columns: Sequence[Column], num_rows: int | None = None) -> None:
        if not all(isinstance(column, Column) for column in columns):
            raise ValueError("All columns must be pylibcudf Column objects")
        self._columns = tuple(columns)

    @staticmethod
    def from_arrow(arrow_like: Any, dtype: Any = None, stream: Any = None, mr: Any = None) -> Table:
        if dtype is not None:
            raise NotImplementedError("Creating a Table with the dtype argument specified.")
        if not hasattr(arrow_like, "__arrow_c_device_array__"):
            raise NotImplementedError("the fake takes device arrays only")
        schema, array = arrow_like.__arrow_c_device_array__()
        owner = Batch.from_arrow(_Taken((schema, array)))
        if owner.device.is_host:
            raise RuntimeError("Unsupported ArrowDeviceArray type")
        for part in (owner, *(each.values for each in owner.dictionaries.values())):
            assert (batch_parts(part).nodes[:, 1] >= 0).all(), "nulls that are not counted"
        for column in owner.columns:
            refuse_as_libcudf(column)
        return Table([Column(owner, index) for index in range(owner.num_columns)])

    def columns(self) -> tuple[Column, ...]:
        return self._columns

    def num_columns(self) -> int:
        return len(self._columns)

    def num_rows(self) -> int:
        return self._columns[0].owner.num_rows if self._columns else 0

    def __arrow_c_device_array__(self, requested_schema: Any = None, **kwargs: Any) -> Any:
        if requested_schema is not None:
            raise ValueError("pylibcudf.Table does not support alternative schema")
        whole = self._columns[0].owner.select([column.index for column in self._columns])
        schema = pa.schema([pa.field("", nameless(field.type)) for field in whole.schema])
        parts = batch_parts(whole)._replace(layout=Layout.of(schema, list(whole.layout.dictionary_ids)))
        return derived(whole, parts, whole.num_rows).__arrow_c_device_array__()


class StructDtype:
    """``cudf.StructDtype``."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields


class ListDtype:
    """``cudf.ListDtype``."""

    def __init__(self, element_type: Any) -> None:
        self.element_type = element_type


class CategoricalDtype:
    """``cudf.CategoricalDtype``."""

    def __init__(self, categories: Index, ordered: bool | None = False) -> None:
        self.categories, self.ordered = categories, ordered


class Index:
    """``cudf.Index``."""

    def __init__(self, column: Column) -> None:
        self._column = column

    def to_pylibcudf(self) -> tuple[Column, dict[str, Any]]:
        return self._column, {"name": None}


class RangeIndex:
    """``cudf.RangeIndex``."""

    def __init__(self, start: int, stop: int | None = None) -> None:
        self.start, self.stop = (0, start) if stop is None else (start, stop)

    def __len__(self) -> int:
        return self.stop - self.start


class DataFrame:
    """``cudf.DataFrame``: the host gets at it by a copy, and pylibcudf without."""

    def __init__(self, table: Table, dtypes: dict[Any, Any], index: Any = None) -> None:
        self._table = table
        self.dtypes = dtypes
        self.index = RangeIndex(table.num_rows()) if index is None else index
        self.child_names: dict[str, Any] = {}

    @property
    def columns(self) -> list[Any]:
        return list(self.dtypes)

    def __len__(self) -> int:
        return len(self.index)

    @classmethod
    def from_pylibcudf(cls, table: Table, metadata: dict[str, Any] | None = None) -> DataFrame:
        if not (
            isinstance(metadata, dict)
            and 1 <= len(metadata) <= 3
            and "columns" in metadata
            and not set(metadata) - {"columns", "child_names", "index"}
        ):
            raise ValueError(
                "Must pass a metadata dict with keys 'columns' and optionally 'child_names', 'index'"
            )
        for column in table.columns():
            if pa.types.is_dictionary(column.owner.schema.field(column.index).type):
                raise KeyError("TypeId.DICTIONARY32")  # dtype_from_pylibcudf_column
        columns = zip(metadata["columns"], table.columns(), strict=True)
        frame = cls(table, {name: column.owner.schema.field(column.index).type for name, column in columns})
        frame.index = metadata.get("index", frame.index)
        frame.child_names = metadata.get("child_names") or {}
        assert list(frame.child_names) == frame.columns
        return frame

    def to_pylibcudf(self) -> tuple[Table, dict[str, Any]]:
        return self._table, {"index": self.index, "columns": self.columns}

    def to_arrow(self) -> pa.Table:
        raise AssertionError("the data were copied to the host")

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise AssertionError("the data were copied to the host")


def install(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Put the fakes where the libraries would be; return what ``import cudf`` gives."""
    import sys

    cudf: Any = types.ModuleType("cudf")
    cudf.DataFrame, cudf.RangeIndex, cudf.StructDtype, cudf.ListDtype = (
        DataFrame,
        RangeIndex,
        StructDtype,
        ListDtype,
    )
    pylibcudf: Any = types.ModuleType("pylibcudf")
    pylibcudf.Table, pylibcudf.Column = Table, Column
    monkeypatch.setitem(sys.modules, "cudf", cudf)
    monkeypatch.setitem(sys.modules, "pylibcudf", pylibcudf)
    return cudf
