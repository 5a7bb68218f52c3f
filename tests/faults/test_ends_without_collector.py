"""Every way in which a session or a stream ends: what it held is free at once, by reference count alone."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.client.connection import Connection
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello, pack_u64
from bowstring.memory import Pool
from bowstring.server.session import Session
from bowstring.transport import Message
from bowstring.transport.inproc import InprocChannel
from bowstring.transport.sockets import StreamChannel
from tests.faults.conftest import LIMITS, WAIT
from tests.faults.tables import batch_of
from tests.peer.raw import RawReader, RawServer, SocketReader, close_messages, recorded
from tests.peer.wire import header
from tests.transport.certified import shown_at

QUICK = LIMITS.replace(heartbeat=0.05, close_timeout=0.3)
SHORT = QUICK.replace(connect_timeout=0.3, reply_timeout=0.3, stall_timeout=0.3, lease_timeout=0.2)
ROWS = 50_000
TABLE = pa.Table.from_batches([batch_of(number, ROWS) for number in range(16)])
TOKEN = "a token of many characters"


class World:
    """A server and its pool, a pool where readers land, and weak references to all that was made."""

    def __init__(self, address: str, made: list[weakref.ref[Any]]) -> None:
        self.address = address
        self.made = made
        self.pool = Pool(budget=96 << 20)
        self.landing = Pool(budget=96 << 20)
        self.server: bow.Server | None = None

    def serve(
        self, data: Any = TABLE, *, limits: bow.Limits = QUICK, token: str | None = None
    ) -> bow.Endpoint:
        """Publish something."""
        self.server = bow.Server(
            self.address, pool=self.pool, limits=limits, token=token, tls=shown_at(self.address)
        )
        return self.server.publish("t", data)

    def connect(self, endpoint: bow.Endpoint | str, limits: bow.Limits = QUICK, **more: Any) -> bow.Stream:
        """Read it."""
        options = bow.ConnectOptions(pool=self.landing)
        return bow.connect(endpoint, options=options, limits=limits, **more)


@pytest.fixture
def world(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a world whose collector sleeps; when the test has ended all in it must have gone by itself."""
    made: list[weakref.ref[Any]] = []

    def watch(cls: type) -> None:
        before: Callable[..., None] = next(
            vars(each)["__init__"] for each in cls.__mro__ if "__init__" in vars(each)
        )

        def init(self: Any, *args: Any, **more: Any) -> None:
            made.append(weakref.ref(self))
            before(self, *args, **more)

        monkeypatch.setattr(cls, "__init__", init)

    for cls in (Session, Connection, StreamChannel, InprocChannel):
        watch(cls)
    gc.collect()
    gc.disable()
    world = World(address, made)
    try:
        yield world
        server = world.server
        if server is not None:
            soon(lambda: server.stats.connections == 0, "sessions are left")
            server.close()
        soon(lambda: not [ref for ref in made if ref() is not None], "objects are left", made)
        soon(lambda: world.landing.stats.in_use == 0, "the reader's memory is held")
        soon(lambda: world.pool.stats.in_use == 0, "the producer's memory is held")
    finally:
        gc.enable()
        world.server = None
        world.landing.close()
        world.pool.close()


def soon(true: Callable[[], bool], what: str, made: list[weakref.ref[Any]] | None = None) -> None:
    """Wait until something is so, without a collection."""
    end = time.monotonic() + WAIT
    while not true():
        left = [ref() for ref in made or ()]
        assert time.monotonic() < end, f"{what}: {[each for each in left if each is not None]}"
        del left
        time.sleep(0.01)


def lazy() -> Iterator[pa.RecordBatch]:
    """Yield batches without end."""
    number = 0
    while True:
        yield batch_of(number, ROWS)
        number += 1


def failing() -> Iterator[pa.RecordBatch]:
    """Yield a batch, and fail."""
    yield batch_of(0, ROWS)
    raise ZeroDivisionError


# How streams end, as their reader sees it.


def read_to_its_end(world: World) -> None:
    with world.connect(world.serve()) as stream:
        assert sum(batch.num_rows for batch in stream) == TABLE.num_rows


def closed_at_once(world: World) -> None:
    world.connect(world.serve(lazy)).close()


def closed_in_the_middle(world: World) -> None:
    with world.connect(world.serve(lazy)) as stream:
        stream.read_next_batch()


def dropped(world: World) -> None:
    stream = world.connect(world.serve(lazy))
    stream.read_next_batch()
    del stream


