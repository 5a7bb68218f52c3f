"""To cuDF and from it, over the same memory; the libraries are fakes here, and real in ``tests/gpu``."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar import Batch
from bowstring.columnar.interchange.cudf import aligned_for_libcudf
from bowstring.errors import (
    MissingDependency,
    NotExportable,
    NotOnDevice,
    Unsupported,
    UsageError,
    ViewsAlive,
)
from bowstring.testing import FakeDevice, OnlyCurrent, fake_device
from tests.columnar import fake_rapids
from tests.columnar.fake_rapids import DataFrame, ListDtype, RangeIndex, StructDtype, Table

SOURCE = pa.record_batch(
    {
        "n": pa.array([1, None, 3, 4] * 10),
        "s": ["x", None, "yz", ""] * 10,
        "st": pa.array([{"k": 1, "l": [{"z": "a"}]}, None, {"k": None, "l": []}, {"k": 4, "l": None}] * 10),
        "d": pa.array(["u", "v", "u", None] * 10).dictionary_encode(),
        "t": pa.array([1, 2, None, 4] * 10, pa.timestamp("us", "Europe/Zurich")),
    }
)
DTYPES = {
    "n": np.dtype("i8"),
    "s": np.dtype("O"),
    "st": StructDtype({"k": np.dtype("i8"), "l": ListDtype(StructDtype({"z": np.dtype("O")}))}),
    "d": types.SimpleNamespace(),
    "t": types.SimpleNamespace(tz="Europe/Zurich"),
}


@pytest.fixture
def device() -> FakeDevice:
    """Return the second fake device, so that numbers show."""
    return fake_device(1)


@pytest.fixture
def cudf(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Return a fake of cuDF, where ``import cudf`` finds it."""
    return fake_rapids.install(monkeypatch)


def frame_of(batch: Batch, dtypes: dict[Any, Any] | None = None, index: Any = None) -> DataFrame:
    """Return a DataFrame over a batch of a device."""
    named = dict.fromkeys(batch.schema.names) if dtypes is None else dtypes
    return DataFrame(Table.from_arrow(batch), named, index)


@pytest.mark.usefixtures("cudf")
def test_a_batch_is_a_data_frame_over_the_same_memory(device: FakeDevice) -> None:
    """The DataFrame has names, those inside structs too, and the very bytes; nothing is copied."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    device.statistics.reset()
    frame = batch.to_cudf()
    assert frame.columns == SOURCE.schema.names
    assert len(frame) == 40
    inside = frame.child_names["st"]
    assert (inside["k"], list(inside["l"])[-1], inside["l"]["element"]) == ({}, "element", {"z": {}})
    owner = frame.to_pylibcudf()[0].columns()[0].owner
    assert owner["n"].raw_values.data.ptr == batch["n"].raw_values.data.ptr
    assert device.statistics.host_read_bytes < 200  # ends of text and lists, read by the fake
    assert device.statistics.synchronizations == 0


@pytest.mark.usefixtures("cudf")
def test_the_batch_lives_as_long_as_any_column(device: FakeDevice) -> None:
    """A lease ends with the last column of what was made of the batch, and cannot be released before."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    region = weakref.ref(batch.spans.regions[0])
    frame = batch.to_cudf()
    with pytest.raises(ViewsAlive):
        batch.release()
    column = frame.to_pylibcudf()[0].columns()[1]
    del batch, frame
    gc.collect()
    assert region() is not None
    del column
    gc.collect()
    assert region() is None


@pytest.mark.usefixtures("cudf")
@pytest.mark.parametrize("start", [0, 1, 8, 24, 32])
def test_bitmaps_begin_where_libcudf_can_read_them(device: FakeDevice, start: int) -> None:
    """Bitmaps of slices begin at whole words of 32 bits; those that did not are copied, and nothing else is."""
    batch = Batch.from_arrow(SOURCE).to_device(device).slice(start)
    device.statistics.reset()
    with OnlyCurrent():  # which the device is not, before it is asked
        frame = batch.to_cudf()
    owner = frame.to_pylibcudf()[0].columns()[0].owner
    for name in ("n", "s"):
        assert owner[name].validity.data.ptr % 4 == 0
    assert owner["n"].raw_values.data.ptr == batch["n"].raw_values.data.ptr
    assert owner.to_arrow().equals(SOURCE.slice(start))


