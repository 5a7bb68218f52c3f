"""The structural checks, one rule at a time, and against pyarrow's verdict."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.errors import BowstringError, InvalidBody, InvalidMetadata
from bowstring.ipc.body.check import check, check_offsets, check_pairs
from bowstring.ipc.body.pack import unpack
from bowstring.ipc.flatbuf.message import RecordBatchHeader, decode_message, decode_record_batch
from bowstring.ipc.flatbuf.template import Template
from bowstring.memory import wrap
from tests import strategies
from tests.ipc.forms import by_integers, by_kernel, needs_library

HUGE = 2**63 - 1


def header_of(batch: pa.RecordBatch) -> tuple[RecordBatchHeader, int]:
    """Return a header that can be changed, and the length of its body."""
    message = decode_message(pa.ipc.read_message(batch.serialize()).metadata)
    header = decode_record_batch(message)
    return header._replace(nodes=header.nodes.copy(), buffers=header.buffers.copy()), message.body_length


FLAT = pa.record_batch({"a": pa.array([1, None, 3], pa.int64()), "b": ["x", "yz", "w"]})
NESTED = pa.record_batch(
    {
        "list": [[1, 2], None, [3]],
        "struct": [{"x": 1}, {"x": 2}, {"x": 3}],
        "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
        "map": pa.array([[("k", 1)], [], [("l", 2)]], pa.map_(pa.string(), pa.int8())),
        "view": pa.array(["x" * 20, "y", "z" * 30], pa.string_view()),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, 8])),
    }
)
A_NULL, A_DATA, B_NULL, B_ENDS, B_TEXT = range(5)
OFFSET, LENGTH = 0, 1
FLAT_LIES = {
    "offset negative": ("buffers", A_DATA, OFFSET, -8, "negative"),
    "length negative": ("buffers", A_DATA, LENGTH, -1, "negative"),
    "length of an absent buffer negative": ("buffers", B_NULL, LENGTH, -1, "negative"),
    "offset beyond the body": ("buffers", B_TEXT, OFFSET, 4096, "outside"),
    "length beyond the body": ("buffers", B_TEXT, LENGTH, 4096, "outside"),
    "offset overflows": ("buffers", A_DATA, OFFSET, HUGE - 7, "outside"),
    "length overflows": ("buffers", A_DATA, LENGTH, HUGE, "outside"),
    "misaligned": ("buffers", A_DATA, OFFSET, 12, "misaligned"),
    "data too short": ("buffers", A_DATA, LENGTH, 23, "too short"),
    "data absent": ("buffers", A_DATA, LENGTH, 0, "too short"),
    "offsets too short": ("buffers", B_ENDS, LENGTH, 15, "too short"),
    "validity absent": ("buffers", A_NULL, LENGTH, 0, "missing"),
    "column too long": ("nodes", 0, 0, 4, "another length"),
    "column too short": ("nodes", 1, 0, 2, "another length"),
    "column negative": ("nodes", 0, 0, -1, "another length"),
    "more nulls than rows": ("nodes", 0, 1, 4, "null count"),
    "nulls negative": ("nodes", 1, 1, -2, "null count"),
    "nulls huge": ("nodes", 1, 1, HUGE, "null count"),
    "nulls without a bitmap": ("nodes", 1, 1, 1, "missing"),
}


@pytest.mark.parametrize("lie", FLAT_LIES)
def test_each_rule_for_flat_columns(lie: str) -> None:
    """One wrong number is one error, which names the column."""
    table, row, field, value, words = FLAT_LIES[lie]
    header, body = header_of(FLAT)
    layout = Layout.of(FLAT.schema)
    check(header, layout, body)
    getattr(header, table)[row, field] = value
    with pytest.raises(InvalidMetadata, match=words) as caught:
        check(header, layout, body)
    assert (caught.value.where or "").partition(",")[0] in FLAT.schema.names


EVEN = pa.record_batch({name: pa.array([1, None, 3] * 7, pa.int64()) for name in "abc"})
EDGES = st.integers(-9, 9) | st.sampled_from(
    [21, 22, 64, 167, 168, 169, 192, 4096, 2**62, HUGE, HUGE - 7, -HUGE - 1, -HUGE + 7, -64, -168]
)


def _fits(header: RecordBatchHeader, body: int) -> bool:
    """Whether a header of `EVEN` is right, number by number."""
    rows = header.length
    for (length, nulls), bitmap, values in zip(
        header.nodes.tolist(), header.buffers[::2].tolist(), header.buffers[1::2].tolist(), strict=True
    ):
        if length != rows or not -1 <= nulls <= rows or values[1] < 8 * rows:
            return False
        if bitmap[1] < (rows + 7) // 8 and not (bitmap[1] == 0 and nulls <= 0):
            return False
        for offset, size in (bitmap, values):
            if size < 0 or (size and (offset < 0 or offset % 8 or offset + size > body)):
                return False
    return rows >= 0


@given(
    lies=st.lists(st.tuples(st.booleans(), st.integers(0, 11), EDGES), max_size=3),
    rows=st.sampled_from([21, 21, 21, 0, 20, -1, 2**61]),
    absent=st.sets(st.integers(0, 2)),
)
@example([], 21, {1})
@example([(True, 1, 1)], 21, {0})  # nulls without a bitmap
@example([(True, 1, -1)], 21, {0})  # maybe nulls
@example([(False, 3, 167)], 21, set())  # values too short
@example([(False, 1, 2)], 21, set())  # a bitmap too short
@example([(False, 3, -168)], 21, set())
@example([(False, 2, -168)], 21, set())  # with its length, the sum is 0
@example([(False, 2, 4)], 21, set())
@example([(False, 0, 4)], 21, {0})  # where nothing is
@example([], 0, {0, 2})
def test_evenly_laid_columns_against_a_model(
    lies: list[tuple[bool, int, int]], rows: int, absent: set[int]
) -> None:
    """Columns of one kind, some without nulls and bitmaps, are right exactly if each of their numbers is."""
    header, body = header_of(EVEN)
    header = header._replace(length=rows)
    header.nodes[:, 0] = rows
    for column in absent:
        header.nodes[column, 1] = header.buffers[2 * column, 1] = 0
    for in_nodes, place, value in lies:
        table = header.nodes if in_nodes else header.buffers
        table.flat[place % table.size] = value
    try:
        check(header, Layout.of(EVEN.schema), body)
        found = True
    except InvalidMetadata:
        found = False
    assert found == _fits(header, body)


def _node(path: str) -> int:
    return [".".join(node.path) for node in Layout.of(NESTED.schema).nodes].index(path)


NESTED_LIES = {
    "child of a struct too short": ("struct.x", 0, 2, "shorter"),
    "child of a fixed-size list too short": ("pair.item", 0, 5, "shorter"),
    "child negative": ("list.item", 0, -1, "negative"),
    "child too long for its buffers": ("list.item", 0, 1000, "too short"),
    "entries of a map null": ("map.entries", 1, 1, "cannot be null"),
    "keys of a map null": ("map.entries.key", 1, 1, "cannot be null"),
    "fewer values than runs": ("runs.values", 0, 1, "runs"),
    "no runs": ("runs.run_ends", 0, 0, "runs"),
    "overflowing child": ("list.item", 0, HUGE, "too short"),
    "overflowing parent": ("pair.item", 0, HUGE // 8, "too short"),
}


@pytest.mark.parametrize("lie", NESTED_LIES)
def test_each_rule_for_nested_columns(lie: str) -> None:
    """Children are as long as their parents need, and never longer than their buffers."""
    path, field, value, words = NESTED_LIES[lie]
    header, body = header_of(NESTED)
    layout = Layout.of(NESTED.schema)
    check(header, layout, body)
    header.nodes[_node(path), field] = value
    with pytest.raises(InvalidMetadata, match=words):
        check(header, layout, body)


def test_counts_of_everything_fit_the_schema() -> None:
    """Too few or too many nodes, buffers or variadic counts are refused, and so are negative lengths."""
    header, body = header_of(NESTED)
    layout = Layout.of(NESTED.schema)
    for wrong, words in (
        (header._replace(nodes=header.nodes[:-1]), "nodes"),
        (header._replace(nodes=np.vstack([header.nodes, [[0, 0]]])), "nodes"),
        (header._replace(buffers=header.buffers[:-1]), "buffers"),
        (header._replace(variadic_counts=()), "variadic"),
        (header._replace(variadic_counts=(1, 1)), "variadic"),
        (header._replace(variadic_counts=(-1,)), "variadic"),
        (header._replace(variadic_counts=(2,)), "buffers"),
        (header._replace(variadic_counts=(2**62,)), "buffers"),
        (header._replace(length=-1), "negative"),
        (header._replace(length=4), "another length"),
    ):
        with pytest.raises(InvalidMetadata, match=words):
            check(wrong, layout, body)


def test_overflow_is_found_in_flat_and_nested_batches() -> None:
    """Lengths whose bytes do not fit 64 bits are not taken for small ones."""
    for type_ in (pa.binary(1 << 20), pa.list_(pa.int8(), 1 << 20), pa.list_(pa.int8(), 2**31 - 1)):
        layout = Layout.of(pa.schema({"a": type_}))
        for length in (HUGE, 1 << 60, 1 << 44, 1 << 32):
            nodes = np.full((layout.num_nodes, 2), (length, 0))
            header = RecordBatchHeader(length, nodes, np.zeros((layout.num_buffers, 2), np.int64))
            with pytest.raises(InvalidMetadata, match=r"too short|shorter"):
                check(header, layout, 0)


def test_nothing_is_kept_of_a_batch_of_very_many_buffers() -> None:
    """How many buffers a batch has a peer says: of a large number of them, nothing stays behind the check."""
    layout = Layout.of(pa.schema({"text": pa.string_view()}))
    many = 1 << 20
    header = RecordBatchHeader(0, np.zeros((1, 2), np.int64), np.zeros((many + 2, 2), np.int64), (many,))
    check(header, layout, 0)
    tracemalloc.start()
    try:
        check(
            header._replace(buffers=np.zeros((many + 3, 2), np.int64), variadic_counts=(many + 1,)), layout, 0
        )
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < many


def test_what_arrow_allows_is_allowed() -> None:
    """Unknown null counts, absent bitmaps and offsets of empty batches, and wild offsets of empty buffers."""
    layout = Layout.of(FLAT.schema)
    header, body = header_of(FLAT)
    header.nodes[:, 1] = -1
    check(header, layout, body)
    header.buffers[B_NULL] = (HUGE - 1, 0)
    check(header, layout, body)
    nothing = RecordBatchHeader(0, np.zeros((2, 2), np.int64), np.zeros((5, 2), np.int64))
    check(nothing, layout, 0)
    empty = Layout.of(pa.schema([]))
    check(RecordBatchHeader(5, np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64)), empty, 0)
    nulls = Layout.of(pa.schema({"n": pa.null()}))
    check(RecordBatchHeader(5, np.array([[5, 5]]), np.zeros((0, 2), np.int64)), nulls, 0)


def test_nulls_of_unions_and_runs_are_those_of_their_children() -> None:
    """A null count where there is no bitmap is refused by the check, and set to 0 by readers of streams."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([7]))
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, None])])
    batch = pa.record_batch({"runs": runs, "union": union})
    layout = Layout.of(batch.schema)
    for value in (1, -1):
        header, body = header_of(batch)
        header.nodes[layout.bitmapless, 1] = value
        with pytest.raises(InvalidMetadata, match="cannot be null"):
            check(header, layout, body)
        found = unpack(header, layout, wrap(pa.ipc.read_message(batch.serialize()).body))
        assert found.to_arrow().equals(batch)
    with pytest.raises(InvalidMetadata, match="nodes"):
        unpack(header._replace(nodes=header.nodes[:-1]), layout, wrap(bytes(body)))


