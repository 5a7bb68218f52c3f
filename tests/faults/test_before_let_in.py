"""Peers that were not let in yet: a few kilobytes and one deadline, whatever they send."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import time
import urllib.parse
from collections.abc import Callable

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.endpoint import Endpoint
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.tables import table_of
from tests.peer.raw import RawReader, SocketReader
from tests.peer.wire import header

TCP = "tcp://127.0.0.1:0"
MIB = 1 << 20


def dialled(endpoint: Endpoint) -> socket.socket:
    """Return a plain socket that is connected to a server."""
    parts = urllib.parse.urlsplit(endpoint.locations[0].address)
    assert parts.hostname is not None
    sock = socket.create_connection((parts.hostname, parts.port or 0), WAIT)
    sock.settimeout(WAIT)
    return sock


def hung_up(sock: socket.socket) -> bool:
    """Read until the server hangs up."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    return True


def resident() -> int:
    """Return the bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("tag", [None, 1, 1 << 56 | 1, int(Want.HELLO), int(Control.PING)], ids=str)
def test_a_claim_takes_no_memory(serve: Callable[..., bow.Server], tag: int | None) -> None:
    """A connection that was not let in and announces a large message is closed at once, and cost no memory."""
    server = serve(TCP)
    endpoint = server.publish("t", table_of())
    before = resident()
    nbytes = 64 * MIB if tag is None or tag >> 57 == 0 else 200_000
    sockets = [dialled(endpoint) for _ in range(8)]
    for sock in sockets:
        sock.sendall(header(tag, nbytes) + b"x")
    for sock in sockets:
        assert hung_up(sock)
    assert resident() - before < 64 * MIB
    for sock in sockets:
        sock.close()
    until(lambda: server.stats.connections == 0, "the sessions end")


@pytest.mark.parametrize("what", ["a header", "a hello", "a ticket"])
def test_one_deadline(serve: Callable[..., bow.Server], between_processes: str, what: str) -> None:
    """Who sends byte after byte, and never all, is cut off `connect_timeout` after it connected."""
    server = serve(between_processes, limits=LIMITS.replace(connect_timeout=0.5))
    endpoint = server.publish("t", table_of())
    hello = Hello().pack()
    begun, rest = {
        "a header": (b"", header(Want.HELLO, 3000)),
        "a hello": (header(Want.HELLO, 3000), bytes(2999)),
        "a ticket": (
            header(Want.HELLO, len(hello)) + hello + header(Want.DATA, 3000),
            bytes(2999),
        ),
    }[what]
    with SocketReader(endpoint) as reader:
        if begun:
            reader.push(begun)
        cut_off = select.poll()
        cut_off.register(reader.sock, select.POLLRDHUP | select.POLLHUP)
        end = time.monotonic() + WAIT
        pause = 20 if len(rest) > 100 else 400
        for each in rest[:-1]:
            assert time.monotonic() < end, "it is not cut off"
            if cut_off.poll(pause):
                break
            with contextlib.suppress(OSError):  # cut off just now
                reader.push(bytes([each]))
        assert cut_off.poll(0)
    until(lambda: server.stats.connections == 0, "the session ends")


def test_a_few_kilobytes_in_all(serve: Callable[..., bow.Server]) -> None:
    """More than 4 KiB before a connection is let in end it, however they are divided into messages."""
    server = serve(TCP, token=secrets.token_urlsafe())
    endpoint = server.publish("t", table_of())
    with RawReader(endpoint) as reader:
        reader.say(Want.HELLO, Hello(token="x" * 5000).pack())
        reader.hear_error()
    until(lambda: server.stats.connections == 0, "the session ends")
    with RawReader(endpoint) as reader:
        reader.say(Want.DATA, bytes(4090))
        reader.hear_error()
    until(lambda: server.stats.connections == 0, "the session ends")


def test_a_wrong_token_is_refused_at_once(serve: Callable[..., bow.Server]) -> None:
    """A hello with a wrong token is answered before anything else is read."""
    server = serve(TCP, token=secrets.token_urlsafe())
    with RawReader(server.publish("t", table_of())) as reader:
        reader.hello(token="wrong")
        assert b"access_denied" in reader.hear_error()


@pytest.mark.parametrize("token", [None, "a token of many characters"])
def test_thousands_of_columns_can_be_asked_for(
    serve: Callable[..., bow.Server], address: str, token: str | None
) -> None:
    """A reader may name far more columns than 4 KiB hold: they are read after it was let in."""
    names = [f"a column with a long name {number}" for number in range(3000)]
    table = pa.table({name: [number] for number, name in enumerate(names)})
    server = serve(address, token=token)
    endpoint = server.publish("t", table)
    with bow.connect(endpoint, columns=names[::-2], limits=LIMITS) as stream:
        assert stream.read_all().equals(table.select(names[::-2]))
