"""The producer's half of the conversation, without any IO, for one connection of one reader.

Messages of the reader go in by `receive` and come out as events. Every message of the producer is made here: it
numbers them, keeps the account of the reader's credit, and knows which addresses the reader still holds.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated import wire
from bowstring.dissociated.addresses import Ledger
from bowstring.dissociated.credits import FOLLOWED, Window
from bowstring.dissociated.failures import pack_error
from bowstring.dissociated.items import IpcMessage, LentBody, used_regions
from bowstring.dissociated.partitions import (
    MOST_BYTES,
    PartitionMark,
    PartitionRequest,
    unpack_taken,
)
from bowstring.dissociated.tags import PACKED, POINTERS, SEQUENCE_MASK, Control, Want, body_tag
from bowstring.errors import BrokenError, ClosedError, DeadlineExceeded, ProtocolError, UsageError
from bowstring.memory import handle_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from bowstring.limits import Limits
    from bowstring.memory import EventHandle, Region

_MOST_TICKET: Final = 4096
# So many regions of a data set that grows are announced before the reader lets go of them.
MOST_ANNOUNCED: Final = 16


class Role(enum.Enum):
    """What a reader wants on this connection."""

    BOTH = Want.DATA
    METADATA = Want.METADATA
    BODIES = Want.BODIES


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """The reader asks for a data set."""

    ticket: bytes
    role: Role


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """The reader's user has the last batch of these partitions."""

    partitions: list[int]


class Heard(enum.Enum):
    """What a message means that says no more."""

    ALIVE = "the reader is there"
    PING = "the reader asks whether we are there"
    LIST = "the reader asks which data sets there are"
    ANSWERED = "the reader said whether it can map memory of the devices; the stream can begin"
    FREED = "the reader gave memory or credit back"
    FORKED = "the reader's process forked; its child may look at all that was lent"
    DONE = "the reader read the stream to its end"
    STOPPED = "the reader wants nothing more, but may still hold memory"


ReaderEvent = Wanted | Taken | Heard


