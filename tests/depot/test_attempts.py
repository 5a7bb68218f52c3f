"""An attempt is seen when it has committed, as a whole, and leaves nothing when it has not."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import bowstring as bow
from bowstring.columnar import placed
from bowstring.columnar.batch import Batch
from bowstring.depot.manifest import Rebuilder, unpack_parts
from bowstring.depot.protocol import DepotConnection
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Pool, cpu
from bowstring.server.encoder import Encoder
from tests.depot.conftest import APP, Connect, Task, commit, held, read, until, until_free
from tests.strategies import record_batches

TABLE = pa.table({"n": np.arange(1000), "s": [str(number) for number in range(1000)]})


def test_what_is_written_is_read(depot: bow.depot.Depot) -> None:
    """Batches of a partition come back in order, with a true account of them, mapped and not copied."""
    committed = commit(depot, [TABLE.slice(0, 300), TABLE.slice(300)], partition=3, attempt=1)
    assert pickle.loads(pickle.dumps(committed)) == committed
    assert (committed.num_rows, committed.num_batches) == (1000, 2)
    assert (committed.partition, committed.attempt) == (3, 1)
    with bow.connect(committed.endpoint) as stream:
        assert stream.num_rows == 1000
        assert stream.stats.path == "unix: mapped"
    assert read(committed.endpoint).equals(TABLE)
    assert read(committed.endpoint, columns=["s"]).equals(TABLE.select(["s"]))


def test_any_arrow_data_goes_through(depot: bow.depot.Depot) -> None:
    """Every type, nested, null, sliced and empty, is read as it was written; columns of it, too."""

    @given(batch=record_batches())
    def holds(batch: pa.RecordBatch) -> None:
        committed = commit(depot, batch)
        with bow.connect(committed.endpoint) as stream:
            got = stream.read_next_batch().to_arrow()
            assert got.equals(batch)
            del got
        depot.release("data")

    holds()


def test_the_depot_hears_while_the_task_writes(
    depot: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twenty batches and their schema, the last five are left for the commit."""
    told: list[int] = []
    tell = DepotConnection.tell

    def count(connection: DepotConnection, pieces: Sequence[bytes]) -> None:
        told.append(len(list(unpack_parts(b"".join(pieces)))))
        tell(connection, pieces)

    monkeypatch.setattr(DepotConnection, "tell", count)
    attempt = depot.begin(application=APP, dataset="data")
    attempt.write([TABLE] * 20)
    assert told == [8, 8]
    committed = attempt.commit()
    assert told == [8, 8], "what is left is said by the commit"
    assert read(committed.endpoint).equals(pa.concat_tables([TABLE] * 20))


def test_metadata_stay_as_the_task_encoded_them() -> None:
    """What a task sends of schema, dictionaries and batches goes to readers of all columns byte for byte."""
    words = pa.array(["x", "y", None, "x"]).dictionary_encode()
    batch = Batch.from_arrow(pa.record_batch({"d": words, "l": pa.array([[1], None, [], [2, 3]])}))
    there = placed(batch, Pool(cpu()).allocator(), {}, in_place=False)
    encoder = Encoder(there.schema, None, pointers=True, charged=False)
    sent = [encoder.schema(), *encoder.encode(there)]
    rebuilt = Rebuilder(DEFAULT_LIMITS)
    for item in sent:
        table = np.zeros((0, 3), np.int64) if item.spans is None else item.spans
        rebuilt.take(item.metadata, table, item.regions)
    kept = list(rebuilt.source().items(None, pointers=True, make_room=lambda _: True))
    assert [item.metadata for item in kept] == [item.metadata for item in sent]
    assert [item.nbytes for item in kept] == [item.nbytes for item in sent]


