"""Columns as NumPy arrays agree with pyarrow, type by type; `values` never shows what a null slot holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring.columnar import Batch, Column
from bowstring.errors import NotExportable, NotOnDevice, Unsupported, UsageError
from bowstring.memory import Device
from bowstring.testing import FakeArray, fake_device
from tests.arrays import array_of

NUMBERS = [pa.from_numpy_dtype(np.dtype(code)) for code in "bhiqBHIQefd"]
TEMPORAL = [
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "Europe/Zurich")),
    *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
]
OPAQUE = pa.opaque(pa.int64(), "type", "vendor")
TYPES = [
    *NUMBERS,
    *TEMPORAL,
    pa.bool_(),
    pa.bool8(),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.decimal32(7, 2),
    pa.decimal64(15, 3),
    pa.decimal128(30, 4),
    pa.decimal256(60, 4),
    pa.month_day_nano_interval(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(5),
    pa.uuid(),
    pa.json_(),
    OPAQUE,
    pa.fixed_shape_tensor(pa.float32(), [2, 2]),
    pa.null(),
    pa.list_(pa.int8()),
    pa.large_list(pa.string()),
    pa.list_view(pa.int16()),
    pa.large_list_view(pa.int16()),
    pa.list_(pa.float64(), 2),
    pa.list_(pa.bool8()),
    pa.map_(pa.string(), pa.int32()),
    pa.struct({"a": pa.int8(), "b": pa.string()}),
    pa.struct({"a": pa.uuid()}),
    pa.dense_union([pa.field("a", pa.int8()), pa.field("b", pa.string())]),
    pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())]),
    pa.run_end_encoded(pa.int16(), pa.int8()),
    pa.run_end_encoded(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.int64()),
    pa.dictionary(pa.int32(), pa.timestamp("us")),
]


def arrays(type_: pa.DataType) -> list[pa.Array]:
    """Return arrays of a type: without rows, without nulls, and with some."""
    made = [array_of(type_, rows, np.random.default_rng(7), nulls=False) for rows in (0, 1, 13)]
    return [*made, *(array_of(type_, 13, np.random.default_rng(seed)) for seed in range(3))]


def outcome(convert: Any) -> Any:
    """Return the dtype, shape and elements that come, or which of Python's errors is raised."""
    try:
        array = convert()
    except NotImplementedError:
        return NotImplementedError
    except ValueError:
        return ValueError
    assert isinstance(array, np.ndarray)
    return array.dtype, array.shape, repr(array.tolist()), array.flags.writeable


def column_of(array: Any, device: Device | str = "cpu") -> Column:
    """Return an array as a column of a device."""
    return Batch.from_arrow({"c": array}).to_device(device)["c"]


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("zero_copy_only", [True, False])
def test_to_numpy_does_what_that_of_pyarrow_does(
    type_: pa.DataType, zero_copy_only: bool, writable: bool
) -> None:
    """`to_numpy` gives pyarrow's dtype, elements and mutability for each type, or raises the same kind of error."""
    for array in arrays(type_):
        column = column_of(array)
        expected = outcome(lambda array=array: array.to_numpy(zero_copy_only, writable))
        found = outcome(lambda column=column: column.to_numpy(zero_copy_only, writable))
        assert found == expected
        if not isinstance(expected, type):
            continue
        with pytest.raises((UsageError, Unsupported)):
            column.to_numpy(zero_copy_only, writable)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_numpy_takes_what_to_numpy_gives(type_: pa.DataType) -> None:
    """`np.asarray(column)` and `column.to_numpy(zero_copy_only=False)` are the same array, or the same error."""
    for array in arrays(type_):
        column = column_of(array)
        expected = outcome(lambda column=column: column.to_numpy(zero_copy_only=False))
        assert outcome(lambda column=column: np.asarray(column)) == expected


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_values_are_those_of_to_numpy_or_an_error(type_: pa.DataType) -> None:
    """On the host `values` is what `to_numpy(zero_copy_only=False)` gives, and raises where there are nulls."""
    for array in arrays(type_):
        column = column_of(array)
        if column.null_count:
            with pytest.raises(NotExportable, match=r"to_numpy\(.*raw_values.*validity"):
                column.values  # noqa: B018  it raises
            continue
        expected = outcome(lambda column=column: column.to_numpy(zero_copy_only=False))
        if isinstance(expected, type):
            with pytest.raises(expected, match="raw_values") as caught:
                column.values  # noqa: B018  it raises
            assert isinstance(caught.value, NotExportable | Unsupported)
            continue
        dtype, shape, elements, _ = expected
        values = column.values
        assert (values.dtype, values.shape, repr(values.tolist())) == (dtype, shape, elements)


