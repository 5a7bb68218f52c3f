"""CuPy, cuDF and DLPack on a GPU: the same bytes, in the order of streams, for as long as they are used."""

from __future__ import annotations

import gc
import io
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar import Batch
from bowstring.columnar.parts import batch_parts
from bowstring.errors import ViewsAlive
from bowstring.memory import Device, device_by_name

pytestmark = pytest.mark.gpu

SOURCE = pa.record_batch(
    {
        "n": pa.array([1, None, 3, 4] * 1000),
        "f": np.arange(4000, dtype=np.float32),
        "b": pa.array([True, None, False, True] * 1000),
        "s": ["x", None, "yz", ""] * 1000,
        "t": pa.array([1, 2, None, 4] * 1000, pa.timestamp("us", "UTC")),
        "st": pa.array([{"k": 1, "l": [{"z": "a"}]}, None, {"k": None, "l": []}, {"k": 4, "l": None}] * 1000),
    }
)


@pytest.fixture
def device() -> Device:
    """Return the first GPU."""
    return device_by_name("cuda:0")


def imported(name: str) -> Any:
    """Return a library, or skip."""
    return pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.fixture
def batch(device: Device) -> Batch:
    """Return the batch on the GPU."""
    return Batch.from_arrow(SOURCE).to_device(device)


def test_to_cupy(batch: Batch) -> None:
    """Arrays have the values and the addresses of the columns; nulls become what one says."""
    cupy = imported("cupy")
    taken = batch.select(["n", "f", "b"]).to_cupy(na_value=0)
    assert taken["f"].data.ptr == batch["f"].raw_values.data.ptr
    assert cupy.asnumpy(taken["f"]).tolist() == list(range(4000))
    assert cupy.asnumpy(taken["n"])[:4].tolist() == [1, 0, 3, 4]
    assert cupy.asnumpy(taken["b"])[:4].tolist() == [True, False, False, True]


@pytest.mark.parametrize("protocol", ["from_dlpack", "asarray"])
def test_cupy_takes_columns(batch: Batch, protocol: str) -> None:
    """CuPy takes a column by DLPack and by the array interface, at its address, and keeps the batch."""
    cupy = imported("cupy")
    array = getattr(cupy, protocol)(batch["f"])
    assert array.data.ptr == batch["f"].raw_values.data.ptr
    region = weakref.ref(batch_parts(batch).spans.regions[0])
    with pytest.raises(ViewsAlive):
        batch.release()
    del batch
    gc.collect()
    assert region() is not None
    assert float(array.sum()) == float(np.arange(4000).sum())


def test_consumers_on_other_streams_see_all_that_was_queued(device: Device) -> None:
    """What a stream of its own still computes is there when a consumer on another stream reads it."""
    cupy = imported("cupy")
    rows = 50_000_000
    other = cupy.cuda.Stream(non_blocking=True)
    with cupy.cuda.Stream(non_blocking=True):
        array = cupy.zeros(rows, np.float32)
        for _ in range(50):
            array += 1
        ours = Batch.from_arrow({"a": array})
        # Both are in order with the stream that is current when they are made.
        tensor = ours["a"].__dlpack__(stream=other.ptr, max_version=(1, 0))
        schema, struct = ours.__arrow_c_device_array__()
    with other:
        assert float(cupy.from_dlpack(tensor).min()) == 50.0
    with cupy.cuda.Stream(non_blocking=True):

        class Held:
            def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
                return schema, struct

        by_struct = Batch.from_arrow(Held())
        assert by_struct.device is device
        assert float(by_struct["a"].raw_values.min()) == 50.0


