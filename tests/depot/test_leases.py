"""What belongs to an application is kept as long as somebody lives for whom it is, and then for its lease."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import this_process
from tests.depot.conftest import APP, WAIT, Connect, Task, commit, held, read, until, until_free

TABLE = pa.table({"n": [1, 2, 3]})
REMOTE = "tcp://127.0.0.1:0"


def test_nobody_holds_it(connect: Connect) -> None:
    """Without a driver everything is kept for the depot's own time after the last sign of life."""
    depot = connect(options={"lease_seconds": 1.0})
    endpoint = commit(depot, TABLE).endpoint
    assert read(endpoint).equals(TABLE)
    until_free(depot)
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint)


@pytest.mark.parametrize("remote", [False, True], ids=["unix", "tcp"])
def test_the_driver_holds_it(connect: Connect, remote: bool) -> None:
    """An open connection keeps an application; when it is lost the lease runs, and it ends."""
    depot = connect(options={"lease_seconds": 0.2}, tcp=REMOTE if remote else None)
    driver = bow.depot.connect(address=depot.remote_address if remote else depot.address)
    driver.hold(APP, 0.3)
    endpoint = commit(depot, TABLE).endpoint
    time.sleep(0.8)
    assert read(endpoint).equals(TABLE)
    lost = time.monotonic()
    driver.close()
    until_free(depot)
    assert time.monotonic() - lost >= 0.3


def test_a_driver_comes_back_in_time(connect: Connect) -> None:
    """A driver that lost its connection finds everything if it holds it again before the lease has run out."""
    depot = connect(options={"lease_seconds": 0.2})
    driver = connect()
    driver.hold(APP, WAIT)
    commit(depot, TABLE)
    driver.close()
    driver = connect()
    driver.hold(APP, 0.3)
    time.sleep(0.8)
    assert len(depot.offered("data")) == 1
    driver.close()
    until_free(depot)


def test_a_process_is_watched(connect: Connect) -> None:
    """The lease begins to run when the process that was named is gone, though its connection is closed before."""
    depot = connect(options={"lease_seconds": 0.2})
    watched = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with connect() as driver:
        driver.hold(APP, 0.3, watch_pid=watched.pid)
        driver.hold(APP, 0.3, watch_pid=watched.pid)
    commit(depot, TABLE)
    time.sleep(0.8)
    assert held(depot)
    watched.kill()
    watched.communicate()
    until_free(depot)
    with pytest.raises(bow.UsageError, match="not there"):
        depot.hold(APP, watch_pid=watched.pid)


def test_a_killed_driver_holds_nothing(depot: bow.depot.Depot, task: Callable[..., Task]) -> None:
    """A driver that is killed without a word is gone."""
    driver = task("depot = bow.depot.connect(folder=folder)\ndepot.hold('app', 0.3)\nsay('holds')\n")
    assert driver.hear() == "holds"
    commit(depot, TABLE)
    driver.kill()
    until_free(depot)


def test_an_attempt_is_a_sign_of_life(connect: Connect) -> None:
    """While a task of it writes, nothing of an application is freed."""
    depot = connect(options={"lease_seconds": 0.6})
    with depot.begin(application=APP, dataset="data", partition=1) as attempt:
        before = commit(depot, TABLE)
        time.sleep(1.5)
        assert read(before.endpoint).equals(TABLE)
        attempt.write(TABLE)
        attempt.commit()
    until_free(depot)


def test_the_end_of_an_application(connect: Connect) -> None:
    """Its data sets and names go, those of others stay, and readers keep what they have."""
    depot = connect()
    depot.hold(APP)
    mine, theirs = commit(depot, TABLE), commit(depot, TABLE, "other", application="another")
    depot.announce("numbers", bow.Dataset((mine.endpoint,), TABLE.schema), application=APP)
    with bow.connect(mine.endpoint) as stream:
        batch = stream.read_next_batch()
        assert depot.end(APP)
        assert not depot.end(APP)
        assert batch["n"].values.tolist() == [1, 2, 3]
        del batch
    with pytest.raises(bow.UnknownTicket):
        bow.connect(mine.endpoint)
    with pytest.raises(bow.UnknownTicket):
        depot.lookup("numbers")
    assert read(theirs.endpoint).equals(TABLE)
    assert depot.status().applications == ("another",)


