"""Hearing: what is there already of one connection is held back a moment, so that its batches are made together.

Only metadata and bodies of pointers are held back, and only while more is there: nobody waits for them longer than
it takes to read the next. What is not surely a run of batches is heard one by one, in the order in which it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from bowstring.dissociated.messages import METADATA
from bowstring.dissociated.tags import is_packed, is_pointers
from bowstring.errors import BowstringError, without_frames
from bowstring.reading.pointed import PointedRun
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    from bowstring.reading.wire import Wire

    Received = tuple[int | None, Any, tuple[Any, ...]]

__all__ = ["Hearing"]

# Messages, two to a batch: from here on others cost no less together, and the user waits.
_MOST: Final = 128
# Only the third of batches that look alike is known to do so.
_TRIES: Final = 3


class _Stream(Protocol):
    def hear(self, tag: int | None, body: Any, attachments: tuple[Any, ...], unsaid: int) -> int: ...
    def take_pointed(self, run: PointedRun) -> int: ...


class Hearing:
    """Brings what one connection says to its stream.

    Parameters
    ----------
    stream
        Hears it.
    wire
        The connection.

    Attributes
    ----------
    unsaid
        Of how many events the user was not told yet.
    silent
        Whether nothing more was there.
    packed
        Whether the last message was a packed body.
    """

    def __init__(self, stream: _Stream, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire
        # Where no bodies of pointers come, runs of packed ones have their own way.
        self._holds = wire.channel.carries != "nothing"
        self._held: list[Received] = []
        self.unsaid = 0
        self.silent = self.packed = False

    def next(self, idle: float) -> bool:
        """Hear the next message, or hold it back; false where after `idle` seconds there was nothing to hear.

        Raises
        ------
        BowstringError
            The connection is lost, or what came is wrong: whichever came first.
        """
        received, lost = None, None
        try:
            received = self._wire.receive(0.0 if self._held else idle)
        except BowstringError as error:
            lost = without_frames(error)  # its frame is ours, which has it
        self.silent = received is None
        if received is not None and self._holds and _can_wait(received):
            self._held.append(received)
            if len(self._held) >= _MOST:
                self.hear_held()
            return True
        heard = bool(self._held)
        try:
            self.hear_held()
        except BaseException:  # nobody will hear of this one
            close_all(() if received is None else received[2])
            raise
        if lost is not None:
            try:
                raise lost
            finally:
                del lost, received  # which this frame holds, as the error holds the frame
        if received is None:
            return heard
        self.packed = is_packed(received[0])
        self.unsaid = self._stream.hear(*received, self.unsaid)
        return True

    def hear_held(self) -> None:
        """Hear what was held back.

        Raises
        ------
        BowstringError
            Something of it is wrong.
        """
        held, self._held = self._held, []
        at, tries = 0, _TRIES
        while at < len(held):
            run = PointedRun.of(held, at) if tries else None
            taken = 0 if run is None else self._stream.take_pointed(run)
            if taken:
                self.unsaid = 0
                at += 2 * taken
                continue
            tries -= run is not None
            pair = 2 if held[at][0] is None else 1
            for each in held[at : at + pair]:
                self.unsaid = self._stream.hear(*each, self.unsaid)
            at += pair


def _can_wait(received: Received) -> bool:
    """Whether a message is metadata or a body of pointers: nobody is told of one at once."""
    tag, body, attachments = received
    if attachments:
        return False
    return bool(len(body)) and body[0] == METADATA if tag is None else is_pointers(tag)
