"""JSON in and out: equal to Python's own json, exact numbers, and what JSON does not allow refused."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import InvalidBody, LimitExceeded, UsageError
from bowstring.variant.builder import from_python
from bowstring.variant.codec.primitives import Value
from bowstring.variant.json.read import from_json
from bowstring.variant.json.writer import to_json
from bowstring.variant.python_objects import to_python
from tests.variant.json_write import Rules, json_of
from tests.variant.typed_values import KEYS, VALUES

D = decimal.Decimal

DOCUMENTS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**37), 10**37),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8")),
    ),
    lambda inside: st.one_of(st.lists(inside, max_size=4), st.dictionaries(KEYS, inside, max_size=4)),
    max_leaves=10,
)


def texts_of(column: Any) -> list[str | None]:
    """Return a column of text as a list."""
    texts: list[str | None] = column.to_arrow().to_pylist()
    return texts


def one(text: str, rules: Rules = "plain") -> Value:
    """Return the Value of one JSON text."""
    value: Value = to_python(from_json([text], rules=rules), typed=True)[0]
    return value


@given(documents=st.lists(DOCUMENTS, max_size=5), ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_documents_are_what_python_reads(documents: list[Any], ascii_only: bool, indent: int | None) -> None:
    """Text of Python's json, escaped or not, comes out as the objects that Python's json reads from ours."""
    texts = [json.dumps(document, ensure_ascii=ascii_only, indent=indent) for document in documents]
    column = from_json(texts)
    assert [json.loads(text or "") for text in texts_of(to_json(column))] == documents
    assert [json.loads(text or "") for text in texts_of(to_json(column, rules="spark"))] == documents


@given(value=VALUES)
def test_whatever_is_written_is_json(value: Value) -> None:
    """Every tree of every type becomes JSON that Python reads, with the same keys in both sets of rules."""
    plain, spark = (json.loads(json_of(value, rules), parse_float=D) for rules in ("plain", "spark"))
    assert shape(plain) == shape(spark)


def shape(document: Any) -> Any:
    """Return a document with its leaves taken out."""
    if isinstance(document, dict):
        return {key: shape(child) for key, child in document.items()}
    return [shape(child) for child in document] if isinstance(document, list) else None


@given(number=st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_keep_their_digits(number: decimal.Decimal) -> None:
    """A number without an exponent that fits 38 digits is kept exactly; any other is the nearest double."""
    text = format(number, "f")
    found = one(text)
    if found.type == "double":
        assert found.value == float(text)
    else:
        assert found.value == D(text)
        if found.type.startswith("decimal"):
            assert json_of(found, "plain") == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127", Value("int8", 127)),
        ("128", Value("int16", 128)),
        ("-0", Value("int8", 0)),
        (str(2**63 - 1), Value("int64", 2**63 - 1)),
        (str(2**63), Value("decimal16", D(2**63))),
        ("9" * 38, Value("decimal16", D("9" * 38))),
        ("1" + "0" * 38, Value("double", 1e38)),
        ("1" * 5000, None),
        ("1.5", Value("decimal4", D("1.5"))),
        ("1.50", Value("decimal4", D("1.50"))),
        ("1e2", Value("double", 100.0)),
        ("1E-7", Value("double", 1e-7)),
        ("0." + "0" * 37 + "1", Value("decimal16", D("1e-38"))),
        ("0." + "0" * 38 + "1", Value("double", 1e-39)),
        ("-0.0", Value("double", -0.0)),
        ("1e400", None),
        ("1e-400", Value("double", 0.0)),
    ],
)
def test_numbers(text: str, expected: Value | None) -> None:
    """Numbers take the type that the rules say; beyond the doubles they are refused."""
    if expected is None:
        with pytest.raises(InvalidBody, match="beyond the doubles"):
            one(text)
        return
    found = one(text)
    assert found == expected
    assert math.copysign(1, found.value) == math.copysign(1, expected.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5", Value("decimal4", D("1.5"))),
        ("1e2", Value("double", 100.0)),
        ("1e400", Value("double", math.inf)),
        ("-1e400", Value("double", -math.inf)),
        ("-0.0", Value("decimal4", D("0.0"))),
        ("1" + "0" * 38, Value("double", 1e38)),
    ],
)
def test_numbers_by_the_rules_of_spark(text: str, expected: Value) -> None:
    """As Spark 4's parse_json: infinities beyond the doubles, decimals without a sign of zero."""
    assert one(text, "spark") == expected


