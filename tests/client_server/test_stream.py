"""A stream in the reader's hands: how it goes on, how it ends, and what it is to other libraries."""

from __future__ import annotations

import concurrent.futures
import copy
import pickle
import threading
from collections.abc import Callable, Iterator

import nanoarrow as na
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import bowstring as bow
from tests.client_server.conftest import PATIENCE, close_while_one_waits, until

BATCHES = [pa.record_batch({"n": [number, None], "s": ["x" * number, "ü"]}) for number in range(5)]
TABLE = pa.Table.from_batches(BATCHES)
SCHEMA = TABLE.schema


@pytest.fixture
def endpoint(server: bow.Server) -> bow.Endpoint:
    """Return a data set of five batches."""
    return server.publish("five", BATCHES)


# Five endings that are five different things.


def test_the_end(endpoint: bow.Endpoint) -> None:
    """After the last batch a stream says each time that it is at its end."""
    with bow.connect(endpoint) as stream:
        assert len(list(stream)) == 5
        for _ in range(3):
            with pytest.raises(bow.EndOfStream):
                stream.read_next_batch()
            assert next(stream, None) is None


AGAIN: dict[str, Callable[[bow.Stream], object]] = {
    "for": list,
    "read_all": lambda stream: stream.read_all(),
    "to_reader": lambda stream: stream.to_reader(),
    "pyarrow": pa.table,
    "polars": pl.DataFrame,
}


@pytest.mark.parametrize("kind", ["endpoint", "dataset"])
@pytest.mark.parametrize("again", AGAIN)
def test_an_exhausted_stream_says_so(endpoint: bow.Endpoint, kind: str, again: str) -> None:
    """A stream that was read to its end is never taken for an empty data set: to begin again is an error."""
    source = endpoint if kind == "endpoint" else bow.Dataset((endpoint,), SCHEMA)
    with bow.connect(source) as stream:
        assert AGAIN[again](stream) is not None
        if again == "to_reader":
            list(stream)
        with pytest.raises(bow.UsageError, match=r"read to its end.*connect\(\)"):
            AGAIN[again](stream)
    with pytest.raises(bow.ClosedError):
        AGAIN[again](stream)


@pytest.mark.parametrize("kind", ["endpoint", "dataset"])
def test_a_stream_that_is_not_exhausted_goes_on(endpoint: bow.Endpoint, kind: str) -> None:
    """Until its end was seen, a stream may be iterated over again, and goes on where it was."""
    source = endpoint if kind == "endpoint" else bow.Dataset((endpoint,), SCHEMA)
    with bow.connect(source) as stream:
        for _ in stream:
            break
        assert len(list(stream)) == 4


@pytest.mark.parametrize("kind", ["endpoint", "dataset"])
def test_a_thread_that_comes_late_finds_nothing(endpoint: bow.Endpoint, kind: str) -> None:
    """A thread that shares a stream and begins after another one read its end gets no batches, and no error."""
    source = endpoint if kind == "endpoint" else bow.Dataset((endpoint,), SCHEMA)
    with bow.connect(source) as stream, concurrent.futures.ThreadPoolExecutor(1) as late:
        with concurrent.futures.ThreadPoolExecutor(1) as early:
            assert early.submit(list, stream).result(20) != []
            with pytest.raises(bow.UsageError, match="read to its end"):
                early.submit(list, stream).result(20)
        assert late.submit(list, stream).result(20) == []
        with pytest.raises(bow.UsageError, match="read to its end"):
            list(stream)


@pytest.mark.parametrize("read", [0, 1, 5, 6], ids=lambda count: f"{count} read")
def test_closed(endpoint: bow.Endpoint, read: int) -> None:
    """A closed stream is closed, not at its end, however much of it was there when it was closed."""
    stream = bow.connect(endpoint)
    kept = [stream.read_next_batch() for _ in range(min(read, 5))]
    if read > 5:
        with pytest.raises(bow.EndOfStream):
            stream.read_next_batch()
    stream.close()
    for call in (stream.read_next_batch, stream.read_all, lambda: next(stream), lambda: list(stream)):
        with pytest.raises(bow.ClosedError, match="closed"):
            call()
    assert [batch.num_rows for batch in kept] == [2] * len(kept)
    assert stream.schema.equals(SCHEMA)
    assert stream.stats.batches == min(read, 5)


def test_closed_while_another_thread_waits(server: bow.Server) -> None:
    """A thread that waits for a batch hears that the stream was closed under it."""
    made, go_on = threading.Event(), threading.Event()

    def produce() -> Iterator[pa.RecordBatch]:
        made.set()
        go_on.wait(10)
        yield BATCHES[0]

    stream = bow.connect(server.publish("slow", produce(), schema=SCHEMA), limits=PATIENCE)
    close_while_one_waits(stream, made)
    go_on.set()
    until(lambda: server.stats.connections == 0)


