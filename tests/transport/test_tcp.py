"""Addresses of ``tcp:``, who can reach them, and how long dialling may take."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import BrokenError, DeadlineExceeded, ProtocolError, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Message, dial, is_loopback, listen
from bowstring.transport.header import pack_header
from bowstring.transport.tcp import TcpChannel
from tests.transport.kit.harness import PATIENCE, SOON


@given(st.ip_addresses(), st.integers(0, 65_535))
def test_is_loopback(host: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    """An address is loopback exactly when the network of its family says so, also behind an IPv4-mapped one."""
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    expected = (mapped or host).is_loopback
    spelled = f"[{host}]" if host.version == 6 else str(host)
    assert is_loopback(f"tcp://{spelled}:{port}") == expected
    if isinstance(host, ipaddress.IPv4Address):
        assert is_loopback(f"tcp://[::ffff:{host}]:{port}") == host.is_loopback


@pytest.mark.parametrize("allowed", [True, False])
def test_between_two_of_one_machine_nothing_is_paced(monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    """Connections within a machine do not look for a bottleneck of a network, where the kernel lets them choose."""
    if not allowed:
        forbidding = type("Forbidding", (socket.socket,), {"setsockopt": _forbid})
        monkeypatch.setattr(socket, "socket", forbidding)
    with listen("tcp://") as listener, dial(listener.uri) as near:
        far = listener.accept(PATIENCE)
        for channel in (near, far):
            assert isinstance(channel, TcpChannel)
            found = channel._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert not allowed or found.rstrip(b"\0") == b"reno"
        near.send([Message(1, [b"x"])], PATIENCE)
        assert far is not None
        with far:
            received = far.receive(PATIENCE)
            assert received is not None
            assert bytes(received.body) == b"x"


def test_a_peer_that_is_gone_when_it_is_accepted() -> None:
    """A connection that was reset before it was accepted is a connection that broke, and the next one is taken."""
    with listen("tcp://") as listener:
        address = listener.uri.removeprefix("tcp://").rpartition(":")
        with socket.create_connection((address[0], int(address[2]))) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first = listener.accept(PATIENCE)
        if first is not None:  # some kernels forget what was reset
            with first, pytest.raises(BrokenError):
                first.receive(PATIENCE)
        with dial(listener.uri) as near:
            second = listener.accept(PATIENCE)
            assert second is not None
            with second:
                near.send([Message(1, [b"x"])], PATIENCE)
                received = second.receive(PATIENCE)
                assert received is not None


def _forbid(self: socket.socket, level: int, option: int, value: int | bytes) -> None:
    if (level, option) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION):
        raise PermissionError(errno.EPERM, "not allowed")
    super(type(self), self).setsockopt(level, option, value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://", True),
        ("tcp://:4711", True),
        ("tcp://localhost:4711", True),
        ("tcp://0.0.0.0:4711", False),
        ("tcp://[::]:4711", False),
    ],
)
def test_is_loopback_of_names(address: str, expected: bool) -> None:
    """What is left out is loopback, the wildcard is not."""
    assert is_loopback(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        "tcp:",
        "tcp:127.0.0.1:1",
        "tcp://127.0.0.1:1/path",
        "tcp://127.0.0.1:1?token=x",
        "tcp://127.0.0.1:1#x",
        "tcp://user@127.0.0.1:1",
        "tcp://127.0.0.1:x",
        "tcp://127.0.0.1:70000",
        "tcp://[::1:1",
        "tcp://no-such-host.invalid:1",
    ],
)
def test_bad_addresses(address: str) -> None:
    """An address is a host and a port, and nothing else."""
    for call in (is_loopback, listen, dial):
        with pytest.raises(UsageError):
            call(address)


def test_default_is_loopback(no_leaks: None) -> None:
    """Where no host is named, nobody off this machine can connect, and the uri tells the port."""
    with listen("tcp://") as listener:
        assert is_loopback(listener.uri)
        assert int(listener.uri.rpartition(":")[2]) > 0
    with listen("tcp://localhost:0") as listener:
        assert is_loopback(listener.uri)


def test_wildcard(no_leaks: None) -> None:
    """A wildcard is bound when it is named, and its uri does not pass for loopback."""
    with listen("tcp://0.0.0.0:0") as listener:
        assert not is_loopback(listener.uri)
        with dial(listener.uri.replace("0.0.0.0", "127.0.0.1")), listener.accept(PATIENCE) as there:  # type: ignore[union-attr]  # it waits
            assert "127.0.0.1:" in there.peer.description


def test_ipv6(no_leaks: None) -> None:
    """An IPv6 address is spelled in brackets, in the uri and in descriptions."""
    with listen("tcp://[::1]:0") as listener:
        assert listener.uri.startswith("tcp://[::1]:")
        with dial(listener.uri) as here, listener.accept(PATIENCE) as there:  # type: ignore[union-attr]  # it waits
            assert str(here).startswith(f"{listener.uri} ([::1]:")
            assert "[::1]:" in str(there)


def test_cannot_listen(no_leaks: None) -> None:
    """A port in use, or an address of another machine, is told with its cause."""
    with listen("tcp://") as listener, pytest.raises(UsageError) as caught:
        listen(listener.uri)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EADDRINUSE
    with pytest.raises(UsageError):
        listen("tcp://192.0.2.1:0")


def test_nobody_listens(no_leaks: None) -> None:
    """A port where nobody listens is told from a host that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BrokenError):
        dial(f"tcp://127.0.0.1:{port}")
    with pytest.raises(UsageError):
        dial("tcp://127.0.0.1")