def test_pairs_have_the_lengths_that_the_metadata_say() -> None:
    """For bodies given by address, offsets mean nothing and lengths are compared pair by pair."""
    header, _ = header_of(FLAT)
    layout = Layout.of(FLAT.schema)
    lengths = header.buffers[:, 1].copy()
    header.buffers[:, 0] = 13
    check_pairs(header, layout, lengths)
    with pytest.raises(InvalidMetadata, match="pairs"):
        check_pairs(header, layout, lengths[:-1])
    with pytest.raises(InvalidMetadata, match="differ"):
        check_pairs(header, layout, lengths + 8)
    header.buffers[B_NULL, 1] = lengths[B_NULL] = -5
    with pytest.raises(InvalidMetadata, match="negative"):
        check_pairs(header, layout, lengths)
    header.buffers[B_NULL, 1] = lengths[B_NULL] = 0
    header.buffers[A_DATA, 1] = lengths[A_DATA] = 16
    with pytest.raises(InvalidMetadata, match="too short"):
        check_pairs(header, layout, lengths)


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.list_(pa.int8()), pa.large_list(pa.int8())]
)
@pytest.mark.parametrize("ends", [(-1, 2), (0, -1), (2, 1), (0, 3), (0, 2**30), (2**30, 2**30)])
def test_first_and_last_offsets_are_looked_at(type_: pa.DataType, ends: tuple[int, int]) -> None:
    """Offsets that are negative, decrease, or end behind what they delimit make the body invalid."""
    layout = Layout.of(pa.schema({"a": type_}))
    width = 8 if "large" in str(type_) else 4
    offsets = np.array([ends[0], 0, ends[1]], f"<i{width}").tobytes()
    body = wrap(np.frombuffer(offsets.ljust(32, b"\0") + bytes(2), np.uint8))
    nodes = [[2, 0]] + [[2, 0]] * (layout.num_nodes - 1)
    buffers = [[0, 0], [0, 3 * width]] + [[0, 0]] * (layout.num_buffers - 3) + [[32, 2]]
    header = RecordBatchHeader(2, np.array(nodes), np.array(buffers))
    with pytest.raises(InvalidBody, match="offsets"):
        unpack(header, layout, body)


