"""A wire: one connection of a stream, as its reader has it, with a place for packed bodies to land."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from bowstring.dissociated.reader import opening
from bowstring.dissociated.sequence import numbered
from bowstring.dissociated.tags import PACKED, is_packed, split_body_tag
from bowstring.dissociated.wire import PREFIX_BYTES, Hello
from bowstring.errors import (
    AccessDenied,
    BrokenError,
    DeadlineExceeded,
    ForkedError,
    LimitExceeded,
    MissingDependency,
    OutOfBudget,
    without_frames,
)
from bowstring.memory import this_process
from bowstring.transport import dial
from bowstring.transport.framing import as_messages, lazy_memory
from bowstring.transport.scatter_read import Rows, cut

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from bowstring.dissociated.endpoint import Endpoint, Location, Offer
    from bowstring.dissociated.reader import ReaderProtocol
    from bowstring.dissociated.wire import Outgoing
    from bowstring.limits import Limits
    from bowstring.memory import Allocator, Buffer, Pool
    from bowstring.memory.buffer import PrivateMemory
    from bowstring.transport import Channel
    from bowstring.transport.certificates import TlsConfig

__all__ = ["Opened", "Run", "Runs", "Wire", "first_that_opens", "note_turned_away", "open_wires"]

_T = TypeVar("_T")

_LOOK: Final = 0.01


class Wire:
    """Receives messages of one channel; bodies of type 0 come as buffers of the reader's pool.

    Attributes
    ----------
    heard
        When the peer last said something, on the monotonic clock.
    expect
        Refuses a packed body, by tag and length, before there is memory for it.
    over
        Whether the peer has closed it, and the stream goes on without it.
    """

    def __init__(self, channel: Channel, allocator: Allocator | PrivateMemory) -> None:
        self.channel = channel
        self._allocator = allocator
        self._landing = False
        self._runs = Runs(channel, allocator)
        self.heard = time.monotonic()
        self.expect: Callable[[int, int], None] | None = None
        self.over = False

    @property
    def busy(self) -> bool:
        """Whether a body is landing just now; the transport's own deadline watches over it."""
        return self._landing or self._runs.landing

    @property
    def begun(self) -> bool:
        """Whether a body has begun to land whose rest `receive_run` must have before anything else can come."""
        return self._runs.begun

    def receive(self, idle: float) -> tuple[int | None, Any, tuple[Any, ...]] | None:
        """Return (tag, body, attachments) of the next message, or ``None`` after `idle` seconds of silence."""
        try:
            received = self.channel.receive(idle, self._land)
            if received is None:
                return None
            self.heard = time.monotonic()
            self._runs.note(received.tag, received.body.nbytes)
            return received.tag, received.body, received.attachments
        finally:
            self._landing = False

    def receive_run(self, idle: float) -> Run | None:
        """Return many messages at once, where they were foreseen and are there; else `receive` has the next one.

        The rest of a body is waited for, unless `idle` is 0.
        """
        run = self._runs.receive(idle)
        if run is not None:
            self.heard = time.monotonic()
        return run

    def _land(self, tag: int, nbytes: int) -> Any:
        if not is_packed(tag):
            # Addresses of buffers are metadata, though they come as a body.
            if nbytes > self.channel.limits.metadata_bytes:
                raise LimitExceeded(
                    "a body of pointers is too long",
                    expected=self.channel.limits.metadata_bytes,
                    found=nbytes,
                )
            return lazy_memory(nbytes)
        if self.expect is not None:
            self.expect(tag, nbytes)
        buffer = self._room(nbytes)
        self._landing = True
        return buffer

    def _room(self, nbytes: int) -> Buffer:
        """Take memory for a body, waiting for the user to let some go; the peer waits as long."""
        give_up = time.monotonic() + self.channel.limits.stall_timeout / 2
        while True:
            try:
                return self._allocator.allocate(nbytes)
            except OutOfBudget:
                self._runs.forget_memory()  # something else came than what it is for
                if time.monotonic() > give_up or self.channel.closed:
                    raise
                time.sleep(_LOOK)

    def read_remote(
        self, nbytes: int, offsets: Sequence[int], reads: Sequence[tuple[bytes, int, int]]
    ) -> Buffer:
        """Read memory of the server's into one buffer of the reader's pool.

        Parameters
        ----------
        nbytes
            The length of the buffer.
        offsets
            Where in it each part goes.
        reads
            Key, address of the server's and number of bytes of each part.
        """
        buffer = self._room(nbytes)
        region = buffer.region
        region.prepare(buffer.offset + nbytes)
        self._landing = True
        try:
            places = [region.address + buffer.offset + offset for offset in offsets]
            self.channel.read_remote(reads, places)
        finally:
            self._landing = False
        self.heard = time.monotonic()
        return buffer

    def forget(self) -> None:
        """Let go of the memory that the next body would have landed in."""
        self._runs.forget_memory()
        self._allocator.reset()

    def send(self, outgoing: Sequence[Outgoing], deadline: float) -> None:
        """Send messages; nothing moves for at most `deadline` seconds."""
        self.channel.send(as_messages(outgoing, self.channel), deadline)


