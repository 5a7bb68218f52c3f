"""Servers that know only the specification: any order of messages, two connections, and who may close which."""

from __future__ import annotations

import random
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.transport import Message
from tests.client_server.conftest import PATIENCE, until
from tests.peer.plain import PlainServer, messages_of

TABLE = pa.Table.from_batches(
    [
        pa.record_batch({"n": [1, None, 3], "x": [0.5, 1.5, None]}),
        pa.record_batch({"n": pa.array([], pa.int64()), "x": pa.array([], pa.float64())}),
        pa.record_batch({"n": [4, 5], "x": [2.5, 3.5]}),
    ]
)
EMPTY = 2  # the number of the batch without rows, whose body has no byte


def metadata_backwards(metadata: list[Message], bodies: list[Message]) -> Sequence[Message]:
    """The end first, the schema last."""
    return [*reversed(metadata), *bodies]


def all_backwards(metadata: list[Message], bodies: list[Message]) -> Sequence[Message]:
    """The bodies, last first, then the end, the batches and the schema."""
    return [*reversed(bodies), *reversed(metadata)]


def shuffled(metadata: list[Message], bodies: list[Message]) -> Sequence[Message]:
    """Any order."""
    messages = [*metadata, *bodies]
    random.Random(18).shuffle(messages)
    return messages


@pytest.mark.parametrize("arrange", [metadata_backwards, all_backwards, shuffled])
@pytest.mark.parametrize("empty", ["sent", "left out", "last"])
def test_metadata_in_any_order(address: str, arrange: Any, empty: str) -> None:
    """Metadata are put in order by their numbers, and nobody waits for a body of 0 bytes."""

    def arranged(metadata: list[Message], bodies: list[Message]) -> Sequence[Message]:
        others = [body for body in bodies if body.tag != EMPTY]
        last = [body for body in bodies if body.tag == EMPTY] if empty == "last" else []
        return [*arrange(metadata, bodies if empty == "sent" else others), *last]

    with (
        PlainServer(address, messages_of(TABLE, arranged)) as server,
        bow.connect(server.uri, "t", limits=PATIENCE) as stream,
    ):
        assert stream.read_all().equals(TABLE)


def test_a_gap_that_stays_is_named(address: str) -> None:
    """Metadata that never come are waited for as long as the limit says, and named."""
    messages = messages_of(TABLE)
    with (
        PlainServer(address, [*messages[:1], *messages[3:]]) as server,
        bow.connect(server.uri, "t", limits=PATIENCE.replace(reply_timeout=0.3)) as stream,
        pytest.raises(bow.DeadlineExceeded, match="message 1 lacks its metadata"),
    ):
        stream.read_all()


def test_metadata_behind_a_gap_are_bounded(address: str) -> None:
    """Of metadata that come out of order as many are kept as the limits say."""
    messages = messages_of(TABLE, metadata_backwards)
    for limits in (PATIENCE.replace(early_messages=2), PATIENCE.replace(early_bytes=100)):
        with (
            PlainServer(address, messages) as server,
            pytest.raises(bow.LimitExceeded, match="early_"),
        ):
            bow.connect(server.uri, "t", limits=limits)


def split(table: pa.Table) -> tuple[list[Message], list[Message]]:
    """Return the metadata of a table with the end, and its bodies."""
    messages = messages_of(table)
    return (
        [message for message in messages if message.tag is None],
        [message for message in messages if message.tag is not None],
    )


def uri_of(metadata: PlainServer, bodies: PlainServer) -> str:
    """Return the URI of a data set of two servers."""
    data = urllib.parse.quote(bodies.uri, safe="")
    return f"{metadata.uri}&ticket=dA&data={data}"


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """Return an event that is set when the test ends, at the latest."""
    event = threading.Event()
    yield event
    event.set()


def connections() -> int:
    """Return how many connections of streams are being read in this process."""
    return sum(each.name == "bowstring-client-reader" for each in threading.enumerate())


def test_metadata_closed_while_bodies_come(address: str, go_on: threading.Event) -> None:
    """A server may close its connection of metadata after the end, while bodies still come over the other one."""
    metadata, bodies = split(TABLE)
    with (
        PlainServer(address, metadata, close=True) as first,
        PlainServer(address, bodies[:1], later=bodies[1:], go_on=go_on) as second,
        bow.connect(uri_of(first, second), limits=PATIENCE) as stream,
    ):
        batches = [next(stream)]
        until(lambda: connections() <= 1)
        go_on.set()
        batches += stream
        assert pa.Table.from_batches([batch.to_arrow() for batch in batches]).equals(TABLE)


def test_metadata_closed_with_a_gap(address: str, go_on: threading.Event) -> None:
    """A server that closes its connection of metadata before all of them were sent has broken the stream."""
    metadata, bodies = split(TABLE)
    with (
        PlainServer(address, [*metadata[:2], *metadata[3:]], close=True) as first,
        PlainServer(address, bodies[:1], later=bodies[1:], go_on=go_on) as second,
        bow.connect(uri_of(first, second), limits=PATIENCE) as stream,
    ):
        with pytest.raises(bow.BrokenError, match="closed"):
            stream.read_all()
        go_on.set()


def test_bodies_closed_before_their_metadata(address: str, go_on: threading.Event) -> None:
    """A server may close its connection of bodies when all are sent, also before all metadata have come."""
    metadata, bodies = split(TABLE)
    with (
        PlainServer(address, metadata[:1], later=metadata[1:], go_on=go_on) as first,
        PlainServer(address, bodies, close=True) as second,
        bow.connect(uri_of(first, second), limits=PATIENCE) as stream,
    ):
        until(lambda: connections() <= 1)
        go_on.set()
        assert stream.read_all().equals(TABLE)


@pytest.mark.parametrize("early", [False, True])
def test_bodies_closed_with_one_missing(address: str, go_on: threading.Event, *, early: bool) -> None:
    """A body that did not come before its connection was closed is an error, as soon as its metadata are there."""
    metadata, bodies = split(TABLE)
    sent, later = (metadata, []) if early else (metadata[:1], metadata[1:])
    with (
        PlainServer(address, sent, later=later, go_on=go_on) as first,
        PlainServer(address, bodies[:-1], close=True) as second,
        bow.connect(uri_of(first, second), limits=PATIENCE) as stream,
    ):
        if not early:
            until(lambda: connections() <= 1)
        go_on.set()
        with pytest.raises(bow.BrokenError, match="closed"):
            stream.read_all()


def test_a_plain_server_with_messages_of_ours(address: str) -> None:
    """A server that was sent no hello, and sends a message that the specification does not know, is refused."""
    messages = messages_of(TABLE)
    welcome = Message(0xB0000000FFFFFF01, [b'{"version": 1, "charged": false, "path": "", "why": ""}'])
    with (
        PlainServer(address, [*messages[:3], welcome, *messages[3:]]) as server,
        pytest.raises(bow.ProtocolError, match="no hello"),
        bow.connect(server.uri, "t", limits=PATIENCE) as stream,
    ):
        stream.read_all()
