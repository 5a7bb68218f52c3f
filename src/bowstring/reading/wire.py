"""A wire: one connection of a stream, as its reader has it, with a place for packed bodies to land."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.consumer import ConsumerProtocol
from bowstring.dissociated.tags import is_packed
from bowstring.errors import BrokenError, LimitExceeded, OutOfBudget
from bowstring.memory import this_process
from bowstring.reading.runs import Run, Runs
from bowstring.remembered import remembered
from bowstring.transport import Landing, dial
from bowstring.transport.landing import lazy_memory
from bowstring.transport.outgoing import as_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.dissociated.messages import Hello, Outgoing
    from bowstring.dissociated.uri import Endpoint, Location
    from bowstring.limits import Limits
    from bowstring.memory import Allocator, Buffer, Pool
    from bowstring.transport import Channel

__all__ = ["Wire", "note_turned_away", "open_wires"]

_LOOK: Final = 0.01
_LONGEST_KEPT: Final = 1024


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

    def __init__(self, channel: Channel, allocator: Allocator) -> None:
        self.channel = channel
        self._allocator = allocator
        self._landed: Buffer | None = None
        self._runs = Runs(channel, allocator)
        self.heard = time.monotonic()
        self.expect: Callable[[int, int], None] | None = None
        self.over = False

    @property
    def busy(self) -> bool:
        """Whether a body is landing just now; the transport's own deadline watches over it."""
        return self._landed is not None or self._runs.landing

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
            body = self._landed if self._landed is not None else received.body
            self._runs.note(received.tag, body.nbytes)
            return received.tag, body, received.attachments
        finally:
            self._landed = None

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
        self._landed = buffer = self._room(nbytes)
        region, offset = buffer.region, buffer.offset
        place = region.array(offset, nbytes, writable=True)
        return Landing(place, lambda arrived: region.prepare(offset + arrived) - offset)

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

    def forget(self) -> None:
        """Let go of the memory that the next body would have landed in."""
        self._runs.forget_memory()
        self._allocator.reset()

    def send(self, outgoing: Sequence[Outgoing], deadline: float) -> None:
        """Send messages; nothing moves for at most `deadline` seconds."""
        self.channel.send(as_messages(outgoing, self.channel), deadline)


def open_wires(endpoint: Endpoint, hello: Hello, pool: Pool, limits: Limits) -> list[Wire]:
    """Dial the one or two connections of an endpoint, and ask for the data set on each; metadata first.

    Raises
    ------
    BrokenError, DeadlineExceeded, AccessDenied
        A server cannot be reached.
    """
    allocator = pool.allocator(prepare=False)
    wires: list[Wire] = []
    try:
        for location in endpoint.locations:
            channel = dial(location.address, limits, limits.connect_timeout)
            wires.append(Wire(channel, allocator))
            place = this_process().place if hello.pointers and channel.carries != "nothing" else None
            opening = _opening(location, bytes(endpoint.ticket), hello, place)
            wires[-1].send(opening, limits.connect_timeout)
    except BaseException as error:
        for wire in wires:
            wire.channel.close()
        if wires:
            note_turned_away(error)
        raise
    return wires


def note_turned_away(error: BaseException) -> None:
    """Say what it may mean that a server hangs up before its first answer."""
    if type(error) is BrokenError and not error.hint:
        error.hint = (
            "The server may have ended, or serve as many readers as it takes (Limits.connections of its own)."
        )


def _memorable(location: Location, ticket: bytes, hello: Hello, _place: str | None) -> bool:
    return hello.memorable and location.token is None and len(ticket) <= _LONGEST_KEPT


@remembered(64, _memorable)
def _opening(location: Location, ticket: bytes, hello: Hello, place: str | None) -> list[Outgoing]:
    """Return what is said first; `place` is where memory can be mapped, if it can."""
    maps = place is not None
    said = dataclasses.replace(
        hello,
        token=location.token,
        pointers=maps,
        ipc=place,
        tries=maps,
        events=maps and hello.events,
    )
    return ConsumerProtocol.opening(location, ticket, said)
