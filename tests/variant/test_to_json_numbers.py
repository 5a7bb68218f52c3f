"""Numbers as JSON text by kernels: every digit of exact ones, the shortest digits of the others."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import UsageError
from bowstring.variant.codec.primitives import Value
from tests.variant.get_columns import Row, column_of
from tests.variant.json_write import Rules, json_of

DOUBLE, FLOAT = bytes([7 << 2]), bytes([14 << 2])
EMPTY = b"\x01\x00\x00"


def texts_of_numbers(header: bytes, numbers: np.ndarray[Any, Any], rules: Rules) -> list[str]:
    """Return the text of numbers, each a row."""
    width = 1 + numbers.itemsize
    values = np.empty((len(numbers), width), np.uint8)
    values[:, 0] = header[0]
    values[:, 1:] = numbers.view(np.uint8).reshape(-1, width - 1)
    offsets = pa.array(np.arange(len(numbers) + 1, dtype=np.int32) * width)
    binary = pa.BinaryArray.from_buffers(
        pa.binary(), len(numbers), [None, offsets.buffers()[1], pa.py_buffer(values.tobytes())]
    )
    metadata = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(len(numbers), np.int8)), pa.array([EMPTY], pa.binary())
    )
    column = pa.StructArray.from_arrays([metadata, binary], names=["metadata", "value"])
    texts: list[str] = variant.to_json(column, rules=rules, plain=True).to_arrow().to_pylist()
    return texts


def some_doubles(rng: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Return doubles of random bits, and of the kinds that people write; no NaN or infinity."""
    bits = rng.integers(0, 1 << 64, count, np.uint64)
    numbers = np.concatenate(
        [
            bits.view(np.float64),
            rng.integers(-(10**17), 10**17, count // 10).astype(np.float64),
            np.round(rng.normal(size=count // 10) * 1000, 2),
            rng.normal(size=count // 10) * 10.0 ** rng.integers(-9, 20, count // 10),
            np.ldexp(1.0, rng.integers(-1074, 1024, count // 10)),
            np.arange(3000, dtype=np.uint64).view(np.float64),
        ]
    )
    return numbers[np.isfinite(numbers)]


def check_doubles(seed: int, count: int) -> None:
    numbers = some_doubles(np.random.default_rng(seed), count)
    assert texts_of_numbers(DOUBLE, numbers, "plain") == list(map(repr, numbers.tolist()))


def test_doubles_are_as_short_as_pythons() -> None:
    """A hundred thousand doubles, most of random bits, are written as `repr` writes them."""
    check_doubles(1, 100_000)
    numbers = some_doubles(np.random.default_rng(0), 3000)
    expected = [json_of(Value("double", number), "spark") for number in numbers.tolist()]
    assert texts_of_numbers(DOUBLE, numbers, "spark") == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_ten_million_doubles_are_as_short_as_pythons(seed: int) -> None:
    """The same for ten million."""
    check_doubles(seed, 1_000_000)


def test_floats_are_the_shortest() -> None:
    """Floats of random bits have the digits that NumPy finds, in Python's notation and in Java's."""
    bits = np.random.default_rng(3).integers(0, 1 << 32, 50_000).astype(np.uint32)
    bits = np.concatenate([bits, np.arange(2000, dtype=np.uint32), bits & np.uint32(0x7F800000)])
    numbers = bits.view(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    shortest = [float(str(number)) for number in numbers]
    assert texts_of_numbers(FLOAT, numbers, "plain") == list(map(repr, shortest))
    java = texts_of_numbers(FLOAT, numbers, "spark")
    assert java == [json_of(Value("float", number), "spark") for number in numbers.tolist()]
    assert all(np.float32(text) == number for text, number in zip(java, numbers, strict=True))


JAVA = {
    -0.0: "-0.0",
    1.0: "1.0",
    100.0: "100.0",
    9999999.0: "9999999.0",
    1e7: "1.0E7",
    12345678.9: "1.23456789E7",
    1e-3: "0.001",
    9.999e-4: "9.999E-4",
    1e23: "1.0E23",
    2e-323: "2.0E-323",
    5e-324: "4.9E-324",
    1e-322: "9.9E-323",
    2.2250738585072014e-308: "2.2250738585072014E-308",
    1.7976931348623157e308: "1.7976931348623157E308",
    0.1 + 0.2: "0.30000000000000004",
    -1.5e300: "-1.5E300",
    math.nan: '"NaN"',
    math.inf: '"Infinity"',
    -math.inf: '"-Infinity"',
}
JAVA_FLOATS = {
    1.4e-45: "1.4E-45",
    2.8e-45: "2.8E-45",
    9.8e-45: "9.8E-45",
    2.9427e-44: "2.9E-44",
    1.17549435e-38: "1.1754944E-38",
    3.4028235e38: "3.4028235E38",
    0.1: "0.1",
    16777216.0: "1.6777216E7",
    -1e10: "-1.0E10",
    math.nan: '"NaN"',
    -math.inf: '"-Infinity"',
}


def test_numbers_in_javas_notation() -> None:
    """Numbers are written as ``Double.toString`` and ``Float.toString`` of Java 19 and later write them."""
    assert texts_of_numbers(DOUBLE, np.array(list(JAVA)), "spark") == list(JAVA.values())
    floats = np.array(list(JAVA_FLOATS), np.float32)
    assert texts_of_numbers(FLOAT, floats, "spark") == list(JAVA_FLOATS.values())


def test_numbers_are_as_spark_writes_them() -> None:
    """Doubles, floats and decimals become the text that was recorded of Spark."""
    recorded = json.loads((Path(__file__).parents[1] / "data/spark-casts.json").read_text())["rows"]
    wanted = [each for each in recorded if each["was"].startswith(("double", "float", "decimal"))]
    rows: list[Row] = [(bytes.fromhex(each["metadata"]), bytes.fromhex(each["value"])) for each in wanted]
    texts = variant.to_json(column_of(rows), rules="spark").to_arrow().to_pylist()
    assert len(texts) > 50
    assert [text.strip('"') for text in texts] == [each["casts"]["string"] for each in wanted]


@given(
    number=st.decimals(allow_nan=False, allow_infinity=False, places=20)
    | st.integers(-(10**38) + 1, 10**38 - 1)
)
def test_exact_numbers(number: Any) -> None:
    """Numbers of up to 38 digits keep each of them."""
    try:
        column = variant.from_python([number])
    except UsageError:
        return
    [text] = variant.to_json(column).to_arrow().to_pylist()
    assert type(number)(text) == number
