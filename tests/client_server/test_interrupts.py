"""Ctrl-C ends every wait, also after an import of polars, whose handler makes waits without a deadline go on."""

from __future__ import annotations

import ast
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bowstring

SOURCES = Path(bowstring.__file__).parent
# How many arguments these calls have where they have no deadline.
BARE = {
    "accept": 0,
    "acquire": 0,
    "communicate": 0,
    "get": 0,
    "join": 0,
    "result": 0,
    "exception": 0,
    "wait": 0,
    "wait_for": 1,
}
# What may wait so, or does not wait.
ALLOWED = {
    ("cli/serve.py", "server.wait()"): "waits in slices",
    ("demo/__init__.py", "publisher.wait()"): "waits in slices",
    ("demo/flights.py", "self._server.wait()"): "waits in slices",
    ("cli/doctor/sharing.py", "server.accept()"): "the socket has a timeout",
    ("transport/listener.py", "self._sock.accept()"): "the socket waits for nothing",
    ("parquet/reader.py", "future.result()"): "is done",
    ("client/dataset.py", "future.result()"): "is done",
    ("client/dataset.py", "read.result()"): "is done",
    ("client/async_stream.py", "opening.result()"): "is done",
    ("client/async_stream.py", "opening.exception()"): "is done",
    ("transport/awaiting.py", "done.exception()"): "is done",
    (
        "client/do_get.py",
        "self._changed.wait_for(lambda: self.closed or len(self._ready) < _AHEAD)",
    ): "a thread of ours",
    ("transport/threads.py", "self._over.acquire()"): "a new lock",
    ("transport/threads.py", "given.get()"): "a thread of ours, which gets work",
    ("memory/forks.py", "_one_at_a_time.acquire()"): "another thread forks, which does not wait",
    ("ipc/tensor/array.py", "array.get()"): "copies",
    ("spark/published.py", "self.wait()"): "waits in slices",
    ("spark/published.py", "self.job.result()"): "is done",
    ("spark/task.py", "TaskContext.get()"): "looks",
    ("spark/writer.py", "TaskContext.get()"): "looks",
}


def bare_waits() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if name.startswith(("benchmarks/", "testing/")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            most = BARE.get(node.func.attr, -1)
            if len(node.args) <= most and not {"timeout", "blocking"} & {each.arg for each in node.keywords}:
                yield name, ast.unparse(node)


def test_every_wait_has_a_deadline() -> None:
    """No call of the package waits without a deadline, but those of a list that says why."""
    assert set(bare_waits()) == set(ALLOWED)


@pytest.mark.parametrize(
    "wait", ["server.wait()", "server.wait(timeout=300)", "server.wait_released('t', 300)"]
)
def test_ctrl_c_ends_the_waits_of_a_server(wait: str) -> None:
    """SIGINT ends each wait of a server in the main thread of a process that has imported polars."""
    pytest.importorskip("polars")
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what runs the tests may ignore it
        "import polars as pl, bowstring as bow\n"
        "pl.DataFrame({'n': [1]}).lazy().select(pl.col('n').sum()).collect()\n"
        "with bow.Server() as server:\n"
        "    server.publish('t', {'n': [1]}, readers=1)\n"
        "    try:\n"
        "        print('waits', flush=True)\n"
        f"        {wait}\n"
        "    except KeyboardInterrupt:\n"
        "        pass\n"
        "print('closed')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, signal.SIGINT)
        try:
            assert select.select([process.stdout], [], [], 30.0)[0]
            assert process.stdout.read() == "closed\n"
        finally:
            process.kill()
