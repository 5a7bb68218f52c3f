"""File descriptors on ``unix:``: which message they belong to, and that none is lost or left open."""

from __future__ import annotations

import array
import contextlib
import itertools
import os
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import BrokenError, LimitExceeded, ProtocolError, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Channel, Listener, Message, Peer
from bowstring.transport.descriptors import close_all
from bowstring.transport.header import pack_header
from bowstring.transport.unix import UnixChannel
from tests.transport.kit.harness import PATIENCE

TAG = 7
Raw = Callable[..., tuple[UnixChannel, socket.socket]]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def open_files() -> set[str]:
    # Less the one that lists them, which is closed by then.
    return {fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")}


def frame(body: bytes, attachments: int = 0, tag: int | None = TAG) -> bytes:
    return pack_header(tag, attachments, len(body)) + body


def send_raw(peer: socket.socket, data: bytes, count: int) -> None:
    with contextlib.ExitStack() as stack:
        fds = [memfd(stack, f"raw.{n}") for n in range(count)]
        peer.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def memfd(stack: contextlib.ExitStack, name: str) -> int:
    fd = os.memfd_create(name)
    stack.callback(os.close, fd)
    os.write(fd, name.encode())
    return fd


def names_of(attachments: tuple[Any, ...]) -> list[str]:
    """Read and close what was received."""
    names = [os.pread(fd, 100, 0).decode() for fd in attachments]
    close_all(attachments)
    return names


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 4), st.integers(0, 3000) | st.integers(0, 20_000)),
            min_size=1,
            max_size=5,
        ),
        max_size=5,
    ),
    st.lists(st.integers(1, 100) | st.integers(1, 9000), min_size=1, max_size=4),
)
def test_attribution(calls: list[list[tuple[int, int]]], reads: list[int]) -> None:
    """Each message gets its own descriptors, however messages are grouped into calls and read ahead."""
    before = open_files()
    near, far = socket.socketpair()
    with (
        UnixChannel(near, "unix:", Peer.at("a test"), DEFAULT_LIMITS) as here,
        UnixChannel(far, "unix:", Peer.at("a test"), DEFAULT_LIMITS) as there,
    ):
        read, sizes = there._recv, itertools.cycle(reads)
        there._recv = lambda view, *, wait: read(view[: next(sizes)], wait=wait)  # type: ignore[method-assign]  # less
        expected = []
        for number, call in enumerate(calls):
            with contextlib.ExitStack() as stack:
                messages = []
                for at, (count, size) in enumerate(call):
                    names = [f"{number}.{at}.{n}" for n in range(count)]
                    expected.append((size, names))
                    fds = tuple(memfd(stack, name) for name in names)
                    messages.append(Message(at if size % 2 else None, [bytes(size)], fds))
                here.send(messages, PATIENCE)
        for size, names in expected:
            received = there.receive(PATIENCE)
            assert received is not None
            assert received.body.nbytes == size
            assert names_of(received.attachments) == names
    assert open_files() == before


@pytest.mark.parametrize(("claimed", "sent"), [(0, 1), (1, 0), (2, 1), (1, 2), (253, 252)], ids=str)
@pytest.mark.parametrize("size", [0, 10, 50_000])
def test_wrong_count(raw: Raw, claimed: int, sent: int, size: int) -> None:
    """A header that tells another number of descriptors than came is refused, and they are closed."""
    channel, peer = raw()
    before = open_files()
    send_raw(peer, frame(bytes(size), claimed), sent)
    with pytest.raises(ProtocolError):
        channel.receive(PATIENCE)
    assert open_files() == before
    with pytest.raises(BrokenError):
        channel.receive(PATIENCE)


