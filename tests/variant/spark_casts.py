"""The cells of Spark's cast matrix: the values that are cast, the types they are cast to, and what Spark says."""

from __future__ import annotations

import decimal
import uuid
from typing import Any, Final

import pyarrow as pa

from bowstring import variant
from bowstring.variant.codec.primitives import Value
from tests.variant.encoding import encode
from tests.variant.spark_peer import Row, spark_session, typed, typed_rows, view_of

TYPES: Final[dict[str, Any]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(3,1)": pa.decimal128(3, 1),
    "decimal(9,0)": pa.decimal128(9, 0),
    "decimal(9,9)": pa.decimal128(9, 9),
    "decimal(18,4)": pa.decimal128(18, 4),
    "decimal(38,0)": pa.decimal128(38, 0),
    "decimal(38,10)": pa.decimal128(38, 10),
    "decimal(38,38)": pa.decimal128(38, 38),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<int>": pa.list_(pa.int32()),
    "array<string>": pa.list_(pa.string()),
    "array<array<bigint>>": pa.list_(pa.list_(pa.int64())),
    "struct<a:int>": pa.struct({"a": pa.int32()}),
    "struct<b:string,a:int>": pa.struct({"b": pa.string(), "a": pa.int32()}),
    "struct<a:struct<b:bigint>>": pa.struct({"a": pa.struct({"b": pa.int64()})}),
    "array<struct<a:double>>": pa.list_(pa.struct({"a": pa.float64()})),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "map<string,array<int>>": pa.map_(pa.string(), pa.list_(pa.int32())),
    "variant": variant.type(),
    "array<variant>": pa.list_(variant.type()),
    "struct<a:variant>": pa.struct([pa.field("a", variant.type())]),
    "map<string,variant>": pa.map_(pa.string(), variant.type()),
}
"""The types that are cast to: Spark's name, and the Arrow type."""

_D = decimal.Decimal


def _integers(bits: int) -> list[int]:
    return [-(1 << bits - 1), -1, 0, 1, 100, (1 << bits - 1) - 1]


