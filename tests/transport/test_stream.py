"""A channel over a byte stream, against a peer that cuts, stalls, chops and lies."""

from __future__ import annotations

import contextlib
import itertools
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import BrokenError, ClosedError, DeadlineExceeded, LimitExceeded, ProtocolError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Channel, Message, Peer, sockets
from bowstring.transport.header import HEADER_BYTES, pack_header
from bowstring.transport.tcp import TcpChannel
from bowstring.transport.unix import UnixChannel
from tests.faults.interrupting import interrupted as interrupted_before
from tests.transport.kit import in_thread
from tests.transport.kit.harness import PATIENCE

IMPATIENT = DEFAULT_LIMITS.replace(stall_timeout=0.2)
TAG = 7
Raw = Callable[..., tuple[UnixChannel, socket.socket]]


def frame(body: bytes, tag: int | None = TAG, attachments: int = 0) -> bytes:
    return pack_header(tag, attachments, len(body)) + body


def expect_broken(channel: Channel) -> None:
    with pytest.raises(BrokenError):
        channel.receive(PATIENCE)
    with pytest.raises(BrokenError):
        channel.send([Message(None, [b"x"])], PATIENCE)


@pytest.mark.parametrize("size", [0, 1, 40, 100_000])
def test_end_at_each_byte(raw: Raw, size: int) -> None:
    """A connection that ends inside a message is broken, and the error says how many bytes were missing."""
    whole = frame(bytes(size))
    cuts = range(len(whole)) if size < 100 else [HEADER_BYTES, 8192, 8193, 50_000, len(whole) - 1]
    for cut in cuts:
        channel, peer = raw()
        sending = in_thread(peer.sendall, whole[:cut])
        sending.result()
        peer.shutdown(socket.SHUT_WR)
        with pytest.raises(BrokenError) as caught:
            channel.receive(PATIENCE)
        assert not isinstance(caught.value, ProtocolError)
        missing = HEADER_BYTES - cut if cut < HEADER_BYTES else len(whole) - cut
        assert caught.value.expected == (f"{missing} more bytes" if cut else None)
        assert peer.recv(1) == b""
        expect_broken(channel)


@pytest.mark.parametrize("garbage", [b"G", b"GET / HTTP/1.1\r\n\r\n", bytes(24), frame(b"x")[1:]], ids=repr)
def test_garbage(raw: Raw, garbage: bytes) -> None:
    """Foreign bytes are refused at once, even fewer than a header, and the connection is given up."""
    channel, peer = raw()
    peer.sendall(frame(b"good") + garbage)
    received = channel.receive(PATIENCE)
    assert received is not None
    assert bytes(received.body) == b"good"
    with pytest.raises(ProtocolError):
        channel.receive(PATIENCE)
    expect_broken(channel)
    with contextlib.suppress(ConnectionResetError):
        assert peer.recv(1) == b""


@pytest.mark.parametrize(("tag", "length"), [(None, 1 << 63), (TAG, (1 << 64) - 1), (3 << 56, 1 << 40)])
def test_oversize(raw: Raw, tag: int | None, length: int) -> None:
    """A length beyond the bounds is refused by the header alone: no memory is asked for."""
    channel, peer = raw()
    peer.sendall(pack_header(tag, 0, length))

    def never(tag: int, nbytes: int) -> bytearray:
        raise AssertionError((tag, nbytes))

    with pytest.raises(LimitExceeded):
        channel.receive(PATIENCE, never)
    expect_broken(channel)


@pytest.mark.parametrize("cut", [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, 30_000])
def test_stall(raw: Raw, cut: int) -> None:
    """A peer that goes silent inside a message is told from one that says nothing."""
    channel, peer = raw(IMPATIENT)
    assert channel.receive(0.0) is None
    peer.sendall(frame(bytes(60_000))[:cut])
    with pytest.raises(DeadlineExceeded):
        channel.receive(PATIENCE)
    with pytest.raises(BrokenError):
        channel.receive(0.0)


@pytest.mark.slow
def test_slow_is_not_silent(raw: Raw) -> None:
    """A message that takes longer than the stall timeout arrives as long as something moves."""
    channel, peer = raw(DEFAULT_LIMITS.replace(stall_timeout=2.0))
    whole = frame(bytes(range(40)))

    def trickle() -> None:
        for start in range(0, len(whole), 4):
            peer.sendall(whole[start : start + 4])
            time.sleep(0.2)

    sending = in_thread(trickle)
    received = channel.receive(PATIENCE)
    sending.result()
    assert received is not None
    assert received.body == bytes(range(40))


def test_last_words(raw: Raw) -> None:
    """What the peer said before it closed is received, also when sending to it has failed already."""
    channel, peer = raw()
    peer.sendall(frame(b"no such ticket", tag=None))
    peer.close()
    with pytest.raises(BrokenError):
        channel.send([Message(None, [bytes(1000)]) for _ in range(10)], PATIENCE)
    received = channel.receive(PATIENCE)
    assert received is not None
    assert bytes(received.body) == b"no such ticket"
    with pytest.raises(BrokenError):
        channel.receive(PATIENCE)


