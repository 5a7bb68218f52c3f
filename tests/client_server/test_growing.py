"""Data sets that grow: appends, readers that follow them, positions, and how a version ends."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool
from tests.client_server.conftest import ADDRESSES, PATIENCE, read, until
from tests.transport.certified import authority, serving
from tests.ucx import UCX

TOKEN = "0123456789abcdef"


def table_of(*values: int) -> pa.Table:
    """Return a table of a number, its text, and a dictionary of such."""
    texts = pa.array([str(value) for value in values], pa.string())
    return pa.table({"n": pa.array(values, pa.int64()), "s": texts, "d": texts.dictionary_encode()})


def values_of(batches: Any) -> list[list[int]]:
    """Return the numbers of each batch; its texts must say the same."""
    found = []
    for batch in batches:
        columns = batch.to_arrow().to_pydict()
        assert columns["s"] == columns["d"] == [str(value) for value in columns["n"]]
        found.append(columns["n"])
    return found


@pytest.fixture(
    params=[
        *(pytest.param(each, id=each.partition(":")[0]) for each in (*ADDRESSES, "tls://127.0.0.1:0")),
        UCX,
    ]
)
def growing(
    request: pytest.FixtureRequest, serve: Callable[..., bow.Server], monkeypatch: pytest.MonkeyPatch
) -> bow.Server:
    """Return a server on each transport, which may be asked by name, and whose certificate readers trust."""
    monkeypatch.setenv("SSL_CERT_FILE", authority().path)
    tls = serving() if request.param.startswith("tls:") else None
    return serve(request.param, token=TOKEN, tls=tls)


def test_followers_get_what_is_appended(growing: bow.Server) -> None:
    """A follower has each batch once, in order, whenever it comes, and the end that `finish` makes."""
    found: dict[int, list[list[int]]] = {}

    def follow(number: int) -> None:
        with bow.connect(growing, "t", follow=True) as stream:
            assert stream.num_rows is None
            assert stream.num_batches is None
            found[number] = values_of(stream)

    threads, expected = [], []
    for number in range(20):
        expected.append([number, number + 1])
        growing.append("t", table_of(*expected[-1]))
        threads.append(threading.Thread(target=follow, args=(number,)))
        threads[-1].start()
    end = growing.finish("t")
    assert growing.finish("t") == end
    for thread in threads:
        thread.join(30)
    assert found == dict.fromkeys(range(20), expected)
    with pytest.raises(bow.UsageError, match="finished"):
        growing.append("t", table_of(1))


def test_a_plain_reader_has_what_was_there(growing: bow.Server) -> None:
    """What is appended once a reader was let in is not in its stream; sizes and shards are of what was there."""
    growing.publish("t", table_of(0, 1, 2))
    with bow.connect(growing, "t") as stream:
        growing.append("t", table_of(3))
        assert stream.num_rows == 3
        assert values_of(stream) == [[0, 1, 2]]
    with bow.connect(growing, "t") as stream:
        assert (stream.num_rows, stream.num_batches) == (4, 2)
        assert values_of(stream) == [[0, 1, 2], [3]]
    [info] = bow.list_datasets(growing.address, token=TOKEN)
    assert info.num_rows == 4
    parts = [read(growing.endpoints["t"], shard=(index, 3)) for index in range(3)]
    assert pa.concat_tables(parts)["n"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("columns", [None, ["d", "n"], ["s"]])
@pytest.mark.parametrize("follow", [False, True])
def test_every_position_goes_on_where_it_was(
    growing: bow.Server, columns: list[str] | None, follow: bool
) -> None:
    """From each position of a stream another one has exactly the rest, dictionaries included."""
    pieces = [(0,), (0, 1), (1, 0), (0, 1, 2), (5,), (5, 6), ()]
    positions = [growing.append("t", table_of(*each)) for each in pieces]
    growing.finish("t")
    names = columns or ["n", "s", "d"]
    whole = [table_of(*each).select(names).to_pydict() for each in pieces]
    with bow.connect(growing, "t", columns=columns) as stream:
        seen = [stream.position, *(stream.position for _ in stream)]
    count = stream.stats.batches
    assert seen[-1] == positions[-1]
    assert set(positions) <= set(seen)
    kept = [each for each in whole if each[names[0]]] if count < len(pieces) else whole
    for index, position in enumerate(seen):
        assert position is not None
        since = str(position) if index % 2 else pickle.loads(pickle.dumps(position))
        with bow.connect(growing, "t", columns=columns, since=since, follow=follow) as stream:
            assert stream.position == position
            assert [batch.to_arrow().to_pydict() for batch in stream] == kept[index:]
            assert stream.position == seen[-1]


@pytest.mark.parametrize(
    "text", ["", "x", "0123456789abcdef", "0123456789abcdef:-1", "0123456789abcdeg:1", 7, None]
)
def test_what_is_no_position(text: Any) -> None:
    """Anything but the text of a position is refused."""
    with pytest.raises(bow.UsageError, match="not a position"):
        bow.Position.parse(text)


def test_positions_of_other_versions(growing: bow.Server, serve: Callable[..., bow.Server]) -> None:
    """A position belongs to one version: neither the next one of the name, nor that of another server, takes it."""
    begin = growing.append("t", table_of(1))
    endpoint = growing.endpoints["t"]
    growing.publish("t", table_of(2), replace=True)
    for follow in (False, True):
        with pytest.raises(bow.DatasetReplaced):
            bow.connect(endpoint, since=begin, follow=follow)
    end = growing.append("t", table_of(3))
    growing.withdraw("t")
    growing.append("t", table_of(1))
    with pytest.raises(bow.DatasetReplaced):
        bow.connect(endpoint, since=end)
    another = serve(token=TOKEN)
    another.append("t", table_of(1))
    with pytest.raises(bow.DatasetReplaced):
        bow.connect(another, "t", since=begin)
    with pytest.raises(bow.UnknownTicket):
        bow.connect(another.address, "u", since=begin, token=TOKEN)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda server: server.publish("t", table_of(9), replace=True), bow.DatasetReplaced),
        (lambda server: server.withdraw("t"), bow.DatasetWithdrawn),
        (lambda server: server.close(), bow.BrokenError),
    ],
    ids=["replaced", "withdrawn", "closed"],
)
def test_no_other_end(growing: bow.Server, end: Callable[[bow.Server], object], expected: type) -> None:
    """What ends a version without `finish` is an error of its own, behind all that was appended."""
    growing.append("t", table_of(1))
    with bow.connect(growing, "t", follow=True) as stream:
        assert values_of([stream.read_next_batch()]) == [[1]]
        if expected is not bow.BrokenError:  # a server that closes does not send what it has
            growing.append("t", table_of(2))
        end(growing)
        if expected is not bow.BrokenError:
            assert values_of([stream.read_next_batch()]) == [[2]]
        with pytest.raises(expected):
            stream.read_next_batch()
        with pytest.raises(expected):
            stream.read_all()


def test_a_time_that_is_over_withdraws(serve: Callable[..., bow.Server]) -> None:
    """An append does not renew `ttl`; a follower hears that the data set was withdrawn."""
    growing = serve()
    growing.publish("t", table_of(1), ttl=2.0)
    ended = threading.Event()

    def append() -> None:
        while not ended.wait(0.02):
            growing.append("t", table_of(2))

    thread = threading.Thread(target=append)
    with bow.connect(growing, "t", follow=True) as stream:
        thread.start()
        try:
            with pytest.raises(bow.DatasetWithdrawn):
                assert len([*zip(range(1000), stream, strict=False)]) < 1000
        finally:
            ended.set()
            thread.join()


def test_a_killed_server_is_no_end(forked: None) -> None:
    """A follower of a server that dies has an error, also where nothing was left to read."""
    code = """