def closed_by_another_thread(world: World) -> None:
    go_on = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield batch_of(0, ROWS)
        go_on.wait(WAIT)

    stream = world.connect(world.serve(slow))
    stream.read_next_batch()
    timer = threading.Timer(0.2, stream.close)
    timer.start()
    with pytest.raises(bow.ClosedError):
        stream.read_next_batch()
    timer.join(WAIT)
    go_on.set()


def the_producer_fails(world: World) -> None:
    with world.connect(world.serve(failing)) as stream, pytest.raises(bow.ProducerFailed):
        for _ in stream:
            pass


def unknown_ticket(world: World) -> None:
    uri = str(world.serve()).partition("&ticket")[0]
    with pytest.raises(bow.UnknownTicket):
        world.connect(uri, ticket=b"none")


def unknown_column(world: World) -> None:
    with pytest.raises(bow.UnknownColumn):
        world.connect(world.serve(), columns=["none"])


def wrong_token(world: World) -> None:
    endpoint = world.serve(token=TOKEN)
    with pytest.raises(bow.AccessDenied):
        world.connect(str(endpoint).replace("token=", "token=x"))


def starved(world: World) -> None:
    limits = QUICK.replace(window_bytes=1, outstanding_bytes=1)
    with world.connect(world.serve(lazy), limits) as stream:
        kept = [stream.read_next_batch()]
        with contextlib.suppress(bow.Starved):
            kept.append(stream.read_next_batch())
        del kept


def no_room_for_a_body(world: World) -> None:
    world.landing.close()
    world.landing = Pool(budget=1 << 20)
    ends = contextlib.suppress(bow.OutOfBudget, bow.DeadlineExceeded, bow.BrokenError)
    with ends, world.connect(world.serve(), SHORT) as stream:
        kept = list(stream)
        del kept


def read_all(stream: bow.Stream) -> None:
    """Read what is left of a stream, and keep nothing of it: a lease would keep the connection."""
    for batch in stream:
        del batch


def the_server_closes(world: World) -> None:
    stream = world.connect(world.serve(lazy))
    stream.read_next_batch()
    assert world.server is not None
    world.server.close()
    with pytest.raises(bow.BowstringError):
        read_all(stream)
    stream.close()
    world.server = None


def a_silent_producer(world: World) -> None:
    with RawServer(world.address, []) as server, pytest.raises(bow.DeadlineExceeded):
        world.connect(server.uri, SHORT)


def replayed(
    change: Callable[[list[Message]], list[Message]],
    *,
    hang_up: bool = True,
    claim: tuple[int, int, int] | None = None,
) -> Callable[[World], None]:
    """Return what reads a recorded stream that was changed, and maybe the beginning of one more message."""

    def read(world: World) -> None:
        if world.address == "inproc:":
            pytest.skip("regions cannot be replayed, and messages come whole")
        messages = recorded(world.serve())
        try:
            with RawServer(world.address, change(messages), hang_up=hang_up, claim=claim) as server:
                refused = pytest.raises(bow.BowstringError)
                with refused, world.connect(server.uri, SHORT) as stream:
                    read_all(stream)
                del refused
        finally:
            close_messages(messages)

    return read


def a_data_set_that_fails(world: World) -> None:
    endpoint = world.serve()
    assert world.server is not None
    other = world.server.publish("failing", failing, schema=TABLE.schema)
    dataset = bow.Dataset((endpoint, other), TABLE.schema)
    with (
        pytest.raises(bow.ProducerFailed),
        bow.connect(dataset, options=bow.ConnectOptions(pool=world.landing), limits=QUICK) as stream,
    ):
        for _ in stream:
            pass


# How sessions end, as their server sees it.


def raw(
    say: Callable[[RawReader], None], data: Any = TABLE, limits: bow.Limits = QUICK
) -> Callable[[World], None]:
    """Return what has a reader say something and then go."""

    def read(world: World) -> None:
        with RawReader(world.serve(data, limits=limits)) as reader, contextlib.suppress(bow.BowstringError):
            say(reader)

    return read


def wanting(reader: RawReader) -> None:
    reader.hello()
    reader.want()


def greeted(reader: RawReader) -> None:
    reader.hello()


