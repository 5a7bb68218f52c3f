"""Looking changes nothing: what is shown or listed of a data set takes no reader's place and counts nowhere."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.cli import main
from bowstring.dissociated.tags import Control
from tests.client_server.conftest import ADDRESSES, PATIENCE, read, until
from tests.peer.raw import RawReader

TOKEN = "sixteen characters"
SMALL = pa.table({"fare": [1.5, 2.5], "city": ["Bern", None]})
LARGE = pa.table({"id": range(200_000), "city": pa.array(["Bern", "Chur"] * 100_000).dictionary_encode()})


def dataset_of(endpoint: bow.Endpoint, table: pa.Table) -> bow.Dataset:
    """Return a data set that says all of itself."""
    return bow.Dataset((endpoint, endpoint), table.schema, 2 * table.num_rows, 2 * table.nbytes)


def command(*arguments: str) -> str:
    """Run the command line, and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(list(arguments)) == 0
    return out.getvalue()


def token_file(folder: Any) -> list[str]:
    """Return the option that names the token."""
    path = folder / "token"
    path.write_text(TOKEN)
    return ["--token-file", str(path)]


LOOKS: dict[str, Callable[[bow.Server, bow.Endpoint, pa.Table, list[str]], object]] = {
    "an endpoint in a notebook": lambda _server, endpoint, *_: endpoint._repr_html_(),
    "an endpoint in a console": lambda _server, endpoint, *_: (repr(endpoint), str(endpoint)),
    "a data set in a notebook": lambda _s, endpoint, table, _t: dataset_of(endpoint, table)._repr_html_(),
    "a data set in a console": lambda _s, endpoint, table, _t: repr(dataset_of(endpoint, table)),
    "a data set as a list": lambda _s, endpoint, table, _t: list(dataset_of(endpoint, table)),
    "its text": lambda _s, endpoint, table, _t: bow.Dataset.from_json(dataset_of(endpoint, table).to_json()),
    "a server in a console": lambda server, *_: repr(server),
    "the endpoints of a server": lambda server, *_: server.endpoints,
    "the counts of a server": lambda server, *_: server.stats,
    "a list by address": lambda server, *_: repr(bow.list_datasets(server.address, token=TOKEN)),
    "a list by endpoint": lambda _server, endpoint, *_: bow.list_datasets(str(endpoint)),
    "bowstring list": lambda server, _e, _t, token: command("list", server.address, *token),
    "bowstring inspect URI": lambda _s, endpoint, *_: command("inspect", str(endpoint)),
    "bowstring inspect of one batch": lambda _s, endpoint, *_: command(
        "inspect", str(endpoint), "--most", "1"
    ),
    "bowstring inspect ADDRESS NAME": lambda server, _e, _t, token: command(
        "inspect", server.address, "t", "--json", *token
    ),
}


def counts(server: bow.Server) -> dict[str, Any]:
    """Return what a server counts, once nobody is connected any more."""
    until(lambda: not server.stats.connections)
    return dataclasses.asdict(server.stats) | {
        "listed": repr(bow.list_datasets(server.address, token=TOKEN)),
        "pool": server.pool.stats.in_use,
    }


@contextlib.contextmanager
def published(data: Any, address: str, **options: Any) -> Iterator[tuple[bow.Server, bow.Endpoint]]:
    """Publish a data set on a server of its own."""
    with bow.Server(address, token=TOKEN, limits=PATIENCE) as server:
        yield server, server.publish("t", data, **options)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("table", [SMALL, LARGE], ids=["small", "large"])
@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(list(LOOKS)), min_size=4, max_size=8), st.integers(1, 2), st.booleans())
def test_looking_takes_no_readers_place(
    tmp_path_factory: pytest.TempPathFactory,
    address: str,
    table: pa.Table,
    looks: list[str],
    readers: int,
    lent: bool,
) -> None:
    """However often it is looked at, a data set has all its readers, and the server counts these alone."""
    options = {"share": "in_place"} if lent else {}
    token = token_file(tmp_path_factory.mktemp("token"))
    with published(table, address, readers=readers, **options) as (server, endpoint):
        before = counts(server)
        for name in looks:
            LOOKS[name](server, endpoint, table, token)
        assert counts(server) == before
        for number in range(readers):
            with bow.connect(endpoint) as stream:
                endpoint._repr_html_()  # beside the reader of the last place
                assert stream.read_all().equals(table)
            until(lambda number=number: server.stats.readers == number + 1)  # type: ignore[misc]
        server.wait_released(timeout=30)
        with pytest.raises(bow.UnknownTicket):
            bow.connect(endpoint)


