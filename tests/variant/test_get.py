"""Values by path: the same as plain Python works out of the decoded values, whatever widths the bytes have."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import InvalidBody, InvalidData, Unsupported, UsageError
from bowstring.memory import cpu
from bowstring.testing import fake_device
from bowstring.variant import Status, Value
from tests.variant.conftest import Move
from tests.variant.encoding import Widths, encode, encode_with, metadata_bytes, object_bytes
from tests.variant.get_columns import METADATA_FORMS, VALUE_FORMS, Row, column_of
from tests.variant.get_oracle import TYPES, expected, held
from tests.variant.typed_values import KEYS, PRIMITIVE_VALUES, VALUES

WIDTHS = [
    Widths(ids, offsets, large) for ids in (1, 2, 3, 4) for offsets in (1, 2, 3, 4) for large in (False, True)
]
EVERY: list[Value | None] = [*PRIMITIVE_VALUES, Value("object", {}), Value("array", []), None]


def row_of(value: Value | None, widths: Widths = WIDTHS[0]) -> Row:
    return None if value is None else encode(value, widths)


def compare(column: Column, decoded: list[Value | None], path: list[str | int], type_: pa.DataType) -> None:
    got = variant.get(column, path, type_, with_status=True)
    got.validate(full=True)
    wanted = [expected(each, path, type_) for each in decoded]
    assert got["status"].to_arrow().to_pylist() == [status for status, _ in wanted]
    assert held(got.columns[0], type_) == [each for _, each in wanted]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_type_at_its_bounds(type_: pa.DataType, on_device: Move) -> None:
    """Every value becomes what plain Python says, or a null with the right status."""
    compare(on_device(column_of([row_of(each) for each in EVERY])), EVERY, [], type_)


def matrix(order: str) -> tuple[list[Row], list[Value | None]]:
    """Return every primitive as a field, in objects of all widths, under metadata of one order."""
    names = ["", "a", "é", "\uffe5", "😀"]
    listed = {
        "sorted": names,
        "unsorted": names[::-1],
        "duplicates": [*names[::-1], *names],
        "lying": names[::-1],
    }[order]
    blob = metadata_bytes(listed, sorted_flag=order in ("sorted", "lying"))
    ids = {name: index for index, name in enumerate(listed)}
    small = [
        each for each in PRIMITIVE_VALUES if not isinstance(each.value, str | bytes) or len(each.value) < 99
    ]
    rows: list[Row] = []
    decoded: list[Value | None] = []
    for value, widths in zip(itertools.cycle(small), WIDTHS * 7, strict=False):
        tree = Value("object", {"a": Value("int8", 1), "😀": value, "\uffe5": Value("array", [value])})
        rows.append((blob, encode_with(ids, tree, widths)))
        decoded.append(tree)
    return rows, decoded


@pytest.mark.parametrize("order", ["sorted", "unsorted", "duplicates", "lying"])
def test_fields_of_all_widths(order: str, on_device: Move) -> None:
    """Ids and offsets of 1 to 4 bytes, large or not, under metadata in any order, lead to the same fields."""
    rows, decoded = matrix(order)
    column = on_device(column_of(rows))
    paths: list[list[str | int]] = [["😀"], ["\uffe5", 0], ["", 0], ["absent"]]
    for path in paths:
        for type_ in (pa.int64(), pa.string(), pa.decimal128(38, 2)):
            compare(column, decoded, path, type_)


def test_fields_in_the_order_of_utf_16(on_device: Move) -> None:
    """Objects of legacy writers, ordered by UTF-16 units, give up all their fields."""
    names = ["😀", "\uffe5"]  # by UTF-16; by UTF-8 the other way round
    fields = [(name, bytes([12, index])) for index, name in enumerate(names)]
    rows = []
    for listed in (names, names[::-1]):
        value = object_bytes([(listed.index(name), each) for name, each in fields])
        rows.append((metadata_bytes(listed, sorted_flag=False), value))
    column = on_device(column_of(rows))
    for index, name in enumerate(names):
        assert variant.get(column, [name], pa.int8()).to_arrow().to_pylist() == [index] * 2


@pytest.mark.parametrize("form", METADATA_FORMS)
@pytest.mark.parametrize("value_form", VALUE_FORMS)
def test_every_form_of_a_column(form: str, value_form: str, on_device: Move) -> None:
    """Children of every type, in any order, give the same; sub-values keep the metadata in their form."""
    decoded: list[Value | None] = [
        Value("object", {name: Value("array", [Value("string", text), Value("null", None)])})
        for name, text in (("a", "short"), ("a", "x" * 70), ("b", ""))
    ]
    decoded = [decoded[0], decoded[0], None, decoded[1], decoded[2]]
    rows = [row_of(each) for each in decoded]
    if form == "runs" and value_form == "binary":
        rows[2] = rows[1]
        decoded[2] = decoded[1]
    for first in ("metadata", "value"):
        column = on_device(column_of(rows, form, value_form, first=first))
        compare(column, decoded, ["a", 0], pa.string())
        below = variant.get(column, "$.a", variant.type())
        assert below.child("metadata").type == column.child("metadata").type
        below.batch.validate(full=True)
        moved = [Value("null", None) if each is None else each for each in map(_under_a, decoded)]
        compare(
            below,
            [each if _under_a(one) else None for one, each in zip(decoded, moved, strict=True)],
            [0],
            pa.string(),
        )


def _under_a(value: Value | None) -> Value | None:
    return None if value is None else value.value.get("a")


@given(st.lists(st.none() | VALUES, min_size=1, max_size=5), st.lists(KEYS | st.integers(0, 2), max_size=2))
def test_random_documents(decoded: list[Value | None], path: list[str | int]) -> None:
    """Whatever the documents and the path are, the result is that of plain Python."""
    column = column_of([row_of(each) for each in decoded], "binary")
    for type_ in (pa.int32(), pa.string(), pa.float64()):
        compare(column, decoded, path, type_)


def test_many_paths_as_one_by_one(on_device: Move) -> None:
    """`get_many` gives the columns that `get` gives, inner paths, the same path twice and the root included."""
    rows = [{"a": {"b": [1, 2], "c": "x"}, "d": 1.5}, {"a": [{"b": 3}]}, None, {"a": None, "d": 2}]
    column = on_device(variant.from_python(rows))
    wanted: dict[str, tuple[str, Any]] = {
        "root": ("$", variant.type()),
        "a": ("$.a", variant.type()),
        "b": ("$.a.b", variant.type()),
        "one": ("a.b[1]", pa.int16()),
        "two": ("$['a'].b[1]", pa.decimal64(5, 1)),
        "c": ("$.a['c']", pa.string()),
        "d": ("$.d", pa.float64()),
        "e": ("$.a[0].b", pa.int64()),
    }
    batch = variant.get_many(column, wanted, with_status=True)
    batch.validate(full=True)
    assert batch.schema.names[:2] == ["root", "root.status"]
    for name, (path, type_) in wanted.items():
        single = variant.get(column, path, type_, with_status=True)
        assert batch[name].to_arrow().equals(single.columns[0].to_arrow())
        assert batch[f"{name}.status"].to_arrow().equals(single["status"].to_arrow())
    assert variant.to_python(batch["a"].as_batch().to_device("cpu")[0])[3] is None


def test_three_kinds_of_nothing(on_device: Move) -> None:
    """SQL NULL, missing and the Variant null are told apart; as a Variant, only the last is a value."""
    column = on_device(
        column_of([None, row_of(Value("object", {})), row_of(Value("object", {"a": Value("null", None)}))])
    )
    for type_, third in ((pa.int8(), Status.VARIANT_NULL), (variant.type(), Status.OK)):
        batch = variant.get(column, "a", type_, with_status=True)
        assert batch["status"].to_arrow().to_pylist() == [Status.SQL_NULL, Status.MISSING, third]
        assert batch.columns[0].to_arrow().is_valid().to_pylist() == [False, False, third == Status.OK]


def test_an_unknown_type_hides_no_sibling(on_device: Move) -> None:
    """A primitive that the format does not name is unsupported; the fields beside it are read."""
    value = object_bytes([(0, bytes([40 << 2])), (1, bytes([12, 7]))])
    column = on_device(column_of([(metadata_bytes(["a", "b"]), value)]))
    batch = variant.get_many(column, {"a": ("a", pa.int8()), "b": ("b", pa.int8())}, with_status=True)
    assert batch.to_device("cpu").to_arrow().to_pylist() == [
        {"a": None, "a.status": Status.UNSUPPORTED, "b": 7, "b.status": Status.OK}
    ]
    with pytest.raises(Unsupported, match="row 0"):
        variant.get(column, "a", pa.int8(), on_error="raise")


def test_errors_are_raised_where_asked_for(on_device: Move) -> None:
    """``on_error="raise"`` names the first row that fails, and lets rows without a value pass."""
    column = on_device(variant.from_python([None, {"a": None}, {}, {"a": 1}, {"a": 300}, {"a": "x"}]))
    with pytest.raises(InvalidData, match=r"OVERFLOW in 2 rows; at row 4"):
        variant.get(column, "a", pa.int8(), on_error="raise")
    with pytest.raises(InvalidBody, match="MALFORMED"):
        variant.get(on_device(column_of([(b"\x01\x00\x00", b"\x0c")])), "$", pa.int8(), on_error="raise")
    assert variant.get(column, "b", pa.int8(), on_error="raise").null_count == 6


def test_text_that_is_none_is_malformed(on_device: Move) -> None:
    """A string that is not UTF-8 never reaches a column of strings; a value beside it does."""
    rows: list[Row] = [(b"\x01\x00\x00", bytes([9, 0xC3, 0x28])), (b"\x01\x00\x00", b"\x09ok")]
    batch = variant.get(on_device(column_of(rows)), "$", pa.string(), with_status=True)
    assert batch.to_device("cpu").to_arrow().to_pylist() == [
        {"$": None, "status": Status.MALFORMED},
        {"$": "ok", "status": Status.OK},
    ]


def test_types_by_name(on_device: Move) -> None:
    """`type_of` names the type of every value as the decoder does."""
    column = on_device(column_of([row_of(each) for each in EVERY]))
    assert variant.type_of(column).to_arrow().to_pylist() == [each and each.type for each in EVERY]


def test_no_rows(on_device: Move) -> None:
    """A column without rows gives columns without rows."""
    column = on_device(column_of([]))
    for type_ in (pa.int8(), pa.bool_(), pa.string(), pa.uuid(), variant.type(), pa.decimal128(5, 1)):
        assert len(variant.get(column, "$.a", type_)) == 0
    assert len(variant.type_of(column)) == len(variant.validate(column)) == 0


@settings(max_examples=20)
@given(lengths=st.lists(st.integers(0, 300) | st.sampled_from([5_000, 70_000]), max_size=9))
def test_values_of_any_length_come_whole(lengths: list[int]) -> None:
    """However long values are, and however different, text, binary and values are copied byte by byte."""
    texts = [("bowstring" * 8_000)[number : number + length] for number, length in enumerate(lengths)]
    data = [each.encode() for each in texts]
    rows: list[Any] = [{"s": text, "b": binary} for text, binary in zip(texts, data, strict=True)]
    here = variant.from_python(rows)
    for column in (here, here.as_batch().to_device(fake_device())[0]):
        assert variant.get(column, "$.s", pa.string()).to_arrow().to_pylist() == texts
        assert variant.get(column, "$.s", pa.string_view()).to_arrow().to_pylist() == texts
        assert variant.get(column, "$.b", pa.large_binary()).to_arrow().to_pylist() == data
        values = variant.get(column, "$.s", variant.type()).as_batch().to_device(cpu())[0]
        assert variant.to_python(values) == texts


def test_a_device_column_stays_there() -> None:
    """No byte of a fixed-width result passes the host, and the result is on the device."""
    column = variant.from_python([{"a": 1}]).as_batch().to_device(fake_device())[0]
    got = variant.get(column, "a", pa.int32())
    assert got.device is fake_device()
    assert got.to_arrow().to_pylist() == [1]


@pytest.mark.parametrize(
    "type_",
    [
        *(pa.duration("s"), pa.month_day_nano_interval(), pa.decimal128(5, -1)),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dense_union([pa.field("a", pa.int8())])),
    ],
    ids=str,
)
def test_types_that_no_value_becomes(type_: pa.DataType) -> None:
    """A type that the format cannot hold is refused by name, before anything runs."""
    with pytest.raises(Unsupported, match=re.escape(f"becomes {type_};")):
        variant.get(variant.from_python([1]), "$", type_)


def test_calls_that_mean_nothing() -> None:
    """No type, no paths, no way to treat errors: refused."""
    column = variant.from_python([1])
    with pytest.raises(UsageError, match="no type"):
        variant.get(column, "$", 8)
    with pytest.raises(UsageError, match="no paths"):
        variant.get_many(column, {})
    for wanted in ({"a": "$.a"}, {"a": ("$.a", pa.int8(), "exact")}, [("a", "$.a"), ("b", "$.b")]):
        with pytest.raises(UsageError, match="no paths"):
            variant.get_many(column, wanted)  # type: ignore[arg-type]  # on purpose
    for path in (None, 5, b"a"):
        with pytest.raises(UsageError, match="not a path"):
            variant.get(column, path, pa.int8())  # type: ignore[arg-type]  # on purpose
        with pytest.raises(UsageError, match="not a path"):
            variant.type_of(column, path)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(UsageError, match="errors"):
        variant.get(column, "$", pa.int8(), on_error="ignore")  # type: ignore[call-overload]  # on purpose
    with pytest.raises(UsageError, match="no way to cast"):
        variant.get(column, "$", pa.int8(), cast="duckdb")  # type: ignore[call-overload]  # on purpose
    with pytest.raises(UsageError, match=r"'x\.status'"):
        variant.get_many(column, {"x.status": ("$", pa.int8()), "x": ("$", pa.int8())}, with_status=True)
    assert len(variant.get_many(column, {"x.status": ("$", pa.int8()), "x": ("$", pa.int8())}).columns) == 2


@pytest.mark.parametrize("type_", [pa.int64(), pa.decimal128(38, 0), pa.decimal256(76, 0)], ids=str)
@pytest.mark.parametrize("width", [4, 8, 16])
def test_decimals_of_too_many_digits_are_malformed(width: int, type_: pa.DataType, on_device: Move) -> None:
    """A decimal has at most 9, 18 or 38 digits, whatever its bytes could hold."""
    digits = {4: 9, 8: 18, 16: 38}[width]
    numbers = [sign * (10**digits - less) for sign in (1, -1) for less in (0, 1)]
    header = bytes([{4: 8, 8: 9, 16: 10}[width] << 2, 0])
    rows: list[Row] = [
        (b"\x01\x00\x00", header + number.to_bytes(width, "little", signed=True)) for number in numbers
    ]
    column = on_device(column_of(rows))
    got = variant.get(column, "$", type_, with_status=True)["status"].as_batch().to_device("cpu")[0]
    statuses = got.to_arrow().to_pylist()
    assert statuses[::2] == [Status.MALFORMED] * 2
    assert Status.MALFORMED not in statuses[1::2]
