"""What a server counts: readers that read everything, stopped, were lost or refused, and idle connections."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello
from bowstring.transport import Channel, Message, dial
from bowstring.transport.inproc import InprocChannel
from bowstring.transport.sockets import StreamChannel
from tests.client_server.conftest import PATIENCE, until
from tests.peer.plain import WAIT, PlainClient

TABLE = pa.table({"n": [1, 2, 3]})
SCHEMA = pa.schema({"n": pa.int64()})


def counts(server: bow.Server) -> dict[str, int]:
    """Return what a server counted, once nobody is connected; what is 0 is left out."""
    until(lambda: server.stats.connections == 0)
    found = server.stats
    names = ("readers", "stopped", "lost", "refused", "idle")
    return {name: getattr(found, name) for name in names if getattr(found, name)}


@pytest.fixture
def slow_to_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the call that sends the end, or a body, return only when the receiving thread saw the peer hang up."""
    hung_up: weakref.WeakKeyDictionary[Channel, threading.Event] = weakref.WeakKeyDictionary()
    for kind in (StreamChannel, InprocChannel):
        real_send: Callable[..., None] = kind.send

        def send(
            self: Channel,
            messages: Sequence[Message],
            deadline: float,
            real: Callable[..., None] = real_send,
        ) -> None:
            event = hung_up.setdefault(self, threading.Event())
            real(self, messages, deadline)
            tags = [message.tag for message in messages]
            ends = [message for message in messages if message.tag is None and message.nbytes == 5]
            if ends or 1 in tags:
                assert event.wait(WAIT)

        monkeypatch.setattr(kind, "send", send)
        for name in ("receive", "receive_whole"):
            real_receive: Callable[..., Any] = getattr(kind, name)

            def receive(self: Channel, *arguments: Any, real: Callable[..., Any] = real_receive) -> Any:
                event = hung_up.setdefault(self, threading.Event())
                try:
                    return real(self, *arguments)
                except BaseException:
                    event.set()
                    raise

            monkeypatch.setattr(kind, name, receive)


@pytest.mark.usefixtures("slow_to_return")
@pytest.mark.parametrize("separate", [False, True], ids=["one connection", "two"])
def test_a_plain_reader_that_hangs_up_at_the_end(server: bow.Server, *, separate: bool) -> None:
    """A reader that knows only the specification and disconnects right after the last message read everything."""
    client = PlainClient(str(server.publish("t", TABLE, readers=1, separate=separate)))
    client.ask()
    assert client.read().equals(TABLE)
    client.close()
    server.wait_released("t")
    assert counts(server) == {"readers": 1}


def test_many_plain_readers_that_hang_up_at_the_end(server: bow.Server) -> None:
    """None of forty readers that disconnect right after the last message is counted as anything else."""
    for separate in (False, True):
        endpoint = server.publish(f"t{separate}", TABLE, readers=20, separate=separate)
        for _ in range(20):
            client = PlainClient(str(endpoint))
            client.ask()
            client.read()
            client.close()
        server.wait_released(f"t{separate}")
    assert counts(server) == {"readers": 40}


def test_a_plain_reader_that_hangs_up_before_the_end(server: bow.Server) -> None:
    """A reader that knows only the specification and disconnects early has stopped: it has no word for it."""
    go_on = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        assert go_on.wait(WAIT)

    client = PlainClient(str(server.publish("t", batches, schema=SCHEMA)))
    client.ask()
    assert client.channel.receive(WAIT) is not None
    client.close()
    # The end would count as read if it could still be sent.
    assert counts(server) == {"stopped": 1}
    go_on.set()


def test_who_asks_for_nothing_is_idle(server: bow.Server) -> None:
    """A connection that ends before it asked for a data set is idle, and neither refused nor lost."""
    dial(server.address).close()
    channel = dial(server.address)
    channel.send([Message(Want.HELLO, [Hello().pack()])], WAIT)
    channel.close()
    until(lambda: server.stats.idle == 2)
    assert counts(server) == {"idle": 2}


