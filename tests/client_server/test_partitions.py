"""Many data sets of one server in one stream: what is shared, what each of them counts, and when it lets go."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.client.grouping import UNDER_WAY
from bowstring.errors import without_frames
from tests.client_server.conftest import PATIENCE, read, until

SCHEMA = pa.schema({"part": pa.int64(), "word": pa.dictionary(pa.int32(), pa.string())})
FEW = PATIENCE.replace(connections=4)
MAPPED = pytest.mark.parametrize("address", ["unix:", "inproc:"])


def part(number: int, batches: int = 2) -> pa.Table:
    """Return a partition whose rows, and whose dictionary, say which it is."""
    words = pa.array([f"word {number}", f"other {number}", None]).dictionary_encode()
    batch = pa.record_batch({"part": pa.array([number] * 3), "word": words}, schema=SCHEMA)
    return pa.Table.from_batches([batch] * batches, SCHEMA)


def published(
    server: bow.Server, count: int, readers: int | None = None, first: int = 0, batches: int = 2
) -> bow.Dataset:
    """Return a data set of so many partitions."""
    return bow.Dataset(
        tuple(
            server.publish(f"part {number}", part(number, batches), readers=readers)
            for number in range(first, first + count)
        ),
        SCHEMA,
    )


def rows(*numbers: int) -> list[dict[str, object]]:
    """Return the rows of some partitions."""
    return [row for number in numbers for row in part(number).to_pylist()]


def numbers_of(batches: list[bow.Batch]) -> list[int]:
    """Return which partitions batches are of."""
    return [int(batch["part"].values[0]) for batch in batches]


@pytest.mark.parametrize("ordered", [True, False])
def test_hundreds_are_kept_over_one_connection(
    serve: Callable[..., bow.Server], address: str, ordered: bool
) -> None:
    """A server that takes four connections sends hundreds of partitions, and their views are kept and true."""
    server = serve(address, limits=FEW, budget=1 << 30)
    dataset = published(server, 300)
    before = threading.active_count()
    with bow.connect(dataset, options=bow.ConnectOptions(ordered=ordered), limits=PATIENCE) as stream:
        kept = list(stream)
        assert server.stats.connections <= 1
        assert threading.active_count() <= before + 10  # of both sides
        assert stream.stats.copied == ""
    assert numbers_of(kept) == [number for number in range(300) for _ in range(2)]
    assert pa.Table.from_batches([batch.to_arrow() for batch in kept]).to_pylist() == rows(*range(300))
    del kept
    until(lambda: server.stats.connections == 0)
    assert server.stats.readers == 1


@MAPPED
def test_a_partition_lets_go_before_the_stream_ends(serve: Callable[..., bow.Server], address: str) -> None:
    """With ``readers=1`` a partition is released when its last batch was taken and let go, and none before."""
    server = serve(address)
    with bow.connect(published(server, 4, readers=1), limits=PATIENCE) as stream:
        kept = [next(stream), next(stream)]
        batch = next(stream)
        with pytest.raises(bow.DeadlineExceeded):
            server.wait_released("part 0", 0.05)
        in_use = server.pool.stats.in_use
        del kept
        server.wait_released("part 0")
        until(lambda: server.pool.stats.in_use < in_use)
        assert numbers_of([batch]) == [1]
        del batch
        with pytest.raises(bow.DeadlineExceeded):  # its second batch is still to be taken
            server.wait_released("part 1", 0.05)
        assert numbers_of(list(stream)) == [1, 2, 2, 3, 3]
        server.wait_released()


def test_sent_bytes_let_go_when_they_are_taken(serve: Callable[..., bow.Server]) -> None:
    """Where bytes are sent a partition is released when the user has its last batch, kept or not."""
    server = serve("tcp://127.0.0.1:0")
    with bow.connect(published(server, 3, readers=1), limits=PATIENCE) as stream:
        kept = [next(stream) for _ in range(3)]
        server.wait_released("part 0")
        with pytest.raises(bow.DeadlineExceeded):
            server.wait_released("part 1", 0.05)
        kept += list(stream)
        server.wait_released()
    assert numbers_of(kept) == [0, 0, 1, 1, 2, 2]


def test_an_early_close_frees_the_rest(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that stops counts for what it took whole; all else goes to the next one, while it keeps some."""
    server = serve(address)
    dataset = published(server, 80, readers=1)
    with bow.connect(dataset, limits=PATIENCE) as stream:
        kept = [next(stream) for _ in range(3)]  # all of partition 0, half of partition 1
    rest = dataclasses.replace(dataset, endpoints=dataset.endpoints[2:])

    found: list[list[dict[str, object]]] = []

    def read_rest() -> bool:
        try:
            found.append(read(rest, limits=PATIENCE).to_pylist())
        except bow.UnknownTicket:  # the server has not heard yet that the first reader stopped
            return False
        return True

    until(read_rest)
    assert found == [rows(*range(2, 80))]
    assert numbers_of(kept) == [0, 0, 1]
    del kept
    server.wait_released("part 0")
    until(lambda: server.stats.connections == 0)
    assert read(dataclasses.replace(dataset, endpoints=dataset.endpoints[1:2])).to_pylist() == rows(1)
    server.wait_released()


