"""Columns become arrays of numbers, or are refused by name."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.torch.arrays import arrays_of, check_type

D = decimal.Decimal


def made(array: pa.Array, decimals: str | None = None) -> np.ndarray[Any, Any]:
    """Return what becomes of a column, whole and as a part of a batch."""
    check_type("c", array.type, decimals)
    batch = bow.Batch.from_arrow(pa.record_batch({"c": array}))
    found: np.ndarray[Any, Any] = arrays_of(batch, ["c"], decimals)["c"]
    part = arrays_of(batch.slice(1, len(array) - 1), ["c"], decimals)["c"]
    assert (part == found[1:]).all()
    assert part.dtype == found.dtype
    return found


@pytest.mark.parametrize(
    "type_", [pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]
)
def test_numbers_are_views(type_: pa.DataType) -> None:
    """Numbers keep their type, and are where the batch is."""
    array = pa.array(np.arange(5).astype(type_.to_pandas_dtype()))
    found = made(array)
    assert found.dtype == type_.to_pandas_dtype()
    assert found.tolist() == [0, 1, 2, 3, 4]
    assert found.__array_interface__["data"][0] == array.buffers()[1].address


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([True, False, True]), [True, False, True]),
        (pa.array([dt.date(1970, 1, 2), dt.date(1970, 1, 1)]), [1, 0]),
        (pa.array([90, 0], pa.timestamp("us", "UTC")), [90, 0]),
        (pa.array([5, 6], pa.time64("ns")), [5, 6]),
        (pa.array([5, 6], pa.duration("s")), [5, 6]),
        (pa.array([[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.0, 4.0]]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)), [[1, 2], [3, 4]]),
        (pa.array([[[1], [2]], [[3], [4]]], pa.large_list(pa.list_(pa.int8()))), [[[1], [2]], [[3], [4]]]),
        (pa.array([[], []], pa.list_(pa.int8())), [[], []]),
    ],
)
def test_values(array: pa.Array, expected: Any) -> None:
    """Booleans, dates, times and lists of one length are arrays of numbers."""
    assert made(array).tolist() == expected


@pytest.mark.parametrize(
    "type_", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(18, 2), pa.decimal128(38, 2)]
)
def test_decimals(type_: pa.DataType) -> None:
    """Decimals are refused, floating-point numbers, or integers of the last digit."""
    array = pa.array([D("-1.50"), D("1234567.89"), D(0)], type_)
    with pytest.raises(bow.Unsupported, match='decimals="float64"'):
        check_type("c", type_, None)
    assert made(array, "float64").tolist() == [-1.5, 1234567.89, 0.0]
    assert made(array, "unscaled").tolist() == [-150, 123456789, 0]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**37])
def test_unscaled_decimals_that_do_not_fit(value: int) -> None:
    """A decimal beyond 64 bits is an error, and the largest ones that fit are not."""
    with pytest.raises(bow.InvalidData, match="more than 64 bits"):
        made(pa.array([D(0), D(value)], pa.decimal128(38, 0)), "unscaled")
    least, most = -(2**63), 2**63 - 1
    assert made(pa.array([D(least), D(most)], pa.decimal128(38, 0)), "unscaled").tolist() == [least, most]


@pytest.mark.parametrize(
    "type_",
    [
        pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.struct([("a", pa.int8())]), pa.binary(), pa.null(),
        pa.list_(pa.string()), pa.map_(pa.int8(), pa.int8()), bow.variant.type(), pa.month_day_nano_interval(),
    ],
)  # fmt: skip
def test_what_makes_no_tensor(type_: pa.DataType) -> None:
    """Types without numbers are refused by the column's name."""
    with pytest.raises(bow.Unsupported, match="column 'c"):
        check_type("c", type_, "float64")


def test_nulls_and_ragged_lists() -> None:
    """Nulls, at any depth, and lists that differ in length are errors that name the column."""
    for array in (pa.array([1, None]), pa.array([[1], None]), pa.array([[1], [None]])):
        with pytest.raises(bow.NotExportable, match="column 'c"):
            made(array)
    with pytest.raises(bow.InvalidData, match=r"1 to 2.*column 'c'"):
        made(pa.array([[1], [1, 2]]))
