"""Clients that say what they must not: refused, and the depot serves the next one."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.depot import daemon, launch
from bowstring.depot.manifest import BegunAttempt, pack_part, unpack_parts
from bowstring.depot.protocol import DEPOT_LIMITS, MESSAGES, VERSION, DepotConnection, Record, Verb
from bowstring.dissociated.tags import Control
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.memory import Pool
from bowstring.transport import Channel, Message, dial
from bowstring.transport.descriptors import close_all
from tests.depot.conftest import APP, MIB, WAIT, commit, read, until, until_free

OPTIONS = bow.depot.Options(memory_budget=256 * MIB, disk_budget=256 * MIB)
TABLE = pa.table({"n": np.arange(100)})
BEGIN = {"application": APP, "dataset": "data", "partition": 0, "attempt": 0, "mapped": b""}
END = {"kept": b"", "parts": b""}
HELLO = MESSAGES[Verb.HELLO][0].pack({"version": VERSION})


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    """Return the folder of one depot for all: each test leaves it as it was."""
    with (
        tempfile.TemporaryDirectory(prefix="bow-") as made,
        bow.depot.connect(folder=made, options=OPTIONS) as depot,
    ):
        yield made
        depot.stop()


@pytest.fixture
def well(folder: str) -> Iterator[bow.depot.Depot]:
    """Return a depot that must be as well after the test as it was before."""
    with bow.depot.connect(start=False, folder=folder) as depot:
        before = depot.status()
        yield depot
        until_free(depot)
        assert read(commit(depot, TABLE, "after").endpoint).equals(TABLE)
        depot.end(APP)
        until_free(depot)
        until(lambda: depot.status().clients <= before.clients + 1, "whoever was refused is gone")
        assert depot.status().pid == before.pid


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"BOW\x01\x01\x00\x00\x00" + struct.pack("<QQ", Verb.HELLO, 1 << 40),
        b"BOW\x01\x01\x00\x00\x00" + struct.pack("<QQ", Verb.HELLO, 8000) + bytes(8000),
        b"BOW\x01\x01\x00\x00\x00" + struct.pack("<QQ", Verb.HELLO, 4) + b"null",
        b"BOW\x01\x01\x00\x00\x00" + struct.pack("<QQ", Verb.STATUS, 0),
        b"BOW\x01\x01\x00\x00\x00" + struct.pack("<QQ", Verb.PARTS, 2) + b"{}",
        b"BOW\x01\x00\x00\x00\x00" + struct.pack("<QQ", 0, 2) + b"{}",
        os.urandom(4096),
    ],
    ids=["nothing", "http", "huge", "too long", "no record", "no hello", "parts", "untagged", "noise"],
)
def test_strangers_are_sent_away(well: bow.depot.Depot, folder: str, said: bytes) -> None:
    """What is no hello ends the connection."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(WAIT)
        stranger.connect(f"{folder}/depot-5.sock")
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(1 << 16):
                pass