def test_close_inside_a_message(raw: Raw) -> None:
    """Closing wakes a receiver that waits for the rest of a header or of a body."""
    for cut in (10, 5000):
        channel, peer = raw()
        peer.sendall(frame(bytes(100_000))[:cut])
        waiting = in_thread(channel.receive, PATIENCE)
        with contextlib.suppress(AssertionError):
            waiting.result(0.1)
        channel.close()
        with pytest.raises(ClosedError):
            waiting.result()


class Interrupt(BaseException):
    """What Ctrl-C raises, less the signal."""


def interrupt(*_: object) -> int:
    raise Interrupt


@pytest.fixture
def interrupted() -> Iterator[Callable[..., object]]:
    """Return what makes a call that is interrupted in a moment."""

    def call(function: Callable[..., object], *arguments: object) -> object:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return function(*arguments)

    before = signal.signal(signal.SIGALRM, interrupt)
    yield call
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def test_interrupt(raw: Raw, interrupted: Callable[..., object]) -> None:
    """An interrupt between messages loses nothing; one inside a message breaks the connection."""
    channel, peer = raw()
    for part in (b"", frame(b"body")[:10]):
        peer.sendall(part)
        with pytest.raises(Interrupt):
            interrupted(channel.receive, PATIENCE)
    peer.sendall(frame(b"body")[10:])
    received = channel.receive(PATIENCE)
    assert received is not None
    assert bytes(received.body) == b"body"
    peer.sendall(frame(b"lost"))
    with pytest.raises(Interrupt):
        channel.receive(PATIENCE, interrupt)  # type: ignore[arg-type]  # never returns
    expect_broken(channel)

    channel, peer = raw()
    more = Message(TAG, [bytes(64 << 20)])  # than the peer takes unread
    with pytest.raises(Interrupt):
        interrupted(channel.send, [more], PATIENCE)
    with pytest.raises(BrokenError):
        channel.send([Message(None)], PATIENCE)
    while peer.recv(1 << 20):
        pass


@pytest.mark.parametrize("peeked", [0, 16_000])
@pytest.mark.parametrize("way", ["receive", "receive_whole"])
def test_an_interrupt_before_any_line_of_a_read(raw: Raw, way: str, peeked: int) -> None:
    """Nothing is lost or changed but what the interrupted call would have returned, or the channel says so."""
    bodies = [bytes([number]) * size for number, size in enumerate([4000, 4121, 9000, 20_000, 5, 6])]
    # What is read at once, 8 KiB, ends one byte before the end of a header.
    assert len(b"".join(frame(body) for body in bodies[:2])) + HEADER_BYTES == 8193
    for before in itertools.count():
        channel, peer = raw()
        peer.sendall(b"".join(frame(body, None) for body in bodies))
        seen: list[bytes] = []

        def read(channel: UnixChannel = channel, seen: list[bytes] = seen) -> None:
            if peeked and not seen:
                channel.peek(PATIENCE, peeked)
            while received := channel.receive(0.0) if way == "receive" else channel.receive_whole():
                seen.append(bytes(received.body))

        _, lines = interrupted_before(read, before, sockets.__file__, but="reading")
        try:
            read()
        except BrokenError:
            assert seen == bodies[: len(seen)], before
        else:
            kept = [body for body in bodies if body in seen]
            assert (seen, len(kept) >= len(bodies) - 1) == (kept, True), before
        channel.close()
        peer.close()
        if lines <= before:
            break
    assert seen == bodies


def test_descriptor_is_closed_by_its_last_user(raw: Raw) -> None:
    """``close`` leaves the descriptor to a receiver that still uses it, so that its number is not reused."""
    channel, peer = raw()
    inside, go_on = threading.Event(), threading.Event()

    def land(_: int, nbytes: int) -> bytearray:
        inside.set()
        assert go_on.wait(PATIENCE)
        return bytearray(nbytes)

    peer.sendall(frame(b"body"))
    receiving = in_thread(channel.receive, PATIENCE, land)
    assert inside.wait(PATIENCE)
    channel.close()
    assert channel._sock.fileno() >= 0
    go_on.set()
    receiving.result()
    assert channel._sock.fileno() == -1


def test_closing_an_end_that_was_dropped(no_leaks: None) -> None:
    """A channel that is dropped without closing ends its connection."""
    near, far = socket.socketpair()
    channel = UnixChannel(near, "unix:pair", Peer.of_socket(near), DEFAULT_LIMITS)
    del near
    with far:
        with pytest.warns(ResourceWarning):
            del channel
        assert far.recv(1) == b""


