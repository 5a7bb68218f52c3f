"""Data sets whose batches are made when a reader has room for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from tests.client_server.conftest import PATIENCE

ROWS = 1000
BATCH_BYTES = ROWS * 8
SCHEMA = pa.schema([("n", pa.int64())])


def batch_of(number: int) -> pa.RecordBatch:
    """Return a batch full of one number."""
    return pa.record_batch({"n": np.full(ROWS, number)})


class Producer:
    """A generator of batches that counts them, and says when it was closed."""

    def __init__(self, count: int = 100) -> None:
        self.made = 0
        self.closed = threading.Event()
        self._count = count

    def __call__(self) -> Iterator[pa.RecordBatch]:
        try:
            for number in range(self._count):
                self.made += 1
                yield batch_of(number)
        finally:
            self.closed.set()


def settled(value: Callable[[], int], for_seconds: float = 0.1) -> int:
    """Return a number once it has not changed for a while."""
    last, since = value(), time.monotonic()
    end = since + 10.0
    while time.monotonic() - since < for_seconds:
        time.sleep(0.01)
        if value() != last:
            last, since = value(), time.monotonic()
        assert time.monotonic() < end, "it never settles"
    return last


@pytest.mark.parametrize("kind", ["reader", "generator", "callable", "callable of a table"])
def test_what_is_produced_lazily(server: bow.Server, kind: str) -> None:
    """A reader, a generator, or a callable that returns Arrow data is published without being read whole."""
    batches = [batch_of(number) for number in range(5)]
    table = pa.Table.from_batches(batches)
    data = {
        "reader": table.to_reader,
        "generator": lambda: (batch for batch in batches),
        "callable": lambda: lambda: iter(batches),
        "callable of a table": lambda: lambda: table,
    }[kind]()
    with bow.connect(server.publish("lazy", data, schema=SCHEMA)) as stream:
        assert stream.num_rows is None
        assert stream.read_all().equals(table)
    if not kind.startswith("callable"):
        server.wait_released("lazy")


def test_the_schema_of_the_first_batch(server: bow.Server) -> None:
    """A generator that does not say its schema is asked for its first batch, which is not lost."""
    producer = Producer(3)
    endpoint = server.publish("lazy", producer())
    assert producer.made == 1
    with bow.connect(endpoint) as stream:
        assert [int(batch["n"].values[0]) for batch in stream] == [0, 1, 2]


def test_nothing_is_made_before_a_reader_comes(server: bow.Server) -> None:
    """With a schema, publishing a generator makes no batch."""
    producer = Producer()
    server.publish("lazy", producer(), schema=SCHEMA)
    time.sleep(0.05)
    assert producer.made == 0


@pytest.mark.parametrize("window", [1, 3.5, 10])
def test_not_read_ahead_without_bound(server: bow.Server, window: float) -> None:
    """A reader that takes nothing has at most its credit's worth of batches made, and one that waits."""
    producer = Producer()
    limits = PATIENCE.replace(window_bytes=int(window * BATCH_BYTES))
    endpoint = server.publish("lazy", producer(), schema=SCHEMA)
    with bow.connect(endpoint, limits=limits) as stream:
        made = settled(lambda: producer.made)
        assert 1 <= made <= int(window) + 1
        kept = stream.read_next_batch()
        ahead = settled(lambda: producer.made)
        assert ahead <= int(window) + 2
        del kept
        seen = 1 + sum(1 for _ in stream)
    assert seen == producer.made == 100


def test_one_at_a_time(server: bow.Server) -> None:
    """A window smaller than any batch still lets one go when nothing else is outstanding."""
    limits = PATIENCE.replace(window_bytes=1)
    producer = Producer(20)
    endpoint = server.publish("lazy", producer(), schema=SCHEMA)
    with bow.connect(endpoint, limits=limits) as stream:
        for number, batch in enumerate(stream):
            assert int(batch["n"].values[0]) == number
            # Numbers begin with 0: this one, one that is on its way, and one that is made while that is.
            assert producer.made <= number + 3
            del batch


def test_memory_is_used_again(serve: Callable[..., bow.Server], address: str) -> None:
    """A long stream goes through little memory: what the reader frees carries later batches."""
    server = serve(address, budget=8 << 20)
    big = 100_000

    def produce() -> Iterator[pa.RecordBatch]:
        for number in range(50):
            yield pa.record_batch({"n": np.full(big, number)})

    endpoint = server.publish("lazy", produce(), schema=SCHEMA)
    limits = PATIENCE.replace(window_bytes=2 * big * 8)
    seen = 0
    with bow.connect(endpoint, limits=limits) as stream:
        for number, batch in enumerate(stream):
            values = batch["n"].values
            assert (values == number).all()
            seen += 1
            del values, batch
    assert seen == 50
    server.wait_released("lazy")
    assert server.pool.stats.retired == 0


def test_a_callable_for_each_reader(server: bow.Server) -> None:
    """A callable is called for each reader, who each get all of it."""
    endpoint = server.publish("lazy", Producer(4), schema=SCHEMA, readers=3)
    for _ in range(3):
        with bow.connect(endpoint) as stream:
            assert stream.read_all().num_rows == 4 * ROWS
    server.wait_released("lazy")


