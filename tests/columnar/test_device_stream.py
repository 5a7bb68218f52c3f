"""Streams of a device, as other libraries hand them out by the C Device Stream interface."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar import Batch, batches
from bowstring.columnar.parts import batch_parts
from bowstring.errors import DeviceError, UsageError
from bowstring.testing import FakeDevice, fake_device
from tests.columnar.device_producer import Producer

TABLES = [
    pa.record_batch({"n": [start, None, start + 2], "s": ["x", None, "yz" * start]}) for start in range(1, 5)
]
SCHEMA = TABLES[0].schema


@pytest.fixture
def device() -> FakeDevice:
    """Return the second fake device, so that numbers show."""
    return fake_device(1)


def on(device: FakeDevice) -> list[Batch]:
    """Return the batches on a device."""
    return [Batch.from_arrow(table).to_device(device) for table in TABLES]


def test_batches_are_taken_where_they_lie(device: FakeDevice) -> None:
    """Each batch is taken when it is asked for, on its device and over the producer's memory, after its event."""
    ours = on(device)
    producer = Producer(SCHEMA, ours)
    schema, taken = batches(producer)
    assert (schema, producer.given) == (SCHEMA, 0)
    device.driver.waits.clear()
    for number, batch in enumerate(taken):
        assert producer.given == number + 1
        assert batch.device is device
        assert batch["n"].raw_values.data.ptr == ours[number]["n"].raw_values.data.ptr
        assert batch.to_arrow().equals(TABLES[number])
    assert producer.given == len(TABLES)
    assert len(device.driver.waits) == len(TABLES)


def test_batches_of_the_host_are_taken_too(device: FakeDevice) -> None:
    """A stream may say the host for some of its batches."""
    mixed = [Batch.from_arrow(TABLES[0]), on(device)[1]]
    producer = Producer(SCHEMA, mixed)
    _, taken = batches(producer)
    first, second = taken
    assert (first.device.name, second.device.name) == ("cpu", "fake:1")
    assert [first.to_arrow(), second.to_arrow()] == TABLES[:2]


def test_memory_goes_back_batch_by_batch(device: FakeDevice) -> None:
    """What was taken lives as long as its views, whatever became of the stream; what is dropped goes at once."""
    ours = on(device)
    regions = [weakref.ref(batch_parts(batch).spans.regions[0]) for batch in ours]
    producer = Producer(SCHEMA, ours)
    del ours
    _, taken = batches(producer)
    first, second = next(taken), next(taken)
    del first, taken, producer
    gc.collect()
    assert [region() is not None for region in regions] == [False, True, False, False]
    view = second["n"].raw_values
    del second
    gc.collect()
    assert device.to_host(view)[0] == 2
    del view
    gc.collect()
    assert regions[1]() is None


def test_memory_of_the_host_goes_back_before_the_stream_ends(device: FakeDevice) -> None:
    """A batch of the host that is dropped goes at once, while the stream goes on with those of a device."""
    mixed = [Batch.from_arrow(TABLES[0]), *on(device)[1:3]]
    region = weakref.ref(batch_parts(mixed[0]).spans.regions[0])
    producer = Producer(SCHEMA, (mixed.pop(0) for _ in range(3)))
    _, taken = batches(producer)
    first, second = next(taken), next(taken)
    del first
    gc.collect()
    assert region() is None
    assert second.to_arrow().equals(TABLES[1])
    assert next(taken).to_arrow().equals(TABLES[2])


@pytest.mark.parametrize(
    ("fail", "said"), [("next", "the disk is on fire"), ("silent", "Input/output error")]
)
def test_a_failure_is_no_end(device: FakeDevice, fail: str, said: str) -> None:
    """A producer that fails after some batches is an error with its words, and never a shorter table."""
    producer = Producer(SCHEMA, on(device), fail)
    _, taken = batches(producer)
    got = [next(taken) for _ in TABLES]
    with pytest.raises(DeviceError, match=rf"batch.*{said} \(5\)"):
        next(taken)
    assert len(got) == len(TABLES)