@pytest.mark.parametrize("value", [[], [[]], [[[]], []], [[["x"]]]])
def test_offsets_are_there_without_rows(device: FakeDevice, value: list[Any]) -> None:
    """Libcudf reads the last offset of a list of no rows, at any depth: there is one, and it is 0."""
    lists = pa.array(value, pa.list_(pa.list_(pa.string())))
    ours = Batch.from_arrow(pa.record_batch({"n": [0] * len(value), "l": lists})).to_device(device)
    batch = aligned_for_libcudf(ours)
    column = batch["l"]
    for _ in range(3):
        offsets = device.to_host(column.offsets)
        assert (len(offsets), offsets[0]) == (len(column) + 1, 0)
        column = column.children[0] if column.children else column
    assert batch.to_arrow().equals(ours.to_arrow())


@pytest.mark.usefixtures("cudf")
def test_what_cudf_does_not_know_is_named(device: FakeDevice) -> None:
    """A type that libcudf refuses, and names that a dict cannot hold, are errors of ours."""
    union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
    with pytest.raises(Unsupported, match=r"libcudf.*union.*select"):
        Batch.from_arrow(pa.record_batch({"u": union})).to_device(device).to_cudf()
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(NotExportable, match="one name"):
        Batch.from_arrow(twice).to_device(device).to_cudf()
    inside = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(NotExportable, match="at st"):
        Batch.from_arrow(pa.record_batch({"st": inside})).to_device(device).to_cudf()


@pytest.mark.usefixtures("cudf")
def test_rows_without_columns_are_kept(device: FakeDevice) -> None:
    """A batch of no columns does not lose its rows: cuDF would not know of them."""
    batch = Batch.from_arrow(SOURCE).to_device(device).select([])
    frame = batch.to_cudf()
    assert (len(frame), frame.columns) == (40, [])


def test_without_cudf_the_package_is_named(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where cuDF is not installed the error says what to install; on the host it says to go to a device first."""
    for name in ("cudf", "pylibcudf"):
        monkeypatch.setitem(sys.modules, name, None)
    batch = Batch.from_arrow(SOURCE)
    with pytest.raises(MissingDependency, match="pip install cudf"):
        batch.to_device(device).to_cudf()
    with pytest.raises(NotOnDevice, match="to_device"):
        batch.to_cudf()


def test_a_data_frame_comes_without_the_host(device: FakeDevice) -> None:
    """A DataFrame is taken through pylibcudf, with its names and time zones, and no body is copied anywhere."""
    ours = Batch.from_arrow(SOURCE).to_device(device)
    frame = frame_of(ours, DTYPES)
    device.statistics.reset()
    batch = Batch.from_arrow(frame)
    assert batch.device is device
    assert batch.schema.equals(SOURCE.schema)
    assert batch["n"].raw_values.data.ptr == ours["n"].raw_values.data.ptr
    assert device.statistics.host_read_bytes < 200
    assert batch.to_arrow().equals(SOURCE)


def test_names_are_words(device: FakeDevice) -> None:
    """Labels that are no text become text, as pyarrow and pandas make them."""
    ours = Batch.from_arrow(SOURCE.select(["n", "s"])).to_device(device)
    assert Batch.from_arrow(frame_of(ours, {0: None, ("a", "b"): None})).schema.names == ["0", "('a', 'b')"]


def test_an_index_is_not_lost_in_silence(device: FakeDevice) -> None:
    """A DataFrame with an index of its own is refused, with what to do; numbers of rows are no index."""
    ours = Batch.from_arrow(SOURCE.select(["n"])).to_device(device)
    assert Batch.from_arrow(frame_of(ours, index=RangeIndex(5, 45))).num_rows == 40
    with pytest.raises(UsageError, match=r"MultiIndex.*reset_index"):
        Batch.from_arrow(frame_of(ours, index=type("MultiIndex", (), {})()))


@pytest.mark.parametrize("kind", ["frame", "table", "frames"])
def test_they_are_published_where_they_lie(device: FakeDevice, kind: str) -> None:
    """A server takes DataFrames and pylibcudf tables, one or many, by a copy on the device; no body is read."""
    source = pa.record_batch({"a": np.arange(100_000), "s": ["xyz"] * 100_000})
    ours = Batch.from_arrow(source).to_device(device)
    table = Table.from_arrow(ours)
    frames = [DataFrame(table, {"a": None, "s": None}) for _ in range(3)]
    given: Any = {"frame": frames[0], "table": table, "frames": iter(frames)}[kind]
    device.statistics.reset()
    pool = bow.Pool(device, budget=64 << 20)
    with bow.Server(pool=pool) as server:
        with bow.connect(server.publish("t", given)) as stream:
            got = list(stream)
        assert len(got) == (3 if kind == "frames" else 1)
        assert device.statistics.host_read_bytes < 1000
        assert device.statistics.host_written_bytes < 2000
        names = ["0", "1"] if kind == "table" else ["a", "s"]
        assert all(each.to_arrow().equals(source.rename_columns(names)) for each in got)
        del got
    pool.close()