def test_closing_frees_what_was_sent_whole(serve: Callable[..., bow.Server]) -> None:
    """A reader that stops when everything was sent to it leaves what it has not taken to others at once."""
    server = serve("unix:")
    dataset = published(server, 4, readers=1)
    with bow.connect(dataset, limits=PATIENCE) as stream:
        kept = [next(stream)]
        until(lambda: stream.stats.regions == 4)
    rest = dataclasses.replace(dataset, endpoints=dataset.endpoints[1:])

    def is_free() -> bool:
        try:
            return read(rest, limits=PATIENCE).to_pylist() == rows(1, 2, 3)
        except bow.UnknownTicket:
            return False

    until(is_free)
    assert numbers_of(kept) == [0]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "unix:"])
def test_long_runs_of_like_batches(serve: Callable[..., bow.Server], address: str) -> None:
    """Batches that look alike, which are received many at once, stay in their partitions."""
    server = serve(address)
    endpoints = tuple(
        server.publish(f"part {number}", pa.table({"part": pa.chunked_array([[number] * 8000] * 60)}))
        for number in range(6)
    )
    dataset = bow.Dataset(endpoints, pa.schema({"part": pa.int64()}))
    with bow.connect(dataset, limits=PATIENCE) as stream:
        found = [
            (int(batch["part"].values.min()), int(batch["part"].values.max()), len(batch)) for batch in stream
        ]
    assert found == [(number, number, 8000) for number in range(6) for _ in range(60)]


def test_lists_of_strangers_are_short(
    serve: Callable[..., bow.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a network without a token a long list goes over several streams, and one that is too long is refused."""
    server = serve("tcp://127.0.0.1:0")
    for where in ("bowstring.client.grouping", "bowstring.server.session"):
        monkeypatch.setattr(f"{where}.STRANGERS_BYTES", 300)
    dataset = published(server, 20)
    assert read(dataset, limits=PATIENCE).to_pylist() == rows(*range(20))
    until(lambda: server.stats.readers > 1)
    assert server.stats.readers < 10
    monkeypatch.setattr("bowstring.client.grouping.STRANGERS_BYTES", 1 << 20)
    with (
        bow.connect(dataset, limits=PATIENCE) as stream,
        pytest.raises(bow.ProtocolError, match="too many partitions"),
    ):
        stream.read_all()


def test_a_reader_takes_little_ahead(serve: Callable[..., bow.Server]) -> None:
    """A server begins so many partitions ahead of what the user has taken, and no more."""
    server = serve("unix:", budget=1 << 30)
    with bow.connect(published(server, 2 * UNDER_WAY), limits=PATIENCE) as stream:
        for taken in (1, 5, UNDER_WAY):
            while stream.stats.batches < 2 * taken:
                next(stream)
            until(lambda taken=taken: stream.stats.regions >= min(UNDER_WAY + taken, 2 * UNDER_WAY))  # type: ignore[misc]
            assert stream.stats.regions <= UNDER_WAY + taken


@pytest.mark.parametrize("ordered", [True, False])
def test_shards_overlap_nowhere(serve: Callable[..., bow.Server], address: str, ordered: bool) -> None:
    """Shards of all partitions have each row once, whichever way they come, and together count as one reader."""
    server = serve(address)
    dataset = published(server, 10, readers=1)
    shards = [
        read(dataset, shard=(index, 3), options=bow.ConnectOptions(ordered=ordered), limits=PATIENCE)
        for index in range(3)
    ]
    whole = pa.concat_tables(shards).to_pylist()
    assert sorted(map(str, whole)) == sorted(map(str, rows(*range(10))))
    server.wait_released()


def test_shards_are_the_same_with_and_without_partitions(
    serve: Callable[..., bow.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard has the same rows over one stream and over a stream for each endpoint, so that both can be mixed."""
    server = serve("unix:")
    dataset = published(server, 5)
    together = read(dataset, shard=(1, 4))
    monkeypatch.setenv("BOWSTRING_PARTITIONS", "0")
    assert read(dataset, shard=(1, 4)).equals(together)


def test_columns_of_all_partitions(serve: Callable[..., bow.Server], address: str) -> None:
    """Columns are chosen of every partition, and their dictionaries with them."""
    table = read(published(serve(address), 3), columns=["word"], limits=PATIENCE)
    assert table.to_pylist() == [{"word": row["word"]} for row in rows(0, 1, 2)]


def test_partitions_of_two_servers_alternate(serve: Callable[..., bow.Server]) -> None:
    """In order, partitions of several processes come in the order of the data set, over a connection to each."""
    servers = [serve(address) for address in ("unix:", "tcp://127.0.0.1:0", "inproc:")]
    datasets = [published(server, 30, first=1000 * index) for index, server in enumerate(servers)]
    endpoints = tuple(each for both in zip(*datasets, strict=True) for each in both)
    with bow.connect(bow.Dataset(endpoints, SCHEMA), limits=PATIENCE) as stream:
        kept = list(stream)
        assert all(server.stats.connections <= 1 for server in servers)
    expected = [1000 * index + number for number in range(30) for index in range(3) for _ in range(2)]
    assert numbers_of(kept) == expected
    with bow.connect(
        bow.Dataset(endpoints, SCHEMA), options=bow.ConnectOptions(ordered=False), limits=PATIENCE
    ) as stream:
        found = numbers_of(list(stream))
    for index in range(3):  # those of one server come one after the other
        assert [number for number in found if number // 1000 == index] == [
            number for number in expected if number // 1000 == index
        ]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("lazy", [True, False])
def test_awaited_partitions(serve: Callable[..., bow.Server], ordered: bool, lazy: bool) -> None:
    """Programs on asyncio get the same batches, also from servers whose endpoints have to come one by one."""
    servers = [serve(address, budget=1 << 30) for address in ("unix:", "tcp://127.0.0.1:0")]
    datasets = [published(server, 70, first=1000 * index) for index, server in enumerate(servers)]
    endpoints = [each for both in zip(*datasets, strict=True) for each in both]
    numbers = [1000 * index + number for number in range(70) for index in range(2)]
    if lazy:
        endpoints.append(servers[0].publish("lazy", lambda: part(5000), schema=SCHEMA))
        numbers.append(5000)
    dataset = bow.Dataset(tuple(endpoints), SCHEMA)

    async def found() -> list[int]:
        async with bow.connect_async(
            dataset, options=bow.ConnectOptions(ordered=ordered), limits=PATIENCE
        ) as stream:
            return numbers_of([batch async for batch in stream])

    expected = [number for number in numbers for _ in range(2)]
    came = asyncio.run(found())
    assert (came if ordered else sorted(came)) == (expected if ordered else sorted(expected))
    until(lambda: servers[1].stats.readers == 1)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "unix:"])
