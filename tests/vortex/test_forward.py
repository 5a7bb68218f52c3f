"""Encoded batches are forwarded as they are over every transport, and decoded where they arrive."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.errors import InvalidBody, InvalidData, UnknownColumn, UsageError
from bowstring.testing import fake_device

TOKEN = "a token of sixteen characters"


def addresses(folder: Path) -> dict[str, str]:
    """Return an address of each transport."""
    return {"unix": f"unix:{folder}/s.sock", "tcp": "tcp://127.0.0.1:0", "inproc": "inproc:vortex"}


@pytest.fixture
def taxi(vortex_test_data: Path) -> bytes:
    """Return a stream of a table in three batches, compressed."""
    return (vortex_test_data / "vortex-data-0.90.0" / "taxi__compressed.vxipc").read_bytes()


@pytest.mark.parametrize("scheme", ["unix", "tcp", "inproc"])
def test_messages_arrive_as_they_were_sent(taxi: bytes, tmp_path: Path, scheme: str) -> None:
    """Byte by byte, with their encodings, and hold the same values."""
    expected = bow.vortex.open_stream(taxi).read_all()
    with bow.Server(addresses(tmp_path)[scheme]) as server:
        endpoint = server.publish("t", bow.vortex.to_messages(bow.vortex.open_stream(taxi)))
        with bow.connect(endpoint) as stream:
            found = list(bow.vortex.from_messages(stream))
    sent = list(bow.vortex.open_stream(taxi))
    for each, other in zip(found, sent, strict=True):
        assert bytes(each.buffer.to_host()) == bytes(other.buffer.to_host())
        assert each.encoding() == other.encoding()
    assert pa.Table.from_batches([each.to_arrow() for each in found]).equals(expected)


@pytest.mark.parametrize("device", [None, "fake"])
def test_batches_are_decoded_after_the_transfer(taxi: bytes, device: str | None) -> None:
    """On the device that was asked for, all columns or some."""
    expected = bow.vortex.open_stream(taxi).read_all()
    target = None if device is None else fake_device()
    with bow.Server() as server:
        endpoint = server.publish("t", bow.vortex.to_messages(bow.vortex.open_stream(taxi)).read_all())
        with bow.connect(endpoint, device=target, decode="device") as stream:
            assert stream.schema.equals(expected.schema)
            batches = list(stream)
        assert all(batch.device is (target or bow.cpu()) for batch in batches)
        assert pa.Table.from_batches([each.to_device("cpu").to_arrow() for each in batches]).equals(expected)

        async def awaited() -> pa.Table:
            async with bow.connect_async(endpoint, device=target, decode="device") as stream:
                batches = [each.to_device("cpu").to_arrow() async for each in stream]
            return pa.Table.from_batches(batches)

        assert asyncio.run(awaited()).equals(expected)
        names = expected.schema.names[3:1:-1]
        with bow.connect(endpoint, columns=names, decode="device") as stream:
            assert stream.read_all().equals(expected.select(names))
        with pytest.raises(UnknownColumn):
            bow.connect(endpoint, columns=["none"], decode="device")


def test_other_batches_cannot_be_decoded() -> None:
    """The error says what was expected."""
    with bow.Server() as server:
        endpoint = server.publish("t", pa.table({"a": [1]}))
        with pytest.raises(UsageError, match=r"bowstring\.vortex"):
            bow.connect(endpoint, decode="device")
        with pytest.raises(UsageError, match="'device'"):
            bow.connect(endpoint, decode="host")  # type: ignore[arg-type]  # that is the point


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