class ProducerProtocol:
    """One stream as its producer sees it; `limits` bound what the reader sends."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.sequence = 0  # of the next message
        self.hello: wire.Hello | None = None
        self.takes_errors = False  # whether the reader knows ERROR: it sent a hello, maybe a wrong one
        self.role: Role | None = None
        self.request: PartitionRequest | None = None  # the partitions that it lists
        self._under_way: set[int] = set()  # of these, begun and not taken by the reader
        self.most_listed = MOST_BYTES  # bytes of that list
        self.listed = False  # whether the reader asked which data sets there are
        self._ledger: Ledger | None = None
        # That of all who were answered so, to be copied when it is needed.
        self._begun_with: Ledger | None = None
        self.window = Window(None)
        self.pointers = False
        self.copied = False
        self.asked = False  # whether the reader's answer about devices is to come
        self.why_not = ""  # why the reader cannot map memory of a device
        self.told_event = False  # whether the reader's streams wait for an event of ours
        self.why_wait = ""  # why they cannot
        self.ended = False
        self.end_sent = False  # whether all messages of the stream were handed to the transport
        self.done = False
        self.frees = 0  # how often the reader gave memory or credit back
        self._over = False  # the reader wants nothing more
        self.unused = False  # the reader looks at nothing that was lent, and has nothing of it open
        self.pinged = False  # whether the reader was asked whether it is there, and has sent nothing since
        self.owes_pong = False
        self.reported: type[BaseException] | None = None  # not the error, whose frames would stay
        self._failed = False  # ERROR was sent: the last message about the stream

    @property
    def ledger(self) -> Ledger:
        """Where our regions lie in the stream, and which addresses the reader still has."""
        if self._ledger is None:
            self._ledger = Ledger() if self._begun_with is None else self._begun_with.copy()
            self._begun_with = None
        return self._ledger

    # An ordinary beginning, as one value (:mod:`bowstring.dissociated.opening`).

    def begin_asked(self, hello: wire.Hello) -> None:
        """Take note of a hello and a request for a data set over this connection, at once."""
        self.takes_errors = True
        self.hello = hello
        self.window = Window(hello.window)
        self.role = Role.BOTH

    def go_on(self, sequence: int, ledger: Ledger, *, ended: bool) -> None:
        """Take note that messages up to `sequence` were made; what they lend is in a ledger that others share."""
        self.sequence = sequence
        self.ended = ended
        self._ledger, self._begun_with = None, ledger

    # What the reader says.

    def receive(self, tag: int | None, body: Any) -> ReaderEvent | None:
        """Take one message of the reader; return what it means for the server, if anything."""
        self.pinged = False
        if tag is None:
            raise ProtocolError("a reader sends tagged messages only", found="an untagged one")
        if tag in (Want.DATA, Want.METADATA, Want.BODIES):
            return self._receive_want(Role(Want(tag)), bytes(body))
        if self.role is None or tag == Want.HELLO:
            return self._receive_request(tag, body)
        if tag == Want.FREE:
            self.ledger.free(wire.unpack_addresses(body), all_occurrences=self.hello is None)
            return self._freed()
        if self.hello is None:
            raise ProtocolError("a reader without a hello cannot say this", found=f"tag {tag:#x}")
        return self._receive_control(tag, body)

    def _receive_request(self, tag: int, body: Any) -> ReaderEvent | None:
        hello = self.hello
        match tag:
            case Want.HELLO:
                self.takes_errors = True
                if hello is not None or self.role is not None:
                    raise ProtocolError("the hello must come first, and once")
                self.hello = wire.Hello.unpack(body)
                self.window = Window(self.hello.window)
                return None
            case Control.PARTITIONS:
                if hello is None or not hello.partitions:
                    raise ProtocolError(
                        "a list of partitions needs a hello first, which says how many may be under way"
                    )
                if self.request is None:
                    self.request = PartitionRequest()
                self.request.take(bytes(body), self.most_listed)
            case Control.LIST if hello is not None:
                self.listed = True
                return Heard.LIST
            case _:
                said = None if hello is None else hello.hear(tag, bytes(body))
                if said is None:
                    raise ProtocolError("a reader must name a data set first", found=f"tag {tag:#x}")
                self.hello = said
        return Heard.ALIVE

    def _receive_want(self, role: Role, ticket: bytes) -> Wanted:
        if self.role is not None:
            raise ProtocolError("a connection carries one stream", found="a second request for data")
        if len(ticket) > _MOST_TICKET:
            raise ProtocolError(
                "a ticket is too long", expected=f"at most {_MOST_TICKET} bytes", found=len(ticket)
            )
        if self.request is not None and not (role is Role.BOTH and self.request.is_named(ticket)):
            raise ProtocolError(
                "the ticket does not name the list of partitions, which comes over one connection",
                expected=repr(self.request.generation),
                found=repr(ticket[:80]),
            )
        self.role = role
        return Wanted(ticket, role)

    def _receive_control(self, tag: int, body: Any) -> ReaderEvent:
        match tag:
            case Control.CREDIT:
                self.window.give_back(wire.unpack_u64(body))
                return self._freed()
            case Control.WINDOW:
                self.window.enlarge(wire.unpack_u64(body))
                return self._freed()
            case Control.TAKEN if self.request is not None:
                taken = unpack_taken(body)
                for number in taken:
                    if number not in self._under_way:
                        raise ProtocolError(
                            "a reader has taken a partition that it was not sent", found=number
                        )
                    self._under_way.discard(number)
                return Taken(taken)
            case Control.FORKED:
                self.ledger.retire(forked=True)
                return Heard.FORKED
            case Control.DONE:
                # A connection of bodies has no end of its own: the reader may know it before we do.
                if not self.ended and self.role is not Role.BODIES:
                    raise ProtocolError("a reader cannot be done with a stream that goes on")
                self._over = self.done = True
                return Heard.DONE
            case Control.ANSWER:
                if not self.asked:
                    raise ProtocolError("a reader answers once, and what it was asked")
                self.asked = False
                if self._over:
                    # Too late to change anything: it was said by another thread than the end.
                    return Heard.ALIVE
                self.why_not = wire.unpack_answer(body)
                self.pointers = not self.why_not
                return Heard.ANSWERED
            case Control.WAIT:
                if not (self.asked and self.told_event):
                    raise ProtocolError("a reader cannot say this: it was told of no event, or has answered")
                self.told_event = False
                self.why_wait = wire.unpack_answer(body)
                return Heard.ALIVE
            case Control.STOP | Control.UNUSED:
                self._over = True
                self.unused |= tag == Control.UNUSED
                return Heard.STOPPED
            case Control.PING:
                self.owes_pong = True
                return Heard.PING
            case Control.PONG:
                return Heard.ALIVE
            case _:
                raise ProtocolError("a reader cannot say this", found=f"tag {tag:#x}")

    def _freed(self) -> Heard:
        self.frees += 1
        return Heard.FREED

    # What we say.

    def ask(
        self,
        devices: Iterable[wire.DeviceId],
        regions: Iterable[Region] = (),
        event: EventHandle | None = None,
    ) -> list[wire.Outgoing]:
        """Return the question whether the reader can map memory of `devices`; the caller waits for the answer.

        It opens `regions` first if it does that, and its streams wait for `event` if they can.
        """
        self.asked, self.pointers = True, False
        hello, outgoing = self.hello or wire.Hello(), []
        if event is not None and hello.events and hello.tries:
            self.told_event = True
            outgoing.append(wire.Outgoing(Control.EVENT, [event.pack()]))
        outgoing += self.announce(regions)
        return [*outgoing, wire.Outgoing(Control.DEVICES, [wire.pack_devices(devices)])]

    def announce(self, regions: Iterable[Region]) -> list[wire.Outgoing]:
        """Return the announcements of regions that the stream will need, to a reader that takes them beforehand."""
        hello = self.hello or wire.Hello()
        return [said for region in regions if hello.tries for said in self._announce(region)[1]]

    def cost(self, item: IpcMessage) -> int:
        if item.spans is None or self.role is Role.METADATA:
            return 0
        if self.hello is not None and self.hello.follows:
            return item.nbytes + FOLLOWED
        return item.nbytes if item.charged or self.copied or not self.pointers else 0

    def offer(self, item: IpcMessage) -> list[wire.Outgoing] | None:
        """Return what `send` does, or ``None`` while the reader has no credit for the item."""
        return self.send(item) if self.window.allows(self.cost(item)) else None

    def send(self, item: IpcMessage) -> list[wire.Outgoing]:
        """Return the messages for the next item of the stream, and count what they lend and cost."""
        messages: list[wire.Outgoing] = []
        sequence = self._take_number()
        if self.role is not Role.BODIES:
            messages.append(wire.Outgoing(None, [wire.pack_prefix(wire.METADATA, sequence), item.metadata]))
        if item.spans is not None and self.role is not Role.METADATA:
            self.window.charge(self.cost(item))
            if self.pointers:
                announcements, pairs = self._lend(item, item.spans)
                messages = [*announcements, *messages, wire.Outgoing(body_tag(sequence, POINTERS), [pairs])]
            else:
                messages.append(wire.Outgoing(body_tag(sequence, PACKED), item.pieces))
        return messages

    def _lend(self, item: IpcMessage, spans: npt.NDArray[np.int64]) -> tuple[list[wire.Outgoing], bytes]:
        announcements: list[wire.Outgoing] = []
        before = item.lent[-1] if item.lent else None
        indices = used_regions(spans) if before is None else before.indices
        bases: list[int] = []
        for index in indices:
            base, said = self._announce(item.regions[index])
            bases.append(base)
            announcements += said
        # Most readers of a data set see its regions at the same addresses.
        if before is None or before.bases != bases:
            before = LentBody.of(spans, indices, bases)
            item.lent[:] = [before]
        lendings = zip(bases, (item.regions[index] for index in indices), before.counts, strict=True)
        self.ledger.lend(before.addresses, lendings)
        return announcements, before.message

    def _announce(self, region: Region) -> tuple[int, list[wire.Outgoing]]:
        """Return where a region lies in the stream, and what to say of it, which is so once."""
        base, new = self.ledger.announce(region, region.uuid)
        handle = [wire.pack_region(base, handle_of(region))] if new else []
        return base, [wire.Outgoing(Control.REGION, handle, attachment=region)] if new else []

    @property
    def takes_partition(self) -> bool:
        return self.hello is not None and len(self._under_way) < self.hello.partitions

    def partition(self, number: int, num_batches: int) -> list[wire.Outgoing] | None:
        """Return what begins a partition, or ``None`` while as many as the reader takes are under way."""
        if not self.takes_partition:
            return None
        self._under_way.add(number)
        self.ledger.begin(number)
        return [wire.Outgoing(Control.PARTITION, [PartitionMark(number, num_batches, self.sequence).pack()])]

    def forget(self) -> list[wire.Outgoing]:
        """Announce anew, from now on, the regions that the stream needs: the reader may let go of the others."""
        if self.ledger.announced < MOST_ANNOUNCED:
            return []
        self.ledger.announce_anew()
        return [wire.Outgoing(Control.FORGET, [])]

    def end(self) -> list[wire.Outgoing]:
        self.ended = True
        number = self._take_number()
        return [] if self.role is Role.BODIES else [wire.Outgoing(None, [wire.pack_prefix(wire.END, number)])]

    def welcome(self, welcome: wire.Welcome) -> list[wire.Outgoing]:
        """Return the answer to the hello, which comes before the first message of the stream."""
        if self.hello is None or self.role is Role.METADATA:
            return []
        return [wire.Outgoing(Control.WELCOME, [welcome.pack()])]

    def blocked(self, nbytes: int) -> list[wire.Outgoing]:
        """Return the message that tells the reader that it holds all the credit."""
        return [] if self.hello is None else [wire.Outgoing(Control.BLOCKED, [wire.pack_u64(nbytes)])]

    def no_room(self, nbytes: int) -> list[wire.Outgoing]:
        """Return the message that tells the reader that it holds all the memory; nothing where that is not so."""
        holds = self.hello is not None and self.ledger.outstanding
        return [wire.Outgoing(Control.NO_ROOM, [wire.pack_u64(nbytes)])] if holds else []

    def stop(self) -> list[wire.Outgoing]:
        """Return the answer to STOP, where neither the end nor an error was sent before."""
        answers = self._over and not (self._failed or self.ended)
        return [wire.Outgoing(Control.STOPPED, [])] if answers else []

    def ping(self) -> list[wire.Outgoing]:
        """Return the question whether the reader is there; nothing where it was asked, or knows no questions."""
        asks = self.hello is not None and self.role is not None and not self.pinged
        self.pinged |= asks
        return [wire.Outgoing(Control.PING, [])] if asks else []

    def pong(self) -> list[wire.Outgoing]:
        owes, self.owes_pong = self.owes_pong, False
        return [wire.Outgoing(Control.PONG, [])] if owes else []

    def fail(self, error: BaseException) -> list[wire.Outgoing]:
        """Return the message that reports an error, once, to a reader that knows such messages."""
        if self._failed or not self.takes_errors:
            return []
        self._failed = True
        return [wire.Outgoing(Control.ERROR, [pack_error(error)])]

    def _take_number(self) -> int:
        number = self.sequence
        self.sequence = (number + 1) & SEQUENCE_MASK
        return number

    @property
    def looks(self) -> bool:
        return self.hello is not None and self.hello.looks

    @property
    def returned(self) -> bool:
        """Whether the reader can look at nothing any more: what it was lent may be used again, and freed."""
        return self.unused or not (self.ledger.outstanding or self.ledger.lent)

    @property
    def stopped(self) -> bool:
        return self._over and not self.done

    @property
    def read_all(self) -> bool:
        """Whether the reader read the whole stream; one without a hello did if all was sent before it left."""
        return self.done or (self.hello is None and self.end_sent)

    @property
    def may_have_read_all(self) -> bool:
        """Whether a reader that disconnects now may have read everything, which the sending side will know."""
        # The last message, on a connection of bodies the last body, is read before the call that sends it returns.
        undecided = self.hello is None and not self.end_sent
        return undecided and (self.ended or self.role is Role.BODIES)


_QUIET = (BrokenError, ClosedError, DeadlineExceeded)


class Outcome(enum.Enum):
    """How a connection ended."""

    COMPLETED = "the reader read the stream to its end"
    STOPPED = "the stream ended early, and nothing of it is missing"
    LOST = "the reader went away in the middle of the stream, or with memory that it did not free"
    REFUSED = "the reader was not served"
    IDLE = "nobody asked for a data set"
    LISTED = "the reader asked which data sets there are"
    METADATA = "the connection of bodies of the same stream counts"
    LOOKED = "the peer read without being counted"


def outcome_of(
    protocol: ProducerProtocol,
    error: BaseException | None,
    *,
    admitted: bool,
    gone: bool = False,
    closing: bool = False,
    reported: type[BaseException] | None = None,
) -> Outcome:
    """Return what became of a connection that ended by `error`: `BrokenError` itself when the reader hung up.

    `gone`: its process ended. `closing`: the server closes. `reported`: the error that was sent to the reader.
    """
    if protocol.listed and (error is None or type(error) in _QUIET):
        return Outcome.LISTED
    if protocol.looks:
        return Outcome.LOOKED
    if not admitted:
        # Of the errors, only those of the connection itself: a subclass says what the peer did wrong.
        asked = protocol.role is not None
        return Outcome.REFUSED if asked or not (error is None or type(error) in _QUIET) else Outcome.IDLE
    if protocol.role is Role.METADATA:
        return Outcome.METADATA
    if protocol.read_all:
        return Outcome.COMPLETED
    if reported is not None and issubclass(reported, UsageError):
        return Outcome.REFUSED
    if closing:
        return Outcome.STOPPED
    disconnected = error is None or type(error) in (BrokenError, ClosedError)
    if not disconnected or not (protocol.returned or (gone and protocol.stopped)):
        return Outcome.LOST
    # A reader without a hello has no word for stopping: disconnecting is all it can do.
    in_order = protocol.stopped or protocol.ended or protocol.hello is None
    # The producer may fail for reasons of its own, and not for want of an answer.
    failed = reported is not None and not issubclass(reported, (BrokenError, DeadlineExceeded))
    return Outcome.STOPPED if in_order or failed else Outcome.LOST
