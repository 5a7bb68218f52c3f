"""from_json reads what Python's json reads, into the same bytes, whatever is done to the text."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bowstring.columnar.batch import Batch, Column
from bowstring.errors import InvalidBody, LimitExceeded, UsageError
from bowstring.kernels.json import format as status
from bowstring.kernels.json.names import hash_of
from bowstring.limits import DEFAULT_LIMITS
from bowstring.testing import fake_device
from bowstring.variant import column as columns
from bowstring.variant import from_python, validate
from bowstring.variant.column import BLOCK_ROWS
from bowstring.variant.json import waves as json_plan
from bowstring.variant.json import waves as json_waves
from bowstring.variant.json.read import ColumnBuilder, error_of, from_json
from bowstring.variant.json.waves import Keys, join_keys
from bowstring.variant.python_objects import to_python
from tests.variant import json_texts
from tests.variant.json_oracle import read_by_python
from tests.variant.json_write import Rules

DOCUMENT = (
    '{"a\\u00e9":[1,-2.50,1e3,{"k":"v\\n\\ud83d\\ude00é","k2":null}],"b":true,"c":12345678901234567890123,'
    '"z":"' + "y" * 70 + '","a":{"a":false}}'
)
TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
]


def same(texts: list[Any], rules: Rules = "plain", **options: Any) -> Column:
    """Check that texts become the bytes that Python's json and our encoder make of them, and return them."""
    column = from_json(texts, rules=rules, on_error="null", **options)
    ours, expected = column.to_arrow(), read_by_python(texts, rules, "null", **options).to_arrow()
    for row, (mine, wanted) in enumerate(zip(ours.to_pylist(), expected.to_pylist(), strict=True)):
        assert mine == wanted, (row, texts[row])
    assert ours.field("metadata").dictionary == expected.field("metadata").dictionary
    column.as_batch().validate(full=True)
    return column


@given(seed=st.integers(0, 2**32 - 1), rules=st.sampled_from(["plain", "spark"]))
def test_texts_become_what_python_reads(seed: int, rules: Rules) -> None:
    """Random texts, half of them with changed bytes, are accepted and refused as by Python, with the same bytes."""
    same(json_texts.column(seed, 60), rules)


@given(seed=st.integers(0, 2**32 - 1), rules=st.sampled_from(["plain", "spark"]))
def test_the_last_of_repeated_keys_is_kept(seed: int, rules: Rules) -> None:
    """Texts whose objects have keys more than once become what Python's json makes of them."""
    texts = json_texts.column(seed, 60)
    column = from_json(texts, rules=rules, repeated="last", on_error="null")
    expected = read_by_python(texts, rules, "null", repeated="last")
    assert to_python(column, typed=True) == to_python(expected, typed=True)
    assert column.null_count == expected.null_count
    assert set(validate(column).values.tolist()) <= {0, 1}
    with pytest.raises(UsageError, match="repeated"):
        from_json(["1"], repeated="first")  # type: ignore[arg-type]  # on purpose


@given(number=st.floats(), cut=st.integers(1, 25), rules=st.sampled_from(["plain", "spark"]))
def test_doubles_are_the_nearest(number: float, cut: int, rules: Rules) -> None:
    """A number with an exponent becomes the nearest double, with however many digits it is written."""
    same([f"{abs(number):.{cut}e}", f"{number!r}e0", f"{number:.{cut}e}1"], rules)


@pytest.mark.parametrize("rules", ["plain", "spark"])
def test_doubles_between_two(rules: Rules) -> None:
    """Numbers exactly between two doubles, and next to there, are rounded to even, and up, and down."""
    texts = []
    for mantissa in (1, 3, 2**52 + 1, 2**53 - 1, 2**53 - 3):
        for power in (-1074, -1023, -60, -3, 0, 5, 60, 900, 971 - 1):
            between = (2 * mantissa + 1) * 2 ** max(power, 0) * 5 ** max(-power, 0)
            scale = f"e{min(power, 0)}"
            texts += [
                f"{between}{scale}",
                f"{between}.{'0' * 30}1{scale}",
                f"{between - 1}.{'9' * 30}{scale}",
            ]
    same([*texts, f"{2**1024 - 2**970}e0", f"{2**1024 - 2**970 - 1}.9e0"], rules)