def test_a_generator_has_one_reader(server: bow.Server) -> None:
    """What can be read only once is not promised to two, and a second reader is told."""
    with pytest.raises(bow.UsageError, match="once"):
        server.publish("lazy", Producer(4)(), readers=2)
    endpoint = server.publish("lazy", Producer(4)())
    with bow.connect(endpoint) as stream:
        with pytest.raises(bow.UnknownTicket):
            bow.connect(endpoint)
        assert stream.read_all().num_rows == 4 * ROWS


def test_a_generator_that_was_broken_off(server: bow.Server) -> None:
    """When the one reader of a generator breaks off, the generator is closed and the next reader is told."""
    producer = Producer()
    limits = PATIENCE.replace(window_bytes=BATCH_BYTES)
    endpoint = server.publish("lazy", producer(), schema=SCHEMA)
    with bow.connect(endpoint, limits=limits) as stream:
        stream.read_next_batch()
    assert producer.closed.wait(10)
    settled(lambda: server.stats.connections)
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint)


@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_generator_that_raises(server: bow.Server, after: int) -> None:
    """A generator that raises in the middle gives its reader an error with the cause, after what it made."""

    def produce() -> Iterator[pa.RecordBatch]:
        for number in range(after):
            yield batch_of(number)
        raise ZeroDivisionError("the ninth digit of pi")

    endpoint = server.publish("lazy", produce(), schema=SCHEMA)
    seen: list[int] = []
    with (
        bow.connect(endpoint) as stream,
        pytest.raises(bow.ProducerFailed, match="ZeroDivisionError: the ninth digit of pi"),
    ):
        seen.extend(int(batch["n"].values[0]) for batch in stream)
    assert seen == list(range(after))
    server.publish("next", batch_of(1))


@pytest.mark.parametrize(
    "raised", [bow.BrokenError, bow.ClosedError, bow.DeadlineExceeded, bow.EndOfStream, OSError]
)
def test_a_generator_that_raises_an_error_of_ours(server: bow.Server, raised: type[Exception]) -> None:
    """An error of Bowstring's in a generator, as of a stream that it reads, is the producer's failure too."""

    def produce() -> Iterator[pa.RecordBatch]:
        yield batch_of(0)
        raise raised("upstream")

    endpoint = server.publish("lazy", produce(), schema=SCHEMA)
    with bow.connect(endpoint) as stream, pytest.raises(bow.ProducerFailed, match="upstream"):
        stream.read_all()


@pytest.mark.parametrize("raised", [bow.BrokenError, bow.ClosedError, bow.DeadlineExceeded, OSError])
def test_a_callable_that_raises(server: bow.Server, raised: type[Exception]) -> None:
    """What a callable raises before its first batch is told, whatever it is: it is no fault of the connection."""
    calls = 0

    def data() -> pa.Table:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise raised("upstream")
        return pa.table({"a": [1]})

    endpoint = server.publish("t", data)
    with bow.connect(endpoint) as stream:
        assert stream.read_all().num_rows == 1
    with pytest.raises(bow.ProducerFailed, match=f"{raised.__name__}: upstream"):
        bow.connect(endpoint)


def test_a_generator_that_changes_its_schema(server: bow.Server) -> None:
    """A batch of another schema is refused where it is made, and the reader is told."""

    def produce() -> Iterator[pa.RecordBatch]:
        yield batch_of(0)
        yield pa.record_batch({"other": [1]})

    endpoint = server.publish("lazy", produce(), schema=SCHEMA)
    with bow.connect(endpoint) as stream, pytest.raises(bow.BowstringError, match="schema"):
        stream.read_all()


def test_a_slow_producer_is_waited_for(server: bow.Server) -> None:
    """A producer that lives but takes its time is no reason to give up, however short the reader's limit."""

    def produce() -> Iterator[pa.RecordBatch]:
        yield batch_of(0)
        time.sleep(0.4)
        yield batch_of(1)

    limits = PATIENCE.replace(reply_timeout=0.15, heartbeat=0.05)
    endpoint = server.publish("lazy", produce(), schema=SCHEMA)
    with bow.connect(endpoint, limits=limits) as stream:
        assert stream.read_all().num_rows == 2 * ROWS


def test_dictionaries_that_change(server: bow.Server) -> None:
    """Batches with dictionaries of their own keep them."""
    schema = pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))])
    words = [["a", "b"], ["b"], ["c", "a"], ["a", "b"]]

    def produce() -> Iterator[pa.RecordBatch]:
        for each in words:
            yield pa.record_batch({"d": pa.array(each).dictionary_encode().cast(schema.field(0).type)})

    limits = PATIENCE.replace(window_bytes=4)
    endpoint = server.publish("lazy", produce(), schema=schema)
    with bow.connect(endpoint, limits=limits) as stream:
        found = [batch.to_arrow().column(0).to_pylist() for batch in stream]
    assert found == words


def test_lazy_data_go_over_one_connection(server: bow.Server) -> None:
    """Metadata and bodies of batches that are made once cannot go separate ways."""
    with pytest.raises(bow.UsageError, match="separate"):
        server.publish("lazy", Producer(), schema=SCHEMA, separate=True)
    server.publish("lazy", Producer(), schema=SCHEMA)
