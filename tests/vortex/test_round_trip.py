"""Tables of all types survive both ways: what Bowstring writes is read by vortex-data, and the other way round."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import InvalidBody, InvalidMetadata, Unsupported, UsageError
from bowstring.testing import fake_device
from bowstring.vortex.dtype import DType, Kind, primitive
from bowstring.vortex.message import Piece
from tests.vortex.streams import messages_of, numbers, stream_of
from tests.vortex.tables import ENCODED, PLAIN, named, written
from tests.vortex.values import same_values

vortex = pytest.importorskip("vortex")
serde = pytest.importorskip("vortex.serde")


def encoded_by_peer(batch: pa.RecordBatch, *, compressed: bool) -> Any:
    """Return a batch as an array of vortex-data, which panics where it takes some slices of nested arrays."""
    try:
        array = vortex.array(pa.Table.from_batches([batch]))
        return vortex.compress(array) if compressed else array
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        reject()


def stream_of_peer(array: Any) -> bytes:
    """Return the stream of an array of vortex-data."""
    messages, types = serde.encode_ipc_array_buffers(array)
    return b"".join([*types, *messages])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=named(ENCODED))
def test_what_is_written_is_read_again_with_the_same_values(batches: list[pa.RecordBatch]) -> None:
    """Every type that Vortex has, sliced, with nulls, in several batches, encoded as dictionaries and runs."""
    found = bow.vortex.open_stream(written(batches)).read_all()
    found.validate(full=True)
    expected = pa.Table.from_batches(batches)
    for position in range(expected.num_columns):
        assert found.column(position).to_pylist() == expected.column(position).to_pylist()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=named(PLAIN))
def test_vortex_data_reads_what_is_written(batches: list[pa.RecordBatch]) -> None:
    """The peer finds the same values in every message."""
    first, *messages = messages_of(written(batches))
    for message, batch in zip(messages, batches, strict=True):
        found = serde.decode_ipc_array_buffers([message], [first]).to_arrow_array()
        assert found.to_pylist() == batch.to_pylist()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=named(PLAIN), compressed=st.booleans(), on_device=st.booleans())
def test_what_vortex_data_writes_is_read(
    batches: list[pa.RecordBatch], compressed: bool, on_device: bool
) -> None:
    """Its encodings of random tables, as they are and compressed, on the host and on a device."""
    for batch in batches:
        array = encoded_by_peer(batch, compressed=compressed)
        expected = array.to_arrow_array()
        data = stream_of_peer(array)
        [found] = bow.vortex.open_stream(data)
        place: Any = fake_device() if on_device else None
        values = found.decode(device=place).to_arrow()
        values.validate(full=True)
        assert values.to_pylist() == expected.to_pylist()


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 5000),
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(("few", "runs", "sorted", "prices", "words", "rare", "offsets", "real", "times")),
    nulls=st.booleans(),
)
def test_what_vortex_data_compresses_is_decoded(rows: int, seed: int, kind: str, nulls: bool) -> None:
    """Longer columns, of the shapes for which its writer chooses one encoding or another."""
    rng = np.random.default_rng(seed)
    makers: dict[str, Any] = {
        "few": lambda: pa.array(rng.integers(0, 5, rows) * 1000),
        "runs": lambda: pa.array(np.repeat(rng.integers(-9, 9, rows), rng.integers(1, 50, rows))[:rows]),
        "sorted": lambda: pa.array(np.sort(rng.integers(0, 1 << 40, rows))),
        "prices": lambda: pa.array(np.round(rng.uniform(0, 1000, rows), 2)),
        "words": lambda: pa.array([f"word {each} and some more" for each in rng.integers(0, 400, rows)]),
        "rare": lambda: pa.array(np.where(rng.random(rows) < 0.01, rng.integers(0, 1 << 50, rows), 7)),
        "offsets": lambda: pa.array((rng.integers(0, 100, rows) - 1_000_000).astype(np.int32)),
        "real": lambda: pa.array(rng.normal(size=rows)),
        "times": lambda: pa.array(rng.integers(0, 1 << 40, rows) * 1000, pa.timestamp("us")),
    }
    column = makers[kind]()
    if nulls:
        column = pc.if_else(pa.array(rng.random(rows) < 0.2), pa.scalar(None, column.type), column)
    batch = pa.record_batch({"a": column})
    data = stream_of_peer(encoded_by_peer(batch, compressed=True))
    found = bow.vortex.open_stream(data).read_all()
    assert same_values(found.column(0), pa.chunked_array([column]))


def test_bodies_and_buffers_are_aligned() -> None:
    """Every buffer that is written begins at a multiple of 64 bytes of its message, as does the body."""
    batch = pa.record_batch({"a": pa.array([1, None, 3], pa.int8()), "b": ["x", None, "yz"]})
    for message in messages_of(written([batch])):
        assert (4 + int.from_bytes(message[:4], "little")) % 64 == 0
    [found] = bow.vortex.open_stream(written([batch]))
    assert all(stored.offset % 64 == 0 for stored in found._body().stored)


@pytest.mark.parametrize(
    "type_",
    [
        pa.duration("s"),
        pa.binary(3),
        pa.map_(pa.string(), pa.int8()),
        pa.month_day_nano_interval(),
        pa.binary(16),
    ],
)
def test_types_that_vortex_does_not_have_are_refused_by_name(type_: pa.DataType) -> None:
    """The error names the column."""
    with pytest.raises(Unsupported, match="at when"):
        bow.vortex.new_stream(io.BytesIO(), pa.schema([pa.field("when", type_)]))


SIXTEEN = DType(Kind.FIXED_SIZE_LIST, children=(primitive("u1"),), size=16)
UUIDS = DType(Kind.EXTENSION, children=(SIXTEEN,), id="vortex.uuid")


@pytest.mark.parametrize("metadata", [b"", b"\x04"])
def test_uuids_have_a_type_of_their_own(metadata: bytes) -> None:
    """vortex.uuid, with or without a version, is arrow.uuid, also where a field only has the name of the type."""
    values = numbers(range(32), np.uint8)
    piece = Piece("vortex.ext", children=(Piece("vortex.fixed_size_list", children=(values,)),))
    dtype = dataclasses.replace(UUIDS, metadata=metadata)
    [batch] = bow.vortex.open_stream(stream_of(dtype, (piece, 2)))
    expected = pa.array([bytes(range(16)), bytes(range(16, 32))], pa.uuid())
    assert batch.decode().to_arrow().column(0).equals(expected)
    marked = pa.field("c", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})
    data = written([pa.RecordBatch.from_arrays([expected.storage], schema=pa.schema([marked]))])
    assert bow.vortex.open_stream(data).read_all().column(0).combine_chunks().equals(expected)


def test_uuids_of_another_storage_or_with_null_bytes_are_invalid() -> None:
    """What has the name of a UUID has its storage too, and no byte of a UUID is null."""
    short = dataclasses.replace(SIXTEEN, size=15)
    with pytest.raises(InvalidMetadata, match=r"vortex\.uuid"):
        bow.vortex.open_stream(stream_of(dataclasses.replace(UUIDS, children=(short,))))
    bits = Piece("vortex.bool", buffers=((np.array([0xFF, 0xF7], np.uint8), 1),))
    values = numbers(range(16), np.uint8)._replace(children=(bits,))
    piece = Piece("vortex.ext", children=(Piece("vortex.fixed_size_list", children=(values,)),))
    with pytest.raises(InvalidBody, match="byte of a UUID"):
        bow.vortex.open_stream(stream_of(UUIDS, (piece, 1))).read_all()


def test_an_extension_that_is_not_known_keeps_its_name_metadata_and_storage() -> None:
    """It is written as an extension of Vortex, and read back as the same field."""
    metadata = {"ARROW:extension:name": "test.kind", "ARROW:extension:metadata": "x"}
    schema = pa.schema([pa.field("a", pa.int32(), metadata=metadata)])
    data = written([pa.RecordBatch.from_arrays([pa.array([1, None], pa.int32())], schema=schema)])
    with bow.vortex.open_stream(data) as stream:
        assert stream.schema.field(0).equals(schema.field(0), check_metadata=True)
        assert stream.read_all().column(0).to_pylist() == [1, None]


def test_what_does_not_fit_the_stream_is_refused() -> None:
    """Another schema, and nulls where there may be none."""
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with bow.vortex.new_stream(io.BytesIO(), strict) as writer:
        with pytest.raises(UsageError, match="another schema"):
            writer.write_batch(pa.record_batch({"b": [1]}))
        with pytest.raises(InvalidBody, match="not nullable"):
            writer.write_batch(pa.RecordBatch.from_arrays([pa.array([1, None])], schema=strict))
