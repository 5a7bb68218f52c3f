"""A data set of many endpoints, read as one stream."""

from __future__ import annotations

import concurrent.futures
import contextlib
import pickle
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.client.endpoint_stream import EndpointStream
from bowstring.client.stream import StreamStatistics
from bowstring.memory import Pool
from bowstring.testing import fake_device
from tests.client_server.conftest import PATIENCE, close_while_one_waits, read, until
from tests.peer.plain import PlainServer, messages_of

SCHEMA = pa.schema([("part", pa.int64()), ("n", pa.int64())])
PARTS, BATCHES = 7, 3


def batch_of(part: int, number: int) -> pa.RecordBatch:
    """Return a batch that says where it belongs."""
    return pa.record_batch({"part": [part] * 2, "n": [number] * 2}, schema=SCHEMA)


def part_of(part: int) -> list[pa.RecordBatch]:
    """Return the batches of one endpoint."""
    return [batch_of(part, number) for number in range(BATCHES)]


WHOLE = pa.Table.from_batches([batch for part in range(PARTS) for batch in part_of(part)])


def published(server: bow.Server, schema: pa.Schema = SCHEMA) -> bow.Dataset:
    """Return a data set of seven endpoints of one server."""
    endpoints = [server.publish(f"part {part}", part_of(part)) for part in range(PARTS)]
    return bow.Dataset(tuple(endpoints), schema, WHOLE.num_rows, WHOLE.nbytes)


