"""Readers that do not see the producer's device: they get the bytes, and are told why."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.benchmarks.processes.child import Child
from bowstring.client.connection.device import why_not_here
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import DeviceId, Hello, pack_answer, pack_devices, unpack_devices
from bowstring.memory import Pool
from bowstring.testing import FakeDevice, fake_device
from bowstring.transport import Channel, Message, dial
from bowstring.transport.descriptors import close_all
from tests.client_server.conftest import PATIENCE, until
from tests.peer.blind_reader import BlindReader

pytestmark = pytest.mark.usefixtures("forked")

TABLE = pa.table(
    {
        "n": list(range(50)),
        "s": [None if n % 7 == 0 else f"é{n}" for n in range(50)],
        "d": pa.array(["a", None, "b", "b", "c"] * 10).dictionary_encode(),
        "l": [[n] * (n % 3) for n in range(50)],
    }
)
ROWS = TABLE.to_pylist()


@pytest.fixture(scope="module")
def blind() -> Iterator[Child]:
    """Return a process that knows of no device."""
    with Child(BlindReader) as child:
        yield child


@pytest.fixture
def device() -> FakeDevice:
    """Return the producer's device."""
    return fake_device(0)


@pytest.fixture
def server(serve: Callable[..., bow.Server], device: FakeDevice) -> bow.Server:
    """Return a server whose memory is on the device."""
    return serve(pool=Pool(device, budget=64 << 20))


def batches(device: FakeDevice) -> list[bow.Batch]:
    """Return the table on the device, in batches of ten rows."""
    return [bow.Batch.from_arrow(each).to_device(device) for each in TABLE.to_batches(10)]


def published(server: bow.Server, device: FakeDevice, how: str) -> bow.Endpoint:
    """Publish the table on the device."""
    match how:
        case "resident":
            return server.publish("t", batches(device), readers=1)
        case "separate":
            return server.publish("t", batches(device), readers=1, separate=True)
        case "lazy":
            return server.publish("t", iter(batches(device)), schema=TABLE.schema)
        case _:
            values = device.allocate(400).view(np.int64)
            values[:] = device.from_host(np.arange(50))
            return server.publish("t", {"n": values}, share="in_place", readers=1)


@pytest.mark.parametrize("how", ["resident", "separate", "lazy", "in place"])
def test_a_process_without_devices(server: bow.Server, device: FakeDevice, blind: Child, how: str) -> None:
    """It gets the bytes on the host, all of them, and says why; the data set is read and released as ever."""
    endpoint = published(server, device, how)
    found = blind.call("read", endpoint=str(endpoint))
    assert found["rows"] == ([{"n": row["n"]} for row in ROWS] if how == "in place" else ROWS)
    assert (found["opened"], found["path"], found["devices"]) == ("unix: packed", "unix: packed", ["cpu"])
    assert found["why"].count("a device that this process cannot reach") == 1
    assert device.uuid.hex() in found["why"]
    assert (found["testing"], found["cuda"]) == (False, False)
    server.wait_released("t")
    assert (server.stats.lost, server.stats.kept) == (0, 0)


@pytest.mark.parametrize("how", ["resident", "lazy"])
def test_a_process_that_sees_another_device(server: bow.Server, device: FakeDevice, how: str) -> None:
    """Asked for its own device, it gets the bytes there, by way of the host; else it has them on the host."""
    with Child(BlindReader, sees=1) as child:
        found = child.call("read", endpoint=str(published(server, device, how)), device="fake:1")
        assert (found["rows"], found["devices"], found["device"]) == (ROWS, ["fake:1"], "fake:1")
        assert found["path"] == "unix: packed"
        assert found["why"] == (
            "the bytes are sent: this process does not see it; found another one; Look elsewhere."
        )
        assert found["copied"]
        server.wait_released("t")
        found = child.call("read", endpoint=str(published(server, device, how)))
        assert (found["rows"], found["devices"], found["copied"]) == (ROWS, ["cpu"], "")
    server.wait_released("t")


def test_data_of_the_host_ask_no_driver(serve: Callable[..., bow.Server], blind: Child) -> None:
    """A reader of host data is not asked, maps them, and loads nothing of a device."""
    found = blind.call("read", endpoint=str(serve().publish("t", TABLE)))
    assert (found["rows"], found["path"], found["cuda"]) == (ROWS, "unix: mapped", False)


def test_those_who_see_it_map_it_still(server: bow.Server, device: FakeDevice, blind: Child) -> None:
    """Of two readers of one data set the one that sees the device maps it, and the other one gets bytes."""
    endpoint = server.publish("t", batches(device))
    with bow.connect(endpoint) as stream:
        first = stream.read_next_batch()
        assert (stream.stats.path, first.device) == ("unix: mapped", device)
        found = blind.call("read", endpoint=str(endpoint), columns=["s"])
        assert [row["s"] for row in found["rows"]] == [row["s"] for row in ROWS]
        assert found["path"] == "unix: packed"
        assert first.to_arrow().to_pylist() == ROWS[:10]
        del first


