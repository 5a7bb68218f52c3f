"""A reader that asks in one piece, which is answered at once, and one that asks in many are served alike."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello, pack_addresses, unpack_pairs
from tests.client_server.conftest import until
from tests.peer import wire

ORDINARY: Final = Hello(None, 1 << 28, pointers=True, ipc="0:1", tries=True)
TABLES: Final = {
    "one batch": pa.table({"a": np.arange(1000), "b": ["x"] * 1000}),
    "no rows": pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}),
    "no batches": pa.schema({"a": pa.int64(), "b": pa.string()}).empty_table(),
    "dictionary": pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode(), "b": [1, 2, 3]}),
    "many batches": pa.table({"a": pa.chunked_array([np.arange(3)] * 400)}),
    "wide": pa.table({name: [1] for name in ("a", "b", *map(str, range(600)))}),
}


class Peer:
    """A reader as a program of somebody else is one: bytes that go out, and bytes that come."""

    def __init__(
        self, address: str, hello: Hello, ticket: bytes, *, pieces: bool, beside: int | None = None
    ) -> None:
        self.sock = wire.dialled(address)
        said = [
            wire.Frame.of(tag, body).data for tag, body in ((Want.HELLO, hello.pack()), (Want.DATA, ticket))
        ]
        data = b"".join(said)
        if beside is not None:  # a descriptor, which belongs to no message
            at = len(said[0]) if beside else 0
            self.sock.sendall(data[:at])
            end = at + 30 if pieces else len(data)
            with open(os.devnull, "rb") as other:
                socket.send_fds(self.sock, [data[at:end]], [other.fileno()])
            with contextlib.suppress(BrokenPipeError):
                self.sock.sendall(data[end:])
        elif pieces:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            with contextlib.suppress(BrokenPipeError):  # who is refused is not heard to the end
                for at in range(0, len(data), 37):
                    self.sock.sendall(data[at : at + 37])
        else:
            self.sock.sendall(data)
        self.heard: list[tuple[bytes, int]] = []

    def hear(self) -> list[tuple[bytes, int]]:
        """Return all messages up to the end of the stream, or an error, and how much came beside each."""
        while (received := wire.receive(self.sock)) is not None:
            frame, descriptors = received
            for fd in descriptors:
                os.close(fd)
            self.heard.append((frame.data, len(descriptors)))
            is_end = frame.tag is None and frame.body[0] == wire.END_OF_STREAM
            if is_end or frame.tag == wire.Tag.ERROR:
                break
        return self.heard

    def say(self, tag: int, body: bytes = b"") -> None:
        """Say something, if there is still somebody who hears it."""
        with contextlib.suppress(OSError):
            wire.send(self.sock, wire.Frame.of(tag, body))

    def free(self) -> None:
        """Give back all that was lent."""
        for data, _ in self.heard:
            frame = wire.Frame(data)
            if frame.tag is not None and frame.tag >> 56 == 1:
                pairs = unpack_pairs(frame.body)[1]
                if (held := pairs[pairs[:, 0] != 0, 0]).size:
                    self.say(Want.FREE, pack_addresses(held))


def hangs_up(_: Peer) -> None:
    """Go at once, whatever is under way."""


def reads(peer: Peer) -> None:
    """Take everything, and go with what was lent."""
    peer.hear()


def reads_all(peer: Peer) -> None:
    """Take everything, give it back, and say so."""
    peer.hear()
    peer.free()
    peer.say(Control.DONE)


def frees_twice(peer: Peer) -> None:
    """Give back what is not lent any more."""
    peer.hear()
    peer.free()
    peer.say(Want.FREE, pack_addresses(np.array([4096], np.uint64)))
    peer.hear()


def stops(peer: Peer) -> None:
    """Want nothing more, and give back what came."""
    peer.hear()
    peer.say(Control.STOP)
    peer.free()


def forks(peer: Peer) -> None:
    """Tell of a child that may look at all that is lent."""
    peer.hear()
    peer.say(Control.FORKED)
    peer.free()
    peer.say(Control.DONE)


def asks_twice(peer: Peer) -> None:
    """Ask for a second data set."""
    peer.hear()
    peer.say(Want.DATA, b"t")
    peer.hear()


BEHAVIOURS = [hangs_up, reads, reads_all, frees_twice, stops, forks, asks_twice]


def counts_of(server: bow.Server) -> tuple[int, ...]:
    """Return how many connections ended, by how they did."""
    found = server.stats
    return found.readers, found.refused, found.lost, found.stopped, found.idle


def what_is_seen(
    hello: Hello, behave: Callable[[Peer], None], *, pieces: bool, table: pa.Table, **options: Any
) -> tuple[Any, ...]:
    """Return what a reader hears, and what its server makes of it."""
    pool = bow.Pool(budget=256 << 20)
    limits = bow.Limits(connect_timeout=10.0, heartbeat=10.0)
    with bow.Server("unix:", pool=pool, limits=limits, token=options.pop("serves", None)) as server:
        server.publish("t", table, **options)
        peer = Peer(server.address, hello, b"t", pieces=pieces)
        with peer.sock:
            behave(peer)
        until(lambda: any(counts_of(server)) and server.stats.connections == 0)
        counts = counts_of(server)
        # What may still be looked at is not written again, and all else is.
        server.publish("t", {"a": np.zeros(1000)}, replace=True)
        return peer.heard, counts, server.pool.stats.retired, server.stats.bytes_offered


def alike(heard: list[tuple[bytes, int]]) -> list[tuple[int | None, int, bytes]]:
    """Return messages without what is another for each publication: names of versions, and of memory."""
    found = []
    for data, beside in heard:
        frame = wire.Frame(data)
        varies = frame.tag in (Control.WELCOME, Control.REGION)
        found.append((frame.tag, beside, len(frame.body).to_bytes(8, "little") if varies else frame.body))
    return found


def check_alike(hello: Hello, behave: Callable[[Peer], None], table: pa.Table, **options: Any) -> Any:
    """See to it that both ways of asking have the same effects; return what is heard."""
    (heard, *seen), (slowly, *then) = (
        what_is_seen(hello, behave, pieces=pieces, table=table, **options) for pieces in (False, True)
    )
    assert seen == then
    if behave is not hangs_up:
        assert alike(heard) == alike(slowly)
    return heard


@pytest.mark.parametrize(
    ("name", "behave"),
    [*((name, reads_all) for name in TABLES), *itertools.product(("one batch", "many batches"), BEHAVIOURS)],
)
def test_asking_in_one_piece_and_in_many(name: str, behave: Callable[[Peer], None]) -> None:
    """For any data and any behaviour: the same bytes, outcomes and memory."""
    check_alike(ORDINARY, behave, TABLES[name])


@pytest.mark.parametrize(
    "hello",
    [
        Hello(("b",), 1 << 28, pointers=True, ipc="0:1", tries=True),
        Hello(("b", "a"), 0, pointers=True, ipc="0:1", tries=True),
        Hello(("no such",), 1 << 28, pointers=True, ipc="0:1", tries=True),
        Hello(None, 1 << 28, pointers=True, ipc="0:1", tries=True, shard=(1, 3)),
        Hello(None, 1 << 28, pointers=True, ipc="0:1", tries=True, events=True),
        Hello(None, 1 << 28, pointers=True, ipc="0:1"),
        Hello(None, 1 << 28),
    ],
    ids=["columns", "order", "unknown", "shard", "events", "tries nothing", "packed"],
)
@pytest.mark.parametrize("behave", [reads, reads_all, stops])
def test_wishes(hello: Hello, behave: Callable[[Peer], None]) -> None:
    """So it is whatever else a reader wishes."""
    check_alike(hello, behave, TABLES["one batch"])


@pytest.mark.parametrize("token", [None, "", "wrong", "0123456789abcdeF", "0123456789abcdef"])
def test_tokens(token: str | None) -> None:
    """Nothing is said before the token was right, however it is asked."""
    hello = Hello(None, 1 << 28, pointers=True, ipc="0:1", tries=True, token=token)
    heard = check_alike(hello, reads_all, TABLES["one batch"], serves="0123456789abcdef")
    is_error = [wire.Frame(data).tag == wire.Tag.ERROR for data, _ in heard]
    assert is_error == ([False] * len(is_error) if token == "0123456789abcdef" else [True])


def test_readers_that_are_counted() -> None:
    """The last of so many readers has the data, and the next one an error."""
    for pieces in (False, True):
        with bow.Server("unix:") as server:
            server.publish("t", TABLES["one batch"], readers=2)
            peers = [Peer(server.address, ORDINARY, b"t", pieces=pieces) for _ in range(2)]
            for peer in peers:
                peer.hear()
            late = Peer(server.address, ORDINARY, b"t", pieces=pieces)
            with late.sock:
                assert [wire.Frame(data).tag for data, _ in late.hear()] == [wire.Tag.ERROR]
            for peer in peers:
                with peer.sock:
                    peer.free()
                    peer.say(Control.DONE)
            server.wait_released("t", 10.0)
            assert server.stats.readers == 2


@pytest.mark.parametrize(("place", "pieces"), [(0, False), (1, False), (1, True), (0, True)])
def test_descriptors_beside_an_ask(no_leaks: None, place: int, pieces: bool) -> None:
    """Descriptors that a reader hands over are closed and refused, with an error where it takes errors.

    That is what its hello says, which nobody knows while it has come in part.
    """
    with bow.Server("unix:") as server:
        server.publish("t", TABLES["one batch"])
        peer = Peer(server.address, ORDINARY, b"t", pieces=pieces, beside=place)
        with peer.sock, contextlib.suppress(ConnectionError):
            peer.hear()
        until(lambda: server.stats.refused == 1)
        tags = [wire.Frame(data).tag for data, _ in peer.heard]
        assert tags == ([] if pieces and not place else [wire.Tag.ERROR])
        with bow.connect(server.address) as stream:
            assert stream.read_all().num_rows == 1000


@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0"])
@pytest.mark.parametrize("most", [1, 100, 700, 1 << 20])
def test_a_schema_counts_as_metadata_that_wait(address: str, most: int) -> None:
    """`Limits.early_bytes` bounds a schema, whichever way its stream is opened."""
    with bow.Server(address, token="0123456789abcdef") as server:
        server.publish("t", TABLES["wide"])
        server.publish("s", TABLES["one batch"])
        for name in ("t", "s"):
            is_refused = most < (10_000 if name == "t" else 700)
            limits = bow.Limits(early_bytes=most)
            refused = pytest.raises(bow.LimitExceeded, match="early_bytes")
            with (
                refused if is_refused else contextlib.nullcontext(),
                bow.connect(server.address, name, token="0123456789abcdef", limits=limits) as stream,
            ):
                assert stream.schema.names[0] == "a"


def test_an_answer_is_of_the_version_that_counts_its_reader() -> None:
    """While a data set is replaced, each answer is whole, and of a version that is kept until it is freed."""
    with bow.Server("unix:") as server:
        for version in range(40):
            server.publish("t", {"v": np.full(100, version)}, replace=True)
            with bow.connect(server.address, "t") as stream:
                batch = stream.read_next_batch()
            server.publish("t", {"v": np.full(100, -1)}, replace=True)
            assert batch["v"].to_numpy().tolist() == [version] * 100
            assert str(stream.endpoint) != str(server.endpoints["t"])