@pytest.fixture(params=[True, False], ids=["grouped", "apart"])
def one_stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the endpoints of a server share one stream, or have one each, as with peers that know no partitions."""
    monkeypatch.setenv("BOWSTRING_PARTITIONS", str(int(request.param)))
    return bool(request.param)


def test_in_order(one_stream: bool, server: bow.Server) -> None:
    """The batches come in the order of the endpoints, whichever was open first."""
    dataset = published(server)
    with bow.connect(dataset) as stream:
        assert stream.schema.equals(SCHEMA)
        assert (stream.num_rows, stream.num_batches, stream.nbytes) == (WHOLE.num_rows, None, WHOLE.nbytes)
        assert stream.read_all().equals(WHOLE)
        with pytest.raises(bow.EndOfStream):
            stream.read_next_batch()
        assert (stream.stats.batches, stream.stats.rows) == (PARTS * BATCHES, WHOLE.num_rows)
    until(lambda: server.stats.readers == (1 if one_stream else PARTS))


def test_as_they_come(one_stream: bool, server: bow.Server) -> None:
    """Unordered, every batch comes once, and those of one endpoint in their order."""
    with bow.connect(published(server), options=bow.ConnectOptions(ordered=False)) as stream:
        seen = [(batch["part"].values[0], batch["n"].values[0]) for batch in stream]
        assert stream.stats.batches == PARTS * BATCHES
    for part in range(PARTS):
        assert [int(number) for origin, number in seen if origin == part] == list(range(BATCHES))
    assert len(seen) == PARTS * BATCHES
    assert not one_stream or seen == sorted(seen)


def on_hosts(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., bow.Server], hosts: str) -> bow.Dataset:
    """Return a data set whose endpoints are on these hosts, each reached over ``tcp:`` from the others."""
    endpoints = []
    for part, host in enumerate(hosts):
        monkeypatch.setenv("BOWSTRING_HOST", host)
        server = serve("unix:")
        server.listen_too("tcp://127.0.0.1:0")
        endpoints.append(server.publish("part", part_of(part)))
    return bow.Dataset(tuple(endpoints), SCHEMA)


def test_this_host_first(monkeypatch: pytest.MonkeyPatch, serve: Callable[..., bow.Server]) -> None:
    """Unordered, endpoints of other hosts are not opened while some of this host are left to open."""
    dataset = on_hosts(monkeypatch, serve, "bbbbababba")
    for here in "ab":
        monkeypatch.setenv("BOWSTRING_HOST", here)
        local = {part for part, endpoint in enumerate(dataset) if endpoint.is_here}
        with bow.connect(dataset, options=bow.ConnectOptions(ordered=False)) as stream:
            seen = [int(batch["part"].values[0]) for batch in stream]
        assert sorted(seen) == [part for part in range(len(dataset)) for _ in range(BATCHES)]
        # Four are open at a time, so a further one is opened once another is read.
        before = seen[: next(index for index, part in enumerate(seen) if part not in local)]
        assert len([part for part in local if before.count(part) == BATCHES]) >= len(local) - 3
        with bow.connect(dataset) as stream:
            assert stream.read_all()["part"].to_pylist() == [part for part in range(10) for _ in range(6)]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_read_from_several_hosts(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., bow.Server], count: int, ordered: bool
) -> None:
    """Readers on any hosts, which know nothing of each other, read each row once over all shards."""
    dataset = on_hosts(monkeypatch, serve, "abcab")
    rows: list[tuple[int, int]] = []
    for index in range(count):
        monkeypatch.setenv("BOWSTRING_HOST", "cabd"[index % 4])
        with bow.connect(
            dataset, shard=(index, count), options=bow.ConnectOptions(ordered=ordered)
        ) as stream:
            table = stream.read_all()
        rows += zip(table["part"].to_pylist(), table["n"].to_pylist(), strict=True)
    assert sorted(rows) == [
        (part, number) for part in range(5) for number in range(BATCHES) for _ in range(2)
    ]


@pytest.mark.parametrize("ordered", [True, False])
def test_from_several_servers(serve: Callable[..., bow.Server], ordered: bool) -> None:
    """Endpoints of one data set may lie on servers of any kind."""
    servers = [serve(address) for address in ("unix:", "inproc:", "tcp://127.0.0.1:0")]
    endpoints = [server.publish("part", part_of(part)) for part, server in enumerate(servers)]
    dataset = bow.Dataset(tuple(endpoints), SCHEMA)
    with bow.connect(dataset, options=bow.ConnectOptions(ordered=ordered)) as stream:
        table = stream.read_all()
        assert stream.stats.path == "inproc: mapped, tcp: packed, unix: mapped"
    assert table.sort_by([("part", "ascending"), ("n", "ascending")]).equals(WHOLE.slice(0, 6 * BATCHES))


def test_the_first_is_read_while_others_open(server: bow.Server) -> None:
    """Unordered, what is there comes at once, though another endpoint has not even said its schema."""
    go_on = threading.Event()
    go_on.set()

    def slow() -> Iterator[pa.RecordBatch]:
        assert go_on.wait(10)
        return iter(part_of(0))

    first = server.publish("slow", slow, schema=SCHEMA)
    read(first)  # what publish() asked for, to see the schema
    go_on.clear()
    dataset = bow.Dataset((first, server.publish("quick", part_of(1))), SCHEMA)
    with bow.connect(dataset, options=bow.ConnectOptions(ordered=False), limits=PATIENCE) as stream:
        assert [int(next(stream)["part"].values[0]) for _ in range(BATCHES)] == [1] * BATCHES
        go_on.set()
        assert [int(batch["part"].values[0]) for batch in stream] == [0] * BATCHES


def test_they_are_opened_ahead(server: bow.Server) -> None:
    """While the first endpoint makes its batches, the next ones are open already, but not all."""
    go_on = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield batch_of(0, 0)
        assert go_on.wait(10)
        yield batch_of(0, 1)

    first = server.publish("slow", slow, schema=SCHEMA)
    others = [server.publish(f"part {part}", part_of(part)) for part in range(10)]
    with bow.connect(bow.Dataset((first, *others), SCHEMA), limits=PATIENCE) as stream:
        next(stream)
        until(lambda: server.stats.connections >= 3)
        assert server.stats.connections <= 5
        go_on.set()
        assert stream.read_all().num_rows == 2 + 10 * 2 * BATCHES


@pytest.mark.parametrize("ordered", [True, False])
def test_columns(one_stream: bool, server: bow.Server, ordered: bool) -> None:
    """Columns are chosen of every endpoint."""
    with bow.connect(published(server), columns=["n"], options=bow.ConnectOptions(ordered=ordered)) as stream:
        assert stream.schema.names == ["n"]
        table = stream.read_all()
    assert sorted(table["n"].to_pylist()) == sorted(WHOLE["n"].to_pylist())


def test_a_column_that_is_not_there(server: bow.Server) -> None:
    """A column that the data set's schema does not have is refused before any endpoint is asked."""
    dataset = published(server)
    with pytest.raises(bow.UnknownColumn, match="'x'"):
        bow.connect(dataset, columns=["x"])
    assert server.stats.connections == 0


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_options_reach_every_endpoint(server: bow.Server, mode: str) -> None:
    """The mode holds for all of them."""
    assert read(published(server), mode=mode).equals(WHOLE)


