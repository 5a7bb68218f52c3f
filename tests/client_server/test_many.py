"""Many at once: clients, data sets, threads; and that nothing is left of them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.tags import Want
from bowstring.memory import Pool
from bowstring.server.session import Session
from bowstring.transport import dial
from tests.client_server.conftest import PATIENCE, read, until
from tests.peer.raw import SocketReader
from tests.peer.wire import header

SCHEMA = pa.schema([("n", pa.int64())])


def table_of(number: int, batches: int = 3) -> pa.Table:
    """Return a table that is unlike that of any other number."""
    return pa.Table.from_batches(
        [
            pa.record_batch({"n": np.arange(50) + 1000 * number + each}, schema=SCHEMA)
            for each in range(batches)
        ]
    )


def at_once(calls: list[Callable[[], None]]) -> None:
    """Make all calls at the same time, each in a thread; raise what any of them raises."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], None]) -> None:
        start.wait(10)
        call()

    with concurrent.futures.ThreadPoolExecutor(len(calls)) as executor:
        for future in [executor.submit(run, call) for call in calls]:
            future.result(30)


def test_many_readers_of_one(server: bow.Server) -> None:
    """Sixteen readers at once each get all of one data set, and are counted."""
    endpoint = server.publish("t", table_of(1), readers=16)

    def take() -> None:
        assert read(endpoint, limits=PATIENCE).equals(table_of(1))

    at_once([take] * 16)
    server.wait_released("t")
    assert server.stats.readers == 16


@pytest.mark.parametrize("lazy", [False, True], ids=["resident", "lazy"])
def test_many_readers_of_many(server: bow.Server, lazy: bool) -> None:
    """Readers of several data sets at once each get their own, in any order."""
    tables = [table_of(number) for number in range(6)]

    def data_of(table: pa.Table) -> object:
        return table.to_batches if lazy else table

    endpoints = [server.publish(f"t{number}", data_of(table)) for number, table in enumerate(tables)]
    chance = random.Random(7)
    orders = [chance.sample(range(6), 6) for _ in range(8)]

    def take(order: list[int]) -> None:
        for number in order:
            assert read(endpoints[number], limits=PATIENCE).equals(tables[number])

    at_once([lambda order=order: take(order) for order in orders])  # type: ignore[misc]
    until(lambda: server.stats.readers == 48)


def test_publishing_while_others_read(server: bow.Server) -> None:
    """Data sets come and go in some threads while other threads read theirs."""

    def publish_and_read(who: int) -> None:
        for turn in range(4):
            table = table_of(10 * who + turn)
            endpoint = server.publish(f"{who}", table, readers=1)
            assert read(endpoint, limits=PATIENCE).equals(table)
            server.wait_released(f"{who}")

    at_once([lambda who=who: publish_and_read(who) for who in range(6)])  # type: ignore[misc]
    assert server.endpoints == {}


def test_lazy_readers_that_break_off(server: bow.Server) -> None:
    """Readers that break off anywhere do not disturb those that read on."""

    def produce() -> Iterator[pa.RecordBatch]:
        yield from table_of(1, 40).to_batches()

    endpoint = server.publish("t", produce, schema=SCHEMA)
    limits = PATIENCE.replace(window_bytes=1000)

    def break_off(after: int) -> None:
        with bow.connect(endpoint, limits=limits) as stream:
            for _ in range(after):
                next(stream)

    def take() -> None:
        assert read(endpoint, limits=limits).equals(table_of(1, 40))

    at_once([*(lambda after=after: break_off(after) for after in range(8)), *[take] * 4])
    until(lambda: server.stats.connections == 0)
    assert (server.stats.readers, server.stats.stopped, server.stats.lost) == (4, 8, 0)


def test_fifty_in_a_row(server: bow.Server) -> None:
    """Fifty streams one after the other, read or not, leave no descriptor, mapping or thread."""
    endpoint = server.publish("t", table_of(1))
    for turn in range(50):
        stream = bow.connect(endpoint, limits=PATIENCE)
        if turn % 3 == 0:
            assert stream.read_all().num_rows == 150
        elif turn % 3 == 1:
            next(stream)
        if turn % 2:
            stream.close()
        del stream
    until(lambda: server.stats.connections == 0)

    def at_work() -> list[str]:
        return [
            each.name for each in threading.enumerate() if "client" in each.name or "server-" in each.name
        ]

    until(lambda: not at_work())
    assert server.stats.readers + server.stats.stopped == 50


def test_fifty_publications_in_a_row(serve: Callable[..., bow.Server]) -> None:
    """Data sets that come and go use the same memory again and again."""
    server = serve(budget=4 << 20)
    for turn in range(50):
        server.publish("t", {"n": np.full(100_000, turn)})
        server.withdraw("t")
    assert server.pool.stats.made <= 2


