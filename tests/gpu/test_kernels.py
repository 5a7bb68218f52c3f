"""Kernels on a device against the same kernels on the CPU; on the fake device the way there is tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bowstring.kernels.launch import launch
from bowstring.kernels.signature import Kernel
from bowstring.memory import Device, device_by_name
from bowstring.testing import FakeDevice
from tests.kernels.cases import CASES, cases, written
from tests.kernels.tiles import ALONE, tiled

pytest.importorskip("numba", reason="kernels are not installed")

ROWS, FEW = 10_000_000, 20_000


@pytest.fixture(params=["fake:0", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Return a device."""
    return device_by_name(request.param)


def there(device: Device, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments whose arrays are on the device."""
    return tuple(device.from_host(each) if isinstance(each, np.ndarray) else each for each in arguments)


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments with arrays of their own."""
    return tuple(each.copy() if isinstance(each, np.ndarray) else each for each in arguments)


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_every_kernel_agrees_with_the_cpu(kernel: Kernel, device: Device) -> None:
    """What a kernel writes on the device is what it writes on the CPU, for right and for wrong input."""
    for items, arguments in cases(kernel):
        _agrees(kernel, items, arguments, device)


@pytest.mark.parametrize("items", [1_000, pytest.param(70_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kernel", [each for each in CASES if each.__name__ not in ALONE], ids=lambda kernel: kernel.__name__
)
def test_many_blocks_agree_with_the_cpu(kernel: Kernel, items: int, device: Device) -> None:
    """So it is for items of many blocks of threads, the last of which is not full."""
    found = tiled(kernel, items)
    assert max(count for count, _ in found) > 500
    for count, arguments in found:
        assert count % 128
        _agrees(kernel, count, arguments, device)


def _agrees(kernel: Kernel, items: int, arguments: tuple[Any, ...], device: Device) -> None:
    on_host, on_device = copied(arguments), there(device, arguments)
    launch(kernel, items, *on_host)
    launch(kernel, items, *on_device)
    for expected, found in zip(
        written(kernel, on_host), _written_there(kernel, arguments, on_device), strict=True
    ):
        assert np.array_equal(device.to_host(found), expected)


def _written_there(kernel: Kernel, arguments: tuple[Any, ...], on_device: tuple[Any, ...]) -> list[Any]:
    places = [any(each is one for one in written(kernel, arguments)) for each in arguments]
    return [each for each, is_written in zip(on_device, places, strict=True) if is_written]


def test_ten_million_rows(device: Device) -> None:
    """Bitmaps, text and Variant of ten million rows, on the fake device of a few, come out as on the CPU."""
    import pyarrow as pa

    from bowstring import Batch
    from bowstring.kernels import bitmap
    from bowstring.variant import from_json, get

    rows = FEW if isinstance(device, FakeDevice) else ROWS
    rng = np.random.default_rng(5)
    flags = rng.random(rows) < 0.3
    packed = bitmap.packed(flags)
    on_device = device.from_host(packed)
    assert np.array_equal(device.to_host(bitmap.expanded(on_device, 3, rows - 3)), flags[3:])
    assert device.to_host(bitmap.count_set(on_device, 0, rows)).tolist() == [int(flags.sum())]
    text = pa.record_batch({"s": pa.array(rng.integers(0, 10**9, rows)).cast(pa.string())})
    Batch.from_arrow(text).to_device(device).validate(full=True)
    few = from_json([f'{{"a": {number}, "b": "x"}}' for number in range(1000)])
    whole = pa.concat_arrays([few.to_arrow()] * (rows // 1000))
    column = Batch.from_arrow(pa.record_batch([whole], schema=pa.schema([few.field]))).to_device(device)[0]
    found = get(column, "$.a", pa.int64())
    assert np.array_equal(device.to_host(found.raw_values), np.tile(np.arange(1000), rows // 1000))
