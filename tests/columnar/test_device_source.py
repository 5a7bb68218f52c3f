"""Taking in data of a device by the Arrow C Device interface, where they lie."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import nanoarrow.device
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import bowstring as bow
from bowstring.columnar.batch import Batch
from bowstring.columnar.parts import batch_parts
from bowstring.errors import NotOnDevice, Unsupported, UsageError
from bowstring.testing import FakeDevice, fake_device
from bowstring.testing.fake_array import ADDRESS_SHIFT
from tests import strategies
from tests.columnar.capsules import STRUCT_BYTES, address_in
from tests.columnar.elsewhere import Elsewhere

TEXT = pa.record_batch(
    {
        "s": ["one", None, "three", ""],
        "l": [["a"], [], None, ["b", "c"]],
        "d": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "v": pa.array(["short", "a view that is too long to be inline", None, "x" * 20], pa.string_view()),
        "n": [1, None, 3, 4],
    }
)


@pytest.fixture
def device() -> FakeDevice:
    """Return the second fake device, so that numbers show."""
    return fake_device(1)


@given(batch=strategies.record_batches())
def test_any_type_is_taken_where_it_lies(batch: pa.RecordBatch) -> None:
    """Batches of any type come from another library's struct with the same values, on the device."""
    device = fake_device(1)
    ours = Batch.from_arrow(batch).to_device(device)
    taken = Batch.from_arrow(Elsewhere(ours))
    assert taken.device is device
    assert taken.to_arrow().equals(ours.to_arrow())
    taken.validate(full=True)


def test_nothing_is_copied_but_ends(device: FakeDevice) -> None:
    """Buffers stay where they are; the host reads the ends of text and lists, all at once."""
    ours = Batch.from_arrow(TEXT).to_device(device)
    device.stats.reset()
    taken = Batch.from_arrow(Elsewhere(ours))
    assert taken["n"].raw_values.data.ptr == ours["n"].raw_values.data.ptr
    assert taken["s"].offsets.data.ptr == ours["s"].offsets.data.ptr
    statistics = device.stats
    assert statistics.host_written_bytes < 1000  # which numbers to fetch
    assert statistics.host_read_bytes < 100
    assert statistics.host_reads <= 2  # of the batch, of its dictionary
    assert statistics.synchronizations == 0
    assert taken.to_arrow().equals(TEXT)


def test_structs_with_offsets_and_unknown_nulls(device: FakeDevice) -> None:
    """Slices as other libraries write them, by an offset, and null counts of -1 are put right on the device."""
    ours = Batch.from_arrow(TEXT.drop_columns(["v"])).to_device(device)
    capsules = ours.__arrow_c_device_array__()

    class Sliced:
        def __arrow_c_device_array__(self, **_: Any) -> Any:
            return capsules

    address = address_in(capsules[1], b"arrow_device_array")
    words = (ctypes.c_int64 * 10).from_address(address)
    words[0], words[2] = 2, 1  # rows [1, 3) of all columns
    children = (ctypes.c_int64 * words[4]).from_address(words[6])
    for child in children:
        (ctypes.c_int64 * 10).from_address(child)[1] = -1
    device.stats.reset()
    taken = Batch.from_arrow(Sliced())
    assert taken.device is device
    assert taken.to_arrow().equals(TEXT.drop_columns(["v"]).slice(1, 2))
    assert [column.null_count for column in (taken["s"], taken["n"])] == [1, 1]


def test_the_memory_lives_as_long_as_the_batch(device: FakeDevice) -> None:
    """What was taken keeps the other library's memory, and lets it go when its last view is gone."""
    ours = Batch.from_arrow(TEXT).to_device(device)
    region = weakref.ref(batch_parts(ours).spans.regions[0])
    taken = Batch.from_arrow(Elsewhere(ours))
    view = taken["n"].raw_values
    del ours, taken
    gc.collect()
    assert region() is not None
    assert device.to_host(view[2:]).tolist() == [3, 4]
    del view
    gc.collect()
    assert region() is None


def test_it_is_published_where_it_lies(device: FakeDevice) -> None:
    """A server on the device copies it there, and no body passes the host."""
    pool = bow.Pool(device, budget=64 << 20)
    ours = Batch.from_arrow(pa.record_batch({"n": np.arange(100_000)})).to_device(device)
    device.stats.reset()
    with bow.Server(pool=pool) as server:
        endpoint = server.publish("t", Elsewhere(ours))
        with bow.connect(endpoint) as stream:
            [got] = stream
            assert got.device is device
            assert device.stats.host_read_bytes < 100
            assert got.to_arrow().equals(ours.to_arrow())
        del got
        gc.collect()
    pool.close()


def test_batches_of_a_device_one_by_one(device: FakeDevice) -> None:
    """An iterable of such things is taken one by one, as any data are."""
    ours = Batch.from_arrow(TEXT).to_device(device)
    schema, taken = bow.columnar.batches(Elsewhere(ours) for _ in range(3))
    assert schema.equals(TEXT.schema)
    assert [batch.num_rows for batch in taken] == [4, 4, 4]


