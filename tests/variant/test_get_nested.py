"""Lists, structs and maps out of Variants: the same as plain Python makes of the decoded values, at any depth."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import InvalidData, LimitExceeded, Unsupported
from bowstring.limits import DEFAULT_LIMITS
from bowstring.variant import Status, Value
from tests.variant.conftest import Move
from tests.variant.decoding import decode_all
from tests.variant.encoding import encode, metadata_bytes
from tests.variant.get_columns import METADATA_FORMS, VALUE_FORMS, Row, column_of
from tests.variant.get_oracle import expected, held
from tests.variant.hostile import flipped
from tests.variant.typed_values import VALUES

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

NESTED: list[pa.DataType] = [
    pa.list_(pa.int64()),
    pa.list_(variant.type()),
    pa.large_list(pa.string()),
    pa.list_view(pa.decimal128(20, 2)),
    pa.large_list_view(pa.list_(pa.string())),
    pa.list_(pa.int32(), 2),
    pa.list_(pa.list_(variant.type(), 2), 1),
    pa.list_(pa.list_view(pa.large_list(pa.string_view()))),
    pa.struct([("a", pa.int64()), ("", pa.string()), ("absent", pa.bool_()), ("é", variant.type())]),
    pa.struct([]),
    pa.struct([("a", pa.struct([("b", pa.list_(pa.struct([("a", pa.float64())])))]))]),
    pa.map_(pa.string(), pa.int64()),
    pa.map_(pa.large_string(), variant.type()),
    pa.map_(pa.string(), pa.map_(pa.string(), pa.list_(pa.binary()))),
    pa.list_(pa.struct([("a", pa.uuid()), ("b", pa.map_(pa.string(), pa.date32()))])),
]
DOCUMENTS: list[Any] = [
    [1, 2, 3],
    [1, "x", None, 2.5],
    [],
    [[1], [], None, [["deep", 1]]],
    [["a", "b"]],
    {"a": 5, "": "text", "é": [None], "b": 1},
    {"a": {"b": [{"a": 0.5}, {}, {"a": 1}, None]}},
    {"a": None},
    {},
    {"k": {"l": [b"x", "y"]}, "é": {}},
    [{"a": 1, "b": {"c": None}}, 7],
    None,
    1,
    "text",
]


def typed(document: Any) -> Value:
    column = variant.from_python([document])
    return variant.to_python(column, typed=True)[0] or Value("null", None)


def compare(column: Column, decoded: list[Value | None], path: list[str | int], type_: pa.DataType) -> None:
    got = variant.get(column, path, type_, with_status=True)
    got.validate(full=True)
    wanted = [expected(each, path, type_) for each in decoded]
    assert got["status"].to_arrow().to_pylist() == [status for status, _ in wanted]
    assert held(got.columns[0], type_) == [each for _, each in wanted]


@pytest.mark.parametrize("type_", NESTED, ids=lambda type_: str(type_).replace("extension", ""))
def test_documents(type_: pa.DataType, on_device: Move) -> None:
    """Every document becomes what plain Python says, at the top and below a path."""
    decoded: list[Value | None] = [typed(each) for each in DOCUMENTS]
    decoded += [Value("array", [each]) for each in decoded if each is not None]
    rows: list[Row] = [*(encode(each) for each in decoded if each is not None), None]
    column = on_device(column_of(rows))
    compare(column, [*decoded, None], [], type_)
    compare(column, [*decoded, None], [0], type_)


@given(st.lists(st.none() | VALUES, min_size=1, max_size=5), st.sampled_from(NESTED))
def test_random_documents(decoded: list[Value | None], type_: pa.DataType) -> None:
    """Whatever the documents are, the result is that of plain Python."""
    compare(
        column_of([None if each is None else encode(each) for each in decoded], "binary"), decoded, [], type_
    )


@pytest.mark.parametrize("form", METADATA_FORMS)
def test_variants_inside_keep_their_metadata(form: str, on_device: Move) -> None:
    """Variants in lists and maps can be read on, whatever the form of the metadata; a null in them is a value."""
    documents = [{"a": [{"b": "x"}, None]}, {"a": [{"c": 1, "b": 2}]}, {"a": []}, {"b": 1}]
    for value in VALUE_FORMS:
        decoded = [typed(each) for each in documents]
        column = on_device(column_of([encode(each) for each in decoded], form, value))
        got = variant.get_many(
            column,
            {"list": ("a", pa.list_(variant.type())), "map": ("$", pa.map_(pa.string(), variant.type()))},
        )
        got.validate(full=True)
        [inside] = got["list"].children
        assert variant.get(inside, "b", pa.string()).to_arrow().to_pylist() == ["x", None, None]
        assert variant.type_of(inside).to_arrow().to_pylist() == ["object", "null", "object"]
        assert held(got["map"], pa.map_(pa.string(), variant.type())) == [
            sorted(each.value.items()) for each in decoded
        ]


def test_nothing_to_hold(on_device: Move) -> None:
    """No rows give no rows, and rows of SQL NULL nulls, of any type."""
    for rows in ([], [None, None]):
        column = on_device(column_of(rows))
        for type_ in NESTED:
            got = variant.get(column, "$", type_, with_status=True)
            got.validate(full=True)
            assert got.columns[0].to_arrow().null_count == len(got) == len(rows)


def test_errors_inside(on_device: Move) -> None:
    """A child that cannot be cast is a null in a value, whose row has the child's status and raises for it."""
    column = on_device(variant.from_python([[1, "x", None], [1, 2], [None]]))
    got = variant.get(column, "$", pa.list_(pa.int8()), with_status=True)
    assert got.to_device("cpu").to_arrow().to_pylist() == [
        {"$": [1, None, None], "status": Status.TYPE_MISMATCH},
        {"$": [1, 2], "status": Status.OK},
        {"$": [None], "status": Status.OK},
    ]
    with pytest.raises(InvalidData, match=r"TYPE_MISMATCH in 1 rows; at row 0"):
        variant.get(column, "$", pa.list_(pa.int8()), on_error="raise")


