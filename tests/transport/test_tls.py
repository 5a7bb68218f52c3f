"""``tls:``: who is trusted, what is said where somebody is not, and that nothing waits for ever."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pickle
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

import bowstring as bow
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Channel, Message, dial, encrypts, is_loopback, listen
from bowstring.transport.channel import Restriction
from bowstring.transport.header import pack_header
from tests.transport.certified import authority, serving, trusting
from tests.transport.kit.harness import PATIENCE, in_thread, next_from, pattern

pytestmark = pytest.mark.usefixtures("no_leaks")

LIMITS = DEFAULT_LIMITS.replace(stall_timeout=5.0)
HOST = "127.0.0.1"
YEAR = dt.timedelta(days=365)

Tls = bow.TlsConfig | ssl.SSLContext | None


@contextlib.contextmanager
def ends(
    server: Tls = None, client: Tls = None, address: str = "tls://127.0.0.1:0"
) -> Iterator[tuple[Channel, Channel]]:
    """Give both ends of a connection: the client's first."""
    with (
        listen(address, LIMITS, tls=server or serving()) as listener,
        dial(listener.uri, LIMITS, PATIENCE, tls=client or trusting()) as here,
    ):
        there = listener.accept(PATIENCE)
        assert there is not None
        with there:
            yield here, there


def outcome(call: Any, *arguments: Any) -> bow.BowstringError | None:
    """Return how a call ended: the error, or nothing."""
    try:
        call(*arguments)
    except bow.BowstringError as error:
        return error
    return None


def meet(here: Channel, there: Channel) -> tuple[bow.BowstringError | None, bow.BowstringError | None]:
    """Say something at the one end, wait for an answer, and return what both ends have to say of it."""

    def ask() -> None:
        here.send([Message(1, [b"a question"])], PATIENCE)
        next_from(here)

    def answer() -> None:
        try:
            received = next_from(there)
            there.send([Message(2, [bytes(received.body)])], PATIENCE)
        except bow.BowstringError:
            there.close()  # as a server does
            raise

    asking, answering = in_thread(outcome, ask), in_thread(outcome, answer)
    return asking.result(), answering.result()


def test_both_ends_meet() -> None:
    """With a certificate that the client trusts, for the host that it dialled, both ends hear each other."""
    with ends() as (here, there):
        assert meet(here, there) == (None, None)
        assert not here.certified
        assert not there.certified
        assert encrypts(here.address)


@pytest.mark.parametrize("address", ["tls://127.0.0.1:0", "tls://[::1]:0", "tls://localhost:0", "tls://"])
def test_the_host_is_what_was_dialled(address: str) -> None:
    """A certificate names the host, by name or by number; a listener's URI keeps the name."""
    with ends(address=address) as (here, there):
        assert meet(here, there) == (None, None)
        assert ("localhost" in here.address) == ("localhost" in address)
        assert is_loopback(here.address)


def test_clients_with_certificates() -> None:
    """A server that asks its clients for certificates knows those that have one of the authority."""
    config = bow.TlsConfig(cert=authority().issue(HOST), ca=authority().path)
    with ends(config, config) as (here, there):
        assert meet(here, there) == (None, None)
        assert there.certified
        assert not here.certified


def _hour(before: int, after: int) -> dict[str, dt.datetime]:
    now = dt.datetime.now(dt.UTC)
    return {"not_before": now + dt.timedelta(hours=before), "not_after": now + dt.timedelta(hours=after)}


