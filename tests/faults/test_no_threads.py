"""Threads that cannot be started: one error at once, on the side that lacks them and on the other one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import bowstring as bow
from bowstring.memory import Pool
from bowstring.transport import loop, threads
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.tables import batch_of, table_of
from tests.transport.certified import shown_at

PATIENT = LIMITS.replace(reply_timeout=600.0, connect_timeout=600.0)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function after which threads of a name cannot be started; the first that are asked for may be."""
    allowed: dict[str, int] = {}
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if allowed.get(thread.name, 1) <= 0:
            raise RuntimeError("can't start new thread")
        if thread.name in allowed:
            allowed[thread.name] -= 1
        start(thread)

    release = threading.Event()
    working: list[threads.Work] = []

    def deny(name: str, first: int = 0) -> None:
        # Those that wait for work would take it: they have some.
        monkeypatch.setattr(threads, "_MOST_IDLE", 0)
        working.extend(threads.run_in_thread(release.wait, name="busy") for _ in range(len(threads._idle)))
        allowed[name] = first
        monkeypatch.setattr(threading.Thread, "start", refused)

    yield deny
    release.set()
    for each in working:
        each.join(WAIT)


def lazy() -> Iterator[Any]:
    """Yield some batches."""
    for number in range(3):
        yield batch_of(number)


@pytest.mark.parametrize("data", ["resident", "lazy"])
def test_a_reader_without_threads(
    serve: Callable[..., bow.Server], address: str, without: Callable[..., None], data: str
) -> None:
    """A reader receives without a thread; where it needs one, LimitExceeded is raised at once, and all let go."""
    server = serve(address, limits=PATIENT)
    endpoint = server.publish("t", table_of(3) if data == "resident" else lazy)
    pool = Pool(budget=64 << 20)
    for name in ("reader", "sender"):
        without(f"bowstring-client-{name}")
    if address.startswith("ucx"):  # whose connections cannot be waited for
        with pytest.raises(bow.LimitExceeded, match="no thread can be started"):
            bow.connect(endpoint, options=bow.ConnectOptions(pool=pool), limits=PATIENT)
    else:
        with bow.connect(endpoint, options=bow.ConnectOptions(pool=pool), limits=PATIENT) as stream:
            assert stream.read_all().equals(table_of(3))
    until(lambda: server.stats.connections == 0, "the session ends")
    until(lambda: pool.stats.in_use == 0, "the memory comes home")


_WITHOUT_LOOP = """
import sys, threading
import bowstring as bow

start = threading.Thread.start

def refused(thread):
    if thread.name == "bowstring-loop":
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = refused
try:
    bow.connect(sys.argv[1])
except bow.LimitExceeded as error:
    print(error.what)
threading.Thread.start = start
with bow.connect(sys.argv[1]) as stream:
    print(stream.read_all().num_rows)
"""


def test_a_reader_without_a_loop(serve: Callable[..., bow.Server]) -> None:
    """A process that cannot start the thread for its streams raises LimitExceeded, and opens them when it can."""
    server = serve("unix:", limits=PATIENT)
    endpoint = server.publish("t", table_of(), readers=2)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_LOOP, str(endpoint)], capture_output=True, text=True, timeout=WAIT * 3
    )
    assert done.stdout.splitlines() == ["no thread can be started", str(table_of().num_rows)], done.stderr
    until(lambda: server.stats.connections == 0, "the sessions end")


def test_a_server_without_a_thread_for_its_data(
    serve: Callable[..., bow.Server], address: str, without: Callable[..., None]
) -> None:
    """The reader of a lazy stream whose producer cannot start a thread is told so at once."""
    server = serve(address, limits=PATIENT)
    endpoint = server.publish("t", lazy)
    without("bowstring-server-sender")
    refused = pytest.raises(bow.LimitExceeded, match="no thread can be started")
    with refused, bow.connect(endpoint, limits=PATIENT) as stream:
        stream.read_all()
    until(lambda: server.stats.connections == 0, "the session ends")


def test_a_server_without_a_thread_for_a_turn(
    serve: Callable[..., bow.Server], address: str, without: Callable[..., None]
) -> None:
    """A reader is served by the loop itself where no worker can be had, or else told so; the next one is served."""
    server = serve(address, limits=PATIENT)
    endpoint = server.publish("t", table_of())
    for name in ("bowstring-accept", "bowstring-server-reader"):
        without(name)
    try:
        with bow.connect(endpoint, limits=PATIENT) as stream:
            assert stream.read_all().equals(table_of())
    except bow.LimitExceeded as error:
        assert "no thread can be started" in str(error)  # noqa: PT017  it may be served, too
        assert address.startswith(("ucx:", "inproc:")), "a descriptor could be watched"
    until(lambda: server.stats.connections == 0, "the session ends")
    for name in ("bowstring-accept", "bowstring-server-reader"):
        without(name, 100)
    with bow.connect(endpoint, limits=LIMITS) as stream:
        assert stream.read_all().equals(table_of())


def test_a_server_without_any_thread(
    without: Callable[..., None], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that cannot start a thread is LimitExceeded, and listens nowhere."""
    monkeypatch.setattr(loop, "_loop", None)
    for name in ("bowstring-loop", "bowstring-accept"):
        without(name)
    with pytest.raises(bow.LimitExceeded, match="no thread can be started"):
        bow.Server(address, tls=shown_at(address))


def test_a_data_set_without_threads(serve: Callable[..., bow.Server], without: Callable[..., None]) -> None:
    """A data set of many endpoints whose reader cannot start a thread is LimitExceeded, and opens nothing."""
    servers = [serve("unix:", limits=PATIENT) for _ in range(4)]  # each has a stream of its own
    endpoints = tuple(server.publish("t", table_of()) for server in servers)
    dataset = bow.Dataset(endpoints, table_of().schema)
    without("bowstring-dataset", 1)
    with pytest.raises(bow.LimitExceeded, match="no thread can be started"):
        bow.connect(dataset, limits=PATIENT)
    until(lambda: not any(server.stats.connections for server in servers), "the sessions end")


def test_a_data_set_for_a_time_without_a_loop(
    serve: Callable[..., bow.Server], without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set whose end nothing would see to is not published, and its name stays free."""
    server = serve("unix:", limits=PATIENT)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_loop", None)
        without("bowstring-loop")
        with pytest.raises(bow.LimitExceeded, match="no thread can be started"):
            server.publish("t", table_of(), ttl=60.0)
    assert not server.endpoints
    with bow.connect(server.publish("t", table_of()), limits=LIMITS) as stream:
        assert stream.read_all().equals(table_of())


def test_a_server_without_a_loop_for_a_session(
    serve: Callable[..., bow.Server], without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that was let in before its session found no loop is counted out of its data set."""
    server = serve("unix:", limits=PATIENT)
    endpoint = server.publish("t", table_of(), readers=2)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_loop", None)
        without("bowstring-loop")
        subprocess.run([sys.executable, "-c", _READER, str(endpoint)], timeout=WAIT * 3, check=True)
        until(lambda: server.stats.connections == 0, "the session ends")
    server.withdraw("t")
    server.wait_released("t", timeout=WAIT)


_READER = """
import sys
import bowstring as bow

try:
    bow.connect(sys.argv[1]).read_all()
except bow.BowstringError:
    pass
"""