def test_no_answer(no_leaks: None) -> None:
    """A server whose queue of connections is full is waited for until the deadline."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        place = server.getsockname()
        with contextlib.ExitStack() as stack:

            def fill() -> None:
                for _ in range(20):
                    stack.enter_context(dial(f"tcp://127.0.0.1:{place[1]}", deadline=SOON))

            with pytest.raises(DeadlineExceeded):
                fill()


def test_not_connected_to_itself(no_leaks: None) -> None:
    """Dialling a free port from that very port, which TCP allows, is no connection."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = probe.getsockname()
        probe.connect(place)  # the kernel's trap is there
    with pytest.raises(BrokenError):
        dial(f"tcp://127.0.0.1:{place[1]}")


def test_reset(no_leaks: None) -> None:
    """A connection that is reset is broken, in words and with its cause."""
    with listen("tcp://") as listener:
        host, _, port = listener.uri.removeprefix("tcp://").rpartition(":")
        peer = socket.create_connection((host, int(port)))
        with listener.accept(PATIENCE) as channel:  # type: ignore[union-attr]  # it waits in line
            peer.sendall(pack_header(7, 0, 1000))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            with pytest.raises(BrokenError, match="reset"):
                channel.receive(PATIENCE)
            with pytest.raises(BrokenError):
                channel.send([Message(None)], PATIENCE)


def test_attachments_are_refused(no_leaks: None) -> None:
    """A header that claims descriptors, which TCP cannot carry, is a violation of the protocol."""
    with listen("tcp://", DEFAULT_LIMITS) as listener:
        host, _, port = listener.uri.removeprefix("tcp://").rpartition(":")
        with (
            socket.create_connection((host, int(port))) as peer,
            listener.accept(PATIENCE) as channel,  # type: ignore[union-attr]  # it waits in line
        ):
            peer.sendall(pack_header(None, 1, 0))
            with pytest.raises(ProtocolError):
                channel.receive(PATIENCE)


def test_small_messages_are_not_held_back(no_leaks: None) -> None:
    """Both ends send at once what they are given."""
    with listen("tcp://") as listener, dial(listener.uri) as here, listener.accept(PATIENCE) as there:  # type: ignore[union-attr]  # it waits
        for end in (here, there):
            assert isinstance(end, TcpChannel)
            assert end._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_host_that_is_gone_is_noticed(no_leaks: None) -> None:
    """Both ends let their kernels ask, within minutes, whether the other one is there."""
    with listen("tcp://") as listener, dial(listener.uri) as here, listener.accept(PATIENCE) as there:  # type: ignore[union-attr]  # it waits
        for end in (here, there):
            assert isinstance(end, TcpChannel)
            asked = [
                end._sock.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            ]
            assert end._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert asked[0] + asked[1] * asked[2] <= 120
