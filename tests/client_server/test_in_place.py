"""Data that lie in regions already: published without a copy, and never written again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.memory import Pool
from tests.client_server.conftest import come_home, read

ROWS = 100_000
LARGE = {"n": np.arange(200_000)}


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Return a pool of the publisher's own, which must come home."""
    made = Pool(budget=16 << 20)
    yield made
    made.close()  # which lets go of the region that the next buffer would have come from
    come_home(made)


def filled(pool: Pool, values: object, dtype: str = "<i8") -> bow.Buffer:
    """Return a buffer of a pool, written through `writable`."""
    buffer = pool.allocate(ROWS * np.dtype(dtype).itemsize)
    with buffer.writable(dtype) as array:
        array[:] = values
    return buffer


def as_array(buffer: bow.Buffer, type_: pa.DataType) -> pa.Array:
    """Return a pyarrow array over a buffer, without a copy."""
    return pa.Array.from_buffers(type_, ROWS, [None, buffer.to_arrow()])


def test_pyarrow_over_a_region(serve: Callable[..., bow.Server], address: str, pool: Pool) -> None:
    """A pyarrow table over regions is published as it lies: no pool sees a new use, and readers map it."""
    server = serve(address)
    table = pa.table(
        {
            "n": as_array(filled(pool, np.arange(ROWS)), pa.int64()),
            "f": as_array(filled(pool, 0.5, "<f8"), pa.float64()),
        }
    )
    before, own = server.pool.stats, pool.stats
    endpoint = server.publish("t", table)
    assert server.pool.stats == before
    assert pool.stats == own
    with bow.connect(endpoint) as stream:
        (batch,) = stream
        assert np.array_equal(batch["n"].values, np.arange(ROWS))
        assert (batch["f"].values == 0.5).all()
        del batch
    server.withdraw("t")
    server.wait_released("t")


def test_numpy_over_a_region(serve: Callable[..., bow.Server], address: str, pool: Pool) -> None:
    """NumPy views of a region are published as they lie."""
    server = serve(address)
    buffer = filled(pool, 7)
    before = server.pool.stats
    endpoint = server.publish("t", {"n": buffer.array("<i8")})
    assert server.pool.stats == before
    assert read(endpoint)["n"].to_pylist()[-1] == 7
    server.withdraw("t")


def test_part_of_a_region(serve: Callable[..., bow.Server], pool: Pool) -> None:
    """A slice of an array that lies in a region is published as it lies, and only its part is read."""
    server = serve()
    array = as_array(filled(pool, np.arange(ROWS)), pa.int64()).slice(1000, 10)
    before = server.pool.stats
    endpoint = server.publish("t", {"n": array})
    assert server.pool.stats == before
    assert read(endpoint).to_pydict() == {"n": list(range(1000, 1010))}
    server.withdraw("t")


def test_only_what_lies_elsewhere_is_copied(serve: Callable[..., bow.Server], pool: Pool) -> None:
    """Of a batch that lies in a region in part, the rest alone is copied."""
    server = serve()
    there = as_array(filled(pool, 1), pa.int64())
    endpoint = server.publish("t", {"there": there, "elsewhere": np.arange(ROWS, dtype=np.int8)})
    assert server.pool.stats.in_use == 1 << 20  # one region of the smallest kind; all of it needs two
    with bow.connect(endpoint) as stream:
        (batch,) = stream
        assert stream.stats.regions == 2
    assert batch["elsewhere"].values[10] == 10
    assert batch["there"].values[10] == 1
    del batch
    server.withdraw("t")


def test_published_twice(serve: Callable[..., bow.Server], pool: Pool) -> None:
    """The same memory can be in several data sets, of several servers, and outlives each of them."""
    one, other = serve(), serve("inproc:")
    table = pa.table({"n": as_array(filled(pool, 3), pa.int64())})
    endpoints = [one.publish("a", table), one.publish("b", table), other.publish("a", table)]
    one.withdraw("a")
    one.wait_released("a")
    for endpoint in endpoints[1:]:
        assert read(endpoint)["n"].to_pylist()[0] == 3
    one.withdraw("b")
    other.withdraw("a")


def test_frozen_after_publishing(serve: Callable[..., bow.Server], address: str, pool: Pool) -> None:
    """Memory that was published can no longer be written, even when its data set was withdrawn."""
    server = serve(address)
    buffer = filled(pool, 1)
    assert not buffer.frozen
    server.publish("t", {"n": as_array(buffer, pa.int64())})
    assert buffer.frozen
    with pytest.raises(bow.UsageError, match="frozen"), buffer.writable():
        pass
    server.withdraw("t")
    with pytest.raises(bow.UsageError, match="frozen"), buffer.writable():
        pass


