"""Dictionaries that grow, change, and come late, over dissociated streams."""

from __future__ import annotations

import gc
import queue
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.client.connection.assembler import Assembler
from bowstring.columnar import compacted, placed
from bowstring.columnar.parts import batch_parts
from bowstring.dissociated.events import Announced, Part
from bowstring.dissociated.items import IpcMessage
from bowstring.dissociated.producer import ProducerProtocol, Role
from bowstring.dissociated.reader import Lent, ReaderProtocol
from bowstring.dissociated.tags import Control
from bowstring.dissociated.wire import Hello, Welcome
from bowstring.ipc.body.pack import laid_out
from bowstring.ipc.flatbuf.message import MessageKind, decode_dictionary, decode_message
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.ipc.flatbuf.template import Template
from bowstring.ipc.framing import frame
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Device, Pool, cpu
from bowstring.testing import fake_device
from tests.peer.plain import PlainServer, messages_of
from tests.peer.raw import recorded

WORDS = ["one", "two", None, "four", "five", "six"]


def growing(*counts: int) -> pa.Table:
    """A table whose chunks use more and more of the words."""
    chunks = []
    for count in counts:
        indices = pa.array([*range(count), None], pa.int8())
        chunks.append(pa.DictionaryArray.from_arrays(indices, pa.array(WORDS[:count], pa.string())))
    return pa.table({"a": pa.chunked_array(chunks), "n": list(range(sum(counts) + len(counts)))})


def words_of(table: pa.Table) -> list[str | None]:
    words: list[str | None] = table["a"].to_pylist()
    return words


@pytest.mark.parametrize("counts", [(1, 3, 6), (3, 3, 5), (6, 2, 4)])
def test_a_growing_dictionary_arrives(address: str, counts: tuple[int, ...]) -> None:
    """Each batch has the values that its own dictionary had, whether it grew, stayed or shrank."""
    table = growing(*counts)
    with bow.Server(address) as server, bow.connect(server.publish("t", table)) as stream:
        batches = list(stream)
        assert words_of(pa.table(pa.Table.from_batches([each.to_arrow() for each in batches]))) == words_of(
            table
        )
        for batch in batches:
            batch.validate(full=True)


def test_only_what_is_new_is_sent() -> None:
    """Over a connection that carries bytes, a dictionary that grew is sent as a delta."""
    with bow.Server("tcp://127.0.0.1:0") as server:
        messages = [
            decode_message(bytes(message.pieces[0])[5:])
            for message in recorded(server.publish("t", growing(2, 5, 5)))
            if message.tag is None and len(bytes(message.pieces[0])) > 5
        ]
    dictionaries = [
        decode_dictionary(message) for message in messages if message.kind is MessageKind.DICTIONARY_BATCH
    ]
    assert [(each.is_delta, each.batch.length) for each in dictionaries] == [(False, 2), (True, 3)]


@pytest.mark.parametrize("options", [{}, {"emit_dictionary_deltas": True}])
def test_what_pyarrow_writes_arrives(options: dict[str, bool]) -> None:
    """Deltas and replacements that Arrow C++ writes are read from a plain server."""
    table = growing(1, 2, 4, 3)
    messages = messages_of(table, options=options)
    with (
        PlainServer("tcp://127.0.0.1:0", messages) as server,
        bow.connect(server.uri, ticket=b"t") as stream,
    ):
        assert words_of(stream.read_all()) == words_of(table)


def test_fields_that_share_a_dictionary_arrive(address: str) -> None:
    """Batches that were read from a stream with one dictionary id in two fields can be published."""
    words = pa.array(["x", None, "y"]).dictionary_encode()
    table = pa.table({"a": words, "b": words})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    _, first, _, batch = (each.serialize() for each in pa.ipc.MessageReader.open_stream(sink.getvalue()))
    shared = frame(encode_schema(table.schema, [0, 0]), alignment=8) + first.to_pybytes() + batch.to_pybytes()
    batches = list(bow.ipc.open_stream(shared))
    with bow.Server(address) as server, bow.connect(server.publish("t", batches)) as stream:
        assert stream.read_all().equals(table)


def item(metadata: bytes, part: bow.Batch) -> IpcMessage:
    """The message of a batch that goes by pointers."""
    return IpcMessage(
        metadata, batch_parts(part).spans.table, batch_parts(part).spans.regions, (), part.nbytes
    )


def numbers_of(part: bow.Batch) -> tuple[int, Any, Any, int]:
    packed = laid_out(part)
    return part.num_rows, packed.nodes, packed.buffers, packed.body_length


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_deltas_by_pointers_are_joined_on_their_device(request: pytest.FixtureRequest, device: str) -> None:
    """Parts of a dictionary that lie in the producer's memory are joined where they are; their leases end then."""
    where: Device = cpu() if device == "cpu" else fake_device()
    pool = Pool(where, budget=64 << 20)
    request.addfinalizer(pool.close)
    allocator = pool.allocator()
    batch = placed(bow.Batch.from_arrow(growing(5).to_batches()[0].select(["a"])), allocator)
    values = batch.dictionaries[0].values
    parts = [placed(compacted(values.slice(start, 3)), allocator) for start in (0, 3)]
    layout = batch.layout

    items = [IpcMessage(encode_schema(layout.schema))]
    template = Template(layout.dictionaries[0])
    for part, is_delta in zip(parts, (False, True), strict=True):
        metadata = template.encode_batch(*numbers_of(part), dictionary=(0, is_delta))
        items.append(item(metadata, part))
    items.append(item(Template(layout).encode_batch(*numbers_of(batch)), batch))
    producer = ProducerProtocol(DEFAULT_LIMITS)
    producer.hello, producer.role, producer.pointers = Hello(pointers=True), Role.BOTH, True
    notes: queue.SimpleQueue[Lent] = queue.SimpleQueue()
    consumer = ReaderProtocol(DEFAULT_LIMITS)
    assembler = Assembler(DEFAULT_LIMITS, consumer, notes)
    consumer.receive(Control.WELCOME, Welcome(charged=False, path="", why="").pack())
    found = None
    for message in [message for each in items for message in producer.send(each)]:
        attachments = () if message.attachment is None else (message.attachment,)
        body = b"".join(bytes(piece) for piece in message.pieces)
        for event in consumer.receive(message.tag, memoryview(body), attachments):
            if isinstance(event, Announced):
                assembler.announce(event)
            elif isinstance(event, Part):
                found = assembler.take(event) or found
    assert found is not None
    assert found.batch.device is where
    assert found.batch.dictionaries[0].values.device is where
    assert found.batch.to_arrow().column(0).to_pylist() == [*WORDS[:5], None]
    del event, items
    gc.collect()
    ended = [notes.get_nowait() for _ in range(notes.qsize())]
    # Both parts of the dictionary were copied when they were joined; the rows are still lent.
    assert len(ended) == 2
