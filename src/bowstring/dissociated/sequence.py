"""The order of a stream: metadata and bodies are put together by their sequence numbers.

They come in any order and over one or two connections, and are given out in the order of the stream. A server that
took our hello sends its metadata in order, and a body for every batch. One that knows only the specification may
send metadata in any order, and may leave out bodies of 0 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.credits import Account
from bowstring.dissociated.events import Packed, Part, Pointers
from bowstring.dissociated.tags import POINTERS, SEQUENCE_MASK, TYPE_SHIFT, split_body_tag
from bowstring.dissociated.wire import END, METADATA, PREFIX, unpack_pairs, unpack_prefix
from bowstring.errors import LimitExceeded, ProtocolError
from bowstring.ipc.flatbuf.message import (
    MessageKind,
    decode_dictionary,
    decode_message,
    decode_record_batch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.ipc.flatbuf.message import Message
    from bowstring.limits import Limits

_HALF: Final = 1 << 31
_PARTS: Final = (MessageKind.SCHEMA, MessageKind.RECORD_BATCH, MessageKind.DICTIONARY_BATCH)


class MessageSequence:
    """The parts of one stream that came and are not complete yet."""

    def __init__(self, limits: Limits, account: Account, *, in_order: bool) -> None:
        self._limits = limits
        self._account = account
        self._in_order = in_order
        self.next = 0  # the number of the next part
        self.begun = False  # whether the schema came
        self._metadata: dict[int, Message] = {}
        self._metadata_bytes = 0
        self._bodies: dict[int, Packed | Pointers] = {}
        # Messages without a byte that were given out before their empty body came, which may come yet.
        self._bodiless: dict[int, None] = {}
        self.end: int | None = None  # the number of the end, which may come before other messages
        self.ended = False  # the end came, and all before it was returned

    def expect(self, tag: int, nbytes: int) -> None:
        """Refuse the length of a packed body, before there is memory for it, where there is no credit for it."""
        if not self._account.allows(nbytes):
            message = self._metadata.get(split_body_tag(tag)[0])
            self._account.check(nbytes, None if message is None else packed_cost(message, nbytes))

    def foreseen(self, prefixes: bytes | bytearray, tags: Sequence[int], kind: int) -> bool:
        """Whether pairs of metadata and body of one type are surely the next parts of the stream, all of them."""
        if not self.begun or self._metadata or self._bodies or self.end is not None:
            return False
        first, count = self.next, len(tags)
        if first + count - 1 > SEQUENCE_MASK:  # they roll over
            return False
        body = kind << TYPE_SHIFT
        expected = b""
        for number, tag in enumerate(tags, first):
            if tag != body | number:
                return False
            expected += PREFIX.pack(METADATA, number)
        return prefixes == expected

    def take(self, count: int, following: Any = None) -> bool:
        """Count pairs that were foreseen as given out; return whether the message `following` is the end."""
        self.next = (self.next + count) & SEQUENCE_MASK
        if following is not None and following == PREFIX.pack(END, self.next):
            self.end, self.ended = self.next, True
        return self.ended

    def add_metadata(self, message: Any) -> None:
        kind, sequence, flatbuffer = unpack_prefix(message)
        if kind == END and self.end is not None:
            raise ProtocolError("the stream ends twice", expected=f"one end, {self.end}", found=sequence)
        self._check_number(sequence, "metadata")
        if sequence in self._metadata:
            raise ProtocolError("two metadata messages have the same number", found=sequence)
        awaited = (self.next + len(self._metadata)) & SEQUENCE_MASK
        if self._in_order and sequence != awaited:
            raise ProtocolError(
                "messages are missing before a metadata message", expected=awaited, found=sequence
            )
        if kind == END:
            self.end = sequence
            beyond = [number for number in (*self._metadata, *self._bodies) if self._after(number, sequence)]
            if beyond or (sequence == self.next and not self.begun):
                raise ProtocolError(
                    "the end of the stream has the wrong number",
                    expected="one more than the last message",
                    found=f"end {sequence}, messages up to {max(beyond, default=sequence)}",
                )
            return
        decoded = decode_message(flatbuffer, self._limits)
        is_schema = decoded.kind is MessageKind.SCHEMA
        if is_schema != (sequence == self.next and not self.begun):
            raise ProtocolError(
                "the schema must be message 0, and only that one",
                found=f"{decoded.kind.name} as message {sequence}",
            )
        if decoded.kind not in _PARTS:
            raise ProtocolError("a stream holds record batches and dictionaries", found=decoded.kind.name)
        self.begun |= is_schema
        self._metadata[sequence] = decoded
        self._metadata_bytes += len(decoded.data)
        self._bound_early()

    def add_body(self, tag: int, body: Any) -> None:
        sequence, body_type = split_body_tag(tag)
        if sequence == self.next and not self.begun:
            raise ProtocolError("a schema has no body", found=f"a body with number {sequence}")
        if sequence in self._bodiless:
            del self._bodiless[sequence]  # of a message that was given out without it: there is nothing in it
            nbytes = unpack_pairs(body)[0] if body_type == POINTERS else len(body)
            if nbytes:
                raise ProtocolError(
                    "a body has another length than its metadata says", expected=0, found=nbytes
                )
            return
        self._check_number(sequence, "body")
        if sequence in self._bodies:
            raise ProtocolError("two bodies have the same number", found=sequence)
        if body_type == POINTERS:
            self._bodies[sequence] = Pointers(*unpack_pairs(body))
        else:
            self._bodies[sequence] = Packed(body)
            self._account.early += getattr(body, "nbytes", 0)
        self._bound_early()

    def complete(self) -> list[Part]:
        """Return the parts that have become complete, in order."""
        parts: list[Part] = []
        while self.next in self._metadata:
            message = self._metadata[self.next]
            if message.kind is MessageKind.SCHEMA:
                body = None
            elif self.next in self._bodies:
                body = self._bodies.pop(self.next)
                if isinstance(body, Packed):
                    self._account.early -= getattr(body.body, "nbytes", 0)
            elif message.body_length == 0 and not self._in_order:
                body = None
                if len(self._bodiless) >= self._limits.early_messages:
                    del self._bodiless[next(iter(self._bodiless))]
                self._bodiless[self.next] = None
            else:
                break
            del self._metadata[self.next]
            self._metadata_bytes -= len(message.data)
            parts.append(Part(self.next, message, body))
            self.next = (self.next + 1) & SEQUENCE_MASK
        self.ended = self.ended or self.end == self.next
        return parts

    def _check_number(self, sequence: int, what: str) -> None:
        """Refuse the number of a message that was there already, or can never be."""
        if self.end is not None and self._after(sequence, self.end):
            raise ProtocolError(
                f"{what} beyond the end of the stream", expected=f"below {self.end}", found=sequence
            )
        if not self._after(sequence, self.next):
            raise ProtocolError(f"{what} for a message that was complete", expected=self.next, found=sequence)

    def _after(self, sequence: int, other: int) -> bool:
        """Whether a number is `other` or comes behind it; numbers roll over."""
        return ((sequence - other) & SEQUENCE_MASK) < _HALF

    def drop_pointers(self) -> list[Pointers]:
        """Return the bodies of pointers that lack their metadata, and forget them."""
        dropped = [body for body in self._bodies.values() if isinstance(body, Pointers)]
        self._bodies = {number: body for number, body in self._bodies.items() if isinstance(body, Packed)}
        return dropped

    @property
    def metadata_complete(self) -> bool:
        """Whether the end has come and all metadata before it: a connection of metadata brings nothing more."""
        return self.end is not None and len(self._metadata) == (self.end - self.next) & SEQUENCE_MASK

    @property
    def lacks_body(self) -> bool:
        """Whether the next message waits for its body, and not for its metadata."""
        return self.next in self._metadata

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
        half = "its body" if self.lacks_body else "its metadata"
        return f"message {self.next} lacks {half}"


def packed_cost(message: Message, nbytes: int) -> int:
    """Return what the packed body of a message is taken to cost (:meth:`Account.cost`)."""
    if message.kind is MessageKind.DICTIONARY_BATCH:
        header = decode_dictionary(message).batch
    else:
        header = decode_record_batch(message)
    return Account.cost(int(header.buffers[:, 1].sum()), len(header.buffers), nbytes)
