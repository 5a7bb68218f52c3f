"""Peers that are killed, stopped, or leave a child behind, each at every step."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bowstring.errors import BrokenError, DeadlineExceeded, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Channel, Message, Peer, listen
from bowstring.transport import peer as peer_module
from tests.transport.kit.harness import MIB, PATIENCE, SOON, in_thread

Spawn = Callable[..., "subprocess.Popen[bytes]"]
Visit = Callable[..., tuple[Channel, "subprocess.Popen[bytes]"]]

# A peer that speaks by plain sockets, so that a fork of it keeps its connection: Bowstring's own lets go.
VISITOR = """
import os, socket, sys, urllib.parse
address, sent, forks = sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3] == "forks"
if address.startswith("unix:"):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(address[5:])
else:
    parts = urllib.parse.urlsplit(address)
    sock = socket.create_connection((parts.hostname, parts.port))
sock.sendall(sent)
if not forks or os.fork():
    print("ready", flush=True)
sys.stdin.read()
"""
HEADER = bytes.fromhex("424f5701010000000700000000000000e803000000000000")  # tag 7, 1000 bytes


@pytest.fixture(params=["unix:", "tcp://"])
def visit(request: pytest.FixtureRequest, spawn: Spawn) -> Iterator[Visit]:
    """Return a function that starts a visitor and gives our end of its connection."""
    open_channels = []
    limits = DEFAULT_LIMITS.replace(stall_timeout=SOON)
    with listen(request.param, limits) as listener:

        def start(sent: bytes = b"", *, forks: bool = False) -> tuple[Channel, subprocess.Popen[bytes]]:
            process = spawn(VISITOR, listener.uri, sent.hex(), "forks" if forks else "")
            channel = listener.accept(PATIENCE)
            assert channel is not None
            open_channels.append(channel)
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            return channel, process

        yield start
    for channel in open_channels:
        channel.close()


def fill(channel: Channel) -> None:
    channel.send([Message(1, [bytes(MIB)])] * 1000, SOON)


@pytest.mark.parametrize("sent", [b"", HEADER[:10], HEADER, HEADER + bytes(500)], ids=len)
def test_killed(visit: Visit, sent: bytes) -> None:
    """A peer that is killed between messages, in a header or in a body is a broken connection."""
    channel, process = visit(sent)
    process.kill()
    with pytest.raises(BrokenError):
        channel.receive(PATIENCE)
    with pytest.raises(BrokenError):
        fill(channel)


def test_killed_while_we_send(visit: Visit) -> None:
    """A peer that is killed while a sender waits for room is a broken connection."""
    channel, process = visit()
    os.kill(process.pid, signal.SIGSTOP)
    process.kill()
    with pytest.raises(BrokenError):
        channel.send([Message(1, [bytes(MIB)])] * 1000, PATIENCE)


@pytest.mark.parametrize("sent", [b"", HEADER[:10], HEADER, HEADER + bytes(500)], ids=len)
def test_stopped(visit: Visit, sent: bytes) -> None:
    """A peer that is stopped is nothing to wait for between messages, and a stall inside one."""
    channel, process = visit(sent)
    os.kill(process.pid, signal.SIGSTOP)
    if not sent:
        assert channel.receive(SOON) is None
        assert not channel.peer.exited(0.0)
        return
    with pytest.raises(DeadlineExceeded):
        channel.receive(PATIENCE)
    with pytest.raises(BrokenError):
        channel.receive(PATIENCE)


def test_stopped_while_we_send(visit: Visit) -> None:
    """A stopped peer ends a send after its deadline."""
    channel, process = visit()
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(DeadlineExceeded):
        fill(channel)


@pytest.mark.parametrize("visit", ["unix:"], indirect=True)
class TestDescendants:
    """On ``unix:`` the process counts, not who else holds its socket."""

    @pytest.mark.parametrize("sent", [b"", HEADER[:10], HEADER, HEADER + bytes(500)], ids=len)
    def test_killed(self, visit: Visit, sent: bytes) -> None:
        """A killed peer is gone although a child of it keeps the connection open."""
        channel, process = visit(sent, forks=True)
        process.kill()
        assert channel.peer.exited(PATIENCE)
        with pytest.raises(BrokenError):
            channel.receive(PATIENCE)

    def test_killed_while_we_send(self, visit: Visit) -> None:
        """The same where we wait for room to send."""
        channel, process = visit(forks=True)
        process.kill()
        with pytest.raises(BrokenError):
            channel.send([Message(1, [bytes(MIB)])] * 1000, PATIENCE)

    def test_last_words(self, visit: Visit) -> None:
        """What the killed peer had sent is received before its end is told."""
        whole = HEADER[:16] + (5).to_bytes(8, "little") + b"words"
        channel, process = visit(3 * whole, forks=True)
        process.kill()
        process.wait(PATIENCE)
        for _ in range(3):
            received = channel.receive(PATIENCE)
            assert received is not None
            assert bytes(received.body) == b"words"
        with pytest.raises(BrokenError):
            channel.receive(PATIENCE)


@pytest.mark.parametrize("sends", [False, True])
def test_killed_where_it_stalled_too(spawn: Spawn, sends: bool) -> None:
    """That its process is gone is what is told, also where all patience is over by the time that it is seen."""
    with listen("unix:", DEFAULT_LIMITS.replace(stall_timeout=1e-6)) as listener:
        process = spawn(VISITOR, listener.uri, (HEADER + bytes(500)).hex(), "forks")
        with listener.accept(PATIENCE) as channel:  # type: ignore[union-attr]
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.kill()
            assert channel.peer.exited(PATIENCE)
            with pytest.raises(BrokenError):
                channel.send([Message(1, [bytes(MIB)])] * 1000, 0.0) if sends else channel.receive(PATIENCE)


def test_identity(visit: Visit) -> None:
    """A Unix socket knows its peer's process and user; TCP knows an address and never claims an end."""
    channel, process = visit()
    peer = channel.peer
    if channel.scheme == "unix":
        assert (peer.pid, peer.uid) == (process.pid, os.geteuid())
        assert str(process.pid) in str(channel)
    else:
        assert (peer.pid, peer.uid) == (None, None)
        assert "127.0.0.1:" in peer.description
    assert not peer.exited(0.0)
    process.kill()
    process.wait(PATIENCE)
    assert peer.exited(PATIENCE if channel.scheme == "unix" else 0.0) == (channel.scheme == "unix")
    with pytest.raises(UsageError):
        peer.exited(float("inf"))
    channel.close()
    assert peer.exited(PATIENCE) == (channel.scheme == "unix")


