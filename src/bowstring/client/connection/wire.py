"""A wire: one connection of a stream, as its reader has it, with a place for packed bodies to land."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from bowstring.client.connection.runs import Runs
from bowstring.client.grouping import UNDER_WAY
from bowstring.dissociated.opening import MOST_BYTES, Beginning
from bowstring.dissociated.reader import opening
from bowstring.dissociated.tags import is_packed
from bowstring.errors import (
    AccessDenied,
    BowstringError,
    BrokenError,
    DeadlineExceeded,
    ForkedError,
    LimitExceeded,
    MissingDependency,
    OutOfBudget,
    Unsupported,
    without_frames,
)
from bowstring.ipc.flatbuf.schema import decode_schema_message
from bowstring.memory.handle import this_place
from bowstring.transport import dial
from bowstring.transport.framing import as_messages, joined, lazy_memory, whole_messages
from bowstring.transport.header import HEADER_BYTES
from bowstring.transport.sockets import StreamChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.client.connection.runs import Run
    from bowstring.client.reading import Reading
    from bowstring.dissociated.endpoint import Endpoint, Offer
    from bowstring.dissociated.location import Location
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.dissociated.wire import Outgoing
    from bowstring.ipc.flatbuf.schema import DecodedSchema
    from bowstring.memory import Allocator, Buffer, Pool
    from bowstring.memory.buffer import PrivateMemory
    from bowstring.transport import Channel

    Received = tuple[int | None, Any, tuple[Any, ...]]

_T = TypeVar("_T")

_LOOK: Final = 0.01
_MOST_AT_ONCE: Final = MOST_BYTES + (MOST_BYTES >> 3)


class Wire:
    """Receives messages of one channel; bodies of type 0 come as buffers of the reader's pool."""

    def __init__(self, channel: Channel, pool: Pool | PrivateMemory) -> None:
        self.channel = channel
        self._pool = pool
        self._landing = False
        self.heard = time.monotonic()  # when the peer last sent something
        # Refuses a packed body, by tag and length, before memory is allocated for it.
        self.expect: Callable[[int, int], None] | None = None
        # Where packed bodies land at once, if the transport reaches it.
        self.device_memory: Allocator | None = None
        self.over = False  # it broke, or the peer has closed it: nothing more comes
        # Where no bodies of pointers come, runs of packed ones have their own way.
        self.maps = channel.passes_memory in ("fd", "object")
        # Where all that was received is with the stream, so that an interrupt has lost nothing.
        self.done = channel.position

    @functools.cached_property
    def runs(self) -> Runs:
        return Runs(self.channel, self._pool)

    @property
    def busy(self) -> bool:
        """Whether a body is landing just now; the transport's own deadline watches over it."""
        return self._landing or self.runs.landing

    def receive(self, idle: float) -> tuple[int | None, Any, tuple[Any, ...]] | None:
        """Return (tag, body, attachments) of the next message, or ``None`` after `idle` seconds of silence."""
        try:
            received = self.channel.receive(idle, self._land)
            if received is None:
                return None
            self.heard = time.monotonic()
            self.runs.note(received.tag, received.body.nbytes)
            return received.tag, received.body, received.attachments
        finally:
            self._landing = False

    def receive_beginning(self, idle: float) -> tuple[Beginning, DecodedSchema, deque[Any]] | None:
        """Return the beginning of an ordinary answer that comes within `idle` seconds, else receive nothing.

        With it come its schema, and the descriptors of its regions.
        """
        channel = self.channel
        if not (isinstance(channel, StreamChannel) and channel.passes_memory == "fd"):
            return None
        came = channel.peek(idle, _MOST_AT_ONCE)
        messages = whole_messages(came, channel.limits, channel.most_attachments)
        begun = Beginning.read(messages)
        if begun is None or len(begun.schema) > channel.limits.early_bytes:
            return None
        try:
            decoded = decode_schema_message(begun.schema, channel.limits)
        except BowstringError:  # for whoever receives it by itself to say what is wrong
            return None
        if decoded.endianness != "little":
            return None
        attachments = channel.take(messages[: begun.messages + len(begun.following)])
        self.heard = time.monotonic()
        return begun, decoded, deque(itertools.chain.from_iterable(attachments[: len(begun.regions)]))

    def receive_whole(self, idle: float) -> tuple[list[Received], bool]:
        """Return what is there whole within `idle` seconds, up to a packed body, and whether more has begun.

        A channel that is not a stream of bytes cannot tell, so that more may have.
        """
        channel = self.channel
        if self.runs.begun or not isinstance(channel, StreamChannel):
            return [], True
        came = channel.peek(idle, _MOST_AT_ONCE if self.maps else 0)
        whole = whole_messages(came, channel.limits, channel.most_attachments)
        messages = list(itertools.takewhile(lambda each: not is_packed(each.tag), whole))
        attachments = channel.take(messages)
        if messages:
            self.heard = time.monotonic()
        received: list[Received] = []
        for message, beside in zip(messages, attachments, strict=True):
            self.runs.note(message.tag, len(message.body))
            received.append((message.tag, message.body, beside))
        return received, sum(HEADER_BYTES + len(each.body) for each in messages) < len(came)

    def receive_run(self, idle: float) -> Run | None:
        """Return many messages at once, where they were foreseen and are there; else `receive` has the next one."""
        run = self.runs.receive(idle)
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
        buffer = None
        if self.device_memory is not None:
            with contextlib.suppress(OutOfBudget):  # there may be room when the user has let some go
                buffer = self.device_memory.allocate(nbytes)
        if buffer is None:
            buffer = self._room(nbytes)
        self._landing = True
        return buffer

    def _room(self, nbytes: int) -> Buffer:
        """Take memory for a body, waiting for the user to let some go; the peer waits as long."""
        give_up = time.monotonic() + self.channel.limits.stall_timeout / 2
        while True:
            try:
                return self.runs.allocator.allocate(nbytes)
            except OutOfBudget:
                self.runs.forget_memory()  # something else came than what it is for
                if time.monotonic() > give_up or self.channel.closed:
                    raise
                time.sleep(_LOOK)

    def read_remote(
        self, nbytes: int, offsets: Sequence[int], reads: Sequence[tuple[bytes, int, int]]
    ) -> Buffer:
        """Read memory of the server into one buffer of the reader's pool."""
        # A read is a key, an address of the server and a length; its bytes go to its offset in the buffer.
        buffer = self._room(nbytes)
        self._landing = True
        try:
            self.channel.read_remote(reads, buffer, offsets)
        finally:
            self._landing = False
        self.heard = time.monotonic()
        return buffer

    def send(self, outgoing: Sequence[Outgoing], deadline: float) -> None:
        if isinstance(self.channel, StreamChannel):
            self.channel.send_runs([joined(outgoing)] if outgoing else [], deadline)
        else:
            self.channel.send(as_messages(outgoing, self.channel), deadline)


