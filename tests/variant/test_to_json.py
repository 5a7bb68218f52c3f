"""JSON text by kernels: what plain Python writes, row by row, whatever the bytes and wherever they are."""

from __future__ import annotations

import dataclasses
import json
import struct
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Batch, Column
from bowstring.errors import BowstringError, InvalidBody, LimitExceeded, Unsupported
from bowstring.kernels import host
from bowstring.kernels.signature import Kernel, match
from bowstring.limits import DEFAULT_LIMITS
from bowstring.testing import fake_device
from bowstring.variant import Status
from bowstring.variant.codec.decode import decode
from bowstring.variant.codec.primitives import Value
from bowstring.variant.codec.rows import in_row
from bowstring.variant.column import dictionary_of
from bowstring.variant.json import writer as json_texts
from bowstring.variant.json.writer import rows_of
from tests.variant.conftest import Move
from tests.variant.encoding import Widths, encode, metadata_bytes, object_bytes
from tests.variant.get_columns import MARK, METADATA_FORMS, VALUE_FORMS, Row, column_of
from tests.variant.hostile import GOOD, corpus_of, flipped, prefixes
from tests.variant.test_hostile_get import guarded_run
from tests.variant.text_oracle import ALL_RULES, check_texts, texts_by_host, texts_by_kernel
from tests.variant.typed_values import PRIMITIVE_VALUES, VALUES

WIDTHS = st.builds(Widths, st.integers(1, 4), st.integers(1, 4))
NULL = bytes([0])
EMPTY = b"\x01\x00\x00"


@given(trees=st.lists(st.none() | VALUES, max_size=6), widths=WIDTHS)
def test_every_tree_is_written_as_python_writes_it(trees: list[Value | None], widths: Widths) -> None:
    """Trees of every type, in every width, are the same text by both rules, on the CPU and on a device."""
    rows: list[Row] = [None if tree is None else encode(tree, widths) for tree in trees]
    column = column_of(rows)
    check_texts(column, rows)
    check_texts(column.as_batch().to_device(fake_device())[0], rows)


@pytest.mark.parametrize("value", VALUE_FORMS)
@pytest.mark.parametrize("metadata", METADATA_FORMS)
def test_every_form_of_column(metadata: str, value: str, on_device: Move) -> None:
    """Every type at its bounds is right in every form of column, and the result is a column of valid text."""
    small = [each for each in PRIMITIVE_VALUES if len(str(each.value)) < 1000]
    trees = [*small, Value("object", {"ä\n": Value("array", small), '"': small[0]})]
    rows: list[Row] = [None, *map(encode, trees), None]
    column = on_device(column_of(rows, metadata, value))
    for rules in ALL_RULES:
        texts = variant.to_json(column, rules=rules)
        texts.as_batch().validate(full=True)
        assert (texts.device, texts.name, texts.type) == (column.device, "v", pa.string())
        assert texts.as_batch().to_device("cpu")[0].to_arrow().to_pylist() == texts_by_host(rows, rules)


def test_long_text_and_many_rows(on_device: Move) -> None:
    """More rows than are written at once, and rows that need far more room than their bytes, are all there."""
    names = ["k" * 200, "\x00" * 50]
    metadata = metadata_bytes(tuple(sorted(names)))
    wide = object_bytes([(index, b"\x00") for index in range(2)])
    rows: list[Row] = [(metadata, wide), None, encode(Value("string", '"' * 70_000))] * 3
    rows += [encode(Value("int8", row % 100)) for row in range(20_000)] + rows
    check_texts(on_device(column_of(rows)), rows)


def test_rows_that_need_more_room_than_is_written_at_once() -> None:
    """Many long rows, and one that is longer than what is written at once, first, amid others and last."""
    longest = encode(Value("string", "\x01" + "x" * (12 << 20)))
    long: list[Row] = [None, *(encode(Value("string", "\x01" * size)) for size in range(4000, 5000, 31))]
    short: list[Row] = [None, *map(encode, PRIMITIVE_VALUES)]
    rows = [longest, *short, *long, longest, *long, *short * 4, longest]
    check_texts(column_of(rows), rows)