def calls_of(call: Callable[[], object]) -> int:
    """Return how many functions are entered, those of C and of the standard library too."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def test_what_a_name_costs_does_not_grow(serve: Callable[..., bow.Server]) -> None:
    """To publish, replace and withdraw a data set takes as many steps beside many others as beside a few."""
    server = serve(budget=1 << 30)
    table = pa.table({"a": [1, 2, 3]})

    def work() -> None:
        server.publish("t", table, replace=True)
        server.publish("t", table, replace=True)
        server.withdraw("t")

    steps = []
    for number in range(300):
        server.publish(f"{number}", table)
        if number in (10, 299):
            work()  # what is done once is done
            gc.collect()
            steps.append(min(calls_of(work) for _ in range(3)))
    assert steps[1] <= steps[0] + 20
    assert server.endpoints.keys() == set(map(str, range(300)))


def test_servers_side_by_side(serve: Callable[..., bow.Server], address: str) -> None:
    """Servers of one process keep their names, data and readers apart."""
    servers = [serve(address) for _ in range(4)]
    endpoints = [server.publish("same name", table_of(number)) for number, server in enumerate(servers)]
    assert len({server.address for server in servers}) == 4
    for number, endpoint in enumerate(endpoints):
        assert read(endpoint).equals(table_of(number))
    other = servers[1].publish("another name", table_of(0))
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoints[0].uri, other.ticket)


def test_one_pool_for_several_servers() -> None:
    """Servers may share a pool, which outlives them."""
    pool = Pool(budget=16 << 20)
    with bow.Server("inproc:", pool=pool) as one, bow.Server("unix:", pool=pool) as other:
        assert read(one.publish("t", table_of(1))).equals(table_of(1))
        assert read(other.publish("t", table_of(2))).equals(table_of(2))
    assert pool.allocate(10).nbytes == 10
    pool.close()


def test_silent_readers_keep_nobody_out(server: bow.Server) -> None:
    """However many connect and say nothing, who asks is served; once they are gone few threads wait for more."""
    endpoint = server.publish("t", table_of(1))
    begun = waiting_threads()
    with contextlib.ExitStack() as silent:
        for _ in range(20):
            silent.enter_context(dial(server.address, PATIENCE))
            begin = time.monotonic()
            assert read(endpoint, limits=PATIENCE).equals(table_of(1))
            assert time.monotonic() - begin < PATIENCE.connect_timeout / 2
        # The next thread waits at the door before the one who came last is counted.
        until(lambda: server.stats.connections >= 20)
    until(lambda: server.stats.connections == 0)
    until(lambda: waiting_threads() <= begun + 1)
    assert read(endpoint, limits=PATIENCE).equals(table_of(1))


def test_silent_strangers_cost_no_turns(
    serve: Callable[..., bow.Server], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers that connect and say nothing are looked at once for each heartbeat, and not all the time."""
    turns = 0
    turn = Session._turn

    def counted(session: Session) -> float | None:
        nonlocal turns
        turns += 1
        return turn(session)

    monkeypatch.setattr(Session, "_turn", counted)
    server = serve(address, limits=PATIENCE.replace(heartbeat=0.2, connect_timeout=1.0))
    silent = [dial(server.address, PATIENCE) for _ in range(4)]
    until(lambda: server.stats.idle == 4)
    assert turns <= 4 * 20, "a turn for each of five heartbeats, and a few around them"
    for channel in silent:
        channel.close()


def test_open_streams_hold_no_threads_of_the_server(serve: Callable[..., bow.Server]) -> None:
    """However many readers are connected, and hold batches, their server has no thread for each."""
    server = serve("unix:")
    endpoint = server.publish("t", table_of(1))
    with contextlib.ExitStack() as stack:
        batches = [
            stack.enter_context(bow.connect(endpoint, limits=PATIENCE)).read_next_batch() for _ in range(40)
        ]
        until(lambda: server.stats.connections == 40)
        until(lambda: not [each for each in threading.enumerate() if "bowstring-server" in each.name])
        del batches
    until(lambda: server.stats.connections == 0)


def test_readers_that_stop_inside_a_message_keep_nobody_out(serve: Callable[..., bow.Server]) -> None:
    """However many say half of something, before they are let in or afterwards, who asks is served."""
    server = serve("tcp://127.0.0.1:0", limits=PATIENCE.replace(connect_timeout=60.0))
    endpoint = server.publish("t", table_of(1))
    begun = header(int(Want.HELLO), 100) + b"{"
    with contextlib.ExitStack() as stack:
        for number in range(40):
            reader = stack.enter_context(SocketReader(endpoint))
            if number % 2:
                reader.hello()
                reader.want()
                reader.hear()
            reader.push(begun)
        for _ in range(3):
            assert read(endpoint, limits=PATIENCE).equals(table_of(1))
        until(lambda: server.stats.connections == 40)
    until(lambda: server.stats.connections == 0)


def waiting_threads() -> int:
    """Return how many threads of this process's servers wait for readers."""
    return [each.name for each in threading.enumerate()].count("bowstring-accept")


def test_readers_at_once_while_others_are_silent(server: bow.Server) -> None:
    """Readers that come at the same moment do not wait for each other, nor for those who say nothing."""
    endpoint = server.publish("t", table_of(1))

    def say_nothing() -> None:
        with dial(server.address, PATIENCE) as channel:
            channel.receive(0.2)

    def take() -> None:
        assert read(endpoint, limits=PATIENCE).equals(table_of(1))

    for _ in range(3):
        at_once([say_nothing, take] * 8)
    until(lambda: server.stats.readers == 24)


def test_a_system_without_threads_to_spare(
    serve: Callable[..., bow.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader for whom there is no worker is served by the loop."""
    server = serve("unix:")
    endpoint = server.publish("t", table_of(1))

    def none_left(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("bowstring.transport.loop.run_in_thread", none_left)
        assert read(endpoint).equals(table_of(1))
    assert read(endpoint).equals(table_of(1))
    until(lambda: server.stats.connections == 0)
    assert server.stats.refused == 0
