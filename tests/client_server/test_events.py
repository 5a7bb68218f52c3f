"""Work that a producer has not waited for: ``publish(…, share="in_place", cuda_stream=…)``."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bowstring as bow
from bowstring.benchmarks.processes.child import Child
from bowstring.client.connection import assembler
from bowstring.dissociated.reader import ReaderProtocol
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import DeviceId, Hello, pack_devices
from bowstring.errors import DeviceError, InvalidRegion
from bowstring.memory import EventHandle, OpenedEvent, Pool, mappings, this_process
from bowstring.memory import region as region_module
from bowstring.memory.cuda.ipc import EVENT_BYTES
from bowstring.testing import FakeDevice, fake_device
from bowstring.transport import Message, dial
from bowstring.transport.descriptors import close_all
from tests.client_server.conftest import PATIENCE, until
from tests.client_server.test_lent import allocated
from tests.gpu.lending import Borrower, Lender

pytestmark = pytest.mark.usefixtures("forked")

QUICK = bow.Limits(
    connect_timeout=10.0, reply_timeout=10.0, heartbeat=0.1, lease_timeout=0.5, close_timeout=0.2
)
NAME = 77


def named(address: int = NAME) -> Any:
    """Return a stream of a GPU as its user names it."""
    return types.SimpleNamespace(ptr=address)


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """Return the reader's device, which has no event and nothing open when the test ends."""
    device = fake_device(0)
    gc.collect()
    device.sweep()
    device.driver.waits.clear()
    before = device.driver.held_events
    yield device
    mappings().trim()
    until(lambda: _swept(device) <= before)
    assert device.driver.misused == []


def _swept(device: FakeDevice) -> set[int]:
    gc.collect()
    device.sweep()
    return device.driver.held_events


@pytest.fixture
def lender(device: FakeDevice) -> Iterator[Child]:
    """Return a process that lends memory on which it is at work, and misuses no event."""
    with Child(Lender, device=device.name) as child:
        child.call("allocate", value=7)
        child.call("calls")
        child.call("begin_work")
        yield child
        child.call("end_work")
        assert child.call("misused") == []


def later(lender: Child, call: Callable[[], Any]) -> Any:
    """Return what a call returns that must not return before the producer's work is done."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(0.4)
    assert thread.is_alive()
    assert found == []
    lender.call("end_work")
    thread.join(10.0)
    [result] = found
    return result


def values(batches: list[bow.Batch]) -> set[int]:
    """Return the values of some batches of the device."""
    return {int(value) for batch in batches for value in batch.device.to_host(batch["c0"].values)}


def test_nobody_waits_but_the_streams(lender: Child, device: FakeDevice) -> None:
    """Data are published and handed over while their producer is at work; the reader's streams wait, and say so."""
    uri = lender.call("publish", events=True, batches=3)
    calls = lender.call("calls")
    assert (calls.get("synchronize", 0), calls["event_record"], calls["get_ipc_event_handle"]) == (0, 1, 1)
    with bow.connect(uri, cuda_stream=[named(5), named(6)], limits=QUICK) as stream:
        batches = list(stream)
        assert stream.stats.path == "unix: in place"
        assert stream.stats.why.endswith("the reader's streams wait for the producer's work")
    [event] = {event for _, event in device.driver.waits}
    assert sorted(stream for stream, _ in device.driver.waits) == [0, 5, 6]  # the current one, too
    assert not device.driver.is_idle(5)
    assert values(batches) == {7}
    del batches
    assert event in device.driver.held_events
    lender.call("end_work")
    lender.call("wait_released")
    until(lambda: device.driver.is_idle(5))
    assert lender.call("statistics")["kept"] == 0


def test_offsets_wait_for_the_work(lender: Child, device: FakeDevice) -> None:
    """Text is checked when it is taken, not before its producer is done; the reader answers questions meanwhile."""
    uri = lender.call("publish", events=True, text=[["a", "bc"], ["d", "e"]])
    with bow.connect(uri, cuda_stream=named(), limits=QUICK) as stream:
        time.sleep(1.0)  # longer than a reader may be silent
        batch = later(lender, stream.read_next_batch)
        assert batch.to_device("cpu").to_arrow().to_pydict() == {"c0": ["a", "bc"]}
        assert stream.read_next_batch().num_rows == 2
        del batch
    assert lender.call("statistics")["lost"] == 0


