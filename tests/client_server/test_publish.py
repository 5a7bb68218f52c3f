"""What a server offers: names, readers, how long the memory is kept, and what it costs."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import mappings
from tests.client_server.conftest import read

TABLE = pa.table({"n": [1, 2, 3]})
LARGE = {"n": np.arange(200_000)}


def test_several_data_sets(server: bow.Server) -> None:
    """Each data set has its own endpoint and keeps its own values."""
    tables = {f"set {number}": pa.table({"n": [number]}) for number in range(5)}
    endpoints = {name: server.publish(name, table) for name, table in tables.items()}
    assert server.endpoints == endpoints
    for name in reversed(tables):
        assert read(endpoints[name]).equals(tables[name])


def test_a_name_is_taken(server: bow.Server) -> None:
    """A name is offered once at a time, and free again when it was withdrawn."""
    server.publish("n", TABLE)
    with pytest.raises(bow.UsageError, match="taken"):
        server.publish("n", TABLE)
    server.withdraw("n")
    assert read(server.publish("n", pa.table({"n": [4]}))).to_pydict() == {"n": [4]}


def test_a_name_taken_meanwhile(serve: Callable[..., bow.Server]) -> None:
    """Of two threads that publish one name at once, exactly one does."""
    server = serve()
    errors: list[bow.BowstringError] = []

    def publish() -> None:
        try:
            server.publish("n", LARGE)
        except bow.UsageError as error:
            errors.append(error)

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(errors) == len(threads) - 1
    assert list(server.endpoints) == ["n"]


def _once(table: pa.Table) -> pa.RecordBatchReader:
    return table.to_reader()


def _anew(table: pa.Table) -> Callable[[], pa.RecordBatchReader]:
    return table.to_reader


@pytest.mark.parametrize("made", [lambda table: table, _once, _anew])
def test_a_dictionary_of_an_extension_type(server: bow.Server, made: Callable[[pa.Table], object]) -> None:
    """A dictionary of values of an extension type is refused at once: no reader could know it from the opposite."""
    storage = pa.array(["true", "[]"])
    values = pa.ExtensionArray.from_storage(pa.json_(), storage)
    indices = pa.array([0, 1, 0], pa.int8())
    table = pa.table({"d": pa.DictionaryArray.from_arrays(indices, values)})
    with pytest.raises(bow.Unsupported, match="dictionary of values of the extension type"):
        server.publish("d", made(table))
    assert server.endpoints == {}
    assert server.pool.stats.in_use == 0
    opposite = pa.table({"d": pa.DictionaryArray.from_arrays(indices, storage)})
    assert read(server.publish("d", made(opposite))).equals(opposite)


NAMELESS: list[Any] = [None, 5, b"n", "\ud800", "n" * 1025, "é" * 513]


@pytest.mark.parametrize("name", NAMELESS, ids=lambda name: ascii(name)[:20])
def test_names_that_are_none(server: bow.Server, name: Any) -> None:
    """What is no text, or longer than any reader may ask for, is refused before a byte is copied."""
    with pytest.raises(bow.UsageError, match="name"):
        server.publish(name, TABLE)
    assert server.stats.pool.made == 0


@pytest.mark.parametrize(
    "name", ["\0\n", "a b&c=d?e#f%20/日本", "é" * 512], ids=lambda name: ascii(name)[:20]
)
def test_any_text_is_a_name(server: bow.Server, name: str) -> None:
    """Every other text is a name, and survives being printed and copied."""
    assert read(str(server.publish(name, TABLE))).equals(TABLE)
    assert list(server.endpoints) == [name]


def test_a_schema_that_is_none(server: bow.Server) -> None:
    """A schema is a pyarrow.Schema, also of what is produced lazily, where nothing else would see it."""
    with pytest.raises(bow.UsageError, match="not a schema"):
        server.publish("n", iter([TABLE]), schema={"n": pa.int64()})


DOORS: dict[str, dict[str, Any]] = {
    "no address": {"address": None},
    "a path": {"address": Path("/tmp/a.sock")},
    "a number": {"address": 4711},
    "token of bytes": {"token": b"t"},
    "token without characters": {"token": ""},
    "pool": {"pool": 64 << 20},
    "limits": {"limits": 5.0},
}


@pytest.mark.parametrize("wrong", DOORS)
def test_servers_that_cannot_be(wrong: str) -> None:
    """An argument of the wrong kind is named when the server is made, not to its first reader."""
    with pytest.raises(bow.UsageError):
        bow.Server(**DOORS[wrong])


@pytest.mark.parametrize("readers", [0, -1, "1", 1.5])
def test_no_readers(serve: Callable[..., bow.Server], readers: Any) -> None:
    """A data set for nobody is a mistake."""
    with pytest.raises(bow.UsageError, match="reader"):
        serve().publish("n", TABLE, readers=readers)


def test_released_after_its_readers(server: bow.Server) -> None:
    """A data set for two readers is released when both have read it to the end and freed it."""
    endpoint = server.publish("n", LARGE, readers=2)
    with pytest.raises(bow.DeadlineExceeded, match="0 of 2"):
        server.wait_released("n", timeout=0.05)
    read(endpoint)
    with pytest.raises(bow.DeadlineExceeded, match="of 2"):
        server.wait_released("n", timeout=0.05)
    stream = bow.connect(endpoint)
    batches = list(stream)
    stream.close()
    if stream.stats.path.endswith("mapped"):
        with pytest.raises(bow.DeadlineExceeded):
            server.wait_released("n", timeout=0.1)
    del batches, stream
    server.wait_released("n")
    assert server.endpoints == {}
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint)


def test_no_more_readers_than_wanted(server: bow.Server) -> None:
    """A data set for one reader lets a second one in only when the first broke off."""
    endpoint = server.publish("n", LARGE, readers=1)
    with bow.connect(endpoint), pytest.raises(bow.UnknownTicket, match="readers"):
        bow.connect(endpoint)
    for _ in range(100):  # the server hears of the end a moment later
        try:
            assert read(endpoint).num_rows == 200_000
            break
        except bow.UnknownTicket:
            time.sleep(0.02)
    else:
        pytest.fail("the reader that broke off is still counted")
    server.wait_released()


def test_memory_comes_home(serve: Callable[..., bow.Server], address: str) -> None:
    """When a data set was read and freed, its memory is ready for the next one."""
    server = serve(address, budget=8 << 20)
    for _ in range(20):
        read(server.publish("n", LARGE, readers=1))
        server.wait_released("n")
    statistics = server.pool.stats
    assert (statistics.in_use, statistics.retired) == (0, 0)
    assert statistics.made <= 2
    assert statistics.reused >= 18


def test_withdrawn_while_it_is_read(server: bow.Server) -> None:
    """A withdrawn data set takes no new reader; those that read go on to its end and keep what they have."""
    endpoint = server.publish("n", [{"n": np.full(1000, number)} for number in range(4)])
    stream = bow.connect(endpoint)
    first = stream.read_next_batch()
    server.withdraw("n")
    assert "n" not in server.endpoints
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint)
    with pytest.raises(bow.UnknownTicket):
        server.withdraw("n")
    rest = list(stream)
    assert [int(batch["n"].values[-1]) for batch in (first, *rest)] == [0, 1, 2, 3]
    stream.close()
    del first, rest, stream
    server.wait_released("n")


def test_withdrawn_with_all_memory(serve: Callable[..., bow.Server]) -> None:
    """Once withdrawn and unread, a data set holds no memory."""
    server = serve()
    server.publish("n", LARGE)
    assert server.stats.bytes_offered == 1_600_000
    server.withdraw("n")
    server.wait_released("n")
    assert server.stats.bytes_offered == 0
    assert server.pool.stats.in_use == 0


def test_unknown_names(server: bow.Server) -> None:
    """Names that nobody published are refused, by whatever call."""
    with pytest.raises(bow.UnknownTicket):
        server.withdraw("n")
    with pytest.raises(bow.UnknownTicket):
        server.wait_released("n")


def test_wait_for_nothing(server: bow.Server) -> None:
    """Waiting for all of no data sets is over at once."""
    server.wait_released()


def test_waiting_ends_with_the_server(serve: Callable[..., bow.Server]) -> None:
    """A thread that waits for readers hears that the server was closed."""
    server = serve()
    server.publish("n", TABLE, readers=1)
    found: list[BaseException] = []

    def wait() -> None:
        try:
            server.wait_released()
        except bow.BowstringError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    server.close()
    thread.join(10)
    assert [type(error) for error in found] == [bow.ClosedError]


def test_statistics(server: bow.Server) -> None:
    """A server counts its connections, the readers that finished, those that were lost or refused."""
    endpoint = server.publish("n", LARGE)
    before = server.stats
    assert (before.connections, before.readers, before.refused, before.lost) == (0, 0, 0, 0)
    with bow.connect(endpoint):
        assert server.stats.connections == 1
    read(endpoint)
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint, "no such thing")
    deadline = time.monotonic() + 10
    while server.stats.connections and time.monotonic() < deadline:
        time.sleep(0.01)
    after = server.stats
    assert (after.connections, after.readers, after.refused, after.lost, after.stopped) == (0, 1, 1, 0, 1)


def test_over_budget(serve: Callable[..., bow.Server]) -> None:
    """A data set that the pool has no room for changes nothing: no name, no memory, and the rest is served."""
    server = serve(budget=4 << 20)
    endpoint = server.publish("small", TABLE)
    before = server.pool.stats
    with pytest.raises(bow.OutOfBudget, match="budget"):
        server.publish("large", {"n": np.arange(1_000_000)})
    gc.collect()
    assert server.pool.stats.in_use == before.in_use
    assert list(server.endpoints) == ["small"]
    assert read(endpoint).equals(TABLE)
    server.publish("large", TABLE)


def test_over_budget_in_the_middle(serve: Callable[..., bow.Server]) -> None:
    """Batches that were placed before the budget ran out are given back."""
    server = serve(budget=4 << 20)
    with pytest.raises(bow.OutOfBudget):
        server.publish("many", [{"n": np.arange(100_000)} for _ in range(20)])
    gc.collect()
    assert server.pool.stats.in_use == 0
    assert server.endpoints == {}


def test_views_are_read_only(server: bow.Server) -> None:
    """No view of what was read can be written, nor made writable."""
    with bow.connect(server.publish("n", {"n": np.arange(10)})) as stream:
        (batch,) = stream
    values = batch["n"].values
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        values.flags.writeable = True
    assert not batch.to_arrow().column(0).buffers()[1].is_mutable


def test_the_source_may_change(server: bow.Server) -> None:
    """Publishing copies: what is done to the source afterwards is not seen by any reader."""
    numbers = np.arange(1000)
    endpoint = server.publish("n", {"n": numbers})
    numbers[:] = -1
    assert read(endpoint)["n"].to_pylist() == list(range(1000))


def test_a_mapping_is_used_again(serve: Callable[..., bow.Server]) -> None:
    """A region that this process has mapped is not mapped once more."""
    server = serve()
    endpoint = server.publish("n", LARGE)
    with bow.connect(endpoint) as first, bow.connect(endpoint) as second:
        kept = [*first, *second]
        assert [first.stats.cached_regions, second.stats.cached_regions] == [0, 1]
    assert mappings().stats.in_use == 1
    del kept
