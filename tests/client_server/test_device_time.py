"""Work that a device has not done yet: nothing is published, freed or used again before it is done."""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.client.connection import sending
from bowstring.client.connection.assembler import Assembler
from bowstring.columnar import compacted
from bowstring.dissociated.reader import ReaderProtocol
from bowstring.errors import DeviceError, ProtocolError
from bowstring.limits import Limits
from bowstring.memory import NamedStream, Pool, Region, cpu, named_streams
from bowstring.server import materialized
from bowstring.testing import FakeDevice, fake_device
from tests.client_server.conftest import until

ROWS = 10_000
MIB = 1 << 20


class Busy:
    """Work on a stream of a device that lasts until `end`: whoever waits for that stream waits that long."""

    def __init__(self, device: FakeDevice, stream: int = 0) -> None:
        self._driver = device.driver
        self.stream = stream
        self._driver.begin_work(stream)
        self._asked = self._driver.calls["event_done"]

    @property
    def waited(self) -> bool:
        """Whether somebody asked a few times whether it is done."""
        return self._driver.calls["event_done"] > self._asked + 2

    def end(self) -> None:
        """Be done."""
        self._driver.end_work(self.stream)


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return a fake device, of which nobody asks for the whole."""
    device = fake_device(0)
    device.driver.calls.clear()
    yield device
    device.driver._capturing.clear()
    assert device.driver.calls["synchronize"] == 0


@pytest.fixture
def busy(device: FakeDevice) -> Iterator[Callable[..., Busy]]:
    """Return a function that gives a stream of the device, by default its default one, work that lasts."""
    works: list[Busy] = []

    def begin(stream: int = 0) -> Busy:
        works.append(Busy(device, stream))
        return works[-1]

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
    return server.pool.stats.in_use > 0


def test_publishing_waits_before_and_after_its_copy(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is queued on a batch is done before it is cut and copied, and the copy before anybody hears of it."""
    batch = bow.Batch.from_arrow({"n": np.arange(ROWS)}).to_device(fake_device(1))
    order: list[str] = []
    for each in (device, fake_device(1)):
        monkeypatch.setattr(each, "wait_stream", lambda _, name=each.name: order.append(f"{name} done"))
    monkeypatch.setattr(device.driver, "copy_peer", _noting_copies(device.driver.copy_peer, order))
    monkeypatch.setattr(materialized, "compacted", _noting(compacted, "cut", order))
    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    server.publish("t", batch)
    assert order == ["fake:1 done", "cut", "copied", "fake:1 done", "fake:0 done"]
    order.clear()
    server.publish("lazy", (each for each in [batch]), schema=batch.schema)
    with bow.connect(server.endpoints["lazy"]) as stream:
        assert stream.read_next_batch().num_rows == ROWS
    assert order[:4] == ["fake:1 done", "copied", "fake:1 done", "fake:0 done"]


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
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
) -> None:
    """A batch that is dropped while a kernel reads it is the reader's until the kernel is done."""
    server, endpoint = offered(serve, device)
    with bow.connect(endpoint) as stream:
        [batch] = stream
        work = busy()
        del batch
        gc.collect()
        until(lambda: work.waited)
        time.sleep(0.1)
        assert held(server)
        work.end()
        until(lambda: not held(server))


def test_questions_are_answered_while_the_device_works(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
) -> None:
    """A kernel that runs for longer than any deadline costs the reader nothing: it answers meanwhile."""
    limits = Limits(heartbeat=0.1, lease_timeout=0.3)
    server, endpoint = offered(serve, device, limits=limits)
    with bow.connect(endpoint) as stream:
        [batch] = stream
        work = busy()
        del batch
        gc.collect()
        until(lambda: work.waited)
        time.sleep(1.0)
        assert held(server)
        work.end()
        until(lambda: not held(server))
    assert server.pool.stats.retired == 0


def test_streams_that_are_named_are_all_that_is_waited_for(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
) -> None:
    """With streams named, memory is freed when those are done, whatever else the device does."""
    server, endpoint = offered(serve, device)
    with bow.connect(endpoint, cuda_stream=[5, types.SimpleNamespace(ptr=6)]) as stream:
        [batch] = stream
        mine, everything = busy(6), busy(9)
        del batch
        gc.collect()
        until(lambda: mine.waited)
        assert held(server)
        mine.end()
        until(lambda: not held(server))
        assert not device.driver.is_idle(9)
        everything.end()


