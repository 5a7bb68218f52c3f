"""The consumer's half of the protocol, without any IO: messages in, events out.

It puts metadata and bodies together by sequence number, in whatever order and over however many connections
they come, and gives them out in the order of the stream. What it does not allow it raises as ``ProtocolError``;
after an error it takes nothing more.

A server that took our hello is held to what ``docs/protocol.md`` adds: WELCOME first, metadata in order, a body for
every batch. One that knows only the specification sends none of our messages, may send metadata in any order, and
may leave out bodies of 0 bytes.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.credits import Account
from bowstring.dissociated.events import (
    Announced,
    Asked,
    Awaited,
    Blocked,
    End,
    Event,
    Failed,
    NoRoom,
    Packed,
    Part,
    Ping,
    Pointers,
    Pong,
    Stopped,
    Welcomed,
)
from bowstring.dissociated.failures import unpack_error
from bowstring.dissociated.tags import PACKED, POINTERS, SEQUENCE_MASK, Control, is_body, split_body_tag
from bowstring.dissociated.wire import (
    END,
    Hello,
    Outgoing,
    Welcome,
    are_numbered,
    pack_columns,
    unpack_devices,
    unpack_pairs,
    unpack_prefix,
    unpack_region,
    unpack_u64,
)
from bowstring.errors import LimitExceeded, ProtocolError
from bowstring.ipc.body.template import MessageDecoder
from bowstring.ipc.flatbuf.message import MessageKind, decode_dictionary, decode_record_batch
from bowstring.memory import EventHandle, Handle, LentHandle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bowstring.dissociated.endpoint import Location
    from bowstring.ipc.body.template import MessageTemplate
    from bowstring.ipc.flatbuf.message import Message
    from bowstring.limits import Limits

__all__ = ["ReaderProtocol"]

_HALF: Final = 1 << 31
_LONGEST_HELLO: Final = 2048


class ReaderProtocol:
    """One stream as its reader sees it.

    Parameters
    ----------
    limits
        Bounds for what the peer sends.
    extended
        Whether the server took a hello. It then sends metadata in order, so that a gap in their numbers is an error
        at once; otherwise what is missing may still come.
    one_connection
        Whether everything comes over one connection. WELCOME then comes before the schema, not only before bodies.
    first
        The sequence number of the schema: 0, but for tests of the roll-over.
    window
        The credit in bytes that the hello gave; ``None`` for a producer that knows no credits.

    Attributes
    ----------
    account
        What packed bodies take of the credit. The code that delivers batches charges it and gives it back.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        extended: bool = True,
        one_connection: bool = False,
        first: int = 0,
        window: int | None = None,
    ) -> None:
        self.account = Account(window)
        self._limits = limits
        self._decoder = MessageDecoder(limits)
        self._extended = extended
        self._one_connection = one_connection
        self._first = first
        self._next = first
        self._welcomed = not extended
        self._begun = False
        self._broken = False
        self._failed = False
        self._asked = self._awaits = False
        self._metadata: dict[int, Message] = {}
        self._metadata_bytes = 0
        self._bodies: dict[int, Packed | Pointers] = {}
        # Messages without a byte that were given out before their empty body came, which may come yet.
        self._bodiless: dict[int, None] = {}
        self._end: int | None = None
        self.ended = False

    @staticmethod
    def opening(location: Location, ticket: bytes, hello: Hello | None) -> list[Outgoing]:
        """Return what a client says first on a connection: the hello, if the server knows it, and the ticket."""
        messages = []
        if hello is not None and location.hello is not None:
            packed, columns = hello.pack(), hello.columns
            if len(packed) > _LONGEST_HELLO and columns:
                # A server accepts few bytes before the hello, by which it authenticates the reader.
                packed = dataclasses.replace(hello, columns=None).pack()
                messages.append(Outgoing(Control.COLUMNS, [pack_columns(columns)]))
            messages.insert(0, Outgoing(location.hello, [packed]))
        messages.append(Outgoing(location.want_data, [ticket]))
        return messages

    def receive(self, tag: int | None, body: Any, attachments: tuple[Any, ...] = ()) -> list[Event]:
        """Take one message and return what follows from it.

        Parameters
        ----------
        tag
            ``None`` for an untagged message.
        body
            Bytes; for a body of type 0 whatever stands for the memory it landed in.
        attachments
            What travelled beside the message.

        Raises
        ------
        ProtocolError, InvalidMetadata, LimitExceeded
            The peer broke the protocol, its metadata, or a bound; or it did so before.
        """
        if self._broken:
            # With two connections the other one may go on: what it brings must not end the stream after all.
            raise ProtocolError("the stream broke before", hint="Its first error says why.")
        try:
            return self._receive(tag, body, attachments)
        except BaseException:
            self._broken = True
            raise

    def expect(self, tag: int, nbytes: int) -> None:
        """Refuse the length of a packed body, before there is memory for it, where there is no credit for it.

        Raises
        ------
        ProtocolError
            The producer sends more than it was given credit for.
        """
        if not self.account.allows(nbytes):
            message = self._metadata.get(split_body_tag(tag)[0])
            self.account.check(nbytes, None if message is None else packed_cost(message, nbytes))

    @property
    def template(self) -> MessageTemplate | None:
        """What the metadata of the last batches looked like; nothing while that is not known."""
        return self._decoder.template

    def foreseen(
        self, prefixes: npt.NDArray[np.uint8], tags: npt.NDArray[np.uint64], kind: int = PACKED
    ) -> bool:
        """Whether pairs of metadata and body of one type are surely the next parts of the stream, all of them.

        If they are not, it is for `receive` to say what is wrong, if anything.
        """
        return self._awaits_pair() and are_numbered(self._next, prefixes, tags, kind)

    def awaits(self, first: int, count: int) -> bool:
        """Whether the next parts of the stream are surely that many pairs, numbered from `first` on."""
        return first == self._next and first + count - 1 <= SEQUENCE_MASK and self._awaits_pair()

    def _awaits_pair(self) -> bool:
        waiting = self._metadata or self._bodies or self._end is not None
        return self._begun and not (self._broken or self._failed or waiting)

    def take(self, count: int) -> None:
        """Count that many pairs that were foreseen, one at least, as received and given out."""
        self._next = (self._next + count) & SEQUENCE_MASK

    def _receive(self, tag: int | None, body: Any, attachments: tuple[Any, ...]) -> list[Event]:
        if tag is not None and not is_body(tag):
            return self._receive_control(tag, body, attachments)
        if self._failed:
            return []  # under way when the server gave up; nothing may end the stream after all
        if not self._welcomed and (tag is not None or self._one_connection):
            raise ProtocolError(
                "the server sent no WELCOME",
                expected="WELCOME before the schema and the bodies, as its URI promises (bow=1)",
                found="an untagged message" if tag is None else f"a body, tag {tag:#x}",
                hint="A server that knows only the specification leaves bow and hello out of its URI.",
            )
        if tag is None:
            self._receive_untagged(body)
            return self._complete()
        sequence, body_type = split_body_tag(tag)
        self._receive_body(sequence, body_type, body)
        return self._complete()

    def _receive_untagged(self, message: Any) -> None:
        kind, sequence, flatbuffer = unpack_prefix(message)
        if kind == END and self._end is not None:
            raise ProtocolError("the stream ends twice", expected=f"one end, {self._end}", found=sequence)
        self._check_number(sequence, "metadata")
        if sequence in self._metadata:
            raise ProtocolError("two metadata messages have the same number", found=sequence)
        awaited = (self._next + len(self._metadata)) & SEQUENCE_MASK
        if self._extended and sequence != awaited:
            raise ProtocolError(
                "messages are missing before a metadata message", expected=awaited, found=sequence
            )
        if kind == END:
            self._receive_end(sequence)
            return
        decoded = self._decoder.decode(flatbuffer)
        is_schema = decoded.kind is MessageKind.SCHEMA
        if is_schema != (sequence == self._first and not self._begun):
            raise ProtocolError(
                "the schema must be message 0, and only that one",
                found=f"{decoded.kind.name} as message {sequence}",
            )
        if decoded.kind not in (MessageKind.SCHEMA, MessageKind.RECORD_BATCH, MessageKind.DICTIONARY_BATCH):
            raise ProtocolError("a stream holds record batches and dictionaries", found=decoded.kind.name)
        self._begun |= is_schema
        self._metadata[sequence] = decoded
        self._metadata_bytes += len(decoded.data)
        self._bound_early()

    def _receive_end(self, sequence: int) -> None:
        self._end = sequence
        beyond = [number for number in (*self._metadata, *self._bodies) if self._after(number, sequence)]
        if beyond or (sequence == self._first and not self._begun):
            raise ProtocolError(
                "the end of the stream has the wrong number",
                expected="one more than the last message",
                found=f"end {sequence}, messages up to {max(beyond, default=sequence)}",
            )

    def _receive_body(self, sequence: int, body_type: int, body: Any) -> None:
        if sequence == self._first and not self._begun:
            raise ProtocolError("a schema has no body", found=f"a body with number {sequence}")
        if sequence in self._bodiless:
            self._receive_empty(sequence, body_type, body)
            return
        self._check_number(sequence, "body")
        if sequence in self._bodies:
            raise ProtocolError("two bodies have the same number", found=sequence)
        if body_type == POINTERS:
            self._bodies[sequence] = Pointers(*unpack_pairs(body))
        else:
            self._bodies[sequence] = Packed(body)
            self.account.early += _nbytes_of(body)
        self._bound_early()

    def _receive_empty(self, sequence: int, body_type: int, body: Any) -> None:
        """Take the body of a message that was given out without it: there is nothing in it."""
        del self._bodiless[sequence]
        nbytes = unpack_pairs(body)[0] if body_type == POINTERS else len(body)
        if nbytes:
            raise ProtocolError("a body has another length than its metadata says", expected=0, found=nbytes)

    def _receive_control(self, tag: int, body: Any, attachments: tuple[Any, ...]) -> list[Event]:
        if not self._extended:
            raise ProtocolError("a server that was sent no hello cannot send this", found=f"tag {tag:#x}")
        match tag:
            case Control.WELCOME:
                return [self._receive_welcome(body)]
            case Control.DEVICES:
                return [self._receive_devices(body)]
            case Control.EVENT:
                return [self._receive_event(body)]
            case Control.REGION:
                base, handle = unpack_region(body)
                _check_attachments(handle, attachments)
                return [Announced(base, handle, attachments[0] if attachments else None)]
            case Control.ERROR:
                error = unpack_error(body)
                self._failed = True
                return [Failed(error)]
            case Control.PING:
                return [Ping()]
            case Control.PONG:
                return [Pong()]
            case Control.STOPPED:
                return [Stopped()]
            case Control.BLOCKED:
                return [Blocked(unpack_u64(body))]
            case Control.NO_ROOM:
                return [NoRoom(unpack_u64(body))]
            case _:
                raise ProtocolError("a server cannot say this", found=f"tag {tag:#x}")

    def _receive_welcome(self, body: Any) -> Welcomed:
        if self._welcomed:
            raise ProtocolError("a server sends WELCOME once")
        self._welcomed = True
        return Welcomed(Welcome.unpack(body))

    def _receive_devices(self, body: Any) -> Asked:
        if self._asked or self._welcomed:
            raise ProtocolError("a server asks once which devices can be reached, before WELCOME")
        self._asked = True
        return Asked(unpack_devices(body))

    def _receive_event(self, body: Any) -> Awaited:
        if self._awaits or self._asked or self._welcomed:
            raise ProtocolError("a server names one event, before DEVICES and WELCOME")
        self._awaits = True
        return Awaited(EventHandle.unpack(bytes(body)))

    def _complete(self) -> list[Event]:
        """Give out what has become complete, in order."""
        events: list[Event] = []
        while self._next in self._metadata:
            message = self._metadata[self._next]
            if message.kind is MessageKind.SCHEMA:
                body = None
            elif self._next in self._bodies:
                body = self._bodies.pop(self._next)
                if isinstance(body, Packed):
                    self.account.early -= _nbytes_of(body.body)
            elif message.body_length == 0 and not self._extended:
                body = None
                self._note_bodiless(self._next)
            else:
                break
            del self._metadata[self._next]
            self._metadata_bytes -= len(message.data)
            events.append(Part(self._next, message, body))
            self._next = (self._next + 1) & SEQUENCE_MASK
        if self._end == self._next and not self.ended:
            self.ended = True
            events.append(End())
        return events

    def _check_number(self, sequence: int, what: str) -> None:
        """Refuse the number of a message that was there already, or can never be."""
        if self._end is not None and self._after(sequence, self._end):
            raise ProtocolError(
                f"{what} beyond the end of the stream", expected=f"below {self._end}", found=sequence
            )
        if not self._after(sequence, self._next):
            raise ProtocolError(
                f"{what} for a message that was complete", expected=self._next, found=sequence
            )

    def _after(self, sequence: int, other: int) -> bool:
        """Whether a number is `other` or comes behind it; numbers roll over."""
        return ((sequence - other) & SEQUENCE_MASK) < _HALF

    def _note_bodiless(self, sequence: int) -> None:
        if len(self._bodiless) >= self._limits.early_messages:
            del self._bodiless[next(iter(self._bodiless))]
        self._bodiless[sequence] = None

    @property
    def metadata_complete(self) -> bool:
        """Whether the end has come and all metadata before it: a connection of metadata brings nothing more."""
        return self._end is not None and len(self._metadata) == (self._end - self._next) & SEQUENCE_MASK

    @property
    def lacks_body(self) -> bool:
        """Whether the next message waits for its body, and not for its metadata."""
        return self._next in self._metadata

    @property
    def runs_ahead(self) -> bool:
        """Whether metadata have come far ahead of the bodies, so that reading them can pause."""
        most = self._limits
        far = 16 * len(self._metadata) > most.early_messages or 2 * self._metadata_bytes > most.early_bytes
        return far and self.lacks_body

    def _bound_early(self) -> None:
        limits = self._limits
        if max(len(self._metadata), len(self._bodies)) > limits.early_messages:
            raise LimitExceeded(
                "too many messages whose counterpart is missing",
                expected=f"at most Limits.early_messages = {limits.early_messages}",
                found=self.missing,
            )
        if self._metadata_bytes > limits.early_bytes:
            raise LimitExceeded(
                "the metadata that wait for other messages are too large",
                expected=f"at most Limits.early_bytes = {limits.early_bytes}",
                found=self.missing,
            )

    @property
    def missing(self) -> str:
        """What the stream waits for, in words, for error messages."""
        if not self._welcomed:
            return "the server has not sent the WELCOME that its URI promises (bow=1)"
        half = "its body" if self.lacks_body else "its metadata"
        return f"message {self._next} lacks {half}"


def _nbytes_of(body: Any) -> int:
    """Return the length of a packed body, where what stands for it has one."""
    return getattr(body, "nbytes", 0)


def packed_cost(message: Message, nbytes: int) -> int:
    """Return what the packed body of a message is taken to cost (:meth:`Account.cost`).

    Raises
    ------
    InvalidMetadata
        The metadata is not valid.
    """
    if message.kind is MessageKind.DICTIONARY_BATCH:
        header = decode_dictionary(message).batch
    else:
        header = decode_record_batch(message)
    return Account.cost(int(header.buffers[:, 1].sum()), len(header.buffers), nbytes)


def _check_attachments(handle: Handle | LentHandle, attachments: tuple[Any, ...]) -> None:
    """Refuse a region without its memory, and lent memory with a descriptor, which it does not need."""
    if isinstance(handle, Handle) and len(attachments) != 1:
        raise ProtocolError("a region comes with one attachment", found=len(attachments))
    if isinstance(handle, LentHandle) and (len(attachments) > 1 or isinstance((*attachments, None)[0], int)):
        raise ProtocolError("lent memory comes without a descriptor", found=f"{len(attachments)} attachments")
