"""``put``, ``get`` and ``release`` need no server of the user's, also around forks and when a process ends."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from tests.client_server.conftest import until

TABLE = pa.table({"n": np.arange(100_000), "text": [str(n) for n in range(100_000)]})


pytestmark = pytest.mark.usefixtures("tidy", "own_server")


def run(code: str, *arguments: str) -> str:
    """Run a program in another process, and return what it prints."""
    command = [sys.executable, "-c", f"import bowstring as bow, os, sys\n{code}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_another_process_gets_what_was_put() -> None:
    """The text of the endpoint is enough for another process, which gets views of the same memory."""
    endpoint = bow.put(TABLE)
    found = run(
        "table = bow.get(sys.argv[1])\nprint(table.num_rows, sum(table['n'].to_pylist()))", str(endpoint)
    )
    assert found == f"100000 {sum(range(100_000))}"
    assert bow.get(endpoint).equals(TABLE)
    bow.release(endpoint)
    bow.release(endpoint)
    with pytest.raises(bow.UnknownTicket):
        bow.get(endpoint)


def test_getting_copies_nothing() -> None:
    """Within one host a table that was got lies in the memory into which it was put."""
    endpoint = bow.put(TABLE)
    one, other = bow.get(endpoint), bow.get(endpoint)
    where = [table["n"].chunk(0).buffers()[1].address for table in (one, other)]
    assert where[0] == where[1]
    bow.release(endpoint)


def test_a_kept_table_stays_true() -> None:
    """A table that was got stays as it was after its release, and after others were put."""
    endpoint = bow.put(TABLE)
    table = bow.get(endpoint)
    bow.release(endpoint)
    for value in range(5):
        bow.release(bow.put({"n": np.full(100_000, value)}))
    assert table.equals(TABLE)


def test_what_has_all_its_readers_is_gone() -> None:
    """With `readers` the memory goes after so many, and with `ttl` after that time."""
    endpoint = bow.put({"a": [1]}, readers=1)
    bow.get(endpoint)
    with pytest.raises(bow.UnknownTicket):
        bow.get(endpoint)
    brief = bow.put({"a": [1]}, ttl=0.05)

    def gone() -> bool:
        try:
            bow.get(brief)
        except bow.UnknownTicket:
            return True
        return False

    until(gone)


def test_only_its_owner_releases_it() -> None:
    """Neither the endpoint of a server of the user's nor that of another process is released."""
    mine = bow.put({"a": [1]})
    with bow.Server() as server:
        other = server.publish("put-1", {"a": [1]})
        with pytest.raises(bow.UsageError, match="this process"):
            bow.release(other)
        assert bow.get(other).num_rows == 1
    code = (
        "try:\n    bow.release(sys.argv[1])\nexcept bow.UsageError as error:\n    print(type(error).__name__)"
    )
    assert run(code, str(mine)) == "UsageError"
    bow.release(mine)


def _put_in_child(connection: object, endpoint: bow.Endpoint) -> None:
    assert bow.get(endpoint).num_rows == 1
    mine = bow.put({"a": [1, 2, 3]})
    connection.send((mine, os.getpid()))  # type: ignore[attr-defined]
    connection.recv()  # type: ignore[attr-defined]


def test_the_child_of_a_fork_has_a_server_of_its_own() -> None:
    """A forked child gets what its parent put, and what it puts itself is gone with it; the parent's stays."""
    endpoint = bow.put({"a": [1]})
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_put_in_child, args=(there, endpoint))
    child.start()
    mine, number = here.recv()
    assert number != os.getpid()
    kept = bow.get(mine)
    here.send(None)
    child.join()
    assert child.exitcode == 0
    assert kept["a"].to_pylist() == [1, 2, 3]
    with pytest.raises(bow.BowstringError):
        bow.get(mine)
    assert bow.get(endpoint).num_rows == 1
    bow.release(endpoint)


def test_what_was_put_ends_with_its_process() -> None:
    """A process that ends with data still put ends orderly, and leaves no socket behind."""
    printed = run("endpoint = bow.put({'a': [1]})\nprint(endpoint)")
    with pytest.raises(bow.BowstringError):
        bow.get(printed)
    path = bow.Endpoint.parse(printed).locations[0].address.removeprefix("unix:")
    assert not os.path.exists(path)