@pytest.mark.parametrize("visit", ["unix:"], indirect=True)
def test_closed_peer_is_not_waited_for(visit: Visit) -> None:
    """After the channel was closed, a living process stays unknown: ``exited`` does not look any more."""
    channel, process = visit()
    channel.close()
    process.kill()
    process.wait(PATIENCE)
    assert not channel.peer.exited(PATIENCE)
    assert channel.peer.pidfd is None


@pytest.fixture
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take ``SO_PEERPIDFD`` away."""
    ask = socket.socket.getsockopt

    def asked(self: socket.socket, level: int, option: int, *size: int) -> Any:
        if (level, option) == (socket.SOL_SOCKET, 77):
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")
        return ask(self, level, option, *size)

    monkeypatch.setattr(socket.socket, "getsockopt", asked)


@pytest.mark.parametrize("visit", ["unix:"], indirect=True)
def test_old_kernel(old_kernel: None, visit: Visit) -> None:
    """Without ``SO_PEERPIDFD`` the process number is used, and the end is seen all the same."""
    channel, process = visit(forks=True)
    assert channel.peer.pidfd is not None
    assert not channel.peer.exited(0.0)
    process.kill()
    assert channel.peer.exited(PATIENCE)
    with pytest.raises(BrokenError):
        channel.receive(PATIENCE)


def test_number_given_anew(no_leaks: None, old_kernel: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that started after the connection was known is not the peer: the peer is gone."""
    near, far = socket.socketpair()
    with near, far:
        far_future = f"1 (python) S{' 0' * 18} {1 << 62}".encode()
        monkeypatch.setattr(peer_module, "open", lambda *_: io.BytesIO(far_future), raising=False)
        assert Peer.of_socket(near).exited(0.0)
        monkeypatch.setattr(peer_module, "open", lambda *_: io.BytesIO(b"no such file"), raising=False)
        unknown = Peer.of_socket(near)
        assert unknown.pidfd is None
        assert not unknown.exited(0.0)


def test_gone_before_it_was_looked_for(no_leaks: None, spawn: Spawn, old_kernel: None) -> None:
    """A peer whose process number stands for nobody any more is known to be gone."""
    with listen("unix:") as listener:
        process = spawn(VISITOR, listener.uri, "", "forks")
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait(PATIENCE)
        with listener.accept(PATIENCE) as channel:  # type: ignore[union-attr]  # it waits in line
            assert channel.peer.exited(0.0)


def test_waiting_sees_the_end(visit: Visit) -> None:
    """A receiver that already waits is woken by the peer's death."""
    channel, process = visit()
    waiting = in_thread(channel.receive, PATIENCE)
    with contextlib.suppress(AssertionError):
        waiting.result(SOON)
    process.kill()
    with pytest.raises(BrokenError):
        waiting.result()


def test_nobody_waits_for_the_end_of_this_process(unix_pair: tuple[Channel, Channel]) -> None:
    """A peer in this process is known to live at once, however long its end may be waited for."""
    assert not unix_pair[0].peer.exited(1000.0)  # longer than any test may run


def test_a_number_that_is_noted_does_not_hold_a_peer(unix_pair: tuple[Channel, Channel]) -> None:
    """What a loop notes of a peer that it watches keeps no descriptor open once the peer is closed."""
    peer, noted = unix_pair[0].peer, list[int]()

    def what() -> str:
        with contextlib.suppress(FileNotFoundError):
            return os.readlink(f"/proc/self/fd/{noted[0]}")
        return ""

    assert peer.watch(noted.extend)
    assert "pidfd" in what()
    peer.close()
    assert "pidfd" not in what()
    assert not peer.watch(noted.extend)
