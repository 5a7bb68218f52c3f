"""Connections without a token: they never take the descriptors that a process and its readers need."""

from __future__ import annotations

import contextlib
import os
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS, TLS, WAIT
from tests.faults.program import Program

TCP = "tcp://127.0.0.1:0"
TOKEN = "a token that is long enough"
FLOOD = 500
LIMIT = 160


@pytest.fixture
def connections(no_leaks: None) -> Iterator[list[socket.socket]]:
    """Return a list of sockets that are closed after the test."""
    found: list[socket.socket] = []
    yield found
    for each in found:
        each.close()


def place_of(uri: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(uri)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def held(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def rows(uri: str) -> int:
    with bow.connect(uri, limits=LIMITS) as stream:
        return stream.read_all().num_rows


@pytest.mark.parametrize(
    ("addresses", "taken"),
    [(TCP, 0), (TLS, 0), (f"{TCP} {TLS} {TCP}", 0), (f"unix: {TCP}", 0), (TCP, LIMIT - 40)],
    ids=["tcp", "tls", "three servers", "beside unix", "a process that holds many itself"],
)
def test_idle_connections_keep_nobody_out(
    run: Callable[..., Program],
    connections: list[socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    addresses: str,
    taken: int,
) -> None:
    """While far more connect than a process may open files, it opens files, and readers with a token are served."""
    monkeypatch.setenv("TESTS_TOKEN", TOKEN)
    program = run("besieged", addresses, str(LIMIT), str(taken))
    uris = program.hear().split()
    flooded = [uri for uri in uris if not uri.startswith("unix:")]
    for number in range(FLOOD):
        connections.append(socket.create_connection(place_of(flooded[number % len(flooded)]), WAIT))
        if number % 100 == 99:
            program.say()
            assert program.hear() == "ok"
            assert [rows(uri) for uri in uris] == [1000] * len(uris)
            assert held(program.pid) <= LIMIT - 8
    # Of those that do not speak only a share is kept: the others hear that they are not wanted.
    kept = sum(not hung_up(each) for each in connections)
    assert kept <= LIMIT // 4
    program.say()
    assert program.hear() == "ok"
    program.say("end")
    program.end()


def hung_up(sock: socket.socket) -> bool:
    """Whether the server has closed a connection."""
    sock.setblocking(False)
    with contextlib.suppress(ConnectionError):
        try:
            return not sock.recv(1)
        except BlockingIOError:
            return False
    return True


def test_idle_connections_keep_nobody_from_a_depot(
    run: Callable[..., Program], connections: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A depot that other hosts reach answers its clients and serves readers, whoever connects besides."""
    monkeypatch.setenv("TESTS_TOKEN", TOKEN)
    program = run("besieged", "depot", str(LIMIT), "0")
    control, data = program.hear().split()
    connections += [
        socket.create_connection(place_of((control, data)[number % 2]), WAIT) for number in range(FLOOD)
    ]
    with bow.depot.connect(address=control) as depot:
        pid = depot.status().pid
        assert held(pid) <= LIMIT - 8
        assert len(os.listdir(Path(f"/proc/{pid}/task"))) <= LIMIT
    program.say()
    assert program.hear() == "ok"
    program.say("end")
    program.end()
