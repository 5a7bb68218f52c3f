"""Flight: clients and servers that are killed, stopped or slow, and what that costs the other end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import bowstring as bow
from tests.faults.conftest import LIMITS, until
from tests.faults.program import Program

Run = Callable[..., Program]
HASTY = LIMITS.replace(reply_timeout=1.0, connect_timeout=5.0)


@pytest.fixture(autouse=True)
def tidy() -> None:
    """Leave the watch over descriptors to ``tests/flight``: gRPC keeps some for the process."""


def big(count: int = 100) -> pa.Table:
    """Return so many megabytes."""
    return pa.Table.from_batches(
        [pa.record_batch({"n": np.full(1 << 17, number)}) for number in range(count)]
    )


@pytest.mark.parametrize("lazy", [False, True], ids=["resident", "lazy"])
def test_a_client_is_killed(run: Run, *, lazy: bool) -> None:
    """A client that is killed in the midst of DoGet is a reader no more, and what it read is released."""
    ended: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from big().to_batches()
        finally:
            ended.append(1)

    with bow.Server("inproc:") as server, bow.flight.serve(server) as flights:
        server.publish("t", batches if lazy else big())
        client = run("flight_reader", flights.uri)
        assert int(client.hear()) == 1 << 17
        assert bow.list_datasets(server.address)[0].readers == 1
        client.kill()
        until(lambda: bow.list_datasets(server.address)[0].readers == 0, "the reader is counted out")
        assert len(ended) == lazy
        server.withdraw("t")
        server.wait_released("t", timeout=10.0)
        until(lambda: server.pool.stats.in_use == 0, "memory comes home")


def test_a_slow_client(run: Run) -> None:
    """For a client that takes nothing more, no more batches are made than gRPC holds: memory is bounded."""
    program = run("flight_producer", "lazy")
    with flight.connect(program.hear()) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("t"))
        reader = client.do_get(info.endpoints[0].ticket)
        reader.read_chunk()

        def made() -> int:
            program.say()
            return int(program.hear().split()[0])

        settled = -1
        while (now := made()) != settled:
            settled = now
            time.sleep(0.3)
        assert settled < 100, "of 1000 batches of a megabyte"
        reader.cancel()

    def readers() -> str:
        program.say()
        return program.hear().split()[1]

    until(lambda: readers() == "0", "the reader is counted out")


def test_our_slow_client(run: Run) -> None:
    """Our own client reads two batches ahead, and no more."""
    program = run("flight_producer", "lazy")
    with bow.connect(program.hear(), "t", limits=LIMITS) as stream:
        next(stream)
        time.sleep(0.5)
        program.say()
        assert int(program.hear().split()[0]) < 100
        assert [batch["n"].values[0] for batch in (next(stream) for _ in range(50))] == list(range(1, 51))


def test_a_server_is_killed(run: Run) -> None:
    """When the server dies in DoGet its client has an error, and what it has stays true."""
    for source in ("lazy", "table"):
        program = run("flight_producer", source)
        with bow.connect(program.hear(), "t", limits=LIMITS) as stream:
            first = next(stream)
            program.kill()
            with pytest.raises(bow.BrokenError):
                for _ in stream:
                    pass
        assert set(first["n"].to_pylist()) == {0}


def test_a_server_is_stopped(run: Run) -> None:
    """A server that answers nothing any more is waited for as long as was said, before a call and within one."""
    program = run("flight_producer", "lazy")
    uri = program.hear()
    with bow.connect(uri, "t", limits=HASTY) as stream:
        next(stream)
        program.stop()
        began = time.monotonic()
        with pytest.raises(bow.DeadlineExceeded):
            for _ in stream:
                pass
        with pytest.raises((bow.DeadlineExceeded, bow.BrokenError)):
            bow.connect(uri, "t", limits=HASTY.replace(connect_timeout=1.0))
        with pytest.raises((bow.DeadlineExceeded, bow.BrokenError)):
            bow.list_datasets(uri, limits=HASTY)
        assert time.monotonic() - began < 15.0


def test_closing_with_a_client_that_stopped_reading(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """A server closes within its time, though a client is stopped within a call, and the call ends."""
    limits = LIMITS.replace(close_timeout=0.5)
    with bow.Server("inproc:", limits=limits) as server:
        flights = bow.flight.serve(server)
        server.publish("t", big())
        client = run("flight_reader", flights.uri)
        client.hear()
        client.stop()
        began = time.monotonic()
        with caplog.at_level("WARNING", "bowstring"):
            flights.close()
        assert time.monotonic() - began < 5.0
        assert "stopped reading" in caplog.text
        with pytest.raises((bow.BrokenError, bow.DeadlineExceeded)):
            bow.connect(flights.uri, "t", limits=HASTY)
        until(lambda: bow.list_datasets(server.address)[0].readers == 0, "the reader is counted out")


@pytest.mark.parametrize("ending", ["closed", "open"])
@pytest.mark.parametrize("source", ["lazy", "table"])
def test_a_process_exits_while_a_client_has_stopped_reading(run: Run, source: str, ending: str) -> None:
    """The process of a server exits by itself, closed or not, though a client is stopped within a call."""
    producer = run("flight_producer", source, ending)
    client = run("flight_reader", producer.hear())
    client.hear()
    client.stop()
    producer.say("exit")
    producer.end(15.0)
