"""Two workers of one process: what the binding promises, over each set of transports."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from bowstring.testing.fake_objects import Token
from bowstring.transport.ucx.context import Context, Failure, Mapped, Request
from bowstring.transport.ucx.worker import Endpoint, ListenerHandle, Probed, RemoteKey, Worker, ends_as_key

PATIENCE = 10.0
BODY_MASK = 0xFFFF_FFFF


class Pair(NamedTuple):
    context: Context
    workers: tuple[Worker, Worker]
    here: Endpoint
    there: Endpoint

    def until(self, ready: Callable[[], Any]) -> Any:
        """Make progress until something is true, and return it."""
        end = time.monotonic() + PATIENCE
        while not (found := ready()):
            for worker in self.workers:
                worker.progress()
            assert time.monotonic() < end, "nothing came of it"
        return found

    def done(self, *requests: Request) -> None:
        self.until(lambda: all(request.done for request in requests))


@contextlib.contextmanager
def connected(tls: str) -> Iterator[Pair]:
    context = Context({"TLS": tls, "NET_DEVICES": "lo"})
    listening, client, server = Worker(context), Worker(context, client_id=42), Worker(context)
    listener = ListenerHandle(listening, "127.0.0.1", 0)
    here = client.connect(*listener.address)
    end = time.monotonic() + PATIENCE
    while not listener.requests:
        listening.progress(), client.progress()
        assert time.monotonic() < end, "nobody came"
    request = listener.requests.popleft()
    assert request.client_id == 42
    assert request.address.startswith("127.0.0.1:")
    pair = Pair(context, (client, server), here, server.accept(request))
    try:
        yield pair
    finally:
        listener.close()
        for worker in (listening, client, server):
            worker.close()
        context.close()


@pytest.fixture(params=["tcp", "tcp,posix,cma", "all"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with connected(request.param) as made:
        yield made


def landed(pair: Pair, probed: Probed) -> bytes:
    place = np.zeros(probed.nbytes, np.uint8)
    pair.done(pair.workers[1].receive(probed, place.ctypes.data, kept=place))
    return place.tobytes()


def test_tagged_messages_arrive_in_order(pair: Pair) -> None:
    """Tagged messages of all lengths, of one piece or many, are probed in the order in which they were sent."""
    rng = np.random.default_rng(0)
    bodies = [rng.bytes(size) for size in (0, 1, 8, 1000, 8192, 100_000, 3 << 20)]
    sent = []
    for number, body in enumerate(bodies):
        half = len(body) // 2
        sent.append(pair.here.send(number << 56 | number, [body]))
        sent.append(pair.here.send(1000 + number, [body[:half], memoryview(body)[half:]] if half else [body]))
    for number, body in enumerate(bodies):
        for tag in (number << 56 | number, 1000 + number):
            probed = pair.until(pair.workers[1].probe)
            assert probed[1:] == (tag, len(body))
            assert landed(pair, probed) == body
    pair.done(*sent)


def test_a_body_is_found_by_the_low_half_of_its_tag(pair: Pair) -> None:
    """A mask leaves the type byte out, and what was sent before with another number stays where it is."""
    pair.done(*[pair.here.send(kind << 56 | number, [b"x" * number]) for kind, number in [(0, 1), (1, 2)]])
    probed = pair.until(lambda: pair.workers[1].probe(2, BODY_MASK))
    assert (probed.tag, landed(pair, probed)) == (1 << 56 | 2, b"xx")
    assert landed(pair, pair.until(pair.workers[1].probe)) == b"x"
    assert pair.workers[1].probe() is None


def test_active_messages(pair: Pair) -> None:
    """Active messages come whole: short ones at once, long ones as what they are fetched with."""
    bodies = [b"", b"\0\1\2\3\4", bytes(300), np.random.default_rng(1).bytes(5 << 20)]
    sent = [pair.here.send(None, [body[:3], body[3:]] if len(body) > 3 else [body]) for body in bodies]
    receiver = pair.workers[1]
    pair.until(lambda: len(receiver.arrived) == len(bodies))
    found = []
    for arrived in receiver.arrived:
        if arrived.body is None:
            place = np.zeros(arrived.nbytes, np.uint8)
            pair.done(receiver.fetch(arrived, place.ctypes.data))
            found.append(place.tobytes())
        else:
            found.append(arrived.body)
    assert found == bodies
    assert receiver.arrived[-1].body is None
    pair.done(*sent)


def test_a_synchronous_send_is_done_when_it_is_matched(pair: Pair) -> None:
    """A request for data is not taken for sent before the server has taken it."""
    request = pair.here.send(9, [b"ticket"], sync=True)
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pair.workers[0].progress(), pair.workers[1].progress()
        assert not request.done
    probed = pair.until(pair.workers[1].probe)
    assert landed(pair, probed) == b"ticket"
    pair.done(request)


def test_remote_memory_is_read_with_its_key(pair: Pair) -> None:
    """What is mapped is read by its address and key; other bytes are no key."""
    memory = np.frombuffer(np.random.default_rng(2).bytes(2 << 20), np.uint8)
    mapped = Mapped(pair.context, memory.ctypes.data, memory.nbytes)
    assert ends_as_key(mapped.key)
    key = RemoteKey(pair.there, mapped.key)
    place = np.zeros(1 << 20, np.uint8)
    pair.done(key.get(place.ctypes.data, place.nbytes, memory.ctypes.data + 4096))
    assert place.tobytes() == memory[4096 : 4096 + place.nbytes].tobytes()
    key.close()
    mapped.close()


def test_bytes_that_are_no_key(pair: Pair) -> None:
    """Bytes without the form of a key are refused, and never reach UCX, which believes the lengths in them."""
    for wrong in (b"", b"not a key", bytes(8), b"\xff" * 9, b"\x03" + bytes(9), bytes(8) + b"\x0a"):
        with pytest.raises(Failure, match="key"):
            RemoteKey(pair.there, wrong)


@pytest.mark.parametrize("size", [b"", (320_000).to_bytes(8, "little")], ids=["handle", "size and handle"])
@pytest.mark.parametrize("fd", range(10))
def test_a_cuda_handle_that_begins_like_a_key(fd: int, size: bytes) -> None:
    """A CUDA IPC handle is not taken for a key of UCX where its first bytes could be those of one."""
    handle = size + Token(pid=30_000, fd=fd, inode=0x0101, nbytes=320_000).pack()
    assert not ends_as_key(handle)


def test_the_descriptor_tells_of_what_comes(pair: Pair) -> None:
    """A worker that is armed wakes a wait for its descriptor, and an idle one comes to rest."""
    pair.done(pair.here.send(1, [b"x"]))
    landed(pair, pair.until(pair.workers[1].probe))
    receiver = pair.workers[1]
    end = time.monotonic() + PATIENCE
    while receiver.progress() or not receiver.arm() or select.select([receiver.fd], [], [], 0.05)[0]:
        # What UCX's own threads still do for the connection may wake it after the message.
        assert time.monotonic() < end, "an idle worker is woken again and again"
    pair.here.send(2, [b"y"])
    assert select.select([receiver.fd], [], [], PATIENCE)[0]
    assert landed(pair, pair.until(receiver.probe)) == b"y"


def test_the_end_of_a_peer(pair: Pair) -> None:
    """Where the peer lets go of its worker, the other end is told, after what came before."""
    pair.done(pair.there.send(5, [b"last"]))
    probed = pair.until(pair.workers[0].probe)
    assert probed.tag == 5
    assert not pair.here.failed
    pair.workers[1].close()
    end = time.monotonic() + PATIENCE
    while not pair.here.failed:
        pair.workers[0].progress()
        assert time.monotonic() < end, "the end was not noticed"
    place = np.zeros(4, np.uint8)
    assert pair.workers[0].receive(probed, place.ctypes.data).done
    assert place.tobytes() == b"last"


def test_nobody_listens() -> None:
    """A connection to a port where nobody listens fails soon."""
    context = Context({"NET_DEVICES": "lo"})
    worker = Worker(context)
    here = worker.connect("127.0.0.1", 1)
    end = time.monotonic() + PATIENCE
    while not here.failed:
        worker.progress()
        assert time.monotonic() < end
    assert not here.peer
    worker.close()
    context.close()


def test_settings_that_mean_nothing() -> None:
    """A transport that UCX does not have is refused when the context is made."""
    with pytest.raises(Failure, match="UCX"):
        Context({"TLS": "no-such-transport"})
