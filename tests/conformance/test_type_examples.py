"""Corners of types that chance seldom draws: each by every road between Bowstring and pyarrow."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.errors import LimitExceeded, Unsupported
from bowstring.ipc.flatbuf.schema import encode_schema
from tests.conformance.intervals import DAY_TIME, MONTHS, retagged

ROADS = {
    "pyarrow's stream": (pa.ipc.new_stream, ipc.open_stream),
    "pyarrow's file": (pa.ipc.new_file, ipc.open_file),
    "our stream": (ipc.new_stream, pa.ipc.open_stream),
    "our file": (ipc.new_file, pa.ipc.open_file),
    "our own stream": (ipc.new_stream, ipc.open_stream),
    "our own file": (ipc.new_file, ipc.open_file),
}


def carried(batch: pa.RecordBatch, road: str) -> pa.Table:
    """Return a batch written by one and read by the other."""
    new, open_ = ROADS[road]
    sink = io.BytesIO()
    with new(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return open_(sink.getvalue()).read_all()


def _views(variadic: list[bytes], places: list[tuple[int, int, int]], type_: pa.DataType) -> pa.RecordBatch:
    """A column of views: each a length, a variadic buffer and where in it."""
    views = b"".join(
        struct.pack("<i4sii", size, variadic[buffer][at : at + 4], buffer, at)
        if size > 12
        else struct.pack("<i12s", size, variadic[buffer][at : at + size])
        for size, buffer, at in places
    )
    buffers = [None, pa.py_buffer(views), *map(pa.py_buffer, variadic)]
    return pa.record_batch({"v": pa.Array.from_buffers(type_, len(places), buffers)})


def _several_variadic() -> pa.RecordBatch:
    return _views(
        [b"a" * 40, b"", b"the third buffer, which is read last"],
        [(36, 2, 0), (40, 0, 0), (3, 0, 1), (0, 0, 0), (13, 2, 23)],
        pa.string_view(),
    )


def _shared_variadic() -> pa.RecordBatch:
    return _views([bytes(range(64))], [(64, 0, 0), (20, 0, 10), (20, 0, 10), (30, 0, 15)], pa.binary_view())


def _no_variadic() -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(["short", None, ""], pa.string_view())})


def _list_views() -> pa.RecordBatch:
    values = pa.array(["a", None, "c", "d", "e"])
    starts, sizes = [3, 0, 1, 0, 5], [2, 4, 1, 0, 0]
    small = pa.ListViewArray.from_arrays(pa.array(starts, pa.int32()), pa.array(sizes, pa.int32()), values)
    large = pa.LargeListViewArray.from_arrays(
        pa.array(starts, pa.int64()), pa.array(sizes, pa.int64()), small
    )
    return pa.record_batch({"small": small, "large": large})


def _half_floats() -> pa.RecordBatch:
    bits = np.array([0, 0x8000, 1, 0x7BFF, 0x7C00, 0xFC00, 0x7E01], np.uint16)
    return pa.record_batch({"half": pa.array(bits[:6].view(np.float16)), "bits": pa.array(bits[:6])})


def _decimals() -> pa.RecordBatch:
    types = (pa.decimal32(9, 2), pa.decimal64(18, 0), pa.decimal128(38, 5), pa.decimal256(76, 76))
    return pa.record_batch(
        {str(type_): pa.array([_most(type_), None, _most(type_).copy_negate()], type_) for type_ in types}
    )


def _most(type_: pa.DataType) -> Decimal:
    return Decimal((0, (9,) * type_.precision, -type_.scale))


def _intervals() -> pa.RecordBatch:
    twin = pa.record_batch(
        {
            "months": pa.array([-(2**31), None, 2**31 - 1], pa.int32()),
            "day_time": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
            "month_day_nano": pa.array([(-1, 2, -3), None, (4, -5, 6)], pa.month_day_nano_interval()),
        }
    )
    types = dict(zip(twin.schema.names, (MONTHS, DAY_TIME, pa.month_day_nano_interval()), strict=True))
    return retagged(twin, pa.schema(types))


def _runs() -> pa.RecordBatch:
    ends = pa.array([2, 3, 7], pa.int16())
    runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(["x", None, "z"]))
    inner = pa.StructArray.from_arrays([runs, pa.array(range(7))], names=["runs", "plain"])
    outer = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 5, 6, 8, 9], pa.int64()), inner)
    return pa.record_batch({"outer": outer.slice(2, 5)})


def _unions_in_lists() -> pa.RecordBatch:
    codes = pa.array([0, 1, 1, 0, 0], pa.int8())
    children = [pa.array([1, None, 3]), pa.array([["a"], None])]
    dense = pa.UnionArray.from_dense(codes, pa.array([0, 0, 1, 1, 2], pa.int32()), children, ["n", "l"])
    sparse = pa.UnionArray.from_sparse(codes, [pa.array(range(5)), pa.array("abcde")], ["n", "s"])
    offsets = pa.array([0, 2, None, 5], pa.int32())
    return pa.record_batch(
        {"d": pa.ListArray.from_arrays(offsets, dense), "s": pa.ListArray.from_arrays(offsets, sparse)}
    ).slice(1)


def _encoded_structs_in_lists() -> pa.RecordBatch:
    inner = pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0, 1], pa.uint8()), ["low", "high"], ordered=True
    )
    structs = pa.StructArray.from_arrays([inner, pa.array([1, 2, 3, 4])], names=["level", "n"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, None, 4], pa.int32()), structs)
    outer = pa.DictionaryArray.from_arrays(pa.array([2, 0, None], pa.uint64()), lists)
    return pa.record_batch({"lists": lists, "outer": outer})


def _unsigned_indices() -> pa.RecordBatch:
    words = pa.array([f"word {index}" for index in range(200)])
    return pa.record_batch(
        {
            str(type_): pa.DictionaryArray.from_arrays(pa.array([199, None, 0, 128], type_), words)
            for type_ in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
        }
    )


def _no_columns() -> pa.RecordBatch:
    rows = pa.StructArray.from_buffers(pa.struct([]), 7, [None], children=[])
    return pa.RecordBatch.from_struct_array(rows).replace_schema_metadata({"only": "metadata"})


def _no_rows() -> pa.RecordBatch:
    return _encoded_structs_in_lists().slice(1, 0)


def _nothing_inside() -> pa.RecordBatch:
    structs = pa.StructArray.from_buffers(pa.struct([]), 3, [None], children=[])
    return pa.record_batch(
        {
            "structs": structs,
            "lists": pa.array([[], [], []], pa.list_(pa.null(), 0)),
            "bytes": pa.array([b""] * 3, pa.binary(0)),
            "": pa.nulls(3),
        }
    )


EXAMPLES: dict[str, Callable[[], pa.RecordBatch]] = {
    "several variadic buffers": _several_variadic,
    "a shared variadic buffer": _shared_variadic,
    "no variadic buffer": _no_variadic,
    "list views out of order": _list_views,
    "half floats": _half_floats,
    "largest decimals": _decimals,
    "intervals": _intervals,
    "runs of structs of runs": _runs,
    "unions in lists": _unions_in_lists,
    "encoded structs in lists": _encoded_structs_in_lists,
    "unsigned indices": _unsigned_indices,
    "no columns": _no_columns,
    "no rows": _no_rows,
    "nothing inside": _nothing_inside,
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_are_carried(example: str, road: str) -> None:
    """Each example arrives as it was sent, whoever writes and whoever reads."""
    batch = EXAMPLES[example]()
    found = carried(batch, road)
    found.validate(full=True)
    assert found.num_rows == batch.num_rows
    assert found.equals(pa.Table.from_batches([batch]), check_metadata=True)


def test_intervals_that_pyarrow_has_no_arrays_of() -> None:
    """A batch with them is checked and exported; a column of months or of days alone is refused by name."""
    batch = Batch.from_arrow(_intervals())
    batch.validate(full=True)
    assert batch.to_arrow().equals(_intervals())
    assert pa.record_batch(batch).equals(_intervals())
    for name in ("months", "day_time"):
        with pytest.raises(Unsupported, match="interval"):
            batch[name].to_arrow()


@pytest.mark.parametrize("road", ROADS)
def test_bits_of_floats_are_kept(road: str) -> None:
    """NaNs keep their payload and their sign, zeros theirs."""
    bits: dict[str, np.ndarray[Any, Any]] = {
        "half": np.array([0x7E01, 0xFE00, 0x8000], np.uint16),
        "single": np.array([0x7FC00001, 0xFFFFFFFF, 0x80000000], np.uint32),
        "double": np.array([0x7FF8000000000001, 0xFFFFFFFFFFFFFFFF, 1 << 63], np.uint64),
    }
    floats = {name: pa.array(array.view(f"f{array.itemsize}")) for name, array in bits.items()}
    found = carried(pa.record_batch(floats), road)
    for name, array in bits.items():
        kept = np.frombuffer(found[name].chunk(0).buffers()[1], array.dtype)[: len(array)]
        assert kept.tolist() == array.tolist()


class Celsius(pa.ExtensionType):
    """An extension type with a parameter."""

    def __init__(self, digits: int) -> None:
        self.digits = digits
        super().__init__(pa.float32(), "bowstring.test.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return str(self.digits).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Celsius:
        return cls(int(serialized))


@pytest.fixture
def celsius() -> Iterator[Celsius]:
    """Return an extension type that pyarrow knows for the time of a test."""
    pa.register_extension_type(Celsius(0))
    yield Celsius(2)
    pa.unregister_extension_type("bowstring.test.celsius")


@pytest.mark.parametrize("road", ROADS)
def test_registered_extension_types(celsius: Celsius, road: str) -> None:
    """An extension type that pyarrow knows comes back as itself, with its parameter, at any depth."""
    column = pa.ExtensionArray.from_storage(celsius, pa.array([1.5, None, 2.5], pa.float32()))
    structs = pa.StructArray.from_arrays([column], names=["t"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), column)
    batch = pa.record_batch({"t": column, "s": structs, "u": pa.array([b"x" * 16] * 3).cast(pa.binary(16))})
    found = carried(batch, road)
    assert found.equals(pa.Table.from_batches([batch]), check_metadata=True)
    assert found.schema.field("t").type.digits == 2
    inside = carried(pa.record_batch({"l": lists}), road)
    assert inside.schema.field("l").type.value_type.digits == 2


def test_extension_types_that_are_registered_between_two_streams(celsius: Celsius) -> None:
    """What a schema's extension types are is looked up for each stream, as pyarrow does, not remembered."""
    column = pa.ExtensionArray.from_storage(celsius, pa.array([1.5, None], pa.float32()))
    sink = io.BytesIO()
    with ipc.new_stream(sink, pa.schema({"t": celsius})) as writer:
        writer.write_batch(pa.record_batch({"t": column}))
    stream = sink.getvalue()
    assert ipc.open_stream(stream).schema.types == [celsius]
    pa.unregister_extension_type(celsius.extension_name)
    try:
        assert (
            ipc.open_stream(stream).schema.types == pa.ipc.open_stream(stream).schema.types == [pa.float32()]
        )
    finally:
        pa.register_extension_type(Celsius(0))
    assert ipc.open_stream(stream).schema.types == [celsius]