def test_broken(server: bow.Server) -> None:
    """A stream whose server closed in the middle is broken, each time it is asked."""
    go_on = threading.Event()

    def produce() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        go_on.wait(10)
        yield BATCHES[1]

    with bow.connect(server.publish("half", produce(), schema=SCHEMA), limits=PATIENCE) as stream:
        batch = stream.read_next_batch()
        closing = threading.Thread(target=server.close)
        closing.start()
        for _ in range(3):
            with pytest.raises(bow.BowstringError) as caught:
                stream.read_next_batch()
            assert isinstance(caught.value, bow.BrokenError | bow.ClosedError)
            assert "server" in str(caught.value) or isinstance(caught.value, bow.BrokenError)
        assert batch["n"].to_arrow().to_pylist() == [0, None]
        go_on.set()
        closing.join(10)


def test_timed_out(server: bow.Server) -> None:
    """A producer that answers but makes nothing is waited for; its reader can stop waiting by closing."""
    go_on = threading.Event()

    def produce() -> Iterator[pa.RecordBatch]:
        go_on.wait(10)
        yield BATCHES[0]

    limits = PATIENCE.replace(reply_timeout=0.2, heartbeat=0.05)
    with bow.connect(server.publish("slow", produce(), schema=SCHEMA), limits=limits) as stream:
        timer = threading.Timer(0.4, go_on.set)
        timer.start()
        assert stream.read_all().equals(pa.Table.from_batches(BATCHES[:1]))
        assert stream.stats.seconds_waited > 0.2
        timer.join(10)


def test_after_the_producer_failed(server: bow.Server) -> None:
    """The batches of a stream that failed stay true, and the reader is told the same each time."""

    def produce() -> Iterator[pa.RecordBatch]:
        yield BATCHES[3]
        raise OSError("disk on fire")

    with bow.connect(server.publish("half", produce(), schema=SCHEMA)) as stream:
        batch = stream.read_next_batch()
        for _ in range(3):
            with pytest.raises(bow.ProducerFailed, match="disk on fire"):
                stream.read_next_batch()
    assert batch["n"].to_arrow().to_pylist() == [3, None]


# Reading.


def test_read_all_of_the_rest(endpoint: bow.Endpoint) -> None:
    """`read_all` gives what is left, and a stream goes on where it was left."""
    with bow.connect(endpoint) as stream:
        next(stream)
        for batch in stream:
            assert batch["n"].to_arrow().to_pylist() == [1, None]
            break
        assert stream.read_all().equals(TABLE.slice(4))


def test_a_stream_is_its_own_iterator(endpoint: bow.Endpoint) -> None:
    """Two iterators of one stream share its batches."""
    with bow.connect(endpoint) as stream:
        one, other = iter(stream), iter(stream)
        assert one is other
        assert [next(one).num_rows, len(list(other)), next(one, None)] == [2, 4, None]


def test_to_reader(endpoint: bow.Endpoint) -> None:
    """A stream is a pyarrow reader that fetches as it is read."""
    with bow.connect(endpoint) as stream:
        reader = stream.to_reader()
        assert reader.schema.equals(SCHEMA)
        assert stream.stats.batches == 0
        assert reader.read_next_batch().equals(BATCHES[0])
        assert stream.stats.batches == 1
        assert reader.read_all().equals(TABLE.slice(2))


def test_a_reader_raises_our_errors(server: bow.Server) -> None:
    """What goes wrong under a pyarrow reader is raised as what it is, never as a shorter table."""

    def produce() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        raise OSError("disk on fire")

    with bow.connect(server.publish("half", produce(), schema=SCHEMA)) as stream:
        reader = stream.to_reader()
        assert reader.read_next_batch().equals(BATCHES[0])
        with pytest.raises(bow.ProducerFailed, match="disk on fire"):
            reader.read_next_batch()


@pytest.mark.parametrize("consumer", ["pyarrow", "polars", "nanoarrow"])
def test_a_failure_crosses_the_c_stream(server: bow.Server, consumer: str) -> None:
    """A consumer of the C stream gets an error with the cause in it, not fewer rows."""

    def produce() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        raise OSError("disk on fire")

    take = CONSUMERS[consumer]
    endpoint = server.publish("half", produce(), schema=SCHEMA)
    with bow.connect(endpoint) as stream, pytest.raises(Exception, match="disk on fire"):
        take(stream)


