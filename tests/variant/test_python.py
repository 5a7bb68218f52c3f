"""Variant columns from Python objects and back, and from every storage that Arrow allows."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import InvalidBody, LimitExceeded, NotOnDevice, Truncated, UsageError
from bowstring.limits import Limits
from bowstring.testing import fake_device
from bowstring.variant.builder import VariantBuilder, from_python
from bowstring.variant.codec.primitives import Value
from bowstring.variant.equals import equals
from bowstring.variant.explode import explode, keys
from bowstring.variant.json.writer import to_json
from bowstring.variant.python_objects import to_python
from bowstring.variant.schema import schema_of
from tests.variant.encoding import column_of, encode, variant_array, variant_field
from tests.variant.typed_values import KEYS, VALUES

NULL = Value("null", None)
D = decimal.Decimal


class _Word(str):
    """Text that calls itself otherwise, as a member of ``class Word(str, Enum)`` does."""

    __slots__ = ()

    def __str__(self) -> str:
        return "Word.HERE"


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**38) + 1, 10**38 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(codec="utf-8")),
        st.binary(),
        st.uuids(),
        st.dates(),
        st.datetimes(),
        st.datetimes(
            min_value=dt.datetime(1, 1, 2),  # noqa: DTZ001  the zone is drawn beside it
            max_value=dt.datetime(9999, 12, 30),  # noqa: DTZ001
            timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=-4))]),
        ),
        st.times(),
    ),
    lambda inside: st.one_of(st.lists(inside, max_size=4), st.dictionaries(KEYS, inside, max_size=4)),
    max_leaves=8,
)


@given(rows=st.lists(st.none() | VALUES, max_size=6))
def test_typed_round_trip(rows: list[Value | None]) -> None:
    """Typed trees come back as they were, SQL NULLs and Variant nulls apart."""
    column = from_python(rows)
    column.to_arrow().validate(full=True)
    assert to_python(column, typed=True) == rows


@given(rows=st.lists(PLAIN, max_size=6))
def test_plain_round_trip(rows: list[Any]) -> None:
    """Python objects come back equal; big integers as the decimals that they became."""
    assert to_python(from_python(rows)) == rows


class _Count(int):
    """A number that is of another type than int."""


ODD = st.one_of(
    PLAIN,
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20),
    st.builds(np.int64, st.integers(-(2**63), 2**63 - 1)),
    st.builds(_Count, st.integers(-300, 300)),
    st.builds(_Word, KEYS),
    st.dictionaries(st.builds(_Word, KEYS), st.integers(), max_size=3),
    st.lists(st.dictionaries(st.sampled_from("abc"), PLAIN), max_size=3),
    st.sampled_from(
        [math.nan, math.inf, -0.0, 1 << 63, -(1 << 63) - 1, 1 << 200, "\ud800", 1j, {1: 2}, D("1e-39")]
    ),
)


def outcome(things: Any) -> Any:
    """Return the bytes of a column of these rows, or its error."""
    try:
        array = from_python(things).to_arrow().storage
    except UsageError as error:
        return str(error)
    return array.to_pylist()


@given(rows=st.lists(ODD, max_size=8), shared=PLAIN)
def test_rows_together_and_one_by_one(rows: list[Any], shared: Any) -> None:
    """A list, whose rows are read together, gives the bytes and the errors that its rows give one by one."""
    for each in (rows, [*rows, shared, [shared, {"s": shared}]]):
        assert outcome(each) == outcome(tuple(each)) == outcome(iter(each))


def test_rows_are_read_when_they_are_given() -> None:
    """An iterable may yield one object again and again, changed in between; so may those who append."""
    row: dict[str, Any] = {}

    def rows() -> Any:
        for number in range(3):
            row.update(a=number, b=[number])
            yield row

    assert to_python(from_python(rows())) == [{"a": number, "b": [number]} for number in range(3)]
    builder = VariantBuilder()
    for number in range(5000):
        row["a"] = number
        builder.append(row)
    builder.extend([row, {"c": None}])
    assert [each.get("a") for each in to_python(builder.finish())] == [*range(5000), 4999, None]


def test_rows_before_an_error_stay() -> None:
    """An error of one row leaves those before it, of the same list too."""
    builder = VariantBuilder()
    with pytest.raises(UsageError, match="row 2"):
        builder.extend([{"a": 1}, {"a": D(2)}, 1j, 4])
    builder.append(3)
    assert to_python(builder.finish()) == [{"a": 1}, {"a": D(2)}, 3]


@pytest.mark.parametrize("make", [list, iter])
def test_the_row_that_is_too_large_is_named(make: Any) -> None:
    """The values of a column are bounded while it is built: the error says at which row they are too large."""
    rows = [{"text": "x" * 100}] * 50
    with pytest.raises(LimitExceeded, match=r"at most 1000 bytes.*row 9\b"):
        from_python(make(rows), limits=Limits(extracted_bytes=1000))


def test_large_rows_and_many_values_that_are_not_pythons() -> None:
    """Rows beyond what is read or written at once, of many keys, dates and bytes, come back equal."""
    rows: list[Any] = [
        {f"key {number}": number for number in range(40_000)},
        ["x" * 3_000_000, b"y" * 3_000_000],
        [dt.date(2020, 1, 1 + number % 28) for number in range(40_000)],
        [[]] * 200_000,
        *({f"{row} {number}": D(number) / 4 for number in range(20)} for row in range(3000)),
    ]
    assert to_python(from_python(rows)) == rows


@given(rows=st.lists(st.none() | VALUES, max_size=8), start=st.integers(0, 8), count=st.integers(0, 8))
def test_slices(rows: list[Value | None], start: int, count: int) -> None:
    """A slice of a column gives the rows of that slice."""
    part = from_python(rows).batch.slice(min(start, len(rows)), count)
    assert to_python(part[0], typed=True) == rows[start : start + count]


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (np.int64(5), Value("int8", 5)),
        (np.uint64(2**64 - 1), Value("decimal16", D(2**64 - 1))),
        (2**63, Value("decimal16", D(2**63))),
        (-(2**63), Value("int64", -(2**63))),
        (np.float32(0.1), Value("float", float(np.float32(0.1)))),
        (np.float64(0.1), Value("double", 0.1)),
        (np.bool_(True), Value("boolean", True)),
        (D("1.50"), Value("decimal4", D("1.50"))),
        (D("1e2"), Value("decimal4", D(100))),
        (bytearray(b"x"), Value("binary", b"x")),
        (np.datetime64("1970-01-02"), Value("date", 1)),
        (np.datetime64("1970-01-01T00:00:01"), Value("timestamp_ntz", 1_000_000)),
        (np.datetime64("1970-01-01T00:00:01", "ns"), Value("timestamp_ntz_ns", 1_000_000_000)),
        (np.datetime64("NaT", "s"), NULL),
        (pd.NaT, NULL),
        (pd.Timestamp("1970-01-01T00:00:00.000000001"), Value("timestamp_ntz_ns", 1)),
        (pd.Timestamp("1970-01-01T00:00:00.000000001Z"), Value("timestamp_ns", 1)),
        (pd.Timestamp("1970-01-01T00:00:01Z"), Value("timestamp", 1_000_000)),
        (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC), Value("timestamp", -1)),
        (dt.time(23, 59, 59, 999_999), Value("time", 86_399_999_999)),
        ((1, "a"), Value("array", [Value("int8", 1), Value("string", "a")])),
        (np.array([1, 2]), Value("array", [Value("int8", 1), Value("int8", 2)])),
        (np.array(5), Value("int8", 5)),
        (_Word("here"), Value("string", "here")),
        ({"a": Value("int64", 1)}, Value("object", {"a": Value("int64", 1)})),
    ],
    ids=repr,
)
def test_python_types(thing: Any, expected: Value) -> None:
    """Each Python, NumPy and pandas object becomes the narrowest Variant type that holds it exactly."""
    assert to_python(from_python([[thing]]), typed=True) == [Value("array", [expected])]


@pytest.mark.parametrize(
    "thing",
    [
        1 << 128,
        D("NaN"),
        D("1e-39"),
        dt.time(1, tzinfo=dt.UTC),
        dt.timedelta(1),
        np.timedelta64(1, "s"),
        np.datetime64("1970-01", "M"),
        1j,
        {1: 2},
        {"a"},
        "\ud800",
        {"\ud800": 1},
        10**100_000,
        Value("int8", 300),
    ],
    ids=lambda thing: repr(thing)[:20] if not isinstance(thing, int) else "large",
)
def test_what_no_variant_holds_is_refused(thing: Any) -> None:
    """Nothing is rounded, cut or turned into text without being asked."""
    with pytest.raises(UsageError, match="row 1"):
        from_python([1, thing])


def test_errors_say_the_row_and_the_place() -> None:
    """An error in a nested object says its row, and the way to it."""
    with pytest.raises(UsageError, match=r"row 1, \$\['a'\]\[2\]"):
        from_python([1, {"a": [1, 2, 1j]}])


def test_an_object_that_holds_itself_is_refused() -> None:
    """A list inside of itself ends at the bound of depth."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(LimitExceeded, match="deeply"):
        from_python([endless])


