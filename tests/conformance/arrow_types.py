"""Strategies for what ``tests.strategies`` leaves out: deep nesting, all intervals, options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tests.arrays import array_of
from tests.conformance.intervals import DAY_TIME, MONTHS, retagged
from tests.strategies import LEAF_TYPES

__all__ = ["chains", "deep_tables", "interval_type", "message_metadata", "read_options", "write_options"]

_INDEX_TYPES = tuple(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64))
_RUN_ENDS = (pa.int16(), pa.int32(), pa.int64())

Wrapper = Callable[[pa.DataType], pa.DataType]


def _encoded(type_: pa.DataType, index: pa.DataType, ordered: bool) -> pa.DataType:
    # pyarrow has no dictionaries of dictionaries without something between, and cannot read those of extensions.
    direct = isinstance(type_, pa.DictionaryType | pa.BaseExtensionType)
    return pa.dictionary(index, pa.struct({"inner": type_}) if direct else type_, ordered)


def _in_runs(type_: pa.DataType, ends: pa.DataType) -> pa.DataType:
    # The C data interface of pyarrow refuses runs of runs.
    return pa.run_end_encoded(
        ends, pa.struct({"runs": type_}) if pa.types.is_run_end_encoded(type_) else type_
    )


def _wrappers() -> list[st.SearchStrategy[Wrapper]]:
    def beside(make: Callable[[list[pa.Field]], pa.DataType]) -> Wrapper:
        return lambda type_: make([pa.field("a", pa.int8()), pa.field("b", type_)])

    return [
        *(st.just(make) for make in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)),
        st.integers(0, 2).map(lambda size: lambda type_: pa.list_(type_, size)),
        st.booleans().map(
            lambda keys_sorted: lambda type_: pa.map_(pa.string(), type_, keys_sorted=keys_sorted)
        ),
        st.just(beside(pa.struct)),
        st.just(beside(lambda fields: pa.sparse_union(fields, [3, 7]))),
        st.just(beside(lambda fields: pa.dense_union(fields, [7, 3]))),
        st.sampled_from(_RUN_ENDS).map(lambda ends: lambda type_: _in_runs(type_, ends)),
        st.tuples(st.sampled_from(_INDEX_TYPES), st.booleans()).map(
            lambda drawn: lambda type_: _encoded(type_, *drawn)
        ),
    ]


_WRAPPERS: Final = st.lists(st.one_of(_wrappers()), max_size=12)
_LEAVES: Final = st.sampled_from(LEAF_TYPES)


@st.composite
def chains(draw: st.DrawFn) -> pa.DataType:
    """Draw a type nested up to twelve deep: any nested or encoded type around any other."""
    type_ = draw(_LEAVES)
    for wrap in draw(_WRAPPERS):
        type_ = wrap(type_)
    return type_


def interval_type(type_: pa.DataType) -> pa.DataType:
    """Return a type of the same memory, with intervals of months and of days for its 32 and 64-bit integers."""
    leaf = {pa.int32(): MONTHS, pa.int64(): DAY_TIME}.get(type_)
    if leaf is not None:
        return leaf
    make = _REMADE.get(type_.id)
    return type_ if make is None else make(type_)


def _fields(type_: pa.DataType) -> list[pa.Field]:
    fields = [type_.field(index) for index in range(type_.num_fields)]
    return [field.with_type(interval_type(field.type)) for field in fields]


_REMADE: Final[dict[int, Callable[[Any], pa.DataType]]] = {
    pa.lib.Type_LIST: lambda type_: pa.list_(*_fields(type_)),
    pa.lib.Type_LARGE_LIST: lambda type_: pa.large_list(*_fields(type_)),
    pa.lib.Type_LIST_VIEW: lambda type_: pa.list_view(*_fields(type_)),
    pa.lib.Type_LARGE_LIST_VIEW: lambda type_: pa.large_list_view(*_fields(type_)),
    pa.lib.Type_FIXED_SIZE_LIST: lambda type_: pa.list_(*_fields(type_), type_.list_size),
    pa.lib.Type_MAP: lambda type_: pa.map_(
        type_.key_type, interval_type(type_.item_type), keys_sorted=type_.keys_sorted
    ),
    pa.lib.Type_STRUCT: lambda type_: pa.struct(_fields(type_)),
    pa.lib.Type_SPARSE_UNION: lambda type_: pa.sparse_union(_fields(type_), type_.type_codes),
    pa.lib.Type_DENSE_UNION: lambda type_: pa.dense_union(_fields(type_), type_.type_codes),
    pa.lib.Type_RUN_END_ENCODED: lambda type_: pa.run_end_encoded(
        type_.run_end_type, interval_type(type_.value_type)
    ),
    pa.lib.Type_DICTIONARY: lambda type_: pa.dictionary(
        type_.index_type, interval_type(type_.value_type), type_.ordered
    ),
}

_METADATA: Final = st.sampled_from(
    (None, {}, {"k": "v"}, {"": "Zürich", "ARROW:extension:name": "nobody.knows"})
)


@st.composite
def deep_tables(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Draw batches of one schema of chains, with intervals of all kinds, and metadata of schema and fields."""
    types = draw(st.lists(chains(), min_size=1, max_size=3))
    shown = [interval_type(each) for each in types] if draw(st.booleans()) else types
    fields = [
        pa.field(f"c{index}", type_, metadata=None if extends(type_) else draw(_METADATA))
        for index, type_ in enumerate(shown)
    ]
    schema = pa.schema(fields, metadata=draw(_METADATA))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.lists(st.integers(0, 8), min_size=1, max_size=3))
    return [_batch(schema, types, count, rng) for count in rows]


