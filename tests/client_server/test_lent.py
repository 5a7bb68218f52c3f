"""Lending: ``publish(…, share="in_place")`` of memory that another library allocated, within one process."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.wire import Hello
from bowstring.memory import Pool, this_process
from bowstring.memory import region as region_module
from bowstring.server.materialized import MaterializedSource
from bowstring.testing import FakeDevice, fake_device
from tests.client_server.conftest import come_home, read, until
from tests.gpu.lending import moved

ROWS = 1000


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return a device of which nothing is allocated when the test ends that was not when it began."""
    device = fake_device()
    gc.collect()
    before = device.driver.allocated
    yield device
    gc.collect()
    until(lambda: device.driver.allocated == before)


@pytest.fixture
def pool(device: FakeDevice) -> Iterator[Pool]:
    """Return a pool on the device, which must come home."""
    made = Pool(device, budget=16 << 20)
    yield made
    come_home(made)


@pytest.fixture(params=["unix:", "inproc:"])
def server(
    request: pytest.FixtureRequest, serve: Callable[..., bow.Server], pool: Pool
) -> Iterator[bow.Server]:
    """Return a server on a transport that hands over memory; it hears of its readers' ends before its own.

    Else it would keep for good what was lent to them.
    """
    server = serve(request.param, pool=pool)
    yield server
    until(lambda: server.stats.connections == 0)


def allocated(device: FakeDevice, values: Any, kind: Any = "malloc") -> Any:
    """Return an array that another library allocated."""
    source = np.asarray(values)
    array = device.allocate(max(1, source.nbytes), kind)[: source.nbytes].view(source.dtype)
    array[:] = device.from_host(source)
    return array


def on_host(endpoint: bow.Endpoint, **options: Any) -> pa.Table:
    """Read all of a data set of a device, and keep none of its memory."""
    return read(endpoint, device="cpu", **options)