def test_dictionaries_are_shared(depot: bow.depot.Depot) -> None:
    """A dictionary that batches share is lent once; one that changes is seen by the batches that follow."""
    words = pa.array(["a" * 1000, "b" * 1000])
    batches = [
        pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), words)})
        for _ in range(3)
    ]
    other = pa.record_batch(
        {"d": pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array(["c"]))}
    )
    committed = commit(depot, [*batches, other])
    with bow.connect(committed.endpoint) as stream:
        first, *_, last = got = list(stream)
        assert len(got) == 4
        assert last["d"].to_arrow().to_pylist() == ["c", "c"]
        assert first["d"].to_arrow().to_pylist() == words.to_pylist()
        del first, last, got


def test_nothing_is_seen_before_the_commit(depot: bow.depot.Depot) -> None:
    """Neither by ticket nor in the depot's account is there anything of an attempt that goes on."""
    attempt = depot.begin(application=APP, dataset="data")
    attempt.write(TABLE)
    (status,) = depot.status().datasets
    assert (status.streams, status.attempts, status.num_rows) == (0, 1, 0)
    assert depot.offered("data") == ()
    committed = attempt.commit()
    assert depot.offered("data") == (committed,)
    with pytest.raises(bow.ClosedError):
        attempt.write(TABLE)
    with pytest.raises(bow.ClosedError):
        attempt.commit()
    attempt.abort()
    assert read(committed.endpoint).equals(TABLE)


