"""Work that a device has not done yet: nothing is published, freed or used again before it is done."""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.client.connection import control_sender
from bowstring.client.connection.assembler import Assembler
from bowstring.columnar.compact import compacted
from bowstring.dissociated.reader import ReaderProtocol
from bowstring.errors import DeviceError, ProtocolError
from bowstring.limits import Limits
from bowstring.memory import Pool, Region, cpu
from bowstring.memory.cuda.driver import Capturing
from bowstring.server import materialized
from bowstring.testing import FakeDevice, fake_device
from tests.client_server.conftest import until

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
    """What is queued on a batch is done before it is cut and copied, and the copy before anybody hears of it."""
    batch = bow.Batch.from_arrow({"n": np.arange(ROWS)}).to_device(fake_device(1))
    device.sweep()  # what other tests left is waited for, too
    order: list[str] = []
    for each in (device, fake_device(1)):
        monkeypatch.setattr(each, "synchronize", lambda name=each.name: order.append(f"{name} done"))
    monkeypatch.setattr(device.driver, "copy_peer", _noting_copies(device.driver.copy_peer, order))
    monkeypatch.setattr(materialized, "compacted", _noting(compacted, "cut", order))
    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    server.publish("t", batch)
    assert order == ["fake:1 done", "cut", "copied", "fake:0 done"]
    order.clear()
    server.publish("lazy", (each for each in [batch]), schema=batch.schema)
    with bow.connect(server.endpoints["lazy"]) as stream:
        assert stream.read_next_batch().num_rows == ROWS
    while order[1] != "copied":  # before that, what the memory held may be waited for
        assert order.pop(1) == "fake:0 done"
    assert order[:3] == ["fake:1 done", "copied", "fake:0 done"]


