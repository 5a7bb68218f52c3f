"""Scenarios of data sets that are read while their jobs run: every row once, or the job's own error."""

from __future__ import annotations

import collections
import concurrent.futures
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bowstring as bow
from tests.spark.live import patient
from tests.spark.publishing.local import ROWS, SUM, held, numbers, start, streams, total, wait_for

__all__ = ["start"]

_SCHEMA = "id bigint, text string"
_SECONDS = 60.0


def _in_steps(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that lets a partition begin when the file of its number is there."""

    def passed_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        end = time.monotonic() + _SECONDS
        while not Path(folder, str(TaskContext.get().partitionId())).exists() and time.monotonic() < end:
            time.sleep(0.01)
        yield from batches

    return passed_on


def partitions_are_read_as_they_are_committed(session: Any) -> None:
    """A reader has a partition while the next ones have not begun; the name stands for what is whole."""
    with tempfile.TemporaryDirectory() as folder:
        steps = numbers(session).mapInArrow(_in_steps(folder), _SCHEMA)
        running = bow.spark.publish(steps, "steps", coalesce=None, wait=False)
        with bow.connect(running) as stream:
            seen = 0
            for part in range(4):
                with pytest.raises(bow.UnknownTicket):
                    bow.spark.dataset("steps")
                Path(folder, str(part)).touch()
                while seen < (part + 1) * ROWS // 4:
                    seen += stream.read_next_batch().num_rows
            with pytest.raises(bow.EndOfStream):
                stream.read_next_batch()
        assert running.wait(_SECONDS).num_rows == seen == ROWS
    assert total(bow.spark.dataset("steps")) == total(running) == (ROWS, SUM)
    assert [each.name for each in bow.list_datasets("depot:")] == ["steps"]
    running.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def processes_follow_it(session: Any) -> None:
    """Processes that know nothing of Spark follow a job, one all of it and two a half each."""
    program = (
        "import pickle, sys, bowstring as bow\n"
        "given, shard = pickle.load(sys.stdin.buffer)\n"
        "with bow.connect(given, shard=shard) as stream:\n"
        "    print(sum(int(batch['id'].values.sum()) for batch in stream), 'pyspark' in sys.modules)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        steps = numbers(session).mapInArrow(_in_steps(folder), _SCHEMA)
        running = bow.spark.publish(steps, coalesce=None, wait=False)

        def read(shard: tuple[int, int] | None) -> tuple[int, bytes]:
            done = subprocess.run(
                [sys.executable, "-c", program],
                input=pickle.dumps((running, shard)),
                capture_output=True,
                timeout=patient(_SECONDS),
            )
            assert done.returncode == 0, done.stderr.decode()
            found, spark = done.stdout.split()
            return int(found), spark

        with concurrent.futures.ThreadPoolExecutor() as pool:
            readers = [pool.submit(read, shard) for shard in (None, (0, 2), (1, 2))]
            for part in (3, 1, 0, 2):
                Path(folder, str(part)).touch()
            (all_of_it, known), *halves = [each.result() for each in readers]
        assert (all_of_it, known) == (SUM, b"False")
        assert sum(half for half, _ in halves) == SUM
        running.wait(_SECONDS)
    running.release()


def attempts_that_fail(session: Any) -> None:
    """Attempts that fail, in their rows or die, are tried again: a reader has each row once."""
    with tempfile.TemporaryDirectory() as folder:

        def falls(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            context = TaskContext.get()
            for batch in batches:
                yield batch
                if context.attemptNumber() == 0 and context.partitionId() in (0, 2):
                    Path(folder, str(context.partitionId())).touch()
                    if context.partitionId() == 0:
                        raise RuntimeError("the first attempt fails")
                    os.kill(os.getpid(), signal.SIGKILL)

        running = bow.spark.publish(
            numbers(session).mapInArrow(falls, _SCHEMA), "falls", coalesce=None, wait=False
        )
        assert total(running) == (ROWS, SUM)
        assert sorted(os.listdir(folder)) == ["0", "2"]
        assert total(running.wait(_SECONDS)) == (ROWS, SUM)
    wait_for(lambda: streams("falls") == 4)
    running.release()


def a_job_that_fails(session: Any) -> None:
    """The job's failure is the reader's error, with its reason, after what was committed."""

    def fails(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        for batch in batches:
            if TaskContext.get().partitionId() == 3:
                raise ValueError("a value that nobody expects")
            yield batch

    running = bow.spark.publish(
        numbers(session).mapInArrow(fails, _SCHEMA), "fails", coalesce=None, wait=False
    )
    with (
        bow.connect(running) as stream,
        pytest.raises(bow.BrokenError, match=r"(?s)job.*a value that nobody expects"),
    ):
        collections.deque(stream, maxlen=0)  # keeps no batch in this frame, which the error has
    with pytest.raises(Exception, match="a value that nobody expects"):
        running.wait(_SECONDS)
    wait_for(lambda: streams("fails") == 0)


def a_handle_that_goes(session: Any) -> None:
    """A data set without a name is freed when its handle is gone and its job over."""
    running = bow.spark.publish(numbers(session), wait=False)
    del running
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0 and not held().datasets)


SCENARIOS = [
    partitions_are_read_as_they_are_committed,
    processes_follow_it,
    attempts_that_fail,
    a_job_that_fails,
    a_handle_that_goes,
]
