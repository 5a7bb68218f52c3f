"""How many readers a data set has: who is let in, who is waited for, and who gives a place back."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.server import catalogue_of, offered
from tests.client_server.conftest import PATIENCE, read, until

TABLE = pa.table({"n": range(1000)})


def test_waiting_says_who_is_missing(server: bow.Server) -> None:
    """A wait that is over too early names each data set that is still wanted, its readers, and what to do."""
    server.publish("first", TABLE, readers=2)
    other = server.publish("other", TABLE, readers=1)
    server.publish("open", TABLE)
    read(other)
    server.wait_released("other")
    with bow.connect(server.endpoints["first"]) as stream:
        stream.read_next_batch()
        with pytest.raises(bow.DeadlineExceeded) as caught:
            server.wait_released(timeout=0.01)
    text = str(caught.value)
    assert "'first'" in text
    assert "0 of 2" in text
    assert "1 reading" in text
    assert "'open'" in text
    assert "withdrawn" in text
    assert "'other'" not in text


def test_the_limit_of_waiting(serve: Callable[..., bow.Server]) -> None:
    """Without a timeout the wait takes as long as the server's limit."""
    server = serve(limits=PATIENCE.replace(release_timeout=0.01))
    server.publish("t", TABLE, readers=1)
    with pytest.raises(bow.DeadlineExceeded, match="'t'"):
        server.wait_released()


def test_waiting_ends_with_the_last_reader(server: bow.Server) -> None:
    """A thread that waits goes on when the last of the readers has freed its last batch."""
    endpoint = server.publish("t", TABLE, readers=3)
    released = threading.Event()

    def wait() -> None:
        server.wait_released("t")
        released.set()

    thread = threading.Thread(target=wait)
    thread.start()
    for _ in range(3):
        assert not released.is_set()
        read(endpoint)
    assert released.wait(10)
    thread.join(10)


def test_waiting_for_one_of_several(server: bow.Server) -> None:
    """Waiting for one data set does not wait for the others."""
    endpoint = server.publish("t", TABLE, readers=1)
    server.publish("other", TABLE, readers=1)
    read(endpoint)
    server.wait_released("t")


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_place_is_given_back(server: bow.Server, batches: int) -> None:
    """A reader that breaks off anywhere makes room for another one, and does not count."""
    endpoint = server.publish("t", [{"n": np.arange(1000)} for _ in range(3)], readers=1)
    with bow.connect(endpoint, limits=PATIENCE) as stream:
        for _ in range(batches):
            next(stream)
    until(lambda: server.stats.connections == 0)
    assert server.stats.stopped == 1
    assert read(endpoint).num_rows == 3000
    server.wait_released("t")
    assert (server.stats.readers, server.stats.stopped, server.stats.lost) == (1, 1, 0)


def test_who_read_all_but_the_end(server: bow.Server) -> None:
    """A reader that took every batch has read the data set, though it never asked for the end."""
    with bow.connect(server.publish("t", TABLE, readers=1)) as stream:
        assert next(stream).num_rows == stream.num_rows
        until(lambda: stream._connection._protocol.quiet)  # type: ignore[attr-defined]  # the end is there, unasked for
    server.wait_released("t")
    assert (server.stats.readers, server.stats.lost) == (1, 0)


def test_a_place_is_not_given_back_before_all_is_freed(serve: Callable[..., bow.Server]) -> None:
    """A reader that broke off and keeps a batch is still there."""
    server = serve()
    endpoint = server.publish("t", [TABLE, TABLE], readers=1)
    with bow.connect(endpoint) as stream:
        batch = next(stream)
    with pytest.raises(bow.UnknownTicket, match="1 reading"):
        bow.connect(endpoint)
    del batch, stream
    until(lambda: server.stats.connections == 0)
    read(endpoint)
    server.wait_released("t")


def test_any_number(server: bow.Server) -> None:
    """Without a number of readers a data set is offered until it is withdrawn."""
    endpoint = server.publish("t", TABLE)
    for _ in range(5):
        assert read(endpoint).equals(TABLE)
    until(lambda: server.stats.readers == 5)
    with pytest.raises(bow.DeadlineExceeded, match="any"):
        server.wait_released("t", timeout=0.01)
    server.withdraw("t")
    server.wait_released("t")


def test_withdrawn_before_anybody_came(server: bow.Server) -> None:
    """A withdrawn data set is not waited for, however many readers it wanted."""
    endpoint = server.publish("t", TABLE, readers=5)
    server.withdraw("t")
    server.wait_released("t", timeout=0.01)
    assert server.pool.stats.in_use == 0
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint)


def test_withdrawn_while_a_batch_is_kept(serve: Callable[..., bow.Server]) -> None:
    """A withdrawn data set is released when the last of its readers has freed what it holds."""
    server = serve()
    with bow.connect(server.publish("t", TABLE)) as stream:
        batch = next(stream)
    server.withdraw("t")
    with pytest.raises(bow.DeadlineExceeded, match="withdrawn"):
        server.wait_released("t", timeout=0.01)
    assert int(batch["n"].values[-1]) == 999
    del batch, stream
    server.wait_released("t")
    assert server.pool.stats.in_use == 0


def test_a_lazy_producer_is_closed_when_it_is_withdrawn(server: bow.Server) -> None:
    """A generator that nobody reads is let go when its data set is withdrawn."""
    closed = threading.Event()

    def produce() -> Iterator[pa.RecordBatch]:
        try:
            yield TABLE.to_batches()[0]
            yield TABLE.to_batches()[0]
        finally:
            closed.set()

    server.publish("t", produce())  # which took the first batch, for its schema
    server.withdraw("t")
    server.wait_released("t")
    assert closed.wait(10)


def test_readers_are_counted_each_time(server: bow.Server) -> None:
    """One process that reads twice is two readers."""
    endpoint = server.publish("t", TABLE, readers=2)
    with bow.connect(endpoint) as one, bow.connect(endpoint) as other:
        with pytest.raises(bow.UnknownTicket, match="all its readers"):
            bow.connect(endpoint)
        assert one.read_all().equals(other.read_all())
    server.wait_released("t")


@pytest.mark.parametrize("taken", range(3))
def test_who_is_not_let_in_to_all_parts_is_let_in_to_none(
    serve: Callable[..., bow.Server], taken: int
) -> None:
    """A reader of several data sets as one that is refused by one of them takes nobody's place at the others."""
    server = serve("unix:")
    endpoints = [server.publish(f"{n}", pa.table({"n": [n]}), readers=1) for n in range(3)]
    parts = [publication for publication, _ in offered(server)]
    catalogue_of(server).joined = lambda ticket: parts if ticket == b"all" else ()
    with bow.connect(endpoints[taken]):
        with pytest.raises(bow.UnknownTicket, match="all its readers"):
            read(dataclasses.replace(endpoints[0], ticket=b"all"))
        assert [part.active for part in parts] == [int(number == taken) for number in range(3)]
        for number in {*range(3)} - {taken}:
            assert read(endpoints[number]).column("n").to_pylist() == [number]