WRONG = {
    "expired": lambda: authority().issue(HOST, **_hour(-2, -1)),
    "not valid yet": lambda: authority().issue(HOST, **_hour(1, 2)),
    "of another host": lambda: authority().issue("192.0.2.1", "example.org"),
    "of another authority": lambda: authority("another one").issue(HOST),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_certificate_of_the_server(wrong: str) -> None:
    """A certificate that is expired, of another host or of a stranger is refused, and both ends are told so."""
    with ends(bow.TlsConfig(cert=WRONG[wrong]())) as (here, there):
        client, server = meet(here, there)
        assert isinstance(client, bow.AccessDenied)
        assert "certificate of the server" in str(client)
        assert "TlsConfig(ca=…)" in str(client)
        assert isinstance(server, bow.AccessDenied)
        assert "certificate of this end" in str(server)


def test_the_system_trusts_nobody_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word a client trusts the authorities of its system, which ``SSL_CERT_FILE`` names, and no other."""
    for path, trusted in ((authority("another one").path, False), (authority().path, True)):
        monkeypatch.setenv("SSL_CERT_FILE", path)
        with ends(client=bow.TlsConfig()) as (here, there):
            assert (meet(here, there) == (None, None)) == trusted


@pytest.mark.parametrize("wrong", [None, "expired", "of another authority"])
def test_a_wrong_certificate_of_the_client(wrong: str | None) -> None:
    """A client without a certificate, or with a wrong one, is refused where one is asked for; both are told so."""
    shown = None if wrong is None else WRONG[wrong]()
    asking = bow.TlsConfig(cert=authority().issue(HOST), ca=authority().path)
    with ends(asking, bow.TlsConfig(cert=shown, ca=authority().path)) as (here, there):
        client, server = meet(here, there)
        assert isinstance(server, bow.AccessDenied)
        assert "client" in str(server)
        assert not there.certified
        assert isinstance(client, bow.AccessDenied)
        assert "TlsConfig(cert=…, key=…)" in str(client)


@pytest.mark.parametrize("dialled", ["tls", "tcp"])
def test_the_other_end_speaks_something_else(dialled: str) -> None:
    """Plain TCP and TLS do not understand each other, and both ends say so."""
    offered = "tcp" if dialled == "tls" else "tls"
    with listen(f"{offered}://", LIMITS, tls=serving() if offered == "tls" else None) as listener:
        address = listener.uri.replace(offered, dialled, 1)
        with dial(address, LIMITS, PATIENCE, tls=trusting()) as here:
            there = listener.accept(PATIENCE)
            assert there is not None
            with there:
                client, server = meet(here, there)
                assert isinstance(server, bow.ProtocolError)
                assert isinstance(client, bow.BrokenError)
                assert "tls:" in str(server)
                assert dialled == "tcp" or "tls:" in str(client)


def test_older_versions_are_refused() -> None:
    """TLS 1.2 is refused by either end, whatever an SSLContext of the user's allows."""
    client = trusting().for_client()
    client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_2
    with ends(client=client) as (here, there):
        assert all(isinstance(error, bow.ProtocolError) for error in meet(here, there))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority().issue(HOST))
    with ends(server=server, client=client) as (here, there):
        assert isinstance(meet(here, there)[0], bow.ProtocolError)


def test_contexts_of_the_user() -> None:
    """An ``ssl.SSLContext`` of the right side does as well as a ``TlsConfig``; one of the other side is refused."""
    server, client = serving().for_server(), trusting().for_client()
    with ends(server, client) as (here, there):
        assert meet(here, there) == (None, None)
    with pytest.raises(bow.UsageError, match="server"):
        listen("tls://", tls=client)
    with listen("tls://", tls=server) as listener, pytest.raises(bow.UsageError, match="client"):
        dial(listener.uri, tls=server)


@pytest.fixture
def encrypted_key(tmp_path: Path) -> str:
    """Return a file with a certificate and an encrypted key."""
    blob = authority().ca.issue_cert(HOST)
    key = serialization.load_pem_private_key(blob.private_key_pem.bytes(), None)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    path = tmp_path / "secret.pem"
    path.write_bytes(secret + blob.cert_chain_pems[0].bytes())
    return str(path)


def test_files_that_are_none(tmp_path: Path, encrypted_key: str) -> None:
    """Files that are missing, empty, of somebody else's key or encrypted are an error of their user, at once."""
    empty = tmp_path / "empty.pem"
    empty.touch()
    one, other = (authority().issue(HOST) for _ in range(2))
    wrong: list[dict[str, Any]] = [
        {},
        {"cert": tmp_path / "missing"},
        {"cert": empty},
        {"cert": tmp_path},
        {"cert": encrypted_key},
        {"cert": one, "ca": empty},
        {"cert": one, "ca": "/not/there"},
    ]
    for each in wrong:
        with pytest.raises(bow.UsageError):
            listen("tls://", tls=bow.TlsConfig(**each))
    key = tmp_path / "key.pem"
    key.write_text(Path(other).read_text().partition("-----BEGIN CERT")[0])
    with pytest.raises(bow.UsageError, match="belong together"):
        listen("tls://", tls=bow.TlsConfig(cert=one, key=key))
    for bad in ({"key": one}, {"cert": 5}, {"ca": b"bytes"}):
        with pytest.raises(bow.UsageError):
            bow.TlsConfig(**bad)
    with pytest.raises(bow.UsageError, match="TlsConfig"):
        listen("tls://", tls="cert.pem")  # type: ignore[arg-type]  # that is the point


def test_certificates_are_for_tls() -> None:
    """Who gives certificates never has a connection over a network that is not encrypted."""
    for address in ("tcp://", "unix:", "inproc:"):
        with pytest.raises(bow.UsageError):
            listen(address, tls=serving())
    with pytest.raises(bow.AccessDenied, match="not be encrypted"):
        dial("tcp://192.0.2.1:4711", tls=trusting())
    with listen("tcp://") as listener, dial(listener.uri, tls=trusting()):
        pass


