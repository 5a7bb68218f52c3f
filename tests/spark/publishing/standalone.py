"""Scenarios on a standalone cluster: a master and two workers of one machine, each worker with GPUs of a script."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bowstring as bow
from bowstring.spark.java import find_java
from tests.spark.publishing.cluster import addresses, an_executor_that_is_killed, discovery, readers_elsewhere
from tests.spark.publishing.local import ROWS, SUM, numbers, total

_SECONDS = 60.0
_processes: list[subprocess.Popen[bytes]] = []


def start() -> Any:
    """Start a cluster of our own, and return a session on it."""
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    _spark(
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        "0",
    )
    _wait_for_port(port)
    script = discovery()
    for _ in range(2):
        _spark(
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", "2", "--memory", "2g", "--webui-port", "0", "--host", "127.0.0.1", master),
            options=f"-Dspark.worker.resource.gpu.amount=2 -Dspark.worker.resource.gpu.discoveryScript={script}",
        )
    config = {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.executor.resource.gpu.amount": "2",
        "spark.task.resource.gpu.amount": "1",
        "spark.pyspark.python": sys.executable,
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "spark.executorEnv.BOWSTRING_DEPOT": os.environ["BOWSTRING_DEPOT"],
    }
    return bow.spark.session(master=master, config=config)


def _spark(what: str, *arguments: str, options: str = "") -> None:
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    environment = {
        **os.environ,
        "SPARK_HOME": home,
        "SPARK_WORKER_DIR": tempfile.mkdtemp(),
        "SPARK_WORKER_OPTS": options,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    java = find_java().home
    if java is not None:
        environment["JAVA_HOME"] = java
    process = subprocess.Popen(
        [f"{home}/bin/spark-class", what, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _processes.append(process)


@atexit.register
def _end() -> None:
    for process in reversed(_processes):
        process.terminate()
    for process in _processes:
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_port(port: int) -> None:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the master did not start")


def executors_have_their_own_gpus(session: Any) -> None:
    """Two executors of two workers give each task a GPU, and a data set of all their tasks is complete."""
    schema = "pid bigint, address string, device string"
    rows = session.range(0, 8, 1, 8).mapInArrow(addresses, schema).collect()
    assert {row["address"] for row in rows} == {"0", "1"}
    assert len({row["pid"] for row in rows}) == 2
    published = bow.spark.publish(numbers(session, 6), "standalone")
    assert total(published) == (ROWS, SUM)
    published.release()


def no_worker_of_ours_is_left(session: Any) -> None:
    """When Spark has stopped, no task's process is left of those that published."""
    bow.spark.publish(numbers(session), "last")
    session.stop()
    end = time.monotonic() + 20.0
    while _daemons() and time.monotonic() < end:
        time.sleep(0.2)
    assert not _daemons()


def _daemons() -> list[str]:
    """Return Spark's Python processes that belong to this test's depot."""
    mark = f"BOWSTRING_DEPOT={os.environ['BOWSTRING_DEPOT']}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_daemon = b"pyspark.daemon" in (path / "cmdline").read_bytes()
            if is_daemon and mark in (path / "environ").read_bytes():
                found.append(path.name)
        except OSError:
            continue
    return [
        pid
        for pid in found
        if int(pid) != os.getpid() and b"daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


SCENARIOS = [
    executors_have_their_own_gpus,
    readers_elsewhere,
    an_executor_that_is_killed,
    no_worker_of_ours_is_left,
]