@pytest.mark.parametrize("how", ["left", "abort", "exception"])
def test_an_abandoned_attempt_leaves_nothing(depot: bow.depot.Depot, how: str) -> None:
    """However an attempt ends that does not commit, what it borrowed comes home."""
    attempt: Any = depot.begin(application=APP, dataset="data")
    attempt.write(TABLE)
    assert held(depot)
    if how == "abort":
        attempt.abort()
    elif how == "left":
        with attempt:
            pass
    elif how == "exception":
        with pytest.raises(ZeroDivisionError), attempt:
            attempt.write({"n": [1 // 0]})
    del attempt
    until_free(depot)
    assert depot.status().datasets == ()
    assert read(commit(depot, TABLE).endpoint).equals(TABLE)


STEPS = ["begun", "borrowed", "half written", "all written", "committed", "settled"]


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_task_leaves_nothing(depot: bow.depot.Depot, task: Callable[..., Task], step: str) -> None:
    """A task that is killed at any step leaves nothing that the next try, or the driver, does not clear away."""
    killed = task(
        """
depot = bow.depot.connect(folder=folder)
attempt = depot.begin(application="app", dataset="data", partition=0, attempt=0)
say("begun")
attempt._allocator.allocate(100)
say("borrowed")
attempt.write(table)
say("half written")
attempt.write(table)
attempt._flush()
say("all written")
committed = attempt.commit()
say("committed")
say(committed.endpoint)
"""
    )
    for each in STEPS:
        said = killed.hear()
        if each == step:
            break
        killed.go_on()
    endpoint = bow.Endpoint.parse(said) if step == "settled" else None
    killed.kill()
    if step in ("committed", "settled"):
        assert [each.num_rows for each in depot.offered("data")] == [1 << 18]
    else:
        until_free(depot)
        # An attempt that went on for ever would keep its application for ever.
        until(lambda: depot.status().datasets == (), "the attempt is over")
    again = commit(depot, TABLE, attempt=1)
    depot.settle("data", [endpoint or again.endpoint])
    assert len(depot.offered("data")) == 1
    assert read(endpoint or again.endpoint).num_rows == (1 << 18 if endpoint else 1000)
    depot.release("data")
    until_free(depot)


def test_killed_before_the_answer(depot: bow.depot.Depot, task: Callable[..., Task]) -> None:
    """A task that dies between the commit and its answer has committed, or not; settling frees it either way."""
    killed = task(
        """
import os, signal
from bowstring.depot import protocol as connection
depot = bow.depot.connect(folder=folder)
attempt = depot.begin(application="app", dataset="data")
attempt.write(table)
say("written")
channel = attempt._connection._channel
channel.receive = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
attempt.commit()
"""
    )
    killed.hear()
    killed.go_on()
    killed.end()
    again = commit(depot, TABLE, attempt=1)
    until(lambda: depot.status().datasets[0].attempts == 0, "the attempt is over")
    depot.settle("data", [again.endpoint])
    assert depot.offered("data") == (again,)
    depot.end(APP)
    until_free(depot)


@pytest.mark.parametrize("numbers", [(0, 1), (0, 0)], ids=["another", "the same number"])
def test_two_attempts_may_commit(depot: bow.depot.Depot, numbers: tuple[int, int]) -> None:
    """Each has a ticket of its own, also where Spark counts the attempts of a stage anew; the driver keeps one, and
    the other is freed at once.
    """
    first, second = (commit(depot, TABLE, attempt=number) for number in numbers)
    other = commit(depot, TABLE.slice(500), partition=1)
    assert first.endpoint.ticket != second.endpoint.ticket
    assert depot.settle("data", [second.endpoint, other.endpoint]) == 2
    assert depot.offered("data") == (second, other)
    with pytest.raises(bow.UnknownTicket):
        bow.connect(first.endpoint)
    whole = bow.Dataset((second.endpoint, other.endpoint), TABLE.schema)
    assert read(whole).equals(pa.concat_tables([TABLE, TABLE.slice(500)]))
    again = commit(depot, TABLE, attempt=2)
    assert depot.settle("data", [second.endpoint, again.endpoint]) == 2


def test_readers_keep_what_is_settled_away(depot: bow.depot.Depot) -> None:
    """A batch of a stream that is freed stays true, and its memory is not lent while it is held."""
    with bow.connect(commit(depot, TABLE).endpoint) as stream:
        batch = stream.read_next_batch()
        depot.settle("data", [])
        commit(depot, {"n": np.zeros(1 << 17)}, "other")
        assert batch.to_arrow().equals(TABLE.to_batches()[0])
        del batch


@pytest.mark.parametrize("how", ["settle", "release", "end"])
def test_attempts_of_the_past_fail(depot: bow.depot.Depot, how: str) -> None:
    """What was settled, released or ended does not come back by an attempt that began before."""
    commit(depot, TABLE)
    late = depot.begin(application=APP, dataset="data", attempt=1)
    late.write(TABLE)
    if how == "settle":
        depot.settle("data", [])
    else:
        assert depot.release("data") if how == "release" else depot.end(APP)
    with pytest.raises(bow.RefusedError):
        late.commit()
    until_free(depot)


def test_attempts_of_a_job_that_was_given_up(depot: bow.depot.Depot) -> None:
    """What was released for good stays so for attempts that begin later; else a name may be used again."""
    assert not depot.release("given up", final=True)
    with pytest.raises(bow.RefusedError, match="released"):
        depot.begin(application=APP, dataset="given up")
    commit(depot, TABLE)
    assert depot.release("data")
    assert read(commit(depot, TABLE).endpoint).equals(TABLE)


def test_readers_are_counted(depot: bow.depot.Depot) -> None:
    """With readers=1 the memory is freed by the first who reads to the end."""
    endpoint = commit(depot, TABLE, readers=1).endpoint
    with pytest.raises(bow.DeadlineExceeded):
        depot.wait_released("data", timeout=0.1)
    assert read(endpoint).equals(TABLE)
    depot.wait_released("data", timeout=10.0)
    until_free(depot)
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint)
    depot.wait_released("data", timeout=0.0)
    with pytest.raises(bow.UnknownTicket):
        depot.wait_released("another", timeout=0.0)


def test_all_partitions_are_waited_for(depot: bow.depot.Depot) -> None:
    """A data set is released when its last stream was read, and not before all that is written has been."""
    going_on = depot.begin(application=APP, dataset="data", readers=1)
    with pytest.raises(bow.DeadlineExceeded):
        depot.wait_released("data", timeout=0.0)
    endpoints = [commit(depot, TABLE, partition=number, readers=1).endpoint for number in (1, 2)]
    for endpoint in endpoints:
        assert read(endpoint).equals(TABLE)
        until(lambda: depot.status().datasets[0].readers == 0, "the reader is gone")
        with pytest.raises(bow.DeadlineExceeded):
            depot.wait_released("data", timeout=0.0)
    going_on.abort()
    depot.wait_released("data", timeout=10.0)


def test_an_empty_attempt(depot: bow.depot.Depot) -> None:
    """A partition without rows is a stream of a schema; without even that it is refused."""
    with depot.begin(application=APP, dataset="data", schema=TABLE.schema) as attempt:
        committed = attempt.commit()
    assert read(committed.endpoint).equals(TABLE.schema.empty_table())
    with (
        depot.begin(application=APP, dataset="data") as attempt,
        pytest.raises(bow.UsageError, match="schema"),
    ):
        attempt.commit()
    assert held(depot) == 0


def test_one_schema(depot: bow.depot.Depot) -> None:
    """A batch of another schema is refused, and what was written before can still be committed."""
    with depot.begin(application=APP, dataset="data") as attempt:
        attempt.write(TABLE)
        with pytest.raises(bow.UsageError):
            attempt.write({"other": [1]})
        assert attempt.commit().num_rows == 1000


def test_a_name_belongs_to_one_application(depot: bow.depot.Depot) -> None:
    """Two applications cannot mix their streams under one name."""
    commit(depot, TABLE)
    with pytest.raises(bow.UsageError, match="another application"):
        depot.begin(application="other", dataset="data")


def regions_mapped() -> set[str]:
    """Return the inodes of all regions that this process maps."""
    with open("/proc/self/maps") as maps:
        return {line.split()[4] for line in maps if "memfd:bowstring" in line}


def test_a_child_cannot_go_on_with_an_attempt(depot: bow.depot.Depot) -> None:
    """The child of a fork has neither the attempt nor its memory, and its end does no harm to the parent's."""
    others = regions_mapped()
    with depot.begin(application=APP, dataset="data") as attempt:
        attempt.write(TABLE)
        child = os.fork()
        if not child:
            code = 1
            try:
                attempt.write(TABLE)
            except bow.ForkedError:
                attempt.abort()
                depot.close()
                code = 2 * bool(regions_mapped() - others)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        attempt.write(TABLE)
        assert read(attempt.commit().endpoint).num_rows == 2000


def test_attempts_go_on_beside_each_other(depot: bow.depot.Depot) -> None:
    """One process may write several partitions at once."""
    attempts = [depot.begin(application=APP, dataset="data", partition=number) for number in range(5)]
    for part in range(3):
        for number, attempt in enumerate(attempts):
            attempt.write({"n": [number, part]})
    for number, attempt in enumerate(attempts):
        assert read(attempt.commit().endpoint).column("n").to_pylist() == [number, 0, number, 1, number, 2]


def test_many_tiny_batches(depot: bow.depot.Depot) -> None:
    """Ten thousand batches of a row are a stream like any other."""
    committed = commit(depot, ({"n": [number]} for number in range(10_000)))
    assert committed.num_batches == 10_000
    with bow.connect(committed.endpoint) as stream:
        assert [int(batch["n"].values[0]) for batch in stream] == list(range(10_000))


@pytest.mark.slow
def test_one_large_batch(connect: Connect) -> None:
    """A batch of a gigabyte takes a slab of its own."""
    depot = connect(options={"memory_budget": 2 << 30})
    numbers = np.arange(1 << 27)
    committed = commit(depot, {"n": numbers})
    with bow.connect(committed.endpoint) as stream:
        assert (stream.read_next_batch()["n"].values == numbers).all()
    assert held(depot) == 1 << 30


def test_an_interrupted_request_spoils_no_other(
    depot: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C while an answer is awaited the next request gets its own answer."""
    assert depot._main is not None
    channel = depot._main._channel

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(channel, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            depot.status()
    assert not depot.release("data")
    assert depot.status().datasets == ()
