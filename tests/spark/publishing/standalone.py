"""Scenarios on a standalone cluster: a master and two workers of one machine, each worker with GPUs of a script."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bowstring as bow
from bowstring.spark.java import find_java
from tests.spark.live import patient
from tests.spark.publishing.cluster import addresses, an_executor_that_is_killed, discovery, readers_elsewhere
from tests.spark.publishing.local import ROWS, SUM, numbers, total

BOWSTRING = [sys.executable, "-m", "bowstring"]
_SECONDS = 150.0
_processes: list[subprocess.Popen[bytes]] = []


def start() -> Any:
    """Start a cluster of our own, and return a session on it."""
    port = start_cluster("127.0.0.1", [("127.0.0.1", [], {})] * 2, gpus=2)
    config = {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.executor.resource.gpu.amount": "2",
        "spark.task.resource.gpu.amount": "1",
        "spark.driver.host": "127.0.0.1",
        **python_settings(),
        "spark.executorEnv.BOWSTRING_DEPOT": os.environ["BOWSTRING_DEPOT"],
    }
    return bow.spark.session(master=f"spark://127.0.0.1:{port}", config=config)


def python_settings() -> dict[str, str]:
    """Return what executors need to find this Python, and the repository."""
    return {
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def start_cluster(host: str, workers: list[tuple[str, list[str], dict[str, str]]], *, gpus: int = 0) -> int:
    """Start a master on a host, and workers; return the master's port.

    Parameters
    ----------
    host
        The master's address.
    workers
        For each its address, what its command line begins with, and what is in its environment.
    gpus
        How many GPUs each worker finds.
    """
    port = _free_port(host)
    _spark(
        "org.apache.spark.deploy.master.Master",
        *("--host", host, "--port", str(port), "--webui-port", "0"),
        given={"SPARK_LOCAL_IP": host},
    )
    _wait_for_port(host, port)
    options = ""
    if gpus:
        options = (
            f"-Dspark.worker.resource.gpu.amount={gpus} "
            f"-Dspark.worker.resource.gpu.discoveryScript={discovery()}"
        )
    for address, prefix, given in workers:
        _spark(
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", "2", "--memory", "2g", "--webui-port", "0", "--host", address),
            f"spark://{host}:{port}",
            prefix=prefix,
            given={**given, "SPARK_WORKER_OPTS": options, "SPARK_LOCAL_IP": address},
        )
    return port


def start_connect_server(settings: dict[str, str]) -> int:
    """Start a server of Spark Connect on loopback; return its port."""
    port = _free_port("127.0.0.1")
    given = {**settings, "spark.connect.grpc.binding.port": str(port)}
    _spark(
        "org.apache.spark.deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(part for name, value in given.items() for part in ("--conf", f"{name}={value}")),
        "spark-internal",
        given={"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )
    _wait_for_port("127.0.0.1", port)
    return port


def _spark(
    what: str, *arguments: str, prefix: Sequence[str] = (), given: dict[str, str] | None = None
) -> None:
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o777)  # a worker may be another user's
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_WORKER_DIR": folder, **(given or {})}
    java = find_java().home
    if java is not None:
        environment["JAVA_HOME"] = java
    process = subprocess.Popen(
        [*prefix, f"{home}/bin/spark-class", what, *arguments],
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


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_port(host: str, port: int) -> None:
    end = time.monotonic() + patient(_SECONDS)
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("it did not start")


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
    end = time.monotonic() + patient(20.0)
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