CONSUMERS: dict[str, Callable[[bow.Stream], pa.Table]] = {
    "pyarrow": pa.table,
    "pyarrow reader": lambda stream: pa.RecordBatchReader.from_stream(stream).read_all(),
    "polars": lambda stream: pl.DataFrame(stream).to_arrow(),
    "nanoarrow": lambda stream: pa.table(na.ArrayStream(stream)),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_the_c_stream_interface(endpoint: bow.Endpoint, consumer: str) -> None:
    """A stream can be given to whatever takes an Arrow C stream."""
    with bow.connect(endpoint) as stream:
        assert CONSUMERS[consumer](stream).to_pydict() == TABLE.to_pydict()


def test_a_c_stream_outlives_everything(serve: Callable[..., bow.Server], address: str) -> None:
    """What another library took from a stream stays true after stream and server were closed."""
    server = serve(address)
    with bow.connect(server.publish("five", BATCHES)) as stream:
        taken = pa.table(stream)
    server.close()
    assert taken.equals(TABLE)


def test_a_schema_that_was_asked_for(endpoint: bow.Endpoint) -> None:
    """A consumer that asks for another schema gets the data cast to it, as pyarrow does."""
    wanted = pa.schema([("n", pa.int32()), ("s", pa.string())])
    with bow.connect(endpoint) as stream:
        got = pa.RecordBatchReader.from_stream(stream, schema=wanted).read_all()
    assert got.equals(TABLE.cast(wanted))


# What it says about itself.


def test_statistics(endpoint: bow.Endpoint) -> None:
    """A stream counts what was delivered, and knows what the producer knows about the whole."""
    with bow.connect(endpoint) as stream:
        assert (stream.num_rows, stream.num_batches) == (10, 5)
        before = stream.stats
        assert (before.batches, before.rows, before.nbytes) == (0, 0, 0)
        nbytes = 0
        for count, batch in enumerate(stream, 1):
            nbytes += batch.nbytes
            assert (stream.stats.batches, stream.stats.rows) == (count, 2 * count)
            assert stream.stats.nbytes == nbytes
        assert nbytes == stream.nbytes
        assert stream.stats.regions == (0 if stream.stats.path.endswith("packed") else 1)
        assert stream.stats.seconds_waited >= 0
        assert stream.stats.device == "cpu"
    assert pickle.loads(pickle.dumps(stream.stats)) == stream.stats


def test_repr(endpoint: bow.Endpoint) -> None:
    """A stream shows its peer, its path and how far it is."""
    with bow.connect(endpoint) as stream:
        next(stream)
        assert stream.stats.path in repr(stream)
        assert "1 batches" in repr(stream)


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_stays_in_its_process(endpoint: bow.Endpoint, send: Callable[[object], object]) -> None:
    """Streams, servers and batches cannot be pickled or copied, and say what to send instead."""
    with bow.connect(endpoint) as stream:
        with pytest.raises(bow.NotPicklable, match="Endpoint"):
            send(stream)
        with pytest.raises(bow.NotPicklable):
            send(next(stream))


# Ending it.


def test_closed_twice(endpoint: bow.Endpoint) -> None:
    """Closing again does nothing, in or out of its block."""
    with bow.connect(endpoint) as stream:
        stream.close()
        stream.close()
    stream.close()


def test_closed_by_an_error(server: bow.Server, endpoint: bow.Endpoint) -> None:
    """An error in the block closes the stream and goes on."""
    with pytest.raises(ZeroDivisionError), bow.connect(endpoint) as stream:
        raise ZeroDivisionError
    with pytest.raises(bow.ClosedError):
        stream.read_next_batch()
    until(lambda: server.stats.connections == 0)


def test_forgotten(server: bow.Server, endpoint: bow.Endpoint) -> None:
    """A stream that is neither closed nor kept ends by itself."""
    next(bow.connect(endpoint))
    until(lambda: server.stats.connections == 0)


def test_a_batch_outlives_its_forgotten_stream(server: bow.Server, endpoint: bow.Endpoint) -> None:
    """A batch holds its lease after its stream was forgotten, and gives it back when it is."""
    batch = next(bow.connect(endpoint))
    assert batch["n"].to_arrow().to_pylist() == [0, None]
    if batch["n"].raw_values.size and not server.address.startswith(("tcp", "ucx")):
        assert server.stats.connections == 1
    del batch
    until(lambda: server.stats.connections == 0)


@pytest.mark.parametrize("threads", [2, 5])
def test_shared_by_threads(server: bow.Server, threads: int) -> None:
    """Threads that read from one stream share its batches: each comes once, and all are counted."""
    count = 500
    batches = [{"n": np.full(10, number)} for number in range(count)]
    seen: list[list[int]] = [[] for _ in range(threads)]
    with bow.connect(server.publish("many", batches)) as stream:

        def read(mine: list[int]) -> None:
            mine.extend(int(batch["n"].values[0]) for batch in stream)

        workers = [threading.Thread(target=read, args=(mine,)) for mine in seen]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(20)
        assert stream.stats.batches == count
        assert stream.stats.rows == 10 * count
    assert sorted(number for mine in seen for number in mine) == list(range(count))
    assert all(mine == sorted(mine) for mine in seen)


@pytest.mark.parametrize("read", [0, 1, 3])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("call", ["read_all", "to_reader", "__arrow_c_stream__", "read_next_batch"])
def test_closed_streams_say_so(endpoint: bow.Endpoint, call: str, *, many: bool, read: int) -> None:
    """Whatever is asked of a closed stream for its batches, it says that it was closed, at once and in words."""
    with bow.connect(endpoint, limits=PATIENCE) as stream:
        schema = stream.schema
    opened = bow.connect(bow.Dataset((endpoint,), schema) if many else endpoint, limits=PATIENCE)
    for _ in range(read):
        opened.read_next_batch()
    opened.close()
    with pytest.raises(bow.ClosedError, match="closed"):
        getattr(opened, call)()
