"""Readers that break the protocol: they are told, lose their connection, and disturb nobody else."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.tags import Control, Want, body_tag
from bowstring.dissociated.wire import Hello, pack_u64
from bowstring.transport import Message
from tests.faults.conftest import LIMITS, WAIT, until
from tests.faults.tables import table_of
from tests.peer.raw import RawReader, SocketReader
from tests.peer.wire import Frame

Say = Callable[[RawReader], None]


def opened(reader: RawReader) -> None:
    """Ask for everything and hear it all."""
    reader.hello()
    reader.want()
    reader.hear_all()


def freeing(numbers: list[int]) -> bytes:
    """Return a message that frees addresses."""
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def double_free(reader: RawReader) -> None:
    opened(reader)
    reader.free(reader.addresses()[:2])
    reader.free(reader.addresses()[:1])


def free_all_and_one(reader: RawReader) -> None:
    opened(reader)
    reader.free([*reader.addresses(), reader.addresses()[0]])


def after(what: Say, tag: int | None, body: bytes = b"") -> Say:
    """Return a function that does something, and then says something."""

    def say(reader: RawReader) -> None:
        what(reader)
        reader.say(tag, body)

    return say


def asked(reader: RawReader) -> None:
    """Ask for everything, and hear the welcome."""
    reader.hello()
    reader.want()
    reader.hear()


def greeted(reader: RawReader) -> None:
    reader.hello()


def nothing(reader: RawReader) -> None:
    """Say nothing."""


def wanting(reader: RawReader) -> None:
    reader.want()


FAULTS: dict[str, Say] = {
    "free unknown": after(opened, Want.FREE, freeing([4096])),
    "free zero": after(opened, Want.FREE, freeing([0])),
    "free the largest": after(opened, Want.FREE, freeing([2**64 - 1])),
    "free nothing": after(opened, Want.FREE, b""),
    "free seven bytes": after(opened, Want.FREE, bytes(7)),
    "free before asking": after(greeted, Want.FREE, freeing([4096])),
    "free twice": double_free,
    "free all and one again": free_all_and_one,
    "credit never held": after(opened, Control.CREDIT, pack_u64(1 << 50)),
    "credit of seven bytes": after(opened, Control.CREDIT, bytes(7)),
    "window of nine bytes": after(opened, Control.WINDOW, bytes(9)),
    "ask twice": after(asked, Want.DATA, b"t"),
    "ask for bodies, too": after(asked, Want.BODIES, b"t"),
    "ask, then hello": after(wanting, Want.HELLO, Hello().pack()),
    "hello twice": after(greeted, Want.HELLO, Hello().pack()),
    "hello is not JSON": after(nothing, Want.HELLO, b"{"),
    "hello is a list": after(nothing, Want.HELLO, b"[]"),
    "hello is deep": after(nothing, Want.HELLO, b"[" * 100_000),
    "hello without version": after(nothing, Want.HELLO, b"{}"),
    "hello with half a character": after(nothing, Want.HELLO, b'{"version": "\\ud800"}'),
    "hello with a huge number": after(
        nothing, Want.HELLO, b'{"version": 1, "window": 1' + b"0" * 5000 + b"}"
    ),
    "hello is not text": after(nothing, Want.HELLO, b"\xff\xfe\x00"),
    "columns of numbers": after(nothing, Want.HELLO, b'{"version": 1, "columns": [1]}'),
    "negative window": after(nothing, Want.HELLO, b'{"version": 1, "window": -1}'),
    "a huge ticket": after(greeted, Want.DATA, bytes(5000)),
    "a ticket beyond the bound": after(greeted, Want.DATA, bytes(300_000)),
    "untagged": after(asked, None, b"\1\0\0\0\0"),
    "a body": after(asked, body_tag(1, 0), b"body"),
    "a body of pointers": after(asked, body_tag(1, 1), bytes(16)),
    "a huge body": after(asked, body_tag(1, 0), bytes(1 << 20)),
    "as a server": after(asked, Control.WELCOME, b"{}"),
    "an unknown tag": after(asked, (0xB0 << 56) | 99, b""),
    "reserved bits": after(asked, 1 << 40, b""),
}


# The session is the same on all transports; these are the faults that the others could treat in another way.
ELSEWHERE = (
    "free unknown",
    "credit never held",
    "a huge body",
    "untagged",
    "ask twice",
    "a ticket beyond the bound",
)


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        *(("unix:", fault) for fault in FAULTS),
        *(("tcp://127.0.0.1:0", fault) for fault in ELSEWHERE),
        *(("inproc:", fault) for fault in ELSEWHERE),
    ],
)
def test_a_reader_breaks_the_protocol(serve: Callable[..., bow.Server], address: str, fault: str) -> None:
    """A reader that says what it may not is told why or cut off, and the next reader is served as ever."""
    server = serve(address)
    endpoint = server.publish("t", table_of())
    with RawReader(endpoint) as reader:
        try:
            FAULTS[fault](reader)
            error = reader.hear_error()
        except bow.BrokenError:  # it was cut off while it still spoke
            error = b""
        if error:
            said = json.loads(error)
            assert said["code"] in ("protocol", "limit_exceeded", "broken"), said
            assert said["what"]
    until(lambda: server.stats.connections == 0, "the session ends")
    with bow.connect(endpoint, limits=LIMITS) as stream:
        assert stream.read_all().equals(table_of())


def test_done_before_the_end(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that says it read everything before it could is no reader of the data set."""
    server = serve(address)
    endpoint = server.publish("t", (each for each in table_of(50).to_batches()), schema=table_of().schema)
    with RawReader(endpoint) as reader:
        reader.hello(window=1)
        reader.want()
        reader.hear()
        reader.say(Control.DONE)
        assert b"protocol" in reader.hear_error()
    until(lambda: server.stats.lost == 1, "the session ends")
    assert server.stats.readers == 0