@pytest.mark.parametrize("ends", [(0, 3), (2, 1), (-1, 3), (1, 2)])
def test_first_and_last_run_ends_are_looked_at(ends: tuple[int, int]) -> None:
    """Run ends that begin at 0, decrease, or stop before their column does make the body invalid."""
    batch = pa.record_batch(
        {"a": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int16()), pa.array([7, 8]))}
    )
    header, length = header_of(batch)
    body = np.frombuffer(pa.ipc.read_message(batch.serialize()).body, np.uint8).copy()
    unpack(header, Layout.of(batch.schema), wrap(body))
    body[:4] = np.frombuffer(np.array(ends, "<i2").tobytes(), np.uint8)
    assert len(body) == length
    with pytest.raises(InvalidBody, match="runs"):
        unpack(header, Layout.of(batch.schema), wrap(body))


def test_offsets_in_several_regions_and_at_odd_places() -> None:
    """Offsets are looked at wherever their buffers lie: in one region or many, at any address."""
    texts = pa.record_batch({"a": ["x", "yz"], "b": ["uvw", ""], "c": [[1], [2, 3]]})
    check_offsets(Batch.from_arrow(texts))
    layout = Layout.of(pa.schema({"a": pa.string(), "b": pa.string()}))
    memory = np.zeros(64, np.uint8)
    memory[1:9] = np.frombuffer(np.array([0, 3], "<i4").tobytes(), np.uint8)
    memory[14:22] = np.frombuffer(np.array([0, 3], "<i4").tobytes(), np.uint8)
    spans = [(0, 0, 0), (0, 1, 8), (0, 40, 3), (0, 0, 0), (0, 14, 8), (0, 43, 3)]
    region = wrap(memory).region
    nodes = np.array([[1, 0], [1, 0]])
    check_offsets(make_batch(Batch, layout, 1, nodes, spans=np.array(spans), regions=(region,)))
    spans[5] = (0, 43, 2)
    with pytest.raises(InvalidBody, match="at b"):
        check_offsets(make_batch(Batch, layout, 1, nodes, spans=np.array(spans), regions=(region,)))
    spans[1] = (0, 1, 7)
    with pytest.raises(InvalidBody, match="too short"):
        check_offsets(make_batch(Batch, layout, 1, nodes, spans=np.array(spans), regions=(region,)))