def _shared(count: int, value: bytes) -> bytes:
    """Return an array of one value many times."""
    size = len(value).to_bytes(2, "little")
    return bytes([3 | 1 << 2 | 1 << 4]) + count.to_bytes(4, "little") + b"\0\0" * count + size + value


_BOMBS = [
    (metadata_bytes([]), _shared(30, _shared(3, b"\x0c\x07"))),
    (metadata_bytes([]), _shared(9, b"\x0c\x01")),
]


def test_children_that_share_their_bytes(on_device: Move) -> None:
    """Children that take more than what holds them are too much, however nested; few small ones are not."""
    small, bomb = _shared(3, b"\x0c\x07"), _shared(100, b"\x0c\x07")
    for _ in range(3):
        bomb = _shared(100, bomb)
    empty = metadata_bytes([])
    column = on_device(column_of([(empty, small), (empty, bomb), (empty, _shared(400, b"\x0c\x01"))]))
    deep = pa.list_(pa.list_(pa.list_(pa.list_(pa.int8()))))
    got = variant.get_many(column, {"one": ("$", pa.list_(pa.int8())), "deep": ("$", deep)}, with_status=True)
    statuses = got["one.status"].to_arrow().to_pylist()
    assert statuses == [Status.OK, Status.TOO_DEEP, Status.OK]
    assert got["deep.status"].to_arrow().to_pylist()[1] == Status.TOO_DEEP
    assert got["one"].to_arrow().to_pylist() == [[7] * 3, None, [1] * 400]


@pytest.mark.parametrize("type_", NESTED[::2], ids=lambda type_: str(type_).replace("extension", ""))
def test_changed_bytes(type_: pa.DataType) -> None:
    """Values with changed bytes that are valid become what plain Python says; no row beside one is harmed."""
    good = encode(typed(DOCUMENTS[0]))
    pairs = [encode(each) for each in map(typed, DOCUMENTS)]
    rows: list[Row] = [each for pair in flipped([*pairs, *_BOMBS], 3000, 5) for each in (pair, good)]
    column = column_of(rows, "binary")
    valid = variant.validate(column).values == Status.OK
    got = variant.get(column, "$", type_, with_status=True)
    got.validate(full=True)
    statuses, found = got["status"].values, held(got.columns[0], type_)
    # Children that share their bytes are valid as long as they are few: not so many can be had.
    taken = [row for row in np.flatnonzero(valid).tolist() if statuses[row] != Status.TOO_DEEP]
    for row, tree in zip(taken, decode_all([rows[row] for row in taken]), strict=True):
        assert (Status(statuses[row]), found[row]) == expected(tree, [], type_)


