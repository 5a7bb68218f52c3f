"""Streams of many partitions: recorded conversations are understood, and builds that know none get none."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import bowstring as bow
from tests.wire.player import RecordedServer, ask, opening_of, table_of
from tests.wire.program import TABLES, TOKEN
from tests.wire.transcripts import PARTITIONED, WAIT, Conversation

FOLDER = Path(__file__).parents[1] / "data" / "transcripts"
# What the first build with such streams said, and release 0.1.0.
CONVERSATIONS = {
    f"{build}{path.stem}": Conversation.load(path)
    for build in ("", "0.1.0/")
    for path in sorted((FOLDER / build / "partitions").glob("*.json"))
}
LIMITS = bow.Limits(connect_timeout=WAIT, reply_timeout=WAIT, release_timeout=WAIT, heartbeat=WAIT)
PARTITION: Final = 0xB0000000FFFFFF0C
PARTITIONS: Final = 0xB0000000FFFFFF1B
TAKEN: Final = 0xB0000000FFFFFF1C


def dataset_of(uri: str, table: pa.Table) -> bow.Dataset:
    """Return the data set whose endpoints stand for the names of its partitions."""
    first = bow.Endpoint.parse(uri)
    tickets = [f"part {number}".encode() for number in range(len(table.to_batches()))]
    return bow.Dataset(tuple(dataclasses.replace(first, ticket=ticket) for ticket in tickets), table.schema)


def test_all_were_recorded() -> None:
    """There is a conversation of each table that is recorded."""
    recorded = sorted(each.table for each in CONVERSATIONS.values())
    assert recorded == sorted([*PARTITIONED, *PARTITIONED])


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_recorded_server_is_read(name: str) -> None:
    """A reader of today asks with the same list, and gets the rows from what a server sent earlier."""
    conversation = CONVERSATIONS[name]
    table = TABLES[conversation.table]
    with RecordedServer(conversation) as server:
        with bow.connect(dataset_of(server.uri, table), limits=LIMITS) as stream:
            batches = [batch.to_arrow() for batch in stream]
        rows = pa.Table.from_batches(batches, table.schema).to_pylist()
        del batches
    assert rows == table.to_pylist()
    [connection] = conversation.connections
    asked = [(frame.tag, frame.body) for frame in opening_of(connection)[1:]]
    assert [(frame.tag, frame.body) for frame in server.heard if (frame.tag, frame.body) in asked] == asked
    taken = [
        b"".join(f.body for f in said if f.tag == TAKEN) for said in (server.heard, connection.said("reader"))
    ]
    assert taken[0] == taken[1] != b""


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_recorded_reader_is_served(name: str) -> None:
    """A server of today sends the same partitions to a reader that speaks as earlier ones did, and counts it."""
    conversation = CONVERSATIONS[name]
    table = TABLES[conversation.table]
    [recorded] = conversation.connections
    with bow.Server("tcp://127.0.0.1:0", token=TOKEN, limits=LIMITS) as server:
        for number, batch in enumerate(table.to_batches()):
            server.publish(f"part {number}", pa.Table.from_batches([batch], table.schema), readers=1)
        [heard] = ask(conversation, server.address, opening_of(recorded)[-1].body)
        server.wait_released()
    assert table_of([heard]).to_pylist() == table.to_pylist()
    marks = [[f.body for f in each.said("server") if f.tag == PARTITION] for each in (heard, recorded)]
    assert marks[0] == marks[1]
    assert len(marks[0]) == len(table.to_batches())


def test_an_older_server_is_asked_for_one_at_a_time() -> None:
    """A server whose URI says nothing of partitions is sent no list of them."""
    table = TABLES["types"]
    with RecordedServer(Conversation.load(FOLDER / "tcp-types.json"), times=3) as server:
        endpoint = bow.Endpoint.parse(server.uri)
        dataset = bow.Dataset((endpoint,) * 3, table.schema)
        with bow.connect(dataset, limits=LIMITS) as stream:
            rows = stream.read_all().to_pylist()
    assert rows == table.to_pylist() * 3
    assert PARTITIONS not in {frame.tag for frame in server.heard}
