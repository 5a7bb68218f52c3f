"""Lent memory is closed before its reader hangs up: freeing what is open elsewhere is undefined in CUDA."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bowstring as bow
from bowstring.benchmarks.processes.child import Child
from bowstring.client.connection import Connection
from bowstring.client.connection.assembler import Assembler
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello
from bowstring.errors import DeviceError, ProtocolError
from bowstring.memory import Pool, mappings, this_process
from bowstring.memory import region as region_module
from bowstring.memory.cuda.driver import Capturing
from bowstring.testing import FakeDevice, fake_device
from bowstring.transport import Message, dial
from tests.client_server.conftest import PATIENCE, until
from tests.gpu.lending import Lender

pytestmark = pytest.mark.usefixtures("forked")

QUICK = bow.Limits(
    connect_timeout=10.0, reply_timeout=10.0, heartbeat=0.1, close_timeout=0.2, device_timeout=20.0
)


class Work:
    """Work on the reader's device: no event of its streams is done before `end`."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self.waited = threading.Event()
        device.driver.event_done = self._event_done  # type: ignore[method-assign]

    def _event_done(self, ordinal: int, event: int) -> bool:
        self.waited.set()
        return False

    def end(self) -> None:
        """Be done."""
        self._device.driver.__dict__.pop("event_done", None)


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return the reader's device, of which nothing is open when the test ends."""
    device = fake_device(0)
    yield device
    mappings().trim()
    until(lambda: _swept(device) == 0)


def _swept(device: FakeDevice) -> int:
    device.sweep()
    return opened(device)


@pytest.fixture
def lender() -> Iterator[Child]:
    """Return a process that lends memory."""
    with Child(Lender, device="fake:0") as child:
        yield child


@pytest.fixture
def busy(device: FakeDevice) -> Iterator[Callable[[], Work]]:
    """Return a function that gives the reader's device work."""
    works: list[Work] = []

    def begin() -> Work:
        works.append(Work(device))
        return works[-1]

    yield begin
    for work in works:
        work.end()


@pytest.fixture
def open_then(monkeypatch: pytest.MonkeyPatch, device: FakeDevice) -> list[int]:
    """Return how many allocations of others were open whenever a reader hung up."""
    found: list[int] = []
    hang_up = Connection.hang_up

    def watched(receiver: Connection) -> None:
        found.append(opened(device))
        hang_up(receiver)

    monkeypatch.setattr(Connection, "hang_up", watched)
    return found


def opened(device: FakeDevice) -> int:
    """Return how many allocations of other processes are open here."""
    return sum(count for _, _, count in device.driver._opened.values())


def lent(lender: Child) -> str:
    """Lend an allocation to one reader; return the URI."""
    lender.call("allocate", value=7)
    uri: str = lender.call("publish", batches=2)
    lender.call("drop")
    return uri


def read(stream: Any) -> None:
    """Read all batches of a stream, not yet its end, and wait until everything is freed."""
    while stream.stats.rows < 1000:
        stream.read_next_batch()
    gc.collect()
    until(lambda: stream._connection._protocol.all_freed)


def test_a_busy_device_is_waited_for(
    lender: Child, device: FakeDevice, busy: Callable[[], Work], open_then: list[int]
) -> None:
    """However long the device is busy, the reader answers questions, hangs up after closing, and is not lost."""
    uri = lent(lender)
    stream = bow.connect(uri, limits=QUICK)
    read(stream)
    work = busy()
    stream.close()
    assert work.waited.wait(10.0)
    time.sleep(1.0)  # longer than the close timeout, and several times what the producer waits before it asks
    assert (opened(device), open_then) == (1, [])
    assert lender.call("alive") == 1
    work.end()
    until(lambda: bool(open_then))
    assert set(open_then) == {0}
    assert lender.call("wait_dead") == 0
    assert lender.call("statistics")["kept"] == 0


def test_a_device_that_is_busy_for_too_long(
    lender: Child, device: FakeDevice, busy: Callable[[], Work], open_then: list[int]
) -> None:
    """After the device's deadline the reader hangs up without that word, and the memory is kept for good."""
    uri = lent(lender)
    stream = bow.connect(uri, limits=bow.Limits(heartbeat=0.1, close_timeout=0.1, device_timeout=0.3))
    read(stream)
    work = busy()
    stream.close()
    until(lambda: bool(open_then))
    assert open_then == [1]
    until(lambda: lender.call("statistics")["kept"] == 1)
    lender.call("wait_released")
    assert lender.call("alive") == 1
    work.end()
    until(lambda: opened(device) == 0)


