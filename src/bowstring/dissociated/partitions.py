"""Partitions: several data sets of one server, one after the other in one stream.

The reader lists what it wants, each by its ticket and a number of its own, and names the list by a digest: that is
the ticket of the stream. The server lets it in to all of them or to none, so the list is fixed from then on. Each
partition begins with a mark: dictionaries and regions of those before it are not used any more. The reader says
when its user has the last batch of a partition; the server begins no more of them ahead than the reader asked for.
"""

from __future__ import annotations

import collections
import hashlib
import os
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from bowstring.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MOST_PARTITIONS: Final = 65_536
"""The most partitions of one stream."""
MOST_BYTES: Final = 8 << 20
"""The most bytes that a list of them has."""
STRANGERS_BYTES: Final = 256 << 10
"""The most of a reader that nothing is known of: no token, no certificate, no socket of its user's."""
_PIECE: Final = 64 << 10
_ENTRY: Final = struct.Struct("<IH")
_MARK: Final = struct.Struct("<IIQ")
_U32: Final = struct.Struct("<I")
_SWITCH: Final = "BOWSTRING_PARTITIONS"


def are_enabled() -> bool:
    """Whether this process uses one stream for many partitions; ``BOWSTRING_PARTITIONS=0`` turns that off."""
    return os.environ.get(_SWITCH, "1") != "0"


class PartitionTicket(NamedTuple):
    """One partition that a reader wants: its number, by which messages and errors name it, and its ticket."""

    number: int
    ticket: bytes


class PartitionRequest:
    """The partitions that a reader lists, in their order."""

    def __init__(self) -> None:
        self.tickets: list[PartitionTicket] = []
        self._nbytes = 0
        self._digest = hashlib.sha256()

    @classmethod
    def of(cls, tickets: Iterable[PartitionTicket]) -> tuple[Self, list[bytes]]:
        """Return a request for partitions, and the messages that say it."""
        request = cls()
        messages = [request.take(body) for body in _pieces(tickets)]
        return request, messages

    def take(self, body: bytes, most: int = MOST_BYTES) -> bytes:
        """Take one message of the list, which has `most` bytes at most, and return it."""
        at, tickets = 0, []
        last = self.tickets[-1].number if self.tickets else -1
        while at < len(body):
            if len(body) - at < _ENTRY.size:
                raise ProtocolError("a list of partitions ends within an entry", found=f"{len(body)} bytes")
            number, length = _ENTRY.unpack_from(body, at)
            at += _ENTRY.size
            if length > len(body) - at or number <= last:
                raise ProtocolError(
                    "a list of partitions cannot be read",
                    expected=f"a number above {last}, and a ticket of at most {len(body) - at} bytes",
                    found=f"number {number}, {length} bytes",
                )
            tickets.append(PartitionTicket(number, body[at : at + length]))
            last, at = number, at + length
        self._nbytes += len(body)
        if self._nbytes > most or len(self.tickets) + len(tickets) > MOST_PARTITIONS:
            raise ProtocolError(
                "a stream has too many partitions",
                expected=f"at most {MOST_PARTITIONS}, whose entries have {most} bytes",
            )
        self.tickets += tickets
        self._digest.update(body)
        return body

    def is_named(self, ticket: bytes) -> bool:
        """Whether a ticket names this list, and there is something in it."""
        return bool(self.tickets) and ticket == self.generation

    @property
    def generation(self) -> bytes:
        """What names exactly this list: the ticket of the stream."""
        return _named(self._digest)


def _named(digest: hashlib._Hash) -> bytes:
    return b"partitions:" + digest.hexdigest()[:32].encode()


def generation_of(tickets: Iterable[PartitionTicket]) -> bytes:
    """Return the digest that identifies a list, of any length."""
    return _named(hashlib.sha256(b"".join(_pieces(tickets))))


def _pieces(tickets: Iterable[PartitionTicket]) -> Iterator[bytes]:
    """Yield the list in messages of some 64 KiB."""
    piece = bytearray()
    for number, ticket in tickets:
        if len(piece) + len(ticket) > _PIECE:
            yield bytes(piece)
            piece.clear()
        piece += _ENTRY.pack(number, len(ticket)) + ticket
    yield bytes(piece)


