"""Dictionaries in streams and files: deltas, replacements, late ones, inner ones, shared ids, on both sides."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.errors import InvalidBody, InvalidMetadata, Truncated, UsageError
from bowstring.ipc.dictionary.reader import GrowingValues
from bowstring.ipc.flatbuf.footer import Block, encode_footer, read_footer
from bowstring.ipc.flatbuf.message import decode_dictionary
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.ipc.flatbuf.template import Template
from bowstring.ipc.framing import frame
from bowstring.ipc.source import open_source
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Device, cpu, wrap
from bowstring.testing import fake_device
from tests import strategies
from tests.arrays import array_of
from tests.ipc.files import by_bowstring, by_pyarrow, growing, messages

KINDS = ("stream", "file")
INDICES = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())


def opened(data: bytes, kind: str, module: Any = ipc) -> Any:
    """Return a reader of a file or of a stream."""
    return module.open_file(data) if kind == "file" else module.open_stream(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dictionary_that_grew_is_written_as_what_was_added(kind: str) -> None:
    """With deltas asked for, only new values are written, as pyarrow does it; without, they are written anew."""
    table = growing(["a", "b"], ["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c", "d", "e"])
    data = by_bowstring(table, kind=kind, emit_dictionary_deltas=True)
    theirs = by_pyarrow(table, kind=kind, emit_dictionary_deltas=True)
    readers = [opened(each, kind, module) for each in (data, theirs) for module in (ipc, pa.ipc)]
    for reader in readers:
        assert reader.read_all()["d"].to_pylist() == table["d"].to_pylist()
    assert len({reader.stats for reader in readers}) == 1
    assert readers[0].stats.num_dictionary_deltas == 2
    if kind == "file":
        with pytest.raises(UsageError, match="replace"):
            by_bowstring(table)
    else:
        assert len(messages(by_bowstring(table, kind=kind))) == 1 + 3 + 4


@pytest.mark.parametrize("deltas", [False, True])
def test_writers_count_and_refuse_as_pyarrow(deltas: bool) -> None:
    """Streams and files of dictionaries that stay, grow, shrink, change and come back are written as by pyarrow."""
    words = (["a"], ["a", "b"], ["a", "b"], ["a"], ["b"], ["b", "c"], ["a", "b", "c"])
    for count in range(1, len(words) + 1):
        table = growing(*words[:count])
        for ours, theirs in ((ipc.new_stream, pa.ipc.new_stream), (ipc.new_file, pa.ipc.new_file)):
            stats = []
            for new, module in ((ours, ipc), (theirs, pa.ipc)):
                writer = new(
                    io.BytesIO(), table.schema, options=module.IpcWriteOptions(emit_dictionary_deltas=deltas)
                )
                try:
                    writer.write_table(table)
                    stats.append(writer.stats)
                except (UsageError, pa.ArrowInvalid):
                    stats.append(None)
                writer.close()
            assert stats[0] == stats[1]


@pytest.mark.parametrize("device", [cpu(), fake_device()], ids=str)
@given(
    type_=strategies.data_types(dictionaries=False),
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
)
def test_values_grow_as_pyarrow_joins_them(
    device: Device, type_: pa.DataType, sizes: list[int], seed: int
) -> None:
    """Values of any type are joined, where they are, to what pyarrow makes of them; what was given out stays."""
    rng = np.random.default_rng(seed)
    arrays = [array_of(type_, size, rng) for size in sizes]
    schema = pa.schema({"values": type_})
    parts = [
        Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=schema)).to_device(device)
        for array in arrays
    ]
    values = GrowingValues(parts[0])
    given_out = [values.batch()]
    for index, part in enumerate(parts[1:]):
        values.append(part)
        if index % 2:
            given_out.append(values.batch())
    given_out.append(values.batch())
    assert values.batch() is given_out[-1]
    expected = pa.concat_arrays(arrays)
    for batch in given_out:
        assert batch.device is device
        found = batch.to_device("cpu").to_arrow().column(0)
        found.validate(full=True)
        assert found.equals(expected.slice(0, len(found)))
    assert len(given_out[-1]) == len(expected)


@given(counts=st.lists(st.integers(0, 3), min_size=2, max_size=5), known=st.data())
def test_values_whose_nulls_were_not_counted_grow(counts: list[int], known: st.DataObject) -> None:
    """A null count of -1 says that nobody counted: nulls of all parts stay, whichever of them say how many."""
    arrays = [pa.array(["word", *[None] * count]) for count in counts]
    parts = [Batch.from_arrow(pa.RecordBatch.from_arrays([array], ["values"])) for array in arrays]
    for part in parts:
        if known.draw(st.booleans()):
            batch_parts(part).nodes[0, 1] = -1
    values = GrowingValues(parts[0])
    for part in parts[1:]:
        values.append(part)
    assert values.batch()[0].to_arrow().equals(pa.concat_arrays(arrays))


def _bases(batches: list[Batch], buffer: int) -> int:
    """Return at how many places a buffer of the dictionaries of some batches begins."""
    buffers = (batch.dictionaries[0].values.buffers[buffer] for batch in batches)
    return len({found.address for found in buffers if found is not None})


def test_many_deltas_are_not_copied_again_and_again() -> None:
    """Of thousands of deltas, each with a batch behind it, nearly all are appended to those before in place."""
    schema = pa.schema({"d": pa.dictionary(pa.int32(), pa.string())})
    count = 3000
    sink = io.BytesIO()
    with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for size in (1, 2):
            words = pa.array([f"w{index}" for index in range(size)])
            writer.write(
                pa.record_batch(
                    [pa.DictionaryArray.from_arrays(pa.array([size - 1], pa.int32()), words)], schema
                )
            )
    first, dictionary, batch, delta, _ = messages(sink.getvalue())
    stream = b"".join((first, dictionary, batch, *([delta, batch] * count)))
    batches = list(ipc.open_stream(stream))
    last = batches[-1].dictionaries[0].values
    assert last.num_rows == count + 1
    assert last[0].to_arrow().to_pylist() == ["w0"] + ["w1"] * count
    assert [len(each.dictionaries[0]) for each in batches] == list(range(1, count + 2))
    assert _bases(batches, 1) < 20
    assert _bases(batches, 2) < 20


def test_deltas_are_joined_when_a_batch_uses_them() -> None:
    """Deltas of lists, which cannot grow in place, are joined once for all that came between two batches."""
    lists = [pa.array([[str(index)]]) for index in range(50)]
    schema = pa.schema({"values": lists[0].type})
    parts = [Batch.from_arrow(pa.RecordBatch.from_arrays([each], schema=schema)) for each in lists]
    values = GrowingValues(parts[0])
    for part in parts[1:]:
        values.append(part)
    assert values.batch()[0].to_arrow().to_pylist() == [[str(index)] for index in range(50)]


def test_dictionaries_larger_than_their_offsets_are_refused() -> None:
    """Text of deltas that does not fit 32 bits is an error, not a wrapped offset."""
    batch = Batch.from_arrow(pa.record_batch({"values": ["x"]}))
    offsets, nothing = wrap(np.array([0, 2**31 - 1], np.int32)), wrap(bytes(16))
    # The bytes themselves are never looked at: the sum of their lengths is too large already.
    large = make_batch(Batch, batch.layout, 1, np.array([[1, 0]]), [None, offsets, nothing])
    values = GrowingValues(batch)
    values.append(batch)
    values.append(large)
    with pytest.raises(InvalidBody, match="too many bytes"):
        values.batch()


@pytest.mark.parametrize("index_type", INDICES)
@pytest.mark.parametrize("ordered", [False, True])
def test_every_index_type_and_the_order_survive(index_type: pa.DataType, ordered: bool) -> None:
    """Index types, unsigned ones too, and the ordered flag are read and written."""
    array = pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0], index_type), pa.array(["b", "a"]), ordered=ordered
    )
    table = pa.table({"d": array})
    for kind in KINDS:
        for write in (by_pyarrow, by_bowstring):
            for module in (ipc, pa.ipc):
                found = opened(write(table, kind=kind), kind, module).read_all()
                assert found.schema.field("d").type.ordered is ordered
                assert found.equals(table)


def _struct(indices: list[int | None], inner: pa.DictionaryArray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, pa.int8()), pa.StructArray.from_arrays([inner], names=["i"])
    )


def _inner(words: list[str], indices: list[int]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(words))


NESTED = pa.table(
    {
        "o": pa.chunked_array(
            [
                _struct([0, 1, None], _inner(["x", "y"], [0, 1])),
                _struct([1, 0, 1], _inner(["y", "x"], [1, 0])),
                _struct([0, 0, 2], _inner(["y", "x", "z"], [1, 0, 2])),
            ]
        )
    }
)
"""Dictionaries of dictionaries: in the second chunk the inner one is turned round, in the third both grew."""


@pytest.mark.parametrize("deltas", [False, True])
def test_dictionaries_of_dictionaries_are_written_again_when_inner_ones_change(deltas: bool) -> None:
    """Positions in an inner dictionary are never left behind when that is replaced."""
    for write in (by_bowstring, by_pyarrow):
        stream = write(NESTED, kind="stream", emit_dictionary_deltas=deltas)
        for module in (ipc, pa.ipc):
            assert module.open_stream(stream).read_all()["o"].to_pylist() == NESTED["o"].to_pylist()


def test_deltas_of_dictionaries_of_dictionaries_are_read_and_not_written() -> None:
    """We read deltas of values that use dictionaries themselves, and write none: pyarrow cannot read them."""
    grown = pa.table({"o": pa.chunked_array(NESTED["o"].chunks[1:])})
    stream = by_bowstring(grown, kind="stream", emit_dictionary_deltas=True)
    assert ipc.open_stream(stream).read_all()["o"].to_pylist() == grown["o"].to_pylist()
    schema, inner, outer, first, more, whole, second = messages(stream)
    added = ipc.read_message(whole)
    layout = ipc.open_stream(stream).layout.dictionaries[0]
    header = decode_dictionary(added.envelope).batch
    metadata = Template(layout).encode_batch(
        header.length,
        header.nodes,
        header.buffers,
        added.body.size,
        dictionary=(decode_dictionary(added.envelope).id, True),
    )
    delta = frame(metadata) + added.body.to_pybytes()
    changed = b"".join((schema, inner, outer, first, more, delta, second))
    table = ipc.open_stream(changed).read_all()
    table.validate(full=True)
    (read, expected) = (each["o"].chunk(1).dictionary.to_pylist() for each in (table, grown))
    assert read == grown["o"].chunk(0).dictionary.to_pylist() + expected
    with pytest.raises(pa.ArrowNotImplementedError):
        pa.ipc.open_stream(changed).read_all()


def _turned_round(file: bytes) -> bytes:
    """Return a file whose footer lists its dictionaries the other way round."""
    footer = read_footer(open_source(file), len(file), DEFAULT_LIMITS)
    dictionaries, batches = (
        [Block(*block) for block in table.tolist()] for table in (footer.dictionaries, footer.batches)
    )
    new = encode_footer(encode_schema(ipc.open_file(file).schema), dictionaries[::-1], batches)
    return file[: footer.start] + new + struct.pack("<i", len(new)) + b"ARROW1"


@pytest.mark.parametrize("write", [by_bowstring, by_pyarrow])
def test_dictionaries_of_dictionaries_come_in_any_order(write: Any) -> None:
    """Inner dictionaries may come behind those that use them, in a file and in a stream, as for pyarrow."""
    table = NESTED.slice(0, 3)
    file = write(table)
    for data in (file, _turned_round(file)):
        for module in (ipc, pa.ipc):
            assert module.open_file(data).read_all().equals(table)
    schema, inner, outer, batch = messages(write(table, kind="stream"))
    for order in ((inner, outer), (outer, inner)):
        stream = b"".join((schema, *order, batch))
        for module in (ipc, pa.ipc):
            assert module.open_stream(stream).read_all().equals(table)
    with pytest.raises(InvalidMetadata, match="not been sent"):
        ipc.open_stream(schema + outer + batch).read_all()


def test_a_stream_that_ends_between_its_dictionaries_is_cut_off() -> None:
    """Before the first batch, all dictionaries come or none: a stream that ends with some of them is truncated."""
    schema, inner, outer, _ = messages(by_pyarrow(NESTED.slice(0, 3), kind="stream"))
    for stream in (schema, schema + inner + outer):
        for module in (ipc, pa.ipc):
            assert module.open_stream(stream).read_all().num_rows == 0
    with pytest.raises(Truncated, match="dictionaries"):
        ipc.open_stream(schema + inner).read_all()
    with pytest.raises(pa.ArrowInvalid, match="dictionaries"):
        pa.ipc.open_stream(schema + inner).read_all()


def test_an_inner_dictionary_that_is_replaced_counts_for_the_outer_one() -> None:
    """A stream that replaces only the inner dictionary is read as by pyarrow: positions mean the new values then.

    (In pyarrow that changes the batch before, too.)
    """
    schema, inner, outer, batch = messages(by_pyarrow(NESTED.slice(0, 3), kind="stream"))
    other = pa.table({"o": _struct([0, 1, None], _inner(["p", "q"], [0, 1]))})
    replaced = messages(by_pyarrow(other, kind="stream"))[1]
    stream = b"".join((schema, inner, outer, batch, replaced, batch))
    ours, theirs = (module.open_stream(stream).read_all()["o"].to_pylist() for module in (ipc, pa.ipc))
    assert ours[:3] == NESTED["o"].to_pylist()[:3]
    assert ours[3:] == theirs[3:] == other["o"].to_pylist()


def test_a_file_does_not_replace_dictionaries() -> None:
    """Two dictionaries of one id are refused, as is a delta before what it adds to; by pyarrow, too."""
    file = by_bowstring(growing(["a"], ["a", "b"]), emit_dictionary_deltas=True)
    footer = read_footer(open_source(file), len(file), DEFAULT_LIMITS)
    first, delta = (Block(*block) for block in footer.dictionaries.tolist())
    batches = [Block(*block) for block in footer.batches.tolist()]
    schema = encode_schema(ipc.open_file(file).schema)
    envelope = ipc.read_message(file[delta.offset :]).envelope
    is_delta = Tables(envelope.data).slots(envelope.header, "DictionaryBatch")[2]
    whole = bytearray(file)
    whole[delta.offset + 8 + envelope.header + is_delta] = 0
    for start, dictionaries, what in (
        (bytes(whole), [first, delta], "replace"),
        (file, [delta, first], "never sent"),
    ):
        new = encode_footer(schema, dictionaries, batches)
        changed = start[: footer.start] + new + struct.pack("<i", len(new)) + b"ARROW1"
        with pytest.raises(InvalidMetadata, match=what):
            ipc.open_file(changed).read_all()
        with pytest.raises((pa.ArrowInvalid, pa.ArrowKeyError)):
            pa.ipc.open_file(changed).read_all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dictionary_with_a_nan_stays_the_same(kind: str) -> None:
    """Equal bytes are equal values: a dictionary with a NaN is written once."""
    chunks = [pa.array([1.5, float("nan")]).dictionary_encode() for _ in range(3)]
    table = pa.table({"d": pa.chunked_array(chunks)})
    reader = opened(by_bowstring(table, kind=kind), kind)
    reader.read_all()
    assert reader.stats.num_dictionary_batches == 1


def test_fields_that_share_a_dictionary() -> None:
    """One id in two fields: both get the values, and deltas and replacements count for both."""
    type_ = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema({"a": type_, "b": type_})
    shared = pa.py_buffer(encode_schema(schema, [5, 5]))
    one = pa.table({"a": pa.array(["x", "y"]).dictionary_encode().cast(type_)})
    _, dictionary, _ = messages(by_bowstring(one, kind="stream"))
    both = pa.table({"a": one["a"], "b": one["a"]})
    *_, batch = messages(by_bowstring(both, kind="stream"))
    values = ipc.read_message(dictionary)
    header = decode_dictionary(values.envelope).batch
    template = Template(Batch.from_arrow(pa.record_batch({"values": ["x"]})).layout)
    metadata = template.encode_batch(
        header.length, header.nodes, header.buffers, values.body.size, dictionary=(5, False)
    )
    stream = io.BytesIO()
    for data, body in ((shared, b""), (metadata, values.body)):
        stream.write(frame(bytes(data)))
        stream.write(body)
    stream.write(batch)
    for module in (ipc, pa.ipc):
        assert module.open_stream(stream.getvalue()).read_all().equals(both)
    read = ipc.open_stream(stream.getvalue()).read_next_batch()
    again = by_bowstring([read], kind="stream")
    assert pa.ipc.open_stream(again).read_all().equals(both)


def test_dictionaries_of_other_columns_are_left_alone() -> None:
    """Columns that were not chosen need no dictionary, not even a whole one."""
    table = pa.table({"a": pa.array(["x"]).dictionary_encode(), "b": pa.array(["y"]).dictionary_encode()})
    schema, first, second, batch = messages(by_bowstring(table, kind="stream"))
    options = ipc.IpcReadOptions(included_fields=[1])
    for stream in (schema + second + batch, schema + first + second + batch):
        assert ipc.open_stream(stream, options=options).read_all().equals(table.select(["b"]))
    with pytest.raises(InvalidMetadata, match="no field"):
        ipc.open_stream(pa.schema({"a": pa.int8()}).serialize().to_pybytes() + first + batch).read_all()
