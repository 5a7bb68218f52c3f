"""The reader's half of the conversation, without any IO.

Messages of the server go in by `receive` and come out as events; other methods take what the user, the device and
the process do, and `to_send` returns the messages to send. A stream has three states: handshake, phase, use. A
server that took our hello must keep to ``docs/protocol.md``: WELCOME first, metadata in order, a body for every
batch. One that knows only the specification sends none of our messages, and takes only ``free_data``.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.dissociated import wire
from bowstring.dissociated.credits import FOLLOWED, Account
from bowstring.dissociated.events import Announced, Asked, Event, Pointers, Signal
from bowstring.dissociated.failures import unpack_error
from bowstring.dissociated.partitions import (
    IncomingPartitions,
    PartitionMark,
    PartitionRequest,
    pack_taken,
)
from bowstring.dissociated.sequence import MessageSequence
from bowstring.dissociated.tags import Control, is_body, is_pointers
from bowstring.errors import BowstringError, BrokenError, ClosedError, DeadlineExceeded, ProtocolError
from bowstring.ipc.flatbuf.message import MessageKind
from bowstring.memory import EventHandle, Handle, KeyedHandle, LentHandle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from bowstring.dissociated.location import Location
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.limits import Limits

_MOST_FREED: Final = 16_384
# What a stream over two connections says on both.
_BOTH: Final = frozenset({Control.PING, Control.PONG, Control.DONE, Control.STOP})
# A connection that is lost, which nobody needs any more once the stream is complete.
_LOST: Final = (BrokenError, ClosedError, DeadlineExceeded)


class Handshake(enum.IntEnum):
    """How far the server has come before the stream begins; each step follows one before it, some are left out."""

    SILENT = 0
    EVENT = 1
    """It named the event that its data are ready after."""
    ASKED = 2
    """It asked which devices can be reached here."""
    ANSWERED = 3
    WELCOMED = 4


class Phase(enum.Enum):
    """What the server sends."""

    OPEN = "parts of the stream"
    COMPLETE = "nothing more: every part came, and the end"
    STOPPED = "nothing more, as it was asked"
    FAILED = "nothing that is taken: an error ended the stream"
    BROKEN = "nothing that is taken: it broke the protocol"


class Use(enum.Enum):
    """What the user wants of the stream."""

    READING = "more batches"
    READ = "nothing: it read the last one"
    CLOSED = "nothing more"


@dataclasses.dataclass(slots=True)
class Lent:
    """What one body lends, to be freed when nothing reads it any more."""

    addresses: npt.NDArray[np.uint64]  # all that are not 0
    credit: int  # bytes to give back
    device: Any = None  # whose work may still read the memory: it must end first


class ReaderProtocol:
    """One stream as its reader sees it; `limits` bound what the peer sends.

    With `extended` (the server took a hello) a gap in the numbers of metadata is an error at once. WELCOME comes
    before the schema with `one_connection` and `ordered`, else before bodies. Without `ordered`, metadata come in
    any order. `window` is the credit of the hello in bytes, ``None`` for a producer that knows no credits;
    `events` says that the hello offered to wait for an event of the producer. `free_data` is the tag by which the
    server takes addresses back, if it does; `partitions` are the numbers requested, ``None`` for one data set.
    With `follows`, FOLLOW was sent: each batch costs credit until it is delivered, wherever it lies.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        extended: bool = True,
        one_connection: bool = False,
        ordered: bool = True,
        window: int | None = None,
        events: bool = True,
        free_data: int | None = None,
        partitions: Iterable[int] | None = None,
        follows: bool = False,
    ) -> None:
        self.partitions = None if partitions is None else IncomingPartitions(partitions)
        self.account = Account(window)
        self.sequence = MessageSequence(limits, self.account, in_order=extended and ordered)
        self.handshake = Handshake.SILENT if extended else Handshake.WELCOMED
        self.phase = Phase.OPEN
        self.use = Use.READING
        self.error: BowstringError | None = None  # what ended the stream
        self.behind_end: BowstringError | None = None  # an error of the server after it had sent everything
        self.charged = False
        self.follows = follows
        self.beside = FOLLOWED if follows else 0  # the credit that a batch costs besides its bytes
        self._limits = limits
        self._extended = extended
        self._one_connection = one_connection
        self._welcome_first = one_connection and ordered
        self._takes_events = events
        self._free_data = free_data
        self._unmapped: BowstringError | None = None
        self.why_wait = ""  # why no stream here can wait for the server's event: it has to wait itself
        self._bodies_lost: BowstringError | None = None
        self._given_up = self._end_told = False
        self._stops = 0
        self.lent = self._freed = 0  # bodies
        # To be sent.
        self._to_free: list[npt.NDArray[np.uint64]] = []
        self.credit = self._growth = 0  # to give back, and by which the window grows
        self._owes_pong = self._owes_ping = False
        self._last_word: Control | None = None

    # What the server sends.

    def begin_answered(self, welcome: wire.Welcome) -> None:
        """Take WELCOME and the schema behind it, message 0, which nothing but regions came before."""
        self.handshake = Handshake.WELCOMED
        self.charged = welcome.charged
        self.sequence.begun, self.sequence.next = True, 1

    def receive(self, tag: int | None, body: Any, attachments: tuple[Any, ...] = ()) -> list[Event]:
        """Take one message, whose `body` may be the memory that it landed in; return the events that follow."""
        if self.phase is Phase.BROKEN:
            # With two connections the other one may go on: what it brings must not end the stream after all.
            raise ProtocolError("the stream broke before", hint="Its first error says why.")
        try:
            if tag is None or is_body(tag):
                return self._receive_numbered(tag, body)
            event = self._receive_control(tag, body, attachments)
            if event is None:
                return []
            return [event, *(self._end() if event is Signal.PARTITION else [])]
        except BaseException:
            if self.phase is not Phase.COMPLETE:
                self.phase = Phase.BROKEN
            raise

    def _receive_numbered(self, tag: int | None, body: Any) -> list[Event]:
        if self.phase is Phase.FAILED:
            # Under way when the server gave up: nothing may end the stream after all, but what is lent is freed.
            if tag is not None and is_pointers(tag):
                self._free_unseen([Pointers(*wire.unpack_pairs(body))])
            return []
        if self.handshake < Handshake.WELCOMED and (tag is not None or self._welcome_first):
            raise ProtocolError(
                "the server sent no WELCOME",
                expected="WELCOME before the schema and the bodies, as its URI promises (bow=1)",
                found="an untagged message" if tag is None else f"a body, tag {tag:#x}",
                hint="A server that knows only the specification leaves bow and hello out of its URI.",
            )
        if tag is None:
            self.sequence.add_metadata(body)
        else:
            self.sequence.add_body(tag, body)
        parts = self.sequence.complete()
        if self.partitions is not None:
            for part in parts:
                if part.message.kind is not MessageKind.SCHEMA:
                    self.partitions.come(part.message.kind is MessageKind.RECORD_BATCH)
        if self.use is Use.CLOSED:  # nobody will look at them
            self._free_unseen([part.body for part in parts if isinstance(part.body, Pointers)])
            parts = []
        end = self._end()
        if not end:
            self._look_whether_stopped()
        return [*parts, *end]

    def _end(self) -> list[Event]:
        if not self.sequence.ended or self._end_told:
            return []
        partitions = self.partitions if self.phase is Phase.OPEN else None
        # Where messages come in no common order, marks of partitions without a batch may come behind it.
        if partitions is not None and not partitions.at_end(marks=self._welcome_first):
            return []
        self._end_told = True
        if self.phase is Phase.OPEN:
            self.phase = Phase.COMPLETE
        return [Signal.END]

    def _receive_control(self, tag: int, body: Any, attachments: tuple[Any, ...]) -> Event | None:
        if not self._extended:
            raise ProtocolError("a server that was sent no hello cannot send this", found=f"tag {tag:#x}")
        handshake = self.handshake
        match tag:
            case Control.REGION:
                base, handle = wire.unpack_region(body)
                _check_attachments(handle, attachments)
                return Announced(base, handle, attachments[0] if attachments else None)
            case Control.WELCOME if handshake is Handshake.WELCOMED:
                raise ProtocolError("a server sends WELCOME once")
            case Control.WELCOME:
                self.handshake = Handshake.WELCOMED
                welcome = wire.Welcome.unpack(body)
                self.charged = welcome.charged
                return welcome
            case Control.DEVICES if handshake >= Handshake.ASKED:
                raise ProtocolError("a server asks once which devices can be reached, before WELCOME")
            case Control.DEVICES:
                self.handshake = Handshake.ASKED
                return Asked(wire.unpack_devices(body))
            case Control.EVENT if handshake >= Handshake.EVENT:
                raise ProtocolError("a server names one event, before DEVICES and WELCOME")
            case Control.EVENT if not self._takes_events:
                raise ProtocolError("a server names an event to a reader that takes none")
            case Control.EVENT:
                self.handshake = Handshake.EVENT
                return EventHandle.unpack(bytes(body))
            case Control.FORGET if self.follows:
                return Signal.FORGET
            case Control.PARTITION:
                if self.partitions is None:
                    raise ProtocolError("a server begins a partition, and was asked for none")
                if self.phase is not Phase.FAILED:  # else what is under way is not taken
                    self.partitions.begin(PartitionMark.unpack(body), self.sequence.next)
                return Signal.PARTITION
            case Control.ERROR:
                error = unpack_error(body)
                if self.phase in (Phase.OPEN, Phase.STOPPED):
                    self.error = error
                    self._stop_taking()
                return error
            case Control.PING:
                self._owes_pong = True
            case Control.PONG:
                pass
            case Control.STOPPED:
                if self.use is Use.CLOSED:  # without STOP before it, it changes nothing
                    self._stops += 1
                    self._look_whether_stopped()
                return Signal.STOPPED
            case Control.BLOCKED:
                self.account.blocked = wire.unpack_u64(body)
                self.credit += self.account.deliver(0)
            case Control.NO_ROOM:
                self.account.no_room = wire.unpack_u64(body)
            case _:
                raise ProtocolError("a server cannot say this", found=f"tag {tag:#x}")
        return None

    def _stop_taking(self) -> None:
        """Take nothing more of the stream, and give back what lacks its metadata."""
        self.phase = Phase.FAILED
        self._free_unseen(self.sequence.drop_pointers())

    def _free_unseen(self, bodies: Iterable[Pointers]) -> None:
        self._to_free += [body.addresses for body in bodies if len(body.addresses)]

    def _look_whether_stopped(self) -> None:
        """Take note that nothing more comes: each connection said STOPPED, or that of metadata brought the end."""
        connections = 1 if self._one_connection else 2
        ended = self._stops + (self.sequence.end is not None)
        if self._stops and self.phase is Phase.OPEN and ended >= connections:
            self.phase = Phase.STOPPED
            self._free_unseen(self.sequence.drop_pointers())

    def foreseen(self, prefixes: bytes | bytearray, tags: Sequence[int], kind: int) -> bool:
        """Whether pairs of metadata and body of one type are the next parts of the stream, all of them."""
        fits = self.partitions is None or len(tags) <= self.partitions.to_come
        goes_on = self.error is None and self.phase is Phase.OPEN and self.use is Use.READING
        return goes_on and fits and self.sequence.foreseen(prefixes, tags, kind)

    def take(self, costs: Sequence[int]) -> None:
        """Count pairs that were foreseen, one at least, as received and given out; each takes some credit."""
        self.sequence.take(len(costs))
        if self.partitions is not None:
            self.partitions.come(len(costs))
        self.arrived(costs)

    def take_pointed(self, count: int, following: Any) -> bool:
        """Count pairs that were foreseen; return whether the message `following` is the end, and taken, too."""
        if self.partitions is not None:
            self.partitions.come(count)
            following = None  # whose marks are to be counted
        self.account.blocked = self.account.no_room = 0
        ends = self.sequence.take(count, following)
        if ends:
            self._end_told, self.phase = True, Phase.COMPLETE
        return ends

    # The handshake.

    def could_not_map(self, error: BowstringError) -> None:
        """Note that a region cannot be mapped: before the stream begins, the server sends the bytes instead."""
        if self.handshake >= Handshake.ANSWERED:
            raise error
        self._unmapped = self._unmapped or error

    def answer(self, why_not: str = "") -> tuple[bool, list[wire.Outgoing]]:
        """Return whether the server's memory is mapped, which `why_not` may prevent, and what to answer at once."""
        if self.handshake is not Handshake.ASKED:
            raise ProtocolError("a reader answers once, and what it was asked")
        self.handshake = Handshake.ANSWERED
        unmapped, self._unmapped = self._unmapped, None
        why = why_not or ("" if unmapped is None else in_words(unmapped))
        outgoing = [wire.Outgoing(Control.ANSWER, [wire.pack_answer(why)])]
        if self.why_wait and not why:
            outgoing.insert(0, wire.Outgoing(Control.WAIT, [wire.pack_answer(self.why_wait)]))
        return not why, outgoing

    def begin(self) -> None:
        """Raise what kept a region from being mapped, where nobody asked."""
        if self._unmapped is not None:
            raise self._unmapped

    # Batches.

    def arrived(self, costs: Iterable[int]) -> None:
        """Count the credit that packed bodies take until they are delivered; the server is not blocked."""
        self.account.blocked = self.account.no_room = 0
        self.account.charge(list(costs))

    def lend(self, addresses: npt.NDArray[np.uint64], credit: int, device: Any = None) -> Lent | None:
        """Count what a body lends; ``None`` where that is nothing, as there is no address in it."""
        if not len(addresses):
            return None
        self.lent += 1
        self.account.held += credit
        return Lent(addresses, credit, device)

    def deliver(self, cost: int, credit: int, *, until_delivered: bool) -> None:
        """Count a batch that the user has now.

        Its packed body took `cost`; the server charged `credit`, given back now or when its lease ends.
        """
        self.account.outstanding -= cost
        if self.partitions is not None:
            self.partitions.deliver()
        if until_delivered:
            self.credit += self.account.deliver(credit)

    def passed(self, partition: int) -> bool:
        return self.partitions is not None and self.partitions.last_taken >= partition

    def free(self, ended: Iterable[Lent]) -> None:
        for lent in ended:
            self._freed += 1
            self._to_free.append(lent.addresses)
            self.credit += lent.credit
            self.account.held -= lent.credit

    @property
    def all_freed(self) -> bool:
        return self._freed >= self.lent

    def relieve(self, where: str) -> None:
        """Enlarge the window for a server that waits for what the user holds, or raise `Starved`."""
        self._growth += self.account.grow(self._limits.outstanding_bytes, where)

    # What the user, the process and the clock do.

    def read_to_end(self) -> None:
        """Take note that the user asked for a batch behind the last one."""
        if self.use is Use.READING:
            self.use, self._last_word = Use.READ, Control.DONE

    def close(self, *, nothing_left: bool) -> None:
        """Take note that the user wants nothing more; `nothing_left` says that it has had every batch that came."""
        if self.use is Use.READING:
            if nothing_left and self.phase is Phase.COMPLETE:
                self.read_to_end()
            else:
                self.use, self._last_word = Use.CLOSED, Control.STOP

    def give_up(self) -> None:
        self._given_up = True
        self._free_unseen(self.sequence.drop_pointers())

    def ask(self) -> None:
        self._owes_ping = True

    def forked(self) -> list[wire.Outgoing]:
        """Return what to send when the process forks, or has: nothing where nothing is lent. Needs no lock."""
        lends = self._extended and not self.all_freed
        return [wire.Outgoing(Control.FORKED, [])] if lends else []

    def unused(self) -> list[wire.Outgoing]:
        """Return the last message where nothing of the server's memory is looked at, nor open, any more."""
        return [wire.Outgoing(Control.UNUSED, [])] if self._extended else []

    def lost(self, error: BowstringError, *, bodies: bool) -> bool:
        """Take note that a connection ended, by `error`; return whether that ends the stream.

        The connection of metadata may be closed when all of them have come. A server that knows only the
        specification may close that of `bodies` when all are sent, which may be before their metadata have come.
        """
        needed = not self.sequence.metadata_complete
        if bodies:
            complete = self.phase is Phase.COMPLETE
            needed = self._one_connection or self._extended or complete or self.sequence.lacks_body
        if type(error) is not BrokenError or needed:
            return True
        self._bodies_lost = error if bodies else None
        return False

    @property
    def lost_body(self) -> BowstringError | None:
        """What ended the connection of bodies, where the next part lacks its body."""
        lost = self._bodies_lost
        return lost if lost is not None and self.sequence.lacks_body else None

    def fail(self, error: BowstringError) -> bool:
        """Let the stream end with an error, unless everything has come or it has ended; return whether it does."""
        if self.phase is Phase.COMPLETE:
            if type(error) not in _LOST:
                self.behind_end = error
            return False
        if self.error is not None:
            return False
        self.error = error
        if self.phase is not Phase.BROKEN:
            self._stop_taking()
        return True

    def abort(self, error: BowstringError) -> None:
        """Let the stream end with an error although everything has come: what came cannot be freed."""
        self.phase = Phase.FAILED
        self.error = self.error or error

    @property
    def quiet(self) -> bool:
        return self.phase is not Phase.OPEN

    @property
    def over(self) -> bool:
        """Whether nothing more comes: the end was read, or the server stopped, or does not answer."""
        if self.use is Use.READING:
            return False
        return self.use is Use.READ or self.quiet or self._given_up or not self._extended

    @property
    def missing(self) -> str:
        if self.handshake < Handshake.WELCOMED:
            return "the server has not sent the WELCOME that its URI promises (bow=1)"
        return self.sequence.missing

    # What is sent.

    @property
    def has_news(self) -> bool:
        owes = self._owes_pong or self._owes_ping or self._last_word is not None
        owes = owes or (self.partitions is not None and len(self.partitions.said) > 0)
        return owes or self.credit > 0 or self._growth > 0 or bool(self._to_free)

    def to_send(self) -> tuple[list[wire.Outgoing], list[wire.Outgoing]]:
        """Return the messages that are due, which count as sent.

        The first ones go over the connection of bodies, the others over that of metadata, if there are two.
        """
        outgoing: list[wire.Outgoing] = []
        freed, self._to_free = self._to_free, []
        if freed and self._free_data is not None:
            addresses = np.concatenate(freed)
            for at in range(0, len(addresses), _MOST_FREED):
                part = wire.pack_addresses(addresses[at : at + _MOST_FREED])
                outgoing.append(wire.Outgoing(self._free_data, [part]))
        if self.partitions is not None and self.partitions.said:
            outgoing.append(wire.Outgoing(Control.TAKEN, [pack_taken(self.partitions.said)]))
            self.partitions.said = []
        said = [
            (Control.CREDIT, self.credit),
            (Control.PONG, None if self._owes_pong else 0),
            (Control.PING, None if self._owes_ping else 0),
            (Control.WINDOW, self._growth),
        ]
        outgoing += [wire.Outgoing(tag, [] if n is None else [wire.pack_u64(n)]) for tag, n in said if n != 0]
        if self._last_word is not None:
            outgoing.append(wire.Outgoing(self._last_word, []))
        self.credit = self._growth = 0
        self._owes_pong = self._owes_ping = False
        self._last_word = None
        if not self._extended:
            outgoing = [each for each in outgoing if each.tag == self._free_data]
        return outgoing, [each for each in outgoing if each.tag in _BOTH]