class Opened(NamedTuple):
    """The connections of a stream, metadata first.

    Attributes
    ----------
    wires, locations
        One or two.
    passed_over
        Why better offers of the endpoint were not taken, in words; empty where there was none.
    """

    wires: list[Wire]
    locations: tuple[Location, ...]
    passed_over: str


def open_wires(
    endpoint: Endpoint,
    hello: Hello,
    pool: Pool | PrivateMemory,
    limits: Limits,
    tls: TlsConfig | ssl.SSLContext | None = None,
    dialled: Callable[[Channel], None] | None = None,
) -> Opened:
    """Connect to the best offer of an endpoint that works, and ask for the data set on each of its connections.

    What is dialled is told to `dialled`, which may raise.

    Raises
    ------
    BrokenError, DeadlineExceeded, AccessDenied
        No server can be reached: the error of the last one, with what is wrong with the others.
    """
    candidates = endpoint.candidates()
    passed_over = [f"{each.address}: {each.why_not()}" for each in _better(endpoint, candidates[0])]
    return first_that_opens(
        candidates,
        lambda offer: _open(offer, endpoint.ticket, hello, pool, limits, passed_over, tls, dialled),
        passed_over,
    )


def first_that_opens(offers: Sequence[Offer], open_: Callable[[Offer], _T], passed_over: list[str]) -> _T:
    """Return what the first offer gives that works; `passed_over` takes what is wrong with those before it.

    Raises
    ------
    BrokenError, DeadlineExceeded, AccessDenied
        None works: the error of the last one, with what is wrong with the others.
    """
    for offer in offers[:-1]:
        try:
            return open_(offer)
        except (AccessDenied, BrokenError, DeadlineExceeded, ForkedError, MissingDependency) as error:
            passed_over.append(f"{offer.address}: {without_frames(error).what}")
    try:
        return open_(offers[-1])
    except (AccessDenied, BrokenError, DeadlineExceeded) as error:
        if passed_over:
            error.hint = "; ".join([*([error.hint] if error.hint else []), *passed_over])
        raise


def _better(endpoint: Endpoint, taken: Offer) -> Iterator[Offer]:
    return itertools.takewhile(lambda each: each != taken, endpoint.offers)


def _open(
    offer: Offer,
    ticket: bytes,
    hello: Hello,
    pool: Pool | PrivateMemory,
    limits: Limits,
    passed_over: Sequence[str],
    tls: TlsConfig | ssl.SSLContext | None,
    dialled: Callable[[Channel], None] | None,
) -> Opened:
    allocator = pool.allocator(prepare=False)
    locations = offer.locations
    wires: list[Wire] = []
    try:
        for location in locations:
            channel = dial(location.address, limits, limits.connect_timeout, tls=tls)
            wires.append(Wire(channel, allocator))
            if dialled is not None:
                dialled(channel)
            place = this_process().place if hello.pointers and channel.passes_memory else None
            wires[-1].send(_opening(location, bytes(ticket), hello, place), limits.connect_timeout)
    except BaseException as error:
        for wire in wires:
            wire.channel.close()
        if wires:
            note_turned_away(error)
        raise
    return Opened(wires, locations, "; ".join(passed_over))