class Opened(NamedTuple):
    """The connections of a stream, metadata first."""

    wires: list[Wire]  # one or two, as `locations`
    locations: tuple[Location, ...]
    passed_over: str  # why better offers of the endpoint failed; empty where there was none


def open_wires(endpoint: Endpoint, reading: Reading, partitions: Sequence[PartitionTicket]) -> Opened:
    """Connect to the best offer of an endpoint that works, and ask for its data set, or for `partitions`."""
    if len(offers := endpoint.offers) == 1 and offers[0].host is None:
        return _open(offers[0], endpoint.ticket, reading, partitions, ())
    candidates = endpoint.candidates()
    better = itertools.takewhile(lambda each: each != candidates[0], endpoint.offers)
    passed_over = [f"{each.address}: {each.why_not()}" for each in better]
    return first_that_opens(
        candidates, lambda offer: _open(offer, endpoint.ticket, reading, partitions, passed_over), passed_over
    )


def first_that_opens(offers: Sequence[Offer], open_: Callable[[Offer], _T], passed_over: list[str]) -> _T:
    """Return what the first offer that works gives; `passed_over` collects why those before it failed."""
    for offer in offers[:-1]:
        try:
            return open_(offer)
        except (AccessDenied, BrokenError, DeadlineExceeded, ForkedError, MissingDependency) as error:
            passed_over.append(f"{offer.address}: {without_frames(error).what}")
    try:
        return open_(offers[-1])
    except BowstringError as error:
        if passed_over:
            error.hint = "; ".join([*([error.hint] if error.hint else []), *passed_over])
        raise


def _open(
    offer: Offer,
    ticket: bytes,
    reading: Reading,
    partitions: Sequence[PartitionTicket],
    passed_over: Sequence[str],
) -> Opened:
    hello, limits = reading.hello, reading.limits
    locations = offer.locations
    wires: list[Wire] = []
    try:
        for location in locations:
            if hello.follows and location.hello is None:
                raise Unsupported(
                    "a server of the plain protocol has no data sets that grow", where=location.address
                )
            if hello.looks and location.hello is None:
                raise Unsupported(
                    "a server of the plain protocol counts whoever opens its data sets as a reader",
                    where=location.address,
                )
            channel = dial(location.address, limits, tls=reading.tls)
            wires.append(Wire(channel, reading.private or reading.landing))
            if reading.dialled is not None:
                reading.dialled(channel)
            maps = channel.passes_memory is not None
            said = copy.copy(hello)
            said.token = location.token
            said.pointers = said.tries = maps
            said.ipc = this_place() if maps else None
            said.events = maps and hello.events
            said.partitions = UNDER_WAY if partitions else 0
            wires[-1].send(opening(location, bytes(ticket), said, partitions), limits.connect_timeout)
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