def test_nothing_is_copied(server: bow.Server, device: FakeDevice) -> None:
    """What is lent is read at its own address: no memory is made, mapped or opened, and nothing is copied."""
    array = allocated(device, np.arange(ROWS))
    address = array.data.ptr
    device.stats.reset()
    device.driver.calls.clear()
    endpoint = server.publish("t", {"n": array, "same": array}, share="in_place")
    with bow.connect(endpoint) as stream:
        (batch,) = stream
        assert batch["n"].raw_values.data.ptr == address
        assert stream.stats.path.endswith(": in place")
        assert stream.stats.regions == 1
        del batch
    seen = device.stats
    assert (seen.allocations, seen.mappings, seen.host_reads, seen.host_writes) == (0, 0, 0, 0)
    calls = device.driver.calls
    assert [calls[name] for name in ("pointer_attributes", "address_range", "get_ipc_handle")] == [1, 1, 1]
    assert not calls.keys() & {"create", "import_", "reserve", "map", "open_ipc_handle"}
    assert (calls["event_done"] > 0, calls["synchronize"]) == (True, 0)
    assert server.pool.stats.made == 0
    assert server.stats.bytes_lent == 2 * array.nbytes
    server.withdraw("t")
    until(lambda: server.stats.bytes_lent == 0)


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_tables_of_all_shapes(server: bow.Server, device: FakeDevice, rows: int) -> None:
    """Text, nulls, lists, dictionaries and slices arrive as they are, whether all of them is lent or a part."""
    numbers = list(range(rows))
    table = pa.table(
        {
            "n": pa.array([None if n % 3 == 1 else n for n in numbers], pa.int64()),
            "s": pa.array([f"é{n}" * (n % 4) for n in numbers], pa.string()),
            "l": pa.array([list(range(n % 3)) for n in numbers], pa.list_(pa.int16())),
            "d": pa.array([f"word {n % 5}" for n in numbers], pa.string()).dictionary_encode(),
            "b": pa.array([n % 2 == 0 for n in numbers], pa.bool_()),
        }
    )
    host = bow.Batch.from_arrow(table)
    batch = moved(device, host)
    for name, data, expected in (
        ("whole", batch, table),
        ("part", batch.slice(rows // 3), table.slice(rows // 3)),
    ):
        endpoint = server.publish(name, data, share="in_place")
        assert on_host(endpoint).to_pydict() == expected.to_pydict()
        assert on_host(endpoint, columns=["s", "n"]).equals(expected.select(["s", "n"]))
        with bow.connect(endpoint) as stream:
            for each in stream:
                each.validate()
                del each
        server.withdraw(name)
        # A slice of some columns must be made compact, by copies.
        assert server.pool.stats.made == 0 or name == "part"
    del batch, data


@pytest.mark.parametrize("kind", ["async", "managed", "vmm"])
def test_what_has_no_handle_is_copied(server: bow.Server, device: FakeDevice, kind: str) -> None:
    """Columns of other memory are copied into one region on their device, the rest is lent, and it says why."""
    data = {
        "lent": allocated(device, np.arange(ROWS)),
        "copied": allocated(device, np.arange(ROWS) * 2, kind),
    }
    device.stats.reset()
    endpoint = server.publish("t", data, share="in_place")
    assert device.stats.host_reads == 0
    assert device.stats.host_written_bytes < 100  # no bytes of a column
    assert server.pool.stats.made == 1
    assert server.stats.bytes_lent == 8 * ROWS
    with bow.connect(endpoint) as stream:
        assert stream.stats.path.endswith(": in place")
        named = {"async": "cudaMallocAsync", "managed": "managed memory", "vmm": "cuMemMap"}[kind]
        assert "copied were 8000 bytes" in stream.stats.why
        assert named in stream.stats.why
        (batch,) = stream
        assert batch["lent"].raw_values.data.ptr == data["lent"].data.ptr
        assert batch["copied"].raw_values.data.ptr != data["copied"].data.ptr
        found = pa.Table.from_batches([batch.to_arrow()]).to_pydict()
        del batch
    assert found == {"lent": list(range(ROWS)), "copied": list(range(0, 2 * ROWS, 2))}
    server.withdraw("t")


def test_nothing_that_can_be_lent(server: bow.Server, device: FakeDevice) -> None:
    """Where all must be copied, the stream is mapped as always, and says why it is not in place."""
    endpoint = server.publish("t", {"n": allocated(device, np.arange(9), "async")}, share="in_place")
    with bow.connect(endpoint) as stream:
        assert stream.stats.path.endswith(": mapped")
        assert "cudaMallocAsync" in stream.stats.why
    assert server.stats.bytes_lent == 0
    server.withdraw("t")


def test_memory_of_the_host_is_copied(serve: Callable[..., bow.Server]) -> None:
    """On the host there are no such handles: data are copied as always, and the stream says so."""
    server = serve()
    endpoint = server.publish("t", {"n": np.arange(9)}, share="in_place")
    with bow.connect(endpoint) as stream:
        assert stream.stats.path == "unix: mapped"
        assert stream.stats.why.endswith("; copied were 72 bytes: memory of the host")
    assert read(endpoint).to_pydict() == {"n": list(range(9))}


def test_a_pool_of_another_device(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """A server whose pool is on the host lends what lies on a device altogether; else all goes to its pool."""
    server = serve()
    lent = allocated(device, np.arange(ROWS))
    endpoint = server.publish("t", {"n": lent}, share="in_place")
    with bow.connect(endpoint) as stream:
        (batch,) = stream
        assert (batch.device, batch["n"].raw_values.data.ptr) == (device, lent.data.ptr)
        del batch
    assert server.pool.stats.made == 0
    mixed = {"n": lent, "m": allocated(device, np.arange(ROWS), "async")}
    endpoint = server.publish("u", mixed, share="in_place")
    with bow.connect(endpoint) as stream:
        (batch,) = stream
        assert batch.device.is_host
        assert stream.stats.path == "unix: mapped"
        assert "8000 bytes: memory of fake:0, where the server has no pool" in stream.stats.why
    assert batch["n"].values[-1] == ROWS - 1
    del batch
    server.withdraw("t")
    server.withdraw("u")
    del lent, mixed


def test_batches_share_an_allocation(server: bow.Server, device: FakeDevice) -> None:
    """However many batches lie in an allocation, it is announced once, and lives as long as any is offered."""
    array = allocated(device, np.arange(ROWS))
    before = device.driver.allocated
    data = [bow.Batch.from_arrow({"n": array[start : start + 100]}) for start in range(0, ROWS, 100)]
    endpoint = server.publish("t", data, share="in_place", readers=1)
    del array, data
    gc.collect()
    assert device.driver.allocated == before
    with bow.connect(endpoint) as stream:
        batches = list(stream)
        assert (stream.stats.regions, len(batches)) == (1, 10)
    values = [int(value) for each in batches for value in device.to_host(each["n"].values)]
    assert values == list(range(ROWS))
    del batches, stream
    server.wait_released("t")
    until(lambda: device.driver.allocated == before - 1)
    assert server.stats.kept == 0


def test_published_twice(server: bow.Server, device: FakeDevice) -> None:
    """Memory can be lent in several data sets, and copied in another; each ends for itself."""
    array = allocated(device, np.arange(ROWS))
    endpoints = [server.publish(name, {"n": array}, share="in_place") for name in ("a", "b")]
    copied = server.publish("c", {"n": array})
    with bow.connect(copied) as stream:
        assert stream.stats.path.endswith(": mapped")
    server.withdraw("a")
    server.wait_released("a")
    assert on_host(endpoints[1])["n"].to_pylist() == list(range(ROWS))
    assert on_host(copied)["n"].to_pylist() == list(range(ROWS))
    for name in ("b", "c"):
        server.withdraw(name)


def test_regions_of_ours_stay_where_they_are(server: bow.Server, device: FakeDevice, pool: Pool) -> None:
    """What lies in regions of ours goes by its descriptor, and is not counted as copied."""
    placed = bow.Batch.from_arrow({"n": np.arange(ROWS)}).to_device(device, pool)
    made = pool.stats.made
    endpoint = server.publish("t", placed, share="in_place")
    assert pool.stats.made == made
    with bow.connect(endpoint) as stream:
        assert stream.stats.path.endswith(": mapped")
        assert "copied" not in stream.stats.why
    server.withdraw("t")
    del placed


def test_what_was_read_is_copied_when_it_is_published(
    server: bow.Server, serve: Callable[..., bow.Server], device: FakeDevice
) -> None:
    """Memory that another producer lends us is copied: we could not keep it."""
    endpoint = server.publish("t", {"n": allocated(device, np.arange(ROWS))}, share="in_place")
    pool = Pool(device, budget=1 << 24)
    second = serve(pool=pool)
    with bow.connect(endpoint) as stream:
        (batch,) = stream
        again = second.publish("t", batch, share="in_place")
        del batch
    assert pool.stats.made == 1
    with bow.connect(again) as stream:
        assert "memory of another producer" in stream.stats.why
    server.withdraw("t")
    assert on_host(again)["n"].to_pylist() == list(range(ROWS))
    second.withdraw("t")


def test_what_is_produced_lazily_is_not_lent(server: bow.Server, device: FakeDevice) -> None:
    """Generators, readers and callables are refused, and so is a way to share that there is not."""
    array = allocated(device, np.arange(9))
    for data in ((each for each in [{"n": array}]), lambda: iter([{"n": array}])):
        with pytest.raises(bow.UsageError, match="lazily"):
            server.publish("t", data, share="in_place")
    reader = pa.table({"n": [1]}).to_reader()
    with pytest.raises(bow.UsageError, match="lazily"):
        server.publish("t", reader, share="in_place")
    with pytest.raises(bow.UsageError, match="in_place"):
        server.publish("t", {"n": array}, share="lend")  # type: ignore[arg-type]
    assert server.endpoints == {}
    del data


@pytest.mark.parametrize("place", [None, "elsewhere:1", f"{this_process().boot_id.hex()}:1"])
def test_readers_that_cannot_open_handles(
    serve: Callable[..., bow.Server],
    pool: Pool,
    device: FakeDevice,
    monkeypatch: pytest.MonkeyPatch,
    place: str | None,
) -> None:
    """A reader that takes no handles, or is of another PID namespace, gets the bytes, and is told why."""
    said = Hello.pack
    monkeypatch.setattr(
        Hello,
        "pack",
        lambda hello: said(Hello(hello.columns, hello.window, hello.pointers, hello.token, 1, place)),
    )
    server = serve(pool=pool)
    endpoint = server.publish("t", {"n": allocated(device, np.arange(ROWS))}, share="in_place")
    with bow.connect(endpoint) as stream:
        assert stream.stats.path == "unix: packed"
        assert "PID namespace" in stream.stats.why
    assert read(endpoint)["n"].to_pylist() == list(range(ROWS))
    server.withdraw("t")


def test_tcp_sends_the_bytes(serve: Callable[..., bow.Server], pool: Pool, device: FakeDevice) -> None:
    """Where memory cannot be handed over, the bytes are sent from where they lie."""
    server = serve("tcp://127.0.0.1:0", pool=pool)
    endpoint = server.publish("t", {"n": allocated(device, np.arange(ROWS))}, share="in_place")
    assert read(endpoint)["n"].to_pylist() == list(range(ROWS))
    server.withdraw("t")


def test_metadata_and_bodies_apart(serve: Callable[..., bow.Server], pool: Pool, device: FakeDevice) -> None:
    """Lent memory goes over a connection of its own, too."""
    server = serve(pool=pool)
    data = {"n": allocated(device, np.arange(ROWS))}
    endpoint = server.publish("t", data, share="in_place", separate=True)
    with bow.connect(endpoint) as stream:
        (batch,) = stream
        assert batch["n"].raw_values.data.ptr == data["n"].data.ptr
        del batch
    server.withdraw("t")
    del data


@pytest.mark.parametrize("call", ["pointer_attributes", "address_range", "get_ipc_handle"])
def test_a_driver_that_fails_while_memory_is_lent(server: bow.Server, device: FakeDevice, call: str) -> None:
    """Whichever call fails, publishing raises its error, and nothing is offered or kept."""
    array = allocated(device, np.arange(ROWS))
    before = device.driver.allocated
    device.driver.fail_next(call)
    with pytest.raises(bow.DeviceError, match=call):
        server.publish("t", {"n": array}, share="in_place")
    assert server.endpoints == {}
    del array
    gc.collect()
    assert device.driver.allocated == before - 1


def test_a_reader_that_can_map_nothing(
    serve: Callable[..., bow.Server], pool: Pool, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that could not open the first region says so: what it never looked at is not taken for lost."""
    server = serve(pool=pool)
    endpoint = server.publish("t", {"n": allocated(device, np.arange(ROWS), "async")})
    device.fail_next("map")
    # Then nothing is tried beforehand.
    monkeypatch.setattr(MaterializedSource, "regions", lambda *_, **__: [])
    with pytest.raises(bow.InvalidRegion), bow.connect(endpoint) as stream:
        next(iter(stream))
    until(lambda: server.stats.connections == 0)
    server.withdraw("t")
    server.wait_released("t")
    until(lambda: pool.stats.in_use == 0)
    assert (pool.stats.retired, server.stats.lost, server.stats.stopped) == (0, 0, 1)


def test_a_reader_that_forks(server: bow.Server, device: FakeDevice) -> None:
    """A child that was forked has nothing of lent memory open, so nothing is kept for its sake."""
    kept = server.stats.kept
    before = device.driver.allocated
    endpoint = server.publish("t", {"n": allocated(device, np.arange(ROWS))}, share="in_place", readers=1)
    with bow.connect(endpoint) as stream:
        batches = list(stream)
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    del batches, stream
    server.wait_released("t")
    until(lambda: device.driver.allocated == before)
    assert server.stats.kept == kept


def test_a_reader_that_is_lost(serve: Callable[..., bow.Server], pool: Pool, device: FakeDevice) -> None:
    """What a reader holds when its connection is lost is kept for good, so that it stays true, and is counted."""
    server = serve(pool=pool)
    array = allocated(device, np.arange(ROWS))
    address = array.data.ptr
    kept, before = server.stats.kept, device.driver.allocated
    endpoint = server.publish("t", {"n": array}, share="in_place")
    del array
    with bow.connect(endpoint) as stream:
        batches = list(stream)
    for session in list(server._acceptor._sessions):
        session.close(0.0)
    server.withdraw("t")
    server.wait_released("t")
    assert server.stats.kept == kept + 1
    del batches, stream
    gc.collect()
    assert device.driver.allocated == before
    found = device.array(address, 8, None)
    assert device.to_host(found).tolist() == [0] * 8
    # The test alone knows that nobody looks any more.
    region_module._kept.clear()


@pytest.mark.parametrize("place", ["cpu", "fake:1"])
def test_lent_memory_goes_to_other_devices(server: bow.Server, device: FakeDevice, place: str) -> None:
    """What is lent is copied to the device that a reader asks for, as all memory is."""
    endpoint = server.publish("t", {"n": allocated(device, np.arange(ROWS))}, share="in_place")
    with bow.connect(endpoint, device=place) as stream:
        (batch,) = stream
    assert batch.device.name == place
    assert batch.device.to_host(batch["n"].values).tolist() == list(range(ROWS))
    del batch
    server.withdraw("t")
