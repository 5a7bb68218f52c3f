"""Bowstring and a second implementation of the specification exchange streams over UCX, both ways."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from tests.peer.ucx import UcxClient, UcxServer, parts_of
from tests.ucx import needs_ucx

pytestmark = needs_ucx

LIMITS = bow.Limits(connect_timeout=10.0, reply_timeout=10.0, stall_timeout=10.0)


def table_of(rows: int) -> pa.Table:
    """Return a table of several batches with dictionaries, nulls, empty buffers and texts."""
    numbers = np.random.default_rng(rows).integers(0, 1 << 60, rows)
    words = pa.array([None if number % 7 == 0 else f"word {number % 5}" for number in range(rows)])
    batch = pa.record_batch(
        {
            "n": numbers,
            "s": words,
            "d": words.dictionary_encode(),
            "z": pa.nulls(rows),
            "e": pa.array([[]] * rows, pa.list_(pa.int8())),
        }
    )
    return pa.Table.from_batches([batch, batch.slice(rows // 2), batch.slice(0, 0), batch])


@pytest.mark.parametrize("rows", [0, 3, 100_000])
@pytest.mark.parametrize("separate", [False, True])
def test_their_client_reads_our_server(rows: int, separate: bool) -> None:
    """A client that knows only the specification gets packed bodies, from one server or from a pair of them."""
    table = table_of(rows)
    with bow.Server("ucx://", limits=LIMITS) as server:
        endpoint = server.publish("t", table, separate=separate)
        with UcxClient(endpoint.uri, endpoint.ticket, endpoint.data_uri) as client:
            assert client.read().equals(table)
            assert all(tag < 1 << 32 for tag in client.tags)


@pytest.mark.parametrize("rows", [0, 3, 100_000])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("pointers", [False, True], ids=["packed", "pointers"])
def test_our_client_reads_their_server(rows: int, pointers: bool, backwards: bool) -> None:
    """Our reader takes packed bodies, and addresses with the rkey of the URI, in whatever order they come."""
    table = table_of(rows)
    with UcxServer(parts_of(table), pointers=pointers, backwards=backwards) as server:
        with bow.connect(server.uri, ticket=b"the ticket", limits=LIMITS) as stream:
            assert stream.read_all().equals(table)
        assert server.tickets == [b"the ticket"]


def test_separate_servers_are_each_asked() -> None:
    """With two servers each is sent a request of its own, with the tag that its URI names."""
    table = table_of(1000)
    parts = parts_of(table)
    with UcxServer(parts, role="metadata") as metadata, UcxServer(parts, role="bodies") as bodies:
        endpoint = bow.Endpoint(metadata.uri, b"t", bodies.uri)
        with bow.connect(endpoint, limits=LIMITS) as stream:
            assert stream.read_all().equals(table)
        assert metadata.tickets == bodies.tickets == [b"t"]


def test_one_server_that_is_both_of_a_pair() -> None:
    """Each request has the tag of its own URI, by which the reference implementation tells its streams apart."""
    table = table_of(1000)
    with UcxServer(parts_of(table), role="by tag") as server:
        assert "want_data=18446741783881759408" in server.uri
        with bow.connect(bow.Endpoint(server.uri, b"t", server.data_uri), limits=LIMITS) as stream:
            assert stream.read_all().equals(table)
        assert server.tickets == [b"t", b"t"]


def test_a_body_type_at_bit_55() -> None:
    """Addresses under the tag that the reference implementation's constant gives are refused by that tag."""
    with (
        UcxServer(parts_of(table_of(100)), pointers=True, shift=55) as server,
        pytest.raises(bow.ProtocolError, match="bits 32-55"),
        bow.connect(server.uri, ticket=b"t", limits=LIMITS) as stream,
    ):
        stream.read_all()