def test_who_never_asks_is_idle(serve: Callable[..., bow.Server], address: str) -> None:
    """A connection that stays silent for `connect_timeout` is idle, too."""
    server = serve(address, limits=PATIENCE.replace(connect_timeout=0.2, heartbeat=0.1))
    with dial(server.address) as channel, pytest.raises(bow.BrokenError):
        channel.receive(WAIT)
    assert counts(server) == {"idle": 1}


def test_who_is_connected_when_the_server_closes(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that merely did not close is not lost when the server closes."""
    server = serve(address)
    endpoint = server.publish("t", iter(TABLE.to_batches() * 3), schema=SCHEMA)
    limits = PATIENCE.replace(window_bytes=1)
    with bow.connect(endpoint, limits=limits) as stream, dial(server.address):
        assert next(stream).num_rows == 3
        until(lambda: server.stats.connections == 2)
        server.close()
        assert counts(server) == {"stopped": 1, "idle": 1}


def test_who_is_refused(serve: Callable[..., bow.Server], address: str) -> None:
    """A wrong token, an unknown data set and an unknown column are refused requests."""
    server = serve(address, token="a long secret token")
    endpoint = server.publish("t", TABLE)
    with pytest.raises(bow.AccessDenied):
        bow.connect(str(endpoint).replace("long", "wrong"))
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint, "no such thing")
    with pytest.raises(bow.UnknownColumn):
        bow.connect(endpoint, columns=["no such column"])
    assert counts(server) == {"refused": 3}


def test_who_stops_early(server: bow.Server) -> None:
    """A reader that closes its stream early has stopped; the producer's own failure is no loss either."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise ZeroDivisionError

    with bow.connect(server.publish("t", TABLE)):
        pass
    stream = bow.connect(server.publish("f", failing, schema=SCHEMA))
    with pytest.raises(bow.ProducerFailed):
        stream.read_all()
    stream.close()
    assert counts(server) == {"stopped": 2}


@pytest.mark.parametrize("freed", [True, False])
def test_who_does_not_confirm_the_end(serve: Callable[..., bow.Server], *, freed: bool) -> None:
    """A reader with a hello that disconnects after the end without DONE has stopped if it freed everything."""
    server = serve("unix:")
    endpoint = server.publish("t", TABLE)
    location = endpoint.locations[0]
    with dial(location.address) as channel:
        channel.send([Message(Want.HELLO, [Hello(pointers=True).pack()])], WAIT)
        channel.send([Message(Want.DATA, [endpoint.ticket])], WAIT)
        addresses = b""
        while True:
            received = channel.receive(WAIT)
            assert received is not None
            if received.tag is not None and received.tag >> 56 == 1:
                body = bytes(received.body)
                pairs = [body[at : at + 8] for at in range(16, len(body), 16)]
                addresses = b"".join(each for each in pairs if any(each))
            channel.drop(received.attachments)
            if received.tag is None and received.body[0] == 0:
                break
        if freed:
            channel.send([Message(Want.FREE, [addresses])], WAIT)
    assert counts(server) == ({"stopped": 1} if freed else {"lost": 1})


def test_who_breaks_the_protocol_is_lost(server: bow.Server) -> None:
    """A reader that says what it must not in the middle of its stream is lost."""
    endpoint = server.publish("t", iter(TABLE.to_batches() * 3), schema=SCHEMA)
    with dial(endpoint.locations[0].address) as channel:
        channel.send([Message(Want.HELLO, [Hello().pack()])], WAIT)
        channel.send([Message(Want.DATA, [endpoint.ticket])], WAIT)
        channel.send([Message(Control.WELCOME, [b""])], WAIT)
        with pytest.raises(bow.BrokenError):
            list(iter(lambda: channel.receive(WAIT), None))
    assert counts(server) == {"lost": 1}
