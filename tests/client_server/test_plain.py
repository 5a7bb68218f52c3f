"""The plain protocol: peers that know nothing of Bowstring's additions are served, and read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.transport import Message
from tests.client_server.conftest import PATIENCE
from tests.peer.plain import PlainClient, PlainServer, messages_of
from tests.strategies import LEAF_TYPES, data_types, record_batches

TABLE = pa.table(
    {
        "n": pa.chunked_array([[1, None, 3], [4, 5]]),
        "s": pa.chunked_array([["a", "b", None], ["", "e"]]),
        "d": pa.chunked_array(
            [pa.array(["x", "y", "x"]).dictionary_encode(), pa.array(["y", "x"]).dictionary_encode()]
        ),
        "l": pa.chunked_array([[[1, 2], None, []], [[3], []]]),
    }
).unify_dictionaries()
# pyarrow's reader of a stream knows no dictionaries inside others' values, and no views without buffers.
PLAIN = tuple(each for each in LEAF_TYPES if not isinstance(each, pa.BaseExtensionType))
TYPES = data_types(leaves=PLAIN, dictionaries=False)


def test_a_plain_client_reads_a_table(server: bow.Server) -> None:
    """A client without a hello gets every message as the specification has it: bodies of type 0, no extras."""
    client = PlainClient(str(server.publish("t", TABLE)))
    with client.channel:
        client.ask()
        assert client.read().equals(TABLE)
    assert all(tag >> 32 == 0 for tag in client.tags)


def test_a_plain_client_is_a_reader(server: bow.Server) -> None:
    """A client without a hello that read everything counts as one of the readers."""
    client = PlainClient(str(server.publish("t", TABLE, readers=1)))
    with client.channel:
        client.ask()
        client.read()
    server.wait_released("t")
    assert server.stats.readers == 1


def test_a_plain_client_reads_lazy_data(server: bow.Server) -> None:
    """A client without a hello has no credit and needs none."""
    batches = [pa.record_batch({"n": [number]}) for number in range(20)]
    client = PlainClient(str(server.publish("t", (batch for batch in batches), schema=batches[0].schema)))
    with client.channel:
        client.ask()
        assert client.read().equals(pa.Table.from_batches(batches))


def test_a_plain_client_of_a_server_with_a_token(serve: object, address: str) -> None:
    """A client that cannot give a token gets nothing but the end of its connection."""
    server = serve(address, token="secret")  # type: ignore[operator]
    client = PlainClient(str(server.publish("t", TABLE)))
    with client.channel:
        client.ask()
        with pytest.raises(bow.BrokenError):
            client.channel.receive(10.0)


@pytest.mark.parametrize(
    "tag", [0xB0000000FFFFFF11, 0xB0000000FFFFFF14, 5], ids=["credit", "done", "unknown"]
)
def test_a_plain_client_that_says_more(server: bow.Server, tag: int) -> None:
    """A message of our own from a client without a hello breaks its connection, and no other."""
    endpoint = server.publish("t", TABLE)
    client = PlainClient(str(endpoint))
    with client.channel:
        client.ask()
        client.channel.send([Message(tag, [bytes(8)])], 10.0)
        with pytest.raises(bow.BrokenError):
            list(iter(lambda: client.channel.receive(10.0), None))
    with bow.connect(endpoint) as stream:
        assert stream.read_all().equals(TABLE)


@settings(max_examples=20)
@given(batch=st.deferred(lambda: record_batches(types=None, min_columns=1)))
def test_a_plain_client_reads_anything(batch: pa.RecordBatch) -> None:
    """Whatever pyarrow can write, a plain client of ours reads with pyarrow."""
    table = pa.Table.from_batches([batch])
    try:
        table = pa.ipc.open_stream(_written(table)).read_all()
    except (pa.ArrowException, NotImplementedError):
        return
    with bow.Server("inproc:", limits=PATIENCE) as server:
        client = PlainClient(str(server.publish("t", table)))
        with client.channel:
            client.ask()
            assert client.read().equals(table)


def _written(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def bodies_first(metadata: list[Message], bodies: list[Message]) -> Sequence[Message]:
    """All bodies in front of all metadata."""
    return [*bodies, *metadata]


def bodies_last(metadata: list[Message], bodies: list[Message]) -> Sequence[Message]:
    """All bodies behind all metadata, and behind the end."""
    return [*metadata, *bodies]


def backwards(metadata: list[Message], bodies: list[Message]) -> Sequence[Message]:
    """The bodies in reverse order."""
    return [*metadata, *reversed(bodies)]


@pytest.mark.parametrize("arrange", [None, bodies_first, bodies_last, backwards])
def test_a_plain_server_is_read(address: str, arrange: object) -> None:
    """Metadata and bodies are put together by sequence number, whatever order the server sends them in."""
    with (
        PlainServer(address, messages_of(TABLE, arrange)) as server,  # type: ignore[arg-type]
        bow.connect(server.uri, b"whatever", limits=PATIENCE) as stream,
    ):
        assert stream.schema.equals(TABLE.schema)
        assert stream.read_all().equals(TABLE)
        assert stream.num_rows is None
        assert "packed" in stream.stats.path
        assert "plain" in stream.stats.why
    assert server.heard == [(PlainServer.want, b"whatever")]


def test_columns_of_a_plain_server(address: str) -> None:
    """Where the server cannot choose columns, the client does."""
    with (
        PlainServer(address, messages_of(TABLE)) as server,
        bow.connect(server.uri, "t", columns=["l", "n"], limits=PATIENCE) as stream,
    ):
        assert stream.schema.names == ["l", "n"]
        assert stream.read_all().equals(TABLE.select(["l", "n"]))


def test_columns_that_a_plain_server_does_not_have(address: str) -> None:
    """A column that is not there is the same error whoever chooses."""
    with (
        PlainServer(address, messages_of(TABLE)) as server,
        pytest.raises(bow.UsageError, match="nothing"),
    ):
        bow.connect(server.uri, "t", columns=["nothing"], limits=PATIENCE)


@pytest.mark.parametrize("kept", range(8))
def test_a_plain_server_that_hangs_up(address: str, kept: int) -> None:
    """A connection that ends before the end of the stream is an error, never a shorter table."""
    messages = messages_of(TABLE)
    assert len(messages) > kept
    with (
        PlainServer(address, messages[:kept], close=True) as server,
        pytest.raises(bow.BrokenError),
        bow.connect(server.uri, "t", limits=PATIENCE) as stream,
    ):
        stream.read_all()


def test_a_plain_server_that_falls_silent(address: str) -> None:
    """A server that says nothing more is waited for as long as the limit says."""
    limits = PATIENCE.replace(reply_timeout=0.3)
    with (
        PlainServer(address, messages_of(TABLE)[:3]) as server,
        bow.connect(server.uri, "t", limits=limits) as stream,
        pytest.raises(bow.DeadlineExceeded, match="message"),
    ):
        stream.read_all()