@pytest.mark.parametrize("said", [b"", b"BOW\x01"], ids=["nothing", "a little"])
def test_strangers_have_a_deadline(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """Who connects and does not say hello in time is sent away."""
    monkeypatch.setattr("bowstring.depot.service.DEPOT_LIMITS", DEPOT_LIMITS.replace(connect_timeout=0.2))
    with tempfile.TemporaryDirectory(prefix="bow-") as made:
        served = daemon.new_depot(launch.Paths(made), OPTIONS)
        try:
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(WAIT)
                stranger.connect(f"{made}/depot-5.sock")
                stranger.sendall(said)
                assert stranger.recv(1) == b""
        finally:
            served.stop()
            served.run()


def test_an_answer_that_waits_in_the_first_turn() -> None:
    """A request that waits in the first turn of its session, as what came before it, is answered in time."""
    asked: list[tuple[Verb, dict[str, Any]]] = [
        (Verb.HELLO, {"version": VERSION}),
        (Verb.BEGIN, BEGIN),
        (Verb.WAIT_RELEASED, {"dataset": "data", "timeout": 0.05}),
    ]
    with tempfile.TemporaryDirectory(prefix="bow-") as made:
        served = daemon.new_depot(launch.Paths(made), OPTIONS)
        try:
            with dial(f"unix:{made}/depot-5.sock") as channel:
                channel.send([Message(verb, [MESSAGES[verb][0].pack(said)]) for verb, said in asked], WAIT)
                tags = [getattr(channel.receive(WAIT), "tag", None) for _ in asked]
                assert tags == [Verb.DONE, Verb.DONE, Control.ERROR]
                channel.send([Message(Verb.LIST, [b""])], WAIT)
                assert getattr(channel.receive(WAIT), "tag", None) == Verb.DONE
        finally:
            served.stop()
            served.run()


@pytest.fixture
def client(well: bow.depot.Depot) -> Iterator[DepotConnection]:
    """Return a connection after its hello."""
    connection = DepotConnection(well.address, WAIT)
    yield connection
    connection.close()


REQUESTS: list[tuple[int, Any]] = [
    (Verb.BEGIN, {}),
    (Verb.BEGIN, BEGIN | {"partition": -1}),
    (Verb.BEGIN, BEGIN | {"attempt": 1 << 63}),
    (Verb.BEGIN, BEGIN | {"dataset": ""}),
    (Verb.BEGIN, BEGIN | {"dataset": "\ud800"}),
    (Verb.BEGIN, BEGIN | {"dataset": "x" * 5000}),
    (Verb.BEGIN, BEGIN | {"readers": True}),
    (Verb.BEGIN, BEGIN | {"mapped": "no list"}),
    (Verb.BORROW, {"nbytes": 1, "wanted": 0, "wait": 1}),
    (Verb.COMMIT, END),
    (Verb.HOLD, {"application": "a", "lease_seconds": float("inf")}),
    (Verb.HOLD, {"application": "a", "watch_pid": 0}),
    (Verb.SETTLE, {"dataset": "unknown", "tickets": []}),
    (Verb.SETTLE, {"dataset": "unknown", "tickets": [b"xyz"]}),
    (Verb.SETTLE, {"dataset": "unknown", "tickets": [], "ttl": "soon"}),
    (Verb.END, {"application": "a", "stays": ["x"]}),
    (Verb.END, {"application": "a", "stays": [b"x" * 17]}),
    (Verb.ANNOUNCE, {"name": "n", "application": "a", "dataset": "[]"}),
    (Verb.ANNOUNCE, {"name": "n", "application": "a", "dataset": "[]", "depots": "no list"}),
    (Verb.CHECK_NAME, {"name": "n", "application": "a", "new": 1}),
    (Verb.DROP, {}),
    (Verb.DROP, {"name": "unknown"}),
    (Verb.LOOKUP, {"name": 7}),
    (Verb.LISTEN, {"address": "unix:"}),
    (Verb.HELLO, {"version": VERSION}),
]


@pytest.mark.parametrize(("verb", "fields"), REQUESTS)
def test_senseless_requests_are_refused(
    well: bow.depot.Depot, client: DepotConnection, verb: int, fields: dict[str, Any]
) -> None:
    """A request that means nothing is answered with an error, or by the end of the connection."""
    with pytest.raises(bow.BowstringError):
        client.ask(verb, fields, WAIT)  # type: ignore[arg-type]
    assert well.status().datasets == ()


def begun(client: DepotConnection, nbytes: int = 1) -> None:
    """Begin an attempt that has borrowed a slab and said its schema."""
    client.ask(Verb.BEGIN, BEGIN, WAIT)
    close_all(client.ask(Verb.BORROW, {"nbytes": nbytes, "wanted": 0, "wait": 0}, WAIT).descriptors)
    client.tell(pack_part(encode_schema(TABLE.schema), np.zeros((0, 3), np.int64)))


def metadata() -> bytes:
    """Return what says that there is a batch of 100 numbers."""
    return bytes(pa.ipc.read_message(TABLE.to_batches()[0].serialize()).metadata)


GOOD = np.array([[0, 0, 0], [0, 64, 800]])


def told(more: list[list[int]]) -> np.ndarray[Any, Any]:
    """Return where the buffers lie, and a lie."""
    return GOOD + np.array(more)


LIES: dict[str, Callable[[], list[bytes]]] = {
    "another slab": lambda: pack_part(metadata(), told([[0, 0, 0], [1, 0, 0]])),
    "a slab below": lambda: pack_part(metadata(), told([[0, 0, 0], [-1, 0, 0]])),
    "behind the end": lambda: pack_part(metadata(), told([[0, 0, 0], [0, MIB - 800, 0]])),
    "far behind": lambda: pack_part(metadata(), told([[0, 0, 0], [0, (1 << 63) - 800, 0]])),
    "before the beginning": lambda: pack_part(metadata(), told([[0, 0, 0], [0, -128, 0]])),
    "not aligned": lambda: pack_part(metadata(), told([[0, 0, 0], [0, 3, 0]])),
    "another length": lambda: pack_part(metadata(), told([[0, 0, 0], [0, 0, 8]])),
    "too few buffers": lambda: pack_part(metadata(), GOOD[:1]),
    "no metadata": lambda: pack_part(b"", GOOD),
    "noise": lambda: pack_part(os.urandom(300), GOOD),
    "a second schema": lambda: pack_part(encode_schema(TABLE.schema), GOOD[:0]),
    "cut short": lambda: [b"".join(pack_part(metadata(), GOOD))[:-1]],
    "no head": lambda: [b"abc"],
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_what_was_written(well: bow.depot.Depot, client: DepotConnection, lie: str) -> None:
    """An attempt that says what cannot be is refused when it commits, and nothing of it is seen."""
    begun(client)
    client.tell(LIES[lie]())
    with pytest.raises(bow.BowstringError):
        client.ask(Verb.COMMIT, END, WAIT)
    assert well.offered("data") == ()


def test_the_truth_is_taken(well: bow.depot.Depot, client: DepotConnection) -> None:
    """What the lies differ from is committed: they are refused for what is wrong with them."""
    begun(client)
    client.tell(pack_part(metadata(), GOOD))
    client.ask(Verb.COMMIT, END | {"kept": np.array([0, 17, -5]).tobytes()}, WAIT)
    assert [each.num_rows for each in well.offered("data")] == [100]
    well.release("data")


@pytest.mark.parametrize("last", [3, 4, -1, 1 << 30])
def test_offsets_in_a_slab_are_looked_at(well: bow.depot.Depot, client: DepotConnection, last: int) -> None:
    """What lies in a slab is trusted as far as it cannot lead outside of a buffer."""
    batch = pa.record_batch({"s": ["a", "b", "c"]})
    client.ask(Verb.BEGIN, BEGIN, WAIT)
    (slab,) = client.ask(Verb.BORROW, {"nbytes": 1, "wanted": 0, "wait": 0}, WAIT).descriptors
    os.pwrite(slab, struct.pack("<4i", 0, 1, 2, last), 64)
    close_all((slab,))
    client.tell(pack_part(encode_schema(batch.schema), np.zeros((0, 3), np.int64)))
    table = np.array([[0, 0, 0], [0, 64, 16], [0, 128, 3]])
    client.tell(pack_part(bytes(pa.ipc.read_message(batch.serialize()).metadata), table))
    if last == len(batch):
        client.ask(Verb.COMMIT, END, WAIT)
        well.release("data")
    else:
        with pytest.raises(bow.InvalidData):
            client.ask(Verb.COMMIT, END, WAIT)


@given(data=st.binary(max_size=200))
def test_parts_of_noise(data: bytes) -> None:
    """Any bytes are parts, or refused."""
    try:
        parts = list(unpack_parts(data))
    except bow.ProtocolError:
        return
    assert b"".join(piece for part in parts for piece in pack_part(*part))[: len(data)] is not None
    assert sum(8 + len(metadata) + 24 * len(table) for metadata, table in parts) <= len(data)


@pytest.mark.parametrize("verb", [Verb.ABORT, Verb.COMMIT])
def test_no_numbers_of_slabs(well: bow.depot.Depot, client: DepotConnection, verb: Verb) -> None:
    """An attempt that ends with noise where the slabs are named that its writer keeps is over all the same."""
    begun(client)
    with pytest.raises(bow.BowstringError):
        client.ask(verb, END | {"kept": b"abc"}, WAIT)
    until(lambda: well.status().datasets == (), "the attempt is over")


def test_too_many_slabs(well: bow.depot.Depot, client: DepotConnection) -> None:
    """An attempt cannot borrow without end, and an amount without end is refused at once."""
    client.ask(Verb.BEGIN, BEGIN, WAIT)
    with pytest.raises(bow.OutOfBudget):
        client.ask(Verb.BORROW, {"nbytes": (1 << 63) - 1, "wanted": 0, "wait": 1e6}, WAIT)

    def borrow_on() -> None:
        for _ in range(1000):
            close_all(client.ask(Verb.BORROW, {"nbytes": MIB, "wanted": 0, "wait": 1e6}, WAIT).descriptors)

    with pytest.raises(bow.OutOfBudget):
        borrow_on()


def test_an_attempt_is_lent_so_many_slabs() -> None:
    """The bound on regions of a stream bounds what an attempt borrows."""
    attempt = BegunAttempt(
        APP, "data", partition=0, number=0, readers=None, folder="", limits=bow.Limits(regions=2)
    )
    region = Pool(budget=MIB).allocate(1).region
    assert [attempt.lend(region), attempt.lend(region)] == [0, 1]
    with pytest.raises(bow.LimitExceeded, match="too many"):
        attempt.lend(region)


def raw(folder: str) -> Channel:
    """Return a channel after the hello."""
    channel = dial(f"unix:{folder}/depot-5.sock")
    channel.send([Message(Verb.HELLO, [HELLO])], WAIT)
    assert channel.receive(WAIT) is not None
    return channel


def test_descriptors_are_not_taken(well: bow.depot.Depot, folder: str) -> None:
    """Whoever hands descriptors to the depot is sent away, and they are closed."""
    before = len(os.listdir(f"/proc/{well.status().pid}/fd"))
    with open(os.devnull, "rb") as file, raw(folder) as channel:
        channel.send([Message(Verb.STATUS, [b""], (file.fileno(),) * 50)], WAIT)
        received = channel.receive(WAIT)
        assert received is None or received.tag == Control.ERROR
    descriptors = f"/proc/{well.status().pid}/fd"
    until(lambda: len(os.listdir(descriptors)) <= before + 3, "they are closed")


def test_who_asks_twice_while_he_waits(well: bow.depot.Depot, folder: str) -> None:
    """A client that does not wait for its answer is sent away, and with it what it had."""
    commit(well, {"n": np.zeros(1 << 24)}, "large")
    with raw(folder) as channel:
        channel.send([Message(Verb.BEGIN, [MESSAGES[Verb.BEGIN][0].pack(BEGIN)])], WAIT)
        channel.receive(WAIT)
        wanted = Message(
            Verb.BORROW, [MESSAGES[Verb.BORROW][0].pack({"nbytes": 200 * MIB, "wanted": 0, "wait": 1e6})]
        )
        channel.send([wanted] * 3, WAIT)  # the first one is lent a file
        while (received := channel.receive(WAIT)) is not None and received.tag == Verb.DONE:
            close_all(received.attachments)
        assert received is not None
        assert received.tag == Control.ERROR
    well.release("large")


KINDS = ("number", "seconds", "flag", "name", "text", "long", "bytes", "list")
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 65), 1 << 65),
    st.floats(),
    st.text(st.characters() | st.sampled_from("\ud800\udbff\udc00\udfff"), max_size=20),
    st.binary(max_size=20),
    st.lists(st.binary(max_size=9) | st.text(max_size=9), max_size=4),
)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.booleans(), VALUES), max_size=6))
def test_a_record_says_what_was_put_in(values: list[tuple[str, bool, Any]]) -> None:
    """Values of any kinds arrive as they are, or are refused before they are sent."""
    fields = " ".join(f"v{at}:{kind}{'?' * optional}" for at, (kind, optional, _) in enumerate(values))
    record = Record(fields)
    said = {f"v{at}": value for at, (_, _, value) in enumerate(values)}
    try:
        packed = record.pack(said)
    except bow.ProtocolError:
        return
    got = record.unpack(packed)
    assert list(got) == list(said)
    for name, value in said.items():
        if isinstance(value, list):
            pieces = [each.encode() if isinstance(each, str) else each for each in value]
            assert got[name] == pieces
        else:
            assert got[name] == value
        assert isinstance(got[name], bool) is isinstance(value, bool)
    for wrong in (packed[:-1], packed + b"\0"):
        if wrong != packed:
            with pytest.raises(bow.ProtocolError):
                record.unpack(wrong)