_SECONDS: Final = ((1 << 63) - 1) // 1_000_000
_REALS: Final = [
    *(0.0, -0.0, 1.0, 1.5, -1.9, 2.5, 0.1, 99.95, 127.9, 128.0, -128.9, 32768.0, 2147483647.5, 123456.789),
    *(1e-3, 9.999e-4, 1e7, 9999999.0, 1.2345678901234567e16, 9223372036854775807.0, -9223372036854775808.0),
    *(1e19, 1e22, 1e37, 1e39, 1e300, 5e-324, 1.7976931348623157e308, 1e-9, 0.49999999999999994),
    *(float("inf"), float("-inf"), float("nan"), float(_SECONDS), float(_SECONDS + 10_000_000)),
]
_SINGLES: Final = [
    *(0.0, -0.0, 1.0, 1.5, -1.75, 0.10000000149011612, 16777216.0, 2147483648.0, 1e7, 9223372036854775808.0),
    *(3.4028234663852886e38, 2.0**-149, 2.0**-100, float("inf"), float("-inf"), float("nan")),
]
_DECIMALS: Final = {
    "decimal4": [
        "0",
        "0.00",
        "1.50",
        "-1.90",
        "100.00",
        "99.95",
        "-0.5",
        "1.5",
        "2.5",
        "127.9",
        "128",
        "999999999",
    ],
    "decimal8": [
        "0.000000000000000001",
        "32768.5",
        "-2147483648.9",
        "999999999999999999",
        "1E-18",
        "12.3400",
    ],
    "decimal16": [
        *("9" * 38, "-" + "9" * 38, "0." + "9" * 38, "9223372036854775807.9", "9223372036854775808"),
        *("0E-38", "1E-38", "12345678901234567890.1234567890", "1.00000000000000000000", "1744821296.789"),
        *("9223372036854.775807", "9223372036854.775808", "0.0000001", "-0.00000012"),
    ],
}
_TIMES: Final = [
    *(0, 1, -1, 999_999, -999_999, 1_744_821_296_780_000, 1_744_821_296_000_000, -62_135_596_800_000_000),
    *(253_402_300_799_999_999, 253_402_300_800_000_000, -62_167_219_200_000_001, 86_400_000_000, 500_000),
    *((1 << 63) - 1, -(1 << 63), 1_583_020_800_000_000),
]
_TEXTS: Final = [
    *(
        "",
        " ",
        "a",
        "1",
        "0",
        "-0",
        "+5",
        " 42 ",
        "\t42\n",
        "\u00a042",
        "4 2",
        "1.9",
        "1.",
        ".5",
        ".",
        "-",
        "+",
        "--1",
    ),
    *("127", "128", "-128", "-129", "32768", "2147483648", "9223372036854775807", "9223372036854775808"),
    *(
        "007",
        "0x1F",
        "1_000",
        "1,000",
        "1e3",
        "1E3",
        "1e-3",
        "1e400",
        "1e",
        "12345678901234567890.123",
        "99.95",
    ),
    *("99.949999", "0.00000000000000000000000000000000000001", "1e-39", "9" * 38, "9" * 39, "1.0e37", "1e38"),
    *("true", "TRUE", " True ", "t", "T", "false", "f", "yes", "no", "y", "n", "on"),
    *(
        "NaN",
        "nan",
        "Infinity",
        "-Infinity",
        "inf",
        "+inf",
        "-INF",
        "infinit",
        "1d",
        "1f",
        "1D",
        "1.5F",
        "1L",
        "0x1p3",
    ),
    *(
        "4.9e-324",
        "2.4e-324",
        "1.7976931348623159e308",
        "3.4028236e38",
        "0.1",
        "1e-46",
        "123456789.123456789",
    ),
    *("2024-01-02", "2024-1-2", "2024-01", "2024", "20240102", "2024-02-30", "0000-01-01", "-0001-01-01"),
    *(
        "+2024-01-02",
        "10000-01-01",
        "5881580-07-11",
        "5881580-07-12",
        " 2024-01-02 ",
        "2024-01-02x",
        "2024-01-02T",
    ),
    *(
        "2024-01-02 03:04:05",
        "2024-01-02T03:04:05.123456",
        "2024-01-02 3:4:5",
        "2024-01-02 03:04",
        "2024-01-02 03",
    ),
    *("2024-01-02T03:04:05.1234567", "2024-01-02 03:04:05.", "2024-01-02 24:00:00", "2024-01-02 23:59:60"),
    *(
        "2024-01-02T03:04:05Z",
        "2024-01-02T03:04:05 UTC",
        "2024-01-02T03:04:05+01:00",
        "2024-01-02 03:04:05-0130",
    ),
    *("2024-01-02 03:04:05+1", "2024-01-02 03:04:05 Europe/Berlin", "2024-07-02 03:04:05 America/New_York"),
    *("2024-01-02T03:04:05+19:00", "294247-01-10T04:00:54.775807Z", "294247-01-10T04:00:54.775808Z"),
    *("epoch", "now", "today", "null", "NULL", "ü€😀", "x" * 70, "\x00", "\u3000", "1\x00"),
    *("[1,2]", '{"a":1}', "١٢", "½", "２", "\u200b1", "\x1f1\x01", "2024-01-02T03:04:05z", "1 ", "1\u2003"),
]


def _object(**fields: Value) -> Value:
    return Value("object", fields)


def _array(*items: Value) -> Value:
    return Value("array", list(items))


def _i(number: int) -> Value:
    return Value("int8", number)


def _s(text: str) -> Value:
    return Value("string", text)