def test_a_stream_that_is_left_early(server: bow.Server, device: FakeDevice, blind: Child) -> None:
    """A reader that got bytes and goes before the end holds nothing, and the next one reads all."""
    endpoint = published(server, device, "resident")
    assert blind.call("stop_early", endpoint=str(endpoint)) == "unix: packed"
    until(lambda: server.stats.connections == 0)
    assert blind.call("read", endpoint=str(endpoint))["rows"] == ROWS
    server.wait_released("t")
    gc.collect()


def test_arrays_that_cannot_be_made(
    server: bow.Server, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the device is there and its arrays are not (no CuPy), the bytes come to the host just so."""

    def missing(_: object) -> Any:
        raise bow.MissingDependency("arrays on a GPU need CuPy", hint="pip install it")

    endpoint = server.publish("t", TABLE)
    sees = "bowstring.client.connection.device.find_device"
    monkeypatch.setattr(sees, lambda *_: type("Bare", (), {"xp": property(missing)})())
    with bow.connect(endpoint) as stream:
        assert stream.stats.why == "the bytes are sent: arrays on a GPU need CuPy; pip install it"
        assert stream.read_all().to_pylist() == ROWS


class Speaker:
    """A reader that says what a test tells it, and no more."""

    def __init__(self, endpoint: bow.Endpoint, limits: bow.Limits = PATIENCE) -> None:
        (location,) = endpoint.locations
        self.channel: Channel = dial(location.address, limits, 5.0)
        self.say(Want.HELLO, Hello(window=1 << 20, pointers=True).pack())
        self.say(Want.DATA, endpoint.ticket)

    def say(self, tag: int, body: bytes = b"") -> None:
        """Send a message."""
        self.channel.send([Message(tag, [body])], 5.0)

    def hear(self) -> int | None:
        """Return the tag of the next message, questions aside."""
        while True:
            received = self.channel.receive(5.0, lambda _, nbytes: bytearray(nbytes))
            assert received is not None, "nothing comes"
            close_all(received.attachments)
            if received.tag != Control.PING:
                return received.tag


def test_nothing_comes_before_the_answer(server: bow.Server, device: FakeDevice) -> None:
    """The question is the first word of the producer, and the only one until it is answered."""
    endpoint = server.publish("t", batches(device))
    speaker = Speaker(endpoint)
    assert speaker.hear() == Control.DEVICES
    time.sleep(2 * PATIENCE.heartbeat)
    speaker.say(Control.PING)
    assert speaker.hear() == Control.PONG
    speaker.say(Control.ANSWER, pack_answer("no"))
    assert speaker.hear() == Control.WELCOME
    assert speaker.hear() is None  # the schema
    speaker.say(Control.STOP)
    speaker.channel.close()


@pytest.mark.parametrize("ending", [Control.STOP, Control.UNUSED])
def test_a_reader_that_stops_instead_of_answering(
    server: bow.Server, device: FakeDevice, ending: Control
) -> None:
    """It is told that nothing more comes, whatever it answers afterwards, and holds nothing."""
    speaker = Speaker(server.publish("t", batches(device)))
    assert speaker.hear() == Control.DEVICES
    speaker.say(ending)
    while speaker.hear() != Control.STOPPED:
        pass
    speaker.say(Control.ANSWER)
    speaker.say(Control.PING)
    assert speaker.hear() == Control.PONG
    speaker.channel.close()
    until(lambda: server.stats.connections == 0)
    assert server.pool.stats.retired == 0


def test_a_reader_that_never_answers(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """One that is there, answers every other question and not this one, is given up after the lease timeout."""
    limits = bow.Limits(heartbeat=0.05, lease_timeout=0.3, release_timeout=10.0)
    server = serve(pool=Pool(device, budget=64 << 20), limits=limits)
    speaker = Speaker(server.publish("t", batches(device)))
    heard = speaker.hear()
    assert heard == Control.DEVICES
    end = time.monotonic() + 10.0
    while heard != Control.ERROR:
        assert time.monotonic() < end
        received = speaker.channel.receive(1.0, lambda _, nbytes: bytearray(nbytes))
        if received is not None and received.tag == Control.PING:
            speaker.say(Control.PONG)
        heard = None if received is None else received.tag
    speaker.channel.close()
    until(lambda: server.stats.connections == 0)


def test_a_reader_that_goes_instead_of_answering(server: bow.Server, device: FakeDevice) -> None:
    """A connection that ends before the answer leaves nothing behind; the data set can be read by another one."""
    endpoint = server.publish("t", batches(device), readers=1)
    speaker = Speaker(endpoint)
    assert speaker.hear() == Control.DEVICES
    speaker.channel.close()
    until(lambda: server.stats.connections == 0)
    with bow.connect(endpoint, device="cpu") as stream:
        assert stream.read_all().to_pylist() == ROWS
    server.wait_released("t")


def test_devices_of_unknown_kinds_are_not_here() -> None:
    """A question of whatever bytes is answered with a reason, and never by an exception."""
    for kind in (0, 3, 8, 2**32 - 1):
        assert why_not_here(unpack_devices(pack_devices([DeviceId(kind, bytes(16))])))
