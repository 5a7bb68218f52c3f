"""Tables that outlive their process under a name: ``bow.depot.publish``, ``get`` and ``drop``."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import this_process
from tests.depot.conftest import APP, MIB, Connect, commit, until, until_free

TABLE = pa.table({"n": [1, 2, 3], "s": ["a", None, "c"]})


@pytest.fixture
def depot(connect: Connect, folder: str, monkeypatch: pytest.MonkeyPatch) -> bow.depot.Depot:
    """Return a depot that was just started, and is that of this process."""
    monkeypatch.setenv("BOWSTRING_DEPOT", folder)
    return connect()


def names() -> list[str]:
    """Return the names of the depot."""
    return [each.name for each in bow.list_datasets("depot:")]


def copied(name: str) -> dict[str, list[Any]]:
    """Return the values of a name, and keep none of its memory."""
    values: dict[str, list[Any]] = bow.depot.get(name).to_pydict()
    return values


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.slice(0, 0),
        lambda: TABLE.to_reader(1),
        lambda: iter(TABLE.to_batches(1)),
    ],
    ids=["table", "batch", "no rows", "reader", "generator"],
)
def test_what_is_published_is_found(depot: bow.depot.Depot, data: Any) -> None:
    """All rows of what a server publishes are found by the name, and by the data set, until it is dropped."""
    made = data() if callable(data) else data
    rows = TABLE.slice(0, 0) if made is data and not data.num_rows else TABLE
    dataset = bow.depot.publish("a table/é", made)
    assert (dataset.num_rows, dataset.schema) == (rows.num_rows, rows.schema)
    assert copied("a table/é") == rows.to_pydict()
    with bow.connect(pickle.loads(pickle.dumps(dataset))) as stream:
        assert stream.to_arrow().to_pydict() == rows.to_pydict()
    bow.depot.drop("a table/é")
    until_free(depot)
    for gone in (bow.depot.get, bow.depot.drop):
        with pytest.raises(bow.UnknownTicket):
            gone("a table/é")


WORKER = """
import os, sys, pyarrow as pa, bowstring as bow
bow.depot.publish(f"part {sys.argv[1]}", pa.table({"n": [int(sys.argv[1])] * 1000}), owner=os.getppid())
"""


def test_a_worker_hands_over_its_result(depot: bow.depot.Depot) -> None:
    """What processes published for the one that started them is read when they are gone."""
    for number in range(3):
        subprocess.run([sys.executable, "-c", WORKER, str(number)], check=True)
    assert names() == ["part 0", "part 1", "part 2"]
    assert [copied(name) for name in names()] == [{"n": [number] * 1000} for number in range(3)]


def test_an_owner_s_end_frees(depot: bow.depot.Depot) -> None:
    """Data stay as long as the process that was named, not the one that published; the name goes with them."""
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    code = "import bowstring as bow, sys; bow.depot.publish('theirs', {'n': [1]}, owner=int(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(owner.pid)], check=True)
    bow.depot.publish("ours", TABLE)
    assert copied("theirs") == {"n": [1]}
    table = bow.depot.get("theirs")
    owner.communicate()
    until(lambda: names() == ["ours"], "the name is gone")
    assert table.to_pydict() == {"n": [1]}
    with pytest.raises(bow.UsageError, match="the owner is not there"):
        bow.depot.publish("theirs", TABLE, owner=owner.pid)


def test_an_owner_of_another_container_is_refused(
    depot: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A depot that cannot watch the owner says so, and keeps nothing; with a ttl it does."""
    elsewhere = dataclasses.replace(this_process(), namespace=1)
    monkeypatch.setattr("bowstring.depot.publishing.this_process", lambda: elsewhere)
    with pytest.raises(bow.Unsupported, match="cannot watch the owner"):
        bow.depot.publish("theirs", TABLE, owner=os.getpid())
    assert depot.status().datasets == ()
    bow.depot.publish("theirs", TABLE, ttl=60)
    assert copied("theirs") == TABLE.to_pydict()


