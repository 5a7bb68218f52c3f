"""Hypothesis strategies for Arrow data: any type, nested, sliced, with and without nulls.

The shape of what is drawn (types, lengths) is Hypothesis's to shrink; the elements come from a drawn seed, which
keeps the drawing of large nested batches quick. All that is drawn passes pyarrow's ``validate(full=True)`` and
holds no NaN, so that it can be compared with ``equals``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tests.arrays import array_of

__all__ = ["LEAF_TYPES", "arrays", "data_types", "record_batches", "schemas", "tables"]


def __dir__() -> list[str]:
    return __all__


_SEEDS = st.integers(0, 2**32 - 1)
# Made once, like all strategies here: making one takes longer than drawing from it.
_SCHEMA_METADATA = st.sampled_from((None, {"made": "by hand"}))
_FIELD_METADATA = st.sampled_from((None, {"ARROW:extension:name": "test.kind"}))

LEAF_TYPES: tuple[pa.DataType, ...] = (
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(30, 4), pa.decimal256(60, 5)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("us", "Europe/Zurich"), pa.timestamp("ns")),
    *(pa.duration("ms"), pa.month_day_nano_interval()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(5), pa.binary(0)),
    *(pa.string(), pa.large_string(), pa.string_view()),
    pa.uuid(),
)
_RUN_VALUES = (pa.int32(), pa.string(), pa.float64(), pa.bool_())


@functools.lru_cache(maxsize=64)
def data_types(
    *, nested: bool = True, dictionaries: bool = True, leaves: tuple[pa.DataType, ...] = LEAF_TYPES
) -> st.SearchStrategy[pa.DataType]:
    """Draw any type that Bowstring supports.

    Parameters
    ----------
    nested
        Also structs, lists, list views, maps, unions and run-end encoded types, inside each other.
    dictionaries
        Also dictionary-encoded types, at any depth.
    leaves
        What is neither nested nor dictionary-encoded.
    """
    leaf = st.sampled_from(leaves)
    flat = st.one_of(leaf, _dictionary_types(leaf)) if dictionaries else leaf
    if not nested:
        return flat
    return st.recursive(flat, lambda inner: _nested_types(inner, dictionaries=dictionaries), max_leaves=6)


def _dictionary_types(values: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    indices = st.sampled_from((pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32()))
    # No extension types: pyarrow writes such a schema, but cannot read it.
    encoded = values.filter(lambda each: not isinstance(each, pa.DictionaryType | pa.BaseExtensionType))
    return st.builds(pa.dictionary, indices, encoded, st.booleans())


def _nested_types(
    inner: st.SearchStrategy[pa.DataType], *, dictionaries: bool
) -> st.SearchStrategy[pa.DataType]:
    field = st.builds(pa.field, st.sampled_from(("a", "b", "")), inner)
    fields = st.lists(field, max_size=3)
    some = st.lists(field, min_size=1, max_size=3)
    choices = [
        st.builds(pa.list_, inner),
        st.builds(pa.large_list, inner),
        st.builds(pa.list_, inner, st.integers(0, 3)),
        st.builds(pa.list_view, inner),
        st.builds(pa.large_list_view, inner),
        st.builds(pa.map_, st.sampled_from((pa.string(), pa.int16())), inner),
        st.builds(pa.struct, fields),
        st.builds(_union, some, st.sampled_from(("sparse", "dense"))),
        st.builds(
            pa.run_end_encoded,
            st.sampled_from((pa.int16(), pa.int32(), pa.int64())),
            st.sampled_from(_RUN_VALUES),
        ),
    ]
    if dictionaries:
        choices.append(_dictionary_types(inner))
    return st.one_of(choices)


def _union(fields: list[pa.Field], mode: str) -> pa.DataType:
    # Codes that are neither dense nor sorted: they are names, not positions.
    return pa.union(fields, mode=mode, type_codes=[5, 0, 127][: len(fields)])


@functools.lru_cache(maxsize=64)
def _type_lists(
    types: st.SearchStrategy[Any] | None, min_size: int, max_size: int
) -> st.SearchStrategy[list[Any]]:
    return st.lists(data_types() if types is None else types, min_size=min_size, max_size=max_size)


@st.composite
def schemas(
    draw: st.DrawFn,
    *,
    min_columns: int = 0,
    max_columns: int = 5,
    types: st.SearchStrategy[Any] | None = None,
) -> pa.Schema:
    """Draw a schema, sometimes with metadata and extension names that nobody has registered."""
    chosen = draw(_type_lists(types, min_columns, max_columns))
    metadata = draw(_SCHEMA_METADATA)
    fields = [
        pa.field(f"c{index}", type_, metadata=draw(_FIELD_METADATA))
        if not isinstance(type_, pa.BaseExtensionType)
        else pa.field(f"c{index}", type_)
        for index, type_ in enumerate(chosen)
    ]
    return pa.schema(fields, metadata=metadata)


@st.composite
def arrays(draw: st.DrawFn, type_: pa.DataType | None = None, *, max_length: int = 40) -> pa.Array:
    """Draw an array, often a slice of a longer one at any depth."""
    chosen = draw(data_types()) if type_ is None else type_
    length = draw(st.integers(0, max_length))
    return array_of(chosen, length, np.random.default_rng(draw(_SEEDS)))


@st.composite
def record_batches(
    draw: st.DrawFn,
    schema: pa.Schema | None = None,
    *,
    min_columns: int = 0,
    max_columns: int = 5,
    max_rows: int = 40,
    types: st.SearchStrategy[Any] | None = None,
) -> pa.RecordBatch:
    """Draw a ``pyarrow.RecordBatch``: empty, without columns, sliced, anything."""
    if schema is None:
        schema = draw(schemas(min_columns=min_columns, max_columns=max_columns, types=types))
    rows = draw(st.integers(0, max_rows))
    rng = np.random.default_rng(draw(_SEEDS))
    if not len(schema):
        return _without_columns(schema, rows)
    columns = [array_of(field.type, rows, rng) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if draw(st.booleans()):
        start = draw(st.integers(0, rows))
        return batch.slice(start, draw(st.integers(0, rows - start)))
    return batch


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    min_columns: int = 0,
    max_columns: int = 4,
    max_rows: int = 20,
    max_batches: int = 4,
    types: st.SearchStrategy[Any] | None = None,
) -> list[pa.RecordBatch]:
    """Draw one to `max_batches` record batches of one schema; dictionaries differ from batch to batch."""
    schema = draw(schemas(min_columns=min_columns, max_columns=max_columns, types=types))
    count = draw(st.integers(1, max_batches))
    return [draw(record_batches(schema, max_rows=max_rows)) for _ in range(count)]


def _without_columns(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(empty).replace_schema_metadata(schema.metadata)