def test_several_connections(serve: Callable[..., bow.Server], address: str, ordered: bool) -> None:
    """Where bytes are sent so many connections share the partitions; where memory is handed over there is one."""
    server = serve(address)
    with bow.connect(
        published(server, 20), options=bow.ConnectOptions(connections=3, ordered=ordered), limits=PATIENCE
    ) as stream:
        found = numbers_of(list(stream))
    expected = [number for number in range(20) for _ in range(2)]
    assert (found if ordered else sorted(found)) == expected
    until(lambda: server.stats.connections == 0)
    assert server.stats.readers == (3 if address.startswith("tcp:") else 1)


@pytest.mark.parametrize("connections", [0, -1, 65, True, 1.0, "2"])
def test_what_is_no_number_of_connections(connections: object) -> None:
    """A number of connections that means nothing is an error that says what is expected."""
    with pytest.raises(bow.UsageError, match="1 to 64"):
        bow.connect(bow.Dataset((), SCHEMA), options=bow.ConnectOptions(connections=connections))  # type: ignore[arg-type]


def test_one_endpoint_has_one_connection(serve: Callable[..., bow.Server]) -> None:
    """More than one connection is for data sets of many endpoints, and the error says what else there is."""
    endpoint = serve("unix:").publish("t", part(0))
    with pytest.raises(bow.UsageError, match="shard"):
        bow.connect(endpoint, options=bow.ConnectOptions(connections=2))


