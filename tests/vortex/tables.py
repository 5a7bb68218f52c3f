"""Random tables of the types that Vortex has, and streams of them."""

from __future__ import annotations

import io

import pyarrow as pa
from hypothesis import strategies as st

import bowstring as bow
from tests import strategies

__all__ = ["ENCODED", "PLAIN", "named", "written"]

LEAVES = (
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(30, 4), pa.decimal256(60, 5)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("us", "Europe/Zurich"), pa.timestamp("ns")),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()),
    pa.uuid(),
)
# Fields of one name make no struct of Vortex.
FIELDS = ("a", "b", "c")


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Draw a type around others."""
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda types: pa.struct(list(zip(FIELDS, types, strict=False)))
    )
    return st.one_of(
        st.builds(pa.list_, inner),
        st.builds(pa.large_list, inner),
        st.builds(pa.list_, inner, st.integers(1, 3)),
        st.builds(pa.list_view, inner),
        structs,
    )


PLAIN = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=5)
ENCODED = st.one_of(
    PLAIN,
    st.builds(
        pa.dictionary, st.sampled_from((pa.int8(), pa.int32(), pa.uint16())), st.sampled_from(LEAVES[1:])
    ),
    st.builds(pa.run_end_encoded, st.sampled_from((pa.int16(), pa.int32(), pa.int64())), st.just(pa.int32())),
)


def written(batches: list[pa.RecordBatch], *, compress: bool = False) -> bytes:
    """Return a stream of batches."""
    sink = io.BytesIO()
    with bow.vortex.new_stream(sink, batches[0].schema, compress=compress) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def named(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.RecordBatch]]:
    """Draw batches without extension names, which vortex-data does not know."""
    return strategies.tables(types=types, min_columns=1).map(
        lambda batches: [
            pa.RecordBatch.from_arrays(
                each.columns, schema=pa.schema([field.remove_metadata() for field in each.schema])
            )
            for each in batches
        ]
    )
