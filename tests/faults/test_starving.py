"""Readers that keep what they get, and producers without room: served as far as it goes, then told."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.tables import ROWS, SCHEMA, batch_of, number_of, publish_again, table_of
from tests.peer.raw import RawReader

BYTES = batch_of(0).nbytes + 64  # offsets have one more entry on the road
WINDOW = LIMITS.replace(window_bytes=2 * BYTES, outstanding_bytes=5 * BYTES)


def many(count: int = 20, rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Yield so many batches, each full of its number."""
    for number in range(count):
        yield batch_of(number, rows)


def test_who_never_frees_resident_data(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that reads all and frees nothing keeps what it has, and nobody else waits for it."""
    server = serve(address)
    endpoint = server.publish("t", table_of())
    with RawReader(endpoint) as greedy:
        greedy.hello()
        greedy.want()
        greedy.hear_all()
        for _ in range(3):
            with bow.connect(endpoint, limits=LIMITS) as stream:
                assert stream.read_all().equals(table_of())
        publish_again(server, 10)
        server.withdraw("t")
        with pytest.raises(bow.DeadlineExceeded):
            server.wait_released("t", timeout=0.05)
    server.wait_released("t")


@pytest.mark.parametrize("address", ["unix:", "inproc:"])
def test_who_keeps_every_batch(serve: Callable[..., bow.Server], address: str) -> None:
    """`[batch for batch in stream]` of lazy data works up to the bound, then says which batch found no room; after
    some are freed it goes on where it was.
    """
    server = serve(address)
    endpoint = server.publish("t", many)
    with bow.connect(endpoint, limits=WINDOW) as stream:
        kept: list[bow.Batch] = []
        with pytest.raises(bow.Starved, match=r"outstanding_bytes.*batch 5"):
            kept.extend(stream)
        numbers = [number_of(batch) for batch in kept]
        kept.clear()
        for batch in stream:
            numbers.append(number_of(batch))
            del batch
    assert numbers == list(range(20))
    until(lambda: server.stats.connections == 0, "the session ends")


@pytest.mark.parametrize("address", ["unix:", "inproc:"])
def test_starved_again_and_again(serve: Callable[..., bow.Server], address: str) -> None:
    """A starved reader may ask as often as it likes: it has the same answer until it lets go of something."""
    server = serve(address)
    endpoint = server.publish("t", many)
    with bow.connect(endpoint, limits=WINDOW) as stream:
        kept = [stream.read_next_batch() for _ in range(5)]
        for _ in range(3):
            with pytest.raises(bow.Starved, match="batch 5"):
                stream.read_next_batch()
        assert [number_of(batch) for batch in kept] == list(range(5))
        for number in range(5, 20):
            kept[0].release()
            del kept[0]
            kept.append(stream.read_next_batch())
            assert number_of(kept[-1]) == number
        del kept


def test_packed_batches_may_be_kept(serve: Callable[..., bow.Server]) -> None:
    """What came as bytes is the reader's own: it keeps all of it, whatever the window."""
    server = serve("tcp://127.0.0.1:0")
    endpoint = server.publish("t", many)
    with bow.connect(endpoint, limits=WINDOW) as stream:
        assert [number_of(batch) for batch in list(stream)] == list(range(20))


def test_copies_may_be_kept(serve: Callable[..., bow.Server], address: str) -> None:
    """Copies hold no credit."""
    server = serve(address)
    endpoint = server.publish("t", many)
    with bow.connect(endpoint, limits=WINDOW, mode="copy") as stream:
        assert [number_of(batch) for batch in list(stream)] == list(range(20))


@pytest.mark.parametrize("address", ["unix:", "inproc:"])
def test_no_room_in_the_producers_pool(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that keeps all the memory that its producer may use is told; after freeing it goes on."""
    rows = 50_000
    server = serve(address, budget=4 << 20)
    endpoint = server.publish("t", lambda: many(12, rows))
    with bow.connect(endpoint, limits=LIMITS) as stream:
        kept: list[bow.Batch] = []
        with pytest.raises(bow.Starved, match="pool"):
            kept.extend(stream)
        assert 1 <= len(kept) < 12
        numbers = [number_of(batch) for batch in kept]
        kept.clear()
        while len(numbers) < 12:
            numbers.append(number_of(stream.read_next_batch()))
    assert numbers == list(range(12))


def test_no_room_for_a_single_batch(serve: Callable[..., bow.Server], address: str) -> None:
    """A batch that is larger than all of the producer's memory fails the stream, and nothing waits."""
    server = serve(address, budget=1 << 20)
    endpoint = server.publish("t", lambda: many(3, 500_000), schema=SCHEMA)
    with bow.connect(endpoint, limits=LIMITS) as stream, pytest.raises(bow.ProducerFailed, match="room"):
        stream.read_next_batch()


def test_room_that_others_take_for_a_while(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that holds nothing waits while others fill the producer's memory, and goes on when they let go."""
    server = serve(address, budget=2 << 20)
    endpoint = server.publish("t", lambda: many(3), schema=SCHEMA)
    taken = [server.pool.region(1 << 20), server.pool.region(1 << 20)]
    with bow.connect(endpoint, limits=LIMITS) as stream:
        timer = threading.Timer(0.2, taken.clear)
        timer.start()
        assert [number_of(batch) for batch in stream] == [0, 1, 2]
        timer.join(WAIT)


def test_many_slow_readers(serve: Callable[..., bow.Server], address: str) -> None:
    """Slow readers that share little memory with each other wait for each other, and all get everything."""
    server = serve(address, budget=24 << 20)
    endpoint = server.publish("t", many)

    def read() -> list[int]:
        seen = []
        with bow.connect(endpoint, limits=WINDOW) as stream:
            for batch in stream:
                time.sleep(0.002)
                seen.append(number_of(batch))
                del batch
        return seen

    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        for future in [executor.submit(read) for _ in range(8)]:
            assert future.result(WAIT) == list(range(20))


def test_one_starves_and_others_do_not(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that reads nothing holds up no other, also where it holds up its own producer's thread."""
    server = serve(address)
    endpoint = server.publish("t", many)
    with bow.connect(endpoint, limits=WINDOW) as idle:
        for _ in range(3):
            with bow.connect(endpoint, limits=WINDOW) as stream:
                assert [number_of(batch) for batch in stream] == list(range(20))
        assert [number_of(batch) for batch in idle] == list(range(20))


def test_starving_while_another_thread_frees(serve: Callable[..., bow.Server]) -> None:
    """A reading thread that would starve goes on when another thread frees in time, and batches stay in order."""
    server = serve("unix:")
    endpoint = server.publish("t", many)
    kept: list[bow.Batch] = []
    seen: list[int] = []
    done = threading.Event()

    def free() -> None:
        while not done.is_set():
            if len(kept) > 3:
                kept.pop(0)
            time.sleep(0.001)

    freeing = threading.Thread(target=free)
    freeing.start()
    try:
        with bow.connect(endpoint, limits=WINDOW) as stream:
            while len(seen) < 20:
                try:
                    kept.append(stream.read_next_batch())
                except bow.Starved:
                    continue
                seen.append(len(seen))
                assert number_of(kept[-1]) == seen[-1]
    finally:
        done.set()
        freeing.join(WAIT)
    kept.clear()
