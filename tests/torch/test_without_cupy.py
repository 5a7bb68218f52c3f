"""Batches of a GPU where CuPy cannot be imported: views for consumers of DLPack, and plain words for the rest."""

from __future__ import annotations

import ctypes
import functools
import gc
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory.cuda import device as cuda
from bowstring.memory.cuda.device import CudaDevice
from bowstring.memory.dlpack import _Tensor, _Versioned
from bowstring.testing.fake_array import ADDRESS_SHIFT
from bowstring.testing.fake_driver import FakeDriver
from tests.columnar.capsules import address_in
from tests.device_events import wait_for_events

STREAM = 77
ROWS = 1000
TABLE = pa.table(
    {
        "n": np.arange(ROWS),
        "f": pa.array([None if row % 7 == 3 else row / 2 for row in range(ROWS)], pa.float32()),
        "lists": pa.array([[row, row + 1] for row in range(ROWS)], pa.list_(pa.int16())),
        "fixed": pa.array([[row, -row] for row in range(ROWS)], pa.list_(pa.float64(), 2)),
        "text": [f"row {row}" for row in range(ROWS)],
        "empty": pa.array([[]] * ROWS, pa.list_(pa.int8())),
    }
)


def from_dlpack(source: Any, *, max_version: tuple[int, int] | None = None) -> np.ndarray[Any, Any]:
    """Take an array of the GPU as torch does, and return what lies there; what was taken comes back as it is."""
    if isinstance(source, np.ndarray):
        return source
    assert source.__dlpack_device__() == (2, 0)
    options = {} if max_version is None else {"max_version": max_version}
    capsule = source.__dlpack__(stream=STREAM, **options)
    if max_version is None:
        tensor = _Tensor.from_address(address_in(capsule, b"dltensor"))
    else:
        tensor = _Versioned.from_address(address_in(capsule, b"dltensor_versioned")).tensor
    assert (tensor.device_type, tensor.device_id, tensor.lanes) == (2, 0, 1)
    shape = [ctypes.c_int64.from_address(tensor.shape + 8 * each).value for each in range(tensor.ndim)]
    dtype = np.dtype(f"{'iuf'[tensor.code]}{tensor.bits // 8}")
    if not np.prod(shape):
        return np.empty(shape, dtype)
    start = tensor.data + tensor.byte_offset - ADDRESS_SHIFT
    nbytes = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(start, nbytes), dtype).reshape(shape)


@pytest.fixture
def driver() -> FakeDriver:
    """Return a driver without a device."""
    return FakeDriver()


@pytest.fixture
def gpu(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    """Return a GPU of a fake driver, in a process that cannot import CuPy, and has torch's current stream."""
    torch = types.SimpleNamespace(
        is_initialized=lambda: True,
        current_stream=lambda _: types.SimpleNamespace(cuda_stream=STREAM, device_index=0),
    )
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "torch.cuda", torch)
    monkeypatch.setattr(cuda, "_driver", lambda: driver)
    monkeypatch.setattr(cuda, "_devices", {})
    device = cuda.cuda_device(0)
    yield device
    wait_for_events(device)


def read(source: Any, pool: bow.Pool | None = None, **options: Any) -> bow.Batch:
    """Publish a source, and return its one batch on the GPU."""
    with bow.Server(pool=pool) as server, bow.connect(server.publish("t", source), **options) as stream:
        return next(stream)


def check(batch: bow.Batch, gpu: CudaDevice, table: pa.Table = TABLE) -> None:
    """Check what a consumer of DLPack sees of each column, and what is copied to the host."""
    assert batch.device is gpu
    for version in (None, (1, 0)):
        for name in ("n", "f"):
            expected = table[name].combine_chunks().fill_null(0).to_numpy()
            valid = table[name].is_valid().to_numpy()
            found = from_dlpack(batch[name].raw_values, max_version=version)
            assert np.array_equal(found[valid], expected[valid])
        fixed = from_dlpack(batch["fixed"].children[0].values, max_version=version)
        assert np.array_equal(fixed.reshape(-1, 2), np.stack(table["fixed"].to_numpy()))
    assert np.array_equal(from_dlpack(batch["n"], max_version=(1, 0)), table["n"].to_numpy())
    assert from_dlpack(batch["empty"].children[0].values).shape == (0,)
    assert batch.to_arrow().to_pydict() == table.to_pydict()


def test_a_table_of_the_host_is_read_on_the_gpu(gpu: CudaDevice) -> None:
    """All columns are views; the lease of what a consumer has holds when the batch is gone."""
    batch = read(TABLE, device="cuda:0")
    check(batch, gpu)
    capsule = batch["n"].raw_values[3:5].__dlpack__(stream=STREAM)
    del batch
    gc.collect()
    read(pa.table({"n": np.zeros(ROWS, np.int64)}), device="cuda:0")
    tensor = _Tensor.from_address(address_in(capsule, b"dltensor"))
    start = tensor.data - ADDRESS_SHIFT
    assert np.frombuffer(ctypes.string_at(start, 16), np.int64).tolist() == [3, 4]


