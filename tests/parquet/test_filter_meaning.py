"""What filters mean: rows compared one by one, in Python, and what statistics leave out changes nothing."""

from __future__ import annotations

import decimal
import functools
import io
import math
import operator
import uuid
from decimal import Decimal
from typing import Any

import arro3.core
import arro3.io
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import UsageError

OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NAN, INF = math.nan, math.inf


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def compared(value: Any, symbol: str, literal: Any) -> bool | None:
    """Return what a comparison is by the table of the guide: Python compares numbers of all kinds exactly."""
    if value is None or literal is None:
        return None
    if isinstance(literal, Decimal) and literal.is_nan():
        literal = NAN
    if is_nan(value) or is_nan(literal):
        return symbol == "!="
    if isinstance(value, float) and isinstance(literal, Decimal):
        value = Decimal(repr(value))
    elif isinstance(value, Decimal) and isinstance(literal, float):
        literal = Decimal(repr(literal))
    return bool(OPERATORS[symbol](value, literal))


def is_member(value: Any, literals: list[Any]) -> bool:
    """Return whether a value is one of some, as pyarrow's ``is_in`` has it: zeros have a sign."""
    if value is None:
        return None in literals
    if is_nan(value):
        return any(_decimal(each).is_nan() for each in literals)
    return any(
        compared(value, "==", each) is True
        and not (isinstance(value, float) and value == 0 and _sign(value) != _sign(each))
        for each in literals
    )


def _decimal(value: Any) -> Decimal:
    return Decimal(value) if isinstance(value, float) else value if isinstance(value, Decimal) else Decimal(0)


def _sign(value: Any) -> bool:
    return _decimal(value).is_signed()


def holds(condition: Any, row: dict[str, Any]) -> bool | None:
    """Return what a condition is for a row, in the logic of three values."""
    call, *rest = condition
    if call == "not":
        inner = holds(rest[0], row)
        return None if inner is None else not inner
    if call in ("and", "or"):
        parts = [holds(each, row) for each in rest]
        decisive = call == "or"
        return decisive if decisive in parts else None if None in parts else not decisive
    value = row[rest[0]]
    if call == "in":
        return is_member(value, rest[1])
    if call == "null":
        return value is None or (rest[1] and is_nan(value))
    if call == "nan":
        return None if value is None else is_nan(value)
    return compared(value, call, rest[1])


PLACES = {"s.x": ("s", "x")}


def expression(condition: Any) -> pc.Expression:
    """Return a condition as pyarrow spells it."""
    call, *rest = condition
    if call == "not":
        return ~expression(rest[0])
    if call in ("and", "or"):
        first, second = map(expression, rest)
        return first & second if call == "and" else first | second
    place = pc.field(PLACES.get(rest[0], rest[0]))
    if call == "in":
        return place.isin(rest[1])
    if call == "null":
        return place.is_null(nan_is_null=rest[1])
    return place.is_nan() if call == "nan" else OPERATORS[call](place, rest[1])


def by_pyarrow(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2)
    return sink.getvalue()