def test_prefixes_and_flips() -> None:
    """Every prefix of a document, and each of its bytes changed, is read as by Python, between right rows."""
    whole = DOCUMENT.replace(',"a":{', ',"q":{').encode()
    texts = [whole[:size] for size in range(len(whole) + 1)]
    for at in range(len(whole)):
        texts += [whole[:at] + bytes([byte]) + whole[at + 1 :] for byte in (0, 0x22, 0x5C, 0x7B, 0x80, 0xFF)]
        texts.append(b'{"good":[1]}')
    column = same(texts)
    values = to_python(column)
    assert values.count({"good": [1]}) == len(whole)


def test_objects_of_many_fields() -> None:
    """100,000 fields in no order take no time of note, and a key that comes twice among them is seen."""
    drawn = random.Random(1)
    keys = [f"k{drawn.getrandbits(60):x}" for _ in range(100_000)]
    whole = json.dumps(dict.fromkeys(keys, 1))
    column = from_json([whole, whole[:-1] + f',"{keys[7]}":2}}'], on_error="null")
    assert column.null_count == 1
    assert validate(column).values.tolist() == [0, 1]


def test_keys_that_arrow_hashes_alike() -> None:
    """Keys that were chosen so that Arrow's hash is the same for all are sorted as fast as any others."""
    factors = (
        11400714785074694791,
        14029467366897019727,
    )  # of the first and the last 8 bytes, the other way round
    halves = np.arange(1, 40_001, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    others = (halves * np.uint64(factors[1]) ^ np.uint64(99)) * np.uint64(pow(factors[0], -1, 1 << 64))
    chosen = np.stack([halves, others], axis=1).view(np.uint8).reshape(-1)
    usual = np.random.default_rng(1).integers(0, 256, len(chosen), np.uint8)
    seconds = []
    for data in (usual, usual, chosen):
        begin = time.perf_counter()
        starts = np.arange(len(halves), dtype=np.uint64) * np.uint64(16)
        keys = Keys(data, starts, np.full(len(halves), 16, np.uint64), np.array([len(halves)]))
        _, ranks = join_keys([keys], np.array([0, 1]))
        seconds.append(time.perf_counter() - begin)
        assert sorted(ranks.tolist()) == list(range(len(halves)))
    assert seconds[2] < 20 * seconds[1]


def test_no_pair_of_keys_has_one_hash_for_many_seeds() -> None:
    """What changes in one word of a key is not undone by a change of the next, whatever the seed is."""
    pair = np.frombuffer(b"a" * 16 + b"a" * 7 + b"!aaa!aaa!" + b"\0" * 8, np.uint8)
    drawn = random.Random(2)
    alike = 0
    with np.errstate(over="ignore"):
        for _ in range(100):
            seed = np.uint64(drawn.getrandbits(64))
            one, other = (hash_of(pair, np.uint64(start), np.uint64(16), seed) for start in (0, 16))
            alike += int(one == other)
    assert alike == 0


def test_rows_of_numbers_that_the_host_must_find() -> None:
    """Numbers between two doubles take as long in rows of their own as in one."""
    number, count = "1.00000000000000011102230246251565404236316680908203125e0", 150_000
    seconds = []
    for texts in ([f"[{','.join([number] * count)}]"], [number] * count):
        begin = time.perf_counter()
        column = from_json(texts)
        seconds.append(time.perf_counter() - begin)
        assert column.null_count == 0
    assert seconds[1] < 6 * seconds[0]
    same([None, f"[{number},1]", "x", number, f"[{number},{number[:-2]}e400]", None, f"[2,{number}]"])


def test_hostile_shapes() -> None:
    """Deep nesting, huge numbers, long keys and strings, and long arrays are read, or refused, at once."""
    same(
        [
            *("[" * depth + "]" * depth for depth in (64, 65)),
            "[" * 1_000_000,
            '{"a":' * 64 + "1" + "}" * 64,
            '{"a":' * 65,
            "1" * 100_000,
            "0." + "0" * 100_000 + "1",
            "1e" + "9" * 1000,
            "-1e-" + "9" * 1000,
            '"' + "x" * 1_000_000 + '"',
            '{"' + "k" * 100_000 + '":1}',
            json.dumps(list(range(300))),
            json.dumps([{str(key): key for key in range(300)}, "x" * 70_000, [[]] * 300]),
        ]
    )


def test_keys_of_rows_that_are_refused_are_forgotten() -> None:
    """A dictionary holds the keys of the rows that were read, whatever was refused between them."""
    texts = ['{"a":1}', '{"b":1,"c"', '{"d":1,"a":2,"a":3}', '{"e":{"a":1,"b":2}}', '{"c":[1}']
    column = same(texts)
    assert column.to_arrow().field("metadata").dictionary.to_pylist() == [b"\x11\x03\x00\x01\x02\x03abe"]


def test_blocks_have_dictionaries_of_their_own() -> None:
    """Every 65,536 rows share one dictionary, of their keys only; equal ones are stored once."""
    texts = ['{"a":1}'] * BLOCK_ROWS + ['{"b":1,"a":2}'] * BLOCK_ROWS + [None] * BLOCK_ROWS + ['{"a":null}']
    rows = from_json(texts).to_arrow()
    found = rows.field("metadata")
    assert found.dictionary.to_pylist() == [b"\x11\x01\x00\x01a", b"\x11\x02\x00\x01\x02ab", b"\x01\x00\x00"]
    assert found.indices.to_numpy()[::BLOCK_ROWS].tolist() == [0, 1, 2, 0]
    assert rows.null_count == BLOCK_ROWS


@given(st.lists(st.dictionaries(st.text(max_size=12), st.integers()), min_size=1, max_size=12))
@settings(max_examples=20, deadline=None)
def test_rows_with_keys_of_their_own(rows: list[dict[str, int]]) -> None:
    """Rows that share few of many keys have metadata each, of their keys alone, in the order of their UTF-8."""
    count = 5000 // len(rows) + 1
    documents: list[Any] = [
        row | {f"{number} {key}": key for key in range(count)} for number, row in enumerate(rows)
    ]
    documents += None, {}, 7
    column = from_json([None if each is None else json.dumps(each) for each in documents])
    assert to_python(column) == documents
    column.as_batch().validate(full=True)
    metadata = column.to_arrow().field("metadata")
    for row, document in enumerate(documents[: len(rows)]):
        keys = sorted(key.encode() for key in document)
        assert metadata[row].as_py().endswith(b"".join(keys))
        assert int.from_bytes(metadata[row].as_py()[1:3], "little") == len(keys)


@pytest.mark.parametrize("first", [[], [None] * 9, ["{"] * 9, ["{}"] * 9, ["[" * 99 + "1" + "]" * 99] * 9])
def test_rows_that_share_keys_which_few_of_them_have(first: list[str | None]) -> None:
    """Rows of which each has some of the keys of all share a dictionary, whatever the first rows are."""
    names = [f"key {number}" for number in range(200)]
    drawn = random.Random(7)
    rows = [dict.fromkeys(drawn.sample(names, 20), 1) for _ in range(1000)]
    column = from_json([*first, *map(json.dumps, rows)], on_error="null")
    assert to_python(column)[len(first) :] == rows
    assert len(column.to_arrow().field("metadata").dictionary) == 1


@pytest.mark.parametrize("make", [from_json, from_python])
def test_keys_of_a_column_are_bounded(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """More keys than a column of binary holds are an error that says so; that many are none."""
    rows: list[Any] = [{f"key {row} {key}": 1 for key in range(10)} for row in range(1000)]
    texts = [json.dumps(row) for row in rows] if make is from_json else rows
    metadata = make(texts).to_arrow().field("metadata").dictionary
    nbytes = sum(len(each.as_py()) for each in metadata)
    monkeypatch.setattr(columns, "_MOST_METADATA", nbytes)
    assert to_python(make(texts)) == rows
    monkeypatch.setattr(columns, "_MOST_METADATA", nbytes - 1)
    with pytest.raises(LimitExceeded, match="keys of a Variant column"):
        make(texts)


@pytest.mark.parametrize(
    "sizes",
    [
        {"_CHUNK_BYTES": 200},
        {"_CHUNK_BYTES": 300, "_PREFERRED_NODES": 100},
        {"_CHUNK_BYTES": 100, "_PREFERRED_NODES": 100, "_MOST_NODES": 150},
    ],
    ids=["parts", "waves", "blocks in several waves"],
)
@pytest.mark.parametrize("table", [2048, 4])
def test_no_division_shows(sizes: dict[str, int], table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, parts, waves and tables that are too small change nothing in the result."""
    texts = json_texts.column(5, 300)
    for name, size in sizes.items():
        monkeypatch.setattr(json_plan, name, size)
    monkeypatch.setattr(json_plan, "BLOCK_ROWS", 128)
    monkeypatch.setattr("bowstring.variant.builder.BLOCK_ROWS", 128)
    monkeypatch.setattr(json_waves, "_TABLE", table)
    monkeypatch.setattr("bowstring.kernels.host.SMALL_BYTES", 0)
    made = []
    for threads in ("1", "4"):
        monkeypatch.setenv("BOWSTRING_THREADS", threads)
        made.append(same(texts).to_arrow())
    assert made[0].equals(made[1])
    assert [one.equals(other) for one, other in zip(buffers(made[0]), buffers(made[1]), strict=True)]


def test_text_that_changes_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is read twice must have the same keys again: kernels look ranks up by their numbers."""
    monkeypatch.setattr(json_plan, "_CHUNK_BYTES", 20)
    monkeypatch.setattr(json_plan, "_MOST_NODES", 10)
    text = np.frombuffer(b'{"a":1,"a":2}' * 40, np.uint8).copy()
    offsets = pa.py_buffer(np.arange(0, len(text) + 1, 13, dtype=np.int32))
    rows = pa.Array.from_buffers(pa.string(), 40, [None, offsets, pa.py_buffer(text)])
    join = ColumnBuilder.join

    def change(*given: Any) -> Any:
        text.reshape(-1, 13)[:, 8] = ord("b")
        return join(*given)

    monkeypatch.setattr(ColumnBuilder, "join", change)
    with pytest.raises(InvalidBody, match="changed"):
        from_json(rows, on_error="null")


def buffers(rows: pa.StructArray) -> list[pa.Buffer]:
    """Return what a Variant column holds, buffer by buffer."""
    metadata = rows.field("metadata")
    parts = (metadata.dictionary, metadata.indices, rows.field("value"))
    return [each for part in parts for each in part.buffers() if each is not None]


@pytest.mark.parametrize("type_", TEXT_TYPES, ids=str)
def test_text_of_every_type(type_: pa.DataType) -> None:
    """Text of every type is read, whole and sliced, on the CPU and on a device, where its column is then."""
    texts = ['{"ä": "😀"}', None, "null", '{"b": "longer than a view holds"}', "[1, 2.5]", "no JSON"]
    array = pa.array(texts, type_)
    for rows in (array, array.slice(1, 4), array.slice(2, 0)):
        expected = read_by_python(rows.to_pylist(), on_error="null").to_arrow()
        column = Batch.from_arrow({"text": rows})["text"]
        assert from_json(rows, on_error="null").to_arrow().equals(expected)
        there = column.as_batch().to_device(fake_device())[0]
        found = from_json(there, on_error="null")
        assert found.device is fake_device()
        assert found.as_batch().to_device("cpu")[0].to_arrow().equals(expected)


def test_chunks_encodings_and_iterables() -> None:
    """Chunked, dictionary- and run-end encoded text, and anything that yields texts, is read as the plain text."""
    texts = ["[1]", "[1]", None, '{"a": "x"}']
    expected = from_json(texts).to_arrow()
    array = pa.array(texts)
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3, 4], pa.int32()), pa.array(["[1]", None, texts[3]])
    )
    for source in (
        pa.chunked_array([array.slice(0, 1), array.slice(1)]),
        array.dictionary_encode(),
        runs,
        iter(texts),
        tuple(texts),
        [None if text is None else text.encode() for text in texts],
        np.array(texts, object),
    ):
        assert from_json(source).to_arrow().equals(expected)
    for encoded in (array.dictionary_encode(), runs, runs.slice(1), array.slice(1).dictionary_encode()):
        column = Batch.from_arrow({"text": encoded})["text"].as_batch().to_device(fake_device())[0]
        found = from_json(column).as_batch().to_device("cpu")[0].to_arrow()
        assert found.equals(from_json(encoded.to_pylist()).to_arrow())
    assert from_json(pa.nulls(2)).null_count == 2
    assert len(from_json([])) == len(from_json(pa.chunked_array([], pa.string()))) == 0


