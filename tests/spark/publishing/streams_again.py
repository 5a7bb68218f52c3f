"""Scenarios of streams whose data set ended and came back, in the same depot or another, or at a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from tests.spark.publishing.local import kill_the_depot
from tests.spark.publishing.streams import REPLACED, Query, append, publish, start

__all__ = ["SCENARIOS", "start"]


def a_name_that_ended_and_came_back(session: Any) -> None:
    """A name that ended is an error; when it means something again, that replaced what was read."""
    query, relaxed = Query(session, "ended"), Query(session, "ended", onReplace="read")
    published = publish(session, "ended", range(10))
    assert query.look() == relaxed.look() == list(range(10))
    for end in (published.release, lambda: bow.spark.drop("ended")):
        end()
        with pytest.raises(Exception, match="no data set of that name"):
            relaxed.look()
        append(session, "ended", range(10, 20))
        with pytest.raises(Exception, match=REPLACED):
            query.look()
        assert relaxed.look() == list(range(10, 20))


def a_depot_that_starts_again(session: Any) -> None:
    """What another depot has under the name replaced what was read; what is republished goes on where it was."""
    query, relaxed = Query(session, "lost"), Query(session, "lost", onReplace="read")
    published = publish(session, "lost", range(10), 5, recoverable=True)
    some = Query(session, "lost", maxEndpointsPerTrigger="2", before=lambda number: 1 / (1 - number))
    with pytest.raises(Exception, match="ZeroDivisionError"):
        some.look()
    assert some.batches == [[0, 1, 2, 3]]
    assert query.look() == relaxed.look() == list(range(10))
    kill_the_depot()
    with pytest.raises(Exception, match=r"BrokenError|no data set of that name"):
        query.look()
    published.republish()
    some.before = lambda _: None
    assert some.look() == list(range(4, 10))
    assert query.look() == relaxed.look() == []
    kill_the_depot()
    append(session, "lost", range(10, 20))
    with pytest.raises(Exception, match=REPLACED):
        query.look()
    assert relaxed.look() == list(range(10, 20))


def a_checkpoint_that_counts_endpoints(session: Any) -> None:
    """A checkpoint of an earlier version, whose offsets are counts alone, is an error that says what to do."""
    query = Query(session, "old")
    publish(session, "old", range(10))
    assert query.look() == list(range(10))
    log = Path(query.checkpoint, "offsets", "0")
    *head, last = log.read_text().splitlines()
    log.write_text(
        "\n".join([*head, json.dumps({"endpoints": int(json.loads(last)["position"].rpartition(":")[2])})])
    )
    Path(log.parent, ".0.crc").unlink()
    for option in ("error", "read"):
        query.options = {"onReplace": option}
        with pytest.raises(Exception, match="new checkpointLocation"):
            query.look()


def a_server_s_name_that_is_replaced(session: Any) -> None:
    """The same holds for a name of a server, by its URI, and for lists of URIs."""
    with bow.Server() as server:
        endpoints = [server.publish(name, pa.table({"id": [number]})) for number, name in enumerate("ab")]
        query = Query(session, "\n".join(map(str, endpoints)))
        assert query.look() == [0, 1]
        endpoints.append(server.publish("c", pa.table({"id": [2]})))
        query.source = "\n".join(map(str, endpoints))
        assert query.look() == [2]
        server.publish("b", pa.table({"id": [3]}), replace=True)
        with pytest.raises(Exception, match=REPLACED):
            query.look()
        query.options = {"onReplace": "read"}
        assert query.look() == [0, 2, 3]
        assert query.look() == []


SCENARIOS = [
    a_name_that_ended_and_came_back,
    a_checkpoint_that_counts_endpoints,
    a_server_s_name_that_is_replaced,
    a_depot_that_starts_again,
]
