"""Following: what one reader is sent of a version that grows, as it asks for it and as it comes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

from bowstring.dissociated.position import Position, check_reached
from bowstring.dissociated.producer import Role
from bowstring.errors import UsageError
from bowstring.server.encoder import Encoder, Produced

if TYPE_CHECKING:
    from bowstring.dissociated.items import IpcMessage
    from bowstring.dissociated.producer import ProducerProtocol
    from bowstring.dissociated.wire import Hello, Outgoing
    from bowstring.server.growth import Growth

# Batches that are looked up together, and messages that are sent together.
_TOGETHER: Final = 64


def since_of(hello: Hello, role: Role) -> Position | None:
    """Return the position from which a follower reads, if it gave one; refuse what cannot be followed."""
    if hello.shard is not None or role is not Role.BOTH:
        raise UsageError(
            "a data set is followed as a whole, over one connection",
            found="connect(shard=…)" if hello.shard is not None else "an endpoint of publish(separate=True)",
        )
    return None if hello.since is None else Position.parse(hello.since)


class Followed(Produced):
    """A version as one reader follows it, or reads it from a position on; takes the place of a source.

    No region is announced ahead: what is there may be trimmed before it is sent.
    """

    def __init__(self, growth: Growth, hello: Hello, since: Position | None) -> None:
        self.growth = growth
        self.schema = growth.schema
        self.devices = growth.devices
        self.begins = growth.first
        if since is not None:
            self.begins = check_reached(since, growth.position)
            growth.check_kept(self.begins)
        self._until = None if hello.follow else growth.total
        self._columns = hello.columns
        self._next = self.begins
        self._waiting: list[IpcMessage] = []
        self._encoder: Encoder | None = None  # of this reader, where others are sent other messages
        self._begun = self._complete = False
        self.blocked = False  # until the reader gives credit back
        if self._until is not None:
            self.num_batches = self._until - self.begins

    def fill(self, *, pointers: bool) -> None:
        """Look for messages to send, if none wait; raise why there are no more, if the version was not finished."""
        if self._waiting or self._complete:
            return
        if not self._begun:
            self._begun = True
            if self._columns is None and pointers:
                self._waiting.append(self.growth.opening)
            else:
                self._encoder = Encoder(self.schema, self._columns, pointers=pointers, charged=False)
                self._waiting.append(self._encoder.schema())
            return
        most = _TOGETHER if self._until is None else min(_TOGETHER, self._until - self._next)
        if not most:
            self._complete = True  # whatever is no longer kept
            return
        chunks, failure, self._complete = self.growth.chunks(self._next, most)
        if failure is not None and not self._complete:
            raise copy.copy(failure)  # which keeps the frames that it passes
        for chunk in chunks:
            if self._encoder is not None:
                self._waiting += self._encoder.encode(chunk.batch)
                continue
            if self._next == self.begins:
                self._waiting += chunk.dictionaries
            self._waiting += chunk.items
            self._next += 1
        if self._encoder is not None:
            self._next += len(chunks)

    def take(self, protocol: ProducerProtocol, *, ordered: bool) -> list[Outgoing]:
        """Return messages that the reader has credit for; behind the last ones the end, or that it lacks credit."""
        outgoing = protocol.forget() if ordered else []
        while self._waiting:
            item = self._waiting[0]
            said = protocol.offer(item)
            if said is None:
                first, self.blocked = not self.blocked, True
                return [*outgoing, *(protocol.blocked(protocol.cost(item)) if first else [])]
            self.blocked = False
            outgoing += said
            del self._waiting[0]
        if self._complete and not protocol.ended:
            outgoing += protocol.end()
        return outgoing