@pytest.mark.parametrize("road", ROADS)
def test_unknown_extension_types(celsius: Celsius, road: str) -> None:
    """One that nobody knows is carried as its storage, with its name and parameters beside it, at any depth."""
    known = {b"ARROW:extension:name": b"nobody.knows", b"ARROW:extension:metadata": b"\x00\xff"}
    inner = pa.field("inner", pa.int32(), metadata=known)
    storage = pa.array([[1, None], None, [3]], pa.list_(pa.int32()))
    column = pa.Array.from_buffers(pa.list_(inner), 3, storage.buffers()[:2], children=[storage.values])
    field = pa.field("outer", pa.list_(inner), metadata=known)
    batch = pa.RecordBatch.from_arrays([column], schema=pa.schema([field]))
    found = carried(batch, road)
    assert found.schema.field("outer").metadata == known
    assert found.schema.field("outer").type.value_field.metadata == known
    assert found.equals(pa.Table.from_batches([batch]), check_metadata=True)


@pytest.mark.parametrize("road", ROADS)
def test_metadata_of_schema_and_fields(road: str) -> None:
    """Pairs of schema and fields are bytes, in their order, the same key more than once, and empty ones too."""
    pairs = pa.KeyValueMetadata([("k", "1"), ("k", "2"), ("", ""), (b"\xff", b"\x00")])
    fields = [pa.field("a", pa.struct([pa.field("b", pa.int8(), metadata=pairs)]), metadata=pairs)]
    schema = pa.schema(fields, metadata=pairs)
    batch = pa.RecordBatch.from_arrays([pa.array([{"b": 1}], fields[0].type)], schema=schema)
    found = carried(batch, road).schema
    kept = (found.metadata, found.field("a").metadata, found.field("a").type.field("b").metadata)
    expected = (schema.metadata, fields[0].metadata, fields[0].type.field("b").metadata)
    assert kept == expected
    assert found.equals(schema, check_metadata=True)