TYPES = strategies.data_types(dictionaries=False)


def _schema(types: list[pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(f"c{index}", type_) for index, type_ in enumerate(types)])


@given(
    batch=st.lists(TYPES, min_size=1, max_size=3).map(_schema).flatmap(strategies.record_batches),
    data=st.data(),
)
def test_bowstring_refuses_what_pyarrow_refuses(batch: pa.RecordBatch, data: st.DataObject) -> None:
    """One number of a header changed at random: what passes here passes pyarrow's validate, too."""
    schema = batch.schema
    layout = Layout.of(schema)
    message = pa.ipc.read_message(batch.serialize())
    header, body_length = header_of(batch)
    which = data.draw(st.sampled_from(["nodes", "buffers"]))
    target = getattr(header, which)
    if not len(target):
        return
    row, field = data.draw(st.integers(0, len(target) - 1)), data.draw(st.integers(0, 1))
    old = int(target[row, field])
    new = data.draw(st.sampled_from([old - 8, old - 1, old + 1, old + 8, 0, -1, HUGE, 2**40]))
    target[row, field] = new
    metadata = Template(layout).encode_batch(
        header.length, header.nodes, header.buffers, body_length, header.variadic_counts
    )
    try:
        unpack(
            decode_record_batch(decode_message(metadata)), layout, wrap(message.body)
        ).to_arrow().validate()
    except BowstringError:
        return
    framed = b"\xff\xff\xff\xff" + len(metadata).to_bytes(4, "little") + metadata + message.body.to_pybytes()
    try:
        pa.ipc.read_record_batch(pa.py_buffer(framed), schema).validate()
    except pa.ArrowInvalid as error:
        # We hand null columns, unions and runs over with the count that their type implies, whatever the header
        # says, and an unknown count without a bitmap as no nulls.
        unknown = (which, field, new) == ("nodes", 1, -1) and "Buffer #0 too small" in str(error)
        without_bitmap = {*layout.bitmapless, *layout.null_nodes}
        implied = (which, field) == ("nodes", 1) and row in without_bitmap
        if not (unknown or implied):
            raise


