"""Others take Bowstring's batches through the Arrow PyCapsule interface, and what they take stays true."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from typing import Any

import nanoarrow as na
import nanoarrow.device
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from bowstring.columnar import Batch, Column, placed
from bowstring.columnar.parts import batch_parts
from bowstring.errors import NotOnDevice
from bowstring.memory import Device, Pool, cpu
from bowstring.testing import FakeDevice, fake_device
from tests.strategies import record_batches

SOURCE = pa.record_batch(
    {
        "n": pa.array([1, None, 3]),
        "s": pa.array(["x", None, "longer than twelve bytes"]),
        "v": pa.array(["x", None, "longer than twelve bytes"], pa.string_view()),
        "l": pa.array([["a"], None, []]),
        "d": pa.array(["u", "v", "u"]).dictionary_encode(),
        "st": pa.array([{"k": 1, "j": "s"}, None, {"k": None, "j": None}]),
    }
)


class DeviceArray(ctypes.Structure):
    """struct ArrowDeviceArray."""

    _fields_ = [
        ("words", ctypes.c_int64 * 10),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    ]


def struct_in(capsule: Any) -> DeviceArray:
    """Return a view of the struct in a capsule ``arrow_device_array``."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return DeviceArray.from_address(pointer(capsule, b"arrow_device_array"))


@given(source=record_batches())
def test_pyarrow_takes_batches(source: pa.RecordBatch) -> None:
    """Pyarrow imports the capsules of any batch, valid to the last bit."""
    batch = Batch.from_arrow(source)
    result = pa.record_batch(batch)
    del batch
    result.validate(full=True)
    assert result.equals(source)
    assert result.schema.equals(source.schema, check_metadata=True)


def test_polars_takes_batches_and_columns() -> None:
    """Polars makes a DataFrame of a batch and a Series of a column."""
    batch = Batch.from_arrow(SOURCE)
    assert pl.DataFrame(batch).equals(pl.DataFrame(SOURCE))
    assert pl.Series(batch["s"]).to_list() == SOURCE["s"].to_pylist()


def test_nanoarrow_takes_batches_and_columns() -> None:
    """Nanoarrow reads batches and columns, children first or last."""
    batch = Batch.from_arrow(SOURCE.drop_columns(["v"]))
    taken = na.Array(batch)
    assert [len(child) for child in taken.iter_children()] == [3] * 5
    assert na.Array(batch["l"]).to_pylist() == SOURCE["l"].to_pylist()
    assert na.Array(batch["d"]).to_pylist() == SOURCE["d"].to_pylist()


def test_a_child_outlives_its_batch() -> None:
    """A consumer may keep one child of a struct and release the rest."""
    taken = na.c_array(Batch.from_arrow(SOURCE))
    child = taken.child(3)
    del taken
    gc.collect()
    assert na.Array(child).to_pylist() == SOURCE["l"].to_pylist()


def test_moved_children_are_independent() -> None:
    """A child whose struct was moved out of its parent stays valid after the parent is released."""
    capsule = Batch.from_arrow(SOURCE).__arrow_c_device_array__()[1]
    parent = struct_in(capsule)
    child_address = ctypes.c_int64.from_address(parent.words[6] + 8 * 3).value
    moved = (ctypes.c_int64 * 10)()
    ctypes.memmove(moved, child_address, 80)
    ctypes.c_int64.from_address(child_address + 64).value = 0  # the mark of a moved struct
    del parent, capsule
    gc.collect()
    array = pa.Array._import_from_c(ctypes.addressof(moved), SOURCE.schema.field(3).type)
    array.validate(full=True)
    assert array.equals(SOURCE.column(3))


def test_requested_schemas_are_honoured() -> None:
    """A consumer that asks for another type gets it, as from pyarrow."""
    wanted = pa.schema([("n", pa.int16())])
    batch = Batch.from_arrow(SOURCE).select(["n"])
    assert pa.record_batch(batch, wanted).schema.field(0).type == pa.int16()


def test_extension_names_travel_in_the_schema() -> None:
    """The name of an extension type that nobody registered is in the field, the column, and the capsule."""
    field = pa.field("v", pa.binary(), metadata={"ARROW:extension:name": "arrow.parquet.variant"})
    batch = Batch.from_arrow(pa.record_batch([pa.array([b"x"])], pa.schema([field])))
    assert batch["v"].field.metadata == field.metadata
    assert na.c_schema(batch["v"]).metadata is not None
    assert pa.record_batch(batch).schema.field("v").metadata == field.metadata