@pytest.mark.parametrize("type_", [*NUMBERS, *TEMPORAL, pa.bool8()], ids=str)
def test_values_of_one_width_lie_in_the_memory_of_the_batch(type_: pa.DataType) -> None:
    """Numbers, timestamps and durations are read-only views: neither `values` nor `to_numpy()` copies."""
    column = column_of(array_of(type_, 13, np.random.default_rng(7), nulls=False))
    for array in (column.values, column.to_numpy(), np.asarray(column)):
        assert np.shares_memory(array, column.raw_values)
        assert not array.flags.writeable


def test_a_null_is_never_a_number(device: Device) -> None:
    """[10, None, 30] has no `values`, on the host or on a device; `raw_values` and `validity` have both parts."""
    column = column_of(pa.array([10, None, 30]), device)
    with pytest.raises(NotExportable, match="1 of 3"):
        column.values.sum()
    raw = device.to_host(column.raw_values)
    valid = np.unpackbits(device.to_host(column.validity), count=3, bitorder="little")
    assert raw[valid == 1].tolist() == [10, 30]
    assert np.nansum(column.to_numpy(zero_copy_only=False)) == 40


def test_nulls_outside_a_slice_do_not_count(device: Device) -> None:
    """The rows without nulls of a batch that has some have `values`."""
    batch = Batch.from_arrow({"c": pa.array([None, 1, 2, None])}).to_device(device)
    assert device.to_host(batch.slice(1, 2)["c"].values).tolist() == [1, 2]
    with pytest.raises(NotExportable):
        batch.slice(1)["c"].values  # noqa: B018  it raises


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_values_on_a_device_stay_there(type_: pa.DataType) -> None:
    """On a device `values` is an array there, equal to that of the host, or raises and names `raw_values`."""
    array = array_of(type_, 13, np.random.default_rng(7), nulls=False)
    column = column_of(array, fake_device())
    if type_ in NUMBERS or type_ in (pa.bool_(), pa.bool8(), OPAQUE):
        values = column.values
        assert isinstance(values, FakeArray)
        assert column.device.to_host(values).tolist() == array.to_numpy(zero_copy_only=False).tolist()
        return
    with pytest.raises(NotExportable if column.null_count else Unsupported, match="raw_values"):
        column.values  # noqa: B018  it raises


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_to_numpy_of_a_device_is_a_copy_and_must_be_asked_for(type_: pa.DataType) -> None:
    """A column of a device gives pyarrow's array with `zero_copy_only=False`, and else is refused."""
    for array in arrays(type_):
        column = column_of(array, fake_device())
        with pytest.raises(NotOnDevice):
            column.to_numpy()
        with pytest.raises(NotOnDevice):
            np.asarray(column)
        expected = outcome(lambda array=array: array.to_numpy(zero_copy_only=False))
        assert outcome(lambda column=column: column.to_numpy(zero_copy_only=False)) == expected


def test_nulls_become_what_pyarrow_makes_of_them() -> None:
    """Nulls are NaN among numbers, NaT among timestamps, None among objects."""
    batch = Batch.from_arrow(
        {
            "n": pa.array([1, None]),
            "t": pa.array([1, None], pa.timestamp("us", "UTC")),
            "d": pa.array([1, None], pa.duration("ms")),
            "b": pa.array([True, None]),
            "s": pa.array(["x", None]),
            "c": pa.array(["x", None]).dictionary_encode(),
        }
    )
    found = {name: batch[name].to_numpy(zero_copy_only=False) for name in "ntdbsc"}
    assert np.isnan(found["n"][1])
    assert (found["t"].dtype, found["d"].dtype) == (np.dtype("M8[us]"), np.dtype("m8[ms]"))
    assert np.isnat(found["t"][1])
    assert np.isnat(found["d"][1])
    assert [found[name].tolist() for name in "bsc"] == [[True, None], ["x", None], ["x", None]]


def test_columns_that_pyarrow_has_no_arrays_for_are_refused(arrow_test_data: object) -> None:
    """Intervals of months raise Unsupported, which names `raw_values`, and not KeyError as pyarrow does."""
    file = f"{arrow_test_data}/arrow-ipc-stream/integration/1.0.0-littleendian/generated_interval.stream"
    with open(file, "rb") as stream:
        column = Batch.from_arrow(pa.ipc.open_stream(stream).read_next_batch())["f5"]
    with pytest.raises(Unsupported, match="raw_values"):
        column.to_numpy(zero_copy_only=False)
    assert column.raw_values.dtype == np.int32
