"""Receiving: what comes over the connections of a stream is brought to it, by its opener first, then by threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from bowstring.client.connection.decode_many import PointedRun
from bowstring.dissociated.events import Blocked, End, Failed, NoRoom, Packed, Part, Stopped
from bowstring.dissociated.tags import is_packed, is_pointers
from bowstring.dissociated.wire import METADATA
from bowstring.errors import BowstringError, ProtocolError, without_frames
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    from bowstring.client.connection.decode_many import PointedRun
    from bowstring.client.connection.runs import Run
    from bowstring.client.connection.wire import Begun, Wire
    from bowstring.dissociated.events import Event
    from bowstring.dissociated.wire import Welcome
    from bowstring.limits import Limits

_TOGETHER: Final = 16
# Of what comes in runs, where a batch costs less than being woken for it.
_MOST_TOGETHER: Final = 64
_LATE: Final = 0.002
_MOST_FIRST: Final = 256
_MOMENT: Final = 0.001
_URGENT: Final = (Blocked, End, Failed, NoRoom, Stopped)


class _Stream(Protocol):
    limits: Limits
    welcome: Welcome | None

    @property
    def is_ordinary(self) -> bool: ...
    @property
    def opened(self) -> bool: ...
    @property
    def quiet(self) -> bool: ...
    @property
    def over(self) -> bool: ...
    def begin(self, begun: Begun) -> None: ...
    def hear(self, tag: int | None, body: Any, attachments: tuple[Any, ...], unsaid: int) -> int: ...
    def take_run(self, run: Run) -> int: ...
    def take_pointed(self, run: PointedRun) -> int: ...
    def hold_back(self, wire: Wire) -> None: ...
    def lost(self, wire: Wire, error: BowstringError) -> None: ...
    def wake(self) -> None: ...
    def fail(self, error: BowstringError) -> None: ...
    def hang_up(self) -> None: ...


def is_urgent(event: Event) -> bool:
    """Whether the user must be woken for an event at once, and not for several together."""
    return isinstance(event, _URGENT) or (isinstance(event, Part) and isinstance(event.body, Packed))


def take_first(stream: _Stream, wire: Wire) -> None:
    """Read the one connection of a stream until it has begun, and what follows soon; at most one packed body.

    The thread that opens the stream waits for just this; for a slow producer threads start, which answer it.
    """
    patience = min(stream.limits.connect_timeout, stream.limits.heartbeat)
    end = time.monotonic() + patience
    hearing = Hearing(stream, wire)
    mapped = _is_mapped(wire)
    opened = False
    try:
        if stream.is_ordinary and (begun := wire.receive_beginning(patience)) is not None:
            stream.begin(begun)
            for tag, _, body in begun.following:
                hearing.take((tag, body, ()))
            hearing.hear_held()
        for _ in range(_MOST_FIRST):
            opened = opened or stream.opened
            if stream.quiet or (opened and not mapped):
                break
            if not hearing.next(_patience(stream) if opened else max(0.0, end - time.monotonic())):
                break
            if hearing.packed:
                break  # the next body may need memory that only the user, who waits for us, can let go
        hearing.hear_held()
    except BowstringError as error:
        stream.fail(without_frames(error))
    except BaseException:
        stream.hang_up()
        raise


def _is_mapped(wire: Wire) -> bool:
    """Whether bodies of pointers cost nothing but a look at them."""
    return wire.channel.passes_memory in ("fd", "object")


def _patience(stream: _Stream) -> float:
    """How long to wait for what follows the beginning: what is resident is on its way, and soon all there."""
    return _MOMENT if stream.welcome is not None and not stream.welcome.charged else 0.0


def listen(stream: _Stream, wire: Wire, *, waits: bool = True) -> bool:
    """Read one connection of a stream until it is over; what goes wrong fails the stream.

    Unless it `waits`, return true once nothing more is there, and no message has begun.
    """
    hearing = Hearing(stream, wire)
    untold, since = 0, 0.0  # batches of runs, and when the first of them came
    try:
        while not stream.over:
            # What is there already is taken together: each time that the user is woken costs the two of us more
            # than the message does.
            may_wait = (waits or wire.begun) and not (hearing.unsaid or untold)
            idle = stream.limits.heartbeat if may_wait else 0.0
            taken = _take_run(stream, wire, idle)
            now = time.monotonic()
            since = since if untold else now
            untold += taken
            # Whatever comes next may be long in coming, or need memory that only the user can let go: nobody
            # waits for it with the user not told.
            if untold and (not taken or untold >= _MOST_TOGETHER or now - since > _LATE):
                untold = hearing.unsaid = 0
                stream.wake()
            if taken or wire.begun:
                continue
            hearing.next(idle)
            stream.hold_back(wire)
            if hearing.unsaid and (hearing.silent or hearing.unsaid >= _TOGETHER):
                hearing.unsaid = 0
                stream.wake()
            if hearing.silent and not waits:
                # Then waiting is what finds out that the process is gone, though its end of the connection is open.
                waits = wire.channel.peer.exited(0.0)
                if not waits:
                    return True
    except BowstringError as error:
        # Its frames hold the stream, which holds it, and so does the channel.
        without_frames(error)
        stream.lost(wire, error)
    except Exception as error:  # noqa: BLE001  the user must hear of it, not the thread's end
        failure = ProtocolError("the stream cannot be read", found=f"{type(error).__name__}: {error}")
        failure.__cause__ = without_frames(error)
        stream.fail(failure)
    return False


def _take_run(stream: _Stream, wire: Wire, idle: float) -> int:
    """Take what comes many at a time, if anything does, and keep nothing of it; return how many batches."""
    run = wire.receive_run(idle)
    if run is None:
        return 0
    for index in range(stream.take_run(run), len(run.tags)):
        message, tag, body = run.pair(index)
        stream.hear(None, message, (), 0)
        stream.hear(tag, body, (), 0)
    return len(run.tags)


if TYPE_CHECKING:
    Received = tuple[int | None, Any, tuple[Any, ...]]

# Messages, two to a batch: from here on others cost no less together, and the user waits.
_MOST_HELD: Final = 128
# Only the third of batches that look alike is known to do so.
_TRIES: Final = 3


class _Hearer(Protocol):
    def hear(self, tag: int | None, body: Any, attachments: tuple[Any, ...], unsaid: int) -> int: ...
    def take_pointed(self, run: PointedRun) -> int: ...


class Hearing:
    """Receives the messages of one connection and passes them to its stream."""

    def __init__(self, stream: _Hearer, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire
        # Where no bodies of pointers come, runs of packed ones have their own way.
        self._holds = _is_mapped(wire)
        self._held: list[Received] = []
        self.unsaid = 0  # events that the user was not notified of yet
        # Whether nothing more was there, and whether the last message was a packed body.
        self.silent = self.packed = False

    def next(self, idle: float) -> bool:
        """Process the next message, or hold it back; false if nothing came within `idle` seconds."""
        received, lost = None, None
        try:
            received = self._wire.receive(0.0 if self._held else idle)
        except BowstringError as error:
            lost = without_frames(error)  # its frame is ours, which has it
        self.silent = received is None
        if received is not None and self._holds and _can_wait(received):
            self._hold(received)
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

    def take(self, received: Received) -> None:
        """Process a message that has come, or hold it back."""
        if _can_wait(received):
            self._hold(received)
        else:
            self.hear_held()
            self.unsaid = self._stream.hear(*received, self.unsaid)

    def _hold(self, received: Received) -> None:
        self._held.append(received)
        if len(self._held) >= _MOST_HELD:
            self.hear_held()

    def hear_held(self) -> None:
        """Process the messages that were held back."""
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
    """Whether a message is metadata or a body of pointers: the user is not notified of one at once."""
    tag, body, attachments = received
    if attachments:
        return False
    return bool(len(body)) and body[0] == METADATA if tag is None else is_pointers(tag)