def until_refused(
    say: Callable[[RawReader], None], tag: int | None = None, body: bytes = b""
) -> Callable[[RawReader], None]:
    """Return what says something wrong, and waits until the server hangs up."""

    def wrong(reader: RawReader) -> None:
        say(reader)
        if body or tag:
            reader.say(tag, body)
        reader.hear_error()

    return wrong


def takes_nothing(reader: RawReader) -> None:
    """Ask for everything, and take nothing of it until the server gives up."""
    wanting(reader)
    threading.Event().wait(1.0)
    assert reader.channel is not None


def inside_a_header(world: World) -> None:
    if not world.address.startswith("inproc:"):
        with SocketReader(world.serve(TABLE, limits=QUICK)) as reader:
            wanting(reader)
            reader.push(header(Control.CREDIT, 8)[:10])


def read_and_gone(reader: RawReader) -> None:
    wanting(reader)
    reader.hear_all()


def read_and_silent(reader: RawReader) -> None:
    wanting(reader)
    reader.hear_all()
    reader.hear_error()


def nothing(_: RawReader) -> None:
    """Say nothing."""


ENDS: dict[str, Callable[[World], None]] = {
    "read to its end": read_to_its_end,
    "closed at once": closed_at_once,
    "closed in the middle": closed_in_the_middle,
    "dropped": dropped,
    "closed by another thread": closed_by_another_thread,
    "the producer fails": the_producer_fails,
    "unknown ticket": unknown_ticket,
    "unknown column": unknown_column,
    "wrong token": wrong_token,
    "starved": starved,
    "no room for a body": no_room_for_a_body,
    "the server closes": the_server_closes,
    "a silent producer": a_silent_producer,
    "cut after the schema": replayed(lambda messages: messages[:2]),
    "cut after a body": replayed(lambda messages: messages[:-3]),
    "no end": replayed(lambda messages: messages[:-1]),
    "silent after a body": replayed(lambda messages: messages[:-3], hang_up=False),
    "garbage": replayed(lambda messages: [*messages[:-4], Message(None, [b"\1garbage"])]),
    "another body": replayed(lambda messages: [*messages[:-4], Message(7 << 56, [b"x"])]),
    "an error": replayed(lambda messages: [*messages[:-4], Message(Control.ERROR, [b"{}"])]),
    "cut inside a body": replayed(lambda messages: messages[:2], claim=(0, 1 << 20, 1000)),
    "stalled inside a body": replayed(lambda messages: messages[:2], hang_up=False, claim=(0, 1 << 20, 1000)),
    "a data set that fails": a_data_set_that_fails,
    "reader: says nothing and goes": raw(nothing),
    "reader: says nothing": raw(until_refused(nothing), limits=SHORT),
    "reader: hello and goes": raw(greeted),
    "reader: hello alone": raw(until_refused(greeted), limits=SHORT),
    "reader: bad hello": raw(until_refused(nothing, Want.HELLO, b"{")),
    "reader: hello twice": raw(until_refused(greeted, Want.HELLO, Hello().pack())),
    "reader: unknown tag": raw(until_refused(wanting, (0xB0 << 56) | 99)),
    "reader: false credit": raw(until_refused(wanting, Control.CREDIT, pack_u64(1 << 50))),
    "reader: a body": raw(until_refused(wanting, 1, b"body")),
    "reader: too long": raw(until_refused(nothing, Want.DATA, bytes(5000))),
    "reader: asks and goes": raw(wanting),
    "reader: asks for lazy data and goes": raw(wanting, lazy),
    "reader: takes nothing": raw(takes_nothing, lazy, SHORT),
    "reader: takes nothing of a table": raw(takes_nothing, TABLE, SHORT),
    "reader: goes inside a header": inside_a_header,
    "reader: reads all and goes": raw(read_and_gone),
    "reader: reads all and answers no more": raw(read_and_silent, limits=SHORT),
}


@pytest.mark.parametrize("end", list(ENDS))
def test_what_ends_is_gone(world: World, end: str) -> None:
    """However a session or a stream ends, what it held is free by reference count, on both sides."""
    ENDS[end](world)


def test_an_error_that_is_kept_keeps_no_stream(world: World) -> None:
    """Who keeps the error of a stream that failed, without its traceback, keeps nothing of the stream."""
    kept: list[BaseException] = []
    stream = world.connect(world.serve(failing))
    try:
        while True:
            stream.read_next_batch()
    except bow.ProducerFailed as error:
        kept.append(error.with_traceback(None))
    stream.close()
    del stream
    assert isinstance(kept[0], bow.ProducerFailed)
