"""A reader of many partitions that is killed, stopped or forks in the middle of one, as its server sees it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.program import Program
from tests.faults.tables import SCHEMA, number_of, publish_again, table_of

COUNT = 80  # more than are under way at once
ROWS = 2000
MIB = 1 << 20


def published(server: bow.Server, readers: int | None = None) -> bow.Dataset:
    """Return a data set of partitions of two batches, which are numbered through."""
    endpoints = [
        server.publish(f"part {part}", table_of(2, 2 * part, ROWS), readers=readers) for part in range(COUNT)
    ]
    return bow.Dataset(tuple(endpoints), SCHEMA)


def some(dataset: bow.Dataset, first: int) -> bow.Dataset:
    """Return the data set without its first partitions."""
    return dataclasses.replace(dataset, endpoints=dataset.endpoints[first:])


@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0"])
def test_killed(serve: Callable[..., bow.Server], run: Callable[..., Program], address: str) -> None:
    """What a reader that is killed took whole is released, all else goes to the next, and memory is used again."""
    server = serve(address, budget=256 * MIB)
    dataset = published(server, readers=1)
    program = run("partition_reader", dataset.to_json())
    assert program.hear() == "0 1 2"
    with pytest.raises(bow.UnknownTicket, match="partition"), bow.connect(dataset, limits=LIMITS) as stream:
        next(stream)  # it has its reader
    time.sleep(1.0)  # a thread of the reader says what was taken, and may be late
    program.kill()
    until(lambda: server.stats.connections == 0, "the session ends")
    server.wait_released("part 0", WAIT)
    assert server.pool.stats.retired == 0
    publish_again(server, 10)
    with bow.connect(some(dataset, 1), limits=LIMITS) as stream:
        assert [number_of(batch) for batch in stream] == list(range(2, 2 * COUNT))
    server.wait_released(timeout=WAIT)


def test_stopped(serve: Callable[..., bow.Server], run: Callable[..., Program]) -> None:
    """What a reader that is stopped for too long holds is never written again; it sees what it saw."""
    hasty = LIMITS.replace(heartbeat=0.1, lease_timeout=0.4, stall_timeout=0.8)
    server = serve("unix:", limits=hasty, budget=256 * MIB)
    program = run("partition_reader", published(server).to_json())
    assert program.hear() == "0 1 2"
    program.stop()
    until(lambda: server.stats.connections == 0, "the session ends")
    for part in range(COUNT):
        server.withdraw(f"part {part}")
    server.wait_released(timeout=WAIT)
    publish_again(server, 20, ROWS)
    assert server.pool.stats.retired > 0
    program.go_on()
    program.say("look")
    assert program.hear() == "0 1 2"


def test_forked(serve: Callable[..., bow.Server], run: Callable[..., Program]) -> None:
    """A child of a reader sees what its parent had, when that has ended and its partitions are gone."""
    server = serve("unix:", budget=256 * MIB)
    program = run("partition_reader", published(server).to_json())
    assert program.hear() == "0 1 2"
    program.say("fork")
    assert program.hear().startswith("child ")
    for part in range(COUNT):
        server.withdraw(f"part {part}")
    publish_again(server, 20, ROWS)
    program.say("")
    assert program.hear() == "0 1 2"
    assert server.pool.stats.retired > 0


def test_read_on_after_a_pause(serve: Callable[..., bow.Server], run: Callable[..., Program]) -> None:
    """A reader that goes on in time has lost nothing, wherever the server waited for it."""
    server = serve("unix:", budget=256 * MIB)
    program = run("partition_reader", published(server).to_json())
    assert program.hear() == "0 1 2"
    program.stop()
    publish_again(server, 5)
    program.go_on()
    program.say("read")
    assert program.hear() == f"all {2 * COUNT}"
    assert server.stats.lost == 0