def test_rows_may_not_share_their_bytes_without_end(on_device: Move) -> None:
    """Views that all show one large value are refused before anything is read; some may."""
    metadata, value = encode(Value("string", "x" * 1000))
    limits = DEFAULT_LIMITS.replace(decompression_floor=5000, decompression_ratio=10)
    for count, right in ((3, True), (100, False)):
        views = struct.pack("<i4sii", len(value), value[:4], 0, 0) * count
        buffers = [None, pa.py_buffer(views), pa.py_buffer(value)]
        values = pa.Array.from_buffers(pa.binary_view(), count, buffers)
        array = pa.StructArray.from_arrays(
            [pa.array([metadata] * count), values], names=["metadata", "value"]
        )
        schema = pa.schema([pa.field("v", array.type, metadata=MARK)])
        shared = on_device(Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=schema))[0])
        if right:
            assert len(variant.to_json(shared, limits=limits)) == count
            continue
        for call in (variant.to_json, lambda each, limits: variant.equals(each, each, limits=limits)):
            with pytest.raises(LimitExceeded, match="share"):
                call(shared, limits=limits)


def test_wild_offsets(on_device: Move) -> None:
    """Offsets that lead far outside are errors of their rows."""
    opened = variant.open_column(on_device(column_of([GOOD, GOOD, GOOD], value="large_binary")))
    device, size = opened.column.device, len(GOOD[1])
    starts = device.xp.asarray(np.array([0, size, 1 << 40], np.int64))
    stops = device.xp.asarray(np.array([size, 1 << 40, (1 << 63) - 1], np.int64))
    opened = dataclasses.replace(opened, value=dataclasses.replace(opened.value, starts=starts, stops=stops))
    texts = rows_of(opened, dictionary_of(opened), rules="plain", limits=DEFAULT_LIMITS).texts()
    assert device.to_host(texts.statuses).tolist() == [Status.OK, Status.MALFORMED, Status.MALFORMED]
    assert device.to_host(texts.data).tobytes() == b'{"species":{"name":"good"}}'


def escaped(texts: list[str]) -> None:
    column = variant.from_python([*texts, {text: text for text in texts}])
    found = variant.to_json(column).to_arrow().to_pylist()
    assert found[:-1] == [json.dumps(text, ensure_ascii=False) for text in texts]
    assert json.loads(found[-1]) == {text: text for text in texts}


def test_characters_at_every_place() -> None:
    """What JSON escapes, and characters of every length, are right wherever they stand in a word of eight."""
    kinds = ['"', "\\", "\n", "\x00", "\x1f", "\x7f", "ä", "€", "😀", "\ud7ff", "\uffff", "\U0010ffff"]
    escaped(
        [" " * before + kind + "x" * after for kind in kinds for before in range(9) for after in (0, 1, 7, 8)]
    )


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=40), max_size=6))
def test_text_is_escaped_as_python_does(texts: list[str]) -> None:
    """Text and keys are what Python's json writes, and valid UTF-8."""
    escaped(texts)


@pytest.mark.parametrize(
    "broken", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\x80"]
)
def test_text_that_is_no_text_is_refused(broken: bytes, on_device: Move) -> None:
    """A value, or a name of the metadata even where no object has it, that is not UTF-8 is an error of its row."""
    for before in (0, 5, 8):
        text = b"x" * before + broken
        rows: list[Row] = [
            GOOD,
            (EMPTY, bytes([1 | len(text) << 2]) + text),
            (EMPTY, bytes([1 | len(text) + 1 << 2]) + text + b"y"),
            (bytes([1, 1, 0, len(text)]) + text, NULL),
            GOOD,
        ]
        column = on_device(column_of(rows))
        assert texts_by_kernel(column, "plain")[1:4] == [Status.MALFORMED] * 3
        check_texts(column, rows)
        with pytest.raises(BowstringError, match=r"UTF-8[^\n]*\n?.*row 1"):
            variant.to_json(column)


