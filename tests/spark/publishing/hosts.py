"""Scenarios on two hosts: a worker in a network namespace of its own, with its own depot, at the end of a wire.

The program runs in a namespace, too (``unshare -n``), so that all of it is gone when it ends.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

import bowstring as bow
from bowstring.spark.application_lease import application_of
from bowstring.spark.driver import driver_of
from tests.spark.publishing import standalone
from tests.spark.publishing.local import ROWS, SUM, numbers, total, wait_for
from tests.transport.certified import authority

_HERE, _THERE = "10.231.7.1", "10.231.7.2"
# The wire is between these two.
_OPEN = bow.depot.Options(plaintext=True)
_FAR = {"BOWSTRING_HOST": "the-other-host"}


def start() -> Any:
    """Lay the wire, and return a session whose one worker is at its other end."""
    inside = _namespace()
    for command in (
        "ip link set lo up",
        "ip link add near type veth peer name far",
        f"ip link set far netns {inside[2]}",
        f"ip addr add {_HERE}/24 dev near",
        "ip link set near up",
    ):
        subprocess.run(command.split(), check=True)
    for command in ("ip link set lo up", f"ip addr add {_THERE}/24 dev far", "ip link set far up"):
        subprocess.run([*inside, *command.split()], check=True)
    environment = {**_FAR, "BOWSTRING_DEPOT": tempfile.mkdtemp(prefix="bow-")}
    port = standalone.start_cluster(_HERE, [(_THERE, inside, environment)])
    return bow.spark.session(
        master=f"spark://{_HERE}:{port}",
        config={
            "spark.ui.enabled": "false",
            "spark.driver.host": _HERE,
            "spark.task.maxFailures": "1",
            "spark.executor.memory": "1g",
            **standalone.python_settings(),
            **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
        },
    )


def _namespace() -> list[str]:
    """Return what begins a command line that shall run in the other namespace."""
    keeper = subprocess.Popen(["unshare", "-n", "sleep", "600"])
    atexit.register(keeper.kill)
    return ["nsenter", "-t", str(keeper.pid), "-n"]


def another_host(session: Any) -> None:
    """The worker's host keeps the data; this one reads them by TCP, waits for it, and frees them there."""
    published = bow.spark.publish(numbers(session), "far", readers=1, depot_options=_OPEN)
    assert {endpoint.host for endpoint in published} == {_FAR["BOWSTRING_HOST"]}
    assert all(_THERE in str(endpoint) for endpoint in published)
    with bow.connect(published) as stream:
        assert sum(int(batch["id"].values.sum()) for batch in stream) == SUM
        assert stream.stats.path == "tcp: packed"
    published.wait_released(30.0)


def what_failed_there_is_freed(session: Any) -> None:
    """What tasks there committed of a job that failed is freed by the next one's, though nobody here knew of it."""

    def fails(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 3:
            time.sleep(3.0)  # the others commit before it
            raise RuntimeError("the last one fails")
        yield from batches

    with pytest.raises(Exception, match="the last one fails"):
        bow.spark.publish(
            numbers(session).mapInArrow(fails, "id bigint, text string"), "failed", depot_options=_OPEN
        )
    published = bow.spark.publish(numbers(session), "next", depot_options=_OPEN)
    there = next(
        each for each in application_of(driver_of(session)).depots if each.address.startswith("tcp:")
    )
    assert [each.name.partition("#")[0] for each in there.status().datasets] == ["next"]
    published.release()


def tasks_that_stay_there(session: Any) -> None:
    """Tasks of the other host that stay meet the driver here, and their data are read by TCP."""
    published = bow.spark.publish(numbers(session, 2), "stay", mode="barrier", readers=1, depot_options=_OPEN)
    assert total(published) == (ROWS, SUM)
    published.wait_released(30.0)


def by_certificates(session: Any) -> None:
    """A depot there that was started with a certificate is settled, replaced and freed by TLS, as options say."""
    tls = bow.TlsConfig(cert=authority().issue(_HERE, _THERE), ca=authority().path)
    options = bow.depot.Options(tls=tls)
    for value in (1, 2):
        frame = session.range(0, ROWS, 1, 2).selectExpr(f"id * {value} AS id")
        published = bow.spark.publish(frame, "far", depot_options=options)
    there = next(
        each for each in application_of(driver_of(session)).depots if each.address.startswith("tls:")
    )
    assert [each.streams for each in there.status().datasets] == [2]
    with bow.connect(published, tls=tls) as stream:
        assert sum(int(batch["id"].values.sum()) for batch in stream) == 2 * SUM
        assert stream.stats.path == "tls: packed"
    stay = bow.spark.publish(numbers(session, 2), mode="barrier", readers=1, depot_options=options)
    with bow.connect(stay, tls=tls) as stream:
        assert sum(batch.num_rows for batch in stream) == ROWS
    stay.wait_released(30.0)
    published.release()
    assert there.status().datasets == ()
    # The next scenarios start another one, without encryption. No driver may stop it from here.
    os.kill(there.status().pid, signal.SIGTERM)
    wait_for(lambda: not os.path.exists(f"/proc/{there.pid}"))


SCENARIOS = [by_certificates, what_failed_there_is_freed, another_host, tasks_that_stay_there]