def note_turned_away(error: BaseException) -> None:
    """Say what it may mean that a server hangs up before its first answer."""
    if type(error) is BrokenError and not error.hint:
        error.hint = (
            "The server may have ended, or serve as many readers as it takes (Limits.connections of its own)."
        )


def _opening(location: Location, ticket: bytes, hello: Hello, place: str | None) -> list[Outgoing]:
    """Return what is said first; `place` is where memory can be mapped, if it can."""
    maps = place is not None
    said = Hello(
        hello.columns,
        hello.window,
        pointers=maps,
        token=location.token,
        ipc=place,
        tries=maps,
        events=maps and hello.events,
        shard=hello.shard,
    )
    return opening(location, ticket, said)


# Each call finds the processor's caches full of the bodies of the one before: in calls of 1 MiB the Python of a
# batch of 64 KiB took twice as long.
_BLOCK: Final = 4 << 20
_LARGEST: Final = 1 << 20
_FEWEST: Final = 4
_GROWTH: Final = 4
_MOST: Final = 256
_ALIGNMENT: Final = 64
_WORTH: Final = 32
_MOST_PATIENCE: Final = 4096
# How often as many pairs as may come at once are foreseen together: each time costs as much as some of them.
_WINDOW: Final = 4


class Run(NamedTuple):
    """Pairs of an untagged message and a packed body, in the order in which they came.

    Attributes
    ----------
    messages : ndarray of uint8, shape (pairs, bytes)
    tags : ndarray of uint64, shape (pairs,)
    bodies
        The bodies, one behind the other.
    body
        Bytes of each.
    first, metadata
        Where all pairs have the same metadata, and are numbered one after the other: the first number, and that.
    """

    messages: npt.NDArray[np.uint8]
    tags: npt.NDArray[np.uint64]
    bodies: Buffer
    body: int
    first: int = -1
    metadata: bytes | None = None

    def in_order(self, protocol: ReaderProtocol) -> bool:
        """Whether these are surely the next parts of a stream, all of them."""
        if self.metadata is not None:
            return protocol.awaits(self.first, len(self.tags))
        return protocol.foreseen(self.messages, self.tags)

    def pair(self, index: int) -> tuple[memoryview, int, Buffer]:
        """Return one pair as it would have come by itself: the message, the tag and the body."""
        message = memoryview(self.messages[index].tobytes())
        return message, int(self.tags[index]), self.bodies.slice(index * self.body, self.body)


class _Ahead:
    """Pairs that would come next if all went on as it did: of the same metadata as the last one.

    Parameters
    ----------
    rows
        Compares what comes with them.
    message : ndarray of uint8, shape (bytes,)
        The last untagged message.
    count
        How many to foresee.
    """

    def __init__(self, rows: Rows, message: npt.NDArray[np.uint8], count: int) -> None:
        self._messages, self._tags = numbered(message, count)
        self._metadata = message[PREFIX_BYTES:].tobytes()
        self._first = split_body_tag(int(self._tags[0]))[0]
        self._at = 0
        self._rows = rows
        rows.say(self._messages, self._tags)

    @property
    def left(self) -> int:
        """How many have not come yet."""
        return len(self._tags) - self._at

    def run(self, bodies: Buffer, count: int, body: int) -> Run:
        """Return the first of them, which have come."""
        begin, end = self._at, self._at + count
        self._at = end
        self._rows.passed(count)
        pairs = self._messages[begin:end], self._tags[begin:end]
        return Run(*pairs, bodies, body, self._first + begin, self._metadata)


