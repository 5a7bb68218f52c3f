"""Bytes under a view stay what they are, whatever becomes of stream, server, producer and memory."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.program import Program
from tests.faults.tables import SCHEMA, batch_of, number_of, publish_again, table_of
from tests.transport.certified import shown_at

LAZY = LIMITS.replace(window_bytes=10 * batch_of(0).nbytes)


def views_of(batch: bow.Batch) -> dict[str, Any]:
    """Return the ways to look at a batch."""
    return {
        "array": batch["n"].values,
        "slice": batch["n"].values[10:20],
        "arrow": batch["n"].to_arrow(),
        "batch": batch.to_arrow(),
        "capsule": batch.__arrow_c_array__(),
        "column": batch["n"],
        "part": batch.slice(5, 10),
        "selection": batch.select(["n"]),
        "buffer": memoryview(batch["n"].raw_values),
        "table": pa.table(batch),
    }


def first_of(view: Any) -> int:
    """Return the first number that a view shows."""
    if isinstance(view, tuple):
        view = pa.RecordBatch._import_from_c_capsule(*view)
    if isinstance(view, (bow.Batch, pa.RecordBatch, pa.Table)):
        view = pa.record_batch(view)["n"] if not isinstance(view, pa.Table) else view["n"]
    if isinstance(view, bow.Column):
        view = view.to_arrow()
    first = view[0]
    return int(first.as_py() if isinstance(first, pa.Scalar) else first)


KINDS = ("array", "slice", "arrow", "batch", "capsule", "column", "part", "selection", "buffer", "table")


@pytest.mark.parametrize("lazy", [False, True], ids=["resident", "lazy"])
def test_a_view_outlives_everything(serve: Callable[..., bow.Server], address: str, *, lazy: bool) -> None:
    """Each way to look at a batch, alone, keeps its bytes: after the batch, the stream, the data set and others."""
    server = serve(address)
    data = (lambda: iter(table_of().to_batches())) if lazy else table_of()
    endpoint = server.publish("t", data)
    found = {}
    for kind in KINDS:
        with bow.connect(endpoint, limits=LAZY) as stream:
            found[kind] = views_of(stream.read_next_batch())[kind]
    publish_again(server, 3)
    server.withdraw("t")
    publish_again(server, 20)
    server.close()
    gc.collect()
    assert {kind: first_of(view) for kind, view in found.items()} == dict.fromkeys(KINDS, 0)


def test_after_the_server_is_gone(serve: Callable[..., bow.Server], address: str) -> None:
    """When a server closes in the middle, its reader has an error, and what it holds stays true."""
    server = serve(address)
    endpoint = server.publish("t", lambda: iter(table_of(30).to_batches()))
    with bow.connect(endpoint, limits=LIMITS.replace(window_bytes=1)) as stream:
        first = stream.read_next_batch()
        server.close()
        with pytest.raises(bow.BrokenError):
            stream.read_all()
        with bow.Server(address, limits=LIMITS, pool=server.pool, tls=shown_at(address)) as other:
            publish_again(other, 20)
        assert number_of(first) == 0
        del first


def test_after_the_producer_was_killed(run: Callable[..., Program]) -> None:
    """Memory of a process that does not exist any more is there as long as somebody looks at it."""
    program = run("plain_producer", "unix:", "table")
    with bow.connect(program.hear(), limits=LIMITS) as stream:
        kept = [views_of(batch) for batch in stream]
    program.kill()
    gc.collect()
    for number, views in enumerate(kept):
        assert {first_of(view) for view in views.values()} == {number}
    del kept, views


def test_memory_is_used_again_when_nobody_looks(serve: Callable[..., bow.Server], address: str) -> None:
    """The other side of the promise: what nobody looks at any more is home, and serves the next data set."""
    server = serve(address)
    for number in range(20):
        with bow.connect(server.publish("t", table_of(3, number)), limits=LIMITS) as stream:
            batches = [number_of(batch) for batch in stream]
            assert batches == [number, number + 1, number + 2]
        server.withdraw("t")
        server.wait_released("t")
        until(lambda: server.pool.stats.in_use == 0, "memory comes home")
    assert server.pool.stats.made == 1
    assert server.pool.stats.retired == 0


class Undead:
    """An object that is brought back to life by its own finalizer, together with what it holds."""

    graveyard: list[Undead] = []  # noqa: RUF012  shared on purpose

    def __init__(self, view: object) -> None:
        self.view = view
        self.itself = self

    def __del__(self) -> None:
        self.graveyard.append(self)


def test_views_that_come_back_to_life(serve: Callable[..., bow.Server], address: str) -> None:
    """A view that a finalizer stored away while its cycle was collected is as good as any other."""
    server = serve(address)
    endpoint = server.publish("t", table_of())
    for kind in KINDS:
        with bow.connect(endpoint, limits=LIMITS) as stream:
            Undead(views_of(stream.read_next_batch())[kind])
            gc.collect()
    assert len(Undead.graveyard) == len(KINDS)
    server.withdraw("t")
    publish_again(server, 20)
    gc.collect()
    for undead in Undead.graveyard:
        assert first_of(undead.view) == 0
        undead.itself = None  # type: ignore[assignment]
        undead.view = None
    Undead.graveyard.clear()
    del undead


def test_views_in_cycles(serve: Callable[..., bow.Server], address: str) -> None:
    """A view that only a cycle holds is not freed before the collector frees the cycle, and is freed then."""
    server = serve(address)
    gc.disable()
    try:
        with bow.connect(server.publish("t", table_of(), readers=1), limits=LIMITS) as stream:
            for batch in stream:
                cycle: list[Any] = [views_of(batch)]
                cycle.append(cycle)
                watch = weakref.ref(batch)
                del cycle, batch
        assert watch() is not None
        server.publish("again", table_of(3, 1000))
        if address.startswith(("unix:", "inproc:")):  # whose memory is the producer's
            with pytest.raises(bow.DeadlineExceeded):
                server.wait_released("t", timeout=0.05)
    finally:
        gc.enable()
    gc.collect()
    server.wait_released("t")


@pytest.mark.parametrize("taken", [0, 1, 5])
@pytest.mark.parametrize("shared", [False, True], ids=["new dictionaries", "one dictionary"])
def test_closed_in_the_middle(
    serve: Callable[..., bow.Server], address: str, taken: int, *, shared: bool
) -> None:
    """A stream of dictionaries that is closed early lets everything go, also what was on its way."""
    server = serve(address)
    words = pa.array(["a", "b"]).dictionary_encode()

    def produce() -> Iterator[pa.RecordBatch]:
        for number in range(100):
            yield pa.record_batch({"d": words if shared else pa.array([f"{number}"]).dictionary_encode()})

    endpoint = server.publish("t", produce)
    for _ in range(5):
        with bow.connect(endpoint, limits=LIMITS.replace(window_bytes=8)) as stream:
            kept = [stream.read_next_batch() for _ in range(taken and 1)]
            for _ in range(taken - 1):
                stream.read_next_batch()
        assert len({tuple(batch["d"].to_arrow().to_pylist()) for batch in kept}) <= 1
        del kept
    until(lambda: server.stats.connections == 0, "all sessions end")
    assert server.pool.stats.retired == 0


def test_release_is_refused_while_somebody_looks(serve: Callable[..., bow.Server], address: str) -> None:
    """``release`` of a batch with live views is refused, and afterwards they are what they were."""
    server = serve(address)
    with bow.connect(server.publish("t", table_of()), limits=LIMITS) as stream:
        batch = stream.read_next_batch()
        view = batch["n"].values
        with pytest.raises(bow.ViewsAlive):
            batch.release()
        publish_again(server, 3)
        assert view[0] == 0
        del view
        batch.release()
        with pytest.raises(bow.ClosedError):
            batch["n"].values.sum()
        list(stream)


@pytest.mark.parametrize("lazy", [False, True], ids=["resident", "lazy"])
def test_a_relay(serve: Callable[..., bow.Server], address: str, *, lazy: bool) -> None:
    """B publishes what it reads from A: what C sees stays true after B freed it and A used its memory again."""
    a, b = serve(address, budget=8 << 20), serve("unix:")
    with bow.connect(a.publish("t", table_of()), limits=LIMITS) as upstream:
        data: Any = upstream if lazy else list(upstream)
        downstream = bow.connect(b.publish("u", data, schema=SCHEMA if lazy else None), limits=LAZY)
        del data
        batches = list(downstream)
    gc.collect()
    a.withdraw("t")
    a.wait_released("t")
    publish_again(a)
    assert [number_of(batch) for batch in batches] == [0, 1, 2]
    downstream.close()
    b.withdraw("u") if not lazy else None
    publish_again(a)
    publish_again(b, 20)
    assert [number_of(batch) for batch in batches] == [0, 1, 2]
    del batches


def test_a_relay_whose_source_is_killed(
    serve: Callable[..., bow.Server], run: Callable[..., Program]
) -> None:
    """When A dies in the middle, C has an error of B's, and what it has stays true."""
    program = run("plain_producer", "unix:", "lazy")
    b = serve("unix:")
    narrow = LIMITS.replace(window_bytes=50_000)
    upstream = bow.connect(program.hear(), limits=narrow)
    with upstream, bow.connect(b.publish("u", upstream), limits=narrow) as downstream:
        first = downstream.read_next_batch()
        program.kill()
        with pytest.raises(bow.ProducerFailed, match="BrokenError"):
            list(downstream)
    publish_again(b, 5)
    assert number_of(first) == 0
    del first


def test_what_does_not_travel(serve: Callable[..., bow.Server], address: str) -> None:
    """Server, stream and batch say why they cannot be pickled; the endpoint can."""
    server = serve(address)
    endpoint = server.publish("t", table_of())
    with bow.connect(pickle.loads(pickle.dumps(endpoint)), limits=LIMITS) as stream:
        for each in (server, stream, stream.read_next_batch()):
            with pytest.raises(bow.NotPicklable):
                pickle.dumps(each)


def test_views_are_read_only(serve: Callable[..., bow.Server], address: str) -> None:
    """No view lets its reader write, whatever it asks NumPy for."""
    server = serve(address)
    with bow.connect(server.publish("t", table_of()), limits=LIMITS) as stream:
        values = stream.read_next_batch()["n"].values
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            values.flags.writeable = True
        assert np.asarray(values).base is not None
        del values


def test_wait_is_bounded() -> None:
    """The deadlines of these tests are those of the library, or longer."""
    assert LIMITS.reply_timeout <= WAIT
