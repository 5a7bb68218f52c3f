"""Work that threads of ours do for a user goes with the streams that are current in the thread of the user."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.errors import DeadlineExceeded
from bowstring.memory import Pool, cpu, named_streams
from bowstring.testing import FakeDevice, fake_device
from tests.client_server.conftest import PATIENCE, until

ROWS = 10_000
MIB = 1 << 20
MINE, OTHER = 5, 6


class Stream:
    """A stream as its user names it."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """Return a fake device, whose default stream waits for no other, and which is idle when the test ends."""
    device = fake_device(0)
    monkeypatch.setattr(device.driver, "default_streams", ())
    yield device
    for stream in (0, MINE, OTHER):
        device.driver.end_work(stream)
    device.driver._capturing.clear()


@pytest.fixture
def queued_on(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the streams on which copies from and to the host are queued, as they come."""
    found: list[int] = []

    def noting(copy: Callable[..., None]) -> Callable[..., None]:
        def noted(*arguments: Any) -> None:
            found.append(arguments[-1])
            copy(*arguments)

        return noted

    for name in ("copy_in", "copy_out"):
        monkeypatch.setattr(device.driver, name, noting(getattr(device.driver, name)))
    return found


def read_later(endpoint: bow.Endpoint, **options: Any) -> tuple[threading.Thread, list[pa.Table]]:
    """Read a data set in another thread."""
    found: list[pa.Table] = []

    def read() -> None:
        with bow.connect(endpoint, device="cpu", limits=PATIENCE, **options) as stream:
            found.append(stream.read_all())

    thread = threading.Thread(target=read)
    thread.start()
    return thread, found


@pytest.mark.parametrize("kind", ["generator", "callable", "of a stream of its own"])
@pytest.mark.parametrize("to", ["fake:0", "cpu"])
def test_what_is_made_lazily_is_copied_behind_the_stream_that_was_current(
    serve: Callable[..., bow.Server], device: FakeDevice, kind: str, to: str
) -> None:
    """A session copies no batch before the work is done that its publisher, or its generator, has queued."""
    server = serve("unix:", pool=Pool(device if to == device.name else cpu(), budget=64 * MIB))
    batch = bow.Batch.from_arrow({"n": device.xp.arange(ROWS)})
    own = kind == "of a stream of its own"

    def made() -> Iterator[bow.Batch]:
        if not own:
            yield batch
            return
        with device.on(named_streams(OTHER)):
            yield batch

    device.driver.begin_work(MINE)
    if own:
        device.driver.begin_work(OTHER)
    with device.on(named_streams(MINE)):
        endpoint = server.publish("t", made if kind == "callable" else made(), schema=batch.schema)
    thread, found = read_later(endpoint)
    for stream in (MINE, OTHER) if own else (MINE,):
        thread.join(0.2)
        assert not found
        device.driver.end_work(stream)
    thread.join(10.0)
    assert found[0]["n"].to_pylist() == list(range(ROWS))


def test_a_capture_of_the_publisher_is_waited_out(
    serve: Callable[..., bow.Server], device: FakeDevice
) -> None:
    """What is made lazily comes behind a graph that is captured meanwhile, and does not end the capture."""
    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    batch = bow.Batch.from_arrow({"n": device.xp.arange(ROWS)})
    device.driver.misused.clear()
    with device.on(named_streams(MINE)):
        endpoint = server.publish("t", iter([batch]), schema=batch.schema)
        device.driver.begin_capture(MINE)
        thread, found = read_later(endpoint)
        thread.join(0.2)
        assert not found
        assert device.driver.end_capture(MINE)
    thread.join(10.0)
    assert found[0].num_rows == ROWS
    assert device.driver.misused == []


def test_work_on_other_data_is_not_waited_for(serve: Callable[..., bow.Server], device: FakeDevice) -> None:
    """Batches of the host that are made lazily do not wait for the stream of a GPU that is current."""
    server = serve("unix:")
    with device.on(named_streams(MINE)):
        endpoint = server.publish("t", iter([pa.record_batch({"n": np.arange(ROWS)})]))
    device.driver.begin_work(MINE)
    thread, found = read_later(endpoint)
    thread.join(10.0)
    assert found[0].num_rows == ROWS


def test_copies_for_asyncio_are_queued_on_the_current_stream(
    serve: Callable[..., bow.Server], device: FakeDevice, queued_on: list[int]
) -> None:
    """A copy to a device, and one back for a conversion, go to the stream of the thread that awaits them."""
    endpoint = serve("unix:").publish("t", {"n": np.arange(ROWS)})

    async def work() -> pa.Table:
        async with bow.connect_async(endpoint, device=device, limits=PATIENCE) as stream:
            with device.on(named_streams(MINE)):
                return await stream.to_arrow()

    assert asyncio.run(work()).num_rows == ROWS
    assert set(queued_on) == {MINE}


def test_memory_that_asyncio_read_is_freed_behind_the_current_stream(
    serve: Callable[..., bow.Server], device: FakeDevice
) -> None:
    """A batch that was awaited is the reader's until the stream is done that was current there."""
    server = serve("unix:", pool=Pool(device, budget=64 * MIB))
    endpoint = server.publish("t", {"n": np.arange(ROWS)}, readers=1)

    async def work() -> None:
        async with bow.connect_async(endpoint, mode="map", limits=PATIENCE) as stream:
            with device.on(named_streams(MINE)):
                batch = await anext(stream)
                device.driver.begin_work(MINE)
                assert batch.num_rows == ROWS
                del batch
            with pytest.raises(StopAsyncIteration):
                await anext(stream)

    asyncio.run(work())
    gc.collect()
    time.sleep(0.2)
    assert server.pool.stats.in_use > 0
    device.driver.end_work(MINE)
    until(lambda: server.pool.stats.in_use == 0)


def test_what_is_read_ahead_is_complete_and_belongs_to_its_taker(
    serve: Callable[..., bow.Server], device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, too, batches are complete when they come, and read where they are taken."""
    server = serve("unix:", pool=Pool(cpu(), budget=64 * MIB))
    endpoints = [server.publish(name, {"n": np.arange(ROWS)}) for name in ("a", "b")]
    schema = pa.schema({"n": pa.int64()})
    monkeypatch.setattr(device, "follow", lambda streams: None)  # as in CuPy's blocks, which tell nobody
    device.driver.begin_work(0)
    taken: list[bow.Batch] = []
    mine = Stream(MINE)

    def take() -> None:
        with (
            bow.connect(
                bow.Dataset(tuple(endpoints), schema),
                options=bow.ConnectOptions(ordered=False),
                device=device,
            ) as stream,
            device.on(named_streams(mine)),
        ):
            taken.append(stream.read_next_batch())

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(0.3)
    assert not taken
    device.driver.end_work(0)
    thread.join(10.0)
    assert taken[0].num_rows == ROWS
    device.driver.begin_work(MINE)
    with pytest.raises(DeadlineExceeded):
        device.rest(0.05)
