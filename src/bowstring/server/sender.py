"""Sender: what one reader is sent, as it has credit for it and the pool has room."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.partitions import PartitionMark
from bowstring.dissociated.producer import ProducerProtocol
from bowstring.errors import BowstringError, BrokenError, ClosedError, DeadlineExceeded
from bowstring.locks import Condition
from bowstring.server.following import Followed
from bowstring.server.handshake import Prepared, ahead, awaited, has_come, prepared, welcome_to
from bowstring.server.partitions import Partitions
from bowstring.transport import Message
from bowstring.transport.framing import Run, as_messages
from bowstring.transport.sockets import StreamChannel
from bowstring.transport.threads import Work, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bowstring.dissociated.items import IpcMessage
    from bowstring.dissociated.wire import Outgoing
    from bowstring.limits import Limits
    from bowstring.memory import Pool
    from bowstring.server.catalogue import Publication
    from bowstring.server.partitions import PartitionedSource
    from bowstring.server.sources import Source
    from bowstring.transport import Channel
    from bowstring.transport.loop import Job

_log = logging.getLogger("bowstring")

_TOGETHER: Final = 128
_FIRST_TOGETHER: Final = 8
# What is made ready together; each time it begins, the processor's caches hold the bodies that were sent before.
_MOST_BYTES: Final = 4 << 20
PATIENCE: Final = 1.0
# How often the pool is asked again where this reader holds nothing of it.
_LOOK: Final = 0.01
SENDER: Final = "bowstring-server-sender"


class Sender:
    """Sends one reader its stream, in a turn of its session or in a thread of its own.

    Everything that the two share changes under `_changed`.
    """

    def __init__(self, pool: Pool, limits: Limits, channel: Channel) -> None:
        self._pool = pool
        self._limits = limits
        self._channel = channel
        self._protocol = ProducerProtocol(limits)
        self._changed = Condition()
        self._publication: Publication | Partitions | None = None
        # Of it, or of the shard that is read.
        self._source: Source | PartitionedSource | Followed | None = None
        self._job: Job | None = None  # of the turns, in the loop
        self._over = False
        self._stopped = False
        self._stalled = False
        self._served = False
        self._sending = threading.Lock()
        self._unsent = False  # of what the turns say
        self._frees_seen = 0
        self._short_since = 0.0  # of room in the pool
        self.work: list[Work] = []

    def _spawn(self, target: Any, name: str) -> None:
        self.work.append(run_in_thread(target, name=name))

    def _ring(self) -> None:
        with self._changed:
            self._changed.notify_all()
        if self._job is not None:
            self._job.ring()

    def _let_go(self, leaving: Callable[[Partitions], Iterable[Callable[[], None]]]) -> None:
        """Count the reader out of partitions that it is through with."""
        if isinstance(self._publication, Partitions):
            with self._changed:
                exits = leaving(self._publication)
            for leave in exits:
                leave()

    def _give_partitions_up(self) -> None:
        """Count a reader that stopped out of what it has not taken, as soon as nothing more is sent to it."""
        if isinstance(self._publication, Partitions) and self._served and self._protocol.stopped:
            self._let_go(lambda each: each.given_up(self._protocol.ledger.holds))

    def _say(self, outgoing: Sequence[Outgoing]) -> None:
        """Send, without waiting; nothing to a reader that has hung up: what it sent before is received first."""
        self._unsent = False
        with contextlib.suppress(BrokenError):
            self._unsent = not self._channel.send_soon(as_messages(outgoing, self._channel))

    def _serve(self, following: Sequence[IpcMessage] | None = None, *, in_turn: bool = False) -> bool:
        """Send the stream, or what follows its beginning; of a turn only the beginning is.

        Return whether it is over: one that is followed may go on.
        """
        publication = self._publication
        assert publication is not None
        assert self._source is not None
        is_over = True
        try:
            if in_turn:
                # Ordinary readers are sent their beginning here, and a thread sends the rest.
                first = prepared(self._protocol, self._source, self._channel, publication.ticket)
                if first is not None:
                    self._send_first(first)
                if first is None or not first.answer.ended:
                    rest = functools.partial(self._serve, None if first is None else first.following)
                    self._spawn(rest, SENDER)
                    is_over = False
            elif isinstance(self._source, Followed):
                is_over = self._follow(publication, self._source)
            else:
                self._stream(publication, following)
        except BrokenError:
            pass  # the turns hear what the reader said before it hung up, and then the end
        except ClosedError:
            self._finish()
        except DeadlineExceeded as error:
            self._tell(error)
            if self._stalled:  # else it was a device, and the reader may still say what it has open
                self._finish()
        except BaseException as error:  # noqa: BLE001  the code that makes batches may raise anything
            if not self._stopped:
                if isinstance(error, BowstringError) and error.__cause__ is None:
                    _log.warning("%r cannot be sent to a reader: %s", publication.name, str(error))
                else:  # with the traceback of the user's code that raised it
                    text = "".join(traceback.format_exception(error.__cause__ or error))
                    _log.error("the code that makes the batches of %r raised\n%s", publication.name, text)
                self._tell(error)
        finally:
            if is_over:
                if stopped := self._protocol.stop():
                    with contextlib.suppress(BowstringError):
                        self._send(stopped)
                self._served = True
                if isinstance(publication, Partitions):
                    self._give_partitions_up()
                if not in_turn:
                    self._ring()
        return is_over

    def _follow(self, publication: Publication | Partitions, source: Followed) -> bool:
        """Send a reader that follows what there is for it, as far as it has credit; return whether that was all."""
        protocol, channel = self._protocol, self._channel
        if not protocol.sequence:
            self._send(protocol.welcome(welcome_to(channel, protocol, source, publication.ticket)))
        ordered = channel.ordered
        while not self._is_over():
            source.fill(pointers=protocol.pointers)
            with self._changed:
                outgoing = [] if self._over else source.take(protocol, ordered=ordered)
            if not outgoing:
                return self._is_over()
            self._send(outgoing)
            if protocol.ended:
                protocol.end_sent = True
                return True
        return True

    def _stream(self, publication: Publication | Partitions, following: Sequence[IpcMessage] | None) -> None:
        protocol = self._protocol
        source = self._source
        assert source is not None
        assert not isinstance(source, Followed)
        hello = protocol.hello
        pending = None if source.pending is None else awaited(protocol, source)
        if pending is not None and not has_come(
            pending, self._changed, self._is_over, self._limits.device_timeout
        ):
            return
        columns = hello.columns if hello is not None else None
        waiting: list[Outgoing] = []
        if following is None:
            welcome = welcome_to(self._channel, protocol, source, publication.ticket)
            waiting = [*ahead(protocol, source, self._channel), *protocol.welcome(welcome)]
        items = (
            source.items(columns, pointers=protocol.pointers, make_room=self._make_room)
            if following is None
            else following
        )
        together = _FIRST_TOGETHER
        nbytes = 0
        try:
            for item in items:
                self._short_since = 0.0
                if not (protocol.pointers or isinstance(item, PartitionMark)):
                    nbytes += item.nbytes
                waiting = self._offer(item, waiting)
                del item  # what the reader frees must not stay alive here
                if self._stopped or self._over:
                    # What was lent must reach the reader, who frees it.
                    self._send(waiting)
                    return
                # A lazily produced batch goes at once; resident ones go many at a time, but for the first.
                if source.charged or len(waiting) >= together or nbytes >= _MOST_BYTES:
                    together = min(4 * together, _TOGETHER)
                    nbytes = 0
                    waiting = self._send(waiting)
            with self._changed:
                waiting += protocol.end()
            self._send(waiting)
            protocol.end_sent = True
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()

    def _send_first(self, first: Prepared) -> None:
        """Send what many readers are sent; it counts as lent from the moment at which it may be under way."""
        channel = self._channel
        assert isinstance(channel, StreamChannel)
        with self._changed:
            if self._over:
                return
            answer = first.answer
            self._protocol.go_on(answer.sequence, answer.ledger, ended=answer.ended)
        with self._sending:
            try:
                for data, attachments in first.runs:
                    channel.send_runs([Run([data], len(data), attachments)], self._limits.stall_timeout)
            except DeadlineExceeded:
                self._stalled = True
                raise
        self._protocol.end_sent = first.answer.ended

    def _is_over(self) -> bool:
        return self._stopped or self._over

    def _offer(self, item: IpcMessage | PartitionMark, waiting: list[Outgoing]) -> list[Outgoing]:
        """Return `waiting` with the messages of an item behind it, once there is credit for them.

        What begins a partition waits until the reader has taken enough of others.
        """
        offer = (
            functools.partial(self._protocol.partition, item.number, item.num_batches)
            if isinstance(item, PartitionMark)
            else functools.partial(self._protocol.offer, item)
        )
        with self._changed:
            if self._over:
                return []
            outgoing = offer()
            if outgoing is not None:
                waiting += outgoing
                return waiting
            if not isinstance(item, PartitionMark):
                waiting += self._protocol.blocked(self._protocol.cost(item))
        self._send(waiting)
        with self._changed:
            while not self._is_over():
                if (outgoing := offer()) is not None:
                    return outgoing
                # The reading thread watches the reader: this wait ends when the reader answers no more.
                self._changed.wait(self._limits.heartbeat)
            return []

    def _make_room(self, nbytes: int) -> bool:
        """Wait until there may be room for so many bytes in the pool; false when there will not be any."""
        with self._changed:
            news = self._protocol.frees != self._frees_seen
            self._frees_seen = self._protocol.frees
            no_room = self._protocol.no_room(nbytes)
        if news:  # since the last time, maybe while the pool was asked
            return True
        if no_room:  # this reader has some that it may free
            self._send(no_room)
            with self._changed:
                while self._protocol.frees == self._frees_seen and not self._is_over():
                    self._changed.wait(self._limits.heartbeat)
                self._frees_seen = self._protocol.frees
                return not self._is_over()
        now = time.monotonic()
        self._short_since = self._short_since or now
        if nbytes > self._pool.stats.budget or now > self._short_since + self._limits.stall_timeout:
            return False
        with self._changed:
            self._changed.wait(_LOOK)
            return not self._is_over()

    def _send(self, outgoing: Sequence[Outgoing]) -> list[Outgoing]:
        if outgoing:
            with self._sending:
                try:
                    self._channel.send(as_messages(outgoing, self._channel), self._limits.stall_timeout)
                except DeadlineExceeded:
                    self._stalled = True
                    raise
        self._pay_pongs()
        return []

    def _pay_pongs(self) -> None:
        """Answer the reader's questions at once, unless another thread is sending: then it answers afterwards.

        While the reader takes no answers, they are one: its questions shall not fill the memory.
        """
        while self._protocol.owes_pong and not self._unsent and self._sending.acquire(blocking=False):
            try:
                self._say(self._protocol.pong())
            finally:
                self._sending.release()

    def _tell(self, error: BaseException, patience: float | None = PATIENCE) -> None:
        """Tell the reader what went wrong, if it understands and takes it in time; wait for nothing without one."""
        self._protocol.reported = self._protocol.reported or type(error)
        if not self._protocol.takes_errors:
            # A peer without our extensions knows no error messages: it sees the connection end.
            self._channel.close()
            return
        message = self._last_words(error)
        if message is not None:
            with contextlib.suppress(BowstringError):
                if patience is None:
                    self._unsent = not self._channel.send_soon([message])
                else:
                    self._channel.send([message], patience)

    def _last_words(self, error: BaseException) -> Message | None:
        """Return the message that reports an error to the reader, the last of its stream; ``None`` without one."""
        outgoing = self._protocol.fail(error)
        return Message(outgoing[0].tag, outgoing[0].pieces) if outgoing else None

    def _finish(self) -> None:
        with self._changed:
            self._over = True
        self._channel.close()
        self._ring()
