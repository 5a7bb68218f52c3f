"""Where a task's host is found from others: by the address that it would send to the driver from."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bowstring import TlsConfig
from bowstring.depot import Options
from bowstring.spark import task
from bowstring.spark.task import own_address
from bowstring.transport import dial, listen


@pytest.mark.parametrize("driver", ["127.0.0.1", "localhost", "[::1]", "::1"])
def test_the_drivers_host_reaches_it(driver: str) -> None:
    """What a task says of itself can be listened on and dialled, in either family, with brackets or without."""
    address = own_address(driver)
    assert address is not None
    with listen(address) as listener, dial(listener.uri) as channel:
        assert not channel.closed


def test_on_the_drivers_own_host_loopback_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task in the driver's network needs no encryption, unless others shall read, too."""
    own = "192.0.2.7"

    class Probe(socket.socket):
        def connect(self, place: Any) -> None:
            pass

        def getsockname(self) -> Any:
            return (own, 0)

    monkeypatch.setattr(socket, "socket", Probe)
    assert own_address(own) == "tcp://127.0.0.1:0"
    assert own_address("192.0.2.8") == f"tcp://{own}:0"
    assert own_address(own, Options(plaintext=True)) == f"tcp://{own}:0"
    assert own_address(own, Options(tls=TlsConfig(cert="a.pem"))) == f"tls://{own}:0"


@pytest.mark.parametrize(
    ("command", "host"),
    [
        (
            ["-cp", "x", "--driver-url", "spark://CoarseGrainedScheduler@10.1.2.3:35415", "--cores", "2"],
            "10.1.2.3",
        ),
        (["--driver-url", "spark://CoarseGrainedScheduler@[::1]:1", "--app-id"], "[::1]"),
        (
            ["--driver-url", "spark://CoarseGrainedScheduler@a-driver.spark.svc:7078", ""],
            "a-driver.spark.svc",
        ),
        (
            ["org.apache.spark.deploy.SparkSubmit", "--conf", "spark.driver.host=10.1.2.3", "pyspark-shell"],
            None,
        ),
    ],
)
def test_an_executor_knows_the_driver(
    command: list[str], host: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task finds the driver's host by the command line of its executor; a driver's own has none."""
    sleeps = ["java", "-c", "import time; time.sleep(60)", *command]
    with subprocess.Popen(sleeps, executable=sys.executable) as java:
        monkeypatch.setattr(task, "executor_pid", lambda: java.pid)
        try:
            while not Path(f"/proc/{java.pid}/cmdline").read_bytes():  # it has only just begun
                time.sleep(0.001)
            assert task._driver_host() == host
        finally:
            java.kill()


def test_without_other_hosts_there_is_none() -> None:
    """Where the driver says nothing, nobody listens; a host that nobody knows is an error, and no other address."""
    assert own_address(None) is None
    with pytest.raises(OSError, match=r".+"):
        own_address("no-such-host.invalid")
