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
from bowstring.columnar.parts import batch_parts
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
from tests.columnar.fake_rapids import (
    CategoricalDtype,
    DataFrame,
    Index,
    ListDtype,
    RangeIndex,
    StructDtype,
    Table,
)

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


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows that a DataFrame was made of."""
    owner = frame.to_pylibcudf()[0].columns()[0].owner
    found: list[dict[str, Any]] = owner.to_arrow().to_pylist()
    return found


def frame_of(batch: Batch, dtypes: dict[Any, Any] | None = None, index: Any = None) -> DataFrame:
    """Return a DataFrame over a batch of a device."""
    named = dict.fromkeys(batch.schema.names) if dtypes is None else dtypes
    return DataFrame(Table.from_arrow(batch), named, index)


@pytest.mark.usefixtures("cudf")
def test_a_batch_is_a_data_frame_over_the_same_memory(device: FakeDevice) -> None:
    """The DataFrame has names, those inside structs too, and the very bytes; nothing is copied."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    device.stats.reset()
    frame = batch.to_cudf()
    assert frame.columns == SOURCE.schema.names
    assert len(frame) == 40
    inside = frame.child_names["st"]
    assert (inside["k"], list(inside["l"])[-1], inside["l"]["element"]) == ({}, "element", {"z": {}})
    owner = frame.to_pylibcudf()[0].columns()[0].owner
    assert owner["n"].raw_values.data.ptr == batch["n"].raw_values.data.ptr
    assert device.stats.host_read_bytes < 200  # ends of text and lists, read by the fake
    assert device.stats.synchronizations == 0


