"""Receiving whole messages and sending what the peer takes: neither waits for the peer, whatever it does."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bowstring.errors import BrokenError, DeadlineExceeded, LimitExceeded, ProtocolError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.transport import Channel, Message, Received, dial, listen
from bowstring.transport.channel import Restriction
from tests.peer.wire import header
from tests.transport.certified import shown_at, trusting
from tests.transport.kit.harness import PATIENCE

CONTROL = 2 << 56
LIMITS = DEFAULT_LIMITS.replace(stall_timeout=0.2)
ADDRESSES = ["unix:", "tcp://127.0.0.1:0", "tls://127.0.0.1:0", "inproc:"]


@contextlib.contextmanager
def pair_of(address: str, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[Channel, Channel]]:
    """Give the two ends of a connection."""
    with (
        listen(address, limits, tls=shown_at(address)) as listener,
        dial(listener.uri, limits, tls=trusting() if address.startswith("tls:") else None) as here,
    ):
        there = listener.accept(PATIENCE)
        assert there is not None
        with there:
            yield here, there


@contextlib.contextmanager
def raw_pair(limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[Channel, socket.socket]]:
    """Give a channel, and the plain socket at its other end."""
    with listen("unix:", limits) as listener, socket.socket(socket.AF_UNIX) as far:
        far.connect(listener.uri.removeprefix("unix:"))
        channel = listener.accept(PATIENCE)
        assert channel is not None
        with channel:
            yield channel, far


def bytes_of(received: Received) -> bytes:
    """Return the body of a message."""
    return bytes(memoryview(received.body))


def taken(here: Channel, there: Channel, message: Message) -> bytes:
    """Send a message, by both ends in turn, and return the body that came."""
    here.send_soon([message])
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        received = there.receive_whole()
        if received is not None:
            return bytes_of(received)
        here.send_soon(())
        here.receive_whole()  # TLS says something first
    raise AssertionError("nothing came")


@pytest.mark.parametrize("address", ADDRESSES)
def test_whole_messages_come_in_order(address: str) -> None:
    """Messages of any size up to that of control messages come as they were sent, on all transports."""
    sizes = [0, 1, 100, 8000, 9000, 200_000]
    with pair_of(address) as (here, there):
        assert there.receive_whole() is None
        for number, nbytes in enumerate(sizes):
            sent = bytes([number]) * nbytes
            assert taken(here, there, Message(CONTROL | number, [sent])) == sent
        assert there.receive_whole() is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=4), st.data())
def test_pieces_of_any_size(sizes: list[int], data: st.DataObject) -> None:
    """However a message is cut on its way, it comes once, and not before its last byte."""
    bodies = [bytes([number]) * nbytes for number, nbytes in enumerate(sizes)]
    stream = b"".join(header(CONTROL | number, len(body)) + body for number, body in enumerate(bodies))
    ends: list[int] = []
    for body in bodies:
        ends.append((ends[-1] if ends else 0) + len(header(CONTROL, len(body))) + len(body))
    with raw_pair() as (channel, far):
        found: list[bytes] = []
        at = 0
        while at < len(stream):
            step = data.draw(st.integers(1, len(stream) - at))
            far.sendall(stream[at : at + step])
            at += step
            while (received := channel.receive_whole()) is not None:
                found.append(bytes_of(received))
            assert len(found) == sum(end <= at for end in ends)
        assert found == bodies


def look_again_and_again(channel: Channel, between: Callable[[], object] = lambda: None) -> None:
    """Look for a message that is not whole yet, until that is an error."""
    for _ in range(99):
        assert channel.receive_whole() is None
        time.sleep(0.01)
        between()


def test_what_never_comes_is_given_up() -> None:
    """A message that lacks bytes ends the connection after `stall_timeout` without any, and not sooner."""
    with raw_pair(LIMITS) as (channel, far):
        far.sendall(header(CONTROL, 100) + b"x")
        assert channel.receive_whole() is None
        time.sleep(LIMITS.stall_timeout / 2)
        said = time.monotonic()
        far.sendall(b"y")
        with pytest.raises(DeadlineExceeded, match="silent inside a message"):
            look_again_and_again(channel)
        assert time.monotonic() - said >= LIMITS.stall_timeout


def test_a_stranger_has_one_deadline() -> None:
    """What a peer that was not let in has begun must be there by its deadline, however it goes on."""
    with raw_pair() as (channel, far):
        begin = time.monotonic()
        channel.restriction = Restriction(time.monotonic() + 0.2)
        far.sendall(header(CONTROL, 100))
        with pytest.raises(DeadlineExceeded, match="let in"):
            look_again_and_again(channel, lambda: far.sendall(b"x"))
        assert time.monotonic() - begin >= 0.2


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"no header of ours, by any means", ProtocolError),
        (header(CONTROL, DEFAULT_LIMITS.control_bytes + 1), LimitExceeded),
        (header(None, DEFAULT_LIMITS.control_bytes + 1), ProtocolError),
    ],
)
def test_what_is_refused_is_not_awaited(sent: bytes, error: type[Exception]) -> None:
    """Whatever is wrong with a header is said at once."""
    with raw_pair() as (channel, far):
        far.sendall(sent)
        with pytest.raises(error):
            channel.receive_whole()
        with pytest.raises(BrokenError):
            channel.receive_whole()


def test_the_end_is_seen() -> None:
    """A peer that hangs up, within a message or between two, is gone."""
    for begun in (b"", header(CONTROL, 9) + b"x"):
        with raw_pair() as (channel, far):
            far.sendall(begun)
            far.close()
            with pytest.raises(BrokenError, match="inside a message" if begun else "closed"):
                channel.receive_whole()


@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0", "tls://127.0.0.1:0"])
def test_what_the_peer_does_not_take_comes_later(address: str) -> None:
    """A peer that does not read holds nobody up; what was left comes before what is sent afterwards, in order."""
    with pair_of(address) as (here, there):
        assert taken(here, there, Message(CONTROL, [b"first"])) == b"first"
        count = 0
        while here.send_soon([Message(CONTROL, [bytes(100_000)])]):
            count += 1
        assert not here.send_soon([Message(CONTROL | 1, [b"behind it"])])
        found: list[int] = []
        while len(found) < count + 2:
            received = there.receive_whole()
            if received is not None:
                found.append(len(bytes_of(received)))
            here.send_soon(())
        assert found == [100_000] * (count + 1) + [len(b"behind it")]
        assert here.send_soon(())


def test_a_peer_that_takes_nothing_is_given_up() -> None:
    """What is left ends the connection after `stall_timeout` in which nothing of it moved."""
    with raw_pair(LIMITS) as (channel, _):
        while channel.send_soon([Message(CONTROL, [bytes(100_000)])]):
            pass
        assert not channel.send_soon(())
        time.sleep(1.5 * LIMITS.stall_timeout)
        with pytest.raises(DeadlineExceeded, match="took nothing"):
            channel.send_soon(())


def test_sending_goes_on_with_what_is_left() -> None:
    """A thread that sends and waits sends what was left before its own message."""
    with raw_pair() as (channel, far):
        while channel.send_soon([Message(CONTROL, [bytes(100_000)])]):
            pass
        far.setblocking(False)
        poll = select.poll()
        poll.register(far, select.POLLIN)
        nbytes = 0
        while not channel.send_soon(()):
            while poll.poll(0):
                nbytes += len(far.recv(1 << 20))
        channel.send([Message(CONTROL, [b"the last words"])], PATIENCE)
        rest = b""
        while poll.poll(0):
            rest += far.recv(1 << 20)
        assert rest.endswith(b"the last words")
        assert (nbytes + len(rest) - len(header(CONTROL, 14)) - 14) % (100_000 + len(header(CONTROL, 0))) == 0