def test_what_python_has_no_type_for_stays_typed() -> None:
    """Nanoseconds, and days and instants beyond the year 9999, come back as Values."""
    values = [
        Value("timestamp_ns", 1),
        Value("timestamp_ntz_ns", 1),
        Value("date", 2**31 - 1),
        Value("date", -(2**31)),
        Value("timestamp", 2**63 - 1),
        Value("timestamp_ntz", -(2**63)),
    ]
    assert to_python(from_python(values)) == values


def test_nulls() -> None:
    """SQL NULL and the Variant null are two things in the column and in typed trees, both None in plain ones."""
    column = from_python([None, NULL, [None]])
    assert column.null_count == 1
    assert to_python(column, typed=True) == [None, NULL, Value("array", [NULL])]
    assert to_python(column) == [None, None, [None]]


def test_not_a_number() -> None:
    """A NaN stays one."""
    assert math.isnan(to_python(from_python([math.nan]))[0])


def test_blocks_have_dictionaries_of_their_own() -> None:
    """Each 65,536 rows share one metadata, which holds the keys of these rows and no others."""
    rows = [{"a": 1}] * 65_536 + [{"b": 1}]
    column = from_python(rows)
    assert len(column.to_arrow().field("metadata").dictionary) == 2
    assert to_python(column.batch.slice(65_536 - 1, 2)[0]) == [{"a": 1}, {"b": 1}]