@pytest.mark.filterwarnings("ignore:an array lies over GPU memory")
@pytest.mark.parametrize("mode", ["map", "copy"])
def test_a_table_of_the_gpu_is_read_there(gpu: CudaDevice, mode: Any) -> None:
    """Memory of a server's GPU is mapped or copied, and so is a slice of it."""
    batch = read(TABLE, device="cuda:0")
    check(read(batch, bow.Pool(gpu), mode=mode), gpu)
    part = read(batch.select(["n"]).slice(3, 90), bow.Pool(gpu), mode=mode)
    assert from_dlpack(part["n"].values).tolist() == list(range(3, 93))


def test_work_is_ordered_behind_torchs_current_stream(gpu: CudaDevice, driver: FakeDriver) -> None:
    """Arrays are handed out behind it, or behind that of a block; work aside has another stream."""
    column = read(TABLE, device="cuda:0")["n"]
    with gpu.on([bow.memory.NamedStream(0, None)]):
        assert gpu.current().address == 0
    assert gpu.current().address == STREAM
    assert column.raw_values.__cuda_array_interface__["stream"] == STREAM
    assert column.__cuda_array_interface__["data"] == (column.raw_values.data.ptr, True)
    with gpu.on([bow.memory.NamedStream(5, None)]):
        assert gpu.current().address == 5
        driver.waits.clear()
        column.raw_values.__dlpack__(stream=9)
        assert [stream for stream, _ in driver.waits] == [9]
    with gpu.aside():
        assert gpu.current().address not in (0, 1, 5, STREAM)
    assert gpu.current().address == STREAM


USES: list[Callable[[Any], object]] = [
    lambda values: values + 1, lambda values: 1 - values, lambda values: values == 1,
    lambda values: np.ones(ROWS, np.int64) + values, np.sum, np.asarray, np.diff, list, bool,
    operator.neg, operator.itemgetter(0), operator.itemgetter([0, 1]), operator.methodcaller("astype", "f4"),
    operator.methodcaller("sum"), lambda values: operator.setitem(values, slice(0, 1), 0),
    lambda values: values[::2].reshape(2, -1), lambda values: values[::2].__dlpack__(),
    lambda values: values.__dlpack__(copy=True),
]  # fmt: skip


def test_what_computes_names_cupy(gpu: CudaDevice) -> None:
    """Nothing reads memory of the GPU as if it were the host's: an error says what to install, or to use."""
    batch = read(TABLE, device="cuda:0")
    values = batch["n"].raw_values
    uses: list[Callable[[], object]] = [
        *(functools.partial(use, values) for use in USES),
        lambda: read(pa.table({"b": [True, False]}), device="cuda:0")["b"].values,
        lambda: batch.slice(3, 90), lambda: gpu.xp.arange(3), lambda: gpu.xp.empty(3),
        lambda: gpu.from_host(np.arange(3)), lambda: batch.validate(full=True), lambda: batch.to_cupy(na_value=0),
    ]  # fmt: skip
    for each in uses:
        with pytest.raises(bow.MissingDependency, match="CuPy"):
            each()


def test_a_notebook_shows_what_it_is_and_what_rows_need(gpu: CudaDevice) -> None:
    """Batches and columns are shown, and looking raises nothing."""
    batch = read(TABLE, device="cuda:0")
    for text in (batch._repr_html_(), batch["f"]._repr_html_()):
        assert "rows" in text
        assert "cuda:0" in text
        assert "CuPy" in text
    assert "10 of 1,000 rows" in batch["fixed"]._repr_html_()


def test_data_sets_for_training_need_torch_alone(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """``bow.torch`` hands views of the GPU to torch, and lets it join those that cross a batch's end."""
    data = types.ModuleType("torch.utils.data")
    data.__dict__.update(IterableDataset=object, get_worker_info=lambda: None)
    distributed = types.ModuleType("torch.distributed")
    distributed.__dict__["is_available"] = lambda: False
    torch = types.ModuleType("torch")
    utils = types.ModuleType("torch.utils")
    utils.__dict__["data"] = data
    torch.__dict__.update(
        utils=utils, distributed=distributed, Tensor=np.ndarray, from_dlpack=from_dlpack, cat=np.concatenate,
        from_numpy=lambda array: array, cuda=sys.modules["torch.cuda"],
    )  # fmt: skip
    modules = {
        "torch": torch,
        "torch.utils": utils,
        "torch.utils.data": data,
        "torch.distributed": distributed,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "bowstring.torch.iterable", raising=False)
    monkeypatch.delitem(bow.torch.__dict__, "IterableDataset", raising=False)
    columns = ["n", "lists", "fixed"]
    with bow.Server() as server:
        endpoint = server.publish("t", TABLE.select(columns).to_reader(300))
        dataset = bow.torch.IterableDataset(endpoint, columns=columns, batch_size=128, device="cuda:0")
        batches = list(dataset)
    monkeypatch.delitem(sys.modules, "bowstring.torch.iterable")
    monkeypatch.delitem(bow.torch.__dict__, "IterableDataset")
    assert [len(batch["n"]) for batch in batches] == [128] * 7 + [104]
    for name in columns:
        expected = np.array(TABLE[name].to_pylist())
        assert np.array_equal(np.concatenate([batch[name] for batch in batches]), expected)