def opening(
    location: Location, ticket: bytes, hello: wire.Hello | None, partitions: Sequence[PartitionTicket] = ()
) -> list[wire.Outgoing]:
    """Return what a client sends first on a connection: the hello, if the server knows it, and the ticket."""
    messages = [] if hello is None or location.hello is None else hello.say(location.hello)
    if partitions:
        request, bodies = PartitionRequest.of(partitions)
        messages += [wire.Outgoing(Control.PARTITIONS, [body]) for body in bodies]
        ticket = request.generation
    messages.append(wire.Outgoing(location.want_data, [ticket]))
    return messages


def in_words(error: BowstringError) -> str:
    """Return an error as a server is told of it."""
    return "; ".join(
        str(part) for part in (error.what, error.found and f"found {error.found}", error.hint) if part
    )


def _check_attachments(handle: Handle | LentHandle | KeyedHandle, attachments: tuple[Any, ...]) -> None:
    """Refuse a region without its memory, and lent memory with a descriptor, which it does not need."""
    if isinstance(handle, Handle) and len(attachments) != 1:
        raise ProtocolError("a region comes with one attachment", found=len(attachments))
    if isinstance(handle, KeyedHandle) and attachments:
        raise ProtocolError("memory with a key comes without attachments", found=len(attachments))
    if isinstance(handle, LentHandle) and (len(attachments) > 1 or isinstance((*attachments, None)[0], int)):
        raise ProtocolError("lent memory comes without a descriptor", found=f"{len(attachments)} attachments")