def test_names_that_are_repeated(on_device: Move) -> None:
    """An object with the same name twice, or one that is nowhere, is no map; as a struct it has what it has."""
    names = metadata_bytes(["a", "b"])
    rows: list[Row] = [
        (names, bytes([2, 2, first, second, 0, 2, 4, 12, 1, 12, 2])) for first, second in _PAIRS
    ]
    column = on_device(column_of(rows))
    got = variant.get(column, "$", pa.map_(pa.string(), pa.int8()), with_status=True)
    assert got["status"].to_arrow().to_pylist() == [Status.OK, Status.MALFORMED, Status.MALFORMED]
    assert got.columns[0].to_arrow().to_pylist() == [[("a", 1), ("b", 2)], None, None]


_PAIRS = ((0, 1), (1, 1), (0, 9))


def test_limits(on_device: Move) -> None:
    """What would be larger than the limits is refused before it is made."""
    column = on_device(variant.from_python([["text"] * 100]))
    few = DEFAULT_LIMITS.replace(extracted_bytes=500)
    for type_ in (
        pa.list_(pa.int8()),
        pa.list_(pa.bool_(), 100),
        pa.list_(variant.type()),
        pa.binary(1 << 30),
    ):
        with pytest.raises(LimitExceeded, match="too long"):
            variant.get(column, "$", type_, limits=few)
    text = on_device(variant.from_python(["x" * 501]))
    with pytest.raises(LimitExceeded, match="too long"):
        variant.get_many(text, {"text": ("$", pa.string())}, limits=few)


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (pa.list_(pa.field("item", pa.int8(), nullable=False)), "may be missing or null"),
        (pa.struct([pa.field("a", pa.int8(), nullable=False)]), "may be missing or null"),
        (pa.map_(pa.int8(), pa.int8()), "no such map"),
        (pa.map_(pa.string_view(), pa.int8()), "no such map"),
        (pa.map_(pa.string(), pa.int8(), keys_sorted=True), "no such map"),
        (pa.list_(pa.duration("s")), "becomes duration"),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), "becomes dictionary"),
    ],
    ids=str,
)
def test_types_that_are_refused(type_: pa.DataType, message: str) -> None:
    """A type that Variants cannot become is refused by name, wherever in a type it is."""
    with pytest.raises(Unsupported, match=message):
        variant.get(variant.from_python([1]), "$", type_)


def test_types_that_are_too_deep() -> None:
    """A type deeper than batches may be is refused before anything is read."""
    deep: pa.DataType = pa.int8()
    for _ in range(600):
        deep = pa.list_(deep)
    for cast in ("exact", "spark"):
        with pytest.raises(LimitExceeded, match="deep"):
            variant.get(variant.from_python([1]), "$", deep, cast=cast)


def test_long_names_are_checked_once(on_device: Move) -> None:
    """Rows that share a long name do not read it again; one that is no text makes its rows malformed."""
    value = bytes([2, 1, 0, 0, 2, 12, 1])
    map_ = pa.map_(pa.string(), pa.int8())
    column = on_device(column_of([(metadata_bytes(["x" * (1 << 20)]), value)] * 100_000))
    begin = time.process_time()
    with pytest.raises(LimitExceeded, match="too long"):
        variant.get(column, "$", map_, limits=DEFAULT_LIMITS.replace(extracted_bytes=1 << 24))
    assert time.process_time() - begin < 1.5
    names = metadata_bytes(["ab"])
    column = on_device(column_of([(names, value), (names[:-1] + b"\xff", value)]))
    got = variant.get(column, "$", map_, with_status=True).to_device("cpu")
    assert got["status"].to_arrow().to_pylist() == [Status.OK, Status.MALFORMED]
