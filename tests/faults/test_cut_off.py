"""A connection that is cut between any two messages, or inside one, by somebody in the middle."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import pytest

import bowstring as bow
from bowstring.transport import Message, dial, listen
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.tables import number_of, publish_again, table_of
from tests.peer.relay import Relay

# No questions in between: the steps are counted.
QUIET = LIMITS.replace(heartbeat=10.0)
ALL = 100
# With regions: welcome, schema, region, three batches, the end. Without: one less.
DOWN = {"unix:": 10, "tcp://127.0.0.1:0": 9, "tls://127.0.0.1:0": 9, "inproc:": 10}


def read_through(relay: Relay) -> tuple[list[bow.Batch], bow.BowstringError | None]:
    """Read as far as it goes; return the batches, and the error that ended it."""
    batches: list[bow.Batch] = []
    try:
        with bow.connect(relay.uri, limits=QUIET) as stream:
            assert stream.schema.names == ["n", "s"]
            batches.extend(stream)
    except bow.BowstringError as error:
        return batches, error
    return batches, None


@pytest.mark.parametrize("half", [False, True], ids=["between", "inside"])
@pytest.mark.parametrize("lazy", [False, True], ids=["resident", "lazy"])
def test_what_the_producer_says_is_cut_off(
    serve: Callable[..., bow.Server], address: str, *, half: bool, lazy: bool
) -> None:
    """Wherever the road from the producer ends before the stream does, the reader gets BrokenError, and what it
    has stays true.
    """
    server = serve(address, limits=QUIET)
    for step in range(DOWN[address]):
        name = f"t{step}"
        data = (lambda: iter(table_of().to_batches())) if lazy else table_of()
        endpoint = server.publish(name, data)
        with Relay(str(endpoint), down=step, half=half) as relay:
            batches, error = read_through(relay)
        assert type(error) is bow.BrokenError, f"step {step}: {error!r}"
        assert len(batches) < 3 or step == DOWN[address] - 1
        server.withdraw(name)
        publish_again(server, 5)
        assert [number_of(batch) for batch in batches] == list(range(len(batches)))
        del batches, error
        gc.collect()
    until(lambda: server.stats.connections == 0, "all sessions end")


@pytest.mark.parametrize("half", [False, True], ids=["between", "inside"])
def test_what_the_reader_says_is_cut_off(
    serve: Callable[..., bow.Server], address: str, *, half: bool
) -> None:
    """Wherever the road to the producer ends, the reader has an error or all of it, and the producer serves the
    next reader.
    """
    server = serve(address, limits=QUIET)
    for step in range(4):  # hello, ticket, what is freed, done
        endpoint = server.publish(f"t{step}", table_of())
        with Relay(str(endpoint), up=step, half=half) as relay:
            batches, error = read_through(relay)
            assert type(error) is bow.BrokenError or (error is None and len(batches) == 3 and step > 1)
            publish_again(server, 5)
            assert [number_of(batch) for batch in batches] == list(range(len(batches)))
            del batches, error
            gc.collect()
        until(lambda: server.stats.connections == 0, "the session ends")
        with bow.connect(endpoint, limits=QUIET) as stream:
            assert stream.read_all().equals(table_of())
        server.withdraw(f"t{step}")
        server.wait_released(f"t{step}")


def test_a_relay_that_cuts_nothing(serve: Callable[..., bow.Server], address: str) -> None:
    """The steps above are all there are: a connection that is not cut carries so many messages."""
    server = serve(address, limits=QUIET)
    with Relay(str(server.publish("t", table_of(), readers=1))) as relay:
        batches, error = read_through(relay)
        assert error is None
        assert [number_of(batch) for batch in batches] == [0, 1, 2]
        del batches
    assert relay.passed_down == DOWN[address]
    server.wait_released()


def test_a_relay_keeps_no_descriptor() -> None:
    """What came with a message that cannot be passed on is closed, too; else the watch for leaks sees it."""
    with listen("unix:") as listener, dial(listener.uri) as producer, dial(listener.uri) as target:
        source = listener.accept(WAIT)
        assert source is not None
        with source, open(os.devnull) as file:
            producer.send([Message(None, [b"x"], (file.fileno(),))], WAIT)
            target.close()
            assert Relay.__new__(Relay)._pump(source, target, 1) == 0