def test_a_config_pickles() -> None:
    """A ``TlsConfig`` is paths, and goes to other processes."""
    config = bow.TlsConfig(cert="a", ca=Path("b"))
    assert pickle.loads(pickle.dumps(config)) == config


@contextlib.contextmanager
def raw_client() -> Iterator[tuple[socket.socket, Channel]]:
    """Give a plain socket, and the server's end of its connection."""
    with listen("tls://", LIMITS, tls=serving()) as listener:
        port = int(listener.uri.rpartition(":")[2])
        with socket.create_connection((HOST, port), PATIENCE) as sock:
            there = listener.accept(PATIENCE)
            assert there is not None
            with there:
                yield sock, there


def test_a_handshake_that_never_ends() -> None:
    """A client that begins a handshake and says no more is waited for no longer than was allowed."""
    with raw_client() as (sock, there):
        began = time.monotonic()
        there.restriction = Restriction(time.monotonic() + PATIENCE)
        assert there.receive(0.2) is None
        sock.sendall(b"\x16\x03\x01")
        assert there.receive(0.2) is None
        with pytest.raises(bow.DeadlineExceeded):
            there.send([Message(None, [b"hello"])], 0.3)
        assert time.monotonic() - began < PATIENCE


def test_a_handshake_without_bounds() -> None:
    """A client that is not let in sends a few kilobytes beside its messages, and no more: not in a handshake, …"""
    with raw_client() as (sock, there):
        there.restriction = Restriction(time.monotonic() + PATIENCE)
        # A hello that says it is as long as one may be, in records of the largest size.
        record = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + os.urandom(0x3FFC)
        sending = in_thread(outcome, lambda: sock.sendall(record * 4))
        with pytest.raises((bow.LimitExceeded, bow.ProtocolError)):
            next_from(there)
        there.close()
        with contextlib.suppress(OSError):
            sending.result()


def test_many_small_records() -> None:
    """… and not in records of a byte each."""
    with raw_client() as (sock, there):
        there.restriction = Restriction(time.monotonic() + PATIENCE, None)

        def trickle() -> None:
            with (
                contextlib.suppress(OSError),
                trusting().for_client().wrap_socket(sock, server_hostname=HOST) as client,
            ):
                for byte in pack_header(None, 0, 100_000) + bytes(100_000):
                    client.send(bytes([byte]))

        sending = in_thread(trickle)
        with pytest.raises(bow.LimitExceeded, match="beside"):
            next_from(there)
        there.close()
        sending.result()


def test_a_record_that_was_changed() -> None:
    """A byte that changes on the way breaks the connection: it is never taken for data."""
    with listen("tls://", LIMITS, tls=serving()) as listener, socket.create_server((HOST, 0)) as between:
        port = int(listener.uri.rpartition(":")[2])
        with (
            dial(f"tls://{HOST}:{between.getsockname()[1]}", LIMITS, PATIENCE, tls=trusting()) as here,
            between.accept()[0] as near,
            socket.create_connection((HOST, port), PATIENCE) as far,
        ):
            there = listener.accept(PATIENCE)
            assert there is not None

            def carry(source: socket.socket, target: socket.socket, spoilt: int) -> None:
                position = 0
                with contextlib.suppress(OSError):
                    while data := bytearray(source.recv(1 << 16)):
                        if position <= spoilt < position + len(data):
                            data[spoilt - position] ^= 1
                        position += len(data)
                        target.sendall(data)
                    target.shutdown(socket.SHUT_WR)

            carrying = [in_thread(carry, near, far, 50_000), in_thread(carry, far, near, -1)]
            with there:
                sending = in_thread(outcome, here.send, [Message(7, [pattern(1, 100_000)])], PATIENCE)
                with pytest.raises(bow.ProtocolError, match="record"):
                    next_from(there)
            sending.result()
            here.close()
            for each in (near, far):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            for thread in carrying:
                thread.result()


def test_a_cut_is_no_end() -> None:
    """A connection that is cut, without the peer's close, is broken; what had arrived whole can be read."""
    with ends() as (here, there):
        assert meet(here, there) == (None, None)
        here.send([Message(1, [b"whole"])], PATIENCE)
        here._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]  # as a network does
        assert bytes(next_from(there).body) == b"whole"
        with pytest.raises(bow.BrokenError):
            next_from(there)


def test_keys_change_on_the_way() -> None:
    """Records of the protocol itself, such as new session tickets, are no messages."""
    server = serving().for_server()
    server.num_tickets = 7
    with ends(server) as (here, there):
        for _ in range(3):
            assert meet(here, there) == (None, None)
