"""What is written under a name is found there once, and whole: the writers without Spark, with a depot."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow

SCHEMA = pa.schema([("n", pa.int64())])
PROPERTIES = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")


class Context:
    """A task of Spark, as far as the writers ask."""

    def __init__(
        self,
        partition: int = 0,
        attempt: int = 0,
        stream: tuple[str, str, int] | None = None,
        *,
        before: int = 0,
    ) -> None:
        self._numbers = partition, attempt
        self._before = before
        self._properties = dict(zip(PROPERTIES, stream or (), strict=False))

    def partitionId(self) -> int:  # noqa: N802  Spark's name
        """Return which partition."""
        return self._numbers[0]

    def taskAttemptId(self) -> int:  # noqa: N802  Spark's name
        """Return which attempt."""
        return self._numbers[1]

    def attemptNumber(self) -> int:  # noqa: N802  Spark's name
        """Return how many attempts at the partition were before."""
        return self._before

    def getLocalProperty(self, name: str) -> Any:  # noqa: N802  Spark's name
        """Return what the driver says of the query."""
        return self._properties.get(name)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the module, with a stand-in of PySpark's classes, and a depot of the test's own."""
    fake, sql, source = (
        types.ModuleType(name) for name in ("pyspark", "pyspark.sql", "pyspark.sql.datasource")
    )
    fake.TaskContext = type("TaskContext", (), {"now": None, "get": classmethod(lambda cls: cls.now)})  # type: ignore[attr-defined]
    for name in ("DataSourceArrowWriter", "DataSourceStreamArrowWriter", "WriterCommitMessage"):
        setattr(source, name, type(name, (), {}))
    for module in (fake, sql, source):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "bowstring.spark.writer", raising=False)
    folder = tempfile.mkdtemp(prefix="bow-")
    monkeypatch.setenv("BOWSTRING_DEPOT", folder)
    yield importlib.import_module("bowstring.spark.writer")
    sys.modules.pop("bowstring.spark.writer", None)
    with bow.depot.connect(start=False) as depot:
        depot.stop()
    shutil.rmtree(folder, ignore_errors=True)


def batch(*values: int) -> pa.RecordBatch:
    """Return some rows."""
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def write(to: Any, partitions: list[list[int]], stream: tuple[str, str, int] | None = None) -> list[Any]:
    """Write partitions as tasks do; return what they tell the commit."""
    context = sys.modules["pyspark"].TaskContext
    said = []
    for number, values in enumerate(partitions):
        context.now = Context(number, number, stream)
        said.append(to.write(iter([batch(*values)])))
    return said


def add(
    module: Any, name: str, values: list[int], query: str, number: int, run: str = "r", **how: Any
) -> None:
    """Write a micro-batch and commit it, as different processes of Spark do."""
    said = write(module.DatasetStreamWriter({"name": name}, SCHEMA, **how), [values], (query, run, number))
    module.DatasetStreamWriter({"name": name}, SCHEMA, **how).commit(said, number)


def found(name: str) -> list[int]:
    """Return the rows that a name means."""
    with bow.connect(bow.spark.dataset(name)) as stream:
        return [value for each in stream for value in each["n"].to_arrow().to_pylist()]


def test_each_micro_batch_counts_once(writer: Any) -> None:
    """A micro-batch that another run of the query repeats is not added again, and what it wrote is freed."""
    add(writer, "ev", [1], "q", 0)
    add(writer, "ev", [2], "q", 1)
    add(writer, "ev", [2], "q", 1, run="again")
    assert found("ev") == [1, 2]
    with bow.depot.connect() as depot:
        assert sum(each.streams for each in depot.status().datasets) == 2


