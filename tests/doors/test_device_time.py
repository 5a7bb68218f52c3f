"""Work that a device has not done yet: nothing is published, freed or used again before it is done."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bowstring as bow
from bowstring.errors import DeviceError
from bowstring.limits import Limits
from bowstring.memory import Pool, Region
from bowstring.testing import FakeDevice, fake_device
from tests.doors.conftest import until

ROWS = 10_000
MIB = 1 << 20


class Busy:
    """Work on a device that lasts until `end`: whoever waits for the device waits that long."""

    def __init__(self) -> None:
        self.waited = 0
        self._over = threading.Event()

    def synchronize(self, *_: Any) -> None:
        """Wait for the work."""
        self.waited += 1
        assert self._over.wait(30.0), "the test forgot to end the work"

    def end(self) -> None:
        """Be done."""
        self._over.set()


@pytest.fixture
def device() -> FakeDevice:
    """Return a fake device."""
    return fake_device(0)


@pytest.fixture
def busy(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Busy]]:
    """Return a function that gives the device work that lasts."""
    works: list[Busy] = []

    def begin() -> Busy:
        work = Busy()
        works.append(work)
        monkeypatch.setattr(device, "synchronize", work.synchronize)
        return work

    yield begin
    for work in works:
        work.end()


def offered(
    serve: Callable[..., bow.Server], device: FakeDevice, **options: Any
) -> tuple[bow.Server, bow.Endpoint]:
    """Return a server on the device, and a data set there for one reader."""
    server = serve("unix:", pool=Pool(device, budget=64 * MIB), **options)
    return server, server.publish("t", {"n": np.arange(ROWS)}, readers=1)


def held(server: bow.Server) -> bool:
    """Return whether the server's memory is in use."""
    return server.pool.statistics.in_use > 0


def test_publishing_waits_before_and_after_its_copy(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is queued on a batch is done before the batch is copied, and the copy before anybody hears of it."""
    batch = bow.Batch.from_arrow({"n": np.arange(ROWS)}).to_device(fake_device(1))
    order: list[str] = []
    for each in (device, fake_device(1)):
        monkeypatch.setattr(each, "synchronize", lambda name=each.name: order.append(f"{name} done"))
    monkeypatch.setattr(fake_device(1), "to_host", _noting(fake_device(1).to_host, "copied", order))
    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    server.publish("t", batch)
    assert order == ["fake:1 done", "copied", "fake:0 done"]
    order.clear()
    server.publish("lazy", (each for each in [batch]), schema=batch.schema)
    with bow.connect(server.endpoints["lazy"]) as stream:
        assert stream.read_next_batch().num_rows == ROWS
    assert order[:3] == ["fake:1 done", "copied", "fake:0 done"]


def _noting(call: Callable[[Any], Any], name: str, order: list[str]) -> Callable[[Any], Any]:
    def noted(array: Any) -> Any:
        if array.nbytes >= ROWS:
            order.append(name)
        return call(array)

    return noted


def test_memory_is_freed_when_the_device_is_done(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[[], Busy]
) -> None:
    """A batch that is dropped while a kernel reads it is the reader's until the kernel is done."""
    server, endpoint = offered(serve, device)
    with bow.connect(endpoint) as stream:
        [batch] = stream
        work = busy()
        del batch
        gc.collect()
        until(lambda: work.waited > 0)
        time.sleep(0.1)
        assert held(server)
        work.end()
        until(lambda: not held(server))


def test_questions_are_answered_while_the_device_works(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[[], Busy]
) -> None:
    """A kernel that runs for longer than any deadline costs the reader nothing: it answers meanwhile."""
    limits = Limits(heartbeat=0.1, lease_timeout=0.3)
    server, endpoint = offered(serve, device, limits=limits)
    with bow.connect(endpoint) as stream:
        [batch] = stream
        work = busy()
        del batch
        gc.collect()
        until(lambda: work.waited > 0)
        time.sleep(1.0)
        assert held(server)
        work.end()
        until(lambda: not held(server))
    assert server.pool.statistics.retired == 0


def test_streams_that_are_named_are_all_that_is_waited_for(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[[], Busy]
) -> None:
    """With streams named, memory is freed when those are done, whatever else the device does."""
    server, endpoint = offered(serve, device)
    mine = Busy()
    with bow.connect(endpoint, stream=mine) as stream:
        [batch] = stream
        everything = busy()
        del batch
        gc.collect()
        until(lambda: mine.waited > 0)
        assert held(server)
        mine.end()
        until(lambda: not held(server))
        assert everything.waited == 0


@pytest.mark.parametrize("wrong", [3, "stream", [], [Busy(), None]])
def test_streams_that_are_none(serve: Callable[..., bow.Server], device: FakeDevice, wrong: Any) -> None:
    """What cannot be waited for is refused before the server hears of it."""
    server, endpoint = offered(serve, device)
    with pytest.raises(bow.UsageError, match="synchronize"):
        bow.connect(endpoint, stream=wrong)
    assert server.statistics.connections == 0


def test_a_device_that_fails_frees_what_it_read(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that failed does nothing any more: its reader frees, and the producer gets its memory back."""
    server, endpoint = offered(serve, device)

    def fails() -> None:
        raise DeviceError("cuCtxSynchronize failed", found="CUDA_ERROR_ILLEGAL_ADDRESS (700)")

    with bow.connect(endpoint) as stream:
        [batch] = stream
        monkeypatch.setattr(device, "synchronize", fails)
        del batch
        gc.collect()
        until(lambda: not held(server))
        monkeypatch.undo()


def test_warm_memory_is_not_written_before_the_device_is_done(
    device: FakeDevice, busy: Callable[[], Busy]
) -> None:
    """Memory that came home may be read still by work of this process: its next use waits for that."""
    pool = Pool(device, budget=8 * MIB)
    pool.region(MIB)
    gc.collect()
    work = busy()
    taken: list[Region] = []
    thread = threading.Thread(target=lambda: taken.append(pool.region(MIB)))
    thread.start()
    until(lambda: work.waited > 0)
    assert not taken
    work.end()
    thread.join(10.0)
    assert len(taken) == 1
    assert pool.statistics.reused == 1
    taken.clear()
    pool.close()


def test_warm_memory_of_a_device_that_fails(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that fails while warm memory is waited for says so, and the pool's books stay right."""
    pool = Pool(device, budget=8 * MIB)
    pool.region(MIB)
    gc.collect()

    def fails() -> None:
        raise DeviceError("cuCtxSynchronize failed")

    monkeypatch.setattr(device, "synchronize", fails)
    with pytest.raises(DeviceError):
        pool.region(MIB)
    monkeypatch.undo()
    assert pool.statistics.in_use == 0
    assert pool.region(MIB).nbytes == MIB
    pool.close()