def test_a_stream_that_ends_early_is_no_shorter_table() -> None:
    """Where a body never comes, and the connection ends, there is an error, and not the end of the stream."""
    with (
        UcxServer(parts_of(table_of(1000)), withheld=2) as server,
        pytest.raises(bow.BrokenError),
        bow.connect(server.uri, ticket=b"t", limits=LIMITS) as stream,
    ):
        stream.read_all()


def test_a_server_that_does_not_answer() -> None:
    """A request for what the server lacks, to which the reference implementation says nothing, ends in time."""
    limits = bow.Limits(connect_timeout=2.0, reply_timeout=2.0, stall_timeout=2.0, heartbeat=0.5)
    begin = time.monotonic()
    with (
        UcxServer(parts_of(table_of(3)), answers=False) as server,
        pytest.raises(bow.DeadlineExceeded),
        bow.connect(server.uri, ticket=b"unknown", limits=limits) as stream,
    ):
        stream.read_all()
    assert time.monotonic() - begin < 10.0


@pytest.mark.parametrize("pointers", [False, True], ids=["packed", "pointers"])
def test_dictionaries_of_the_first_batch_alone(pointers: bool) -> None:
    """Where the dictionaries of later batches lack, indices beyond the first ones are found as they arrive."""
    batches = [
        pa.record_batch({"d": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["c", "d", "e"])
    ]
    sent = parts_of(pa.Table.from_batches(batches))
    schema, first_dictionary, first, _, second = sent
    with (
        UcxServer([schema, first_dictionary, first, second], pointers=pointers) as server,
        bow.connect(server.uri, ticket=b"t", limits=LIMITS) as stream,
    ):
        assert next(stream).validated == "full"
        with pytest.raises(bow.InvalidData, match="dictionary"):
            next(stream)


def test_metadata_of_any_size() -> None:
    """Metadata that UCX sends by rendezvous is read by both sides."""
    table = pa.table({f"a column of a long name and number {number}": [number] for number in range(4000)})
    parts = parts_of(table)
    assert min(len(metadata) for metadata, _ in parts) > 128 << 10
    with (
        UcxServer(parts) as server,
        bow.connect(server.uri, ticket=b"t", limits=LIMITS) as stream,
    ):
        assert stream.read_all().equals(table)
    with bow.Server("ucx://", limits=LIMITS) as ours:
        endpoint = ours.publish("t", table)
        with UcxClient(endpoint.uri, endpoint.ticket) as client:
            assert client.read().equals(table)


def test_what_was_read_is_freed() -> None:
    """Addresses of their server are sent back with the tag that its URI names, each as often as it was sent."""
    table = table_of(1000)
    parts = parts_of(table)
    with UcxServer(parts, pointers=True) as server:
        with bow.connect(server.uri, ticket=b"t", limits=LIMITS) as stream:
            stream.read_all()
            stream.close()
        sent = sum(bool(buffer) for _, body in parts for buffer in body or ())
        bow_waits(lambda: len(server.freed) == sent)


def test_a_key_that_is_none() -> None:
    """A `remote_handle` that is no rkey is an error that says so, and no table is cut short."""
    with UcxServer(parts_of(table_of(100)), pointers=True) as server:
        head, _, _ = server.uri.partition("&remote_handle=")
        with (
            pytest.raises(bow.BowstringError, match="key"),
            bow.connect(f"{head}&remote_handle=bm90IGEga2V5", ticket=b"t", limits=LIMITS) as stream,
        ):
            stream.read_all()


def test_addresses_without_a_key() -> None:
    """Addresses of a server that gave no key are refused."""
    with UcxServer(parts_of(table_of(100)), pointers=True) as server:
        uri = server.uri.partition("&free_data")[0]
        with pytest.raises(bow.ProtocolError), bow.connect(uri, ticket=b"t", limits=LIMITS) as stream:
            stream.read_all()


def bow_waits(condition: object) -> None:
    """Wait for what their thread does."""
    import time

    end = time.monotonic() + 10.0
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
