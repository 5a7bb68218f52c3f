"""A reader that is stopped until its lease has expired, and then goes on looking."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.program import Program
from tests.faults.tables import SCHEMA, batch_of, publish_again, table_of
from tests.peer.raw import RawServer, recorded

HASTY = LIMITS.replace(heartbeat=0.1, lease_timeout=0.2)


@pytest.mark.parametrize("kind", ["lazy", "resident"])
def test_a_lease_that_expires(
    serve: Callable[..., bow.Server], run: Callable[..., Program], kind: str
) -> None:
    """After its lease expired a reader's views are what they were, a hundred publishes later too; reading on says
    that the lease expired, and the next data set is read as ever.
    """
    server = serve("unix:", limits=HASTY)
    table = table_of(40)
    data = (each for each in table.to_batches()) if kind == "lazy" else table
    endpoint = server.publish("t", data, schema=SCHEMA if kind == "lazy" else None)
    program = run("looking_reader", str(endpoint), str(table.get_total_buffer_size() // 10))
    assert program.hear() == "0 1 2"
    program.stop()
    until(lambda: server.stats.connections == 0, "the lease expires")
    server.withdraw("t")
    server.wait_released("t")
    assert server.pool.stats.in_use == 0
    publish_again(server)
    assert server.pool.stats.retired > 0
    program.go_on()
    program.say("look")
    assert program.hear() == "0 1 2"
    program.say("read")
    if kind == "lazy":
        assert program.hear() == "LeaseExpired"
    else:  # all of it had come, and is the reader's as long as it looks
        assert program.hear() == "all 40"
    publish_again(server, 10)
    program.say("look")
    assert program.hear() == "0 1 2"
    program.say(f"next {server.publish('u', table_of(2))}")
    assert program.hear() == "2"
    program.say("end")
    program.end(WAIT)


def test_who_answers_keeps_its_lease(serve: Callable[..., bow.Server], run: Callable[..., Program]) -> None:
    """A reader that only looks, and says nothing for many lease times, is asked and answers."""
    server = serve("unix:", limits=HASTY)
    endpoint = server.publish("t", (each for each in table_of(40).to_batches()), schema=SCHEMA)
    program = run("looking_reader", str(endpoint), "1")
    assert program.hear() == "0 1 2"
    program.say("sleep")
    assert program.hear() == "slept"
    program.say("read")
    assert program.hear() == "all 40"
    assert server.stats.lost == 0
    program.say("end")
    program.end(WAIT)


def test_a_reader_that_is_stopped_inside_a_message(
    serve: Callable[..., bow.Server], run: Callable[..., Program]
) -> None:
    """A tcp: reader that was stopped until the server gave it up learns that its lease expired, as on unix:, though
    the server could send no error behind the message that it had half sent.
    """
    stopped = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table_of(3).to_batches()
        assert stopped.wait(WAIT)
        yield batch_of(3, 2_000_000)  # more than the kernel takes for a reader that reads nothing

    server = serve("tcp://127.0.0.1:0", limits=HASTY.replace(stall_timeout=0.5), budget=128 << 20)
    program = run("looking_reader", str(server.publish("t", batches(), schema=SCHEMA)), str(64 << 20))
    assert program.hear() == "0 1 2"
    program.stop()
    stopped.set()
    until(lambda: server.stats.connections == 0, "the lease expires")
    program.go_on()
    program.say("read")
    assert program.hear() == "LeaseExpired"
    program.say("look")
    assert program.hear() == "0 1 2"
    program.say(f"next {server.publish('u', table_of(2))}")
    assert program.hear() == "2"
    program.say("end")
    program.end(WAIT)


def test_a_reader_that_ran_all_the_time(serve: Callable[..., bow.Server]) -> None:
    """A connection that ends while the reader was there to answer is lost, and no lease expired."""
    messages = recorded(serve("tcp://127.0.0.1:0", limits=HASTY).publish("t", table_of()))
    with (
        RawServer("tcp://127.0.0.1:0", messages[:-1], hang_up=True) as server,
        bow.connect(server.uri, limits=HASTY) as stream,
    ):
        assert stream.read_next_batch().num_rows
        server.wait()
        with pytest.raises(bow.BrokenError) as lost:
            list(stream)
    assert type(lost.value) is bow.BrokenError
