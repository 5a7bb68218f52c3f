"""``connect_async``: what asyncio programs read, and what is left when they give up."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.testing import fake_device
from tests.client_server.conftest import PATIENCE, until

_T = TypeVar("_T")
COUNT = 12
TABLE = pa.table({"n": np.arange(COUNT * 1000), "s": [str(i % 7) for i in range(COUNT * 1000)]})
BATCHES = TABLE.to_batches(max_chunksize=1000)
SOCKETS = pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0"])


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine, for at most a minute."""

    async def bounded() -> _T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


async def rows(source: Any, **options: Any) -> pa.Table:
    """Return what ``async for`` gives."""
    async with bow.connect_async(source, **options) as stream:
        batches = [batch.to_arrow() async for batch in stream]
    return pa.Table.from_batches(batches, schema=stream.schema)


def client_threads() -> list[str]:
    """Return the names of the threads that read or wait for streams."""
    return [each.name for each in threading.enumerate() if each.name.startswith("bowstring-client")]


class Gate:
    """Batches of which the first half is there, and the others come when it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.closed = 0

    def __call__(self) -> Iterator[pa.RecordBatch]:
        try:
            for number, batch in enumerate(BATCHES):
                if number == COUNT // 2 and not self.opened.wait(60):
                    return
                yield batch
        finally:
            self.closed += 1


@pytest.mark.parametrize(
    "options", [{}, {"mode": "copy"}, {"columns": ["s"]}, {"writable": True}, {"shard": (1, 3)}]
)
@pytest.mark.parametrize("lazy", [False, True])
def test_reads_what_connect_reads(server: bow.Server, options: dict[str, Any], *, lazy: bool) -> None:
    """Whatever a stream is opened with, ``async for`` gives the batches that ``for`` gives."""
    endpoint = server.publish("t", (lambda: iter(BATCHES)) if lazy else BATCHES)
    with bow.connect(endpoint, **options) as stream:
        expected = stream.read_all()
    assert run(rows(endpoint, **options)).equals(expected)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_data_set_of_many_endpoints(server: bow.Server, *, ordered: bool) -> None:
    """All batches of all endpoints come, in order where that is asked for."""
    parts = [BATCHES[at : at + 2] for at in range(0, COUNT, 2)]
    endpoints = [server.publish(f"p{number}", part) for number, part in enumerate(parts)]
    table = run(
        rows(bow.Dataset(tuple(endpoints), TABLE.schema), options=bow.ConnectOptions(ordered=ordered))
    )
    assert (table if ordered else table.sort_by("n")).equals(TABLE)


def test_a_device_is_copied_to(server: bow.Server) -> None:
    """Batches of a device that was asked for are copied there."""
    endpoint = server.publish("t", BATCHES)

    async def work() -> pa.Table:
        async with bow.connect_async(endpoint, device=fake_device()) as stream:
            batches = [batch async for batch in stream]
        assert {batch.device for batch in batches} == {fake_device()}
        return pa.Table.from_batches([batch.to_arrow() for batch in batches])

    assert run(work()).equals(TABLE)


def test_conversions(server: bow.Server) -> None:
    """Each conversion reads to the end, and gives what that of a table gives."""
    endpoint = server.publish("t", TABLE)

    async def converted(name: str) -> Any:
        async with bow.connect_async(endpoint) as stream:
            return await getattr(stream, name)()

    assert run(converted("to_arrow")).equals(TABLE)
    assert run(converted("read_all")).equals(TABLE)
    pd.testing.assert_frame_equal(run(converted("to_pandas")), TABLE.to_pandas())
    assert run(converted("to_polars")).equals(pl.from_arrow(TABLE))
    assert run(converted("to_pylist")) == TABLE.to_pylist()


def test_awaited_without_a_block(server: bow.Server) -> None:
    """``await`` opens a stream, which says what it is, and ``aclose`` closes it, twice as well as once."""
    endpoint = server.publish("t", TABLE)

    async def work() -> None:
        stream = await bow.connect_async(endpoint)
        assert stream.schema.equals(TABLE.schema)
        assert (stream.num_rows, stream.stats.batches) == (TABLE.num_rows, 0)
        assert isinstance(stream.endpoint, bow.Endpoint)
        assert repr(stream).startswith("<AsyncStream ")
        first = await anext(stream)
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(bow.ClosedError):
            await anext(stream)
        with pytest.raises(bow.ClosedError):
            await stream.to_arrow()
        assert first.to_arrow().equals(BATCHES[0]) or first.num_rows == TABLE.num_rows

    run(work())


def test_is_read_once(server: bow.Server) -> None:
    """To begin again after the end is an error, in the task that read the stream."""
    endpoint = server.publish("t", TABLE)

    async def work() -> None:
        async with bow.connect_async(endpoint) as stream:
            assert [batch async for batch in stream]
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            with pytest.raises(bow.UsageError, match="read once"):
                aiter(stream)
            with pytest.raises(bow.UsageError, match="read once"):
                await stream.to_arrow()

    run(work())


@SOCKETS
def test_waiting_readers_share_a_thread(server: bow.Server) -> None:
    """However many readers wait, one thread waits for all of them; the event loop is free meanwhile."""
    gate = Gate()
    endpoint = server.publish("t", gate)

    async def reader(half: asyncio.Semaphore) -> int:
        total = 0
        async with bow.connect_async(endpoint, limits=PATIENCE) as stream:
            async for batch in stream:
                total += batch.num_rows
                if total == TABLE.num_rows // 2:
                    half.release()
        return total

    async def work() -> list[int]:
        half = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reader(half)) for _ in range(60)]
            for _ in tasks:
                await half.acquire()
            for _ in range(400):
                if not client_threads():
                    break
                await asyncio.sleep(0.02)
            else:
                raise AssertionError(client_threads())
            gate.opened.set()
        return [task.result() for task in tasks]

    assert run(work()) == [TABLE.num_rows] * 60


@pytest.mark.parametrize("kind", ["endpoint", "dataset", "unordered", "copied"])
def test_cancelled_anywhere(server: bow.Server, kind: str) -> None:
    """A reader that is cancelled at any moment leaves nothing behind, and those beside it read on."""
    options: dict[str, Any] = {"limits": PATIENCE}
    source: Any = server.publish("t", lambda: iter(BATCHES))
    if kind in ("dataset", "unordered"):
        endpoints = [server.publish(f"p{number}", part) for number, part in enumerate(BATCHES)]
        source = bow.Dataset(tuple(endpoints), TABLE.schema)
        options["options"] = bow.ConnectOptions(ordered=kind == "dataset")
    if kind == "copied":
        options["mode"] = "copy"
    chance = random.Random(kind)

    async def cancelled(after: float) -> None:
        task = asyncio.create_task(rows(source, **options))
        await asyncio.sleep(after)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.result()  # it was quicker

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4 if "ucx" in server.address else 40):
                group.create_task(cancelled(chance.choice([0, 0.001, 0.003, 0.01]) * chance.random()))
            beside = group.create_task(rows(source, **options))
        assert beside.result().sort_by("n").equals(TABLE)

    run(work())
    gc.collect()
    until(lambda: not client_threads())


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_a_wait_that_is_over_loses_no_batch(serve: Callable[..., bow.Server], mode: Any) -> None:
    """After ``asyncio.timeout`` ended a wait, the stream goes on where it was."""
    gate = Gate()
    endpoint = serve("unix:").publish("t", gate)

    async def patient(stream: bow.AsyncStream) -> AsyncIterator[bow.Batch]:
        while True:
            try:
                async with asyncio.timeout(0.002):
                    batch = await anext(stream)
            except TimeoutError:
                gate.opened.set()
                continue
            except StopAsyncIteration:
                return
            yield batch

    async def work() -> pa.Table:
        async with bow.connect_async(endpoint, mode=mode) as stream:
            return pa.Table.from_batches([batch.to_arrow() async for batch in patient(stream)])

    assert run(work()).equals(TABLE)


def test_tasks_share_a_stream(server: bow.Server) -> None:
    """Each batch goes to one of the tasks that read a stream, and the end to all of them."""
    endpoint = server.publish("t", lambda: iter(BATCHES))

    async def part(stream: bow.AsyncStream) -> list[int]:
        return [int(batch["n"].values[0]) async for batch in stream]

    async def work() -> list[int]:
        async with bow.connect_async(endpoint) as stream, asyncio.TaskGroup() as group:
            tasks = [group.create_task(part(stream)) for _ in range(3)]
        return sorted([each for task in tasks for each in task.result()])

    assert run(work()) == list(range(0, TABLE.num_rows, 1000))


def test_closed_while_a_task_waits(server: bow.Server) -> None:
    """A task that waits for a batch learns that another one closed the stream, and the generator is closed."""
    gate = Gate()
    endpoint = server.publish("t", gate)

    async def work() -> None:
        stream = await bow.connect_async(endpoint)
        waiting = asyncio.create_task(stream.to_arrow())
        await asyncio.sleep(0.05)
        await stream.aclose()
        with pytest.raises(bow.ClosedError):
            await waiting

    run(work())
    gate.opened.set()
    until(lambda: gate.closed == 1)


def test_errors_of_the_producer(server: bow.Server) -> None:
    """What goes wrong at the producer's is raised where the next batch is awaited; an unknown name at once."""

    def failing() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        raise ValueError("no more today")

    endpoint = server.publish("t", failing, schema=TABLE.schema)

    async def work() -> None:
        with pytest.raises(bow.ProducerFailed, match="no more today"):
            await rows(endpoint)
        with pytest.raises(bow.UnknownTicket):
            async with bow.connect_async(endpoint.uri, b"other"):
                pass
        with pytest.raises(bow.UsageError):
            await bow.connect_async(endpoint, columns="s")

    run(work())


