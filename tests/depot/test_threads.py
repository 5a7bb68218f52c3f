"""One client for many threads, and a depot that is asked, released and lost meanwhile."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.depot.launch import locked, try_lock
from bowstring.depot.protocol import DepotConnection, Verb
from tests.depot.conftest import APP, WAIT, Connect, commit, runs, until

TABLE = pa.table({"n": [1, 2, 3]})


def test_all_threads_find_the_next_depot(connect: Connect) -> None:
    """Of many threads that lose the depot at once none is disturbed by the others, and one connection is made."""
    depot = connect()
    for _ in range(3):
        pid = depot.status().pid
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not runs(pid), "it is killed")  # type: ignore[misc]
        together = threading.Barrier(20)

        def ask(_: int, together: threading.Barrier = together) -> int:
            together.wait(WAIT)
            return depot.status().clients

        with concurrent.futures.ThreadPoolExecutor(20) as threads:
            assert set(threads.map(ask, range(20))) == {1}


def test_what_is_appended_is_appended_once(depot: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is lost before the answer came, and so a request that is made twice, adds nothing twice."""
    dataset = bow.Dataset((commit(depot, TABLE).endpoint,), TABLE.schema, 3, 24)
    main = depot._main
    assert main is not None
    ask = main.ask

    def lose(verb: Verb, *given: Any) -> Any:
        ask(verb, *given)
        raise bow.BrokenError("lost")

    monkeypatch.setattr(main, "ask", lose)
    depot.announce("numbers", dataset, application=APP, append=True)
    assert depot.lookup("numbers") == dataset
    assert depot.announce("numbers", dataset, application=APP, append=True)
    assert len(depot.lookup("numbers")) == 2


def test_a_depot_that_was_closed_is_not_opened_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that looks for the depot while another closes its client leaves no connection behind."""
    depot = connect()
    made: list[DepotConnection] = []
    find = depot._find

    def find_late() -> DepotConnection:
        made.append(find())
        depot.close()
        return made[-1]

    monkeypatch.setattr(depot, "_find", find_late)
    assert depot._main is not None
    depot._main.close()
    with pytest.raises(bow.ClosedError):
        depot.status()
    assert [each.closed for each in made] == [True]


def test_the_secret_is_not_shown(connect: Connect) -> None:
    """A client's repr says where the depot is, and not the token by which it was let in."""
    remote = connect(tcp="tcp://127.0.0.1:0").remote_address
    assert remote is not None
    with bow.depot.connect(address=remote) as depot:
        shown = repr(depot)
    address, _, query = remote.partition("?")
    assert address in shown
    assert query.partition("=")[2] not in shown


def test_the_lock_is_given_back_in_spite_of_a_fork(folder: str) -> None:
    """A child that another thread forked while a depot was started keeps nobody from starting the next one."""
    path = os.path.join(folder, "lock")
    heard, told = os.pipe()
    with locked(path, WAIT):
        child = os.fork()
        if not child:
            os.close(told)
            os.read(heard, 1)
            os._exit(0)
    fd = try_lock(path)
    os.close(heard)
    os.close(told)
    os.waitpid(child, 0)
    assert fd is not None
    fd.close()
