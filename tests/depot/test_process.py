"""The depot's process: who comes in, and how it ends."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bowstring as bow
from bowstring.depot.daemon import new_depot
from bowstring.depot.launch import Paths
from bowstring.depot.protocol import DEPOT_LIMITS, DepotConnection, Verb
from bowstring.depot.service import DepotProcess
from bowstring.transport import dial
from bowstring.transport.descriptors import close_all
from bowstring.transport.listener import SocketListener
from tests.depot.conftest import MIB, WAIT, Connect, commit, read, runs, until

process = importlib.import_module("bowstring.depot.daemon")


@pytest.fixture
def here(folder: str) -> Iterator[DepotProcess]:
    """Return a depot that lives in this process."""
    depot = new_depot(Paths(folder), bow.depot.Options(memory_budget=1, disk_budget=0))
    yield depot
    depot.stop()
    depot.run()


def test_clients_are_served_where_no_thread_is_left(
    here: DepotProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread can be started clients are served, those that wait, too."""

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("bowstring.transport.loop.run_in_thread", fail)
        with contextlib.closing(DepotConnection(here.paths.control, WAIT)) as client:
            client.ask(
                Verb.BEGIN,
                {"application": "app", "dataset": "d", "partition": 0, "attempt": 0, "mapped": b""},
                WAIT,
            )
            with pytest.raises(bow.DeadlineExceeded, match="still read"):
                client.ask(Verb.WAIT_RELEASED, {"dataset": "d", "timeout": 0.1}, WAIT)
            assert client.ask(Verb.RELEASE, {"dataset": "d"}, WAIT).fields["known"]
    DepotConnection(here.paths.control, WAIT).close()


def test_what_goes_wrong_later_is_written_to_no_other_file(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipe of the start is closed once a depot is ready: whatever has its number then is not written."""
    heard, told = os.pipe()
    other = (tmp_path / "slab").open("wb", 0)

    def ends(*_: Any, ready: Any) -> None:
        ready(None)
        os.dup2(other.fileno(), told)
        raise FileNotFoundError("the folder is gone")

    monkeypatch.setattr(process, "serve", ends)
    try:
        with pytest.raises(FileNotFoundError, match="folder is gone"):
            process.run(folder, "{}", told)
        assert os.read(heard, 99) == b"ready"
        os.write(told, b"its own")
        assert (tmp_path / "slab").read_bytes() == b"its own"
    finally:
        other.close()
        os.close(heard)
        os.close(told)


def test_clients_have_no_threads(connect: Connect) -> None:
    """A depot with a hundred clients, some of which have written, has few threads; each of them is answered."""
    depot = connect()
    assert depot.pid is not None

    def threads() -> int:
        return len(os.listdir(f"/proc/{depot.pid}/task"))

    with contextlib.ExitStack() as clients:
        many = [
            clients.enter_context(contextlib.closing(DepotConnection(depot.address, WAIT)))
            for _ in range(100)
        ]
        for number, client in enumerate(many):
            said = {"application": "app", "dataset": "d", "partition": number, "attempt": 0, "mapped": b""}
            client.ask(Verb.BEGIN, said, WAIT)
        assert depot.status().clients == 101
        # The main thread, the loop, and its workers, which wait for more to do.
        until(lambda: threads() <= 20, "no thread for each client")
        for client in many:
            assert client.ask(Verb.ABORT, {"kept": b""}, WAIT).fields == {}
    until(lambda: depot.status().clients == 1, "all have hung up")


def test_those_who_wait_have_no_threads(connect: Connect) -> None:
    """Forty clients that wait for room take no thread of the depot, and are lent what one gives back."""
    depot = connect(options={"memory_budget": 4 * MIB, "disk_budget": 0})

    def begun(name: str) -> DepotConnection:
        client = clients.enter_context(contextlib.closing(DepotConnection(depot.address, WAIT)))
        said = {"application": "app", "dataset": name, "partition": 0, "attempt": 0, "mapped": b""}
        client.ask(Verb.BEGIN, said, WAIT)
        return client

    def borrow(client: DepotConnection, nbytes: int) -> None:
        wanted = {"nbytes": nbytes, "wanted": 0, "wait": WAIT}
        close_all(client.ask(Verb.BORROW, wanted, 2 * WAIT).descriptors)

    with contextlib.ExitStack() as clients, concurrent.futures.ThreadPoolExecutor(40) as threads:
        holder = begun("holder")
        borrow(holder, 4 * MIB)
        asked = [threads.submit(borrow, begun(f"data {number}"), 1) for number in range(40)]
        until(lambda: depot.status().waiting == 40, "all wait")
        until(lambda: len(os.listdir(f"/proc/{depot.pid}/task")) <= 20, "no thread for each of them")
        holder.ask(Verb.ABORT, {"kept": b""}, WAIT)
        for each in asked:
            each.result(2 * WAIT)


def test_it_rests_where_no_descriptor_is_left(here: DepotProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the system has no descriptor for a connection, the depot tries now and then, and serves after it."""
    tries: list[float] = []

    def fail(*_: Any) -> None:
        tries.append(time.monotonic())
        raise bow.LimitExceeded("no descriptor left")

    with monkeypatch.context() as patched:
        patched.setattr(SocketListener, "accept", fail)
        time.sleep(1.5)
    assert len(tries) < 1000
    DepotConnection(here.paths.control, WAIT).close()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a depot take six connections."""
    monkeypatch.setattr("bowstring.depot.service.DEPOT_LIMITS", DEPOT_LIMITS.replace(connections=6))


def test_strangers_elsewhere_take_no_place_here(few: None, here: DepotProcess) -> None:
    """Connections by whoever has no token keep out no client, neither of this host nor of another."""
    remote = here.listen_too("tcp://127.0.0.1:0")
    with contextlib.ExitStack() as strangers:
        for _ in range(8):
            strangers.enter_context(dial(remote.partition("?")[0]))
        until(lambda: here.status().readers == 6, "so many, and no more")
        for where in (remote, here.paths.control) * 3:
            strangers.callback(DepotConnection(where, WAIT).close)
        assert (here.status().clients, here.status().readers) == (6, 0)
        for where in (remote, here.paths.control):
            with pytest.raises(bow.BrokenError):
                DepotConnection(where, WAIT)


SIGNALLED = """
import os, signal, sys, threading
from bowstring.depot.options import Options
from bowstring.depot.launch import Paths
from bowstring.depot.daemon import serve
wait = threading.Condition.wait
def interrupted(condition, timeout=None):
    if threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), signal.SIGTERM)
    return wait(condition, timeout)