@pytest.mark.parametrize("ordered", [True, False])
def test_another_schema(one_stream: bool, server: bow.Server, ordered: bool) -> None:
    """An endpoint whose schema is not that of its data set is an error that shows both."""
    endpoints = (server.publish("a", part_of(0)), server.publish("b", {"other": [1]}))
    stream = bow.connect(bow.Dataset(endpoints, SCHEMA), options=bow.ConnectOptions(ordered=ordered))
    with stream, pytest.raises(bow.InvalidData, match=r"(?s)part.*other"):
        stream.read_all()
    until(lambda: server.stats.connections == 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_one_endpoint_is_gone(one_stream: bool, server: bow.Server, ordered: bool) -> None:
    """One endpoint that nobody offers fails the whole, and nothing is left open."""
    dataset = published(server)
    server.withdraw("part 2")
    with bow.connect(dataset, options=bow.ConnectOptions(ordered=ordered), limits=PATIENCE) as stream:
        with pytest.raises(bow.UnknownTicket, match=r"at partition 2\b"):
            stream.read_all()
        with pytest.raises(bow.ClosedError):
            stream.read_next_batch()
    until(lambda: server.stats.connections == 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_one_endpoint_fails(server: bow.Server, ordered: bool) -> None:
    """One producer that raises fails the whole; what came before stays true."""

    def fail() -> Iterator[pa.RecordBatch]:
        yield batch_of(9, 0)
        raise OSError("disk on fire")

    dataset = published(server)
    failing = server.publish("failing", fail(), schema=SCHEMA)
    endpoints = (*dataset.endpoints[:2], failing, *dataset.endpoints[2:])
    kept: list[bow.Batch] = []
    stream = bow.connect(
        bow.Dataset(endpoints, SCHEMA), options=bow.ConnectOptions(ordered=ordered), limits=PATIENCE
    )
    with stream, pytest.raises(bow.ProducerFailed, match="disk on fire"):
        kept.extend(stream)
    if ordered:
        assert [int(batch["part"].values[0]) for batch in kept] == [0] * 3 + [1] * 3 + [9]
    assert len(kept) <= 1 + PARTS * BATCHES


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_closed_in_the_middle(one_stream: bool, server: bow.Server, ordered: bool, count: int) -> None:
    """Closing ends all its streams, open, opening or not yet begun, and batches stay."""
    with bow.connect(published(server), options=bow.ConnectOptions(ordered=ordered)) as stream:
        kept = [next(stream) for _ in range(count)]
    for call in (stream.read_next_batch, stream.read_all):
        with pytest.raises(bow.ClosedError):
            call()
    stream.close()
    assert [batch.num_rows for batch in kept] == [2] * count
    del kept
    until(lambda: server.stats.connections == 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_closed_while_another_thread_waits(server: bow.Server, ordered: bool) -> None:
    """A thread that waits for a batch of any endpoint hears that the stream was closed."""
    go_on, asked = threading.Event(), threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        asked.set()
        go_on.wait(10)
        yield batch_of(0, 0)

    dataset = bow.Dataset((server.publish("slow", slow, schema=SCHEMA),), SCHEMA)
    stream = bow.connect(dataset, options=bow.ConnectOptions(ordered=ordered), limits=PATIENCE)
    close_while_one_waits(stream, asked)
    go_on.set()
    until(lambda: server.stats.connections == 0)


def test_forgotten(one_stream: bool, server: bow.Server) -> None:
    """A stream of many that is neither closed nor kept ends by itself, with its threads."""
    next(bow.connect(published(server)))
    until(lambda: server.stats.connections == 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_of_none(ordered: bool) -> None:
    """A data set without endpoints has a schema and no batches."""
    with bow.connect(bow.Dataset((), SCHEMA), options=bow.ConnectOptions(ordered=ordered)) as stream:
        assert stream.read_all().equals(SCHEMA.empty_table())
        assert stream.stats.batches == 0


def test_it_pickles(server: bow.Server) -> None:
    """A data set goes to another process whole; its stream does not."""
    dataset = pickle.loads(pickle.dumps(published(server)))
    assert len(dataset) == PARTS
    assert dataset.schema.equals(SCHEMA)
    with bow.connect(dataset) as stream:
        with pytest.raises(bow.NotPicklable):
            pickle.dumps(stream)
        assert f"{PARTS} endpoints" in repr(stream)
        assert pa.table(stream).equals(WHOLE)


def test_a_ticket_beside_it(server: bow.Server) -> None:
    """Each endpoint has its ticket: another one beside them is a mistake."""
    with pytest.raises(bow.UsageError, match="ticket"):
        bow.connect(published(server), "part 1")


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_a_data_set_on_a_device_has_one_budget(
    no_leaks: None, monkeypatch: pytest.MonkeyPatch, codec: str | None
) -> None:
    """The batches of all endpoints lie in one pool of the device, whose budget holds for them together."""
    budget = (
        16 if codec else 4
    ) << 20  # what is decompressed has a region beside it for a while, of 2 MiB at least
    monkeypatch.setattr("bowstring.memory.pool.default_budget", lambda device=None: budget)
    table = pa.table({"n": pa.array(range(100_000), pa.int64())})
    messages = messages_of(table, options={"compression": codec})
    pool = Pool(fake_device(0))
    with contextlib.ExitStack() as ends:
        servers = [ends.enter_context(PlainServer("unix:", messages)) for _ in range(6)]
        endpoints = tuple(bow.Endpoint.parse(server.uri, b"t") for server in servers)
        stream = bow.connect(
            bow.Dataset(endpoints, table.schema),
            device=fake_device(0),
            options=bow.ConnectOptions(pool=pool),
            limits=PATIENCE,
        )
        kept = [ends.enter_context(stream).read_next_batch()]
        with contextlib.nullcontext() if codec else pytest.raises(bow.OutOfBudget):
            kept.extend(stream)
        assert 2 <= len(kept) <= (6 if codec else 4)
        assert sum(batch.nbytes for batch in kept) <= pool.stats.in_use <= budget
        del kept, stream


@pytest.mark.parametrize("ordered", [True, False])
def test_statistics_are_right_while_another_thread_reads(
    server: bow.Server, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    """Whoever asks from another thread, at whatever moment, gets each batch once and all that were delivered."""
    monkeypatch.setenv("BOWSTRING_PARTITIONS", "0")  # where streams end while others go on
    reading = threading.get_ident()
    delivered, seen = 0, []

    def look() -> None:
        if threading.get_ident() == reading and not looking:
            looking.append(True)
            with concurrent.futures.ThreadPoolExecutor(1) as other:
                seen.append((delivered, other.submit(lambda: stream.stats.batches).result(10.0)))
            looking.clear()

    looking: list[bool] = []
    statistics: Callable[[EndpointStream], StreamStatistics] = vars(EndpointStream)["stats"].fget
    close = EndpointStream.close

    def stats(self: EndpointStream) -> StreamStatistics:
        look()
        return statistics(self)

    def closed(self: EndpointStream) -> None:
        close(self)
        look()

    with bow.connect(published(server), options=bow.ConnectOptions(ordered=ordered)) as stream:
        monkeypatch.setattr(EndpointStream, "stats", property(stats))
        monkeypatch.setattr(EndpointStream, "close", closed)
        for _ in stream:
            delivered += 1
        assert stream.stats.batches == PARTS * BATCHES
    assert len(seen) >= 2 * PARTS
    assert all(before <= batches <= PARTS * BATCHES for before, batches in seen), seen
    assert [batches for _, batches in seen] == sorted(batches for _, batches in seen)