@pytest.mark.usefixtures("cudf")
def test_the_batch_lives_as_long_as_any_column(device: FakeDevice) -> None:
    """A lease ends with the last column of what was made of the batch, and cannot be released before."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    region = weakref.ref(batch_parts(batch).spans.regions[0])
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
    device.stats.reset()
    with OnlyCurrent():  # which the device is not, before it is asked
        frame = batch.to_cudf()
    owner = frame.to_pylibcudf()[0].columns()[0].owner
    for name in ("n", "s"):
        assert owner[name].validity.data.ptr % 4 == 0
    assert owner["n"].raw_values.data.ptr == batch["n"].raw_values.data.ptr
    assert rows_of(frame) == SOURCE.slice(start).to_pylist()


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


TEXTS = pa.array(["short", None, "a text that no view holds itself", "", "short"] * 9)
RUNS = pa.RunEndEncodedArray.from_arrays([2, 5, 9], ["a", None, "a longer one than twelve"])
HELD: dict[str, pa.Array] = {
    "texts by code": TEXTS.dictionary_encode(),
    "texts by unsigned code": pa.DictionaryArray.from_arrays(
        pa.array([2, 0, None, 1], pa.uint32()), TEXTS[:3]
    ),
    "nulls among values": pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 2], pa.int8()), TEXTS[:3]),
    "large texts by code": TEXTS.cast(pa.large_string()).dictionary_encode(),
    "views by code": pa.DictionaryArray.from_arrays(pa.array([2, 1, 0]), TEXTS[:3].cast(pa.string_view())),
    "numbers by code": pa.array([7.5, None, 2.0, 7.5]).dictionary_encode(),
    "flags by code": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array([True, False])),
    "decimals by code": pa.array([1, 2, 1], pa.decimal128(9, 2)).dictionary_encode(),
    "days by code": pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array([0, 86_400_000], pa.date64())),
    "halves by code": pa.DictionaryArray.from_arrays(pa.array([1, 0]), np.array([0.5, 1.5], np.float16)),
    "no values by code": pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), TEXTS[:0]),
    "codes in a list": pa.ListArray.from_arrays([0, 2, 2, 5], TEXTS[:5].dictionary_encode()),
    "runs": RUNS,
    "runs by code": pa.DictionaryArray.from_arrays(pa.array([8, 1, 0]), RUNS),
    "large lists": pa.array([[1], None, [2, 3], []], pa.large_list(pa.int8())),
    "lists of one size": pa.array([[1, 2], [3, None]], pa.list_(pa.int16(), 2)),
    "maps": pa.array([[("a", 1)], None, [("b", None), ("c", 2)]], pa.map_(pa.string(), pa.int64())),
    "half floats": pa.array(np.array([0.5, -2.0, np.inf], np.float16)),
    "dates of milliseconds": pa.array([0, None, 86_400_000], pa.date64()),
    "views of text": TEXTS.cast(pa.string_view()),
    "nulls": pa.nulls(3),
}


def values_of(column: pa.Array) -> list[Any]:
    """Return the values of a column: of dates of milliseconds, what they are as timestamps."""
    if pa.types.is_dictionary(column.type):
        values = values_of(column.dictionary)
        return [None if code is None else values[code] for code in column.indices.to_pylist()]
    wider = {pa.date64(): pa.timestamp("ms"), pa.float16(): pa.float32()}.get(column.type)
    found: list[Any] = (column if wider is None else column.cast(wider)).to_pylist()
    return found


@pytest.mark.usefixtures("cudf")
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", HELD)
def test_what_other_types_hold_is_decoded_on_the_device(device: FakeDevice, name: str, start: int) -> None:
    """Types that libcudf refuses and others hold arrive with all values, and no column goes through the host."""
    column = HELD[name].slice(start)
    batch = Batch.from_arrow({"c": column}).to_device(device)
    device.stats.reset()
    with OnlyCurrent():
        frame = batch.to_cudf()
    assert device.stats.host_read_bytes < 100
    found = [row["c"] for row in rows_of(frame)]
    pairs = [list(each.items()) if isinstance(each, dict) else each for each in found]
    if name == "maps":
        pairs = [each and [(entry["key"], entry["value"]) for entry in each] for each in found]
    assert pairs == values_of(column)


REFUSED: dict[str, pa.Array] = {
    "union": pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
    "binary": pa.array([b"x"]),
    "large_binary": pa.array([b"x"], pa.large_binary()),
    "binary_view": pa.array([b"x"], pa.binary_view()),
    "fixed_size_binary": pa.array([b"x"], pa.binary(1)),
    "time32": pa.array([1], pa.time32("s")),
    "time64": pa.array([1], pa.time64("ns")),
    "decimal256": pa.array([1], pa.decimal256(50)),
    "list_view": pa.array([[1]], pa.list_view(pa.int8())),
    "month_day_nano": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "struct<a": pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([{"a": 1}])),
    "list<l: binary": pa.array([[b"x"]], pa.list_(pa.field("l", pa.binary()))),
}


@pytest.mark.usefixtures("cudf")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_no_type_of_cudf_holds_is_refused_by_column(device: FakeDevice, kind: str) -> None:
    """A column that cuDF has no type for is named, with its type and what to do, before anything is handed over."""
    batch = Batch.from_arrow({"n": [1], "the column": REFUSED[kind]}).to_device(device)
    with pytest.raises(Unsupported, match=r"libcudf.*select") as caught:
        batch.to_cudf()
    assert caught.value.where == "column 'the column'"
    assert kind.removeprefix("list<l: ") in str(caught.value.found)


@pytest.mark.usefixtures("cudf")
def test_more_rows_than_libcudf_counts_are_refused(device: FakeDevice) -> None:
    """Rows of a column, or of one inside it, that a 32-bit count cannot hold are refused: libcudf wraps around."""
    batch = Batch.from_arrow({"n": pa.nulls(1 << 31)})
    batch.device = device  # nulls have no memory
    with pytest.raises(Unsupported, match=r"2147483648.*slice") as caught:
        batch.to_cudf()
    assert caught.value.where == "column 'n'"


@pytest.mark.usefixtures("cudf")
def test_names_that_cudf_cannot_tell_apart_are_refused(device: FakeDevice) -> None:
    """Columns, or fields of a struct, of one name are errors of ours: cuDF has them as keys of a dict."""
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(NotExportable, match="one name"):
        Batch.from_arrow(twice).to_device(device).to_cudf()
    inside = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(NotExportable, match="at st"):
        Batch.from_arrow(pa.record_batch({"st": inside})).to_device(device).to_cudf()


def categorical(device: FakeDevice, codes: pa.Array, categories: pa.Array) -> tuple[Batch, CategoricalDtype]:
    """Return the codes as pylibcudf gives them, and the dtype that has the categories."""
    column = Table.from_arrow(Batch.from_arrow({"": categories}).to_device(device)).columns()[0]
    return Batch.from_arrow({"c": codes}).to_device(device), CategoricalDtype(Index(column), ordered=True)


def test_categories_come_with_their_codes(device: FakeDevice) -> None:
    """A categorical is a dictionary, ordered if it was; its values stay on the device and nulls stay nulls."""
    codes = pa.array([1, 0, None, 1], pa.uint8())
    batch, dtype = categorical(device, codes, pa.array(["low", "high"]))
    source = pa.record_batch({"n": [1, 2, 3, 4], "c": codes})
    frame = frame_of(Batch.from_arrow(source).to_device(device), {"n": np.dtype("i8"), "c": dtype})
    device.stats.reset()
    taken = Batch.from_arrow(frame)
    assert device.stats.host_read_bytes < 100
    assert taken.schema.field("c").type == pa.dictionary(pa.uint8(), pa.string(), ordered=True)
    assert taken.to_arrow().column(1).to_pylist() == ["high", "low", None, "high"]
    assert taken.to_arrow().column(0).to_pylist() == [1, 2, 3, 4]
    assert Batch.from_arrow(frame_of(batch, {"c": dtype})).to_arrow().column(0).to_pylist()[:2] == [
        "high",
        "low",
    ]


def test_categories_that_would_be_lost_are_refused(device: FakeDevice) -> None:
    """Categories inside a list, or of another library, are refused by column, and never published as codes."""
    batch, dtype = categorical(device, pa.array([0], pa.uint8()), pa.array(["x"]))
    listed = Batch.from_arrow({"l": pa.array([[0]], pa.list_(pa.uint8()))}).to_device(device)
    with pytest.raises(Unsupported, match=r"inside a list.*'l'"):
        Batch.from_arrow(frame_of(listed, {"l": ListDtype(dtype)}))
    foreign = types.SimpleNamespace(categories=["x"], ordered=False)
    with pytest.raises(Unsupported, match=r"not cuDF's.*'c'"):
        Batch.from_arrow(frame_of(batch, {"c": foreign}))


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
    device.stats.reset()
    batch = Batch.from_arrow(frame)
    assert batch.device is device
    assert batch.schema.equals(SOURCE.schema)
    assert batch["n"].raw_values.data.ptr == ours["n"].raw_values.data.ptr
    assert device.stats.host_read_bytes < 200
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
    device.stats.reset()
    pool = bow.Pool(device, budget=64 << 20)
    with bow.Server(pool=pool) as server:
        with bow.connect(server.publish("t", given)) as stream:
            got = list(stream)
        assert len(got) == (3 if kind == "frames" else 1)
        assert device.stats.host_read_bytes < 1000
        assert device.stats.host_written_bytes < 2000
        names = ["0", "1"] if kind == "table" else ["a", "s"]
        assert all(each.to_arrow().equals(source.rename_columns(names)) for each in got)
        del got
    pool.close()