@given(st.sampled_from([record for pair in MESSAGES.values() for record in pair]), st.binary(max_size=300))
def test_records_of_noise(record: Record, data: bytes) -> None:
    """Any bytes are a record, which says the same again, or are refused."""
    try:
        values = record.unpack(data)
    except bow.ProtocolError:
        return
    assert record.unpack(record.pack(values)) == values


@pytest.mark.parametrize("verb", [*Verb, 0xB2 << 56, 7 << 56])
def test_requests_of_noise(well: bow.depot.Depot, folder: str, verb: int) -> None:
    """A request of noise is refused by an error, or ends the connection, and the depot goes on."""
    for noise in (b"", b"x", os.urandom(200), b"\xff" * 256, bytes(200)):
        if verb == Verb.STOP and noise in (b"", b"\xff" * 256):
            continue  # not noise
        with raw(folder) as channel, contextlib.suppress(bow.BrokenError):
            channel.send([Message(verb, [noise])], WAIT)
            if verb == Verb.PARTS:
                channel.send([Message(verb, [noise])], WAIT)
            received = channel.receive(WAIT)
            assert received is not None
            assert received.tag == Control.ERROR or verb in (Verb.LIST, Verb.STATUS)
    assert well.status().datasets == ()


def test_a_foreign_error_is_told_in_words(well: bow.depot.Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no error of ours is told as a refusal that names it, and the depot goes on."""
    with tempfile.TemporaryDirectory(prefix="bow-") as made:
        served = daemon.new_depot(launch.Paths(made), OPTIONS)
        try:
            monkeypatch.setattr(served, "status", lambda: 1 // 0)
            with contextlib.closing(DepotConnection(served.paths.control, WAIT)) as client:
                with pytest.raises(bow.RefusedError, match="ZeroDivisionError"):
                    client.ask(Verb.STATUS, {}, WAIT)
                assert client.ask(Verb.LIST, {}, WAIT).fields == {"names": []}
        finally:
            served.stop()
            served.run()
