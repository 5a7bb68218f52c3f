"""A wire: one connection of a stream, as its reader has it, with a place for packed bodies to land.

Pairs of metadata and packed body that look alike can be foreseen, and are received many at a time: as a run.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from bowstring import errors
from bowstring.client.grouping import UNDER_WAY
from bowstring.dissociated.opening import MOST_BYTES
from bowstring.dissociated.reader import opening
from bowstring.dissociated.tags import PACKED, is_packed
from bowstring.memory.handle import this_place
from bowstring.transport import dial
from bowstring.transport.framing import as_messages, joined, lazy_memory, whole_messages
from bowstring.transport.header import HEADER_BYTES
from bowstring.transport.scatter_read import Rows, cut
from bowstring.transport.sockets import StreamChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from bowstring.client.reading import Reading
    from bowstring.dissociated.endpoint import Endpoint, Offer
    from bowstring.dissociated.location import Location
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.dissociated.wire import Outgoing
    from bowstring.memory import Allocator, Buffer, Pool
    from bowstring.memory.buffer import PrivateMemory
    from bowstring.transport import Channel

    Received = tuple[int | None, Any, tuple[Any, ...]]
    Opened = tuple[list["Wire"], Location, str]

_T = TypeVar("_T")

_LOOK: Final = 0.01
# What one offer of a data set may fail with, so that the next one is tried.
_UNREACHED: Final = (
    errors.AccessDenied,
    errors.BrokenError,
    errors.DeadlineExceeded,
    errors.ForkedError,
    errors.MissingDependency,
)
MOST_AT_ONCE: Final = MOST_BYTES + (MOST_BYTES >> 3)
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


class Run(NamedTuple):
    """Pairs of an untagged message and a packed body, in the order in which they came."""

    messages: npt.NDArray[np.uint8]  # shape (pairs, bytes)
    tags: npt.NDArray[np.uint64]  # shape (pairs,)
    bodies: Buffer  # one behind the other
    body: int  # bytes of each


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
        # The lengths of the last message and of the last pair, what follows from them, and where it lands.
        self._untagged, self._last = -1, (-1, -1)
        self._rows: Rows | None = None
        self._block: Buffer | None = None
        self._places: list[memoryview] = []
        self._used = self._next = self._turns = self._pause = 0
        self._patience = _WORTH

    @functools.cached_property
    def _allocator(self) -> Allocator | PrivateMemory:
        return self._pool.allocator(prepare=False)

    @property
    def busy(self) -> bool:
        """Whether a body is landing just now; the transport's own deadline watches over it."""
        return self._landing or (self._rows is not None and self._rows.landing)

    @property
    def begun(self) -> bool:
        """Whether a body of a run has begun to land, and its rest must come first."""
        return self._rows is not None and self._rows.begun > 0

    def receive(self, idle: float) -> Received | None:
        """Return (tag, body, attachments) of the next message, or ``None`` after `idle` seconds of silence."""
        try:
            received = self.channel.receive(idle, self._land)
            if received is None:
                return None
            self.heard = time.monotonic()
            self._note(received.tag, received.body.nbytes)
            return received.tag, received.body, received.attachments
        finally:
            self._landing = False

    def receive_whole(self, idle: float) -> tuple[list[Received], bool]:
        """Return what is there whole within `idle` seconds, up to a packed body, and whether more has begun.

        A channel that is not a stream of bytes cannot tell, so that more may have.
        """
        channel = self.channel
        if self.begun or not isinstance(channel, StreamChannel):
            return [], True
        came = channel.peek(idle, MOST_AT_ONCE if self.maps else 0)
        whole = whole_messages(came, channel.limits, channel.most_attachments)
        messages = list(itertools.takewhile(lambda each: not is_packed(each.tag), whole))
        attachments = channel.take(messages)
        if messages:
            self.heard = time.monotonic()
        received: list[Received] = []
        for message, beside in zip(messages, attachments, strict=True):
            self._note(message.tag, len(message.body))
            received.append((message.tag, message.body, beside))
        return received, sum(HEADER_BYTES + len(each.body) for each in messages) < len(came)

    def _land(self, tag: int, nbytes: int) -> Any:
        if not is_packed(tag):
            # Addresses of buffers are metadata, though they come as a body.
            if nbytes > self.channel.limits.metadata_bytes:
                raise errors.LimitExceeded(
                    "a body of pointers is too long",
                    expected=self.channel.limits.metadata_bytes,
                    found=nbytes,
                )
            return lazy_memory(nbytes)
        if self.expect is not None:
            self.expect(tag, nbytes)
        buffer = None
        if self.device_memory is not None:
            with contextlib.suppress(errors.OutOfBudget):  # there may be room when the user has let some go
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
                return self._allocator.allocate(nbytes)
            except errors.OutOfBudget:
                self._forget_block()  # something else came than what it is for
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

    # Runs.

    def _note(self, tag: int | None, nbytes: int) -> None:
        """Take note of a message that came by itself: two pairs that look alike let others be foreseen."""
        if not self.channel.takes_rows:
            return
        if tag is None:
            self._untagged = nbytes
            return
        if not is_packed(tag):
            return
        pair, self._untagged = (self._untagged, nbytes), -1
        if self._pause:
            self._pause -= 1
        elif pair != self._last:
            if self._rows is not None and self._turns < _WORTH:
                # What else came had to be put back, and copied: nothing is foreseen for a while.
                self._pause, self._patience = self._patience, min(2 * self._patience, _MOST_PATIENCE)
            elif self._rows is not None:
                self._patience = _WORTH
            self._turns = 0
            self._forget_rows()
            self._last = pair
        elif self._rows is None and 0 < nbytes <= _LARGEST and not nbytes % _ALIGNMENT and pair[0] > 0:
            count = max(_FEWEST, min(_BLOCK // nbytes, _MOST))
            if Rows.suits(pair[0], count):
                self._rows = Rows(*pair, PACKED, count)
                self._next = _FEWEST * nbytes

    def receive_run(self, idle: float) -> Run | None:
        """Return many pairs at once, where they were foreseen and are there; else `receive` has the next one."""
        rows = self._rows
        if rows is None or self._untagged >= 0 or not self._has_block(rows.body):
            return None
        block, used = self._block, self._used
        count = self.channel.receive_rows(rows, self._places[used:], idle)
        if not count or block is None:  # without memory: the stream is over
            return None
        self.heard = time.monotonic()
        bodies = block.slice(used * rows.body, count * rows.body)
        self._used += count
        self._turns += count
        return Run(rows.messages(count), rows.tags(count), bodies, rows.body)

    def _has_block(self, body: int) -> bool:
        """Have room for one body at least; false where others must let some go before."""
        if self._used >= len(self._places):
            self._forget_block()
            try:
                self._block = block = self._allocator.allocate(self._next)
            except errors.OutOfBudget:
                # Taking one body after the other waits for room, and needs less of it.
                self._forget_rows()
                self._pause = self._patience
                return False
            block.region.prepare(block.offset + block.nbytes)
            array: Any = block.region.array(block.offset, block.nbytes, writable=True)
            self._places = cut(memoryview(array), body)
            # A short stream takes no more than it needs.
            self._next = max(self._next, min(_GROWTH * self._next, _BLOCK // body * body))
        return True

    def _forget_rows(self) -> None:
        self._last, self._rows = (-1, -1), None
        self._forget_block()

    def _forget_block(self) -> None:
        self._block, self._places, self._used = None, [], 0

    def end(self) -> None:
        """Let go of the memory that bodies would have landed in."""
        self._forget_block()
        if "_allocator" in self.__dict__:
            self._allocator.reset()


def open_wires(endpoint: Endpoint, reading: Reading, partitions: Sequence[PartitionTicket]) -> Opened:
    """Connect to the best offer of an endpoint that works, and ask for its data set, or for `partitions`.

    Return the wires, metadata first, the location of the last one, and why better offers failed, if there are any.
    """
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
        except _UNREACHED as error:
            passed_over.append(f"{offer.address}: {errors.without_frames(error).what}")
    try:
        return open_(offers[-1])
    except errors.BowstringError as error:
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
    hello, limits, locations = reading.hello, reading.limits, offer.locations
    wires: list[Wire] = []
    try:
        for location in locations:
            if location.hello is None and (hello.follows or hello.looks):
                lacks = (
                    "has no data sets that grow"
                    if hello.follows
                    else "counts each client that opens its data sets"
                )
                raise errors.Unsupported(f"a server of the plain protocol {lacks}", where=location.address)
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
    return wires, locations[-1], "; ".join(passed_over)


def note_turned_away(error: BaseException) -> None:
    """Say what it may mean that a server hangs up before its first answer."""
    if type(error) is errors.BrokenError and not error.hint:
        error.hint = (
            "The server may have ended, or serve as many readers as it takes (Limits.connections of its own)."
        )