def test_names_come_out_the_same_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metadata whose second name is broken writes nothing where the one behind it does, whoever comes last."""
    broken = bytes([1, 2, 0, 3, 4]) + b"aaa\xff"
    rows: list[Row] = [GOOD, (broken, NULL), (metadata_bytes(["b", "cd"]), NULL)]
    column = variant.open_column(column_of(rows))
    classes = dictionary_of(column)
    forwards = json_texts._quoted_names(classes, column.column.device, 0)

    def backwards(kernel: Kernel, items: int, *arguments: object) -> None:
        signature, converted = match(kernel, arguments)
        with np.errstate(all="ignore"):
            for item in reversed(range(items)):
                signature.kernel(np.int64(item), *converted)

    monkeypatch.setattr(json_texts, "launch", backwards)
    found = json_texts._quoted_names(classes, column.column.device, 0)
    assert found.counts.tolist() == forwards.counts.tolist()
    assert found.ends.tolist() == forwards.ends.tolist()
    assert found.text.tobytes() == forwards.text.tobytes()


@pytest.fixture(scope="module")
def corpus(parquet_test_data: Path) -> list[tuple[bytes, bytes]]:
    """Return the golden values, and every primitive at its bounds that is not long."""
    return corpus_of(parquet_test_data)


def test_broken_bytes(corpus: list[tuple[bytes, bytes]], on_device: Move) -> None:
    """Every prefix, and thousands of changed bytes, are refused where decoding refuses them, and no others."""
    for broken in ([*prefixes(corpus)], [*flipped(corpus, 3000, seed=5)]):
        rows: list[Row] = [each for row in broken for each in (row, GOOD)]
        check_texts(on_device(column_of(rows, "binary")), rows)


def test_broken_bytes_never_lead_outside(
    corpus: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every index checked, changed bytes give the same."""
    monkeypatch.setenv("BOWSTRING_KERNELS", "interpret")
    monkeypatch.setattr(host, "interpret", guarded_run)
    rows: list[Row] = [*flipped(corpus, 60, seed=6)]
    check_texts(column_of(rows, "binary"), rows)


def test_errors_are_those_of_decoding(corpus: list[tuple[bytes, bytes]], on_device: Move) -> None:
    """The first broken row raises what decoding it raises, with the number of the row."""
    seen = set()
    for row in flipped(corpus, 400, seed=7):
        try:
            decode(*row)
        except BowstringError as error:
            expected = in_row(error, 3)
        else:
            continue
        if (type(expected), expected.what) in seen:
            continue
        seen.add((type(expected), expected.what))
        column = on_device(column_of([GOOD, None, GOOD, row, GOOD, row]))
        with pytest.raises(type(expected)) as raised:
            variant.to_json(column)
        assert str(raised.value) == str(expected)
    assert len(seen) > 10


def test_bombs_end_at_once(on_device: Move) -> None:
    """Values that share children or nest without end are refused in time that their length bounds."""
    shared = NULL
    for _ in range(300):
        # Two elements at one place.
        width = 4 if len(shared) > 255 else 1
        ends = b"".join(end.to_bytes(width, "little") for end in (0, 0, len(shared)))
        shared = bytes([3 | (width - 1) << 2, 2]) + ends + shared
    deep = NULL
    for _ in range(5000):
        deep = bytes([3 | 3 << 2, 1]) + bytes(4) + len(deep).to_bytes(4, "little") + deep
    for bomb in (shared, deep):
        column = on_device(column_of([GOOD, (EMPTY, bomb)]))
        assert texts_by_kernel(column, "plain")[1] == Status.TOO_DEEP
        with pytest.raises(LimitExceeded, match="row 1"):
            variant.to_json(column)


def test_depth_is_that_of_the_limits(on_device: Move) -> None:
    """As deep as the limits allow, and no deeper; with higher limits as deep as they are."""
    trees = [json.loads("[" * depth + "]" * depth) for depth in (64, 65)]
    column = on_device(variant.from_python(trees, limits=DEFAULT_LIMITS.replace(depth=100)))
    assert texts_by_kernel(column, "plain") == ["[" * 64 + "]" * 64, Status.TOO_DEEP]
    higher = variant.to_json(column, limits=DEFAULT_LIMITS.replace(depth=10**9))
    assert higher.as_batch().to_device("cpu")[0].to_arrow().to_pylist()[1] == "[" * 65 + "]" * 65


def objects_of(names: list[str], ids: list[int]) -> tuple[bytes, bytes]:
    return metadata_bytes(tuple(names)), object_bytes([(number, NULL) for number in ids])


