"""Scenarios on one kernel, apart: a worker in a container of its own, and one of another user.

Both have the boot id of the driver, and the container's depot has the path that the driver's has, too.
"""

from __future__ import annotations

import shutil
import tempfile
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
from tests.spark.publishing.hosts import OWN_FOLDER, save
from tests.spark.publishing.local import ROWS, SUM, numbers, total, wait_for

# Hadoop takes only users that have a name; this one may read what the driver's user may: Python, say.
AS_USER = (
    "setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=+dac_read_search "
    "--ambient-caps=+dac_read_search"
)


def start() -> Any:
    """Start the two workers, and return a session on them."""
    theirs = tempfile.mkdtemp(prefix="bow-")
    shutil.chown(theirs, "nobody", "nogroup")
    workers = [
        ("127.0.0.1", OWN_FOLDER, {}),
        ("127.0.0.1", AS_USER.split(), {"BOWSTRING_DEPOT": theirs, "HOME": theirs}),
    ]
    port = standalone.start_cluster("127.0.0.1", workers)
    config = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.locality.wait": "0s",
        "spark.cores.max": "4",  # the ratio is one of these: without them a job begins with the first worker
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{patient(120):.0f}s",
        **standalone.python_settings(),
    }
    return bow.spark.session(master=f"spark://127.0.0.1:{port}", config=config)


def _depots(session: Any) -> list[bow.depot.Depot]:
    """Return the depots of the workers: by their sockets the driver reaches neither."""
    found = [each for each in application_of(driver_of(session)).depots if each.address.startswith("tcp:")]
    assert len(found) == 2
    return found


def _held(session: Any) -> list[int]:
    return [len(each.status().datasets) for each in _depots(session)]


def what_is_published_apart(session: Any) -> None:
    """Data of both workers are read, replaced, settled and freed from here, though this host has a depot, too."""
    with bow.depot.connect() as here:
        for _ in range(2):
            published = bow.spark.publish(numbers(session), "apart")
            assert total(published) == (ROWS, SUM)
            assert _held(session) == [1, 1]
        assert here.status().datasets == ()
        for endpoint in published:
            with bow.connect(endpoint) as stream:
                assert stream.stats.path == "tcp: packed"
        assert session.read.format("bowstring").load("apart").selectExpr("sum(id)").first()[0] == SUM
        bow.spark.drop("apart")
        assert _held(session) == [0, 0]


def what_is_saved_apart(session: Any) -> None:
    """`df.write` commits what both workers wrote, appends to it and replaces it; who drops it frees it there."""
    save(numbers(session), "saved")
    numbers(session).write.format("bowstring").mode("append").save("saved")
    assert total(bow.spark.dataset("saved")) == (2 * ROWS, 2 * SUM)
    save(numbers(session), "saved")
    assert total(bow.spark.dataset("saved")) == (ROWS, SUM)
    assert _held(session) == [1, 1]
    bow.spark.drop("saved")
    assert _held(session) == [0, 0]


def _freed(session: Any) -> bool:
    """Whether nothing is left with both workers once a job has run; tasks that were killed may keep one busy."""
    bow.spark.publish(numbers(session), "next").release()
    return _held(session) == [0, 0]


def what_fails_apart(session: Any) -> None:
    """What a job that failed has left with both workers is freed, whether its tasks wrote it before or later."""

    def at_once(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 1:
            raise RuntimeError("no")
        time.sleep(1.0)  # the job has failed by now; Spark gives killed tasks two seconds
        yield from batches

    in_the_end = numbers(session).selectExpr("id", "if(id = 99999, raise_error('no'), text) AS text")
    for frame in (in_the_end, numbers(session).mapInArrow(at_once, "id bigint, text string")):
        with pytest.raises(Exception, match="no"):
            bow.spark.publish(frame, "failed")
        wait_for(lambda: _freed(session))
        with pytest.raises(Exception, match="no"):
            save(frame, "failed")
        wait_for(lambda: _freed(session))


def depots_apart_are_stopped(session: Any) -> None:
    """`stop_depots` ends the depots of both, and that of the driver."""
    published = bow.spark.publish(numbers(session), "last")
    pids = [each.status().pid for each in _depots(session)]
    with bow.depot.connect() as here:
        pids.append(here.status().pid)
    bow.spark.stop_depots(session)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    with pytest.raises(bow.BowstringError):
        total(published)


SCENARIOS = [what_is_published_apart, what_is_saved_apart, what_fails_apart, depots_apart_are_stopped]
