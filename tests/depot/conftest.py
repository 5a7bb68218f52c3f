"""What the tests of the depot share: depots that always end, tasks in processes, the watch for leaks."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow

WAIT = 20.0
MIB = 1 << 20
APP = "app"

Connect = Callable[..., bow.depot.Depot]


def until(true: Callable[[], object], what: str, seconds: float = WAIT) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not in {seconds} s: {what}"
        time.sleep(0.01)
        gc.collect()


def runs(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def tidy(forked: None, no_leaks: None, unmap_idle: Callable[[], None]) -> Iterator[None]:
    """Leave nothing behind: no descriptor, no thread, no mapping."""

    def mapped() -> int:
        unmap_idle()
        return Path("/proc/self/maps").read_text().count("memfd:bowstring")

    before = mapped()
    yield
    until(lambda: mapped() <= before, "slabs stay mapped")


@pytest.fixture
def folder(tidy: None) -> Iterator[str]:
    """Return a private folder with a short name; whatever depot lives there ends after the test."""
    made = tempfile.mkdtemp(prefix="bow-")
    yield made
    with contextlib.suppress(bow.BowstringError), bow.depot.connect(start=False, folder=made) as depot:
        pid = depot.status().pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not runs(pid), "a depot ends")
    shutil.rmtree(made)


@pytest.fixture
def connect(folder: str) -> Iterator[Connect]:
    """Return a function that connects to the depot of this test; what it returns is closed."""
    with contextlib.ExitStack() as stack:

        def make(**given: Any) -> bow.depot.Depot:
            starts = given.get("start", True) and not any(
                name.endswith(".sock") for name in os.listdir(folder)
            )
            options = {"memory_budget": 256 * MIB, "disk_budget": 256 * MIB} if starts else {}
            chosen: Any = {
                "folder": folder,
                "options": bow.depot.Options(**options | given.pop("options", {})),
            }
            return stack.enter_context(bow.depot.connect(**chosen | given))

        yield make


@pytest.fixture
def depot(connect: Connect) -> bow.depot.Depot:
    """Return a depot that was just started."""
    return connect()


def commit(depot: bow.depot.Depot, table: Any, dataset: str = "data", **options: Any) -> bow.depot.Committed:
    """Write one partition."""
    with depot.begin(**{"application": APP, "dataset": dataset} | options) as attempt:
        attempt.write(table)
        return attempt.commit()


def read(source: bow.Endpoint | bow.Dataset, **options: Any) -> pa.Table:
    """Read all of a data set, and keep none of its memory."""
    with bow.connect(source, **options) as stream:
        return pa.Table.from_pydict(stream.read_all().to_pydict(), schema=stream.schema)


def held(depot: bow.depot.Depot) -> int:
    """Return how many bytes of the depot are lent or hold data."""
    status = depot.status()
    return status.memory_in_use + status.disk_in_use


def until_free(depot: bow.depot.Depot) -> None:
    """Wait until the depot holds nothing."""
    until(lambda: held(depot) == 0, f"the depot is free: {depot.status()}")


class Task:
    """A process that runs some code, says how far it is, and waits to be told to go on."""

    def __init__(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.process: Any = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=None if env is None else {**os.environ, **env},
        )

    def hear(self) -> str:
        """Return the next line that it says."""
        line: str = self.process.stdout.readline()
        assert line, "the task ended"
        return line.rstrip("\n")

    def go_on(self, line: str = "") -> None:
        """Let it go on."""
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill it without a word."""
        self.process.kill()
        self.process.wait(WAIT)

    def end(self) -> int:
        """Wait for its end; return its exit code."""
        self.process.stdin.close()
        code: int = self.process.wait(WAIT)
        return code

    def close(self) -> None:
        """Leave nothing of it."""
        self.kill()
        self.process.stdout.close()
        with contextlib.suppress(OSError):
            self.process.stdin.close()


_PRELUDE = """
import sys
import numpy as np, pyarrow as pa, bowstring as bow
def say(text=""):
    print(text, flush=True)
    sys.stdin.readline()
folder = sys.argv[1]
table = pa.table({"n": np.arange(1 << 17)})
"""


@pytest.fixture
def task(folder: str) -> Iterator[Callable[..., Task]]:
    """Return a function that starts a task: its first argument is the folder of the depot."""
    tasks: list[Task] = []

    def start(code: str, *arguments: str, **options: Any) -> Task:
        tasks.append(Task(code, folder, *arguments, **options))
        return tasks[-1]

    yield start
    for each in tasks:
        each.close()