def test_a_time_frees(depot: bow.depot.Depot) -> None:
    """With a ttl data and name are gone after it; without one they stay beyond the lease of whoever published."""
    bow.depot.publish("short", TABLE, ttl=0.5)
    bow.depot.publish("long", TABLE)
    until(lambda: names() == ["long"], "the name is gone")
    until(lambda: len(depot.status().datasets) == 1, "the data are gone")
    assert copied("long") == TABLE.to_pydict()


def test_without_an_owner_nothing_ends(
    connect: Connect, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The depot's own lease and idle time do not end what nobody owns; when it is dropped, the depot ends idle."""
    monkeypatch.setenv("BOWSTRING_DEPOT", folder)
    depot = connect(options={"lease_seconds": 0.2, "idle_seconds": 1.0})
    pid = depot.pid
    with depot.begin(application=APP, dataset="beside"):  # else the depot may end idle while it is published
        bow.depot.publish("stays", TABLE)
    depot.close()
    time.sleep(1.5)
    assert copied("stays") == TABLE.to_pydict()
    bow.depot.drop("stays")
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the depot ends")


def test_a_name_is_replaced_by_its_owner(depot: bow.depot.Depot) -> None:
    """The same owner, or nobody again, replaces a name, and the data before are freed; others are refused."""
    first = bow.depot.publish("ours", TABLE)
    bow.depot.publish("ours", {"n": [7]})
    assert copied("ours") == {"n": [7]}
    with pytest.raises(bow.UnknownTicket):
        bow.connect(first.endpoints[0])
    with pytest.raises(bow.UsageError, match=r"the name is taken.*nobody"):
        bow.depot.publish("ours", TABLE, owner=os.getpid())
    with pytest.raises(bow.UsageError, match="the name is taken"):
        depot.announce("ours", first, application=APP)
    bow.depot.publish("mine", TABLE, owner=os.getpid())
    bow.depot.publish("mine", {"n": [8]}, owner=os.getpid())
    with pytest.raises(bow.UsageError, match="the name is taken"):
        bow.depot.publish("mine", TABLE)
    assert copied("mine") == {"n": [8]}
    assert len(depot.status().datasets) == 2


def test_a_full_depot(connect: Connect, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into the budget is refused in time, and leaves nothing; what was there stays."""
    monkeypatch.setenv("BOWSTRING_DEPOT", folder)
    depot = connect(options={"memory_budget": 8 * MIB, "disk_budget": 0})
    bow.depot.publish("kept", TABLE)
    before = depot.status().memory_in_use
    with pytest.raises(bow.OutOfBudget):
        bow.depot.publish("large", pa.table({"n": pa.array(range(1 << 21))}), wait_for_room=0.2)
    until(lambda: depot.status().memory_in_use == before, "its memory is free")
    assert names() == ["kept"]


def test_a_failure_leaves_what_was_there(depot: bow.depot.Depot) -> None:
    """A generator that raises publishes nothing, and the name keeps what it stood for."""

    def fails() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise OSError("mine")

    bow.depot.publish("kept", {"n": [1]})
    with pytest.raises(OSError, match="mine"):
        bow.depot.publish("kept", fails())
    with pytest.raises(bow.UsageError):
        bow.depot.publish("kept", 3)
    assert copied("kept") == {"n": [1]}
    assert len(depot.status().datasets) == 1


@pytest.mark.parametrize(
    "wrong", [{"ttl": -1}, {"ttl": "1"}, {"wait_for_room": None}, {"owner": "me"}, {"owner": True}]
)
def test_wrong_arguments(depot: bow.depot.Depot, wrong: dict[str, Any]) -> None:
    """Times that are no numbers, and owners that are no processes, are refused before anything is written."""
    with pytest.raises(bow.UsageError):
        bow.depot.publish("name", TABLE, **wrong)
    with pytest.raises(bow.UsageError):
        bow.depot.publish("", TABLE)
    assert depot.status().datasets == ()


def test_spark_s_names_are_found_too(depot: bow.depot.Depot) -> None:
    """Get and drop work on whatever name the depot has."""
    made = commit(depot, TABLE)
    depot.announce("theirs", bow.Dataset((made.endpoint,), TABLE.schema), application=APP, part="data")
    assert copied("theirs") == TABLE.to_pydict()
    bow.depot.drop("theirs")
    until_free(depot)