import sys, bowstring as bow
server = bow.Server()
server.append("t", {"a": [1]})
print(str(server.endpoints["t"]), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            with bow.connect(process.stdout.readline().strip(), follow=True) as stream:
                assert stream.read_next_batch()["a"].to_pylist() == [1]
                process.kill()
                with pytest.raises(bow.BrokenError):
                    stream.read_next_batch()
        finally:
            process.kill()


def test_a_wait_that_is_too_long(growing: bow.Server) -> None:
    """After `timeout` a call gives up; the stream stays usable, and both ends stay there meanwhile."""
    growing.append("t", table_of(1))
    # Longer than a reader may leave a question of the server unanswered.
    with bow.connect(growing, "t", follow=True, timeout=0.3) as stream:
        assert values_of([stream.read_next_batch()]) == [[1]]
        position = stream.position
        for number in range(3):
            with pytest.raises(bow.DeadlineExceeded, match="in time"):
                stream.read_next_batch()
            assert stream.position == position
            position = growing.append("t", table_of(number))
            batch = None
            while batch is None:
                try:
                    batch = stream.read_next_batch()
                except bow.DeadlineExceeded:
                    continue
            assert values_of([batch]) == [[number]]
            assert stream.position == position


def test_idle_followers_stay(serve: Callable[..., bow.Server], address: str) -> None:
    """One that waits for longer than any lease, and one that nobody reads meanwhile, are both there still."""
    limits = PATIENCE.replace(heartbeat=0.05, lease_timeout=0.4, reply_timeout=0.4)
    server = serve(address, token=TOKEN, limits=limits)
    server.append("t", table_of(1))
    with (
        bow.connect(server, "t", follow=True, timeout=1.5, limits=limits) as waits,
        bow.connect(server, "t", follow=True, limits=limits) as idle,
    ):
        assert values_of([waits.read_next_batch()]) == [[1]]
        with pytest.raises(bow.DeadlineExceeded, match="in time"):
            waits.read_next_batch()
        server.append("t", table_of(2))
        server.finish("t")
        assert values_of(waits) == [[2]]
        assert values_of(idle) == [[1], [2]]


def test_a_slow_follower_holds_nothing_up(serve: Callable[..., bow.Server], address: str) -> None:
    """Appends return whatever a follower has read; it is sent what it has credit for, and loses nothing."""
    server = serve(address, token=TOKEN)
    server.append("t", {"n": np.arange(1000)})
    limits = PATIENCE.replace(window_bytes=64 << 10)
    with bow.connect(server, "t", follow=True, limits=limits) as stream:
        for number in range(300):
            server.append("t", {"n": np.arange(1000) + number})
        server.finish("t")
        sums = [int(batch["n"].to_numpy().sum()) for batch in stream]
    assert sums == [499_500, *(499_500 + 1000 * number for number in range(300))]


def test_an_append_lands_whole_or_not_at_all(serve: Callable[..., bow.Server]) -> None:
    """What is refused, and what the pool has no room for, leaves no batch behind."""
    server = serve(pool=Pool(budget=8 << 20))
    begun = server.append("t", table_of(1, 2))
    with bow.connect(server, "t", follow=True) as stream:
        stream.read_next_batch()
        for wrong in (
            table_of(3).select(["n", "s"]),
            table_of(3).rename_columns(["n", "s", "e"]),
            table_of(3).replace_schema_metadata({"unit": "m"}),
        ):
            before = server.pool.stats
            with pytest.raises(bow.UsageError, match="another schema"):
                server.append("t", wrong)
            assert server.pool.stats == before
        with pytest.raises(bow.UsageError, match="lazily"):
            server.append("t", (batch for batch in table_of(3).to_batches()))
        with pytest.raises(bow.UsageError, match="lazily"):
            server.append("t", lambda: table_of(3))
        large = pa.concat_tables([table_of(3), table_of(*range(1 << 19))])
        for _ in range(3):
            with pytest.raises(bow.OutOfBudget):
                server.append("t", large)
        assert server.append("t", table_of()) in (begun, server.finish("t"))
        assert values_of(stream) in ([], [[]])
    with pytest.raises(bow.OutOfBudget):
        server.append("u", large)
    assert "u" not in server.endpoints


def test_what_does_not_grow(serve: Callable[..., bow.Server]) -> None:
    """Lazy data, two connections, shards and decoded streams are refused with growth, by name."""
    server = serve()
    server.publish("lazy", lambda: table_of(1))
    server.publish("separate", table_of(1), separate=True)
    server.publish("plain", table_of(1))
    server.publish("lent", table_of(1), share="in_place")
    for name, why in (
        ("lazy", "made as it is read"),
        ("separate", "separate=True"),
        ("lent", "lent in place"),
    ):
        with pytest.raises(bow.UsageError, match=why):
            server.append(name, table_of(1))
        with pytest.raises(bow.UsageError, match=why):
            server.finish(name)
        with pytest.raises(bow.UsageError, match=why):
            bow.connect(server, name, follow=True)
    ways: list[dict[str, Any]] = [{"shard": (0, 2)}, {"options": bow.ConnectOptions(decode="device")}]
    for way, name in zip(ways, ("shard", "decode"), strict=True):
        with pytest.raises(bow.UsageError, match=f"\\({name}="):
            bow.connect(server, "plain", follow=True, **way)
    with pytest.raises(bow.UnknownTicket):
        server.finish("nothing")
    with bow.connect(server, "lazy") as stream:
        assert stream.position is None
    with bow.connect(server, "plain", shard=(0, 2)) as stream:
        assert stream.position is None


def test_small_appends_share_memory(serve: Callable[..., bow.Server]) -> None:
    """A thousand small batches take a few regions, and none changes what a reader has of another."""
    server = serve()
    with bow.connect(server.publish("t", {"n": np.arange(10)}), follow=True) as stream:
        for number in range(1000):
            server.append("t", {"n": np.arange(10) + number})
        server.finish("t")
        kept = list(stream)
    assert server.pool.stats.in_use <= 8 << 20
    expected = [np.arange(10), *(np.arange(10) + number for number in range(1000))]
    assert all((batch["n"].to_numpy() == each).all() for batch, each in zip(kept, expected, strict=True))
    server.withdraw("t")
    kept.clear()


def test_batches_that_are_written_by_their_reader(growing: bow.Server) -> None:
    """A follower that writes into its batches sees what is appended; nobody else sees what it writes."""
    growing.append("t", {"n": np.arange(3)})
    with bow.connect(growing, "t", follow=True, writable=True) as stream:
        for number in range(5):
            numbers = stream.read_next_batch()["n"].to_numpy()
            assert numbers.tolist() == [number, number + 1, number + 2]
            numbers[:] = -1
            growing.append("t", {"n": np.arange(3) + number + 1})
    growing.finish("t")
    assert read(growing.endpoints["t"])["n"].to_pylist()[:6] == [0, 1, 2, 1, 2, 3]


def test_readers_are_counted_of_the_whole(growing: bow.Server) -> None:
    """With `readers=n` the data are freed after `finish` and n reads from the beginning, and not before."""
    growing.publish("t", table_of(1), readers=2)
    endpoint = growing.endpoints["t"]
    read(endpoint)  # of which more comes: it counts no more
    middle = growing.append("t", table_of(2))
    with bow.connect(endpoint, follow=True) as stream:
        assert values_of([stream.read_next_batch()]) == [[1]]
        for _ in range(3):
            read(endpoint)
        read(endpoint, since=middle)
        growing.append("t", table_of(3))
        growing.finish("t")
        assert values_of(stream) == [[2], [3]]
    read(endpoint, since=middle)
    assert "t" in growing.endpoints
    read(endpoint)
    growing.wait_released("t")
    assert "t" not in growing.endpoints
    with pytest.raises(bow.UnknownTicket):
        bow.connect(endpoint)


def test_a_follower_too_many(growing: bow.Server) -> None:
    """One that is refused because the data set has all its readers takes the place of nobody later."""
    endpoint = growing.publish("t", table_of(1), readers=1)
    with bow.connect(endpoint, follow=True):
        with pytest.raises(bow.UnknownTicket, match="all its readers"):
            bow.connect(endpoint, follow=True)
        # Who waits is no reader.
        assert str(bow.wait_for(growing, "t", timeout=20.0)).endswith(":1")
    until(lambda: bow.list_datasets(growing.address, token=TOKEN)[0].readers == 0)
    growing.append("t", table_of(2))
    growing.finish("t")
    assert read(endpoint)["n"].to_pylist() == [1, 2]
    growing.wait_released("t")


def test_waiting_takes_nobody_s_place(serve: Callable[..., bow.Server]) -> None:
    """`wait_for` finds a data set that is read, and lazy data are not made for it."""
    server = serve()
    made = []

    def make() -> Any:
        made.append(1)
        return iter(table_of(1).to_batches())

    server.publish("lazy", make)
    begun = len(made)
    with pytest.raises(bow.Unsupported):
        bow.wait_for(server, "lazy", timeout=20.0)
    assert len(made) == begun
    with bow.connect(server.publish("t", table_of(1), readers=1)) as stream:
        position = bow.wait_for(server, "t", timeout=20.0)
        assert values_of(stream) == [[1]]
        assert stream.position == position


def test_appends_of_several_threads(growing: bow.Server) -> None:
    """Each append is together; positions say in which order they came, and a follower has them in that."""
    positions: dict[bow.Position, int] = {}

    def append(first: int) -> None:
        for number in range(first, first + 20):
            pieces = pa.concat_tables([table_of(number), table_of(number + 1000)])
            positions[growing.append("t", pieces.to_batches())] = number

    growing.append("t", table_of(-1))
    threads = [threading.Thread(target=append, args=(100 * index,)) for index in range(4)]
    with bow.connect(growing, "t", follow=True) as stream:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        growing.finish("t")
        first = stream.read_next_batch()
        assert values_of([first]) == [[-1]]
        for _ in range(80):
            [[one], [other]] = values_of([stream.read_next_batch(), stream.read_next_batch()])
            assert stream.position is not None
            assert (one, other) == (positions[stream.position], positions[stream.position] + 1000)
        assert values_of(stream) == []


def test_a_stream_that_threads_share(growing: bow.Server) -> None:
    """A thread that waits in vain, while another one gets a batch, leaves the position where the stream is."""
    end = growing.append("t", table_of(1))
    with bow.connect(growing, "t", follow=True, timeout=0.2) as stream:
        assert values_of([stream.read_next_batch()]) == [[1]]
        found: list[list[int]] = []
        for number in range(5):

            def take() -> None:
                with contextlib.suppress(bow.DeadlineExceeded):
                    found.extend(values_of([stream.read_next_batch()]))

            threads = [threading.Thread(target=take) for _ in range(3)]
            for thread in threads:
                thread.start()
            end = growing.append("t", table_of(number))
            for thread in threads:
                thread.join()
        for _ in range(100):  # where the machine was busy
            if len(found) < 5:
                take()
        assert sorted(found) == [[number] for number in range(5)]
        assert stream.position == end


def test_appends_while_names_change(serve: Callable[..., bow.Server]) -> None:
    """An append that meets a replacement goes to what the name stands for then, and is never refused."""
    server = serve()
    ended = threading.Event()
    failures: list[BaseException] = []

    def change() -> None:
        while not ended.is_set():
            server.publish("t", table_of(1), replace=True)
            with contextlib.suppress(bow.UnknownName):
                server.withdraw("t")

    def append() -> None:
        try:
            for _ in range(200):
                server.append("t", table_of(2))
        except bow.BowstringError as error:
            failures.append(error)

    changing = threading.Thread(target=change)
    appending = [threading.Thread(target=append) for _ in range(2)]
    for thread in (changing, *appending):
        thread.start()
    for thread in appending:
        thread.join()
    ended.set()
    changing.join()
    assert not failures


def test_many_regions_in_one_stream(serve: Callable[..., bow.Server]) -> None:
    """A follower lets go of regions: it reads more of them than one stream may announce."""
    server = serve(pool=Pool(budget=64 << 20))
    limits = PATIENCE.replace(regions=40)
    count = 1 << 17
    server.publish("t", {"n": np.zeros(count)})
    with bow.connect(server, "t", follow=True, limits=limits) as stream:
        for number in range(60):
            assert stream.read_next_batch()["n"].to_numpy()[-1] == number
            server.append("t", {"n": np.full(count, number + 1.0)}) if number < 45 else server.append(
                "t", {"n": np.full(1, number + 1.0)}
            )
        server.finish("t")


def test_asyncio_follows(growing: bow.Server) -> None:
    """``async for`` goes on as the data set grows; a wait that is over or cancelled loses nothing."""

    async def follow() -> None:
        async with bow.connect_async(growing, "t", follow=True, timeout=0.2) as stream:
            assert values_of([await anext(stream)]) == [[0]]
            position = stream.position
            with pytest.raises(bow.DeadlineExceeded, match="in time"):
                await anext(stream)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(stream)
            assert stream.position == position
        async with bow.connect_async(growing, "t", follow=True, since=position) as stream:
            found = []

            async def take() -> None:
                found.extend(values_of([batch async for batch in stream]))

            task = asyncio.create_task(take())
            for number in range(10):
                end = await growing.append_async("t", table_of(number), retain={"batches": 100})
            with pytest.raises(bow.UsageError, match="schema"):
                await growing.append_async("t", {"n": [1]})
            assert await asyncio.to_thread(growing.finish, "t") == end
            await task
            assert found == [[number] for number in range(10)]

    growing.append("t", table_of(0))
    asyncio.run(follow())


def test_followers_have_no_thread_each(serve: Callable[..., bow.Server]) -> None:
    """Fifty idle followers are served by a few threads."""
    server = serve()
    server.append("t", table_of(0))
    streams = [bow.connect(server, "t", follow=True) for _ in range(50)]
    try:
        assert all(values_of([stream.read_next_batch()]) == [[0]] for stream in streams)
        until(lambda: threading.active_count() < 30)
        server.append("t", table_of(1))
        assert all(values_of([stream.read_next_batch()]) == [[1]] for stream in streams)
    finally:
        for stream in streams:
            stream.close()


@pytest.mark.parametrize("columns", [None, ["d", "s", "n"]])
def test_old_batches_are_let_go(growing: bow.Server, columns: list[str] | None) -> None:
    """With `retain` the last batches are kept, with their dictionaries; what is before them is an error."""
    positions = [growing.append("t", table_of(0, 1), retain={"batches": 3})]
    with bow.connect(growing, "t", follow=True) as stream:
        first = stream.read_next_batch()
        positions += [growing.append("t", table_of(number, 0)) for number in range(5)]
        growing.finish("t")
        for index, position in enumerate(positions):
            if index < 2:
                with pytest.raises(bow.PositionExpired):
                    bow.connect(growing, "t", since=position)
                continue
            with bow.connect(growing, "t", since=position, columns=columns) as since:
                assert values_of(since) == [[number, 0] for number in range(index, 5)]
        with bow.connect(growing, "t", columns=columns) as plain:
            assert values_of(plain) == [[2, 0], [3, 0], [4, 0]]
            assert plain.position == positions[-1]
        assert values_of([first]) == [[0, 1]]


def test_an_overtaken_follower(serve: Callable[..., bow.Server]) -> None:
    """A follower that reads too slowly gets what it was sent, and then `PositionExpired`; its batches stay true."""
    server = serve()
    end = server.append("t", table_of(0), retain={"batches": 5})
    with bow.connect(server, "t", follow=True, limits=PATIENCE.replace(window_bytes=16 << 10)) as stream:
        kept = [stream.read_next_batch()]
        for number in range(1, 100):
            end = server.append("t", table_of(number))
        with pytest.raises(bow.PositionExpired):
            kept += stream
        assert values_of(kept) == [[number] for number in range(len(kept))]
        assert str(stream.position) < str(end) or len(kept) < 100
    kept.clear()


def test_memory_is_kept_by_bytes_and_by_time(serve: Callable[..., bow.Server]) -> None:
    """Bounds of bytes and of seconds hold, the latter without another append; the pool has room for ever."""
    server = serve(pool=Pool(budget=16 << 20))
    numbers = np.arange(1 << 17)  # 1 MiB
    server.publish("bytes", {"n": numbers}, retain={"bytes": 3 << 20})
    for _ in range(40):
        server.append("bytes", {"n": numbers})
    with bow.connect(server, "bytes") as stream:
        assert stream.num_batches == 3
        assert str(stream.position).endswith(":38")
    server.append("seconds", {"n": numbers}, retain={"seconds": 0.2, "batches": 10})
    until(lambda: {each.name: each.num_rows for each in bow.list_datasets(server.address)}["seconds"] == 0)
    assert read(server.endpoints["seconds"]).num_rows == 0
    # A shorter time holds, too, for what was to be kept for longer.
    server.append("seconds", {"n": numbers}, retain={"seconds": 3600})
    for _ in range(20):  # behind which the loop waits for the end of the hour
        assert read(server.endpoints["seconds"]).num_rows == len(numbers)
    server.append("seconds", {"n": numbers}, retain={"seconds": 0.2})
    until(lambda: {each.name: each.num_rows for each in bow.list_datasets(server.address)}["seconds"] == 0)


def test_all_was_read_before_it_was_let_go(serve: Callable[..., bow.Server]) -> None:
    """A reader from a position on comes to its end where what is behind that is let go of meanwhile."""
    server = serve()
    begin = server.append("t", table_of(-1))
    server.append("t", pa.concat_tables([table_of(number) for number in range(100)]))
    with bow.connect(server, "t", since=begin, limits=PATIENCE.replace(window_bytes=16 << 10)) as stream:
        found = [stream.read_next_batch() for _ in range(80)]
        # By now the server has taken all of them from the list, and lacks credit for the last ones.
        for number in range(3):
            server.append("t", table_of(number), retain={"batches": 1})
        found += stream
    assert values_of(found) == [[number] for number in range(100)]


@pytest.mark.parametrize(
    "retain",
    [{}, {"rows": 1}, {"batches": 0.5}, {"bytes": True}, {"seconds": float("inf")}, 7, {"batches": "1"}],
)
def test_what_keeps_nothing(serve: Callable[..., bow.Server], retain: Any) -> None:
    """Bounds that are none, or beside `readers`, are refused, and nothing is published."""
    server = serve()
    with pytest.raises(bow.UsageError, match="retain says"):
        server.append("t", table_of(1), retain=retain)
    with pytest.raises(bow.UsageError, match="retain says"):
        server.publish("t", table_of(1), retain=retain)
    with pytest.raises(bow.UsageError, match="beside readers="):
        server.publish("t", table_of(1), retain={"batches": 1}, readers=1)
    assert not server.endpoints


@pytest.mark.parametrize("is_async", [False, True])
def test_waiting_for_something_new(growing: bow.Server, is_async: bool) -> None:
    """`wait_for` returns once a name is there, has more, was trimmed or replaced; else it gives up in time."""

    def wait(newer_than: bow.Position | None, timeout: float = 20.0) -> bow.Position:
        options: dict[str, Any] = {"newer_than": newer_than, "timeout": timeout}
        if is_async:
            return asyncio.run(bow.wait_for_async(growing, "t", **options))
        return bow.wait_for(growing, "t", **options)

    def wait_while(newer_than: bow.Position | None, act: Callable[[], Any]) -> Any:
        found: list[bow.Position] = []
        thread = threading.Thread(target=lambda: found.append(wait(newer_than)))
        thread.start()
        made = act()
        thread.join(30)
        assert not isinstance(made, bow.Position) or found == [made]
        return found[0]

    with pytest.raises(bow.DeadlineExceeded):
        wait(None, 0.1)
    position = wait_while(None, lambda: growing.append("t", table_of(1)))
    assert wait(None) == position
    with pytest.raises(bow.DeadlineExceeded):
        wait(position, 0.1)
    position = wait_while(position, lambda: growing.append("t", table_of(2)))
    old = position
    for number in range(3):
        position = growing.append("t", table_of(number), retain={"batches": 1})
    assert wait(old) == position
    growing.finish("t")
    with pytest.raises(bow.DeadlineExceeded):
        wait(position, 0.2)
    position = wait_while(position, lambda: growing.publish("t", table_of(3), replace=True))
    assert str(position).endswith(":1")
    growing.withdraw("t")
    with pytest.raises(bow.DeadlineExceeded):
        wait(position, 0.2)


@pytest.mark.parametrize("kind", ["generator", "reader", "callable", "table"])
def test_what_is_read_into_memory(growing: bow.Server, kind: str) -> None:
    """With `resident` data that are made lazily are read once, for all readers, and are finished."""
    tables = [table_of(number, 0) for number in range(10)]
    kinds: dict[str, Callable[[], Any]] = {
        "generator": lambda: (batch for table in tables for batch in table.to_batches()),
        "reader": lambda: pa.concat_tables(tables).to_reader(),
        "callable": lambda: lambda: iter(pa.concat_tables(tables).to_batches()),
        "table": lambda: pa.concat_tables(tables),
    }
    growing.publish("t", kinds[kind](), resident=True, readers=2)
    with bow.connect(growing, "t", follow=True) as stream:
        assert values_of(stream) == [[number, 0] for number in range(10)]
    with bow.connect(growing, "t") as stream:
        assert stream.num_rows == 20
        assert values_of(stream) == [[number, 0] for number in range(10)]
    growing.wait_released("t")
    with pytest.raises(bow.UsageError, match="resident=True"):
        growing.publish("u", kinds[kind](), resident=True, retain={"batches": 1})


def test_memory_while_it_is_read(serve: Callable[..., bow.Server]) -> None:
    """One batch is held beside shared memory while batches are read into it; what fails leaves nothing there."""
    server = serve(pool=Pool(budget=256 << 20))
    rows = 1 << 18  # 2 MiB
    begun = pa.total_allocated_bytes()
    held: list[int] = []

    def batches(count: int) -> Any:
        for number in range(count):
            held.append(pa.total_allocated_bytes() - begun)
            yield pa.record_batch(
                {"n": pa.array([number], pa.int64()).take(pa.array(np.zeros(rows, np.int8)))}
            )
        if count == 7:
            raise RuntimeError("no more")

    endpoint = server.publish("t", batches(20), resident=True)
    assert max(held) < 2 * 8 * rows
    assert read(endpoint).num_rows == 20 * rows
    with pytest.raises(RuntimeError, match="no more"):
        server.publish("u", batches(7), resident=True)
    assert [*server.endpoints] == ["t"]


PEAK = """
import pathlib, re, sys
import numpy as np, pyarrow as pa, bowstring as bow

nbytes, count = int(sys.argv[1]), int(sys.argv[2])

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) << 10

def batches(rows, count):
    for number in range(count):
        yield pa.record_batch({"n": np.full(rows, number)})

with bow.Server(pool=bow.Pool(budget=4 << 30)) as server:
    server.publish("warm", batches(1, 1), resident=True)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak()
    endpoint = server.publish("t", batches(nbytes // 8, count), resident=True)
    print(peak() - before, server.pool.stats.in_use)
    with bow.connect(endpoint) as stream:
        print(*(batch["n"].to_numpy()[-1] for batch in stream))
"""


@pytest.mark.parametrize(
    ("nbytes", "count"), [(16 << 20, 8), pytest.param(64 << 20, 32, marks=pytest.mark.slow)]
)
def test_the_peak_of_what_is_read_into_memory(forked: None, nbytes: int, count: int) -> None:
    """A process that reads batches into shared memory takes the table and two batches at most, of 2 GiB too."""
    found = subprocess.run(
        [sys.executable, "-c", PEAK, str(nbytes), str(count)], stdout=subprocess.PIPE, text=True, check=True
    )
    sizes, numbers = found.stdout.splitlines()
    peak, in_use = map(int, sizes.split())
    assert in_use < (count + 1) * nbytes  # regions of which some memory is left
    assert count * nbytes < peak < in_use + 2 * nbytes
    assert numbers.split() == [str(number) for number in range(count)]


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with another"])
def test_who_read_before_an_append_has_not_read_the_whole(
    serve: Callable[..., bow.Server], together: bool
) -> None:
    """A reader that came before an append does not count as the one that reads all, whichever stream it reads."""
    server = serve("unix:")
    first, second = table_of(1), table_of(2)
    endpoints = [server.publish("grows", first, readers=1), server.publish("other", first)]
    wanted = endpoints if together else endpoints[:1]
    with bow.connect(bow.Dataset(tuple(wanted), first.schema)) as stream:
        batch = stream.read_next_batch()
        server.append("grows", second)
        assert values_of([batch, *stream]) == [[1]] * len(wanted)
        del batch
    until(lambda: server.stats.connections == 0)
    server.finish("grows")
    with bow.connect(server.endpoints["grows"]) as stream:
        assert values_of(stream) == [[1], [2]]
    server.wait_released("grows")