def by_polars(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pl.DataFrame(pl.from_arrow(table)).write_parquet(sink, row_group_size=2)
    return sink.getvalue()


def by_arro3(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    arro3.io.write_parquet(arro3.core.Table.from_arrow(table), sink, max_row_group_size=2)
    return sink.getvalue()


def by_duckdb(table: pa.Table, folder: Any) -> bytes:
    where = folder / "file.parquet"
    with duckdb.connect() as connection:
        connection.register("data", table)
        connection.sql("from data").write_parquet(str(where))
    return bytes(where.read_bytes())


FLOATS = [NAN, -NAN, 0.0, -0.0, INF, -INF, 0.1, 1.0, -1.0, 5e-324, 1.5e300, 2.0**53, 2.0**63]
INTEGERS = [0, 1, -1, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
UNSIGNED = [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
DECIMALS = [Decimal(text) for text in ("0.00", "0.10", "-0.10", "1.00", "12345.67", "-99999.99", "99999.99")]
WRITTEN = pa.schema(
    {
        "f": pa.float64(),
        "g": pa.float32(),
        "i": pa.int64(),
        "u": pa.uint64(),
        "d": pa.decimal128(9, 2),
        "s": pa.struct({"x": pa.float64()}),
    }
)
FEW = st.sampled_from([NAN, 0.0, -0.0, 1.0])
ROWS = st.fixed_dictionaries(
    {
        "f": st.none() | FEW | st.sampled_from(FLOATS),
        "g": st.none() | FEW | st.sampled_from(FLOATS),
        "i": st.none() | st.sampled_from(INTEGERS),
        "u": st.none() | st.sampled_from(UNSIGNED),
        "d": st.none() | st.sampled_from(DECIMALS),
        "s": st.none() | st.fixed_dictionaries({"x": st.none() | FEW | st.sampled_from(FLOATS)}),
    }
)
NUMBERS = st.sampled_from([*FLOATS, *INTEGERS, *DECIMALS, 2.5, 10, Decimal("0.1")])
LEAVES = st.one_of(
    st.tuples(st.sampled_from([*OPERATORS]), st.sampled_from(["f", "g", "i", "u", "d", "s.x"]), NUMBERS),
    st.tuples(
        st.just("in"), st.sampled_from(["f", "g", "s.x"]), st.lists(st.none() | st.sampled_from(FLOATS))
    ),
    st.tuples(st.just("in"), st.sampled_from(["i", "u"]), st.lists(st.none() | st.sampled_from(INTEGERS))),
    st.tuples(st.just("in"), st.sampled_from(["d"]), st.lists(st.none() | st.sampled_from(DECIMALS))),
    st.tuples(st.just("null"), st.sampled_from(["f", "g", "s.x", "i", "d"]), st.booleans()),
    st.tuples(st.just("nan"), st.sampled_from(["f", "g", "s.x"])),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.just("not"), inner) | st.tuples(st.sampled_from(["and", "or"]), inner, inner),
    max_leaves=4,
)


@pytest.mark.parametrize("writer", ["pyarrow", "polars", "arro3", "duckdb"])
@settings(max_examples=settings().max_examples * 2 // 5)  # of the profile's: there are four writers
@given(rows=st.lists(ROWS, min_size=1, max_size=7), conditions=st.lists(CONDITIONS, min_size=3, max_size=6))
def test_filters_mean_what_rows_compared_one_by_one_mean(
    writer: str, rows: list[Any], conditions: list[Any], tmp_path_factory: Any
) -> None:
    """For files of four writers, a filter leaves the rows for which Python says that it holds."""
    with np.errstate(over="ignore"):
        rows = [{**row, "g": None if row["g"] is None else float(np.float32(row["g"]))} for row in rows]
    table = pa.Table.from_pylist(rows, WRITTEN).append_column("id", pa.array(range(len(rows))))
    if writer == "duckdb":
        file = by_duckdb(table, tmp_path_factory.mktemp("duckdb"))
    else:
        file = {"pyarrow": by_pyarrow, "polars": by_polars, "arro3": by_arro3}[writer](table)
    flat = [{**row, "s.x": row["s"] and row["s"]["x"]} for row in rows]
    for condition in conditions:
        with bow.parquet.read(file, columns=["id"], filters=expression(condition)) as stream:
            rows_read = stream.read_all()["id"].to_pylist()
        assert rows_read == [number for number, row in enumerate(flat) if holds(condition, row)], condition


BITS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
UNSIGNED_BITS = {pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64}
EDGES = [0, 1, 2**7, 2**8, 2**15, 2**16, 2**24, 2**31, 2**32, 2**53, 2**62, 2**63, 2**64]
WHOLE = sorted({sign * edge + step for edge in EDGES for sign in (1, -1) for step in (-1, 0, 1)})
PRECISE = [0.0, -0.0, 0.1, 1 / 3, 2.5, 1e23, 65504.0, 65520.0, 3.5e38, 1e300, 5e-324, 6e-8, INF, -INF, NAN]
TEXTS = [
    "0.1",
    "-0.1",
    "0.125",
    "99999.99",
    "1e37",
    "-1e75",
    "1e400",
    "1e-400",
    "1e999999999",
    "2.50",
    "Infinity",
    "NaN",
]


def column_of(type_: pa.DataType) -> list[Any]:
    """Return values of a type that are near what can go wrong, and nulls."""
    if type_ in BITS or type_ in UNSIGNED_BITS:
        least, most = (
            (-(2 ** BITS[type_]), 2 ** BITS[type_] - 1)
            if type_ in BITS
            else (0, 2 ** UNSIGNED_BITS[type_] - 1)
        )
        values: list[Any] = [each for each in [*WHOLE, least, most] if least <= each <= most]
    elif pa.types.is_decimal(type_):
        unit = Decimal(1).scaleb(-type_.scale)
        most = decimal.Context(prec=80).multiply(unit, 10**type_.precision - 1)
        values = [each for each in map(Decimal, WHOLE) if abs(each) <= most]
        values += [unit, -unit, most, most.copy_negate()]
        values += [
            each for each in (Decimal(10) ** 23, Decimal("0.1")) if type_.scale < 38 and abs(each) <= most
        ]
        values = [each for each in values if type_.scale or each == each.to_integral_value()]
    else:
        kind: Any = {16: np.float16, 32: np.float32, 64: np.float64}[type_.bit_width]
        with np.errstate(over="ignore"):
            values = [
                float(kind(each)) for each in [*map(float, WHOLE), *PRECISE, *(-each for each in PRECISE)]
            ]
    return [None, *values, None]


NUMERIC = [
    *BITS,
    *UNSIGNED_BITS,
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal32(7, 2),
    pa.decimal64(16, 1),
    pa.decimal128(9, 9),
    pa.decimal128(38, 0),
    pa.decimal128(38, 10),
    pa.decimal256(76, 20),
]
FILES: dict[Any, tuple[list[Any], bytes]] = {}


def file_of(type_: pa.DataType) -> tuple[list[Any], bytes]:
    """Return the values of a type, and a file of them in row groups of two."""
    if type_ not in FILES:
        rows = column_of(type_)
        made = (
            [None if each is None else np.float16(each) for each in rows] if type_ == pa.float16() else rows
        )
        table = pa.table({"x": pa.array(made, type_), "id": pa.array(range(len(rows)))})
        FILES[type_] = rows, by_pyarrow(table)
    return FILES[type_]


def spelled(number: Any) -> list[Any]:
    """Return a number as Python, NumPy and pyarrow have it."""
    spellings = [number]
    if isinstance(number, int):
        spellings += [
            kind(number)
            for kind in (np.int64, np.uint64)
            if np.iinfo(kind).min <= number <= np.iinfo(kind).max
        ]
        spellings += [pa.scalar(number, pa.int64())] if -(2**63) <= number < 2**63 else []
        spellings += [Decimal(number), *([float(number)] if abs(number) < 2**1000 else [])]
    elif isinstance(number, float):
        with np.errstate(over="ignore"):
            spellings += [np.float64(number), np.float32(number), np.float16(number)]
        spellings += [pa.scalar(number), pa.scalar(number, pa.float32())]
    elif number.is_finite() and -20 < number.adjusted() < 30:
        spellings += [pa.scalar(number)]
    return spellings


def plain(number: Any) -> Any:
    """Return a number of NumPy or pyarrow as the Python number that it is."""
    number = number.as_py() if isinstance(number, pa.Scalar) else number
    return (
        int(number)
        if isinstance(number, np.integer)
        else float(number)
        if isinstance(number, float | np.floating)
        else number
    )


LITERALS = (
    st.sampled_from([*WHOLE, 10**40, -(10**400), *PRECISE, *map(Decimal, TEXTS)])
    | st.integers()
    | st.floats()
    | st.decimals()
).flatmap(lambda number: st.sampled_from(spelled(number)))


@given(
    type_=st.sampled_from(NUMERIC),
    numbers=st.lists(LITERALS, min_size=1, max_size=4),
    symbol=st.sampled_from([*OPERATORS, "in", "not in"]),
    is_expression=st.booleans(),
)
def test_every_number_meets_every_type_of_column_by_one_table(
    type_: pa.DataType, numbers: list[Any], symbol: str, is_expression: bool
) -> None:
    """In tuples and in expressions, and under negation; what is beyond a type is the same for all values."""
    rows, file = file_of(type_)
    if "in" in symbol:
        condition: Any = ("in", "x", [plain(number) for number in numbers])
        condition = ("not", condition) if symbol == "not in" else condition
        filters: Any = [("x", symbol, numbers)]
        negated = [("x", "in" if symbol == "not in" else "not in", numbers)]
    else:
        condition = (symbol, "x", plain(numbers[0]))
        filters, negated = [("x", symbol, numbers[0])], None
        try:
            expression_of_it = OPERATORS[symbol](pc.field("x"), numbers[0])
        except (OverflowError, TypeError, pa.ArrowInvalid):  # pyarrow has no such number
            expression_of_it = None
        if expression_of_it is not None:
            negated = ~expression_of_it
            filters = expression_of_it if is_expression else filters
    for asked, wanted in ((filters, condition), (negated, ("not", condition))):
        if asked is None:
            continue
        with bow.parquet.read(file, columns=["id"], filters=asked) as stream:
            rows_read = stream.read_all()["id"].to_pylist()
        expected = [number for number, value in enumerate(rows) if holds(wanted, {"x": value})]
        assert rows_read == expected, (asked, [rows[number] for number in {*rows_read} ^ {*expected}])


@pytest.mark.parametrize("in_struct", [False, True])
def test_uuids_are_compared_with_uuids_and_bytes(in_struct: bool) -> None:
    """In tuples and expressions, as bytes are ordered; other bytes and text are not UUIDs."""
    rows = [uuid.UUID(int=number) for number in (5, 1, 2**127, 7)]
    column = pa.array([*(row.bytes for row in rows), None], pa.uuid())
    table = pa.table({"x": column, "id": pa.array(range(5))})
    if in_struct:
        table = table.set_column(0, "s", pa.StructArray.from_arrays([column], names=["x"]))
    file = by_pyarrow(table)
    name: Any = ("s", "x") if in_struct else "x"
    wanted = rows[0]
    for symbol, compare in OPERATORS.items():
        expected = [number for number, row in enumerate(rows) if compare(row.int, wanted.int)]
        place = pc.field(name)
        for filters in (
            [(name, symbol, wanted)],
            [(name, symbol, wanted.bytes)],
            compare(place, wanted),
            compare(place, pa.scalar(wanted.bytes, pa.binary(16))),
        ):
            assert bow.parquet.read(file, filters=filters).read_all()["id"].to_pylist() == expected
    for filters in (
        [(name, "in", [wanted, rows[2].bytes])],
        pc.field(name).isin(pa.array(rows[:3:2], pa.uuid())),
    ):
        assert bow.parquet.read(file, filters=filters).read_all()["id"].to_pylist() == [0, 2]
    for wrong in (b"short", "text", 5):
        with pytest.raises(UsageError):
            bow.parquet.read(file, filters=[(name, "==", wrong)]).read_all()


def test_what_is_no_comparison_with_a_constant_is_left_to_pyarrow() -> None:
    """It is evaluated as it is, beside comparisons that are not, and leaves out no row group."""
    x = pc.field("f")
    table = pa.table({"f": [1.0, NAN, None, 4.0, NAN, -0.0, 0.0, 8.0], "flag": [True, False, None, True] * 2})
    file = by_pyarrow(table)
    flag = pc.field("flag")
    for expression_ in (
        (x + 1 > 2) & (x < 5.0),
        ~(x + 1 > 2) | (pc.scalar(3.5) < x),
        (x == pc.field("f")) & flag,
        pc.if_else(x.is_nan(), True, x > 3.0),
        ~flag | x.is_nan(),
        pc.xor(x > 1.0, flag),
        x.cast(pa.float32()) != pa.scalar(4.0, pa.float32()),
        pc.is_in(x, value_set=pa.array([4.0, None]), skip_nulls=True),
        (x > 3.0) & pc.scalar(True),
        pc.is_finite(x) & ~(x >= 3.0),
        x > pa.scalar(None, pa.float64()),
        functools.reduce(operator.or_, [x == float(number) for number in range(3000)]),
    ):
        with bow.parquet.read(file, filters=expression_) as stream:
            assert repr(stream.read_all().to_pylist()) == repr(table.filter(expression_).to_pylist())
