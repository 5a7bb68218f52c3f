"""Encoded batches are forwarded as they are over every transport, and decoded where they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.errors import InvalidBody, InvalidData, UnknownColumn, UsageError
from bowstring.testing import fake_device
from tests.transport.certified import serving, trusting
from tests.ucx import UCX

ADDRESSES = [
    pytest.param("unix:{folder}/s.sock", id="unix"),
    pytest.param("tcp://127.0.0.1:0", id="tcp"),
    pytest.param("tls://127.0.0.1:0", id="tls"),
    UCX,
    pytest.param("inproc:vortex", id="inproc"),
]


@pytest.fixture
def taxi(vortex_test_data: Path) -> bytes:
    """Return a stream of a table in three batches, compressed."""
    return (vortex_test_data / "vortex-data-0.90.0" / "taxi__compressed.vxipc").read_bytes()


def written(data: bytes, *, compress: bool) -> bytes:
    """Return the same values, written by Bowstring."""
    sink = io.BytesIO()
    with (
        bow.vortex.open_stream(data) as stream,
        bow.vortex.new_stream(sink, stream.schema, compress=compress) as writer,
    ):
        for batch in stream:
            writer.write_batch(batch.decode())
    return sink.getvalue()


def check_forwarded(sent: bytes, source: Any, **options: Any) -> None:
    """Read encoded batches as they are, and decoded where they arrive; they are those that were sent."""
    expected = bow.vortex.open_stream(sent).read_all()
    with bow.connect(source, **options) as stream:
        found = list(bow.vortex.from_messages(stream))
    for each, other in zip(found, bow.vortex.open_stream(sent), strict=True):
        assert bytes(each.buffer.to_host()) == bytes(other.buffer.to_host())
        assert each.encoding() == other.encoding()
    assert pa.Table.from_batches([each.to_arrow() for each in found]).equals(expected)
    device = fake_device()
    with bow.connect(source, device=device, options=bow.ConnectOptions(decode="device"), **options) as stream:
        batches = list(stream)
    assert all(batch.device is device for batch in batches)
    assert pa.Table.from_batches([each.to_device("cpu").to_arrow() for each in batches]).equals(expected)


@pytest.mark.parametrize("compressed_by", ["vortex-data", "bowstring"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_messages_arrive_as_they_were_sent(
    taxi: bytes, tmp_path: Path, address: str, compressed_by: str
) -> None:
    """Byte by byte, with their encodings, over every transport, and decode on a device to the same values."""
    sent = taxi if compressed_by == "vortex-data" else written(taxi, compress=True)
    certified: dict[str, Any] = {}
    trusted: dict[str, Any] = {}
    if address.startswith("tls:"):
        certified, trusted = {"tls": serving()}, {"tls": trusting()}
    with bow.Server(address.format(folder=tmp_path), **certified) as server:
        endpoint = server.publish("t", bow.vortex.to_messages(bow.vortex.open_stream(sent)).read_all())
        check_forwarded(sent, endpoint, **trusted)


def test_messages_are_kept_by_a_depot(taxi: bytes) -> None:
    """Two partitions of one data set, which are read as one stream."""
    batches = list(bow.vortex.open_stream(taxi))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bow-"))
        depot = stack.enter_context(bow.depot.connect(folder=folder))
        stack.callback(depot.stop)
        endpoints = []
        for partition, part in enumerate((batches[:1], batches[1:])):
            with depot.begin(application="a", dataset="d", partition=partition) as attempt:
                attempt.write(bow.vortex.to_messages(part))
                endpoints.append(attempt.commit().endpoint)
        schema = bow.vortex.to_messages(batches).schema
        check_forwarded(taxi, bow.Dataset(tuple(endpoints), schema))


@pytest.mark.parametrize("device", [None, "fake"])
def test_batches_are_decoded_after_the_transfer(taxi: bytes, device: str | None) -> None:
    """On the device that was asked for, all columns or some."""
    expected = bow.vortex.open_stream(taxi).read_all()
    target = None if device is None else fake_device()
    with bow.Server() as server:
        endpoint = server.publish("t", bow.vortex.to_messages(bow.vortex.open_stream(taxi)).read_all())
        with bow.connect(endpoint, device=target, options=bow.ConnectOptions(decode="device")) as stream:
            assert stream.schema.equals(expected.schema)
            batches = list(stream)
        assert all(batch.device is (target or bow.cpu()) for batch in batches)
        assert pa.Table.from_batches([each.to_device("cpu").to_arrow() for each in batches]).equals(expected)

        async def awaited() -> pa.Table:
            async with bow.connect_async(
                endpoint, device=target, options=bow.ConnectOptions(decode="device")
            ) as stream:
                batches = [each.to_device("cpu").to_arrow() async for each in stream]
            return pa.Table.from_batches(batches)

        assert asyncio.run(awaited()).equals(expected)
        names = expected.schema.names[3:1:-1]
        with bow.connect(endpoint, columns=names, options=bow.ConnectOptions(decode="device")) as stream:
            assert stream.read_all().equals(expected.select(names))
        with pytest.raises(UnknownColumn):
            bow.connect(endpoint, columns=["none"], options=bow.ConnectOptions(decode="device"))


def test_other_batches_cannot_be_decoded() -> None:
    """The error says what was expected."""
    with bow.Server() as server:
        endpoint = server.publish("t", pa.table({"a": [1]}))
        with pytest.raises(UsageError, match=r"bowstring\.vortex"):
            bow.connect(endpoint, options=bow.ConnectOptions(decode="device"))
        with pytest.raises(UsageError, match="'device'"):
            bow.connect(endpoint, options=bow.ConnectOptions(decode="host"))  # type: ignore[arg-type]  # that is the point


def test_a_writer_forwards_encoded_batches(taxi: bytes) -> None:
    """Those of a stream, and those that came as messages."""
    for source in ("batches", "messages"):
        stream, sink = bow.vortex.open_stream(taxi), io.BytesIO()
        taken = bow.vortex.to_messages(stream) if source == "messages" else stream
        with bow.vortex.new_stream(sink, taken.schema) as writer:
            for batch in taken:
                writer.write_batch(batch)
        again = list(bow.vortex.open_stream(sink.getvalue()))
        for each, other in zip(again, bow.vortex.open_stream(taxi), strict=True):
            assert bytes(each.buffer.to_host()) == bytes(other.buffer.to_host())


def test_rows_that_hold_no_message_are_an_error() -> None:
    """Whatever the column is called."""
    sink = io.BytesIO()
    with bow.vortex.new_stream(sink, pa.schema({"a": pa.int64()})) as writer:
        writer.write_batch(pa.record_batch({"a": [1]}))
    schema = bow.vortex.to_messages(bow.vortex.open_stream(sink.getvalue())).schema
    for row in (b"", b"abc", sink.getvalue()):
        batch = pa.RecordBatch.from_arrays([pa.array([row], pa.large_binary())], schema=schema)
        with pytest.raises((InvalidBody, InvalidData)):
            list(bow.vortex.from_messages(batch))
