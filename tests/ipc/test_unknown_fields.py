"""Metadata of a future version, whose tables have fields that nobody knows yet: they are passed over."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import ipc
from tests.ipc.flatbuffers import Table

# How many fields each table has today.
KNOWN = {"Message": 5, "Schema": 4, "Field": 7, "Int": 2, "RecordBatch": 5, "DictionaryBatch": 3, "Footer": 5}
# As a reference, a number or a truth value they would lead astray: they point at what is in the table.
UNKNOWN = [4, 0, 4, 5, 6, 0xFFFF]
BATCHES = [
    pa.record_batch(
        {
            "n": pa.array([number, None, 3], pa.int32()),
            "t": ["x", "yz", None],
            "d": pa.array(["u", None, "u"]).dictionary_encode(),
        }
    )
    for number in range(12)
]


def extended(data: bytes, table: int, known: int) -> bytes:
    """Return a flatbuffer in which one table has more fields than are known; its vtable is put at the end."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    length, inline = struct.unpack_from("<2H", data, vtable)
    slots = [*struct.unpack_from(f"<{(length - 4) // 2}H", data, vtable + 4)]
    slots += [0] * (known - len(slots)) + UNKNOWN
    data += bytes(-len(data) % 8)
    changed = bytearray(data + struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), inline, *slots))
    struct.pack_into("<i", changed, table, table - len(data))
    return bytes(changed) + bytes(-len(changed) % 8)


def tables_in(data: bytes, root: str) -> dict[str, int]:
    """Return where the tables of a message or of a footer are: of several of a kind the first."""
    found = {root: Table.root(data)}
    if root == "Message":
        name = {1: "Schema", 2: "DictionaryBatch", 3: "RecordBatch"}[found[root].number(1, "B")]
        found[name] = header = found[root].inside(2)
        if name == "DictionaryBatch":
            found["RecordBatch"] = header.inside(1)
        if name == "Schema":
            found["Field"] = header.element(1, 0)
            found["Int"] = found["Field"].inside(3)
    return {name: table.at for name, table in found.items()}


def framed(metadata: bytes) -> bytes:
    """Return metadata of a message, of a length that eight divides, behind its prefix."""
    return struct.pack("<II", 0xFFFFFFFF, len(metadata)) + metadata


def of_the_future(data: bytes, which: str, root: str = "Message") -> bytes:
    """Return metadata with fields that nobody knows in one kind of table, or in all of them."""
    for name, table in tables_in(data, root).items():
        if which in (name, "all"):
            data = extended(data, table, KNOWN[name])
    return data


def stream_of(which: str, **options: Any) -> bytes:
    """Return a stream whose messages are of the future."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, BATCHES[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in BATCHES:
            writer.write_batch(batch)
    pieces = []
    for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        metadata = of_the_future(message.metadata.to_pybytes(), which)
        pieces.append(framed(metadata) + (b"" if message.body is None else message.body.to_pybytes()))
    return b"".join(pieces) + bytes.fromhex("ffffffff00000000")


@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("which", [*KNOWN, "all"])
def test_streams(which: str, codec: str | None) -> None:
    """Messages, schemas, fields, types and batches with fields of a later version are read as by pyarrow."""
    stream = stream_of(which, compression=codec)
    plain = stream_of("none", compression=codec)
    assert (stream != plain) == (which != "Footer")
    with ipc.open_stream(stream) as reader:
        assert reader.read_all().equals(pa.ipc.open_stream(stream).read_all())
    with ipc.open_stream(stream) as reader:
        assert [batch.to_arrow() for batch in reader] == BATCHES
    with ipc.open_stream(io.BytesIO(stream), options=ipc.IpcReadOptions(included_fields=[0])) as reader:
        assert [batch.to_arrow() for batch in reader] == [batch.select([0]) for batch in BATCHES]


def test_files() -> None:
    """So are footers."""
    sink = io.BytesIO()
    batches = [batch.select(["n", "t"]) for batch in BATCHES]
    with pa.ipc.new_file(sink, batches[0].schema, metadata={"k": "v"}) as writer:
        for batch in batches:
            writer.write_batch(batch)
    file = sink.getvalue()
    (length,) = struct.unpack_from("<i", file, len(file) - 10)
    start = len(file) - 10 - length
    footer = of_the_future(file[start:-10], "Footer", "Footer")
    changed = file[:start] + footer + struct.pack("<i", len(footer)) + file[-6:]
    expected = pa.ipc.open_file(pa.py_buffer(changed))
    with ipc.open_file(changed) as reader:
        assert reader.metadata == expected.metadata
        assert [batch.to_arrow() for batch in reader] == batches
        assert reader.read_all().equals(expected.read_all())


def test_tensors() -> None:
    """So are the tables of tensors, whose fields are numbered anew by each version."""
    sink = io.BytesIO()
    ipc.write_tensor(np.eye(3), sink)
    message = pa.ipc.read_message(pa.py_buffer(sink.getvalue()))
    metadata = message.metadata.to_pybytes()
    table = Table.root(metadata)
    metadata = extended(extended(metadata, table.at, KNOWN["Message"]), table.inside(2).at, 5)
    found = ipc.read_tensor(framed(metadata) + message.body.to_pybytes())
    assert np.array_equal(found.to_numpy(), np.eye(3))
