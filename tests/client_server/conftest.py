"""What the tests of both doors share: an address of each transport, servers of their own, the watch for leaks."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool
from tests.ucx import UCX

ADDRESSES = ("unix:", "tcp://127.0.0.1:0", "inproc:")
# Long enough for a busy machine, short enough that a test that waits in vain ends.
PATIENCE = bow.Limits(
    connect_timeout=10.0, reply_timeout=10.0, stall_timeout=10.0, heartbeat=0.2, release_timeout=10.0
)


@pytest.fixture(autouse=True)
def tidy(quick_collections: None, tidy: None) -> None:
    """Every test here leaves nothing behind."""


@pytest.fixture(params=[pytest.param(each, id=each.partition(":")[0]) for each in ADDRESSES] + [UCX])
def address(request: pytest.FixtureRequest) -> str:
    """Return an address of each transport to listen on."""
    return str(request.param)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something that another thread does, and that has no event to wait for."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


def read(source: bow.Endpoint | bow.Dataset | str, **options: Any) -> pa.Table:
    """Read all of a data set, and keep none of its memory."""
    with bow.connect(source, **options) as stream:
        return pa.Table.from_pydict(stream.read_all().to_pydict(), schema=stream.schema)


def close_while_one_waits(stream: bow.Stream, asked: threading.Event) -> None:
    """Close a stream while a thread waits for its next batch, once that was asked for: the thread hears of it."""
    found: list[BaseException] = []

    def wait() -> None:
        try:
            stream.read_next_batch()
        except bow.BowstringError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert asked.wait(10)
    stream.close()
    thread.join(10)
    assert [type(error) for error in found] == [bow.ClosedError]


def come_home(pool: Pool) -> None:
    """Wait until nothing of a pool is in use, and close it."""
    end = time.monotonic() + 10.0
    while pool.stats.in_use:
        assert time.monotonic() < end, f"memory did not come home: {pool.stats}"
        time.sleep(0.005)
        gc.collect()
    pool.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., bow.Server]]:
    """Return a function that makes servers, which are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(address: str = "unix:", **options: object) -> bow.Server:
            budget = options.pop("budget", 256 << 20)
            options.setdefault("pool", Pool(budget=budget))  # type: ignore[arg-type]
            options.setdefault("limits", PATIENCE)
            server = bow.Server(address, **options)  # type: ignore[arg-type]
            stack.callback(come_home, server.pool)
            return stack.enter_context(server)

        yield make


@pytest.fixture
def server(serve: Callable[..., bow.Server], address: str) -> bow.Server:
    """Return a server on each transport."""
    return serve(address)