def lists_of(
    tickets: Sequence[PartitionTicket], most: int = MOST_BYTES
) -> Iterator[Sequence[PartitionTicket]]:
    """Yield a list in parts that one stream can take; mostly there is one."""
    begin = nbytes = 0
    for index, (_, ticket) in enumerate(tickets):
        nbytes += _ENTRY.size + len(ticket)
        if index - begin == MOST_PARTITIONS or nbytes > most:
            yield tickets[begin:index]
            begin, nbytes = index, _ENTRY.size + len(ticket)
    if tickets[begin:]:
        yield tickets[begin:]


class PartitionMark(NamedTuple):
    """The message that begins a partition."""

    number: int  # as the reader named it
    num_batches: int
    first: int = 0  # sequence number of its first message, or of the next one if it has none

    def pack(self) -> bytes:
        return _MARK.pack(self.number, self.first, self.num_batches)

    @classmethod
    def unpack(cls, body: bytes | memoryview) -> Self:
        if len(body) != _MARK.size:
            raise ProtocolError("PARTITION has the wrong length", expected=_MARK.size, found=len(body))
        number, first, num_batches = _MARK.unpack(body)
        return cls(number, num_batches, first)


def pack_taken(numbers: Iterable[int]) -> bytes:
    """Return the message that the user has taken the last batches of some partitions."""
    return b"".join(map(_U32.pack, numbers))


def unpack_taken(body: bytes | memoryview) -> list[int]:
    """Return the numbers of partitions in such a message."""
    if not len(body) or len(body) % _U32.size:
        raise ProtocolError("TAKEN is not a list of uint32", found=f"{len(body)} bytes")
    return [number for (number,) in _U32.iter_unpack(body)]


class IncomingPartitions:
    """The partitions of one stream, as its reader counts them; `numbers` are those requested, in order."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._awaited = collections.deque(numbers)
        self._open: collections.deque[int] = collections.deque()  # begun, and not taken
        self._undelivered: collections.deque[int] = collections.deque()  # of each of these
        self.to_come = 0  # batches of the partition that was begun last
        self.said: list[int] = []  # taken, and the server was not told of it yet
        self.last_taken = -1  # the last partition whose batches the user has, all of them; -1: none

    def begin(self, mark: PartitionMark, next_message: int) -> None:
        """Take the mark of the next partition, where `next_message` is the number of the next message."""
        if self.to_come or mark.first != next_message:
            raise ProtocolError(
                "a partition begins before the one before it is complete",
                expected=f"{self.to_come} batches more, then message {next_message}",
                found=f"partition {mark.number}, message {mark.first}",
            )
        if not self._awaited or self._awaited[0] != mark.number:
            expected = f"partition {self._awaited[0]}" if self._awaited else "the end of the stream"
            raise ProtocolError(
                "partitions come in another order than asked for", expected=expected, found=mark
            )
        self._open.append(self._awaited.popleft())
        self._undelivered.append(mark.num_batches)
        self.to_come = mark.num_batches
        self._advance()

    def come(self, count: int) -> None:
        """Count messages of the partition: batches, or 0 for a dictionary."""
        if not max(count, 1) <= self.to_come:
            raise ProtocolError(
                "a batch or a dictionary belongs to no partition",
                expected=f"{self.to_come} batches more, then PARTITION",
                found=f"behind {self._place}",
            )
        self.to_come -= count

    @property
    def _place(self) -> str:
        last = self._open[-1] if self._open else self.last_taken
        return "the schema" if last < 0 else f"partition {last}"

    def deliver(self) -> None:
        self._undelivered[0] -= 1
        self._advance()

    def _advance(self) -> None:
        while self._open and not self._undelivered[0]:
            self._undelivered.popleft()
            self.last_taken = self._open.popleft()
            self.said.append(self.last_taken)

    def at_end(self, *, marks: bool) -> bool:
        """Whether all have begun; refuse the end of a stream that lacks batches or, with `marks`, partitions."""
        if self.to_come or (marks and self._awaited):
            raise ProtocolError(
                "the stream ends before its partitions",
                expected=f"{self.to_come} batches and {len(self._awaited)} partitions more",
                found=f"the end behind {self._place}",
            )
        return not self._awaited

    @property
    def current(self) -> int | None:
        """The number of the partition that the user is in, or comes to next; ``None`` behind the last one."""
        return next(iter(self._open or self._awaited), None)