def test_streams_that_were_current_are_waited_for(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
) -> None:
    """Without streams named, memory is freed when those are done on which batches were taken, and on no other."""
    server, endpoint = offered(serve, device)
    with bow.connect(endpoint) as stream:
        with device.on(named_streams(5)):
            [batch] = stream
        mine, other = busy(5), busy(9)
        del batch
        gc.collect()
        until(lambda: mine.waited)
        assert held(server)
        mine.end()
        until(lambda: not held(server))
        assert not device.driver.is_idle(9)
        other.end()


@pytest.mark.filterwarnings("ignore:an array lies over GPU memory")
@pytest.mark.parametrize(
    "hand_out",
    [
        lambda batch: batch["n"].values,
        lambda batch: batch.__arrow_c_device_array__(),
        lambda batch: batch["n"].__dlpack__(stream=6, max_version=(1, 0)),
    ],
)
def test_streams_that_memory_was_handed_to_are_waited_for(
    serve: Callable[..., bow.Server],
    device: FakeDevice,
    busy: Callable[..., Busy],
    hand_out: Callable[[bow.Batch], Any],
) -> None:
    """Without streams named, memory is freed when those are done, too, that it was handed to after it was taken."""
    server, endpoint = offered(serve, device)
    with bow.connect(endpoint) as stream:
        with device.on(named_streams(5)):
            [batch] = stream
        with device.on(named_streams(6)):
            taken = hand_out(batch)
        mine = busy(6)
        del batch, taken
        gc.collect()
        until(lambda: mine.waited)
        time.sleep(0.1)
        assert held(server)
        mine.end()
        until(lambda: not held(server))


class Owner:
    """An object of another library that destroys its stream when it goes."""


@pytest.mark.parametrize("closes", [False, True])
def test_streams_go_with_what_was_taken_on_them(
    serve: Callable[..., bow.Server], device: FakeDevice, closes: bool
) -> None:
    """A connection keeps none of the streams whose batches are freed, before it is closed and after."""
    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    endpoint = server.publish("t", [{"n": np.arange(100)} for _ in range(50)], readers=1)
    alive: list[weakref.ref[Owner]] = []
    with bow.connect(endpoint) as stream:
        batches = []
        for number in range(50):
            owner = Owner()
            alive.append(weakref.ref(owner))
            with device.on([NamedStream(100 + number, owner)]):
                batches.append(stream.read_next_batch())
        del owner
        assert list(stream) == []
        gc.collect()
        assert all(each() is not None for each in alive)
        if closes:
            stream.close()
        batches.clear()
        gc.collect()
        until(lambda: not held(server))
        until(lambda: not any(each() is not None for each in alive))


@pytest.mark.parametrize("call", ["event_record", "event_done", "stream_capturing"])
@pytest.mark.parametrize("named", [5, None])
def test_a_refusal_of_the_driver_frees_nothing(
    serve: Callable[..., bow.Server],
    device: FakeDevice,
    busy: Callable[..., Busy],
    call: str,
    named: int | None,
) -> None:
    """Where a stream cannot be waited for at one time it is asked again, and its work is waited for."""
    server, endpoint = offered(serve, device)
    with bow.connect(endpoint, cuda_stream=named) as stream:
        with device.on(named_streams(5)):
            [batch] = stream
        work = busy(5)
        device.driver.fail_next(call)
        del batch
        gc.collect()
        until(lambda: call not in device.driver._failures and work.waited)
        time.sleep(0.1)
        assert held(server)
        work.end()
        until(lambda: not held(server))