@pytest.mark.parametrize("step", ["before the hello", "with the ticket", "after everything"])
def test_descriptors_that_nobody_asked_for(serve: Callable[..., bow.Server], step: str) -> None:
    """File descriptors that a reader attaches to its messages are closed, and so is its connection."""
    server = serve("unix:")
    endpoint = server.publish("t", table_of())
    with RawReader(endpoint) as reader:
        if step == "before the hello":
            reader.say(Control.PING, b"", 0, 1, 2)
        else:
            reader.hello()
            reader.say(Want.DATA, endpoint.ticket, *((0, 1, 2) if step == "with the ticket" else ()))
        if step == "after everything":
            reader.hear_all()
            reader.say(Control.PONG, b"", 0, 1, 2)
        reader.hear_error()
    until(lambda: server.stats.connections == 0, "the session ends")
    with bow.connect(endpoint, limits=LIMITS) as stream:
        assert stream.read_all().equals(table_of())


@pytest.mark.parametrize("seed", range(6))
def test_random_bytes(serve: Callable[..., bow.Server], between_processes: str, seed: int) -> None:
    """Whatever bytes come to the socket, the server goes on serving others."""
    chosen = random.Random(seed)
    server = serve(between_processes)
    endpoint = server.publish("t", table_of())
    for _ in range(10):
        with SocketReader(endpoint) as reader:
            try:
                if seed % 2:
                    reader.hello()
                    reader.want()
                noise = chosen.randbytes(chosen.randrange(1, 2000))
                begin = b"BOW\1\1\0\0\0" if seed % 3 else b""
                reader.push(begin + noise)
                reader.end_sending()
                reader.hear_error()
            except (bow.BowstringError, OSError):
                continue
    until(lambda: server.stats.connections == 0, "the sessions end")
    with bow.connect(endpoint, limits=LIMITS) as stream:
        assert stream.read_all().equals(table_of())


def test_who_asks_too_late(serve: Callable[..., bow.Server], address: str) -> None:
    """Connections that say nothing, or nothing but hello, are turned away after a while."""
    server = serve(address, limits=LIMITS.replace(connect_timeout=0.3))
    endpoint = server.publish("t", table_of())
    with RawReader(endpoint) as silent, RawReader(endpoint) as polite:
        polite.hello()
        assert b"in time" in polite.hear_error()
        silent.hear_error()
    until(lambda: server.stats.connections == 0, "the sessions end")


