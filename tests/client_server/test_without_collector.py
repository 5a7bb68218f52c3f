"""What ends, ends by itself: nothing waits for the garbage collector."""

from __future__ import annotations

import collections
import gc
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool

TABLE = pa.table({"n": range(1000), "d": pa.array(["x", "y"] * 500).dictionary_encode()})


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _soon(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def _of_readers() -> collections.Counter[str]:
    """Count the objects that reading streams has made, by their classes."""
    kinds = (type(each) for each in gc.get_objects())
    return collections.Counter(str(kind) for kind in kinds if kind.__module__.startswith("bowstring.client."))


@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0", "inproc:without-collector"])
def test_a_stream_leaves_nothing(address: str) -> None:
    """After a stream was read and dropped, its threads, its receiver and the memory that it used are gone."""
    landing = Pool(budget=64 << 20)
    before = _of_readers()
    with bow.Server(address, pool=Pool(budget=64 << 20)) as server:
        endpoint = server.publish("t", TABLE, readers=1)
        stream = bow.connect(endpoint, options=bow.ConnectOptions(pool=landing))
        batches = list(stream)
        assert batches[0]["n"].values[-1] == 999
        stream.close()
        del stream, batches
        server.wait_released(timeout=10.0)
        assert _soon(lambda: _of_readers() <= before)
        assert _soon(lambda: landing.stats.in_use == 0)
        assert _soon(lambda: server.pool.stats.in_use == 0)
        clients = [each.name for each in threading.enumerate() if each.name.startswith("bowstring-client")]
        assert not clients


def test_a_dictionary_that_was_published_is_let_go() -> None:
    """A batch with a dictionary that was published again and again keeps nothing once it is dropped."""
    with bow.Server("inproc:", pool=Pool(budget=64 << 20)) as server:
        batch = bow.Batch.from_arrow(TABLE)
        for number in range(3):
            server.publish(f"t{number}", batch)
            server.withdraw(f"t{number}")
        del batch
        assert _soon(lambda: server.pool.stats.in_use == 0)