def test_dictionaries_wait_for_the_work(lender: Child, device: FakeDevice) -> None:
    """What a batch brings with it is looked at no sooner than itself."""
    rows = ["x", "yy", None, "x"]
    uri = lender.call("publish", events=True, text=[rows], encoded=True)
    with bow.connect(uri, cuda_stream=named(), limits=QUICK) as stream:
        batch = later(lender, stream.read_next_batch)
        assert batch.to_device("cpu").to_arrow()["c0"].to_pylist() == rows
        del batch


def test_work_that_takes_too_long(lender: Child, device: FakeDevice) -> None:
    """A batch that cannot be looked at yet is an error in time, and comes when it is asked for again."""
    uri = lender.call("publish", events=True, text=[["a", "bc"], ["d"]])
    limits = bow.Limits(heartbeat=0.1, device_timeout=0.2, reply_timeout=10.0)
    with bow.connect(uri, cuda_stream=named(), limits=limits) as stream:
        for _ in range(2):
            with pytest.raises(bow.DeadlineExceeded, match="still at work"):
                stream.read_next_batch()
        lender.call("end_work")
        rows = [batch.to_device("cpu").to_arrow()["c0"].to_pylist() for batch in stream]
    assert rows == [["a", "bc"], ["d"]]


def test_wrong_offsets_are_found_when_they_are_there(
    lender: Child, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets that lead nowhere end no stream by themselves: each call says so, and no batch is left out."""
    from bowstring.client.connection import device as client_device

    def refuse(_: bow.Batch) -> None:
        raise bow.InvalidBody("offsets decrease")

    monkeypatch.setattr(client_device, "check_offsets", refuse)
    monkeypatch.setattr(assembler, "check_offsets", None)  # nobody looks before
    uri = lender.call("publish", events=True, text=[["a"], ["b"]])
    with bow.connect(uri, cuda_stream=named(), limits=QUICK) as stream:
        lender.call("end_work")
        for _ in range(2):
            with pytest.raises(bow.InvalidBody, match="decrease"):
                stream.read_next_batch()


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "map"},
        {"mode": "copy"},
        {},
        {"device": "cpu"},
        {"device": "fake:1"},
        {"mode": "copy", "cuda_stream": named()},
        {"device": "fake:0", "cuda_stream": named()},
    ],
    ids=lambda options: ", ".join(f"{name}={value}"[:12] for name, value in options.items()) or "nothing",
)
def test_the_producer_waits_for_readers_that_do_not(
    lender: Child, device: FakeDevice, options: dict[str, Any]
) -> None:
    """Readers that name no stream, or want copies, get nothing before the work is done."""
    uri = lender.call("publish", events=True)

    def take() -> set[int]:
        with bow.connect(uri, limits=QUICK, **options) as stream:
            return values(list(stream))

    assert later(lender, take) == {7}
    assert not device.driver.waits
    lender.call("wait_released")
    assert lender.call("statistics")["kept"] == 0


def test_readers_of_either_kind(lender: Child, device: FakeDevice) -> None:
    """Of one data set, a reader whose streams wait has it at once, and one without when the work is done."""
    uri = lender.call("publish", events=True, readers=2)
    with bow.connect(uri, cuda_stream=named(), limits=QUICK) as first:

        def take() -> set[int]:
            with bow.connect(uri, limits=QUICK) as second:
                return values(list(second))

        batches = list(first)
        assert not device.driver.is_idle(NAME)
        assert later(lender, take) == values(batches) == {7}
        del batches
    assert sorted(stream for stream, _ in device.driver.waits) == [0, NAME]
    lender.call("wait_released")


def test_work_that_takes_longer_than_the_server_waits(
    serve: Callable[..., bow.Server], device: FakeDevice
) -> None:
    """Readers without streams are told in time that the data are not there; those who come later have them."""
    limits = bow.Limits(heartbeat=0.1, device_timeout=0.2)
    server = serve("unix:", pool=Pool(device, budget=1 << 24), limits=limits)
    array = allocated(device, np.arange(10))
    device.driver.begin_work()
    endpoint = server.publish("t", {"c0": array}, share="in_place", cuda_stream=0)
    with pytest.raises(bow.DeadlineExceeded, match="still at work on the data"):
        bow.connect(endpoint, limits=QUICK)
    device.driver.end_work()
    with bow.connect(endpoint, limits=QUICK) as stream:
        assert [batch.num_rows for batch in stream] == [10]
    server.withdraw("t")
    del array
    until(lambda: server.stats.connections == 0)
    assert server.stats.kept == 0  # who was told so says that it has nothing open


def test_a_reader_that_waits_answers_questions(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """Whoever opens a stream whose producer waits for its work is not taken for lost meanwhile."""
    server = serve("unix:", pool=Pool(device, budget=1 << 24), limits=QUICK)
    array = allocated(device, np.arange(10))
    device.driver.begin_work()
    endpoint = server.publish("t", {"c0": array}, share="in_place", readers=1, cuda_stream=0)
    found: list[int] = []

    def take() -> None:
        with bow.connect(endpoint, limits=QUICK) as stream:
            found.extend(batch.num_rows for batch in stream)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(1.5)  # longer than a reader may be silent
    device.driver.end_work()
    thread.join(10.0)
    assert found == [10]
    server.wait_released("t")
    del array


def test_columns_of_which_nothing_is_lent(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """An event is kept with what is lent: readers of columns that were all copied are told of none."""
    server = serve("unix:", pool=Pool(device, budget=1 << 24))
    lent, pooled = allocated(device, np.arange(10)), allocated(device, np.arange(10), "async")
    device.driver.begin_work()
    endpoint = server.publish("t", {"lent": lent, "copied": pooled}, share="in_place", cuda_stream=0)
    (location,) = endpoint.locations
    place = this_process().place
    for columns in (("copied",), ("nowhere",)):
        hello = Hello(columns, pointers=True, ipc=place, tries=True, events=True)
        channel = dial(location.address, PATIENCE, 5.0)
        channel.send([Message(Want.HELLO, [hello.pack()]), Message(Want.DATA, [endpoint.ticket])], 5.0)
        received = channel.receive(5.0, lambda _, nbytes: bytearray(nbytes))
        assert received is not None
        close_all(received.attachments)
        assert received.tag != Control.EVENT
        channel.close()
    device.driver.end_work()
    server.withdraw("t")
    del lent, pooled


def test_work_that_is_done_is_nobodys_business(lender: Child, device: FakeDevice) -> None:
    """A reader that comes when the work is done hears of no event."""
    uri = lender.call("publish", events=True, text=[["a"]])
    lender.call("end_work")
    with bow.connect(uri, cuda_stream=named(), limits=QUICK) as stream:
        assert len(list(stream)) == 1
        assert stream.stats.why == "the producer lends its own memory, which dies with it"
    assert not device.driver.waits


@pytest.mark.parametrize("call", ["open_ipc_event_handle", "stream_wait_event"])
def test_an_event_that_cannot_be_used(lender: Child, device: FakeDevice, call: str) -> None:
    """Where it cannot be opened the producer waits, and says why; where a stream cannot wait, one may ask again."""
    uri = lender.call("publish", events=True)
    device.driver.fail_next(call)
    if call == "stream_wait_event":
        with bow.connect(uri, cuda_stream=named(), limits=QUICK) as stream:
            with pytest.raises(DeviceError, match=call):
                stream.read_next_batch()
            assert values([stream.read_next_batch()]) == {7}
            lender.call("end_work")
        return
    stream = later(lender, lambda: bow.connect(uri, cuda_stream=named(), limits=QUICK))
    with stream:
        assert values(list(stream)) == {7}
        assert "the producer waited for its work: an event cannot be opened" in stream.stats.why
        assert stream.stats.why.count(f"{call} failed") == 1
    assert not device.driver.waits


def test_a_reader_that_is_killed_while_it_waits(lender: Child, device: FakeDevice) -> None:
    """Memory and event of a reader that is known to be gone come back, and are used again."""
    uri = lender.call("publish", events=True, batches=2)
    with Child(Borrower, device=device.name) as borrower:
        borrower.call("begin", uri=uri, named=NAME)
        os.kill(borrower.pid, signal.SIGKILL)
        until(lambda: lender.call("statistics")["lost"] == 1)
    lender.call("withdraw")
    uri = lender.call("publish", events=True)
    with bow.connect(uri, cuda_stream=named(), limits=QUICK) as stream:
        assert values(list(stream)) == {7}
    assert lender.call("calls")["event_create"] == 1
    assert lender.call("statistics")["kept"] == 0


def test_events_are_used_again(lender: Child, device: FakeDevice) -> None:
    """However many data sets one after the other: as many events as there are data sets at a time."""
    for _ in range(4):
        lender.call("begin_work")
        uri = lender.call("publish", events=True)
        with bow.connect(uri, cuda_stream=named(), limits=QUICK) as stream:
            assert values(list(stream)) == {7}
        lender.call("end_work")
        lender.call("wait_released")
    calls = lender.call("calls")
    assert calls["event_record"] == 4
    assert calls["event_create"] - calls.get("event_destroy", 0) <= 2


@pytest.mark.parametrize("address", ["unix:", "inproc:", "tcp://127.0.0.1:0"])
def test_a_reader_in_the_same_process(
    serve: Callable[..., bow.Server], device: FakeDevice, address: str
) -> None:
    """It could not open the event, nor may bytes be sent before: the server waits, on every transport."""
    server = serve(address, pool=Pool(device, budget=1 << 24))
    array = allocated(device, np.arange(10))
    device.driver.begin_work()
    endpoint = server.publish("t", {"c0": array}, share="in_place", readers=1, cuda_stream=0)
    found: list[list[int]] = []

    def take() -> None:
        with bow.connect(endpoint, cuda_stream=named(), limits=PATIENCE) as stream:
            found.extend(batch.device.to_host(batch["c0"].values).tolist() for batch in stream)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    device.driver.end_work()
    thread.join(10.0)
    assert found == [list(range(10))]
    server.wait_released("t")
    del array


def test_a_server_that_closes_while_it_waits(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """A reader that the server waits for, and the server itself, end at once when it is closed."""
    server = serve("unix:", pool=Pool(device, budget=1 << 24))
    array = allocated(device, np.arange(10))
    device.driver.begin_work()
    endpoint = server.publish("t", {"c0": array}, share="in_place", cuda_stream=0)
    errors: list[BaseException] = []

    def take() -> None:
        try:
            bow.connect(endpoint, limits=PATIENCE)
        except bow.BrokenError as error:
            errors.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    until(lambda: server.stats.connections == 1)
    time.sleep(0.1)
    server.close()
    thread.join(10.0)
    assert len(errors) == 1
    device.driver.end_work()
    del array
    errors.clear()
    region_module._kept.clear()  # the server did not wait to hear that the reader closed it


def test_data_that_one_event_cannot_stand_for(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """Data of two devices, and what cannot be lent, are waited for when they are published, as always."""
    server = serve("unix:", pool=Pool(device, budget=1 << 24))
    other = allocated(fake_device(1), np.arange(10))
    mine = allocated(device, np.arange(10))
    pooled = allocated(device, np.arange(10), "async")
    columns = {"two devices": [mine, other], "not to be lent": [pooled], "on the host": [np.arange(10)]}
    for name, arrays in columns.items():
        device.driver.calls.clear()
        data = [bow.Batch.from_arrow({"n": each}) for each in arrays]
        endpoint = server.publish(name, data, share="in_place", cuda_stream=0)
        assert device.driver.calls["get_ipc_event_handle"] == 0
        with bow.connect(endpoint, device="cpu") as stream:
            assert stream.read_all().num_rows == 10 * len(arrays)
        server.withdraw(name)
    # A server that is closed before it has heard that a reader let go keeps what was lent for good.
    until(lambda: server.stats.connections == 0)
    del other, mine, pooled, columns, arrays, data
    fake_device(1).sweep()


@pytest.mark.parametrize("lazy", [False, True])
def test_copies_wait_for_the_streams_that_are_named(
    serve: Callable[..., bow.Server], device: FakeDevice, lazy: bool
) -> None:
    """What is copied is read behind the work on each stream that is named, and complete when a reader gets it."""
    server = serve("unix:", pool=Pool(device, budget=1 << 24))
    for stream in (5, 6):
        device.driver.begin_work(stream)
    data: Any = {"c0": device.xp.arange(10)}
    given = (bow.Batch.from_arrow(each) for each in [data]) if lazy else data
    schema = bow.Batch.from_arrow(data).schema

    def take() -> set[int]:
        endpoint = server.publish("t", given, schema=schema if lazy else None, cuda_stream=[5, 6])
        with bow.connect(endpoint, limits=PATIENCE) as batches:
            return values(list(batches))

    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(take()))
    thread.start()
    for stream in (5, 6):
        thread.join(0.2)
        assert not found
        device.driver.end_work(stream)
    thread.join(10.0)
    assert found == [set(range(10))]


@pytest.mark.parametrize("share", ["in_place", "copy"])
def test_a_driver_without_events_for_others(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch, share: Any
) -> None:
    """Where other processes cannot open events, publishing waits for the stream itself, and then works."""
    monkeypatch.setattr(device.driver, "shares_events", False)
    device.driver.calls.clear()
    server = serve("unix:", pool=Pool(device, budget=1 << 24))
    array = allocated(device, np.arange(10))
    endpoint = server.publish("t", {"c0": array}, share=share, cuda_stream=0)
    assert device.driver.calls["get_ipc_event_handle"] == 0
    with bow.connect(endpoint, limits=PATIENCE) as stream:
        assert values(list(stream)) == set(range(10))
    server.withdraw("t")
    until(lambda: server.stats.bytes_lent == 0)
    del array
    gc.collect()
    device.sweep()


@pytest.mark.parametrize("call", ["event_create", "event_record", "get_ipc_event_handle"])
def test_a_driver_that_makes_no_event(
    serve: Callable[..., bow.Server], device: FakeDevice, call: str
) -> None:
    """Whichever call fails, nothing is published, and nothing stays."""
    server = serve("unix:", pool=Pool(device, budget=1 << 24))
    array = allocated(device, np.arange(10))
    device.driver.fail_next(call)
    with pytest.raises(DeviceError, match=call):
        server.publish("t", {"n": array}, share="in_place", cuda_stream=0)
    assert server.endpoints == {}
    del array
    gc.collect()
    device.sweep()


@pytest.mark.parametrize("tries", [True, False])
def test_who_says_what_is_told_what(
    serve: Callable[..., bow.Server], device: FakeDevice, *, tries: bool
) -> None:
    """An event is named to who takes events, regions come before the question to who tries them, else neither."""
    server = serve("unix:", pool=Pool(device, budget=1 << 24))
    array = allocated(device, np.arange(10))
    device.driver.begin_work()
    endpoint = server.publish("t", {"c0": array}, share="in_place", cuda_stream=0)
    (location,) = endpoint.locations
    channel = dial(location.address, PATIENCE, 5.0)
    hello = Hello(pointers=True, ipc=this_process().place, tries=tries, events=tries)
    channel.send([Message(Want.HELLO, [hello.pack()]), Message(Want.DATA, [endpoint.ticket])], 5.0)
    heard: list[Any] = []
    while not heard or heard[-1].tag != Control.DEVICES:
        received = channel.receive(5.0, lambda _, nbytes: bytearray(nbytes))
        assert received is not None
        heard.append(received)
    assert [each.tag for each in heard] == ([Control.EVENT, Control.REGION] if tries else []) + [
        Control.DEVICES
    ]
    if tries:
        handle = EventHandle.unpack(bytes(heard[0].body))
        assert (handle.device_uuid, handle.exporter, len(handle.pack())) == (
            device.uuid,
            this_process(),
            EVENT_BYTES,
        )
        with pytest.raises(InvalidRegion, match="this process itself"):
            OpenedEvent(handle)
    channel.close()
    until(lambda: server.stats.connections == 0)
    server.withdraw("t")
    del array
    if tries:  # it said nothing when it went, so memory and event are kept for good, and others are made
        made = device.driver.calls["event_create"]
        array = allocated(device, np.arange(10))
        server.publish("t", {"c0": array}, share="in_place", cuda_stream=0)
        assert device.driver.calls["event_create"] == made + 1
        server.withdraw("t")
        del array
        region_module._kept.clear()  # the test alone knows that nobody looks any more
    device.driver.end_work()


def test_servers_that_tell_what_nobody_asked_for() -> None:
    """An event for a reader that takes none is an error; so is a region that fails, where nobody asks, or later."""
    refused = InvalidRegion("a region cannot be mapped")
    event = EventHandle(12, bytes(16), bytes(64), this_process()).pack()
    with pytest.raises(bow.ProtocolError, match="takes none"):
        ReaderProtocol(bow.DEFAULT_LIMITS, events=False).receive(Control.EVENT, event)
    protocol = ReaderProtocol(bow.DEFAULT_LIMITS)
    protocol.could_not_map(refused)
    with pytest.raises(InvalidRegion):
        protocol.begin()
    protocol = ReaderProtocol(bow.DEFAULT_LIMITS)
    protocol.could_not_map(refused)
    protocol.receive(Control.DEVICES, pack_devices([DeviceId(1, bytes(16))]))
    maps, [answer] = protocol.answer()
    assert not maps
    assert (answer.tag, answer.pieces) == (Control.ANSWER, [b"a region cannot be mapped"])
    protocol.begin()
    with pytest.raises(InvalidRegion):
        protocol.could_not_map(refused)
