"""A writer that compresses: the same values come back, from any reader, in fewer bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.testing import fake_device
from tests.vortex.streams import messages_of
from tests.vortex.tables import ENCODED, PLAIN, named, written
from tests.vortex.values import same_values

KNOWN_SINCE_54 = {
    *(
        "vortex.null",
        "vortex.bool",
        "vortex.primitive",
        "vortex.decimal",
        "vortex.varbin",
        "vortex.varbinview",
    ),
    *("vortex.struct", "vortex.list", "vortex.listview", "vortex.fixed_size_list", "vortex.ext"),
    *("vortex.constant", "vortex.dict", "vortex.masked", "vortex.runend", "vortex.sparse", "vortex.sequence"),
    *("fastlanes.bitpacked", "fastlanes.for", "vortex.zigzag", "vortex.alp", "vortex.fsst"),
    *("vortex.decimal_byte_parts", "vortex.datetimeparts"),
}


def column_of(rng: np.random.Generator, kind: str, rows: int) -> pa.Array:
    """Return a column of a shape for which one encoding or another is made."""
    words = [f"word {each} and some more" for each in rng.integers(0, 400, rows)]
    makers: dict[str, Callable[[], Any]] = {
        "constant": lambda: np.full(rows, -5),
        "sequence": lambda: np.arange(rows) * 3 - 7,
        "few": lambda: rng.integers(0, 5, rows) * 1_000_003,
        "runs": lambda: np.repeat(rng.integers(-9, 9, rows), rng.integers(1, 50, rows))[:rows],
        "narrow": lambda: rng.integers(0, 100, rows).astype(np.uint32),
        "offset": lambda: (rng.integers(0, 1000, rows) - 1_000_000).astype(np.int32),
        "outliers": lambda: np.where(
            rng.random(rows) < 0.01, rng.integers(-(1 << 60), 1 << 60, rows), rng.integers(-99, 99, rows)
        ),
        "rare": lambda: np.where(rng.random(rows) < 0.01, rng.integers(-(1 << 60), 1 << 60, rows), 7),
        "extremes": lambda: np.where(rng.random(rows) < 0.5, -(1 << 63), (1 << 63) - 1),
        "prices": lambda: np.round(rng.uniform(0, 1000, rows), 2),
        "singles": lambda: np.round(rng.uniform(0, 100, rows), 1).astype(np.float32),
        "real": lambda: rng.normal(size=rows),
        "bits": lambda: rng.integers(0, 1 << 63, rows).view(np.float64),
        "special": lambda: np.resize([0.0, -0.0, np.nan, np.inf, 1.5, 5e-324, 1e300, 0.1], rows),
        "words": lambda: words,
        "addresses": lambda: [f"https://example.org/{each}/{at}" for at, each in enumerate(words)],
        "long": lambda: ["x" * int(each) for each in rng.integers(0, 3000, rows)],
        "times": lambda: pa.array(rng.integers(0, 1 << 31, rows) * 1_000_000, pa.timestamp("us")),
        "dates": lambda: pa.array(rng.integers(0, 9999, rows).astype(np.int32), pa.date32()),
        "amounts": lambda: pa.array(rng.integers(-9999, 9999, rows)).cast(pa.decimal128(30, 2)),
        "flags": lambda: rng.random(rows) < 0.5,
    }
    return pa.array(makers[kind]())


ENCODING_OF = {
    "constant": "constant",
    "sequence": "sequence",
    "few": "dict(bitpacked",
    "runs": "runend(",
    "narrow": "bitpacked",
    "offset": "for(bitpacked)",
    "outliers": "zigzag(bitpacked(primitive, primitive))",
    "rare": "sparse(",
    "extremes": "dict(bitpacked",
    "prices": "alp(",
    "singles": "alp(",
    "real": "primitive",
    "bits": "primitive",
    "special": "dict(bitpacked",
    "words": "dict(bitpacked",
    "addresses": "fsst(varbin(",
    "long": "fsst(varbin(",
    "times": "datetimeparts(",
    "dates": "ext(bitpacked)",
    "amounts": "decimal_byte_parts(for(bitpacked))",
    "flags": "bool",
}


def nulled(rng: np.random.Generator, column: pa.Array, share: float) -> pa.Array:
    """Return a column of which some rows are null."""
    return pc.if_else(pa.array(rng.random(len(column)) < share), pa.scalar(None, column.type), column)


def check_read(batches: list[pa.RecordBatch], data: bytes) -> None:
    """Check that Bowstring reads every value again, on the host and on a device."""
    expected = pa.Table.from_batches(batches)
    for device in (None, fake_device()):
        with bow.vortex.open_stream(data) as stream:
            found = pa.Table.from_batches(
                [each.decode(device=device).to_arrow() for each in stream], schema=stream.schema
            )
        found.validate(full=True)
        for position in range(expected.num_columns):
            assert same_values(found.column(position), expected.column(position))


def check_peer_reads(batches: list[pa.RecordBatch], data: bytes) -> None:
    """Check that vortex-data reads every value too."""
    serde = pytest.importorskip("vortex.serde")
    first, *messages = messages_of(data)
    for message, batch in zip(messages, batches, strict=True):
        found = serde.decode_ipc_array_buffers([message], [first]).to_arrow_array()
        for position in range(batch.num_columns):
            columns = (pa.chunked_array([each]) for each in (found.field(position), batch.column(position)))
            assert same_values(*columns)


def ids_of(data: bytes) -> set[str]:
    """Return the ids of all encodings in a stream."""
    found: set[str] = set()
    with bow.vortex.open_stream(data) as stream:
        waiting = [each.encoding() for each in stream]
    while waiting:
        each = waiting.pop()
        found.add(each.id)
        waiting += each.children
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=named(ENCODED), rows=st.sampled_from((1, 7, 1024, 3000)), seed=st.integers(0, 2**32 - 1))
def test_random_tables_are_read_again(batches: list[pa.RecordBatch], rows: int, seed: int) -> None:
    """Every type, with nulls, sliced, as dictionaries and runs, and the same rows so often that encodings pay."""
    check_read(batches, written(batches, compress=True))
    repeated = repeat(batches[0], rows, seed)
    data = written(repeated, compress=True)
    check_read(repeated, data)
    assert ids_of(data) <= KNOWN_SINCE_54


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=named(PLAIN), rows=st.sampled_from((1, 7, 1024, 3000)), seed=st.integers(0, 2**32 - 1))
def test_vortex_data_reads_random_tables(batches: list[pa.RecordBatch], rows: int, seed: int) -> None:
    """The peer finds the same values in what is compressed."""
    for each in (batches, repeat(batches[0], rows, seed)):
        check_peer_reads(each, written(each, compress=True))


def repeat(batch: pa.RecordBatch, rows: int, seed: int) -> list[pa.RecordBatch]:
    """Return many rows of a batch, in two slices of another one."""
    if not batch.num_rows or any(not supports_take(each) for each in batch.schema.types):
        return [batch]
    chosen = np.sort(np.random.default_rng(seed).integers(0, batch.num_rows, rows + 5))
    many = pa.RecordBatch.from_arrays([take(each, chosen) for each in batch.columns], schema=batch.schema)
    return [many.slice(3, rows), many.slice(1, rows // 2)]


def supports_take(type_: pa.DataType) -> bool:
    """Whether pyarrow takes rows of a type."""
    try:
        pc.take(pa.nulls(1, type_), pa.array([0]))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True


def take(column: pa.Array, rows: Any) -> pa.Array:
    """Return some rows of a column."""
    return pc.take(column, pa.array(rows))


@pytest.mark.parametrize("nulls", [0.0, 0.3, 0.95])
@pytest.mark.parametrize("kind", ENCODING_OF)
def test_columns_of_every_shape_are_smaller_and_read_by_all(kind: str, nulls: float) -> None:
    """The encoding that is made for a shape is chosen, also with nulls, and both readers find the values."""
    rng = np.random.default_rng(len(kind))
    column = nulled(rng, column_of(rng, kind, 5000), nulls) if nulls else column_of(rng, kind, 5000)
    batch = pa.record_batch({"a": column})
    data = written([batch.slice(2, 4500)], compress=True)
    check_read([batch.slice(2, 4500)], data)
    check_peer_reads([batch.slice(2, 4500)], data)
    assert ids_of(data) <= KNOWN_SINCE_54
    assert len(data) <= len(written([batch.slice(2, 4500)]))
    if not nulls:
        [found] = bow.vortex.open_stream(data)
        assert str(found.encoding("a")).startswith(ENCODING_OF[kind])


@pytest.mark.parametrize("rows", [0, 1, 2, 1023, 1024, 1025])
@pytest.mark.parametrize("name", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integers_of_every_width(name: str, rows: int) -> None:
    """Every number of bits, with the least and the greatest number, and outliers, in whole chunks and others."""
    rng = np.random.default_rng(rows)
    kind = np.dtype(name)
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    columns = {}
    for width in range(1, 8 * kind.itemsize + 1):
        values = rng.integers(0, 1 << (width - 1), rows, np.uint64, endpoint=True).astype(kind)
        columns[f"{width}"] = pa.array(values)
        values = values.copy()
        values[:: max(rows // 5, 1)] = most
        columns[f"{width} and the greatest"] = pa.array(values)
        values[1 :: max(rows // 5, 1)] = least
        columns[f"{width} and the least"] = nulled(rng, pa.array(values), 0.1)
    batch = pa.record_batch(columns)
    data = written([batch], compress=True)
    check_read([batch], data)
    check_peer_reads([batch], data)


@pytest.mark.parametrize(
    "type_",
    [
        *(pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(30, 4)),
        *(pa.date32(), pa.timestamp("ns"), pa.string(), pa.binary_view(), pa.list_(pa.int8())),
        *(pa.list_(pa.string(), 2), pa.struct({"a": pa.int32()}), pa.list_view(pa.int64())),
    ],
)
def test_nulls_only_and_nothing_at_all(type_: pa.DataType) -> None:
    """Columns without a value, and without a row."""
    for rows in (0, 1, 2000):
        batch = pa.record_batch({"a": pa.nulls(rows, type_)})
        data = written([batch], compress=True)
        check_read([batch], data)
        check_peer_reads([batch], data)


def test_bits_of_not_a_number_and_of_zeros_are_kept() -> None:
    """Payloads and signs of NaN, and the sign of zero, are values like others."""
    for size in (2, 4, 8):
        some = np.array([-1, -2, -(1 << (8 * size - 1)), 0, 3], np.int64).astype(f"i{size}").view(f"f{size}")
        batch = pa.record_batch({"a": np.resize(some, 3000), "b": np.repeat(some, 600)})
        data = written([batch], compress=True)
        check_read([batch], data)
        check_peer_reads([batch], data)


def test_symbols_are_ordered_as_other_readers_expect() -> None:
    """Symbols of two bytes come first, then longer ones by length, and those of one byte last."""
    from bowstring.kernels.vortex.encode import train_fsst

    singles = [bytes([each]) for each in range(32, 64)]
    texts = [*singles, b"ab", b"cd", b"xyz", *[b"a string of bows"] * 10]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    table = train_fsst(np.frombuffer(b"".join(texts), np.uint8), offsets)
    sizes = [each if each > 1 else 9 for each in table.lengths.tolist()]
    assert sizes == sorted(sizes)
    assert 1 in table.lengths
    assert 2 in table.lengths


@pytest.mark.parametrize("long", [0, 1000, 2000])
def test_text_among_empty_rows_is_compressed(long: int) -> None:
    """A long text is compressed by symbols wherever it is, also where other rows have nothing to learn from."""
    texts = [""] * 2001
    texts[long] = "bows and strings, " * 30_000
    batch = pa.record_batch({"a": texts})
    data = written([batch], compress=True)
    assert len(data) < len(texts[long]) // 4
    check_read([batch], data)
    check_peer_reads([batch], data)


def test_symbols_are_trained_by_a_bounded_part_of_a_text() -> None:
    """Long rows where others are short take no memory by their number: 313 of 100,000, spread evenly."""
    rng, texts = np.random.default_rng(8), [b"x"] * 100_000
    for row in np.linspace(0, len(texts) - 1, 313).astype(int):
        texts[row] = rng.bytes(16384)
    batch = pa.record_batch({"a": texts})
    tracemalloc.start()
    try:
        data = written([batch], compress=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30 * batch.nbytes
    check_read([batch], data)


@given(
    st.sampled_from("bBhHiIqQ"),
    st.integers(4097, 9000),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 8999), st.integers(0, (1 << 64) - 1)), max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_no_number_outside_of_a_sample_is_cut(
    kind: str, rows: int, bits: int, others: list[tuple[int, int]]
) -> None:
    """Widths come from a sample; single numbers of other sizes, wherever they are, come back as they were."""
    type_ = np.dtype(kind)
    numbers = np.random.default_rng(rows).integers(0, 1 << min(bits, 8 * type_.itemsize - 1), rows, np.uint64)
    for row, other in others:
        numbers[row % rows] = other
    batch = pa.record_batch({"a": numbers.astype(type_)})
    data = written([batch], compress=True)
    check_read([batch], data)