@pytest.mark.parametrize(
    ("names", "ids", "right"),
    [
        (["a", "b"], [0, 1], True),
        (["a", "b"], [1, 0], True),
        (["a", "b"], [0, 0], False),
        (["b", "a"], [0, 1], True),
        (["a", "b", "a"], [0, 1, 2], False),
        (["a", "b", "a"], [1, 2], True),
        (["a", "b", "a"], [2, 0], False),
        (["😀", "￥", "z"], [2, 0, 1], True),
        (["c", "b", "a", "b"], [0, 1, 2, 3], False),
        (["", "a", "b"], [2, 0, 1], True),
        (["", ""], [0, 1], False),
        (["a"], [1], False),
    ],
)
def test_keys_in_any_order_but_none_twice(
    names: list[str], ids: list[int], right: bool, on_device: Move
) -> None:
    """Keys stay in the object's order, whatever it is; a name that is there twice, by any id, is refused."""
    row = objects_of(names, ids)
    column = on_device(column_of([row]))
    found = texts_by_kernel(column, "plain")
    expected = (
        "{" + ",".join(f'"{names[number]}":null' for number in ids) + "}" if right else Status.MALFORMED
    )
    assert found == [expected]
    check_texts(column, [row])


def test_patience_with_keys_in_no_order() -> None:
    """Hundreds of keys in no order are compared with each other; at some thousands the work would have no bound."""
    rng = np.random.default_rng(9)
    names = [f"k{number:05}" for number in range(6000)]
    few, many = (rng.permutation(count).tolist() for count in (300, 6000))
    row = objects_of(names[::-1], few)
    check_texts(column_of([row]), [row])
    with pytest.raises(LimitExceeded, match="no order"):
        variant.to_json(column_of([GOOD, objects_of(names, many)]))


def test_more_text_than_a_column_holds_is_refused_before_it_is_written(on_device: Move) -> None:
    """Three thousand rows with a key of a megabyte are more than 2 GiB of text, out of a few bytes each."""
    metadata = metadata_bytes(("k" * (1 << 20),))
    row = metadata, object_bytes([(0, NULL)])
    column = on_device(column_of([row] * 3000))
    with pytest.raises(LimitExceeded, match="2 GiB"):
        variant.to_json(column)


def test_texts_of_places_within_rows(on_device: Move) -> None:
    """Values within rows are written by where they begin; rows that are not wanted have no text."""
    tree = Value("array", [Value("int8", 1), Value("array", [Value("string", "x")])])
    metadata, value = encode(tree)
    column = on_device(column_of([(metadata, value)] * 3))
    opened = variant.open_column(column)
    xp = column.device.xp
    inner = len(value) - len(encode(tree.value[1])[1])
    starts = xp.asarray(
        np.array([inner, len(value) + 2, inner], np.int64) + np.arange(3) * len(value) * [1, 0, 1]
    )
    stops = xp.asarray(np.array([1, 1, 3]) * len(value))
    wanted = xp.asarray(np.array([0b101], np.uint8))
    bounds = {"starts": starts, "stops": stops, "wanted": wanted}
    texts = rows_of(opened, dictionary_of(opened), **bounds, rules="spark", limits=DEFAULT_LIMITS).texts()
    to_host = column.device.to_host
    assert to_host(texts.statuses).tolist() == [Status.OK, Status.SQL_NULL, Status.OK]
    assert to_host(texts.data).tobytes() == b'["x"]["x"]'


def test_no_rows(on_device: Move) -> None:
    """A column without rows has no text."""
    column: Column = on_device(variant.from_python([1])).as_batch().slice(0, 0)[0]
    assert len(variant.to_json(column)) == 0
    assert len(variant.equals(column, column)) == 0


def test_errors_of_long_rows_come_soon(on_device: Move) -> None:
    """A row of many bytes is not read again, only to say where in it the fault is."""
    count = 1_000_000
    offsets = (2 * np.arange(count + 1, dtype="<u4")).tobytes()
    head = bytes([3 | 3 << 2 | 1 << 4]) + count.to_bytes(4, "little") + offsets + b"\x0c\x01" * (count - 1)
    for last, error in ((b"\xfc\x00", Unsupported), (b"\x0c", InvalidBody), (b"\x05\xff", InvalidBody)):
        column = on_device(column_of([GOOD, (EMPTY, head + last)]))
        begin = time.process_time()
        with pytest.raises(error, match=r"row 1$"):
            variant.to_json(column)
        assert time.process_time() - begin < 1.5