class Chopped:
    """A socket that takes and gives only so many bytes at a time."""

    def __init__(self, sock: socket.socket, sizes: Sequence[int]) -> None:
        self._sock = sock
        self._sizes = itertools.cycle(sizes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv_into(self, view: memoryview, nbytes: int, flags: int) -> int:
        return self._sock.recv_into(view[: next(self._sizes)], nbytes, flags)

    def recvmsg_into(self, views: list[memoryview], room: int, flags: int) -> Any:
        return self._sock.recvmsg_into([views[0][: next(self._sizes)]], room, flags)

    def sendmsg(self, views: Sequence[memoryview], ancillary: Any, flags: int) -> int:
        left, some = next(self._sizes), []
        for view in views:
            some.append(view[:left])
            left -= len(some[-1])
            if not left:
                break
        return self._sock.sendmsg(some, ancillary, flags)


@contextlib.contextmanager
def chopped(scheme: str, sizes: Sequence[int]) -> Iterator[tuple[Channel, Channel]]:
    kind = {"unix": UnixChannel, "tcp": TcpChannel}[scheme]
    if scheme == "unix":
        socks = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            socks = (near, server.accept()[0])
    ends = [kind(sock, f"{scheme}:", Peer.at("a test"), DEFAULT_LIMITS) for sock in socks]
    for end in ends:
        end._sock = Chopped(end._sock, sizes)  # type: ignore[assignment]  # stands for a socket
    with ends[0], ends[1]:
        yield ends[0], ends[1]


MESSAGES = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2**64 - 1),
        st.lists(st.binary(max_size=40) | st.integers(0, 20_000).map(bytes), max_size=4),
    ),
    max_size=12,
)


@given(
    st.sampled_from(["unix", "tcp"]),
    MESSAGES,
    st.lists(st.integers(1, 60) | st.integers(1, 30_000), min_size=1, max_size=20),
)
def test_any_chopping(scheme: str, messages: list[Any], sizes: list[int]) -> None:
    """Any messages arrive unchanged, however little the kernel takes and gives at a time."""
    if max(sizes) < 100:
        messages = [(tag, [piece[:500] for piece in pieces]) for tag, pieces in messages]
    with chopped(scheme, sizes) as (here, there):
        sending = in_thread(here.send, [Message(tag, pieces) for tag, pieces in messages], PATIENCE)
        for tag, pieces in messages:
            received = there.receive(PATIENCE)
            assert received is not None
            assert (received.tag, bytes(received.body)) == (tag, b"".join(pieces))
        sending.result()
        assert there.receive(0.0) is None


def test_forwarder(raw: Raw) -> None:
    """A forwarder between two channels that cuts anew and delays changes nothing."""
    (sender, out), (receiver, into) = raw(), raw()
    random = np.random.default_rng(5)
    bodies = [random.integers(0, 256, n, dtype=np.uint8).tobytes() for n in random.integers(0, 30_000, 60)]

    def forward() -> None:
        while chunk := out.recv(int(random.integers(1, 9000))):
            into.sendall(chunk)
        into.shutdown(socket.SHUT_WR)

    forwarding = in_thread(forward)
    sending = in_thread(sender.send, [Message(n, [body]) for n, body in enumerate(bodies)], PATIENCE)
    for number, body in enumerate(bodies):
        received = receiver.receive(PATIENCE)
        assert received is not None
        assert (received.tag, bytes(received.body)) == (number, body)
    sending.result()
    sender.close()
    forwarding.result()
    with pytest.raises(BrokenError):
        receiver.receive(PATIENCE)


def test_more_pieces_than_one_call_takes(raw: Raw) -> None:
    """Tens of thousands of pieces go out in several calls, whatever the kernel takes of each."""
    channel, peer = raw()
    pieces = [b"%06d" % n for n in range(30_000)]
    sending = in_thread(channel.send, [Message(TAG, pieces)], PATIENCE)
    got = bytearray()
    while len(got) < HEADER_BYTES + 6 * len(pieces):
        got += peer.recv(5000)
    sending.result()
    assert got == frame(b"".join(pieces))


def test_no_thread_is_started(raw: Raw) -> None:
    """A channel works with the threads of its callers."""
    before = set(threading.enumerate())
    channel, peer = raw()
    peer.sendall(frame(b"x"))
    channel.send([Message(None)], PATIENCE)
    channel.receive(PATIENCE)
    assert set(threading.enumerate()) <= before


def test_what_is_watched_becomes_readable(raw: Raw) -> None:
    """The descriptors of `watch` are readable once a message is there, not before; a closed channel has none."""
    channel, peer = raw()
    poll = select.poll()

    def register(fds: Sequence[int]) -> None:
        for fd in fds:
            poll.register(fd, select.POLLIN)

    assert channel.receive(0.0) is None
    assert channel.watch(register)
    assert not poll.poll(0)
    peer.sendall(frame(b"abc"))
    assert poll.poll(PATIENCE * 1000)
    received = channel.receive(0.0)
    assert received is not None
    assert bytes(received.body) == b"abc"
    assert not poll.poll(0)
    peer.close()
    assert poll.poll(PATIENCE * 1000)
    channel.close()
    with pytest.raises(ClosedError):
        channel.watch(register)