REFUSED = {
    "a key twice": ('{"a": 1, "b": 2, "a": 3}', InvalidBody, "twice.*'a'"),
    "a key twice, escaped": ('[{"a": 1, "\\u0061": 3}]', InvalidBody, "twice"),
    "not a number": ("NaN", InvalidBody, "NaN"),
    "infinity": ("[-Infinity]", InvalidBody, "Infinity"),
    "nothing": ("", InvalidBody, "not JSON"),
    "two values": ("1 2", InvalidBody, "byte 2"),
    "a comma too many": ("[1,]", InvalidBody, "not JSON"),
    "a control character": ('"\n"', InvalidBody, "control"),
    "a mark of byte order": ("\ufeff1", InvalidBody, "not JSON"),
    "half a pair": ('"\\ud83d"', InvalidBody, "surrogate"),
    "half a pair in a key": ('{"\\ude00": 1}', InvalidBody, "surrogate"),
    "half a pair in the text": ('["\ud83d"]', InvalidBody, "surrogate"),
    "65 levels": ("[" * 65 + "]" * 65, LimitExceeded, "deeply"),
    "100,000 levels": ("[" * 100_000, LimitExceeded, "deeply"),
    "bytes that are not UTF-8": (b'"\xff"', InvalidBody, "UTF-8"),
    "UTF-16": ('"a"'.encode("utf-16-le"), InvalidBody, "not JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_json_is_refused(case: str) -> None:
    """A text that JSON or the rules do not allow raises and says its row, or becomes an SQL NULL when asked."""
    text, error, words = REFUSED[case]
    with pytest.raises(error, match=f"(?s){words}.*") as raised:
        from_json(["1", text])
    assert "row 1" in str(raised.value)
    column = from_json(["1", text, "[2]"], on_error="null")
    assert to_python(column) == [1, None, [2]]
    assert column.null_count == 1


@pytest.mark.parametrize(
    "type_",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())],
)
def test_every_type_of_text(type_: pa.DataType) -> None:
    """Text of any Arrow type is read, nulls become SQL NULLs."""
    texts = pa.array(['{"ä": "😀"}', None, "null"], pa.string())
    array = texts.dictionary_encode() if pa.types.is_dictionary(type_) else texts.cast(type_)
    column = from_json(array)
    assert to_python(column, typed=True) == [
        Value("object", {"ä": Value("string", "😀")}),
        None,
        Value("null", None),
    ]