@pytest.mark.parametrize("name", LOOKS)
def test_each_way_to_look(tmp_path: Any, name: str) -> None:
    """Of resident data, of a generator that was not begun, of both connections of a stream: nothing is counted."""
    token = token_file(tmp_path)
    begun: list[int] = []

    def generate() -> Iterator[pa.RecordBatch]:
        begun.append(1)
        yield from SMALL.to_batches()

    kinds: list[tuple[Any, dict[str, Any]]] = [
        (SMALL, {"readers": 1}),
        (SMALL, {"readers": 1, "separate": True}),
        (generate(), {"schema": SMALL.schema}),
    ]
    for data, options in kinds:
        with published(data, "unix:", **options) as (server, endpoint):
            before = counts(server)
            LOOKS[name](server, endpoint, SMALL, token)
            assert counts(server) == before
            assert not begun
            assert read(endpoint).equals(SMALL)
            begun.clear()


def test_what_is_shown_of_a_data_set_with_one_reader() -> None:
    """The rows are there, as if it had any number of readers; `inspect` shows its batches, too."""
    with published(LARGE, "tcp://127.0.0.1:0", readers=1) as (server, endpoint):
        for shown in (endpoint, dataset_of(endpoint, LARGE)):
            assert "Chur" in shown._repr_html_()
        facts = json.loads(command("inspect", str(endpoint), "--json"))
        assert facts["fetched_batches"][0]["rows"] == facts["rows"] == LARGE.num_rows
        assert counts(server)["readers"] == 0


def plain(endpoint: bow.Endpoint) -> bow.Endpoint:
    """Return the endpoint of a server that knows the specification alone, as far as a reader can tell."""
    head, _, query = endpoint.uri.partition("?")
    kept = [each for each in query.split("&") if each.partition("=")[0] in ("want_data", "free_data")]
    return bow.Endpoint(f"{head}?{'&'.join(kept)}", endpoint.ticket)


def test_servers_that_would_count_a_look_are_not_asked() -> None:
    """Of one that knows the specification only, no rows are shown; what is known of it is."""
    with bow.Server() as server:
        endpoint = plain(server.publish("t", SMALL, readers=1))
        for shown in (endpoint, dataset_of(endpoint, SMALL)):
            html = shown._repr_html_()
            assert "Bern" not in html
        assert "fare" in html
        facts = json.loads(command("inspect", str(endpoint), "--json"))
        assert "counts each client that opens" in facts["not_read"]
        until(lambda: not server.stats.connections)
        assert server.stats.idle == server.stats.stopped == server.stats.refused == 0
        assert read(endpoint).num_rows == SMALL.num_rows


def test_a_generator_is_described_by_the_list() -> None:
    """`inspect` shows the schema of batches that are made as they are read, and reads none."""
    with bow.Server() as server:
        endpoint = server.publish("t", iter(SMALL.to_batches()), schema=SMALL.schema)
        facts = json.loads(command("inspect", str(endpoint), "--json"))
        assert [each["name"] for each in facts["schema"]] == SMALL.schema.names
        assert "made as they are read" in facts["not_read"]
        assert read(endpoint).equals(SMALL)


def test_data_that_are_looked_at_stay(tmp_path: Any) -> None:
    """Data that are withdrawn while somebody looks at them are let go when that one is done."""
    with published(LARGE, "unix:") as (server, endpoint):
        with RawReader(endpoint) as reader:
            reader.hello(token=TOKEN)
            reader.say(Control.LOOK)
            reader.want()
            reader.hear_all()
            assert len(reader.addresses()) >= LARGE.num_columns
            server.withdraw("t")
            assert server.pool.stats.in_use >= LARGE.nbytes
            reader.free(reader.addresses())
        server.wait_released(timeout=30)
        until(lambda: not server.pool.stats.in_use)
        assert server.stats.readers == 0
