"""Data on a device: published from there, read there, and never by way of the host where that can be avoided."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool
from bowstring.memory.cuda.device import CudaDevice
from bowstring.testing import FakeDevice, FakeDriverError, fake_device
from tests.client_server.conftest import PATIENCE

ROWS = 100_000
FIXED = {"n": np.arange(ROWS), "f": np.linspace(0, 1, ROWS)}
TEXT = pa.table(
    {"s": [str(number) for number in range(1000)], "d": pa.array(["a", None] * 500).dictionary_encode()}
)
MAPPED = ("unix:", "inproc:")
EACH_MAPPED = pytest.mark.parametrize("mapped", MAPPED, ids=["unix", "inproc"])


@pytest.fixture
def device() -> FakeDevice:
    """Return a fake device whose statistics begin at zero."""
    found = fake_device(0)
    found.stats.reset()
    return found


@pytest.fixture
def on_device(serve: Callable[..., bow.Server], address: str, device: FakeDevice) -> bow.Server:
    """Return a server of each transport whose pool is on the device."""
    return serve(address, pool=Pool(device, budget=64 << 20))


def test_published_from_a_device(on_device: bow.Server, device: FakeDevice, address: str) -> None:
    """A batch on a device arrives there where memory can be handed over, and on the host where it cannot."""
    batch = bow.Batch.from_arrow(TEXT).to_device(device)
    with bow.connect(on_device.publish("t", batch)) as stream:
        (got,) = stream
        assert got.device is (bow.cpu() if address.startswith(("tcp", "ucx")) else device)
        assert stream.stats.device == got.device.name
    assert pa.Table.from_batches([got.to_arrow()]).to_pydict() == TEXT.to_pydict()


def test_from_the_host_to_a_server_on_a_device(on_device: bow.Server, device: FakeDevice) -> None:
    """Host data are copied to the device when they are published, once."""
    endpoint = on_device.publish("t", FIXED)
    assert device.stats.host_written_bytes == 2 * 8 * ROWS
    with bow.connect(endpoint, device="cpu") as stream:
        (got,) = stream
    assert np.array_equal(got["n"].values, FIXED["n"])


@EACH_MAPPED
def test_bodies_are_not_read_by_the_host(
    serve: Callable[..., bow.Server], device: FakeDevice, mapped: str
) -> None:
    """From publishing a batch on a device to computing with its views there, the host reads no body."""
    pool = Pool(device, budget=64 << 20)
    batch = bow.Batch.from_arrow(FIXED).to_device(device, pool)
    server = serve(mapped, pool=pool)
    device.stats.reset()
    with bow.connect(server.publish("t", batch)) as stream:
        (got,) = stream
        total = got["n"].values.sum()
        assert stream.stats.path.endswith("mapped")
    assert (device.stats.host_reads, device.stats.host_writes) == (0, 0)
    assert device.to_host(total) == FIXED["n"].sum()
    del total, got, batch


@EACH_MAPPED
def test_only_offsets_are_read_by_the_host(
    serve: Callable[..., bow.Server], device: FakeDevice, mapped: str
) -> None:
    """Opening text on a device fetches first and last offsets and no more."""
    pool = Pool(device, budget=64 << 20)
    batch = bow.Batch.from_arrow(TEXT).to_device(device, pool)
    server = serve(mapped, pool=pool)
    endpoint = server.publish("t", batch)
    device.stats.reset()
    with bow.connect(endpoint) as stream:
        (got,) = stream
    assert device.stats.host_read_bytes <= 64
    assert got.num_rows == 1000
    del got, batch


def test_sent_bodies_are_read_once_a_reader(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """Where memory cannot be handed over, the host reads each body once for each reader, and keeps no copy."""
    server = serve("tcp://127.0.0.1:0", pool=Pool(device, budget=64 << 20))
    endpoint = server.publish("t", FIXED)
    for _ in range(3):
        with bow.connect(endpoint) as stream:
            (got,) = stream
    assert device.stats.host_read_bytes == 3 * 2 * 8 * ROWS
    assert np.array_equal(got["f"].values, FIXED["f"])


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.parametrize("wanted", [None, 0, 1, "cpu"], ids=str)
def test_where_it_was_wanted(
    on_device: bow.Server, address: str, mode: str, wanted: int | str | None
) -> None:
    """Whatever road and mode, batches are where they were wanted, or else where the producer has them."""
    target = fake_device(wanted) if isinstance(wanted, int) else wanted
    there = bow.cpu() if address.startswith(("tcp", "ucx")) else fake_device(0)
    expected = {"None": there, "cpu": bow.cpu()}.get(str(wanted)) or fake_device(int(wanted or 0))
    with bow.connect(on_device.publish("t", TEXT), device=target, mode=mode) as stream:  # type: ignore[arg-type]
        (got,) = stream
        assert got.device is expected
        assert stream.stats.device == expected.name
    assert pa.Table.from_batches([got.to_arrow()]).to_pydict() == TEXT.to_pydict()


@EACH_MAPPED
def test_copied_on_the_device(serve: Callable[..., bow.Server], device: FakeDevice, mapped: str) -> None:
    """In copy mode a batch on a device is copied there, not by way of the host, and is free at once."""
    server = serve(mapped, pool=Pool(device, budget=64 << 20))
    endpoint = server.publish("t", FIXED, readers=1)
    device.stats.reset()
    with bow.connect(endpoint, mode="copy") as stream:
        (got,) = stream
    assert device.stats.host_reads == 0
    assert device.stats.host_written_bytes <= 2 * 4 * 8  # which pieces are gathered
    server.wait_released("t")
    assert server.pool.stats.in_use == 0
    assert int(device.to_host(got["n"].values)[-1]) == ROWS - 1


def test_lazily_on_a_device(on_device: bow.Server, device: FakeDevice) -> None:
    """Batches that are made on a device one by one arrive as they were made."""
    table = pa.table({"n": range(100)})

    def produce() -> Iterator[bow.Batch]:
        for each in table.to_batches(10):
            yield bow.Batch.from_arrow(each).to_device(device)

    with bow.connect(on_device.publish("t", produce(), schema=table.schema)) as stream:
        assert stream.read_all().equals(table.combine_chunks()) or stream.num_rows is None


def test_chosen_columns_on_a_device(on_device: bow.Server, device: FakeDevice) -> None:
    """Columns are chosen where they are."""
    with bow.connect(on_device.publish("t", TEXT), columns=["d"]) as stream:
        (got,) = stream
    assert got.to_arrow().to_pydict() == TEXT.select(["d"]).to_pydict()


def test_another_device_than_the_server(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """A batch on one device is published by a server on another one, which copies it."""
    batch = bow.Batch.from_arrow(TEXT).to_device(fake_device(1))
    server = serve(pool=Pool(device, budget=8 << 20))
    with bow.connect(server.publish("t", batch)) as stream:
        (got,) = stream
    assert got.device is device
    assert got.to_arrow().to_pydict() == TEXT.to_pydict()


@pytest.mark.parametrize("call", ["allocate", "copy"])
def test_a_device_that_fails_while_publishing(
    serve: Callable[..., bow.Server], device: FakeDevice, call: str
) -> None:
    """A driver's error ends publishing with that error, and nothing is offered or held."""
    server = serve(pool=Pool(device, budget=8 << 20))
    device.fail_next(call)  # type: ignore[arg-type]
    with pytest.raises((bow.OutOfBudget, FakeDriverError)):
        server.publish("t", TEXT)
    assert server.endpoints == {}
    gc.collect()
    assert server.pool.stats.in_use == 0
    with bow.connect(server.publish("t", TEXT), device="cpu") as stream:
        assert stream.read_all().to_pydict() == TEXT.to_pydict()