def test_too_many_connections(serve: Callable[..., bow.Server], address: str) -> None:
    """Connections beyond the bound are turned away, and those that are there are served."""
    server = serve(address, limits=LIMITS.replace(connections=2))
    endpoint = server.publish("t", table_of())
    with RawReader(endpoint) as one:
        one.hello()
        one.want()
        one.hear()
        with bow.connect(endpoint, limits=LIMITS) as stream:
            refused = pytest.raises(bow.BrokenError, match=r"Limits\.connections")
            with refused, bow.connect(endpoint, limits=LIMITS):
                pass
            assert server.stats.refused == 1
            assert stream.read_all().equals(table_of())
            one.hear_all()


def test_a_flood_of_questions(serve: Callable[..., bow.Server], address: str) -> None:
    """A reader that asks without listening to the answers blocks itself, and nobody else."""
    server = serve(address, limits=LIMITS.replace(stall_timeout=0.5, lease_timeout=0.5))
    endpoint = server.publish("t", table_of())
    with RawReader(endpoint) as rude:
        rude.hello()
        rude.want()
        try:
            for _ in range(50):
                rude.channel.send([Message(Control.PING)] * 200, 0.2)
        except bow.BowstringError:
            pass
        with bow.connect(endpoint, limits=LIMITS) as stream:
            assert stream.read_all().equals(table_of())
    until(lambda: server.stats.connections == 0, "the sessions end")


def test_a_flood_of_questions_fills_no_memory(serve: Callable[..., bow.Server]) -> None:
    """However much a reader asks that takes no answers, the server keeps no more for it than it did before."""
    server = serve("unix:", limits=LIMITS)
    with SocketReader(server.publish("t", table_of())) as rude:
        opened(rude)
        questions = Frame.of(Control.PING, b"").data * 1000
        rude.push(questions)  # whose answers fill its socket
        tracemalloc.start()
        try:
            for _ in range(20):
                rude.push(questions)
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert grown < 1 << 20


def test_much_at_once_is_heard_at_once(serve: Callable[..., bow.Server], between_processes: str) -> None:
    """However many messages of a reader come together, the server waits for nothing before it heard them all."""
    server = serve(between_processes, limits=LIMITS.replace(heartbeat=100 * WAIT))
    with SocketReader(server.publish("t", table_of())) as reader:
        reader.sock.settimeout(WAIT)
        opened(reader)
        reader.push(Frame.of(Control.PING, b"").data * 300 + Frame.of((0xB0 << 56) | 99, b"").data)
        assert reader.hear_error()
        until(lambda: server.stats.connections == 0, "the session ends")


def test_who_hangs_up_inside_an_answer(serve: Callable[..., bow.Server]) -> None:
    """A reader that hangs up before it took all that it asked for leaves nothing behind, at once."""
    server = serve("unix:", limits=LIMITS)
    schema = pa.schema([(f"column {number}", pa.int64()) for number in range(1000)])
    for number in range(40):
        endpoint = server.publish(f"{number}", lambda: iter(()), schema=schema)
    with SocketReader(endpoint) as reader:
        reader.hello()
        reader.say(Control.LIST)
        reader.channel.receive(WAIT)
    until(lambda: server.stats.connections == 0, "the session ends", WAIT / 4)


@pytest.mark.parametrize("ticket", ["unknown", "withdrawn", "another server's"])
def test_tickets_that_mean_nothing(serve: Callable[..., bow.Server], address: str, ticket: str) -> None:
    """A ticket that the server never gave, or takes back, is UnknownTicket at once."""
    server = serve(address)
    endpoint = server.publish("t", table_of())
    uri = str(endpoint).partition("&ticket")[0]
    if ticket == "withdrawn":
        server.withdraw("t")
    said = {"unknown": b"t#0", "withdrawn": endpoint.ticket, "another server's": b"\xff" * 100}[ticket]
    with pytest.raises(bow.UnknownTicket):
        bow.connect(uri, said, limits=LIMITS)