def test_only_text_is_read() -> None:
    """Columns of anything else are refused by their type."""
    for source in (pa.array([1]), pa.array([["1"]]), pa.array([1, 1]).dictionary_encode(), 1, b"1"):
        with pytest.raises(UsageError):
            from_json(source)


def test_rows_outside_of_their_buffer() -> None:
    """Offsets and indices that lead nowhere are refused row by row, beside rows that are right."""
    starts = np.array([0, 1, 99, 2], np.int32)
    array = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(starts), pa.py_buffer(b"12")])
    assert to_python(from_json(array, on_error="null")) == [1, None, None]
    with pytest.raises(InvalidBody, match=r"buffer.*row 1"):
        from_json(array)
    places = pa.py_buffer(np.array([0, 5, -1], np.int32))
    indices = pa.Array.from_buffers(pa.int32(), 3, [None, places])
    encoded = pa.DictionaryArray.from_arrays(indices, pa.array(["7"]), safe=False)
    assert to_python(from_json(encoded, on_error="null")) == [7, None, None]


def test_shared_text_is_bounded() -> None:
    """Rows that all show the same text are read as often as the limits allow, and not more."""
    once = pa.array(["[" + "1," * 5000 + "1]"])
    rows = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100, np.int8)), once)
    few = DEFAULT_LIMITS.replace(decompression_floor=1, decompression_ratio=99)
    assert from_json(rows, limits=few.replace(decompression_ratio=100)).null_count == 0
    with pytest.raises(LimitExceeded, match="decompression_ratio"):
        from_json(rows, limits=few)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([10**12]), [""])
    none = pa.Array.from_buffers(pa.null(), 10**12, [None])
    for rows in (none, runs, pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), runs)):
        with pytest.raises(LimitExceeded, match="decompression_floor"):
            from_json(rows)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", 0, "the end"),
        ("[1,]", 3, r"'\]'"),
        ("[1 2]", 3, "2"),
        ('{"a" 1}', 5, "1"),
        ('{"a":1,}', 7, "}"),
        ("[nul]", 1, "nul"),
        ("01", 1, "behind"),
        ("-", 1, "the end"),
        ("1.", 2, "the end"),
        ('"ab', 3, "the end"),
        ('{"a":["\\nb', 10, "the end"),
        ("[1.e5]", 3, "e5"),
        ("  1e400", 7, "beyond"),
        ('["\x01"]', 2, "control"),
        ('"\\x"', 1, "escape"),
        ('"\\u12g4"', 1, "escape"),
        ('"ab\\ud800\\n"', 3, "surrogate"),
        (b'"ab\xff"', 3, "UTF-8"),
        (b'"ab\xed\xa0\x80"', 3, "surrogate"),
        ('{"a":{"a":1},"a":2}', 13, "twice.*'a'"),
        ('{"\\u00e4":1,"ä":2}', 12, "twice.*'ä'"),
        ("[" * 65, 64, "64 levels"),
    ],
)
def test_errors_say_where(text: str | bytes, place: int, words: str) -> None:
    """What is refused names its row and the byte, and shows what is there."""
    with pytest.raises((InvalidBody, LimitExceeded), match=f"(?s){words}") as raised:
        from_json(["1", text, "[null]"])
    assert raised.value.where == f"row 1, byte {place}"


def test_every_fault_has_words() -> None:
    """There is an error for each thing that can become of a row but being read."""
    codes = {int(value) for value in vars(status).values() if type(value) is np.uint8}
    for code in codes - {int(status.READ), int(status.NOTHING), int(status.FULL)}:
        assert "row 7" in str(error_of(code, b'"a"', 0, "row 7", DEFAULT_LIMITS))


def test_limits() -> None:
    """Depth and the length of a text are bounded as the limits say, and by nothing else."""
    few = DEFAULT_LIMITS.replace(depth=2, json_bytes=9)
    column = same(["[[1]]", "[[[1]]]", '"1234567"'], limits=few.replace(json_bytes=99))
    assert column.null_count == 1
    assert from_json(['"1234567"', '"12345678"'], on_error="null", limits=few).null_count == 1
    with pytest.raises(LimitExceeded, match="json_bytes"):
        from_json(['"12345678"'], limits=few)
    deep = 5000
    enough = few.replace(depth=deep, json_bytes=2 * deep)
    assert from_json(["[" * deep + "]" * deep], limits=enough).null_count == 0
