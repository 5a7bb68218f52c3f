"""Batches of a device as arrays by name."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring.columnar import Batch
from bowstring.errors import NotExportable, NotOnDevice, ViewsAlive
from bowstring.testing import FakeDevice, OnlyCurrent, fake_device


@pytest.fixture
def device() -> FakeDevice:
    """Return a fake device."""
    return fake_device()


def on_host(device: FakeDevice, taken: dict[str, Any]) -> dict[str, Any]:
    """Return arrays of a device as lists."""
    return {name: device.to_host(array).tolist() for name, array in taken.items()}


def test_numbers_stay_where_they_are(device: FakeDevice) -> None:
    """Numbers, and lists of them of one size, are views; nothing is copied, and the batch is held."""
    rows = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    batch = Batch.from_arrow(pa.record_batch({"a": [1, 2], "e": rows})).to_device(device)
    device.stats.reset()
    taken = batch.to_cupy()
    assert taken["a"].data.ptr == batch["a"].raw_values.data.ptr
    assert taken["e"].data.ptr == batch["e"].children[0].raw_values.data.ptr
    assert taken["e"].shape == (2, 2)
    assert device.stats.host_reads == device.stats.host_writes == 0
    with pytest.raises(ViewsAlive):
        batch.release()
    assert on_host(device, taken) == {"a": [1, 2], "e": [[1.0, 2.0], [3.0, 4.0]]}


def test_booleans_are_unpacked(device: FakeDevice) -> None:
    """Booleans come as one byte each, also from the middle of a byte."""
    flags = [True, False, None, True, True]
    batch = Batch.from_arrow(pa.record_batch({"b": pa.array(flags)})).to_device(device)
    assert on_host(device, batch.to_cupy(na_value=False)) == {"b": [True, False, False, True, True]}
    assert on_host(device, batch.slice(3).to_cupy()) == {"b": [True, True]}
    assert batch.slice(3).to_cupy()["b"].dtype == np.bool_


def test_nulls_become_what_one_says(device: FakeDevice) -> None:
    """Nulls are refused, the column named, unless one says what they become; other columns stay views."""
    source = pa.record_batch({"f": [1.5, None], "i": pa.array([None, 7], pa.int8()), "a": [1, 2]})
    batch = Batch.from_arrow(source).to_device(device)
    with pytest.raises(NotExportable, match=r"nulls.*1 of 2.*at f.*na_value"):
        batch.to_cupy()
    with OnlyCurrent():  # which the device is not, before it is asked
        taken = batch.to_cupy(na_value=-1)
    assert on_host(device, taken) == {"f": [1.5, -1.0], "i": [-1, 7], "a": [1, 2]}
    assert [array.dtype for array in taken.values()] == [np.float64, np.int8, np.int64]
    assert taken["a"].data.ptr == batch["a"].raw_values.data.ptr
    assert np.isnan(device.to_host(batch.select(["f"]).to_cupy(na_value=float("nan"))["f"])[1])


@pytest.mark.parametrize("na_value", [float("nan"), 1.5, 300, "x", [1], [1, 2]])
def test_what_a_type_does_not_hold_is_refused(device: FakeDevice, na_value: Any) -> None:
    """A value that integers of the column's width cannot say is refused, and not made another number."""
    batch = Batch.from_arrow(pa.record_batch({"i": pa.array([None, 7], pa.int8())})).to_device(device)
    with pytest.raises(NotExportable, match=r"does not hold na_value.*at i"):
        batch.to_cupy(na_value=na_value)


@pytest.mark.parametrize("na_value", [1e300, "x", [1.0, 2.0]])
def test_what_a_narrow_float_does_not_hold_is_refused(device: FakeDevice, na_value: Any) -> None:
    """A number beyond the type's range does not become infinite; what is infinite itself stays so."""
    batch = Batch.from_arrow(pa.record_batch({"f": pa.array([None, 7], pa.float32())})).to_device(device)
    with pytest.raises(NotExportable, match=r"does not hold na_value.*at f"):
        batch.to_cupy(na_value=na_value)
    assert on_host(device, batch.to_cupy(na_value=-np.inf)) == {"f": [-np.inf, 7.0]}


@pytest.mark.parametrize("value", ["x", b"x", [1], {"a": 1}, dt.date(2024, 1, 1)])
def test_other_types_are_refused_by_name(device: FakeDevice, value: Any) -> None:
    """Text, bytes, lists, structs and dates are refused, and the column is named."""
    batch = Batch.from_arrow(pa.record_batch({"a": [1], "other": pa.array([value])})).to_device(device)
    with pytest.raises(NotExportable, match=r"at other.*select"):
        batch.to_cupy()


def test_names_must_be_told_apart(device: FakeDevice) -> None:
    """Two columns of one name would be one entry of a dict: refused."""
    source = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(NotExportable, match="one name"):
        Batch.from_arrow(source).to_device(device).to_cupy()


def test_the_host_is_refused() -> None:
    """A batch on the host is not copied to a GPU behind the user's back."""
    with pytest.raises(NotOnDevice, match="to_device"):
        Batch.from_arrow({"a": [1]}).to_cupy()
