"""An address and a name are enough to read a data set; a server lists what it offers to those that it lets in."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.listing import DatasetInfo, ListingReader, list_of
from bowstring.dissociated.tags import Control
from bowstring.limits import DEFAULT_LIMITS
from tests.client_server.conftest import read, until

TOKEN = "0123456789abcdef"
TABLE = pa.table({"n": [1, 2, 3], "text": ["a", "b", "c"]})


def test_a_data_set_is_found_by_address_and_name(serve: Callable[..., bow.Server], address: str) -> None:
    """`connect` takes an address and a name, or the address alone where there is one data set."""
    server = serve(address, token=TOKEN)
    server.publish("trips", TABLE)
    assert read(server.address, token=TOKEN).equals(TABLE)
    server.publish("zones", pa.table({"z": [1]}))
    for name in ("trips", b"trips"):
        with bow.connect(server.address, name, token=TOKEN) as stream:
            assert stream.read_all().equals(TABLE)
    assert read(server.address, name="zones", token=TOKEN).column_names == ["z"]


def test_without_a_name_the_choice_is_named(serve: Callable[..., bow.Server], address: str) -> None:
    """An address alone is an error where there is no data set, or several; the error names them."""
    server = serve(address, token=TOKEN)
    with pytest.raises(bow.UnknownTicket, match="no data set"):
        bow.connect(server.address, token=TOKEN)
    for name in ("one", "two"):
        server.publish(name, TABLE)
    with pytest.raises(bow.UnknownTicket, match=r"'one', 'two'"):
        bow.connect(server.address, token=TOKEN)
    with pytest.raises(bow.UnknownTicket, match=r"Did you mean 'two'\?"):
        bow.connect(server.address, "twoo", token=TOKEN)
    with pytest.raises(bow.UsageError, match="are the same"):
        bow.connect(server.address, "one", ticket=b"two", token=TOKEN)


def test_a_name_that_stands_for_nothing(serve: Callable[..., bow.Server], address: str) -> None:
    """Whoever asks for a name gets an error of its own, which shows it as text; a version is told apart."""
    server = serve(address, token=TOKEN)
    ended = server.publish("trips", TABLE)
    server.withdraw("trips")
    asked: list[Callable[[], object]] = [
        lambda: bow.connect(server.address, "zönes", token=TOKEN),
        lambda: bow.connect(server, "zönes"),
        lambda: server.withdraw("zönes"),
        lambda: server.wait_released("zönes", 1),
        lambda: server.finish("zönes"),
    ]
    for ask in asked:
        with pytest.raises(bow.UnknownName, match="found 'zönes'"):
            ask()
    with pytest.raises(bow.UnknownTicket) as caught:
        bow.connect(bow.Endpoint(ended.uri, b"trips#0123456789abcdef"))
    assert type(caught.value) is bow.UnknownTicket


def test_a_server_lists_what_it_offers(serve: Callable[..., bow.Server], address: str) -> None:
    """A list has names, schemas, counts, readers and times of all data sets, and of nothing that is gone."""
    server = serve(address, token=TOKEN)
    begin = time.time()
    server.publish("b", TABLE)
    server.publish("a", lambda: iter([pa.record_batch({"lazy": [1]})]))
    server.publish("gone", TABLE)
    server.withdraw("gone")
    with bow.connect(server.address, "b", token=TOKEN):
        first, second = bow.list_datasets(server.address, token=TOKEN)
    assert (first.name, first.num_rows, first.nbytes, first.readers) == ("a", None, None, 0)
    assert (second.name, second.num_rows, second.readers) == ("b", 3, 1)
    assert second.schema.equals(TABLE.schema)
    assert second.nbytes is not None
    assert second.published_at is not None
    assert begin <= second.published_at <= time.time()
    assert server.stats.idle == server.stats.refused == 0


def test_long_schemas_are_listed(server: bow.Server) -> None:
    """A schema that is longer than a control message may be is listed whole."""
    if server.address.startswith(("tcp:", "ucx:")):
        pytest.skip("needs a token there")
    wide = pa.table({f"a column with a rather long name, number {number}": [1] for number in range(5000)})
    server.publish("wide", wide)
    [info] = bow.list_datasets(server.address)
    assert info.schema.equals(wide.schema)


@pytest.mark.parametrize("wrong", [None, "0123456789abcdeX"])
def test_a_list_needs_the_token(serve: Callable[..., bow.Server], address: str, wrong: str | None) -> None:
    """A server with a token tells nothing without it."""
    server = serve(address, token=TOKEN)
    server.publish("secret name", TABLE)
    with pytest.raises(bow.AccessDenied) as raised:
        bow.list_datasets(server.address, token=wrong)
    assert "secret" not in str(raised.value)
    with pytest.raises(bow.AccessDenied):
        bow.connect(server.address, "secret name", token=wrong)


def test_names_over_a_network_need_a_token(serve: Callable[..., bow.Server]) -> None:
    """A `tcp:` server without a token neither lists its data sets nor answers to names, loopback included."""
    server = serve("tcp://127.0.0.1:0")
    endpoint = server.publish("trips", TABLE)
    with pytest.raises(bow.AccessDenied, match="only with a token"):
        bow.list_datasets(server.address)
    for name in ("trips", "unknown"):
        with pytest.raises(bow.UnknownTicket, match="only if its server has a token"):
            bow.connect(server.address, name)
    with pytest.raises(bow.AccessDenied):
        bow.connect(server.address)
    assert read(endpoint).equals(TABLE)


def test_the_endpoint_of_a_stream_is_of_one_version(serve: Callable[..., bow.Server], address: str) -> None:
    """`Stream.endpoint` reads the version that its stream reads, also after that was replaced, while it is read."""
    server = serve(address, token=TOKEN)
    endpoint = server.publish("t", TABLE)
    with bow.connect(endpoint) as stream:
        pinned = stream.endpoint
        assert isinstance(pinned, bow.Endpoint)
        server.publish("t", pa.table({"other": [1]}), replace=True)
        assert read(pinned).equals(TABLE)
        assert read(str(pinned)).equals(TABLE)
        assert read(endpoint).column_names == ["other"]
    until(lambda: server.stats.connections == 0)
    with pytest.raises(bow.UnknownTicket, match="newer version"):
        bow.connect(pinned)


@pytest.mark.parametrize("versions", [1, 2, 3])
def test_a_withdrawn_name_stands_for_no_older_version(server: bow.Server, versions: int) -> None:
    """Whatever is still read of it, and however many data sets come afterwards: a free name serves nothing."""
    held = []
    for version in range(versions):
        server.publish("n", {"version": [version]}, replace=True)
        if version < versions - 1:
            stream = bow.connect(server.endpoints["n"])
            held.append((stream, stream.read_next_batch()))
    server.withdraw("n")
    for more in range(1100):
        with pytest.raises(bow.UnknownTicket) if not more % 275 else contextlib.nullcontext():
            if not more % 275:
                bow.connect(server.address, "n", token=TOKEN)
        server.publish("m", {"more": [more]}, replace=True)
    with pytest.raises(bow.UnknownTicket):
        bow.connect(server.address, "n", token=TOKEN)
    for version, (stream, batch) in enumerate(held):
        assert batch["version"].to_pylist() == [version]
        stream.close()


def test_wrong_addresses_are_refused(tmp_path: Path) -> None:
    """What is no address, or where nobody listens, is an error that names it."""
    for wrong in ("tables.sock", "ftp://host"):
        with pytest.raises(bow.UsageError):
            bow.list_datasets(wrong)
    with pytest.raises(bow.BrokenError):
        bow.list_datasets(f"unix:{tmp_path}/none.sock")
    with pytest.raises(bow.BrokenError):
        bow.connect(f"unix:{tmp_path}/none.sock", "t")


def listed(bodies: list[bytes], limits: bow.Limits = DEFAULT_LIMITS) -> list[DatasetInfo]:
    """Return what a reader makes of some messages of a listing."""
    reader = ListingReader(limits)
    for body in bodies:
        reader.receive(Control.LISTING, body)
    assert reader.complete
    return reader.infos


def test_hostile_lists_are_errors() -> None:
    """Whatever a server says instead of a list is a ProtocolError, and a list without end is bounded."""
    info = DatasetInfo("t", TABLE.schema, 3, 100, 0, 1.5, b"t#1")
    good = [b"".join(each.pieces) for each in list_of([info, info])]
    assert listed(good) == [info, info]
    packed = good[0][1:]
    for wrong in (b"{}", b"[]", packed.replace(b'"t"', b"7"), packed[:-1], packed.replace(b"1.5", b'"x"')):
        with pytest.raises(bow.ProtocolError):
            listed([b"\0" + wrong, b""])
    with pytest.raises(bow.ProtocolError):
        ListingReader(DEFAULT_LIMITS).receive(Control.WELCOME, b"{}")
    with pytest.raises(bow.LimitExceeded):
        listed([b"\1" + bytes(60_000)] * 20_000)