def test_only_what_was_published_is_frozen(serve: Callable[..., bow.Server], pool: Pool) -> None:
    """Another buffer of the same region can still be written."""
    server = serve()
    published, other = pool.allocate(8), pool.allocate(8)
    assert published.region is other.region
    with published.writable("<i8") as numbers:
        numbers[:] = 5
    del numbers
    endpoint = server.publish("t", {"n": published.array("<i8")})
    with other.writable("<i8") as numbers:
        numbers[:] = 6
    assert read(endpoint).to_pydict() == {"n": [5]}
    server.withdraw("t")


@pytest.mark.parametrize("kept", ["array", "slice", "view of a slice"])
def test_not_published_while_it_can_be_written(
    serve: Callable[..., bow.Server], pool: Pool, kept: str
) -> None:
    """While somebody can still write the memory it is not published, and nothing of the try is left."""
    server = serve()
    buffer = pool.allocate(ROWS * 8)
    with buffer.writable("<i8") as array:
        writers = {"array": array, "slice": array[5:10], "view of a slice": array[5:10].view("<u1")}
        writer = writers[kept]
        del array, writers
        with pytest.raises(bow.ViewsAlive, match="writable"):
            server.publish("t", {"n": as_array(buffer, pa.int64())})
    assert server.endpoints == {}
    if kept != "array":  # which can be written no more behind its block
        with pytest.raises(bow.ViewsAlive, match="writable"):
            server.publish("t", {"n": as_array(buffer, pa.int64())})
    del writer
    server.publish("t", {"n": as_array(buffer, pa.int64())})
    server.withdraw("t")


def test_lazy_batches_in_place(serve: Callable[..., bow.Server], address: str, pool: Pool) -> None:
    """Batches that a generator makes in a region are sent as they lie, and the region comes home when freed."""
    server = serve(address)
    schema = pa.schema([("n", pa.int64())])

    def produce() -> Iterator[pa.RecordBatch]:
        for number in range(30):
            yield pa.record_batch({"n": as_array(filled(pool, number), pa.int64())})

    endpoint = server.publish("t", produce(), schema=schema, readers=1)
    # A generator's own memory waits for nobody: a small window keeps few of its batches under way.
    limits = bow.Limits(window_bytes=2 * 8 * ROWS)
    with bow.connect(endpoint, limits=limits) as stream:
        for number, batch in enumerate(stream):
            assert batch["n"].values[-1] == number
            del batch
    server.wait_released("t")
    assert server.pool.stats.made == 0


def test_what_was_read_is_copied_when_it_is_published(serve: Callable[..., bow.Server], forked: None) -> None:
    """Memory of a producer in another process is copied, for that producer may use it again."""
    code = """
import sys, bowstring as bow, numpy as np
server = bow.Server()
print(str(server.publish("t", {"n": np.arange(200_000)})), flush=True)
sys.stdin.read()
"""
    second = serve()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            with bow.connect(process.stdout.readline().strip()) as stream:
                (batch,) = stream
            endpoint = second.publish("t", batch)
            assert second.pool.stats.in_use > 0
            del batch, stream
        finally:
            process.kill()
    assert read(endpoint)["n"].to_pylist()[-1] == 199_999


def test_what_lies_in_a_region_is_not_copied(serve: Callable[..., bow.Server]) -> None:
    """A batch whose buffers lie in regions already is published without a copy: the pool sees no new use."""
    server = serve()
    placed = bow.Batch.from_arrow(LARGE)
    first = server.publish("first", placed)
    with bow.connect(first) as stream:
        (there,) = stream
        before = server.pool.stats
        # The same memory once more, by way of a pool of the publisher's own.
        pool = Pool(budget=8 << 20)
        buffer = pool.allocate(1_600_000)
        with buffer.writable("<i8") as numbers:
            numbers[:] = LARGE["n"]
        del numbers
        layout = there.layout
        own = make_batch(bow.Batch, layout, there.num_rows, batch_parts(there).nodes, [None, buffer])
        second = server.publish("second", own)
        assert server.pool.stats == before
        assert read(second)["n"].to_pylist() == list(range(200_000))
        del there, own, buffer
    server.withdraw("second")


def test_published_is_frozen(serve: Callable[..., bow.Server]) -> None:
    """What was published can no longer be written, and what can still be written is not published."""
    server = serve()
    pool = Pool(budget=8 << 20)
    buffer = pool.allocate(80)
    with bow.connect(server.publish("like", {"n": np.arange(10)})) as stream:
        (like,) = stream
    own = make_batch(bow.Batch, like.layout, 10, batch_parts(like).nodes, [None, buffer])
    with buffer.writable("<i8") as numbers:
        numbers[:] = 7
        kept = numbers[2:5]
        with pytest.raises(bow.ViewsAlive):
            server.publish("n", own)
    with pytest.raises(bow.ViewsAlive):
        server.publish("n", own)
    del kept, numbers
    endpoint = server.publish("n", own)
    with pytest.raises(bow.UsageError, match="frozen"), buffer.writable():
        pass
    assert read(endpoint).to_pydict() == {"n": [7] * 10}
    assert not own["n"].values.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        own["n"].values[0] = 1