def test_misuse_is_refused() -> None:
    """One text, things that are none, and rules that are not there raise at once."""
    with pytest.raises(UsageError, match="list"):
        from_json("1")
    with pytest.raises(UsageError, match="str or bytes"):
        from_json([1], on_error="null")
    with pytest.raises(UsageError, match="rules"):
        from_json(["1"], rules="java")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(UsageError, match="on_error"):
        from_json(["1"], on_error="skip")  # type: ignore[arg-type]  # as above
    with pytest.raises(UsageError, match="rules"):
        to_json(from_json(["1"]), rules="java")  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("value", "plain", "spark"),
    [
        (Value("decimal4", D("1.50")), "1.50", "1.5"),
        (Value("decimal4", D("100")), "100", "100"),
        (Value("decimal4", D("0.00")), "0.00", "0"),
        (Value("decimal16", D("-1e-38")), "-0." + "0" * 37 + "1", "-0." + "0" * 37 + "1"),
        (Value("decimal16", D("9" * 37 + "0")), "9" * 37 + "0", "9" * 37 + "0"),
        (Value("double", 1e7), "10000000.0", "1.0E7"),
        (Value("double", 1e16), "1e+16", "1.0E16"),
        (Value("double", 1e-3), "0.001", "0.001"),
        (Value("double", 1.25e-4), "0.000125", "1.25E-4"),
        (Value("double", 9999999.5), "9999999.5", "9999999.5"),
        (Value("double", -0.0), "-0.0", "-0.0"),
        (Value("double", 5e-324), "5e-324", "4.9E-324"),
        (Value("double", math.nan), '"NaN"', '"NaN"'),
        (Value("double", -math.inf), '"-Infinity"', '"-Infinity"'),
        (Value("float", float(np.float32(0.1))), "0.1", "0.1"),
        (Value("float", 1234567936.0), "1234568000.0", "1.234568E9"),
        (Value("string", '"\\\n\x1f/\x7f😀'), '"\\"\\\\\\n\\u001f/\x7f😀"', '"\\"\\\\\\n\\u001F/\x7f😀"'),
        (Value("string", "\\u001f\x1f"), '"\\\\u001f\\u001f"', '"\\\\u001f\\u001F"'),
        (Value("binary", b"\xfb\xff"), '"+/8="', '"+/8="'),
        (Value("time", 1), '"00:00:00.000001"', '"00:00:00.000001"'),
        (
            Value("timestamp", 1_744_821_296_780_000),
            '"2025-04-16T16:34:56.780000Z"',
            '"2025-04-16 16:34:56.78+00:00"',
        ),
        (Value("timestamp_ntz", 0), '"1970-01-01T00:00:00.000000"', '"1970-01-01 00:00:00"'),
        (
            Value("timestamp_ns", -1),
            '"1969-12-31T23:59:59.999999999Z"',
            '"1969-12-31 23:59:59.999999999+00:00"',
        ),
        (Value("date", 2**31 - 1), '"+5881580-07-11"', '"+5881580-07-11"'),
        (Value("date", -(2**31)), '"-5877641-06-23"', '"-5877641-06-23"'),
        (Value("date", -719_529), '"-0001-12-31"', '"-0001-12-31"'),
        (Value("date", -719_528), '"0000-01-01"', '"0000-01-01"'),
        (
            Value("object", {"b": Value("int8", 1), "a": Value("array", [])}),
            '{"b":1,"a":[]}',
            '{"b":1,"a":[]}',
        ),
    ],
    ids=repr,
)
def test_leaves(value: Value, plain: str, spark: str) -> None:
    """Each type is written as the two sets of rules say."""
    assert json_of(value, "plain") == plain
    assert json_of(value, "spark") == spark


@given(day=st.dates(), moment=st.datetimes(), payload=st.binary())
def test_days_are_those_of_python(day: dt.date, moment: dt.datetime, payload: bytes) -> None:
    """Dates, timestamps and binary are written as Python's isoformat and base64 write them."""
    column = from_python([day, moment, payload])
    expected = [
        day.isoformat(),
        moment.isoformat(timespec="microseconds"),
        base64.b64encode(payload).decode(),
    ]
    assert [json.loads(text or "") for text in texts_of(to_json(column))] == expected


@given(number=st.floats(allow_nan=False, allow_infinity=False), narrow=st.floats(width=32, allow_nan=False))
def test_reals_read_back(number: float, narrow: float) -> None:
    """What is written of a double is the same double again, of a float the same float, by both rules."""
    for rules in ("plain", "spark"):
        assert float(json_of(Value("double", number), rules)) == number
        if math.isfinite(narrow):
            assert np.float32(json_of(Value("float", narrow), rules)) == np.float32(narrow)


def test_sql_null_is_no_text() -> None:
    """An SQL NULL gives a null, a Variant null the text null."""
    assert texts_of(to_json(from_python([None, Value("null", None)]))) == [None, "null"]