def ready(_):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    threading.Condition.wait = interrupted
serve(Paths(sys.argv[1]), Options(memory_budget=1, disk_budget=0), ready=ready)
"""


def test_a_signal_finds_no_lock_in_its_way(folder: str) -> None:
    """A signal that comes while the depot goes to sleep, a lock in its hands, ends it as any other."""
    depot = subprocess.Popen([sys.executable, "-c", SIGNALLED, folder])
    try:
        assert depot.wait(WAIT) == 0
    finally:
        depot.kill()
        depot.wait()


def test_signals_that_the_starter_kept_from_himself_end_it(connect: Connect) -> None:
    """A process that blocks signals starts a depot that does not."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        pid = connect().status().pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not runs(pid), "it ends")


def test_one_that_does_not_end_is_no_success(depot: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stops a depot that hangs hears that it goes on."""
    monkeypatch.setattr(DepotConnection, "wait_exited", lambda *_: False)
    with pytest.raises(bow.DeadlineExceeded, match="not ended"):
        depot.stop()


def test_the_longest_name_can_be_read(depot: bow.depot.Depot) -> None:
    """What can be begun can be read: a name that no ticket has room for is refused at once."""
    longest = "\N{GRINNING FACE}" * 1000
    committed = commit(depot, {"n": [1]}, longest, partition=(1 << 63) - 1, attempt=(1 << 63) - 1)
    assert read(committed.endpoint).num_rows == 1
    with pytest.raises(bow.ProtocolError, match="1000 characters"):
        depot.begin(application="app", dataset=longest + "x")


@pytest.mark.parametrize("holds", [True, False])
def test_it_ends_if_empty_or_takes_more(here: DepotProcess, holds: bool) -> None:
    """However many ask it at once to end if it is empty, it ends for good, or goes on as before."""
    with contextlib.closing(DepotConnection(here.paths.control, WAIT)) as client:
        begin = {"application": "app", "dataset": "data", "partition": 0, "attempt": 0, "mapped": b""}
        if holds:
            client.ask(Verb.BEGIN, begin, WAIT)
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            with here.registry._lock:
                asked = [threads.submit(here.ends_if_empty) for _ in range(4)]
                time.sleep(0.05)
                assert not here.stopping, "nothing is decided yet"
            assert {each.result() for each in asked} == {not holds}
        with contextlib.closing(DepotConnection(here.paths.control, WAIT)) as other:
            if holds:
                other.ask(Verb.BEGIN, begin | {"partition": 1}, WAIT)
            else:
                with pytest.raises(bow.RefusedError, match=r"ends.*held no data"):
                    other.ask(Verb.BEGIN, begin, WAIT)


def test_it_ends_though_who_asked_is_gone(here: DepotProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A depot that was told to end does not go on because nobody heard its answer."""

    def fail(*_: Any) -> None:
        raise bow.BrokenError("the client is gone")

    with contextlib.closing(DepotConnection(here.paths.control, WAIT)) as client:
        for each in here.clients:
            monkeypatch.setattr(each, "_say", fail)
        with pytest.raises(bow.BrokenError):
            client.ask(Verb.STOP, {"if_empty": True}, WAIT)
    until(lambda: here.stopping, "it ends")
