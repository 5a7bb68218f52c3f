"""What `connect` takes for a source besides addresses and endpoints, and short ways to look at what comes."""

from __future__ import annotations

import asyncio
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bow

WAIT = 60.0
TABLE = pa.table({"fare": [1.5, 2.5], "city": ["Bern", None]})


def test_a_server_stands_for_itself(tmp_path: Path) -> None:
    """A server of this process is read by name, or without one where it offers one data set, with its token."""
    with bow.Server("tcp://127.0.0.1:0", token="of this server alone") as server:
        with pytest.raises(bow.UnknownTicket, match="offers no data set"):
            bow.connect(server)
        server.publish("trips", TABLE)
        assert bow.connect(server).read_all().equals(TABLE)
        server.publish("zones", {"id": [1]})
        assert bow.connect(server, "trips").read_all().equals(TABLE)
        with pytest.raises(bow.UnknownTicket, match=r"connect\(server, name\).*'trips', 'zones'"):
            bow.connect(server)
        with pytest.raises(bow.UnknownTicket, match="trips"):
            bow.connect(server, "trip")


def test_a_path_is_that_of_a_socket(tmp_path: Path) -> None:
    """A `Path` with any characters leads to the server that listens there."""
    path = tmp_path / "a socket? #1%.sock"
    with bow.Server(f"unix:{urllib.parse.quote(path.as_posix())}") as server:
        server.publish("trips", TABLE)
        assert bow.connect(path, "trips").read_all().equals(TABLE)
    with pytest.raises(bow.BrokenError):
        bow.connect(tmp_path / "nobody.sock", "trips")


def test_streams_and_batches_become_columns_of_python() -> None:
    """`to_pydict` of a stream and of a batch, and `column`, give what pyarrow's give."""
    with bow.Server() as server:
        endpoint = server.publish("trips", TABLE)
        with bow.connect(endpoint) as stream:
            batch = stream.read_next_batch()
        assert batch.column("city").to_pylist() == batch.column(1).to_pylist() == ["Bern", None]
        assert batch.to_pydict() == TABLE.to_pydict()
        with pytest.raises(bow.UnknownColumn):
            batch.column("town")
        with bow.connect(endpoint) as stream:
            assert stream.to_pydict() == TABLE.to_pydict()

        async def columns() -> tuple[list[str], dict[str, list[object]]]:
            infos = await bow.list_datasets_async(server.address)
            async with bow.connect_async(server) as stream:
                return [each.name for each in infos], await stream.to_pydict()

        assert asyncio.run(columns()) == (["trips"], TABLE.to_pydict())


def test_publishing_from_asyncio() -> None:
    """`publish_async` is `publish` by a worker: the event loop goes on, options and errors are the same."""
    goes_on = threading.Event()

    def made() -> Iterator[pa.RecordBatch]:
        assert goes_on.wait(WAIT)  # by the event loop, while the server reads this
        yield from pa.table({"n": [1, 2]}).to_batches()

    async def work() -> pa.Table:
        with bow.Server() as server:
            publishing = asyncio.ensure_future(
                server.publish_async("n", made(), schema=pa.schema({"n": pa.int64()}), resident=True)
            )
            await asyncio.sleep(0)
            goes_on.set()
            endpoint = await publishing
            with pytest.raises(bow.UsageError, match="'n'"):
                await server.publish_async("n", {"n": [3]})
            async with bow.connect_async(endpoint) as stream:
                return await stream.to_arrow()

    assert asyncio.run(work()).equals(pa.table({"n": [1, 2]}))