@pytest.mark.parametrize("start", [0, 8, 13])
def test_to_cudf_and_back(batch: Batch, start: int) -> None:
    """A DataFrame has the values of the batch, also of a slice, and comes back the same through pylibcudf."""
    imported("cudf")
    part = batch.slice(start)
    frame = part.to_cudf()
    expected = SOURCE.slice(start)
    assert list(frame.columns) == expected.schema.names
    assert frame["n"].to_arrow().to_pylist() == expected["n"].to_pylist()
    assert frame["s"].to_arrow().to_pylist() == expected["s"].to_pylist()
    assert frame["st"].to_arrow().to_pylist() == expected["st"].to_pylist()
    again = Batch.from_arrow(frame)
    assert again.device is part.device
    assert again["n"].raw_values.data.ptr == part["n"].raw_values.data.ptr
    assert again.to_arrow().select(["n", "f", "b", "s", "st"]).to_pylist() == (
        expected.select(["n", "f", "b", "s", "st"]).to_pylist()
    )


def test_a_data_frame_outlives_its_batch(batch: Batch) -> None:
    """The memory is cuDF's, too, until its last column is gone."""
    imported("cudf")
    region = weakref.ref(batch_parts(batch).spans.regions[0])
    frame = batch.select(["f"]).to_cudf()
    series = frame["f"]
    del batch, frame
    gc.collect()
    assert region() is not None
    assert float(series.sum()) == float(np.arange(4000).sum())
    del series
    gc.collect()
    assert region() is None


def test_pylibcudf_tables(batch: Batch) -> None:
    """Pylibcudf takes batches itself, and its tables are taken with positions for names."""
    pylibcudf = imported("pylibcudf")
    table = pylibcudf.Table.from_arrow(batch.select(["n", "s"]))
    assert table.shape() == (4000, 2)
    again = Batch.from_arrow(table)
    assert again.schema.names == ["0", "1"]
    assert again.to_arrow()["1"].to_pylist() == SOURCE["s"].to_pylist()


def test_frames_are_published_on_the_gpu(device: Device) -> None:
    """A server takes a DataFrame, and its reader has it on the GPU."""
    cudf = imported("cudf")
    frame = cudf.DataFrame({"a": np.arange(100_000), "s": ["xyz"] * 100_000})
    pool = bow.Pool(device, budget=256 << 20)
    with bow.Server(pool=pool) as server:
        with bow.connect(server.publish("t", frame), mode="map") as stream:
            [got] = stream
        assert got.device is device
        assert got.to_arrow()["s"].to_pylist() == ["xyz"] * 100_000
        assert int(got.to_cudf()["a"].sum()) == sum(range(100_000))
        del got
    pool.close()


def test_ten_thousand_structs_leave_nothing(batch: Batch) -> None:
    """Events and structs that are made and dropped do not pile up on the device."""
    cupy = imported("cupy")
    for _ in range(100):
        batch.__arrow_c_device_array__()
    before = cupy.cuda.runtime.memGetInfo()[0]
    for _ in range(10_000):
        batch.__arrow_c_device_array__()
    batch.device.sweep()
    assert cupy.cuda.runtime.memGetInfo()[0] >= before - (2 << 20)


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_sparse_tensors_of_cupyx(device: Device, form: str) -> None:
    """A matrix of cupyx lies over the values of the tensor, and multiplies as scipy's does."""
    cupy = imported("cupy")
    scipy_sparse = imported("scipy.sparse")
    expected = scipy_sparse.random_array((300, 200), density=0.05, format=form, rng=np.random.default_rng(0))
    sink = io.BytesIO()
    bow.ipc.write_sparse_tensor(expected, sink)
    tensor = bow.ipc.read_sparse_tensor(sink.getvalue(), device=device)
    matrix = tensor.to_cupyx()
    assert matrix.data.data.ptr == tensor.data.data.ptr
    vector = np.arange(200.0)
    assert np.allclose(cupy.asnumpy(matrix @ cupy.asarray(vector)), expected @ vector)
    back = bow.ipc.SparseTensor.from_scipy(matrix)
    assert back.data.data.ptr == tensor.data.data.ptr
    assert np.allclose(back.to_device(device_by_name("cpu")).to_tensor().to_numpy(), expected.toarray())