def test_what_the_host_can_read_is_taken_as_ever() -> None:
    """A struct that says it is the host's takes the host's road, whoever offers it."""
    taken = Batch.from_arrow(nanoarrow.device.c_device_array(pa.StructArray.from_arrays([[1, 2]], ["a"])))
    assert taken.device.is_host
    assert taken.to_arrow().to_pydict() == {"a": [1, 2]}


def _said(child: int | None, word: int, value: int) -> Callable[[Any, list[Any]], None]:
    def say(root: Any, children: list[Any]) -> None:
        (root if child is None else children[child])[word] = value

    return say


def _pointer(child: int, buffer: int) -> Callable[[Any, list[Any]], None]:
    def say(_root: Any, children: list[Any]) -> None:
        (ctypes.c_int64 * (buffer + 1)).from_address(children[child][5])[buffer] = 0

    return say


def _last_offset(_root: Any, children: list[Any]) -> None:
    offsets = (ctypes.c_int64 * 2).from_address(children[0][5])[1] - ADDRESS_SHIFT
    ctypes.c_int32.from_address(offsets + 4 * 4).value = -5


# Length, null count, offset, buffers, children, pointers to both, dictionary, release.
WRONG: dict[str, tuple[Callable[[Any, list[Any]], None], str]] = {
    "batch of a negative length": (_said(None, 0, -1), "length or offset"),
    "batch longer than its columns": (_said(None, 0, 5), "shorter than its batch"),
    "batch of a negative offset": (_said(None, 2, -1), "length or offset"),
    "too few columns": (_said(None, 4, 3), "children"),
    "columns nowhere": (_said(None, 6, 0), "children"),
    "released": (_said(None, 8, 0), "released"),
    "column of a negative length": (_said(4, 0, -3), "length or offset"),
    "column too short": (_said(4, 0, 1), "shorter than its batch"),
    "column without end": (_said(4, 0, 1 << 62), "length or offset"),
    "more nulls than rows": (_said(4, 1, 9), "null count"),
    "less than unknown nulls": (_said(4, 1, -2), "null count"),
    "too few buffers": (_said(4, 3, 1), "buffers"),
    "too many buffers": (_said(4, 3, 3), "buffers"),
    "views without sizes": (_said(3, 3, 2), "buffers"),
    "buffers nowhere": (_said(4, 5, 0), "pointers to buffers"),
    "a child too many": (_said(4, 4, 1), "children"),
    "no dictionary": (_said(2, 7, 0), "dictionary"),
    "a dictionary of nothing": (_said(4, 7, 8), "dictionary"),
    "no offsets": (_pointer(0, 1), "lacks a buffer"),
    "no values": (_pointer(4, 1), "lacks a buffer"),
    "offsets that are negative": (_last_offset, "negative"),
}


@pytest.mark.parametrize(("say", "error"), WRONG.values(), ids=WRONG)
def test_structs_that_are_wrong(
    device: FakeDevice, say: Callable[[Any, list[Any]], None], error: str
) -> None:
    """What the numbers of a struct show to be wrong is refused before anything is read through it."""
    capsules = Batch.from_arrow(TEXT).to_device(device).__arrow_c_device_array__()
    root = (ctypes.c_int64 * 10).from_address(address_in(capsules[1], b"arrow_device_array"))
    children = [
        (ctypes.c_int64 * 10).from_address(each) for each in (ctypes.c_int64 * root[4]).from_address(root[6])
    ]

    before = [list(each) for each in (root, *children)]

    class Wrong:
        def __arrow_c_device_array__(self, **_: Any) -> Any:
            return capsules

    say(root, children)
    with pytest.raises(UsageError, match=error):
        Batch.from_arrow(Wrong())
    for each, words in zip((root, *children), before, strict=True):
        each[:] = words  # so that all is released


def test_devices_and_shapes_that_are_not_taken(device: FakeDevice) -> None:
    """A device that this process does not know, rows that are null, and a column alone are refused."""
    ours = Batch.from_arrow(TEXT).to_device(device)
    capsules = ours.__arrow_c_device_array__()
    words = (ctypes.c_int64 * 2).from_address(address_in(capsules[1], b"arrow_device_array") + STRUCT_BYTES)

    class Unknown:
        def __arrow_c_device_array__(self, **_: Any) -> Any:
            return capsules

    batch = (ctypes.c_int64 * 10).from_address(address_in(capsules[1], b"arrow_device_array"))
    batch[1] = 1
    with pytest.raises(UsageError, match="null altogether"):
        Batch.from_arrow(Unknown())
    for device_id, device_type in ((1, 99), (77, 12)):
        words[:] = [device_id, device_type]
        with pytest.raises(NotOnDevice):
            Batch.from_arrow(Unknown())
    words[:] = [1, 12]

    class Column:
        def __arrow_c_device_array__(self, **_: Any) -> Any:
            return ours["n"].__arrow_c_device_array__()

    with pytest.raises((UsageError, Unsupported)):
        Batch.from_arrow(Column())
