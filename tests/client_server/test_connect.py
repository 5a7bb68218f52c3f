"""The ways to connect: what names a data set, which columns are read, where they land, and in whose memory."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool, default_pool
from bowstring.testing import fake_device
from bowstring.transport import dial
from tests.client_server.conftest import PATIENCE, come_home, read, until

TABLE = pa.table({"n": [1, 2, 3], "s": ["a", None, "c"], "f": [0.5, None, 2.5]})
LARGE = {"n": np.arange(200_000)}


# What names the data set.

NAMED: dict[str, Callable[[bow.Endpoint], tuple[bow.Endpoint | str, str | bytes | None]]] = {
    "endpoint": lambda endpoint: (endpoint, None),
    "pickled endpoint": lambda endpoint: (pickle.loads(pickle.dumps(endpoint)), None),
    "printed endpoint": lambda endpoint: (str(endpoint), None),
    "endpoint of other bytes": lambda endpoint: (
        bow.Endpoint(endpoint.uri, bytearray(endpoint.ticket)),  # type: ignore[arg-type]
        None,
    ),
    "uri and ticket": lambda endpoint: (endpoint.uri, endpoint.ticket),
    "uri and ticket as text": lambda endpoint: (endpoint.uri, endpoint.ticket.decode()),
    "uri and name": lambda endpoint: (endpoint.uri, "die Täfelchen"),
    "endpoint and another name": lambda endpoint: (bow.Endpoint(endpoint.uri, b"gone"), "die Täfelchen"),
    "printed endpoint and another name": lambda endpoint: (
        str(bow.Endpoint(endpoint.uri, b"gone")),
        "die Täfelchen".encode(),
    ),
}


@pytest.mark.parametrize("way", NAMED)
def test_ways_to_name_a_data_set(server: bow.Server, way: str) -> None:
    """A data set is found by its endpoint, by what that prints, and by the server's URI with ticket or name."""
    source, ticket = NAMED[way](server.publish("die Täfelchen", TABLE))
    if server.address.startswith(("tcp:", "ucx:")) and way.endswith("name"):
        with pytest.raises(bow.UnknownTicket, match="only if its server has a token"):
            read(source, name=ticket)
        return
    assert read(source, name=ticket).equals(TABLE)


@pytest.mark.parametrize("printed", [False, True])
def test_two_connections(server: bow.Server, printed: bool) -> None:
    """Metadata and bodies over a connection each are one stream, which counts as one reader."""
    endpoint = server.publish("t", TABLE, readers=1, separate=True)
    assert endpoint.data_uri is not None
    assert read(str(endpoint) if printed else endpoint).equals(TABLE)
    server.wait_released("t")


@pytest.mark.parametrize(
    "source", ["", "t", "unix:", "unix:/x?ticket=dA", "carrier-pigeon:coop?want_data=1&ticket=dA"]
)
def test_uris_that_cannot_be(source: str) -> None:
    """A source that is no URI of ours is refused before anything is dialled."""
    with pytest.raises(bow.UsageError):
        bow.connect(source)


def test_a_uri_without_a_ticket(server: bow.Server) -> None:
    """A URI that names no data set says that one must be named."""
    with pytest.raises(bow.UsageError, match=r"connect\(uri, name\)"):
        bow.connect(server.publish("t", TABLE).uri)


def test_an_unknown_ticket(server: bow.Server) -> None:
    """A ticket that nobody gave out is refused by the server, in its words."""
    endpoint = server.publish("t", TABLE)
    with pytest.raises(bow.UnknownTicket, match="tt"):
        bow.connect(endpoint, "tt", limits=PATIENCE)
    assert read(endpoint).equals(TABLE)


def test_nobody_listens(server: bow.Server) -> None:
    """Where no server is any more, connecting fails at once and says so."""
    endpoint = server.publish("t", TABLE)
    server.close()
    with pytest.raises(bow.BrokenError, match="nobody listens"):
        bow.connect(endpoint, limits=PATIENCE)


