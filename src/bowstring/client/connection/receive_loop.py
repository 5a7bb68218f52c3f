"""Receiving: what comes over one connection of a stream is brought to it, by whichever thread has the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from bowstring.dissociated.tags import is_packed, is_pointers
from bowstring.dissociated.wire import METADATA
from bowstring.errors import BowstringError, without_frames
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.client.connection.runs import Run
    from bowstring.client.connection.wire import Begun, Received, Wire

# Messages, two to a batch: from here on others cost no less together, and the user waits.
_MOST_TOGETHER: Final = 128
# Messages that cannot be taken together are hardly followed by others that can.
_TRIES: Final = 3


class _Stream(Protocol):
    def begin(self, begun: Begun) -> None: ...
    def hear(self, tag: int | None, body: Any, attachments: tuple[Any, ...]) -> None: ...
    def take_run(self, run: Run) -> int: ...
    def take_pairs(self, held: Sequence[Received]) -> int: ...


class Hearing:
    """Receives the messages of one connection, and passes them to a stream."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        # Where no bodies of pointers come, runs of packed ones have their own way.
        self._holds = wire.channel.passes_memory in ("fd", "object")
        self._done = wire.channel.position
        self.over = False  # it broke: nothing more comes

    @property
    def settled(self) -> bool:
        """Whether all that was received is with the stream, so that an interrupt has lost nothing."""
        return 0 <= self._done == self.wire.channel.position

    def begin(self, stream: _Stream, patience: float) -> bool:
        """Process the beginning of an ordinary answer, if that is what comes, and what lies behind it."""
        begun = self.wire.receive_beginning(patience)
        if begun is not None:
            stream.begin(begun)
            taken = stream.take_pairs(begun.following)
            if taken < len(begun.following):
                _hear_all(stream, begun.following[taken:])
        self._done = self.wire.channel.position
        return begun is not None

    def turn(self, stream: _Stream, idle: float) -> bool:
        """Process what comes within `idle` seconds, and what is there behind it; false if nothing came.

        It ends with a packed body: the next one may need memory that only the user can let go.
        """
        run = self.wire.receive_run(idle)
        if run is not None:
            _hear_run(stream, run)
        came = run is not None or (not self.wire.begun and self._hear_some(stream, idle))
        self._done = self.wire.channel.position
        return came

    def quick_turn(self, stream: _Stream) -> bool:
        """Process what is there whole, and wait for nothing; return whether `turn` has more to do."""
        received, more = self.wire.receive_whole()
        _hear_all(stream, received)
        self._done = self.wire.channel.position
        return more

    def _hear_some(self, stream: _Stream, idle: float) -> bool:
        """Process messages that come one by one; false if none did."""
        held: list[Received] = []
        lost, came = None, 0
        while came < _MOST_TOGETHER:
            try:
                received = self.wire.receive(0.0 if came else idle)
            except BowstringError as error:
                lost = without_frames(error)  # its frame is ours, which has it
                break
            if received is None:
                break
            came += 1
            held.append(received)
            if not (self._holds and _can_wait(received)):
                _hear_all(stream, held)
                held = []
                if is_packed(received[0]):
                    break
        _hear_all(stream, held)
        if lost is not None:
            try:
                raise lost
            finally:
                del lost  # which this frame holds, as the error holds the frame
        return came > 0


def _hear_run(stream: _Stream, run: Run) -> None:
    for index in range(stream.take_run(run), len(run.tags)):
        message, tag, body = run.pair(index)
        stream.hear(None, message, ())
        stream.hear(tag, body, ())


def _hear_all(stream: _Stream, held: Sequence[Received]) -> None:
    at, tries = 0, _TRIES
    try:
        while at < len(held):
            may_be_pairs = tries > 0 and held[at][0] is None
            taken = stream.take_pairs(held[at:]) if may_be_pairs else 0
            if taken:
                at += taken
                continue
            tries -= may_be_pairs
            pair = 2 if held[at][0] is None else 1
            for each in held[at : at + pair]:
                stream.hear(*each)
            at += pair
    except BaseException:  # nobody will hear of the rest
        for _, _, attachments in held[at:]:
            close_all(attachments)
        raise


def _can_wait(received: Received) -> bool:
    """Whether a message is metadata or a body of pointers: many of them are heard together."""
    tag, body, attachments = received
    if attachments:
        return False
    return bool(len(body)) and body[0] == METADATA if tag is None else is_pointers(tag)