def test_later_attempts_wait_a_tenth(writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt at a partition waits for room as long as was asked for, each later one a tenth of it."""
    begin, waits = bow.depot.Depot.begin, []

    def noting(depot: bow.depot.Depot, **how: Any) -> Any:
        waits.append(how["wait"])
        return begin(depot, **how)

    monkeypatch.setattr(bow.depot.Depot, "begin", noting)
    to = writer.DatasetWriter({"path": "ev", "wait_for_room": "20"}, SCHEMA, overwrite=False)
    for before in (0, 1, 2):
        sys.modules["pyspark"].TaskContext.now = Context(0, before, before=before)
        to.write(iter([batch(1)]))
    assert waits == [20.0, 2.0, 2.0]


def test_queries_count_from_zero_each(writer: Any) -> None:
    """Two queries of one name, or one with a new checkpoint, number alike: no batch is taken for another."""
    add(writer, "ev", [1], "one", 0)
    add(writer, "ev", [2], "other", 0)
    assert found("ev") == [1, 2]


def test_complete_output_replaces(writer: Any) -> None:
    """In the output mode complete each micro-batch is all there is, and what was there before is freed."""
    add(writer, "sums", [1], "q", 0, overwrite=True)
    add(writer, "sums", [1, 2], "q", 1, overwrite=True)
    assert found("sums") == [1, 2]
    with bow.depot.connect() as depot:
        assert sum(each.streams for each in depot.status().datasets) == 1


@pytest.mark.parametrize("error", [bow.BrokenError, bow.DeadlineExceeded, bow.RefusedError])
def test_a_depot_that_cannot_be_reached_is_for_the_tasks_to_say(
    writer: Any, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's check before a job fails no job: tasks on other hosts may reach their depots."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error("the depot was not ready in time")

    with monkeypatch.context() as patched:
        patched.setattr(writer, "connect", fails)
        made = [writer.DatasetWriter({"path": "ev"}, SCHEMA, overwrite=each) for each in (True, False)]
    for to in made:
        to.commit(write(to, [[1]]))
    assert found("ev") == [1, 1]


def test_names_are_told_apart(writer: Any) -> None:
    """Replacing what one name means leaves alone what another one means that begins like it."""
    for name in ("a#b", "a", "a"):
        to = writer.DatasetWriter({"path": name}, SCHEMA, overwrite=True)
        to.commit(write(to, [[1], [2]]))
    assert found("a#b") == [1, 2]
    assert found("a") == [1, 2]


def test_what_is_gone_is_not_committed(writer: Any) -> None:
    """A commit of streams that died with their depot fails and announces nothing: the batch can be run again."""
    add(writer, "ev", [1], "q", 0)
    said = write(writer.DatasetStreamWriter({"name": "ev"}, SCHEMA), [[2]], ("q", "r", 1))
    with bow.depot.connect() as depot:
        [dataset] = [each.name for each in depot.status().datasets if each.name.endswith("#1")]
        depot.release(dataset)
    with pytest.raises(bow.BrokenError, match="1 streams"):
        writer.DatasetStreamWriter({"name": "ev"}, SCHEMA).commit(said, 1)
    assert found("ev") == [1]
    add(writer, "ev", [2], "q", 1, run="again")
    assert found("ev") == [1, 2]


def test_a_depot_that_died(writer: Any) -> None:
    """Where the depot itself is gone a commit fails, and no name is left that means nothing."""
    to = writer.DatasetWriter({"path": "ev"}, SCHEMA, overwrite=False)
    said = write(to, [[1]])
    with bow.depot.connect() as depot:
        os.kill(depot.status().pid, signal.SIGKILL)
    with pytest.raises(bow.BowstringError):
        to.commit(said)
    with bow.depot.connect(), pytest.raises(bow.UnknownTicket):
        bow.spark.dataset("ev")


def test_what_was_aborted_is_over(writer: Any) -> None:
    """After an abort nothing is held, and a task of the job that is late gets no room any more."""
    to = writer.DatasetWriter({"path": "ev"}, SCHEMA, overwrite=False)
    to.abort([*write(to, [[1]]), None])
    with bow.depot.connect() as depot:
        assert depot.status().datasets == ()
    with pytest.raises(bow.RefusedError, match="released"):
        write(to, [[2]])


@pytest.mark.parametrize("stream", [None, ("q", "r", 0)], ids=["save", "stream"])
def test_what_a_task_writes_after_the_abort_is_freed(
    writer: Any, monkeypatch: pytest.MonkeyPatch, stream: tuple[str, str, int] | None
) -> None:
    """A task that no message speaks of is refused on the driver's host; elsewhere later tasks free its data."""
    there = tempfile.mkdtemp(prefix="bow-")

    def new() -> Any:
        if stream is None:
            return writer.DatasetWriter({"path": "ev"}, SCHEMA, overwrite=False)
        return writer.DatasetStreamWriter({"name": "ev"}, SCHEMA)

    to = new()
    told, _ = write(to, [[1], [2]], stream)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("BOWSTRING_DEPOT", there)
        write(to, [[3]], stream)
    to.abort([None, told], *([] if stream is None else [0]))
    with pytest.raises(bow.RefusedError, match="released"):
        write(to, [[4]], stream)
    to = new()
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("BOWSTRING_DEPOT", there)
        [said] = write(to, [[5]], stream and ("q", "again", 0))
        with bow.depot.connect() as depot:
            assert [each.name for each in depot.status().datasets] == [said.dataset]
            depot.stop()


def test_another_schema_is_not_appended(writer: Any) -> None:
    """What is appended must have the schema that is there; what has none, having no rows, has no say."""
    for values in ([[1]], []):
        to = writer.DatasetWriter({"path": "ev"}, SCHEMA, overwrite=False)
        to.commit(write(to, values))
    to = writer.DatasetWriter({"path": "ev"}, SCHEMA, overwrite=False)
    sys.modules["pyspark"].TaskContext.now = Context()
    said = to.write(iter([pa.record_batch({"n": ["text"]})]))
    with pytest.raises(bow.UsageError, match="another schema"):
        to.commit([said])
    assert found("ev") == [1]


def test_another_schema_is_refused_when_planned(writer: Any) -> None:
    """Before any task runs it is said which columns are others; those that are the same do not hide them."""
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    wanted = {"path": "ev"}
    to = writer.DatasetWriter(wanted, SCHEMA, overwrite=False)
    to.commit(write(to, [[1]]))
    for other, said in [
        (pa.schema([("n", pa.string())]), "expected n int64.*found n string.*'ev'"),
        (pa.schema([("m", pa.int64())]), "expected n int64.*found m int64"),
        (schema, "found n int64, s string, t timestamp"),
    ]:
        with pytest.raises(bow.UsageError, match=f"(?s)another schema.*{said}"):
            writer.DatasetWriter(wanted, other, overwrite=False)
        writer.DatasetWriter(wanted, other, overwrite=True)
        writer.DatasetWriter({"path": "other"}, other, overwrite=False)
    writer.DatasetWriter(wanted, SCHEMA, overwrite=False)
    assert found("ev") == [1]


def test_what_a_plan_does_not_know_is_not_refused(writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time zones and large offsets are the tasks'; rows say what a data set is, and whose name it is the commit."""

    def made(of: pa.DataType, zone: str, text: pa.DataType) -> pa.Schema:
        inner = pa.struct([("t", pa.timestamp("us", zone)), ("v", pa.list_(text))])
        return pa.schema([("n", of), ("m", pa.map_(text, inner))])

    to = writer.DatasetWriter({"path": "none"}, SCHEMA, overwrite=False)
    to.commit([])
    writer.DatasetWriter({"path": "none"}, pa.schema([("x", pa.bool_())]), overwrite=False)
    known = made(pa.int64(), "Asia/Tokyo", pa.large_string())
    row = pa.RecordBatch.from_pylist([{"n": 1}], schema=known)
    to = writer.DatasetWriter({"path": "ev"}, known, overwrite=False)
    sys.modules["pyspark"].TaskContext.now = Context()
    to.commit([to.write(iter([row]))])
    writer.DatasetWriter({"path": "ev"}, made(pa.int64(), "UTC", pa.string()), overwrite=False)
    with pytest.raises(bow.UsageError, match="another schema"):
        writer.DatasetWriter({"path": "ev"}, made(pa.int32(), "UTC", pa.string()), overwrite=False)
    monkeypatch.setattr("bowstring.spark.task.driver_identity", lambda _: "another")
    writer.DatasetWriter({"path": "ev"}, SCHEMA, overwrite=False)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": "x", "readers": "many"},
        {"path": "x", "readers": "0"},
        *(
            {"path": "x", "depot_options": each}
            for each in ("no JSON", "[]", '{"budget": 1}', '{"tls": {"c": 1}}')
        ),
    ],
)
def test_options(writer: Any, options: dict[str, str]) -> None:
    """A name is needed, numbers are numbers, and options of a depot are those that there are."""
    with bow.depot.connect(), pytest.raises(bow.UsageError):
        writer.DatasetWriter(options, SCHEMA, overwrite=False)


def test_only_save_names_what_is_written(writer: Any) -> None:
    """An option is all that saveAsTable can give, and its table could not be read: refused, and streams take it."""
    for options in ({"name": "ev"}, {"name": "ev", "path": "other"}):
        with bow.depot.connect(), pytest.raises(bow.UsageError, match=r"saveAsTable.* use save"):
            writer.DatasetWriter(options, SCHEMA, overwrite=False)
    writer.DatasetStreamWriter({"name": "ev"}, SCHEMA)
