"""Leases over the wire: what a reader gives back, and when its producer has it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import default_pool
from tests.client_server.conftest import PATIENCE, until

LARGE = {"n": np.arange(200_000), "s": [str(number) for number in range(200_000)]}

VIEWS: dict[str, Callable[[bow.Batch], Any]] = {
    "values": lambda batch: batch["n"].values,
    "slice of values": lambda batch: batch["n"].values[5:6],
    "pyarrow batch": lambda batch: batch.to_arrow(),
    "pyarrow array": lambda batch: batch["s"].to_arrow(),
    "pyarrow buffer": lambda batch: batch.to_arrow().column(0).buffers()[1],
    "capsule": lambda batch: batch.__arrow_c_array__(),
    "batch of some rows": lambda batch: batch.slice(1, 2),
    "batch of some columns": lambda batch: batch.select(["n"]),
}


def test_release_frees_at_once(serve: Callable[..., bow.Server], address: str) -> None:
    """A released batch is free at its producer, though the batch itself is still there."""
    server = serve(address)
    with bow.connect(server.publish("t", LARGE, readers=1)) as stream:
        (batch,) = stream
    batch.release()
    server.wait_released("t")
    assert server.pool.stats.in_use == 0
    with pytest.raises(bow.ClosedError, match="released"):
        batch["n"].values  # noqa: B018
    batch.release()
    assert "released" in repr(batch)


def test_release_frees_what_landed(serve: Callable[..., bow.Server]) -> None:
    """Where bytes were sent, releasing a batch frees the reader's own memory."""
    server, before = serve("tcp://127.0.0.1:0"), default_pool().stats.in_use
    with bow.connect(server.publish("t", LARGE)) as stream:
        (batch,) = stream
    del stream
    assert default_pool().stats.in_use > before
    batch.release()
    until(lambda: default_pool().stats.in_use <= before)


@pytest.mark.parametrize("view", VIEWS)
def test_release_is_refused(server: bow.Server, view: str) -> None:
    """While a view of a batch lives it cannot be released, the view stays true, and afterwards it can."""
    with bow.connect(server.publish("t", LARGE, readers=1)) as stream:
        (batch,) = stream
    kept = VIEWS[view](batch)
    with pytest.raises(bow.ViewsAlive):
        batch.release()
    assert batch["n"].values[7] == 7
    del kept
    batch.release()
    server.wait_released("t")


@pytest.mark.parametrize("view", VIEWS)
def test_the_last_view_ends_the_lease(serve: Callable[..., bow.Server], view: str) -> None:
    """Stream and batch may go: as long as one view lives the producer's memory stays, and not longer."""
    server = serve()
    with bow.connect(server.publish("t", LARGE, readers=1)) as stream:
        (batch,) = stream
    kept = VIEWS[view](batch)
    del batch, stream
    with pytest.raises(bow.DeadlineExceeded):
        server.wait_released("t", timeout=0.02)
    del kept
    server.wait_released("t")


def test_release_makes_room(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that keeps its released batches holds no credit."""
    server = serve(address)
    schema = pa.schema([("n", pa.int64())])

    def produce() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            yield pa.record_batch({"n": np.full(1000, number)})

    limits = PATIENCE.replace(window_bytes=8000, outstanding_bytes=8000)
    kept = []
    with bow.connect(server.publish("t", produce(), schema=schema), limits=limits) as stream:
        for number, batch in enumerate(stream):
            assert batch["n"].values[0] == number
            batch.release()
            kept.append(batch)
    assert len(kept) == 20


def test_starved_without_release(serve: Callable[..., bow.Server]) -> None:
    """A reader that keeps its batches beyond the bound is told so; when it lets one go it reads on."""
    server = serve()
    schema = pa.schema([("n", pa.int64())])

    def produce() -> Iterator[pa.RecordBatch]:
        for number in range(6):
            yield pa.record_batch({"n": np.full(1000, number)})

    limits = PATIENCE.replace(window_bytes=8000, outstanding_bytes=24_000)
    with bow.connect(server.publish("t", produce(), schema=schema), limits=limits) as stream:
        kept = [next(stream) for _ in range(3)]
        with pytest.raises(bow.Starved, match="24000 bytes kept"):
            next(stream)
        kept.pop(0).release()
        kept += [next(stream)]
        assert [int(batch["n"].values[0]) for batch in kept] == [1, 2, 3]
        kept.clear()
        assert len(list(stream)) == 2


def test_a_cycle_is_collected(serve: Callable[..., bow.Server]) -> None:
    """A batch in a reference cycle is freed by the garbage collector, as everything is."""
    server = serve()
    with bow.connect(server.publish("t", LARGE, readers=1)) as stream:
        cycle: list[Any] = list(stream)
    cycle.append(cycle)
    del cycle, stream
    gc.collect()
    server.wait_released("t")


def test_kept_after_a_failure_for_longer_than_a_heartbeat(serve: Callable[..., bow.Server]) -> None:
    """What was read before the producer failed stays leased, though the server asks whether the reader lives."""
    server = serve(limits=PATIENCE.replace(heartbeat=0.05))

    def produce() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": np.arange(1000)})
        raise OSError("disk on fire")

    with bow.connect(server.publish("t", produce()), limits=PATIENCE) as stream:
        batch = next(stream)
        with pytest.raises(bow.ProducerFailed):
            next(stream)
        with pytest.raises(AssertionError):
            until(lambda: server.stats.connections == 0, seconds=0.3)
    assert int(batch["n"].values[-1]) == 999
    del batch, stream
    until(lambda: server.stats.connections == 0)
    assert server.pool.stats.retired == 0