class Runs:
    """What comes over one connection, as far as it can be foreseen.

    Parameters
    ----------
    channel
        The connection.
    allocator
        Where bodies land.
    """

    def __init__(self, channel: Channel, allocator: Allocator | PrivateMemory) -> None:
        self._channel = channel
        self._allocator = allocator
        self._untagged = -1
        self._last = (-1, -1)
        self._rows: Rows | None = None
        self._block: Buffer | None = None
        self._places: list[memoryview] = []
        self._used = self._next = 0
        self._turns = self._pause = 0
        self._patience = _WORTH
        self._ahead: _Ahead | None = None
        self._metadata = b""

    @property
    def landing(self) -> bool:
        """Whether the rest of a body is waited for."""
        return self._rows is not None and self._rows.landing

    @property
    def begun(self) -> bool:
        """Whether a body has begun to land, and its rest must come first."""
        return self._rows is not None and self._rows.begun > 0

    def note(self, tag: int | None, nbytes: int) -> None:
        """Take note of a message that came by itself: two pairs that look alike let others be foreseen."""
        if not self._channel.takes_rows:
            return
        if tag is None:
            self._untagged = nbytes
        elif is_packed(tag):
            pair, self._untagged = (self._untagged, nbytes), -1
            if self._pause:
                self._pause -= 1
            elif pair != self._last:
                if self._rows is not None:
                    self._disappointed()
                self.forget()
                self._last = pair
            elif self._rows is None:
                self._foresee(*pair)

    def _disappointed(self) -> None:
        """Foresee nothing for a while, if it was hardly worth it: what else came had to be put back, and copied."""
        if self._turns < _WORTH:
            self._pause, self._patience = self._patience, min(2 * self._patience, _MOST_PATIENCE)
        else:
            self._patience = _WORTH
        self._turns = 0

    def _foresee(self, untagged: int, body: int) -> None:
        if not 0 < body <= _LARGEST or body % _ALIGNMENT or untagged <= 0:
            return
        count = max(_FEWEST, min(_BLOCK // body, _MOST))
        if Rows.suits(untagged, count):
            self._rows = Rows(untagged, body, PACKED, count)
            self._next = _FEWEST * body

    def receive(self, idle: float) -> Run | None:
        """Return what was foreseen and is there; ``None`` if that is nothing.

        Where something is foreseen and nothing at all is there, that is waited for, at most `idle` seconds.

        Raises
        ------
        BowstringError
            As :meth:`bowstring.transport.Channel.receive_rows`.
        """
        rows = self._rows
        if rows is None or self._untagged >= 0 or not self._room(rows.body):
            return None
        block, used = self._block, self._used
        count = self._channel.receive_rows(rows, self._places[used:], idle)
        if not count or block is None:  # without memory: the stream is over
            return None
        bodies = block.slice(used * rows.body, count * rows.body)
        self._used += count
        self._turns += count
        return self._run(rows, bodies, count)

    def _run(self, rows: Rows, bodies: Buffer, count: int) -> Run:
        """Return what has come, and foresee more where that is always the same."""
        ahead = self._ahead
        if rows.as_said and ahead is not None:
            run = ahead.run(bodies, count, rows.body)
            if ahead.left < rows.most:
                self._ahead = _Ahead(rows, run.messages[-1], _WINDOW * rows.most)
            return run
        run = Run(rows.messages(count), rows.tags(count), bodies, rows.body)
        last = run.messages[-1]
        before, self._metadata = self._metadata, last[PREFIX_BYTES:].tobytes()
        # Not where it differs from batch to batch: then nothing that is said comes true.
        self._ahead = _Ahead(rows, last, rows.most) if self._metadata == before else None
        return run

    def _room(self, body: int) -> bool:
        """Have room for one body at least; false where others must let some go before."""
        if self._used >= len(self._places):
            self.forget_memory()
            try:
                self._block = block = self._allocator.allocate(self._next)
            except OutOfBudget:
                # Whoever takes one body after the other waits for room, and needs less of it.
                self.forget()
                self._pause = self._patience
                return False
            block.region.prepare(block.offset + block.nbytes)
            array: Any = block.region.array(block.offset, block.nbytes, writable=True)
            self._places = cut(memoryview(array), body)
            # A short stream takes no more than it needs.
            self._next = max(self._next, min(_GROWTH * self._next, _BLOCK // body * body))
        return True

    def forget(self) -> None:
        """Foresee nothing more."""
        self._last, self._rows, self._ahead = (-1, -1), None, None
        self.forget_memory()

    def forget_memory(self) -> None:
        """Let go of the memory that bodies would have landed in."""
        self._block, self._places, self._used = None, [], 0