def _noting_copies(call: Callable[..., Any], order: list[str]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        order.append("copied")
        return call(*arguments)

    return noted


def _noting(
    call: Callable[[Any], Any], name: str, order: list[str], least: int = ROWS
) -> Callable[[Any], Any]:
    def noted(array: Any) -> Any:
        if array.nbytes >= least:
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


def test_a_stream_that_fails_says_nothing_about_its_work(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[[], Busy]
) -> None:
    """Where a stream that was named cannot be waited for, all of the device is."""
    server, endpoint = offered(serve, device)

    class Closed:
        def synchronize(self) -> None:
            raise RuntimeError("invalid resource handle")

    with bow.connect(endpoint, stream=Closed()) as stream:
        [batch] = stream
        work = busy()
        del batch
        gc.collect()
        until(lambda: work.waited > 0)
        assert held(server)
        work.end()
        until(lambda: not held(server))


def test_copies_are_waited_for_whatever_streams_are_named(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[[], Busy]
) -> None:
    """A copy of ours may be queued elsewhere than on the streams of the user, who sees nothing of what was lent."""
    server, endpoint = offered(serve, device)
    mine = Busy()
    mine.end()
    with bow.connect(endpoint, stream=mine, mode="copy") as stream:
        work = busy()
        [batch] = stream
        until(lambda: work.waited > 0)
        assert held(server)
        work.end()
        until(lambda: not held(server))
        assert batch.num_rows == ROWS


def test_a_capture_is_waited_out(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the device cannot be waited for, because a graph is captured, nothing is freed."""
    server, endpoint = offered(serve, device)
    tried: list[None] = []

    def captures() -> None:
        tried.append(None)
        raise Capturing("cuCtxSynchronize failed")

    with bow.connect(endpoint) as stream:
        [batch] = stream
        monkeypatch.setattr(device, "synchronize", captures)
        del batch
        gc.collect()
        until(lambda: len(tried) > 1)
        assert held(server)
        monkeypatch.undo()
        until(lambda: not held(server))


def test_memory_that_the_device_reads_is_not_the_users(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[[], Busy]
) -> None:
    """A reader that dropped all its batches is not told to drop some: it waits until the device is done."""
    rows = MIB // 8
    server = serve("unix:", pool=Pool(device, budget=2 * MIB))
    schema = pa.schema({"n": pa.int64()})
    endpoint = server.publish("t", ({"n": np.full(rows, n)} for n in range(4)), schema=schema)
    with bow.connect(endpoint) as stream:
        batches = [stream.read_next_batch(), stream.read_next_batch()]
        work = busy()
        batches.clear()
        gc.collect()
        until(lambda: work.waited > 0)
        ends = threading.Timer(1.2, work.end)
        ends.start()
        assert [batch.num_rows for batch in stream] == [rows, rows]
        ends.join()


def test_one_thread_waits_however_much_ends(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[[], Busy]
) -> None:
    """Batches that are dropped one by one while a kernel runs do not have a thread each."""
    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    endpoint = server.publish("t", [{"n": np.arange(100)} for _ in range(20)], readers=1)
    with bow.connect(endpoint) as stream:
        batches = list(stream)
        work = busy()
        while batches:
            batches.pop()
            time.sleep(0.01)
        waiting = [each.name for each in threading.enumerate() if each.name == "bowstring-client-settler"]
        assert waiting == ["bowstring-client-settler"]
        assert held(server)
        work.end()
        until(lambda: not held(server))
    assert work.waited <= 2


def test_no_thread_can_be_had(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread can be started to wait for the device, memory is freed as soon as one can."""
    server, endpoint = offered(serve, device, limits=Limits(heartbeat=0.1))
    refused: list[str] = []

    def refuses(*_: Any, name: str) -> None:
        refused.append(name)
        raise RuntimeError("can't start new thread")

    with bow.connect(endpoint, limits=Limits(heartbeat=0.1)) as stream:
        [batch] = stream
        with monkeypatch.context() as patched:
            patched.setattr(control_sender, "run_in_thread", refuses)
            del batch
            gc.collect()
            until(lambda: bool(refused))
            assert held(server)
        until(lambda: not held(server))


def test_streams_open_and_close_while_the_device_works(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended and must be unmapped does not make a new stream wait until a kernel is done."""
    server, endpoint = offered(serve, device)
    device.make_slab(MIB)  # and lets it go
    over = threading.Event()
    waits: list[str] = []

    def works(_ordinal: int) -> None:
        waits.append(threading.current_thread().name)
        over.wait(10.0)

    monkeypatch.setattr(device.driver, "synchronize", works)
    with bow.connect(endpoint) as stream:
        [batch] = stream
        assert batch.num_rows == ROWS
    assert not waits
    over.set()
    del batch
    until(lambda: not held(server))


def test_offsets_are_looked_at_aside(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that hears the producer reads the ends of text where it need not wait for the user's kernels."""
    order: list[str] = []

    @contextlib.contextmanager
    def aside() -> Iterator[None]:
        order.append("begin")
        yield
        order.append("end")

    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    endpoint = server.publish("t", {"s": ["one", "two"]}, readers=1)
    monkeypatch.setattr(device, "aside", aside)
    monkeypatch.setattr(device, "to_host", _noting(device.to_host, "read", order, least=1))
    with bow.connect(endpoint) as stream:
        [batch] = stream
        assert (order[0], set(order[1:-1]), order[-1]) == ("begin", {"read"}, "end")
    del batch
    until(lambda: not held(server))


def test_a_body_lies_on_one_device(device: FakeDevice) -> None:
    """A body that points into memory of several devices is refused: each batch is on one."""
    pools = [Pool(each, budget=MIB) for each in (device, cpu())]
    assembler = Assembler(Limits(), ReaderProtocol(Limits()), queue.SimpleQueue())
    for number, pool in enumerate(pools):
        assembler.announced.add((number + 1) * 8 * MIB, pool.region(MIB), MIB)
    spans = np.array([(0, 0, 8), (1, 0, 8)])
    with pytest.raises(ProtocolError, match="cpu, fake:0"):
        assembler._regions_of(spans)
    assert len(assembler._regions_of(spans[:1])) == 1
    assembler.announced.regions.clear()
    for pool in pools:
        pool.close()


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