@pytest.mark.parametrize("watches", [False, True])
def test_a_killed_depot_is_held_again(connect: Connect, watches: bool) -> None:
    """A driver that asks a depot that was started anew holds its application there, whoever is gone meanwhile."""
    depot = connect(options={"lease_seconds": 0.2})
    watched = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    depot.hold(APP, 0.3, watch_pid=watched.pid if watches else None)
    watched.communicate(b"\n")
    os.kill(depot.status().pid, 9)
    until(lambda: depot.status().applications == (APP,), "it is held again")
    endpoint = commit(depot, TABLE).endpoint
    time.sleep(0.8)
    assert read(endpoint).equals(TABLE)


# Names.


def dataset(depot: bow.depot.Depot, name: str, table: pa.Table = TABLE) -> bow.Dataset:
    """Write a data set of one endpoint."""
    committed = commit(depot, table, name)
    return bow.Dataset((committed.endpoint,), table.schema, committed.num_rows, committed.nbytes)


def test_a_name_means_a_data_set(depot: bow.depot.Depot) -> None:
    """What is announced is looked up, from any client; announced again it means the new one."""
    first, second = dataset(depot, "a"), dataset(depot, "b")
    assert depot.announce("numbers", first, application=APP)
    assert depot.lookup("numbers") == first
    assert depot.announce("numbers", second, application=APP)
    assert depot.lookup("numbers") == second
    with pytest.raises(bow.UsageError, match="taken"):
        depot.announce("numbers", first, application="another")
    with pytest.raises(bow.UnknownTicket):
        depot.lookup("others")


def test_a_name_grows_by_micro_batches(depot: bow.depot.Depot) -> None:
    """Appended endpoints are added once for each micro-batch, however often it commits."""
    first, second = dataset(depot, "a"), dataset(depot, "b")
    assert depot.announce("stream", first, application=APP, append=True, batch=0)
    assert depot.announce("stream", second, application=APP, append=True, batch=1)
    assert not depot.announce("stream", second, application=APP, append=True, batch=1)
    assert not depot.announce("stream", first, application=APP, append=True, batch=0)
    found = depot.lookup("stream")
    assert found.endpoints == (*first.endpoints, *second.endpoints)
    assert (found.num_rows, found.nbytes) == (6, 48)
    with pytest.raises(bow.UsageError, match="another schema"):
        depot.announce("stream", dataset(depot, "c", pa.table({"x": ["y"]})), application=APP, append=True)


def test_data_sets_without_streams_have_no_say(depot: bow.depot.Depot) -> None:
    """A micro-batch without rows, of which nobody has seen a batch, neither sets the schema nor is held to it."""
    guess = pa.schema([("t", pa.timestamp("us", "UTC"))])
    seen = dataset(depot, "seen", pa.table({"t": pa.array([0], pa.timestamp("us", "Etc/UTC"))}))
    for batch, each in enumerate((bow.Dataset((), guess), seen, bow.Dataset((), guess), seen)):
        assert depot.announce("times", each, application=APP, append=True, batch=batch)
    found = depot.lookup("times")
    assert (len(found), found.schema) == (2 * len(seen), seen.schema)


def test_names_of_the_dead_can_be_taken(connect: Connect) -> None:
    """A name whose application has nobody left is taken over; of one that lives, or that nobody held, it is not."""
    depot = connect()
    with connect() as driver:
        driver.hold(APP, 600.0)
        driver.announce("events", bow.Dataset((), TABLE.schema), application=APP)
        with pytest.raises(bow.UsageError, match="another application"):
            depot.announce("events", bow.Dataset((), TABLE.schema), application="next")

    def taken() -> bool:
        try:
            return depot.announce("events", bow.Dataset((), TABLE.schema), application="next")
        except bow.UsageError:
            return False

    end = time.monotonic() + 10.0
    while not taken():
        assert time.monotonic() < end
    with pytest.raises(bow.UsageError, match="another application"):
        depot.announce("events", bow.Dataset((), TABLE.schema), application=APP)


def test_a_process_of_another_namespace_is_not_watched(
    depot: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a process of another container means nothing here: the connection counts, and the lease."""
    elsewhere = dataclasses.replace(this_process(), namespace=1)
    monkeypatch.setattr("bowstring.depot.client.this_process", lambda: elsewhere)
    depot.hold(APP, watch_pid=1 << 22)
    commit(depot, TABLE)
    assert held(depot)
