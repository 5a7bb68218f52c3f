"""What has arrived over UCX, and the order in which it may be given out.

UCX keeps no common order of active and tagged messages. So a message with a control tag of ours (type byte 0xB0,
sent only after a hello) begins with the number of untagged messages that were sent before it, as a u32, and waits
for them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bowstring.errors import ProtocolError
from bowstring.transport.framing import lazy_memory
from bowstring.transport.header import check_length
from bowstring.transport.ucx.context import Failure, Request
from bowstring.transport.ucx.link import COUNT, COUNT_MASK, WHOLE_TAG, Link, Own
from bowstring.transport.ucx.worker import Arrived, Probed

if TYPE_CHECKING:
    from bowstring.limits import Limits
    from bowstring.transport.ucx.remote_memory import RemoteReader

CONTROL: Final = 0xB0
_MOST_WORDS: Final = 256


class Control(NamedTuple):
    """A message with a control tag of ours, without its count."""

    tag: int
    body: memoryview


class _Begun(NamedTuple):
    """A message with a count, which lands, or has landed and waits for others."""

    tag: int
    place: memoryview
    request: Request


class Incoming:
    """What has arrived on a link; all calls under the lock of its worker."""

    def __init__(self, link: Link, reader: RemoteReader, limits: Limits) -> None:
        self._link = link
        self._reader = reader
        self._limits = limits
        self._taken = 0  # untagged messages
        self._tagged_next = False
        self._begun: _Begun | None = None
        self.protocol = ""
        self._bye: int | None = None  # so many untagged messages were sent before
        self._said_gone = False

    @property
    def ended(self) -> bool:
        return self._bye is not None

    @property
    def complete(self) -> bool:
        """Whether the peer sends nothing more, and all that it sent has been given out."""
        return self._bye is not None and not self._misses(self._bye)

    def look_for_end(self) -> bool:
        """Answer a peer that closes, when all is here; return whether it has begun to only now."""
        link, came = self._link, False
        if self._bye is None:
            probed = link.worker.probe(Own.BYE, WHOLE_TAG)
            if probed is None:
                return False
            begun = self._receive(probed)
            if len(begun.place) != COUNT.size or not begun.request.done:
                raise ProtocolError("a message of this transport is too long", found=f"{probed.nbytes} bytes")
            self._bye, came = COUNT.unpack(begun.place)[0], True
        if not self._said_gone and not self._misses(self._bye, len(link.worker.arrived)):
            self._said_gone = True
            with contextlib.suppress(Failure):
                link.keep(link.say(Own.GONE))
        return came

    def _misses(self, count: int, ahead: int = 0) -> bool:
        """Whether of so many untagged messages some have not been received; `ahead` of them lie ready."""
        return (self._taken + ahead - count) & COUNT_MASK >= 1 << 31

    def next(self) -> Arrived | Probed | Control | None:
        """Return the next message that may be given out."""
        arrived = self._link.worker.arrived
        for _ in range(2):  # in turns: mostly they were sent so
            tagged, self._tagged_next = self._tagged_next, not self._tagged_next
            if arrived and not tagged:
                self._taken += 1
                return arrived.popleft()
            if tagged and (message := self._next_tagged()) is not None:
                return message
        return None

    def _next_tagged(self) -> Probed | Control | None:
        while True:
            if self._begun is None:
                probed = self._link.worker.probe()
                if probed is None:
                    return None
                if probed.tag >> 56 not in (CONTROL, Own.GREETING >> 56):
                    return probed
                self._begun = self._receive(probed)
            tag, place, request = self._begun
            if not request.done or self._misses(COUNT.unpack_from(place)[0]):
                return None  # some untagged messages that were sent before it are still to come
            self._begun = None
            body = place[COUNT.size :]
            if tag >> 56 == CONTROL:
                return Control(tag, body)
            if tag == Own.GREETING:
                self._link.ours = True
                self._reader.learn(bytes(body))
            elif tag == Own.PROTOCOL:
                words = bytes(body[:_MOST_WORDS]).decode(errors="replace")
                self.protocol = "".join(each if each.isprintable() else "?" for each in words)
            else:
                raise ProtocolError("an unknown message of this transport", found=f"tag {tag:#x}")

    def _receive(self, probed: Probed) -> _Begun:
        """Begin to receive a message of ours, which is short, and says how many untagged ones come before it."""
        nbytes = probed.nbytes
        check_length(probed.tag, nbytes - COUNT.size, self._limits)
        if nbytes < COUNT.size:
            raise ProtocolError("a control message has no count", expected=COUNT.size, found=nbytes)
        place = lazy_memory(nbytes)
        array = np.frombuffer(place, np.uint8)
        request = self._link.worker.receive(probed, array.ctypes.data, kept=array)
        if not request.done:
            self._link.keep(request)
        return _Begun(probed.tag, place, request)