WRONG: dict[str, dict[str, Any]] = {
    "mode": {"mode": "move"},
    "columns as text": {"columns": "n"},
    "columns as numbers": {"columns": [0]},
    "device by a name that is none": {"device": "cuda:77"},
    "device of another kind": {"device": 3},
    "pool of another kind": {"options": bow.ConnectOptions(pool=64 << 20)},  # type: ignore[arg-type]
    "limits of another kind": {"limits": 5.0},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arguments_that_mean_nothing(server: bow.Server, wrong: str) -> None:
    """A wrong argument is named before the server hears of it."""
    endpoint = server.publish("t", TABLE, readers=1)
    with pytest.raises(bow.UsageError):
        bow.connect(endpoint, **WRONG[wrong])
    assert server.stats.connections == 0
    assert read(endpoint).equals(TABLE)


@pytest.mark.parametrize("source", [None, 5, b"unix:/x", TABLE])
def test_sources_that_are_none(source: Any) -> None:
    """What is neither an Endpoint, nor a Dataset, nor a URI is refused by its type."""
    with pytest.raises(bow.UsageError, match=type(source).__name__):
        bow.connect(source)


# Which columns.


@pytest.mark.parametrize("names", [["s"], ["f", "n"], ("s", "n", "f"), ["n", "n"], []], ids=str)
def test_columns(server: bow.Server, names: Any) -> None:
    """The columns that were asked for come, in that order and as often, and the schema says so beforehand."""
    names = list(names)
    with bow.connect(server.publish("t", TABLE), columns=iter(names)) as stream:
        assert stream.schema.names == names
        (batch,) = stream
    assert batch.num_rows == 3
    assert batch.to_arrow().equals(
        TABLE.select(names).combine_chunks().to_batches()[0] if names else none_of(3)
    )


def none_of(rows: int) -> pa.RecordBatch:
    """Return rows without columns."""
    return pa.record_batch({"n": range(rows)}).select([])


def test_a_column_that_is_not_there(server: bow.Server) -> None:
    """A column that the data set does not have is named, with those that it has."""
    with pytest.raises(bow.UnknownColumn, match=r"'n', 's', 'f'.*'x'"):
        bow.connect(server.publish("t", TABLE), columns=["n", "x"], limits=PATIENCE)


def test_only_chosen_columns_are_moved(serve: Callable[..., bow.Server]) -> None:
    """Columns that nobody asked for are not sent."""
    server = serve("tcp://127.0.0.1:0")
    wide = {f"c{number}": np.arange(10_000) for number in range(10)}
    with bow.connect(server.publish("wide", wide), columns=["c7"]) as stream:
        stream.read_all()
        assert stream.stats.nbytes == 80_000
        assert stream.nbytes == 800_000


# Where to.


def test_mode_copy_frees_at_once(serve: Callable[..., bow.Server], address: str) -> None:
    """In copy mode the producer's memory is free while the reader still has its batches."""
    server = serve(address)
    endpoint = server.publish("n", LARGE, readers=1)
    with bow.connect(endpoint, mode="copy") as stream:
        (batch,) = stream
    server.wait_released("n")
    assert server.pool.stats.in_use == 0
    assert default_pool().stats.in_use > 0
    server.close()
    assert np.array_equal(batch["n"].values, LARGE["n"])


def test_mode_map_does_not_copy(serve: Callable[..., bow.Server]) -> None:
    """By default nothing of the reader's own memory is used where memory can be handed over."""
    for address in ("unix:", "inproc:"):
        with bow.connect(serve(address).publish("n", LARGE)) as stream:
            before = default_pool().stats
            (batch,) = stream
            assert default_pool().stats == before
            assert stream.stats.path.endswith("mapped")
            assert batch["n"].values[-1] == 199_999
            del batch


def test_mode_copy_copies_a_dictionary_once(serve: Callable[..., bow.Server], address: str) -> None:
    """Copied batches that share a dictionary go on sharing it."""
    words = pa.array(["a", "b"] * 10).dictionary_encode()
    table = pa.table({"d": pa.chunked_array([words, words, words])})
    with bow.connect(serve(address).publish("t", table), mode="copy") as stream:
        first, *others = stream
    (known,) = first.dictionaries.values()
    assert all(known is dictionary for batch in others for dictionary in batch.dictionaries.values())


@pytest.mark.parametrize("mode", ["map", "copy"])
@pytest.mark.parametrize("number", [0, 1])
def test_to_a_device(server: bow.Server, mode: str, number: int) -> None:
    """Batches of a producer on the host come to the device that was asked for."""
    device = fake_device(number)
    with bow.connect(server.publish("t", TABLE), device=device, mode=mode) as stream:  # type: ignore[arg-type]
        assert stream.stats.device == device.name
        (batch,) = stream
        assert batch.device is device
        assert stream.stats.device == device.name
    assert pa.Table.from_batches([batch.to_arrow()]).equals(TABLE)


@pytest.mark.parametrize("device", ["cpu", bow.cpu()], ids=["by name", "itself"])
def test_to_the_host(server: bow.Server, device: Any) -> None:
    """The host is a device like others."""
    with bow.connect(server.publish("t", TABLE), device=device) as stream:
        (batch,) = stream
    assert batch.device is bow.cpu()


def test_a_pool_of_the_readers_own(serve: Callable[..., bow.Server]) -> None:
    """Bytes that cannot be mapped land in the pool that was given, and only there."""
    endpoint = serve("tcp://127.0.0.1:0").publish("n", LARGE)
    pool, before = Pool(budget=8 << 20), default_pool().stats.in_use
    with bow.connect(endpoint, options=bow.ConnectOptions(pool=pool)) as stream:
        (batch,) = stream
    assert pool.stats.in_use >= 1_600_000
    assert default_pool().stats.in_use <= before
    del batch, stream
    come_home(pool)


def test_a_pool_without_room(serve: Callable[..., bow.Server]) -> None:
    """A batch that the reader's pool has no room for is an error that says so, not a shorter table."""
    endpoint = serve("tcp://127.0.0.1:0").publish("n", LARGE)
    with (
        bow.connect(
            endpoint,
            options=bow.ConnectOptions(pool=Pool(budget=1 << 20)),
            limits=PATIENCE.replace(stall_timeout=0.4),
        ) as stream,
        pytest.raises(bow.OutOfBudget, match="budget"),
    ):
        stream.read_next_batch()


def test_a_pool_that_is_closed(serve: Callable[..., bow.Server]) -> None:
    """A closed pool takes no bytes, and says so."""
    endpoint = serve("tcp://127.0.0.1:0").publish("n", LARGE)
    pool = Pool(budget=1 << 20)
    pool.close()
    with (
        pytest.raises(bow.ClosedError, match="pool"),
        bow.connect(endpoint, options=bow.ConnectOptions(pool=pool)) as stream,
    ):
        stream.read_all()


@pytest.mark.parametrize("mode", ["map", "copy"])
def test_a_pool_on_a_device(server: bow.Server, mode: str) -> None:
    """A pool on a device asks for that device, whatever the road there."""
    pool = Pool(fake_device(0), budget=8 << 20)
    with bow.connect(server.publish("t", TABLE), options=bow.ConnectOptions(pool=pool), mode=mode) as stream:  # type: ignore[arg-type]
        (batch,) = stream
        assert pool.stats.in_use > 0
    assert batch.device is fake_device(0)
    assert pa.Table.from_batches([batch.to_arrow()]).equals(TABLE)


# Within bounds.


def test_limits_of_the_reader(server: bow.Server) -> None:
    """A stream that passes a bound of the reader's is refused, and names the bound."""
    columns = {f"c{number}": [number] for number in range(10)}
    endpoint = server.publish("wide", columns)
    with pytest.raises(bow.LimitExceeded, match="fields"):
        bow.connect(endpoint, limits=PATIENCE.replace(columns=9))
    assert read(endpoint, limits=PATIENCE.replace(columns=10)).num_columns == 10


def test_limits_of_one_message(serve: Callable[..., bow.Server]) -> None:
    """A body that is larger than the reader allows never lands."""
    endpoint = serve("tcp://127.0.0.1:0").publish("n", LARGE)
    limits, before = PATIENCE.replace(message_bytes=1000), default_pool().stats.in_use
    with pytest.raises(bow.LimitExceeded), bow.connect(endpoint, limits=limits) as stream:
        stream.read_all()
    assert default_pool().stats.in_use <= before


def test_too_many_connections(serve: Callable[..., bow.Server], address: str) -> None:
    """A server serves as many connections as its limit says, and turns the next one away."""
    server = serve(address, limits=PATIENCE.replace(connections=2))
    endpoint = server.publish("t", TABLE)
    with bow.connect(endpoint), bow.connect(endpoint) as second:
        with pytest.raises(bow.BrokenError):
            bow.connect(endpoint, limits=PATIENCE)
        assert second.read_all().equals(TABLE)


def test_who_only_connects_keeps_nobody_out(serve: Callable[..., bow.Server]) -> None:
    """Connections that say nothing make way for readers, the first of them first; readers do not for them."""
    server = serve("tcp://127.0.0.1:0", limits=PATIENCE.replace(connections=3))
    endpoint = server.publish("t", TABLE)
    with contextlib.ExitStack() as ends:
        silent = [ends.enter_context(dial(server.address)) for _ in range(5)]
        until(lambda: server.stats.connections == 3)
        readers = [ends.enter_context(bow.connect(endpoint)) for _ in range(3)]
        silent.append(ends.enter_context(dial(server.address)))
        for channel in silent:
            with pytest.raises(bow.BrokenError):
                channel.receive(5.0)
        for reader in readers:
            assert reader.read_all().equals(TABLE)


def test_the_path_is_said(server: bow.Server, address: str) -> None:
    """A stream says before its first batch which road it takes, and why."""
    with bow.connect(server.publish("t", TABLE)) as stream:
        scheme = address.partition(":")[0]
        # UCX reads the producer's memory where both share a host.
        ways = {"tcp": ["packed"], "ucx": ["packed", "read"]}.get(scheme, ["mapped"])
        assert stream.stats.path in [f"{scheme}: {way}" for way in ways]
        assert stream.stats.why
        assert (stream.num_rows, stream.num_batches) == (3, 1)
        assert scheme in repr(stream)
        assert "0 batches" in repr(stream)


def test_a_socket_of_ones_own(serve: Callable[..., bow.Server], tmp_path: os.PathLike[str]) -> None:
    """A server listens where it is told to, and nobody else can enter there."""
    path = os.path.join(tmp_path, "s")
    server = serve(f"unix:{path}")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert read(server.publish("t", TABLE)).equals(TABLE)
    server.close()
    assert not os.path.exists(path)