def test_a_wrong_place_is_found_among_very_many_buffers() -> None:
    """Of many variadic buffers, one that is misaligned is named."""
    view, count = pa.array(["x" * 20], pa.string_view()), 8193
    layout = Layout.of(pa.schema({"a": view.type}))
    buffers = np.zeros((count, 2), np.int64)
    buffers[1, LENGTH] = 16
    header = RecordBatchHeader(1, np.array([(1, 0)]), buffers, variadic_counts=(count - 2,))
    check(header, layout, 16)
    buffers[-1] = 4, 8
    with pytest.raises(InvalidMetadata, match="misaligned"):
        check(header, layout, 16)


@needs_library
@given(batch=strategies.record_batches())
def test_both_forms_find_whole_batches_right(batch: pa.RecordBatch) -> None:
    """Batches as pyarrow writes them are right for the kernel and in plain integers."""
    header, _ = header_of(batch)
    layout, body = Layout.of(batch.schema), wrap(pa.ipc.read_message(batch.serialize()).body)
    assert by_integers(header, layout, body) is not None
    assert (by_kernel(header, layout, body) is None) is (layout.reading_plan is None)


@needs_library
@given(
    batch=strategies.record_batches(),
    changes=st.lists(
        st.tuples(
            st.sampled_from(["nodes", "buffers", "length"]), st.integers(0, 1000), EDGES | st.integers(-1, 40)
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_the_kernel_never_lets_through_what_plain_integers_refuse(
    batch: pa.RecordBatch, changes: list[tuple[str, int, int]]
) -> None:
    """Whatever numbers of a header are others, what the kernel finds right is right in plain integers, too."""
    header, _ = header_of(batch)
    for what, place, number in changes:
        if what == "length":
            header = header._replace(length=number)
        elif (table := getattr(header, what)).size:
            table.flat[place % table.size] = number
    layout, body = Layout.of(batch.schema), wrap(pa.ipc.read_message(batch.serialize()).body)
    found, expected = by_kernel(header, layout, body), by_integers(header, layout, body)
    assert found is None or expected is not None
    if found is not None and expected is not None:
        assert found.nodes[0].tolist() == batch_parts(expected).nodes.tolist()
        assert found.counts[0] == batch_parts(expected).variadic_counts
        assert _present(found.spans) == _present(batch_parts(expected).spans.table)


def _present(spans: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[list[int]]:
    return spans[spans[:, 2] != 0].tolist()


@pytest.mark.parametrize("columns", [1, 40])
@pytest.mark.parametrize("length", [2**31, 2**32, 2**44, 2**58, 2**60, 2**61, 2**62, HUGE])
@pytest.mark.parametrize(
    "type_",
    [pa.int64(), pa.int8(), pa.bool_(), pa.string(), pa.decimal256(5), pa.binary(1 << 30), pa.string_view()],
    ids=str,
)
def test_sizes_in_bytes_do_not_wrap(type_: pa.DataType, length: int, columns: int) -> None:
    """A batch that claims so many rows that their bytes do not fit 64 bits is refused in both forms."""
    layout = Layout.of(pa.schema([(f"c{index}", type_) for index in range(columns)]))
    counts = (0,) * len(layout.variadic_nodes)
    nodes = np.full((layout.num_nodes, 2), (length, 0))
    buffers = np.zeros((layout.num_buffers, 2), np.int64)
    for size in (0, 8, 32):
        buffers[:, 1] = size
        header = RecordBatchHeader(length, nodes, buffers, counts)
        assert by_kernel(header, layout, wrap(bytes(32))) is None
        with pytest.raises(InvalidMetadata, match="too short"):
            check(header, layout, 32)
        with pytest.raises(InvalidMetadata, match="too short"):
            check_pairs(header, layout, buffers[:, 1])


@pytest.mark.parametrize("wrong", [None, (0, 1), (33, 5), (39, -1)])
@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.list_(pa.int8())], ids=str)
def test_offsets_of_many_columns_are_looked_at(type_: pa.DataType, wrong: tuple[int, int] | None) -> None:
    """In a batch of many columns, one offset that is wrong is found, and its column named."""
    value = [1, 2] if pa.types.is_list(type_) else "ab"
    batch = pa.record_batch({f"c{index}": pa.array([value, value], type_) for index in range(40)})
    header, length = header_of(batch)
    layout = Layout.of(batch.schema)
    body = np.frombuffer(pa.ipc.read_message(batch.serialize()).body, np.uint8).copy()
    assert len(body) == length
    if wrong is None:
        assert unpack(header, layout, wrap(body)).to_arrow().equals(batch)
        return
    column, number = wrong
    offsets = layout.offsets[column]
    start = int(header.buffers[offsets.buffer, OFFSET])
    last = start + 2 * offsets.width
    body[last : last + offsets.width].view(f"<i{offsets.width}")[:] = number
    if number == 1:  # fewer than there are, which is no error
        unpack(header, layout, wrap(body))
        return
    with pytest.raises(InvalidBody, match=f"at c{column}$"):
        unpack(header, layout, wrap(body))
