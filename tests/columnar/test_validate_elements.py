"""Validation by kernels comes to pyarrow's verdict: on right batches, on mutated ones, and type by type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bowstring.columnar import Batch, Dictionary, compacted
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.columnar.spans import buffer_of
from bowstring.columnar.validation.elements import check_elements
from bowstring.errors import InvalidBody
from bowstring.memory import Device, wrap
from bowstring.testing import fake_device
from tests.strategies import record_batches

pytest.importorskip("numba")

Rng = np.random.Generator
TEMPTING = np.array([0, 1, 2, 3, 5, 0x7F, 0x80, 0xBF, 0xC3, 0xE0, 0xED, 0xF4, 0xFF], np.uint8)
TEMPTING_WORDS = np.array([0, 1, 2, -1, 10, 100, 2**31 - 1, -(2**31)], np.int32)


def pyarrows_verdict(batch: Batch) -> str | None:
    """Return what pyarrow says is wrong with a batch on the host."""
    for column in batch.columns:
        try:
            column.to_arrow().validate(full=True)
        except pa.ArrowException as error:
            return str(error)
    return None


def as_it_is(batch: Batch, device: Device, known: dict[int, Dictionary] | None = None) -> Batch:
    """Return the same buffers on a device; ``to_device`` would leave out what no slot needs."""
    if device.is_host:
        return batch
    known = {} if known is None else known
    for id_ in reversed(batch.dictionaries):
        if id_ not in known:
            known[id_] = Dictionary(id_, as_it_is(batch.dictionaries[id_].values, device, known))
    arrays = [None if each is None else device.from_host(each.to_host()) for each in batch.buffers]
    return make_batch(
        Batch,
        batch.layout,
        batch.num_rows,
        batch_parts(batch).nodes,
        [None if each is None else buffer_of(each, device) for each in arrays],
        variadic_counts=batch_parts(batch).variadic_counts,
        dictionaries={id_: known[id_] for id_ in batch.dictionaries},
        device=device,
    )


def our_verdict(batch: Batch) -> InvalidBody | None:
    """Return what the kernels say is wrong."""
    try:
        check_elements(batch)
    except InvalidBody as error:
        return error
    return None


def mutated(batch: Batch, rng: Rng, known: dict[int, Dictionary] | None = None) -> Batch:
    """Return a batch with a few bytes or null counts of it, or of its dictionaries, overwritten."""
    known = {} if known is None else known
    for id_ in reversed(batch.dictionaries):
        if id_ not in known:
            known[id_] = Dictionary(id_, mutated(batch.dictionaries[id_].values, rng, known))
    contents = [None if buffer is None else np.array(buffer.to_host()) for buffer in batch.buffers]
    present = [each for each in contents if each is not None]
    for _ in range(rng.integers(0, 3) if present else 0):
        overwrite(present[rng.integers(0, len(present))], rng)
    nodes = batch_parts(batch).nodes.copy()
    if rng.random() < 0.1:
        node = int(rng.integers(0, len(nodes)))
        if node not in batch.layout.bitmapless:  # pyarrow does not take a count from these
            nodes[node, 1] = rng.choice([-1, 0, 1, int(nodes[node, 0])])
    buffers = [None if each is None else wrap(each) for each in contents]
    return make_batch(
        Batch,
        batch.layout,
        batch.num_rows,
        nodes,
        buffers,
        variadic_counts=batch_parts(batch).variadic_counts,
        dictionaries={id_: known[id_] for id_ in batch.dictionaries},
    )


def overwrite(content: Any, rng: Rng) -> None:
    """Overwrite a bit, a byte or four bytes, somewhere."""
    at = int(rng.integers(0, len(content)))
    way = rng.integers(0, 3)
    if way == 0:
        content[at] ^= 1 << int(rng.integers(0, 8))
    elif way == 1:
        content[at] = rng.choice(TEMPTING)
    elif at + 4 <= len(content):
        content[at : at + 4] = np.array([rng.choice(TEMPTING_WORDS)]).view(np.uint8)


@given(source=record_batches(min_columns=1))
def test_what_is_right_passes(device: Device, source: pa.RecordBatch) -> None:
    """Every batch that pyarrow has validated passes, sliced, compact or not, on every device."""
    batch = Batch.from_arrow(source)
    for each in (batch, batch.slice(1), compacted(batch)):
        check_elements(as_it_is(each, device))


def compare_mutations(source: pa.RecordBatch, seed: int, device: Device, count: int) -> None:
    """Compare the verdicts on some mutations of a batch."""
    rng = np.random.default_rng(seed)
    batch = compacted(Batch.from_arrow(source))
    for _ in range(count):
        changed = mutated(batch, rng)
        try:
            changed.validate()
        except InvalidBody:
            continue
        theirs = pyarrows_verdict(changed)
        ours = our_verdict(as_it_is(changed, device))
        assert (ours is None) == (theirs is None), (ours, theirs)


@given(source=record_batches(min_columns=1, max_columns=2), seed=st.integers(0, 2**32 - 1))
def test_mutations_get_pyarrows_verdict(device: Device, source: pa.RecordBatch, seed: int) -> None:
    """Bytes overwritten anywhere are refused exactly where pyarrow refuses them.

    There is one exception, `test_the_lowest_number_is_no_decimal`; no mutation is likely to find it.
    """
    compare_mutations(source, seed, device, 5)


@pytest.mark.slow
@settings(max_examples=2000)
@given(source=record_batches(min_columns=1, max_columns=2), seed=st.integers(0, 2**32 - 1))
def test_many_mutations_get_pyarrows_verdict(device: Device, source: pa.RecordBatch, seed: int) -> None:
    """Bytes overwritten anywhere are refused exactly where pyarrow refuses them."""
    compare_mutations(source, seed, device, 25)


@pytest.mark.parametrize("bits", [128, 256])
def test_the_lowest_number_is_no_decimal(device: Device, bits: int) -> None:
    """The lowest number of 128 or 256 bits is refused; pyarrow takes it, since it has no absolute value."""
    lowest = (-(1 << (bits - 1))).to_bytes(bits // 8, "little", signed=True)
    type_ = (pa.decimal128 if bits == 128 else pa.decimal256)(3, 1)
    array = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(lowest)])
    array.validate(full=True)
    with pytest.raises(InvalidBody, match="more digits"):
        check_elements(Batch.from_arrow({"d": array}).to_device(device))


def of_bytes(type_: pa.DataType, rows: int, *buffers: Any, **options: Any) -> pa.Array:
    """Return an array of buffers given as NumPy arrays or None; pyarrow does not look into them."""
    given_ = [None if each is None else pa.py_buffer(np.ascontiguousarray(each)) for each in buffers]
    return pa.Array.from_buffers(type_, rows, given_, **options)


def numbers(type_: pa.DataType, values: list[int], bits: list[int] | None = None) -> pa.Array:
    """Return an array of numbers, whatever its type thinks of them."""
    width = type_.bit_width // 8
    data = b"".join(value.to_bytes(width, "little", signed=value < 0) for value in values)
    return of_bytes(type_, len(values), bits and np.array(bits, np.uint8), np.frombuffer(data, np.uint8))


def views(*rows: tuple[int, bytes, int, int], text: bool = True) -> pa.Array:
    """Return views into two buffers."""
    parts = b"".join(
        np.array([size], "<i4").tobytes() + prefix.ljust(4, b"\0") + np.array(rest, "<i4").tobytes()
        for size, prefix, *rest in rows
    )
    first, second = b"the first of two buffers", b"the second, not UTF-8: \xff\xff"
    buffers = (np.frombuffer(each, np.uint8) for each in (parts, first, second))
    return of_bytes(pa.string_view() if text else pa.binary_view(), len(rows), None, *buffers)


FIVE = pa.array([1, 2, 3, 4, 5], pa.int8())
UNION = (pa.field("a", pa.int8()), pa.field("b", pa.int8()))


def union(type_ids: list[int], starts: list[int] | None) -> pa.Array:
    """Return a union of two children, five slots each, with type ids 5 and 7."""
    type_ = pa.union(UNION, "sparse" if starts is None else "dense", [5, 7])
    buffers: list[Any] = [None, np.array(type_ids, np.int8)]
    if starts is not None:
        buffers.append(np.array(starts, np.int32))
    return of_bytes(type_, len(type_ids), *buffers, children=[FIVE, FIVE])


def list_views(starts: list[int], sizes: list[int], dtype: Any = np.int32) -> pa.Array:
    """Return list views into five slots, none of them valid."""
    type_ = pa.list_view(pa.int8()) if dtype is np.int32 else pa.large_list_view(pa.int8())
    arrays = (np.array(each, dtype) for each in (starts, sizes))
    return of_bytes(type_, len(starts), np.zeros(1, np.uint8), *arrays, children=[FIVE])


def encoded(indices: pa.Array, values: pa.Array) -> pa.Array:
    """Return a dictionary-encoded array, unchecked."""
    return pa.DictionaryArray.from_arrays(indices, values, safe=False)


WIDE_DICTIONARY = pa.array(range(300))
LATE = 300  # a row in the second block of rows

# What is wrong, and the place that the error must name; None where nothing is wrong.
CASES: dict[str, tuple[pa.Array, str | None]] = {
    "index": (encoded(pa.array([0, 5, 9], pa.int8()), FIVE), "c, row 1"),
    "index below 0": (encoded(pa.array([0, -1], pa.int8()), WIDE_DICTIONARY), "c, row 1"),
    "index of 64 bits": (encoded(pa.array([2**64 - 1], pa.uint64()), FIVE), "c, row 0"),
    "index of an empty dictionary": (encoded(pa.array([0]), FIVE[:0]), "c, row 0"),
    "index in a null": (encoded(numbers(pa.int8(), [0, 9], [0b01]), FIVE), None),
    "value of a dictionary": (
        encoded(pa.array([0, 0]), numbers(pa.time32("s"), [0, -1])),
        "c.dictionary, slot 1",
    ),
    "time32": (numbers(pa.time32("ms"), [0, 86_400_000]), "c, row 1"),
    "time64": (numbers(pa.time64("ns"), [86_399_999_999_999, -1]), "c, row 1"),
    "late row": (numbers(pa.time64("us"), [*range(LATE), -1]), f"c, row {LATE}"),
    "time in a null": (numbers(pa.time32("s"), [5, -1], [0b01]), None),
    "date64": (numbers(pa.date64(), [-86_400_000, 1]), "c, row 1"),
    "date64 in a null": (numbers(pa.date64(), [1], [0]), None),
    **{
        f"{type_} {value}": (numbers(type_, [0, value]), None if abs(value) < 1000 else "c, row 1")
        for type_ in (pa.decimal32(3), pa.decimal64(3), pa.decimal128(3), pa.decimal256(3))
        for value in (999, 1000, -999, -1000)
    },
    "decimal of many words": (numbers(pa.decimal256(76), [10**76 - 1, -(10**76)]), "c, row 1"),
    "decimal in a null": (numbers(pa.decimal128(3), [0, 5000], [0b01]), None),
    "list view": (list_views([0, 2, 4], [5, 3, 2]), "c, row 2"),
    "list view that is long": (list_views([0], [2**31 - 1]), "c, row 0"),
    "list view that is large": (list_views([1, 2], [1, 2**63 - 1], np.int64), "c, row 1"),
    "list view below 0": (list_views([0, -1], [1, 1]), "c, row 1"),
    "list view of less than nothing": (list_views([0, 1], [1, -1]), "c, row 1"),
    "list view at the end": (list_views([5], [0]), None),
    "sparse union": (union([5, 7, 6, 5, 5], None), "c, row 2"),
    "sparse union below 0": (union([5, -3, 7, 5, 5], None), "c, row 1"),
    "dense union": (union([5, 7, 5], [0, 0, 0]), None),
    "dense union without child": (union([5, 7, 1], [0, 0, 0]), "c, row 2"),
    "dense union below 0": (union([5, 7], [0, -1]), "c, row 1"),
    "dense union beyond": (union([5, 7], [5, 0]), "c, row 0"),
    "dense union that falls": (union([5, 7, 5], [2, 3, 1]), "c, row 2"),
    "dense union that falls late": (
        union([*[5] * LATE, 7, *[5] * LATE, 7], [*[1] * LATE, 3, *[1] * LATE, 2]),
        f"c, row {2 * LATE + 1}",
    ),
    "view": (views((3, b"abc", 0, 0), (14, b"the ", 1, 4)), "c, row 1"),
    "view of another prefix": (views((14, b"that", 0, 0)), "c, row 0"),
    "view of less than nothing": (views((-1, b"", 0, 0), text=False), "c, row 0"),
    "view without buffer": (views((14, b"the ", 2, 0)), "c, row 0"),
    "view with a buffer below 0": (views((14, b"the ", -1, 0)), "c, row 0"),
    "view beyond its buffer": (views((25, b"the ", 0, 0)), "c, row 0"),
    "view before its buffer": (views((14, b"the ", 0, -1)), "c, row 0"),
    "view with something behind it": (views((3, b"abcd", 0, 0)), "c, row 0"),
    "view of all twelve": (views((12, b"abcd", 0x41414141, 0x42424242)), None),
    "view of text": (views((22, b"the ", 1, 0), (24, b"the ", 0, 0)), None),
    "view of no text": (views((25, b"the ", 1, 0)), "c, row 0"),
    "view of binary": (views((25, b"the ", 1, 0), text=False), None),
    "view of no text inside": (views((2, b"a\xc3", 0, 0)), "c, row 0"),
}


@pytest.mark.parametrize("what", CASES)
def test_each_rule_is_pyarrows_and_names_the_row(device: Device, what: str) -> None:
    """Each kind of fault is refused where pyarrow refuses it, and the error says where it is."""
    array, where = CASES[what]
    theirs = pyarrows_verdict(Batch.from_arrow({"c": array}))
    error = our_verdict(as_it_is(Batch.from_arrow({"c": array}), device))
    assert (theirs is None) == (where is None), theirs
    assert (None if error is None else error.where) == where


def test_rows_are_named_through_parents(device: Device) -> None:
    """A fault in a child is named by the row of the batch that holds it, or by its slot where several might."""
    times = numbers(pa.time32("s"), [0, 1, 2, 3, -1, 5])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 6], pa.int32()), times)
    pairs = pa.FixedSizeListArray.from_arrays(times, 2)
    shown = pa.ListViewArray.from_arrays(pa.array([0, 4], pa.int32()), pa.array([1, 2], pa.int32()), times)
    # Slots before and behind what offsets delimit belong to no row.
    outside = pa.ListArray.from_arrays(pa.array([0, 4], pa.int32()), times)
    nested = pa.StructArray.from_arrays([pairs], ["pair"])
    expected = {
        "l": (lists, "l.item, row 2"),
        "p": (pairs, "p.item, row 2"),
        "s": (nested, "s.pair.item, row 2"),
        "v": (shown, "v.item, slot 4"),
        "o": (outside, "o.item, slot 4"),
    }
    for name, (array, where) in expected.items():
        error = our_verdict(as_it_is(Batch.from_arrow({name: array}), device))
        assert error is not None
        assert error.where == where


def test_the_host_reads_a_few_times() -> None:
    """However many columns there are, the host reads ends twice, and all answers at once."""
    fake = fake_device()
    columns = {f"t{i}": pa.array(["a", "ä", None]) for i in range(20)} | {"l": pa.array([[1], [2, None], []])}
    batch = Batch.from_arrow(columns).to_device(fake)
    fake.stats.reset()
    batch.validate(full=True)
    assert fake.stats.host_reads <= 3
