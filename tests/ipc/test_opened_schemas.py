"""Schemas are opened by one call of a kernel as they are without a library of kernels: verdict, ids, and layout."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.columnar.layout import Layout
from bowstring.errors import BowstringError, LimitExceeded
from bowstring.kernels.host import bound
from bowstring.kernels.ipc.schema import walk_schema
from bowstring.limits import DEFAULT_LIMITS, Limits
from tests import strategies

pytestmark = pytest.mark.skipif(bound(walk_schema) is None, reason="no library of kernels was built here")

PREFIX = 8


def stream_of(schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    return sink.getvalue().to_pybytes()


def opened(stream: bytes, limits: Limits) -> tuple[object, ...]:
    """Return schema, ids and nodes, or the error."""
    try:
        reader = bow.ipc.open_stream(stream, limits=limits)
    except BowstringError as error:
        return type(error), str(error)
    layout = reader.layout
    nodes = layout.nodes, layout.depth, layout.num_buffers
    assert nodes[0] == Layout.of(reader.schema, layout.dictionary_ids, limits=limits).nodes
    return str(reader.schema), layout.dictionary_ids, *nodes


def is_opened_alike(stream: bytes, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Hold both ways together; return whether the stream is opened."""
    compiled = opened(stream, limits)
    with pytest.MonkeyPatch.context() as context:
        context.setenv("BOWSTRING_KERNELS", "interpret")
        bound.cache_clear()
        assert bound(walk_schema) is None
        # Other limits, as what was decoded by the same is kept.
        plain = opened(stream, limits.replace(message_bytes=limits.message_bytes - 1))
    bound.cache_clear()
    assert compiled == plain
    return not isinstance(compiled[0], type)


def mutated(stream: bytes, rng: random.Random) -> bytes:
    changed = bytearray(stream)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(PREFIX, len(changed) - PREFIX)
        changed[at] = rng.choice([0, 1, 4, 26, 127, 128, 255, changed[at] ^ 4, rng.randrange(256)])
    return bytes(changed)


@given(strategies.schemas())
def test_both_open_the_same_schema(schema: pa.Schema) -> None:
    """A schema of any types has the same fields, dictionaries and nodes in both ways."""
    assert is_opened_alike(stream_of(schema))


@settings(max_examples=100)
@given(strategies.schemas(min_columns=1), st.integers(0, 2**32))
def test_both_refuse_the_same_damage(schema: pa.Schema, seed: int) -> None:
    """A damaged message is opened alike, or refused with the same words."""
    stream, rng = stream_of(schema), random.Random(seed)
    for _ in range(8):
        is_opened_alike(mutated(stream, rng))


@pytest.mark.slow
@settings(max_examples=1000)
@given(strategies.schemas(min_columns=1), st.integers(0, 2**32))
def test_both_refuse_the_same_damage_of_very_many(schema: pa.Schema, seed: int) -> None:
    """The same for many more."""
    stream, rng = stream_of(schema), random.Random(seed)
    for _ in range(50):
        is_opened_alike(mutated(stream, rng))


NESTED = pa.schema(
    {"a": pa.list_(pa.struct({"x": pa.int8(), "y": pa.dictionary(pa.int8(), pa.string())})), "b": pa.int8()}
)


@pytest.mark.parametrize("limits", [Limits(depth=5), Limits(depth=4), Limits(columns=4), Limits(columns=3)])
def test_both_hold_the_same_limits(limits: Limits) -> None:
    """A schema that is as deep or as wide as allowed is opened, and one that is more so is not."""
    assert not is_opened_alike(stream_of(NESTED), Limits(depth=3))
    is_opened_alike(stream_of(NESTED), limits)


def test_a_schema_that_was_let_in_is_not_let_in_by_closer_limits() -> None:
    """What is kept of one reader does not open the same schema to another with less depth or width."""
    schema = pa.schema({"outer": pa.list_(pa.list_(pa.int8())), "other": pa.int8()})
    assert bow.ipc.open_stream(stream_of(schema)).schema.equals(schema)
    for limits in (Limits(depth=3), Limits(columns=2)):
        with pytest.raises(LimitExceeded):
            bow.ipc.open_stream(stream_of(schema), limits=limits)


def test_equal_schemas_share_one_layout() -> None:
    """A layout is derived once, for what is read, taken over and written."""
    batch = pa.record_batch({"shared": [1], "by all": ["x"]})
    readers = [bow.ipc.open_stream(stream_of(batch.schema)) for _ in range(2)]
    layouts = [reader.layout for reader in readers]
    layouts += [bow.Batch.from_arrow(batch).layout, Layout.of(batch.schema), Layout.of(batch.schema, [])]
    assert all(each is layouts[0] for each in layouts)