def test_a_stream_that_fails_says_nothing_about_its_work(
    serve: Callable[..., bow.Server],
    device: FakeDevice,
    busy: Callable[..., Busy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a stream that was named cannot be waited for, all others that were used are."""
    server, endpoint = offered(serve, device)
    record = device.driver.event_record

    def fails(ordinal: int, event: int, stream: int) -> None:
        if stream == 5:
            raise DeviceError("cuEventRecord failed", found="CUDA_ERROR_INVALID_HANDLE (400)")
        record(ordinal, event, stream)

    monkeypatch.setattr(device.driver, "event_record", fails)
    with bow.connect(endpoint, cuda_stream=5) as stream:
        [batch] = stream
        device.current_stream()
        work = busy()
        del batch
        gc.collect()
        until(lambda: work.waited)
        assert held(server)
        work.end()
        until(lambda: not held(server))


def test_copies_are_waited_for_whatever_streams_are_named(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
) -> None:
    """A copy of ours may be queued elsewhere than on the streams of the user, who sees nothing of what was lent."""
    server, endpoint = offered(serve, device)
    with bow.connect(endpoint, cuda_stream=5, mode="copy") as stream:
        work = busy()
        [batch] = stream
        until(lambda: work.waited)
        assert held(server)
        work.end()
        until(lambda: not held(server))
        assert batch.num_rows == ROWS


def test_a_capture_is_waited_out(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """While a graph is captured on the stream that reads nothing is freed, and nothing ends the capture."""
    server, endpoint = offered(serve, device)
    device.driver.misused.clear()
    with bow.connect(endpoint, cuda_stream=5) as stream:
        [batch] = stream
        device.driver.begin_capture(5)
        device.driver.calls.clear()
        del batch
        gc.collect()
        until(lambda: device.driver.calls["stream_capturing"] > 2)
        assert held(server)
        assert device.driver.end_capture(5)
        until(lambda: not held(server))
    assert device.driver.misused == []


@pytest.mark.parametrize("share", ["copy", "in_place"])
def test_no_thread_of_ours_ends_a_capture(
    serve: Callable[..., bow.Server], device: FakeDevice, share: Any
) -> None:
    """A whole hand-over, and all that frees memory after it, leaves a capture on another stream as it was."""
    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    source = {"n": device.allocate(8 * ROWS).view(np.int64)}
    device.driver.misused.clear()
    with device.on(named_streams(5)):
        device.driver.begin_capture(9)
        for _ in range(3):
            endpoint = server.publish("t", source, share=share, replace=True, cuda_stream=5, readers=1)
            with bow.connect(endpoint, mode="map", cuda_stream=6) as stream:
                [batch] = stream
                assert batch.num_rows == ROWS
                del batch
            server.wait_released()
        assert device.driver.end_capture(9)
    assert device.driver.misused == []
    server.close()
    del source
    gc.collect()
    device.sweep()


def test_a_publication_waits_for_no_other_stream(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
) -> None:
    """Work on another stream that waits for a reader of what is published does not keep it from being published."""
    pool = Pool(device, budget=64 * MIB)
    server = serve("unix:", pool=pool)
    array = device.xp.arange(ROWS)
    with device.on(named_streams(9)):
        device.current_stream()  # it was used before, with memory that comes back
    pool.warm(MIB)
    collective = busy(9)
    with device.on(named_streams(5)):
        began = time.monotonic()
        endpoint = server.publish("t", {"n": array}, cuda_stream=5)
        with bow.connect(endpoint, cuda_stream=5) as stream:
            [batch] = stream
            assert batch.num_rows == ROWS
            del batch
    assert time.monotonic() - began < 5.0
    assert not device.driver.is_idle(9)
    collective.end()


def test_memory_that_the_device_reads_is_not_the_users(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
) -> None:
    """A reader that dropped all its batches is not told to drop some: it waits until the device is done."""
    rows = 2 * MIB // 8
    server = serve("unix:", pool=Pool(device, budget=4 * MIB))
    schema = pa.schema({"n": pa.int64()})
    endpoint = server.publish("t", ({"n": np.full(rows, n)} for n in range(4)), schema=schema)
    with bow.connect(endpoint) as stream:
        batches = [stream.read_next_batch(), stream.read_next_batch()]
        work = busy()
        batches.clear()
        gc.collect()
        until(lambda: work.waited)
        ends = threading.Timer(1.2, work.end)
        ends.start()
        assert [batch.num_rows for batch in stream] == [rows, rows]
        ends.join()


def test_one_thread_waits_however_much_ends(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
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
        until(lambda: work.waited)
        assert [each.name for each in threading.enumerate()].count("bowstring-client-settler") == 1
        assert held(server)
        work.end()
        until(lambda: not held(server))


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
            patched.setattr(sending, "run_in_thread", refuses)
            del batch
            gc.collect()
            until(lambda: bool(refused))
            assert held(server)
        until(lambda: not held(server))


def test_streams_open_and_close_while_the_device_works(
    serve: Callable[..., bow.Server], device: FakeDevice, busy: Callable[..., Busy]
) -> None:
    """What ended and must be unmapped does not make a new stream wait until a kernel is done."""
    server, endpoint = offered(serve, device)
    device.make_slab(MIB)  # and lets it go
    work = busy()
    with bow.connect(endpoint) as stream:
        [batch] = stream
        assert batch.num_rows == ROWS
    assert not work.waited
    work.end()
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
    pools = [Pool(each, budget=2 * MIB) for each in (device, cpu())]
    assembler = Assembler(Limits(), ReaderProtocol(Limits()), queue.SimpleQueue())
    for number, pool in enumerate(pools):
        assembler.announced.add((number + 1) * 8 * MIB, pool.region(MIB), MIB)
    pairs = np.array([(8 * MIB, 8), (16 * MIB, 8)], np.uint64)
    with pytest.raises(ProtocolError, match="cpu, fake:0"):
        assembler.resolve(pairs)
    assert len(assembler.resolve(pairs[:1])[1]) == 1
    assembler.announced.regions.clear()
    for pool in pools:
        pool.close()


@pytest.mark.parametrize("wrong", [-1, True, "stream", [], [5, None], object()])
def test_streams_that_are_none(serve: Callable[..., bow.Server], device: FakeDevice, wrong: Any) -> None:
    """What cannot be waited for is refused before the server hears of it."""
    server, endpoint = offered(serve, device)
    with pytest.raises(bow.UsageError, match="CUDA stream"):
        bow.connect(endpoint, cuda_stream=wrong)
    assert server.stats.connections == 0


def test_a_device_that_fails_frees_what_it_read(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that failed does nothing any more: its reader frees, and the producer gets its memory back."""
    server, endpoint = offered(serve, device)

    def fails(*_: int) -> None:
        raise DeviceError("cuEventRecord failed", found="CUDA_ERROR_ILLEGAL_ADDRESS (700)")

    with bow.connect(endpoint) as stream:
        [batch] = stream
        monkeypatch.setattr(device.driver, "event_record", fails)
        del batch
        gc.collect()
        until(lambda: not held(server))
        monkeypatch.undo()


@pytest.mark.parametrize("budget", [2 * MIB, 4 * MIB])
def test_warm_memory_is_not_written_before_the_device_is_done(
    device: FakeDevice, busy: Callable[..., Busy], budget: int
) -> None:
    """Memory that came home may be read still by work of this process: its next use waits, or takes another."""
    pool = Pool(device, budget=budget)
    address = pool.region(MIB).address
    gc.collect()
    device.current_stream()
    work = busy()
    taken: list[Region] = []
    thread = threading.Thread(target=lambda: taken.append(pool.region(MIB)))
    thread.start()
    waits = budget == 2 * MIB
    if waits:
        until(lambda: work.waited)
        time.sleep(0.2)
        assert not taken
        work.end()
    thread.join(10.0)
    work.end()
    assert (taken[0].address == address) is waits
    assert pool.stats.reused == waits
    taken.clear()
    pool.close()


def test_warm_memory_of_a_device_that_fails(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that fails while warm memory is waited for says so, and the pool's books stay right."""
    pool = Pool(device, budget=8 * MIB)
    pool.region(MIB)
    gc.collect()

    def fails(*_: int) -> None:
        raise DeviceError("cuEventQuery failed")

    device.note_stream(0, None)
    monkeypatch.setattr(device.driver, "event_done", fails)
    with pytest.raises(DeviceError):
        pool.region(MIB)
    monkeypatch.undo()
    assert pool.stats.in_use == 0
    assert pool.region(MIB).nbytes == 2 * MIB
    pool.close()