def test_one_dictionary_for_two_fields() -> None:
    """Two fields that name one dictionary id have it both, as in pyarrow's reading, and are written again."""
    words = pa.array(["p", "q", None, "p"]).dictionary_encode()
    batch = pa.record_batch({"a": words, "b": words})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    _, first, _, last = (each.serialize() for each in pa.ipc.MessageReader.open_stream(sink.getvalue()))
    schema = encode_schema(batch.schema, [0, 0])
    stream = b"".join((struct.pack("<II", 0xFFFFFFFF, len(schema)), schema, first, last))
    expected = pa.Table.from_batches([batch])
    assert pa.ipc.open_stream(stream).read_all().equals(expected)
    assert ipc.open_stream(stream).read_all().equals(expected)
    for new, open_ in ((ipc.new_stream, pa.ipc.open_stream), (ipc.new_file, pa.ipc.open_file)):
        again = io.BytesIO()
        with new(again, batch.schema) as writer:
            writer.write_batch(next(ipc.open_stream(stream)))
        assert open_(again.getvalue()).read_all().equals(expected)


@pytest.mark.parametrize("road", ROADS)
def test_nesting_is_deep_and_bounded(road: str) -> None:
    """Sixty levels of lists arrive; what is deeper than the limit is refused before it is walked."""
    values: Any = [1]
    type_: pa.DataType = pa.int8()
    for _ in range(60):
        type_, values = pa.list_(type_), [values]
    batch = pa.record_batch({"deep": pa.array([values[0], None], type_)})
    assert carried(batch, road).equals(pa.Table.from_batches([batch]))


def test_schemas_that_are_too_deep_are_refused() -> None:
    """A schema of a hundred levels is refused by the limit that it passes."""
    type_: pa.DataType = pa.int8()
    for _ in range(100):
        type_ = pa.struct([("x", type_)])
    with pytest.raises(LimitExceeded, match="deep"):
        ipc.open_stream(pa.schema({"deep": type_}).serialize().to_pybytes())


@pytest.mark.parametrize("around", [lambda type_: type_, pa.list_, lambda type_: pa.struct({"x": type_})])
def test_dictionaries_of_extensions_are_not_written(around: Callable[[pa.DataType], pa.DataType]) -> None:
    """A field names its extension type and its dictionary in one place, so it would be read as another type."""
    schema = pa.schema({"a": around(pa.dictionary(pa.int8(), pa.uuid()))})
    for new in (ipc.new_stream, ipc.new_file):
        with pytest.raises(Unsupported, match=r"arrow\.uuid"):
            new(io.BytesIO(), schema)
    over = pa.schema({"a": around(pa.opaque(pa.dictionary(pa.int8(), pa.string()), "type", "vendor"))})
    assert ipc.read_schema(ipc.serialize_schema(over)).equals(over)