@pytest.mark.parametrize("size", [100, 50_000])
def test_inside_a_body(raw: Raw, size: int) -> None:
    """Descriptors that ride on the middle of a body belong to no message: they are refused and closed."""
    channel, peer = raw()
    before = open_files()
    whole = frame(bytes(size)) + frame(b"next")
    send_raw(peer, whole[: 24 + size // 2], 0)
    send_raw(peer, whole[24 + size // 2 :], 1)
    # Of a short body, read ahead in one go with what follows, it shows at the next message.
    with pytest.raises(ProtocolError):
        assert channel.receive(PATIENCE) is None or channel.receive(PATIENCE) is None
    assert open_files() == before


def test_not_claimed_for_the_next_message(raw: Raw) -> None:
    """Descriptors of a message that does not claim them never pass to the next one that does."""
    channel, peer = raw()
    send_raw(peer, frame(b"has them", 0), 1)
    send_raw(peer, frame(b"claims them", 1), 0)
    with pytest.raises(ProtocolError):
        channel.receive(PATIENCE)


def test_read_ahead_closed(raw: Raw) -> None:
    """Descriptors that were read ahead but never received are closed with the channel."""
    channel, peer = raw()
    before = open_files()
    send_raw(peer, frame(b"first"), 0)
    send_raw(peer, frame(b"second", 3), 3)
    assert channel.receive(PATIENCE) is not None
    assert len(open_files()) == len(before) + 3
    channel.close()
    # Less the socket and the pidfd of its peer.
    assert len(open_files()) == len(before) - 2


def test_closed_when_the_message_fails(raw: Raw) -> None:
    """Descriptors of a message whose body cannot land, or ends too early, are closed."""
    for keep_going in (True, False):
        channel, peer = raw()
        before = open_files()
        send_raw(peer, frame(bytes(100), 5)[: None if keep_going else 80], 5)
        if not keep_going:
            peer.shutdown(socket.SHUT_WR)

        def refuse(tag: int, nbytes: int) -> bytearray:
            raise LimitExceeded("not expected", found=(tag, nbytes))

        with pytest.raises(LimitExceeded if keep_going else BrokenError):
            channel.receive(PATIENCE, refuse if keep_going else None)
        assert open_files() == before


def test_borrowed(unix_pair: tuple[Channel, Channel]) -> None:
    """The sender keeps its descriptors, and the receiver's are copies that a new program does not inherit."""
    here, there = unix_pair
    with contextlib.ExitStack() as stack:
        fd = memfd(stack, "lent")
        here.send([Message(None, [], (fd, fd))], PATIENCE)
        received = there.receive(PATIENCE)
        assert received is not None
        copies: Any = received.attachments
        assert not any(os.get_inheritable(copy) for copy in copies)
        assert fd not in copies
        assert names_of(received.attachments) == ["lent", "lent"]
        assert os.pread(fd, 10, 0) == b"lent"


@pytest.mark.parametrize("bad", [object(), "1", True, -1, 1 << 40, 987_654])
def test_what_is_no_descriptor(unix_pair: tuple[Channel, Channel], bad: object) -> None:
    """What is no open descriptor is refused before anything is sent."""
    here, there = unix_pair
    with pytest.raises(UsageError):
        here.send([Message(None, [b"not sent"]), Message(None, [], (bad,))], PATIENCE)
    assert there.receive(0.0) is None


NO_ROOM = """
import os, resource, sys
from bowstring.errors import LimitExceeded
from bowstring.transport import dial
channel = dial(sys.argv[1])
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3, used + 3))
try:
    channel.receive(20.0)
except LimitExceeded as error:
    print("refused", len(os.listdir("/proc/self/fd")) - used, "ulimit" in str(error))
"""


def test_no_room_for_descriptors(spawn: Spawn, listening: Listener) -> None:
    """Where the kernel drops descriptors for want of room, the message is refused and the rest closed."""
    process = spawn(NO_ROOM, listening.uri)
    channel = listening.accept(PATIENCE)
    assert channel is not None
    with channel, contextlib.ExitStack() as stack:
        fds = tuple(memfd(stack, str(n)) for n in range(10))
        channel.send([Message(None, [b"x"], fds)], PATIENCE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"refused 0 True\n"