@pytest.mark.parametrize("rows", [[], [None], [None, None, 1]])
def test_columns_without_values(rows: list[Any]) -> None:
    """No rows, and rows that are all null, make valid columns of the same type."""
    column = from_python(rows)
    column.to_arrow().validate(full=True)
    assert column.type == from_python([1]).type
    assert to_python(column) == rows


def stored(rows: list[Value | None], metadata: str, value: str, *, first: str = "metadata") -> pa.StructArray:
    """Return rows in another storage."""
    dictionary = variant_array(None if row is None else encode(row) for row in rows)
    plain = dictionary.field("metadata").cast(pa.binary())
    if metadata == "dictionary":
        names: pa.Array = dictionary.field("metadata")
    elif metadata == "runs":
        ends = pa.array(range(1, len(rows) + 1), pa.int32())
        names = pa.RunEndEncodedArray.from_arrays(ends, plain)
    else:
        names = plain.cast(pa.large_binary() if metadata == "large" else pa.binary_view())
    values = dictionary.field("value")
    if value != "binary":
        values = values.cast(pa.large_binary() if value == "large" else pa.binary_view())
    children = {"metadata": names, "value": values}
    order = [first, *(name for name in children if name != first)]
    mask = pa.array([row is None for row in rows])
    return pa.StructArray.from_arrays([children[name] for name in order], order, mask=mask)