def test_a_stream_that_fails_on_a_busy_device(
    lender: Child,
    device: FakeDevice,
    busy: Callable[[], Work],
    open_then: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user hears of the failure at once, and the producer only after all is closed; nothing is kept.

    The reader says last that it looks at nothing: it has stopped, and nothing of it is missing.
    """

    def refuse(*_: object, **__: object) -> None:
        raise ProtocolError("the test does not like it")

    uri = lent(lender)
    work = busy()
    with monkeypatch.context() as patched:
        patched.setattr(Assembler, "_pointed", refuse)
        with bow.connect(uri, limits=QUICK) as stream, pytest.raises(ProtocolError, match="does not like"):
            next(stream)
        assert (opened(device), open_then) == (1, [])
    work.end()
    until(lambda: bool(open_then))
    assert set(open_then) == {0}
    until(lambda: lender.call("statistics")["connections"] == 0)
    found = lender.call("statistics")
    assert (found["stopped"], found["lost"]) == (1, 0)
    lender.call("withdraw")
    assert lender.call("wait_dead") == 0
    assert lender.call("statistics")["kept"] == 0


def test_a_capture_is_waited_out(
    lender: Child, device: FakeDevice, open_then: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can wait because a stream is captured, it is tried again until that is over."""
    uri = lent(lender)
    stream = bow.connect(uri, limits=QUICK)
    read(stream)
    tried: list[int] = []

    def refuse(ordinal: int, _event: int) -> bool:
        tried.append(ordinal)
        raise Capturing("a stream is captured")

    with monkeypatch.context() as patched:
        patched.setattr(device.driver, "event_done", refuse)
        stream.close()
        until(lambda: len(tried) > 3)
        assert (opened(device), open_then) == (1, [])
    until(lambda: bool(open_then))
    assert set(open_then) == {0}
    assert lender.call("wait_dead") == 0
    assert lender.call("statistics")["kept"] == 0


def test_a_device_that_fails_is_believed_nothing(
    lender: Child, device: FakeDevice, open_then: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that cannot say whether the device is done leaves the producer with its memory, for good."""
    uri = lent(lender)
    stream = bow.connect(uri, limits=QUICK)
    read(stream)

    def fail(ordinal: int, _event: int) -> bool:
        raise DeviceError("cuEventQuery failed", found=ordinal)

    with monkeypatch.context() as patched:
        patched.setattr(device.driver, "event_done", fail)
        stream.close()
        until(lambda: bool(open_then))
    until(lambda: lender.call("statistics")["kept"] == 1)


def test_no_thread_can_be_had(lender: Child, open_then: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread can be started to wait, the one that answers does it, and closes first all the same."""
    from bowstring.client.connection import sending

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    stream = bow.connect(lent(lender), limits=QUICK)
    read(stream)
    with monkeypatch.context() as patched:
        patched.setattr(sending, "run_in_thread", refuse)
        stream.close()
        until(lambda: bool(open_then))
    assert set(open_then) == {0}
    assert lender.call("wait_dead") == 0
    assert lender.call("statistics")["kept"] == 0


def test_two_streams_share_what_is_open(
    lender: Child, device: FakeDevice, busy: Callable[[], Work], open_then: list[int]
) -> None:
    """Of two streams of one allocation the first may go while the second has it open, and then it is not freed."""
    lender.call("allocate", value=7)
    uris = [lender.call("publish") for _ in range(2)]
    lender.call("drop")
    first, second = (bow.connect(uri, limits=QUICK) for uri in uris)
    kept = list(second)
    read(first)
    first.close()
    until(lambda: bool(open_then))
    assert (open_then, opened(device)) == ([1], 1)
    assert lender.call("alive") == 1
    assert {int(value) for batch in kept for value in device.to_host(batch["c0"].values)} == {7}
    work = busy()
    second.close()
    kept.clear()
    gc.collect()
    assert work.waited.wait(10.0)
    work.end()
    assert lender.call("wait_dead") == 0
    assert lender.call("statistics")["kept"] == 0


@pytest.mark.parametrize("says", [True, False])
def test_the_last_word_decides(serve: Callable[..., bow.Server], device: FakeDevice, says: bool) -> None:
    """Of a reader that freed all and hung up, lent memory comes back if it said so last, and else never."""
    pool = Pool(device, budget=1 << 24)
    server = serve(pool=pool)
    values = device.allocate(800).view(np.int64)
    endpoint = server.publish("t", {"n": values}, share="in_place", readers=1)
    before, allocated = server.stats.kept, device.driver.allocated
    (location,) = endpoint.locations
    channel = dial(location.address, PATIENCE, 5.0)
    hello = Hello(window=1 << 20, pointers=True, ipc=this_process().place).pack()
    for tag, body in (
        (Want.HELLO, hello),
        (Want.DATA, endpoint.ticket),
        (Control.ANSWER, b""),
    ):
        channel.send([Message(tag, [body])], 5.0)
    base = None
    while True:
        received = channel.receive(5.0, lambda _, nbytes: bytearray(nbytes))
        assert received is not None
        if received.tag == Control.REGION:
            base = received.body[:8]
        if received.tag is None and received.body[0] == 0:
            break
    assert base is not None
    channel.send([Message(Want.FREE, [base]), Message(Control.DONE, [])], 5.0)
    if says:
        channel.send([Message(Control.UNUSED, [])], 5.0)
    channel.close()
    server.wait_released("t")
    del values
    gc.collect()
    until(lambda: device.driver.allocated == allocated - says)
    assert server.stats.kept == before + (not says)
    # The test alone knows that nobody looks any more.
    region_module._kept.clear()
    mappings().trim()
