"""Scenarios on two hosts: a worker in a network and a file system of its own, at the end of a wire.

The program runs in a namespace, too (``unshare -n``), so that all of it is gone when it ends. The folder of both
depots has one name, as it has on real hosts, and both have the boot id of this machine.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bowstring as bow
from bowstring.spark.application_lease import application_of
from bowstring.spark.driver import driver_of
from tests.spark.live import patient
from tests.spark.publishing import standalone
from tests.spark.publishing.local import ROWS, SUM, numbers, total, wait_for
from tests.transport.certified import authority

_HERE, _THERE = "10.231.7.1", "10.231.7.2"
# The wire is between these two.
_OPEN = bow.depot.Options(plaintext=True)
_UNENCRYPTED = "would cross the network unencrypted"
# A command line in a file system where nothing is in the folder of the depot.
OWN_FOLDER = [
    "unshare",
    "-m",
    "sh",
    "-c",
    'mount -t tmpfs -o mode=700 own "$BOWSTRING_DEPOT" && exec "$@"',
    "sh",
]


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
    port = standalone.start_cluster(_HERE, [(_THERE, [*inside, *OWN_FOLDER], {})])
    return bow.spark.session(
        master=f"spark://{_HERE}:{port}",
        config={
            "spark.ui.enabled": "false",
            "spark.driver.host": _HERE,
            "spark.task.maxFailures": "1",
            "spark.executor.memory": "1g",
            **standalone.python_settings(),
        },
    )


def _namespace() -> list[str]:
    """Return what begins a command line that shall run in the other namespace."""
    keeper = subprocess.Popen(["unshare", "-n", "sleep", "600"])
    atexit.register(keeper.kill)
    return ["nsenter", "-t", str(keeper.pid), "-n"]


def depots_elsewhere() -> list[int]:
    """Return the depots of this test that are in another file system, by their processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
            mine = "bowstring.depot" in command and os.environ["BOWSTRING_DEPOT"] in command
            if mine and os.readlink(process / "ns/mnt") != os.readlink("/proc/self/ns/mnt"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def save(frame: Any, name: str, options: bow.depot.Options | None = None) -> None:
    """Write a data frame under a name, in the place of what it means."""
    writer = frame.write.format("bowstring").mode("overwrite")
    (writer if options is None else writer.option("depot_options", options.to_json())).save(name)


def the_first_failure(session: Any) -> None:
    """Without encryption both ways to write say the same and start no depot; what the error names works at once."""
    for write in (lambda: bow.spark.publish(numbers(session), "far"), lambda: save(numbers(session), "far")):
        with pytest.raises(Exception, match=_UNENCRYPTED) as caught:
            write()
        assert "Options(plaintext=True)" in str(caught.value)
        assert not depots_elsewhere()
    published = bow.spark.publish(numbers(session), "far", depot_options=_OPEN)
    assert total(published) == (ROWS, SUM)
    published.release()


def another_host(session: Any) -> None:
    """The worker's host keeps the data; this one reads them by TCP, waits for it, and frees them there."""
    published = bow.spark.publish(numbers(session), "far", readers=1, depot_options=_OPEN)
    assert all(_THERE in str(endpoint) for endpoint in published)
    with bow.connect(published) as stream:
        assert sum(int(batch["id"].values.sum()) for batch in stream) == SUM
        assert stream.stats.path == "tcp: packed"
    published.wait_released(patient(30.0))


def what_is_saved_there(session: Any) -> None:
    """What `df.write` put there is read, replaced and dropped from here."""
    for value in (1, 2):
        save(numbers(session).selectExpr(f"id * {value} AS id"), "saved", _OPEN)
    read = session.read.format("bowstring").load("saved")
    assert read.selectExpr("sum(id)").first()[0] == 2 * SUM
    assert total(bow.spark.dataset("saved")) == (ROWS, 2 * SUM)
    there = next(iter(bow.spark.dataset("saved")))
    bow.spark.drop("saved")
    with pytest.raises(bow.UnknownTicket):
        bow.connect(there)


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
    assert [each.name.partition("#")[0] for each in _there(session, "tcp:").status().datasets] == ["next"]
    published.release()


def _there(session: Any, scheme: str) -> bow.depot.Depot:
    """Return the depot at the other end of the wire, which nobody reaches by its socket."""
    return next(each for each in application_of(driver_of(session)).depots if each.address.startswith(scheme))


def by_certificates(session: Any) -> None:
    """A depot there with a certificate is settled, replaced and freed by TLS; one without makes room when empty."""
    tls = bow.TlsConfig(cert=authority().issue(_HERE, _THERE), ca=authority().path)
    options = bow.depot.Options(tls=tls)
    held = bow.spark.publish(numbers(session), "open", depot_options=_OPEN)
    with pytest.raises(Exception, match="runs with other options, and holds data"):
        bow.spark.publish(numbers(session), "far", depot_options=options)
    held.release()
    for value in (1, 2):
        frame = session.range(0, ROWS, 1, 2).selectExpr(f"id * {value} AS id")
        published = bow.spark.publish(frame, "far", depot_options=options)
    there = _there(session, "tls:")
    assert [each.streams for each in there.status().datasets] == [2]
    with bow.connect(published, tls=tls) as stream:
        assert sum(int(batch["id"].values.sum()) for batch in stream) == 2 * SUM
        assert stream.stats.path == "tls: packed"
    with pytest.raises(bow.AccessDenied, match="token"):
        bow.depot.connect(address=there.addresses[0].partition("?")[0], tls=tls)
    published.release()
    assert there.status().datasets == ()
    save(frame, "saved", options)
    assert total(bow.spark.dataset("saved"), tls=tls) == (ROWS, 2 * SUM)
    bow.spark.drop("saved", tls=tls)
    assert there.status().datasets == ()


def depots_are_stopped(session: Any) -> None:
    """All depots of an application end at once, wherever they are, and the next job starts others."""
    published = bow.spark.publish(numbers(session), "far", depot_options=_OPEN)
    before = depots_elsewhere()
    assert before
    bow.spark.stop_depots(session)
    wait_for(lambda: not set(before) & set(depots_elsewhere()))
    with pytest.raises(bow.BowstringError):
        total(published)
    with pytest.raises(bow.BrokenError):
        bow.depot.connect(start=False)
    again = bow.spark.publish(numbers(session), "far", depot_options=_OPEN)
    assert total(again) == (ROWS, SUM)
    # The command knows by the names which other depots there are.
    stop = ["depot", "stop", "--everywhere", "--json"]
    subprocess.run([*standalone.BOWSTRING, *stop], check=True, stdout=subprocess.DEVNULL)
    wait_for(lambda: not depots_elsewhere())


SCENARIOS = [
    the_first_failure,
    another_host,
    what_is_saved_there,
    what_failed_there_is_freed,
    by_certificates,
    depots_are_stopped,
]