def test_kept_batches_of_a_lazy_source_starve(serve: Callable[..., bow.Server]) -> None:
    """A table of batches whose memory the producer needs again is copied, as ``read_all`` copies it."""
    batches = [batch.select(["n"]) for batch in BATCHES]  # of 8,000 bytes each
    endpoint = serve("unix:").publish("t", lambda: iter(batches))
    limits = PATIENCE.replace(outstanding_bytes=24_000, window_bytes=8000)

    async def work() -> pa.Table:
        async with bow.connect_async(endpoint, limits=limits) as stream:
            kept = [await anext(stream) for _ in range(3)]
            with pytest.raises(bow.Starved):
                await anext(stream)
            kept.clear()
            return await stream.to_arrow()

    assert run(work()).equals(TABLE.select(["n"]).slice(3000))


PRODUCER = """
import sys, threading
import bowstring as bow

def batches():
    yield {"n": [1]}
    threading.Event().wait(60)

with bow.Server(sys.argv[1]) as server:
    print(server.publish("t", batches), flush=True)
    server.wait(60)
"""


@SOCKETS
def test_a_producer_that_is_killed(address: str) -> None:
    """Readers that await a batch learn that their producer is gone."""
    with subprocess.Popen([sys.executable, "-c", PRODUCER, address], stdout=subprocess.PIPE) as producer:
        assert producer.stdout is not None
        endpoint = producer.stdout.readline().decode()

        async def reader(reads: asyncio.Semaphore) -> None:
            async with bow.connect_async(endpoint) as stream:
                assert (await anext(stream)).to_pydict() == {"n": [1]}
                reads.release()
                with pytest.raises(bow.BrokenError):
                    await anext(stream)

        async def work() -> None:
            reads = asyncio.Semaphore(0)
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(reader(reads))
                for _ in range(5):
                    await reads.acquire()
                producer.kill()

        run(work())


def test_the_child_of_a_fork(serve: Callable[..., bow.Server]) -> None:
    """A forked child cannot read its parent's stream, opens one of its own, and harms neither."""
    endpoint = serve("unix:").publish("t", TABLE)

    def child(stream: bow.AsyncStream, result: Any) -> None:
        async def work() -> bool:
            with pytest.raises(bow.ForkedError):
                await anext(stream)
            return (await rows(endpoint)).equals(TABLE)

        result.put(asyncio.new_event_loop().run_until_complete(work()))

    async def work() -> pa.Table:
        async with bow.connect_async(endpoint) as stream:
            context = multiprocessing.get_context("fork")
            result = context.SimpleQueue()
            process = context.Process(target=_outside_the_loop, args=(child, stream, result))
            process.start()
            await asyncio.to_thread(process.join, 30)
            assert result.get() is True
            result.close()
            return await stream.to_arrow()

    assert run(work()).equals(TABLE)


def _outside_the_loop(child: Callable[..., None], *arguments: Any) -> None:
    asyncio._set_running_loop(None)  # the parent's, which this child does not run
    child(*arguments)