def test_the_host_is_device_type_1() -> None:
    """On the host the device struct says CPU, and pyarrow takes it."""
    batch = Batch.from_arrow(SOURCE)
    struct = struct_in(batch.__arrow_c_device_array__()[1])
    assert (struct.device_type, struct.device_id, struct.sync_event) == (1, -1, None)

    class Producer:
        def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
            return batch.__arrow_c_device_array__(requested_schema)

    assert pa.record_batch(Producer()).equals(SOURCE)
    assert Batch.from_arrow(Producer()).equals(SOURCE)


@pytest.fixture
def fake() -> FakeDevice:
    """Return the second fake device, so that numbers show."""
    return fake_device(1)


def test_a_device_is_named_in_its_struct(fake: FakeDevice) -> None:
    """Structs of a device carry its type and number, its addresses, and an event; the host does not wait."""
    batch = Batch.from_arrow(SOURCE).to_device(fake)
    fake.stats.reset()
    for thing in (batch, batch["s"]):
        capsule = thing.__arrow_c_device_array__()[1]
        struct = struct_in(capsule)
        assert (struct.device_type, struct.device_id) == (12, 1)
        assert ctypes.c_uint64.from_address(struct.sync_event).value in fake.driver.held_events
    assert fake.stats.synchronizations == fake.stats.host_reads == 0
    buffers = (ctypes.c_uint64 * 3).from_address(struct.words[5])
    column = batch["s"]
    assert buffers[1] == column.offsets.data.ptr
    taken = nanoarrow.device.c_device_array(batch)
    assert (taken.device_type_id, taken.device_id) == (12, 1)
    with pytest.raises(NotOnDevice):
        batch.__arrow_c_array__()
    with pytest.raises(pa.ArrowKeyError):  # pyarrow's wheels know no device but the host
        pa.array(batch["n"])


@pytest.mark.parametrize("export", ["__arrow_c_array__", "__arrow_c_device_array__", "to_arrow"])
@pytest.mark.parametrize("part", ["batch", "column", "child"])
def test_memory_lives_as_long_as_what_was_taken(export: str, part: str) -> None:
    """Capsules, whether taken or not, and pyarrow objects keep the memory alive, and nothing does after them."""
    batch = Batch.from_arrow(SOURCE).to_device(fake_device()).to_device(cpu())
    region = weakref.ref(batch_parts(batch).spans.regions[0])
    thing: Batch | Column = batch if part == "batch" else batch["l"]
    if part == "child":
        thing = batch["l"].children[0]
    taken = getattr(thing, export)()
    del batch, thing
    gc.collect()
    assert region() is not None
    if export == "__arrow_c_array__":
        schema, array = taken
        taken = pa.RecordBatch if part == "batch" else pa.Array
        taken = taken._import_from_c_capsule(schema, array)
        del schema, array
        gc.collect()
        assert region() is not None
        taken.validate(full=True)
    del taken
    gc.collect()
    assert region() is None


def test_release_in_another_thread(device: Device) -> None:
    """The last capsule may be dropped by any thread."""
    batch = Batch.from_arrow(SOURCE).to_device(device)
    held = [batch.__arrow_c_device_array__() for _ in range(8)]
    threads = [threading.Thread(target=held.pop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    batch.release()


def test_a_capsule_outlives_the_interpreter() -> None:
    """A capsule that is released while the interpreter ends, after modules are gone, does no harm."""
    code = (
        "import sys, pyarrow as pa\n"
        "from bowstring.columnar import Batch\n"
        "batch = Batch.from_arrow({'a': pa.array([[1], None]), 'd': pa.array(['x', 'y']).dictionary_encode()})\n"
        "sys.kept = [batch.__arrow_c_array__(), batch.__arrow_c_device_array__(), batch.to_arrow()]\n"
        "import builtins; builtins.kept = [batch['a'].__arrow_c_array__(), batch]\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, b"")


def test_released_structs_are_freed() -> None:
    """Taking capsules over and over leaves no memory behind."""
    batch = Batch.from_arrow(SOURCE)
    before = pa.total_allocated_bytes()
    watched = []
    for _ in range(50):
        part = batch.slice(0, 2)
        watched.append(weakref.ref(part.lease))
        pa.record_batch(part)
        part["d"].__arrow_c_array__()
        del part
    gc.collect()
    assert not any(reference() for reference in watched)
    assert pa.total_allocated_bytes() <= before


def test_arrays_are_views_of_the_very_bytes() -> None:
    """Export copies nothing: addresses in pyarrow are addresses in the region."""
    pool = Pool(budget=4 << 20)
    batch = placed(Batch.from_arrow({"a": np.arange(1000.0)}), pool.allocator())
    region = batch_parts(batch).spans.regions[0]
    address = batch.to_arrow()["a"].buffers()[1].address
    assert region.address <= address < region.address + region.nbytes
    assert batch["a"].to_numpy().ctypes.data == address
    assert not batch["a"].values.flags.writeable