@pytest.mark.parametrize("first", ["metadata", "value"])
@pytest.mark.parametrize("value", ["binary", "large", "view"])
@pytest.mark.parametrize("metadata", ["dictionary", "runs", "large", "view"])
def test_every_storage(metadata: str, value: str, first: str) -> None:
    """Every encoding of the children, in either order, sliced or not, gives the same rows."""
    rows = [
        Value("object", {"a": Value("int8", n), "long name": Value("string", "x" * n)}) for n in range(20)
    ]
    mixed: list[Value | None] = [*rows, None, NULL]
    array = stored(mixed, metadata, value, first=first)
    assert to_python(array, typed=True, plain=True) == mixed
    assert to_python(array.slice(3, 18), typed=True, plain=True) == mixed[3:21]


def test_a_plain_struct_is_taken_when_told_so() -> None:
    """A struct without the mark is refused, with the hint, and taken with plain=True."""
    array = stored([NULL], "large", "binary")
    with pytest.raises(UsageError, match="plain=True"):
        to_python(array)
    assert to_python(array, plain=True, typed=True) == [NULL]


def broken(metadata: bytes | None, value: bytes | None) -> Any:
    """Return a column whose second row is this."""
    good = encode(Value("array", []))
    array = pa.StructArray.from_arrays(
        [pa.array([good[0], metadata], pa.binary()), pa.array([good[1], value], pa.binary())],
        ["metadata", "value"],
    )
    return column_of(array, variant_field("variant").with_type(array.type))


@pytest.mark.parametrize(
    "call", [to_python, to_json, schema_of, keys, explode, lambda each: equals(each, each)]
)
def test_malformed_rows_are_named(call: Any) -> None:
    """Each call that meets a malformed row raises, and says which row it is."""
    with pytest.raises(Truncated, match="row 1"):
        call(broken(b"\x01\x00\x00", b"\x02"))
    with pytest.raises(InvalidBody, match=r"no metadata.*row 1"):
        call(broken(None, b"\x00"))


@pytest.mark.parametrize("call", [to_python])
def test_columns_on_a_device_are_refused(call: Any) -> None:
    """What has no kernel says so, and which copy helps."""
    column = from_python([1]).batch.to_device(fake_device(0))[0]
    with pytest.raises(NotOnDevice, match="to_device"):
        call(column)
    assert to_python(column.as_batch().to_device("cpu")[0]) == [1]


def test_depth_can_be_raised() -> None:
    """Nesting beyond the default is read and written where the limits allow it."""
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    with pytest.raises(LimitExceeded, match=r"row 0.*Limits\.depth"):
        from_python([deep])
    limits = Limits(depth=500)
    column = from_python([deep], limits=limits)
    with pytest.raises(LimitExceeded, match="row 0"):
        to_python(column)
    assert to_python(column, limits=limits) == [deep]


def test_uuid_is_itself() -> None:
    """A UUID is stored in the order in which it is printed."""
    identity = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert encode(Value("uuid", identity))[1][1:].hex() == identity.hex


@pytest.mark.parametrize("is_object", [False, True])
def test_containers_that_occur_again_in_each_other_end_at_the_limits(is_object: bool) -> None:
    """What is written out twice at each level has no end that a column could hold."""
    thing: Any = "x"
    for _ in range(60):
        thing = {"a": thing, "b": thing} if is_object else [thing, thing]
    with pytest.raises(LimitExceeded, match="too many bytes"):
        from_python([thing], limits=Limits(extracted_bytes=1 << 12))


def test_rows_of_many_values_are_the_rows() -> None:
    """Blocks end before their nodes take much memory; names, values and nulls stay where they are."""
    rows = [None if at % 97 == 0 else {"n": at, "all": [at % 2] * 9000} for at in range(1200)]
    assert to_python(from_python(rows)) == rows