def test_a_schema_that_cannot_be_had_is_an_error(device: FakeDevice) -> None:
    """A producer that fails at once, a stream that is no record batches, or that was released: each is said."""
    with pytest.raises(DeviceError, match=r"schema.*on fire"):
        batches(failing := Producer(SCHEMA, on(device), "schema"))
    assert failing.given == 0
    producer = Producer(SCHEMA, ())
    producer.release()
    with pytest.raises(UsageError, match="released"):
        batches(producer)


@pytest.mark.parametrize("where", ["cpu", "fake:1"])
def test_a_batch_that_is_not_what_the_schema_says_is_an_error(where: str) -> None:
    """A producer whose later batch has other columns than its schema: an error of ours, wherever the batch is."""
    other = Batch.from_arrow(pa.record_batch({"x": pa.array([[1]]), "y": [2]})).to_device(where)
    producer = Producer(SCHEMA, [*on(fake_device(1))[:1], other])
    _, taken = batches(producer)
    assert next(taken).to_arrow().equals(TABLES[0])
    with pytest.raises(UsageError):
        next(taken)


def test_one_batch_of_a_stream(device: FakeDevice) -> None:
    """A stream of one batch is a batch, of none is one without rows; several are not joined in silence."""
    [first, *_] = on(device)
    assert Batch.from_arrow(Producer(SCHEMA, [first])).to_arrow().equals(TABLES[0])
    assert Batch.from_arrow(Producer(SCHEMA, [])).num_rows == 0
    with pytest.raises(UsageError, match=r"several batches.*publish"):
        Batch.from_arrow(Producer(SCHEMA, on(device)))


def test_streams_are_published_where_they_lie(device: FakeDevice) -> None:
    """A server takes a stream of a device, batch by batch, and its readers get all of it on the device."""
    source = [pa.record_batch({"n": np.arange(50_000) + start}) for start in range(3)]
    ours = [Batch.from_arrow(table).to_device(device) for table in source]
    device.stats.reset()
    pool = bow.Pool(device, budget=64 << 20)
    with bow.Server(pool=pool) as server:
        with bow.connect(server.publish("t", Producer(source[0].schema, ours))) as stream:
            got = list(stream)
        assert device.stats.host_read_bytes < 1000
        assert [batch.device for batch in got] == [device] * 3
        assert [batch.to_arrow() for batch in got] == source
        del got
    pool.close()


def test_a_failing_stream_fails_its_readers(device: FakeDevice) -> None:
    """A producer that fails half way fails the readers, with its words."""
    pool = bow.Pool(device, budget=64 << 20)
    with bow.Server(pool=pool) as server:
        endpoint = server.publish(
            "t", (each for each in [Producer(SCHEMA, on(device), "next")]), schema=SCHEMA
        )
        with (
            bow.connect(endpoint) as stream,
            pytest.raises(bow.errors.ProducerFailed, match="on fire"),
        ):
            list(stream)
    pool.close()


def test_a_stream_of_ours_is_not_copied_to_the_host_unasked(device: FakeDevice) -> None:
    """Who takes a stream by the C stream interface gets no batches of a device, but an error that says why."""
    pool = bow.Pool(device, budget=64 << 20)
    with bow.Server(pool=pool) as server:
        endpoint = server.publish("t", on(device)[0])
        with (
            bow.connect(endpoint) as stream,
            pytest.raises(pa.ArrowException, match=r"not on the host.*to_reader"),
        ):
            pa.table(stream)
        with bow.connect(endpoint) as stream:
            assert stream.to_reader().read_all().equals(pa.table(TABLES[0]))
        with bow.connect(endpoint, device="cpu") as stream:
            assert pa.table(stream).equals(pa.table(TABLES[0]))
    pool.close()