def test_a_device_that_cannot_map(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """A reader whose device cannot map the region gets the bytes, and is told why; the next one maps it."""
    server = serve(pool=Pool(device, budget=8 << 20))
    endpoint = server.publish("t", TEXT)
    device.fail_next("map")
    with bow.connect(endpoint, limits=PATIENCE) as stream:
        assert stream.read_all().to_pydict() == TEXT.to_pydict()
        assert stream.stats.path == "unix: packed"
        assert stream.stats.why == "the bytes are sent: the fake device cannot map a region"
    with bow.connect(endpoint) as stream:
        assert stream.read_all().to_pydict() == TEXT.to_pydict()
        assert stream.stats.path == "unix: mapped"


def test_copies_of_a_stream_share_a_pool(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """The batches of one stream that are copied to a device lie in few regions, not in one each."""
    batches = [{"n": np.arange(100)} for _ in range(20)]
    with bow.connect(serve().publish("t", batches), device=device) as stream:
        kept = list(stream)
    assert device.stats.allocations == 1
    assert all(batch.device is device for batch in kept)


def test_data_of_a_gpu_that_exports_nothing_are_sent(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU whose memory no other process opens is copied to and from; the stream says why its bytes are sent."""
    monkeypatch.setattr(device, "exports", False)
    pool = Pool(device, budget=64 << 20)
    server = serve("unix:", pool=pool)
    endpoint = server.publish("t", FIXED)
    for wanted, device_name in ((None, "cpu"), ("fake:0", "fake:0")):
        with bow.connect(endpoint, device=wanted) as stream:
            [batch] = stream
            assert (batch.device.name, stream.stats.path) == (device_name, "unix: packed")
            assert "cannot export memory" in stream.stats.why
        assert np.array_equal(batch.to_device("cpu")["n"].values, FIXED["n"])
        del batch, stream
    server.close()
    pool.close()
    gc.collect()
    device.sweep()


@EACH_MAPPED
@pytest.mark.parametrize(
    ("options", "is_view"),
    [({}, False), ({"mode": "copy"}, False), ({"mode": "map"}, True), ({"cuda_stream": 5}, True)],
    ids=["nothing said", "copy", "map", "cuda_stream"],
)
def test_views_are_asked_for_where_no_hardware_has_shown_that_they_hold(
    serve: Callable[..., bow.Server],
    device: FakeDevice,
    monkeypatch: pytest.MonkeyPatch,
    mapped: str,
    options: dict[str, Any],
    is_view: bool,
) -> None:
    """A device that does not map by default has its batches copied there, unless the reader asks for views."""
    monkeypatch.setattr(device, "maps_by_default", False)
    pool = Pool(device, budget=64 << 20)
    server = serve(mapped, pool=pool)
    with bow.connect(
        server.publish("t", bow.Batch.from_arrow(FIXED).to_device(device, pool), readers=1), **options
    ) as stream:
        (got,) = stream
    assert got.device is device
    if not is_view:
        server.wait_released(timeout=10.0)
    assert (pool.stats.in_use > 0) == is_view
    assert np.array_equal(got.to_device("cpu")["n"].values, FIXED["n"])


def test_cuda_maps_only_when_asked() -> None:
    """No GPU has run the probe yet: views of CUDA memory are opt-in, those of the host and of the fake are not."""
    assert (CudaDevice.maps_by_default, FakeDevice.maps_by_default, bow.cpu().maps_by_default) == (
        False,
        True,
        True,
    )