@pytest.mark.parametrize("of", ["the reader", "the server"])
def test_peers_that_know_no_partitions(
    serve: Callable[..., bow.Server], address: str, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where either side knows no partitions each endpoint has a stream of its own, and the rows are the same."""
    server = serve(address)
    monkeypatch.setenv("BOWSTRING_PARTITIONS", "0" if of == "the server" else "1")
    dataset = published(server, 6)
    assert all(("partitions=1" in str(each)) == (of == "the reader") for each in dataset)
    monkeypatch.setenv("BOWSTRING_PARTITIONS", "0" if of == "the reader" else "1")
    assert read(dataset, limits=PATIENCE).to_pylist() == rows(*range(6))
    until(lambda: server.stats.readers == 6)


@pytest.mark.parametrize("ordered", [True, False])
def test_what_is_made_lazily_comes_by_itself(
    serve: Callable[..., bow.Server], address: str, ordered: bool
) -> None:
    """A server that makes some of the partitions lazily sends each over its own stream; they come all the same."""
    server = serve(address)
    first, *others = published(server, 4).endpoints
    lazy = server.publish("lazy", lambda: part(9), schema=SCHEMA)
    table = read(
        bow.Dataset((first, lazy, *others), SCHEMA),
        options=bow.ConnectOptions(ordered=ordered),
        limits=PATIENCE,
    )
    expected = rows(0, 9, 1, 2, 3)
    assert (table.to_pylist() == expected) or not ordered
    assert sorted(map(str, table.to_pylist())) == sorted(map(str, expected))


def test_what_is_republished_meanwhile_is_not_seen(serve: Callable[..., bow.Server]) -> None:
    """A reader has the versions that were there when it was let in, whatever takes their place."""
    server = serve("unix:", budget=1 << 30)
    dataset = published(server, 2 * UNDER_WAY)
    with bow.connect(dataset, limits=PATIENCE) as stream:
        batches = [next(stream)]
        for number in (1, 2 * UNDER_WAY - 1):
            server.publish(f"part {number}", part(1000), replace=True)
        batches += stream
    assert numbers_of(batches) == [number for number in range(2 * UNDER_WAY) for _ in range(2)]
    new = read(dataset, limits=PATIENCE)["part"].unique().to_pylist()
    assert new == [0, 1000, *range(2, 2 * UNDER_WAY - 1)]


def test_the_same_endpoint_twice(serve: Callable[..., bow.Server], address: str) -> None:
    """A data set may name an endpoint more than once: it comes as often."""
    first, second = published(serve(address), 2).endpoints
    table = read(bow.Dataset((first, second, first), SCHEMA), limits=PATIENCE)
    assert table.to_pylist() == rows(0, 1, 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_empty_partitions(serve: Callable[..., bow.Server], address: str, ordered: bool) -> None:
    """Partitions without batches are read, and count, wherever they stand; also where there is nothing else."""
    server = serve(address)
    counts = [0, 2, 0, 0, 1, 0]
    endpoints = tuple(
        server.publish(f"part {number}", part(number, count), readers=1)
        for number, count in enumerate(counts)
    )
    with bow.connect(
        bow.Dataset(endpoints, SCHEMA), options=bow.ConnectOptions(ordered=ordered), limits=PATIENCE
    ) as stream:
        assert numbers_of(list(stream)) == [1, 1, 4]
    server.wait_released()
    empty = [server.publish(f"none {number}", part(0, 0)) for number in range(3)]
    assert (
        read(
            bow.Dataset(tuple(empty), SCHEMA), options=bow.ConnectOptions(ordered=ordered), limits=PATIENCE
        ).num_rows
        == 0
    )


@pytest.mark.parametrize("taken", [0, 3, 2 * UNDER_WAY + 1])
def test_a_server_that_closes_in_the_middle(
    serve: Callable[..., bow.Server], address: str, taken: int
) -> None:
    """The error says in which partition the stream broke; what came before stays true."""
    server = serve(address, budget=1 << 30)
    kept: list[bow.Batch] = []
    with bow.connect(published(server, 3 * UNDER_WAY), limits=PATIENCE) as stream:
        kept.append(next(stream))
        while len(kept) < taken:
            kept.append(next(stream))
        server.close()
        error: bow.BowstringError | None = None
        try:
            kept.extend(stream)
        except bow.BowstringError as raised:
            error = without_frames(raised)
    assert isinstance(error, bow.BrokenError)
    assert (error.where or "").partition(",")[0] == f"partition {len(kept) // 2}"
    assert numbers_of(kept) == [index // 2 for index in range(len(kept))]


def test_views_that_may_be_written(serve: Callable[..., bow.Server]) -> None:
    """With ``writable=True`` what is written in one partition is seen in no other and by no other reader."""
    dataset = published(serve("unix:"), 3)
    with bow.connect(dataset, writable=True, limits=PATIENCE) as stream:
        for batch in stream:
            batch["part"].values[:] = 77
    assert read(dataset).to_pylist() == rows(0, 1, 2)


def test_copies_of_all_partitions(serve: Callable[..., bow.Server], address: str) -> None:
    """With ``mode="copy"`` memory of each partition is free as soon as its last batch was taken."""
    server = serve(address)
    with bow.connect(published(server, 3, readers=1), mode="copy", limits=PATIENCE) as stream:
        kept = [next(stream), next(stream)]
        server.wait_released("part 0")
        kept += stream
    assert numbers_of(kept) == [0, 0, 1, 1, 2, 2]
    server.wait_released()