_NULL: Final = Value("null", None)
_NESTED: Final = [
    _array(),
    _array(_i(1), _i(2), _i(3)),
    _array(_i(1), _NULL, _i(3)),
    _array(_s("1"), _s("x"), _s('q"\\\n\u00e9\x01')),
    _array(Value("boolean", True), Value("double", 1.9), Value("decimal4", _D("1.50")), _s(" 7 ")),
    _array(Value("int64", 1 << 40), _i(1)),
    _array(_array(_i(1), _i(2)), _array(), _array(_NULL)),
    _array(_array(_i(1)), _i(2)),
    _array(_array(_array(_i(1)))),
    _array(_object(a=Value("double", 0.5)), _object(), _object(a=_s("2.5"), b=_i(1))),
    _array(_object(a=_s("no number"))),
    _array(Value("date", 19_724), Value("timestamp", 1_744_821_296_780_000), Value("timestamp_ntz", 0)),
    _array(
        Value("binary", b"\x00\xff"),
        Value("float", 1.5),
        Value("double", 1e22),
        Value("double", float("nan")),
    ),
    _object(),
    _object(a=_i(1)),
    _object(a=_NULL),
    _object(b=_s("text")),
    _object(a=_i(1), b=_s("text"), c=_array(_i(1))),
    _object(a=_s("12"), b=_i(34)),
    _object(a=_s("x"), b=_s("text")),
    _object(a=Value("int64", 1 << 40), b=Value("boolean", False)),
    _object(a=_object(b=_i(5), c=_i(6))),
    _object(a=_object()),
    _object(a=_array(_i(1), _NULL), b=_array()),
    _object(A=_i(1), B=_s("large letters")),
    _object(a=_object(b=_array(_object(a=_NULL)))),
    Value("object", {"": _i(1), "é": _i(2), 'q"': _i(3), "😀": _i(4), "\uffe5": _i(5)}),
]
VALUES: Final[list[Value]] = [
    _NULL,
    Value("boolean", True),
    Value("boolean", False),
    *(Value(f"int{bits}", number) for bits in (8, 16, 32, 64) for number in _integers(bits)),
    *(
        Value("int64", number)
        for number in (_SECONDS, _SECONDS + 1, -_SECONDS - 1, -_SECONDS - 2, 1_744_821_296)
    ),
    *(Value("double", number) for number in _REALS),
    *(Value("float", number) for number in _SINGLES),
    *(Value(name, _D(text)) for name, texts in _DECIMALS.items() for text in texts),
    *(Value("date", day) for day in (0, 1, -1, 20_194, -719_162, -719_529, 2_932_896, 2_932_897)),
    *(Value("date", day) for day in (106_751_991, 106_751_992, (1 << 31) - 1, -(1 << 31))),
    *(Value(name, time) for name in ("timestamp", "timestamp_ntz") for time in _TIMES),
    *(Value("binary", data) for data in (b"", b"text", b"12", "ü".encode(), b"\xff\x00", b"y" * 70)),
    *map(_s, _TEXTS),
    Value("uuid", uuid.UUID("f24f9b64-81fa-49d1-b74e-8c09a6e31c56")),
    Value("uuid", uuid.UUID(int=0)),
    *_NESTED,
]
"""Every type that Spark knows, at its bounds and where casts change their minds."""

UNKNOWN: Final = [Value("time", 1), Value("timestamp_ns", 1), Value("timestamp_ntz_ns", 1)]
"""The types that Spark does not know: it fails, whatever they are cast to."""


def rows_of(values: list[Value]) -> list[Row]:
    """Return the bytes of values, and behind them an SQL NULL."""
    return [*map(encode, values), None]


def ask_spark(rows: list[Row], path: str = "$") -> dict[str, list[Any]]:
    """Return what `try_variant_get` makes of every row, for each of the types."""
    session = spark_session()
    view_of(rows, "cast_rows")
    found = {}
    for name in TYPES:
        got = session.sql(f"SELECT try_variant_get(v, '{path}', '{name}') c FROM cast_rows ORDER BY row")
        found[name] = (
            typed_rows([row[0] for row in got.collect()]) if "variant" in name else typed(got.toArrow()["c"])
        )
    return found
