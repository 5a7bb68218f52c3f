"""Conversations that were recorded with an earlier build are understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from tests.wire.player import RecordedServer, ask, table_of
from tests.wire.program import TABLES, datasets
from tests.wire.transcripts import WAIT, Conversation

FOLDER = Path(__file__).parents[1] / "data" / "transcripts"
# Each folder holds what one build said: that of the first protocol that is promised, and a release by its number.
CONVERSATIONS = {
    f"{build}{path.stem}": Conversation.load(path)
    for build in ("", "0.1.0/")
    for path in sorted((FOLDER / build).glob("*.json"))
}
WHOLE = [name for name, each in CONVERSATIONS.items() if each.table != "failing"]
FAILING = [name for name in CONVERSATIONS if name not in WHOLE]
PACKED = [name for name in WHOLE if name.removeprefix("0.1.0/").startswith("tcp")]
LIMITS = bow.Limits(connect_timeout=WAIT, reply_timeout=WAIT, release_timeout=WAIT, heartbeat=WAIT)
# What a server of the first protocol knows from a reader (docs/protocol.md, section 4), and one of 0.1.0 besides.
KNOWN = {*range(0xB1000000FFFFFF01, 0xB1000000FFFFFF06), *range(0xB0000000FFFFFF11, 0xB0000000FFFFFF19)}
KNOWN |= {0xB0000000FFFFFF04, 0xB0000000FFFFFF05}
KNOWN_TO_0_1_0 = KNOWN | {*range(0xB0000000FFFFFF19, 0xB0000000FFFFFF1F)}


def options_of(name: str) -> dict[str, Any]:
    """Return what the reader of a conversation asked for."""
    return {"columns": ["string", "int64"]} if "columns" in name else {}


def expected(name: str) -> list[dict[str, Any]]:
    """Return the rows that the reader of a conversation got."""
    table = TABLES[CONVERSATIONS[name].table.removeprefix("lazy ")]
    columns = options_of(name).get("columns", table.column_names)
    return list(table.select(columns).to_pylist())


@pytest.mark.parametrize("name", WHOLE)
def test_a_recorded_server_is_read(name: str) -> None:
    """A reader of today gets the rows from the bytes that a server sent earlier, and asks nothing new of it."""
    with RecordedServer(CONVERSATIONS[name]) as server:
        with bow.connect(server.uri, limits=LIMITS, **options_of(name)) as stream:
            batches = [batch.to_arrow() for batch in stream]
            schema = stream.schema
        rows = pa.Table.from_batches(batches, schema).to_pylist()
        del batches
    assert rows == expected(name)
    assert {frame.tag for frame in server.heard} <= (KNOWN_TO_0_1_0 if name.startswith("0.1.0/") else KNOWN)


def test_all_tables_were_recorded_with_each_build() -> None:
    """Each build left the same conversations."""
    names = sorted(name for name in CONVERSATIONS if not name.startswith("0.1.0/"))
    assert sorted(name.removeprefix("0.1.0/") for name in CONVERSATIONS if name not in names) == names != []


@pytest.mark.parametrize("name", FAILING)
def test_a_recorded_failure_is_read(name: str) -> None:
    """The error of an earlier server is raised as what it was, behind the batches that came before it."""
    recorded = RecordedServer(CONVERSATIONS[name])
    with recorded as server, bow.connect(server.uri, limits=LIMITS) as stream:
        count = sum(len(stream.read_next_batch()) for _ in range(2))
        with pytest.raises(bow.ProducerFailed, match="the third batch cannot be made"):
            stream.read_next_batch()
    assert count == 10_000


@pytest.mark.parametrize("name", PACKED)
def test_a_recorded_reader_is_served(name: str) -> None:
    """A server of today sends the same rows to a reader that speaks as earlier ones did, and counts it."""
    conversation = CONVERSATIONS[name]
    with bow.Server("tcp://127.0.0.1:0", limits=LIMITS) as server:
        separate = len(conversation.connections) == 2
        data = datasets()[conversation.table]()
        endpoint = server.publish("t", data, readers=1, separate=separate)
        heard = ask(conversation, server.address, endpoint.ticket)
        server.wait_released("t")
    assert table_of(heard).to_pylist() == table_of(conversation.connections).to_pylist() == expected(name)