def extends(type_: pa.DataType) -> bool:
    """Whether a field of this type has an extension name already."""
    return isinstance(type_, pa.BaseExtensionType)


def _batch(
    schema: pa.Schema, types: list[pa.DataType], rows: int, rng: np.random.Generator
) -> pa.RecordBatch:
    arrays = [array_of(type_, rows, rng) for type_ in types]
    if types == schema.types:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return retagged(_unsliced(pa.RecordBatch.from_arrays(arrays, schema.names)), schema)


def _unsliced(batch: pa.RecordBatch) -> pa.RecordBatch:
    # What pyarrow imports with an offset and no rows, it writes with buffers of negative length.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


_V4, _V5 = pa.ipc.MetadataVersion.V4, pa.ipc.MetadataVersion.V5
_FRAMINGS: Final = st.sampled_from(
    [
        {"metadata_version": _V5},
        {"metadata_version": _V4},
        {"metadata_version": _V4, "use_legacy_format": True},
        {"metadata_version": _V5, "use_legacy_format": True},
    ]
)


@st.composite
def write_options(draw: st.DrawFn) -> pa.ipc.IpcWriteOptions:
    """Draw options of writers, all that matter to the bytes."""
    framing = draw(_FRAMINGS)
    # V4 has no compression; pyarrow 26 writes it all the same, and then reads other values.
    codecs = st.sampled_from((None, None, "lz4", "zstd")) if framing["metadata_version"] is _V5 else st.none()
    return pa.ipc.IpcWriteOptions(
        **framing,
        compression=draw(codecs),
        emit_dictionary_deltas=draw(st.booleans()),
        unify_dictionaries=draw(st.booleans()),
    )


@st.composite
def message_metadata(draw: st.DrawFn, options: pa.ipc.IpcWriteOptions, count: int) -> list[dict[str, str]]:
    """Draw custom metadata for the messages of batches."""
    if options.metadata_version is _V4:
        return [{}] * count  # pyarrow 26 takes such metadata of V4 for the name of a codec: see peers.json
    pairs = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
    return draw(st.lists(pairs, min_size=count, max_size=count))


def read_options() -> st.SearchStrategy[pa.ipc.IpcReadOptions]:
    """Draw options of readers that leave all columns in."""
    alignments = st.sampled_from(list(pa.ipc.Alignment))
    return st.builds(pa.ipc.IpcReadOptions, ensure_alignment=alignments, use_threads=st.booleans())
