"""Scenarios on executors of their own, with GPUs that a script makes up: Spark's way of giving them out is real."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from tests.spark.live import patient
from tests.spark.publishing.local import ROWS, SUM, held, numbers, streams, total, wait_for

_SCRIPT = """#!/bin/sh
echo '{"name":"gpu","addresses":["0","1"]}'
"""


def discovery() -> str:
    """Write a script that finds two GPUs wherever it runs; return its path."""
    path = Path(tempfile.mkdtemp(), "gpus.sh")
    path.write_text(_SCRIPT)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def with_gpus(prefix: str) -> dict[str, str]:
    """Return settings that give executors two GPUs each."""
    return {
        f"spark.{prefix}.resource.gpu.amount": "2",
        f"spark.{prefix}.resource.gpu.discoveryScript": discovery(),
    }


def start() -> Any:
    """Return a session with two executors of two slots, and a GPU for each task."""
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.task.resource.gpu.amount": "1",
        # The repository, too: what is pickled of these scenarios is found by its name.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        **with_gpus("worker"),
        **with_gpus("executor"),
    }
    return bow.spark.session(master="local-cluster[2,2,1024]", config=config)


def addresses(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Say which GPU the task has, and by which name Bowstring knows it."""
    import bowstring.testing  # noqa: F401  so that there are devices called fake

    for _ in batches:
        pass
    time.sleep(0.5)  # so that the others get theirs meanwhile
    device = bow.spark.task_device("fake")
    found = {"pid": os.getppid(), "address": bow.spark.task_address(), "device": device.name}
    yield pa.RecordBatch.from_pylist([found])


def tasks_get_their_gpu(session: Any) -> None:
    """Each task finds the GPU that Spark gave it, by the task's resources; both of an executor are used."""
    rows = (
        session.range(0, 8, 1, 8).mapInArrow(addresses, "pid bigint, address string, device string").collect()
    )
    assert {(row["address"], row["device"]) for row in rows} == {("0", "fake:0"), ("1", "fake:1")}
    assert len({row["pid"] for row in rows}) == 2


def tasks_without_a_gpu(session: Any) -> None:
    """Outside of a task, and for what was not given, the error says which setting is missing."""
    for ask in (bow.spark.task_address, bow.spark.task_device):
        with pytest.raises(bow.UsageError, match="not a task"):
            ask()

    def asks(batches: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            bow.spark.task_address("fpga")
        except bow.NotOnDevice as error:
            yield pa.RecordBatch.from_pylist([{"said": str(error)}])

    [row] = session.range(0, 1, 1, 1).mapInArrow(asks, "said string").collect()
    assert "spark.executor.resource.fpga.amount" in row["said"]


def a_profile_of_tasks(session: Any) -> None:
    """A data frame is published by tasks of a resource profile."""
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    needs = TaskResourceRequests().cpus(2).resource("gpu", 2)
    profile = ResourceProfileBuilder().require(needs).build
    published = bow.spark.publish(numbers(session), "profile", profile=profile)
    assert total(published) == (ROWS, SUM)
    published.release()


def an_executor_that_is_killed(session: Any) -> None:
    """Tasks of an executor that is killed are tried on another one: no row is lost, and none comes twice."""

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(1.0)
            yield batch

    frame = numbers(session, 4).mapInArrow(slow, "id bigint, text string")
    results: list[bow.Dataset] = []
    thread = threading.Thread(target=lambda: results.append(bow.spark.publish(frame, "killed")))
    thread.start()
    wait_for(lambda: streams("killed") > 0, 60.0)
    os.kill(executors()[0], signal.SIGKILL)
    thread.join(patient(120.0))
    assert total(results[0]) == (ROWS, SUM)
    wait_for(lambda: streams("killed") == 4)
    results[0].release()  # type: ignore[attr-defined]
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def executors() -> list[int]:
    """Return the processes of the executors of this test, and of no other one of the machine."""
    found = subprocess.run(["pgrep", "-f", "CoarseGrainedExecutorBackend"], capture_output=True, text=True)
    mark = f"BOWSTRING_DEPOT={os.environ['BOWSTRING_DEPOT']}".encode()
    return [int(pid) for pid in found.stdout.split() if mark in Path(f"/proc/{pid}/environ").read_bytes()]


def readers_elsewhere(session: Any) -> None:
    """A reader on another host takes the other road, by TCP, and gets the same rows."""
    published = bow.spark.publish(numbers(session), "far")
    assert all(endpoint.elsewhere for endpoint in published)
    program = (
        "import pickle, sys, bowstring as bow\n"
        "with bow.connect(pickle.load(sys.stdin.buffer)) as stream:\n"
        "    print(sum(int(batch['id'].values.sum()) for batch in stream), stream.stats.path)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(published),
        capture_output=True,
        timeout=patient(60.0),
        env={**os.environ, "BOWSTRING_HOST": "another"},
    )
    assert done.stdout.decode().strip() == f"{SUM} tcp: packed", done.stderr.decode()
    published.release()


SCENARIOS = [
    tasks_get_their_gpu,
    tasks_without_a_gpu,
    a_profile_of_tasks,
    readers_elsewhere,
    an_executor_that_is_killed,
]
