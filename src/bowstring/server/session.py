"""A session: one reader's connection, as the server serves it."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bowstring.dissociated.listing import list_of
from bowstring.dissociated.opening import Ask
from bowstring.dissociated.partitions import MOST_BYTES, STRANGERS_BYTES, PartitionMark
from bowstring.dissociated.producer import (
    Heard,
    Outcome,
    ProducerProtocol,
    ReaderEvent,
    Role,
    Taken,
    Wanted,
    outcome_of,
)
from bowstring.dissociated.tags import is_request
from bowstring.dissociated.wire import Outgoing
from bowstring.errors import (
    AccessDenied,
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    LeaseExpired,
    ProtocolError,
    without_frames,
)
from bowstring.locks import Condition
from bowstring.server.backpressure import Room
from bowstring.server.catalogue import Reading
from bowstring.server.following import Followed, since_of
from bowstring.server.handshake import (
    Prepared,
    ahead,
    awaited,
    hands_over,
    has_come,
    prepared,
    question,
    welcome_to,
)
from bowstring.server.partitions import Partitions
from bowstring.transport import Message
from bowstring.transport.channel import UNAUTHENTICATED_BYTES, Restriction
from bowstring.transport.framing import Run, as_messages, whole_messages
from bowstring.transport.loop import Job, do_in_loop
from bowstring.transport.sockets import StreamChannel
from bowstring.transport.threads import Work, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bowstring.dissociated.items import IpcMessage
    from bowstring.limits import Limits
    from bowstring.memory import Pool
    from bowstring.server.catalogue import Catalogue, Client, Publication
    from bowstring.server.partitions import PartitionedSource
    from bowstring.server.sources import Source
    from bowstring.transport import Channel

_log = logging.getLogger("bowstring")

_TOGETHER: Final = 128
_FIRST_TOGETHER: Final = 8
# What is made ready together; each time it begins, the processor's caches hold the bodies that were sent before.
_MOST_BYTES: Final = 4 << 20
_EXIT_GRACE: Final = 1.0
_PATIENCE: Final = 1.0
# How often a reader is looked at that does not take what is sent to it.
_MOMENT: Final = 0.05
# So many messages of a reader are heard in one turn; then others have theirs.
_HEARD_AT_ONCE: Final = 64
_JOB: Final = "bowstring-server-reader"
_SENDER: Final = "bowstring-server-sender"


class _End(NamedTuple):
    """Why nothing more is heard of a reader, and since when."""

    error: BaseException | None
    began: float


class Session:
    """Serves one reader, a turn each time that something came from it, or that a time is over.

    Turns wait for nothing. What may have to wait for the reader, a device or code of the user sends in a thread of
    its own, for as long as it sends. Everything that the two share changes under `_changed`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pool: Pool,
        limits: Limits,
        ended: Callable[[Session, Outcome], None],
        channel: Channel,
    ) -> None:
        self._catalogue = catalogue
        self._pool = pool
        self._limits = limits
        self._ended = ended
        self._channel = channel
        self._protocol = ProducerProtocol(limits)
        self._changed = Condition()
        self._publication: Publication | Partitions | None = None
        self._reading: Reading | None = None  # of a publication
        self._source: Source | PartitionedSource | Followed | None = (
            None  # of it, or of the shard that is read
        )
        self._sender: Job | None = None  # of a reader that follows
        self._client: Client | None = None  # of a connection that is for no data set
        self._job: Job | None = None
        self._needs_thread = self._has_thread = False  # where the channel has nothing to watch
        self._is_new = True  # nothing came yet
        self._over = False
        self._begun = False
        self._stopped = False
        self._stalled = False
        self._heard = self._asked = time.monotonic()
        self._protocol.most_listed = MOST_BYTES if self._is_known or catalogue.token else STRANGERS_BYTES
        self._asked_devices = 0.0
        self._sending = threading.Lock()
        self._unsent = False  # of what the turns say
        self._served = False
        self._closing = False
        self._end: _End | None = None
        self.work: list[Work] = []
        # All that may come before a data set was named, and when that must be.
        channel.restriction = Restriction(self._heard + limits.connect_timeout)

    @property
    def is_stranger(self) -> bool:
        """Whether anybody could be there: it came over a network, and has not been let in."""
        return self._publication is None and self._client is None and not self._is_known

    @property
    def _client_waits(self) -> bool:
        return self._client is not None and self._client.pause is not None

    @property
    def _is_known(self) -> bool:
        return self._channel.authenticated or self._channel.certified

    def _spawn(self, target: Any, name: str) -> None:
        self.work.append(run_in_thread(target, name=name))

    def close(self, patience: float) -> None:
        """End the session because the server closes; wait at most `patience` seconds to send that."""
        with self._changed:
            self._closing = True
            busy = self._publication is not None and not self._protocol.ended
        if busy:
            self._tell(ClosedError("the server was closed"), min(patience, _PATIENCE))
        self._finish()

    def turn_away(self, error: BaseException) -> None:
        """Send a reader the error for which it is not served, if it says hello at once, and end the session."""
        with contextlib.suppress(BowstringError):
            received = self._channel.receive(_PATIENCE, _no_bodies)
            if received is not None:
                self._refuse(received.attachments)
                self._protocol.receive(received.tag, received.body)
                if isinstance(
                    error, BowstringError
                ):  # any other would be reported as the user's code failing
                    self._tell(error)
        self._channel.close()
        if self._publication is None and self._client is None:
            self._ended(self, Outcome.REFUSED)
        else:  # it was let in before there was no thread for what follows
            self._let_all_go(error, gone=False)

    # Turns: one at a time, of whichever thread.

    def begin(self) -> None:
        """Answer what the reader has asked already; the loop of this process does the rest."""
        self._channel.last_words = self._last_words
        seconds = self._turn()
        if seconds is None or self._job is not None:
            return
        if self._needs_thread:
            self._has_thread = True
            self._spawn(self._live, "bowstring-server-reader")
        else:
            self._be_done(seconds)

    def _live(self) -> None:
        while (seconds := self._turn()) is not None:
            if self._end is not None or self._client_waits:
                with self._changed:
                    self._changed.wait(min(seconds, _MOMENT))

    def _turn(self) -> float | None:
        """Take what the reader sent, as far as it has come; return when to do so again, ``None`` for never."""
        if self._end is None:
            error: BaseException | None = None
            try:
                seconds = self._listen()
                if seconds is not None:
                    return seconds
            except BowstringError as raised:
                error = without_frames(raised)
            except Exception as raised:  # noqa: BLE001  whatever it is, the leases must be settled
                error = without_frames(raised)
            self._begin_end(error)
        return self._settle()

    def _listen(self) -> float | None:
        """Hear the reader; return how long nothing more may come, ``None`` if the session is over."""
        if self._unsent:
            self._say(())
            self._pay_pongs()
            if self._client is not None and self._unsent:
                return _MOMENT
        # Whatever follows an opening comes later.
        at_once = 0 if self._is_new and self._open() else _HEARD_AT_ONCE
        heard = 0
        while heard < at_once:
            if self._over:
                return None
            if self._has_thread and not self._client_waits:
                received = self._channel.receive(self._patience(), _no_bodies)
            else:
                received = self._channel.receive_whole(_no_bodies)
            if received is None:
                break
            heard += 1
            self._is_new = False
            self._refuse(received.attachments)
            if self._catalogue.client_of is not None and is_request(received.tag):
                self._hear_client(received.tag, received.body)
                if self._unsent:
                    break
            else:
                self._hear(received.tag, received.body)
        if self._over:
            return None
        # A client that has hung up was noticed above: it is lent nothing any more.
        if not heard and self._client is not None and self._client.pause is not None:
            self._client.go_on()
        seconds = self._patience()
        if not seconds:
            self._ask()
            seconds = self._patience()
        if heard == _HEARD_AT_ONCE:
            return 0.0  # more may have been read ahead, of which no descriptor tells
        # From here on another thread may do the next turn.
        if not self._has_thread and not self._channel.watch(self._watch):
            self._needs_thread = True
        return seconds

    def _watch(self, fds: Sequence[int]) -> None:
        if self._job is None:
            self._be_done(self._patience())
        if self._job is not None and self._job.loop is not None:
            self._job.loop.wait_for(self._job, fds)

    def _be_done(self, seconds: float) -> None:
        self._job = Job(self._turn, _JOB, prompt=True)  # first: the loop may begin a turn at once
        try:
            do_in_loop(self._job, seconds)
        except BaseException:
            self._job = None
            raise

    def _ring(self) -> None:
        """Have a turn made, wherever it is."""
        with self._changed:
            self._changed.notify_all()
        if self._job is not None:
            self._job.ring()

    def _open(self) -> bool:
        """Take what an ordinary reader asks, at once, and answer it; false if it stays where it is."""
        channel = self._channel
        if not (isinstance(channel, StreamChannel) and channel.passes_memory == "fd"):
            return False
        came = channel.peek(0.0, 0)
        self._is_new = not came
        messages = whole_messages(came, self._limits, 0) if len(came) <= UNAUTHENTICATED_BYTES else []
        ask = Ask.read(messages)
        if ask is None or not self._catalogue.token_matches(ask.hello.token):
            return False
        with self._changed:
            self._heard = time.monotonic()
            self._protocol.begin_asked(ask.hello)
        channel.take(messages)  # now it can be told what is wrong with what came beside them
        self._begin(ask.ticket)
        channel.restriction = None
        return True

    def _patience(self) -> float:
        """Return for how many seconds nothing may come until something is to be done."""
        at = max(self._heard, self._asked) + self._limits.heartbeat
        restriction = self._channel.restriction
        if restriction is not None:
            at = min(at, restriction.until)
        seconds = min(at - time.monotonic(), self._limits.stall_timeout)
        if self._client is not None and self._client.pause is not None:
            seconds = min(seconds, self._client.pause)
        return max(0.0, min(seconds, _MOMENT) if self._unsent else seconds)

    def _refuse(self, attachments: tuple[object, ...]) -> None:
        if attachments:
            self._channel.drop(attachments)
            raise ProtocolError("a reader hands over no memory", found=f"{len(attachments)} attachments")

    def _hear(self, tag: int | None, body: Any) -> None:
        with self._changed:
            self._heard = time.monotonic()
            event = self._protocol.receive(tag, body)
            self._changed.notify_all()
        self._handle(event)

    def _hear_client(self, tag: int | None, body: Any) -> None:
        """Let a request be answered that is not for a data set; the first one must let its client in."""
        self._heard = time.monotonic()
        if self._client is None:
            assert self._catalogue.client_of is not None
            self._protocol.takes_errors = True
            self._client = self._catalogue.client_of(self._channel, self._answer, self._ring)
        self._client.hear(tag, body)
        self._channel.restriction = None

    def _answer(self, message: Message) -> None:
        """Send an answer to a client, without waiting."""
        self._unsent = not self._channel.send_soon([message])

    def _handle(self, event: ReaderEvent | None) -> None:
        match event:
            case None:  # a hello
                self._check_token()
                # From now on it may name thousands of columns; when it must have asked stays as it was.
                if (restriction := self._channel.restriction) is not None:
                    self._channel.restriction = Restriction(restriction.until, None)
            case Wanted(ticket=ticket):
                self._begin(ticket)
                self._channel.restriction = None
            case Heard.LIST:
                self._say(list_of(self._catalogue.infos(authenticated=self._is_known)))
                self._over = True  # once that was sent
            case Heard.PING:
                self._pay_pongs()
            case Heard.ANSWERED:
                self._start_sending()
            case Taken(partitions=numbers):
                self._let_go(lambda each: each.taken(numbers, self._protocol.ledger.holds))
            case Heard.FREED if isinstance(self._source, Followed):
                if self._source.blocked and self._sender is not None:
                    self._sender.ring()
            case Heard.FREED:
                self._let_go(lambda each: each.emptied(self._protocol.ledger.take_emptied()))
            case Heard.STOPPED | Heard.DONE:
                with self._changed:
                    self._stopped = True
                    self._changed.notify_all()
                self._give_partitions_up()
                self._start_sending()  # what it was asked, if anything, need not be known any more
                if self._sender is not None:
                    self._sender.ring()
            case _:
                pass

    def _check_token(self) -> None:
        hello = self._protocol.hello
        if not self._catalogue.token_matches(hello.token if hello is not None else None):
            raise AccessDenied(
                "the token is wrong",
                hint="Use the whole URI that the server printed; if it names no token, add it: "
                "connect(…, token=…).",
            )

    def _begin(self, ticket: bytes) -> None:
        hello = self._protocol.hello
        if hello is None:
            self._check_token()
        self._publication, self._source = self._admit(ticket)
        source = self._source
        self._protocol.pointers = hands_over(self._channel, hello, source)
        self._protocol.copied = self._protocol.pointers and self._channel.passes_memory == "rkey"
        if (
            self._protocol.pointers
            and source.devices
            and self._channel.passes_memory == "fd"
            and self._protocol.role is not Role.METADATA
        ):
            self._asked_devices = time.monotonic()
            if source.charged:  # whose pool may have to wait for a device
                self._spawn(self._question, "bowstring-server-sender")
            else:
                self._question()
        else:
            self._start_sending()

    def _admit(
        self, ticket: bytes
    ) -> tuple[Publication, Source | Followed] | tuple[Partitions, PartitionedSource]:
        """Let the reader in to what it asks for; return that, and what of it is read."""
        hello, request = self._protocol.hello, self._protocol.request
        role = self._protocol.role or Role.BOTH
        shard = hello.shard if hello is not None else None
        shards = 1 if shard is None else shard[1]

        admit = functools.partial(
            self._catalogue.admit,
            role=role,
            authenticated=self._is_known,
            shards=shards,
            looks=self._protocol.looks,
        )
        if request is not None:
            partitions = Partitions(request, admit, shard)
            return partitions, partitions.source
        self._reading = reading = Reading()
        if hello is not None and hello.follows:
            reading.follows, reading.since = hello.follow, since_of(hello, role)
        publication = admit(ticket, reading=reading)
        self._publication = publication  # which counts the reader, also where it has no such shard
        if hello is not None and hello.follows:
            return publication, Followed(
                self._catalogue.growth_of(publication, self._pool), hello, reading.since
            )
        return publication, publication.source if shard is None else publication.source.shard(*shard)

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

    def _question(self) -> None:
        # A reader that is gone is seen by the thread that reads.
        with contextlib.suppress(BrokenError, ClosedError, DeadlineExceeded):
            if self._source is not None and not (self._stopped or self._over):
                self._send(question(self._protocol, self._source))

    def _start_sending(self) -> None:
        if self._begun or self._source is None:
            return
        self._begun = True
        source = self._source
        waits = self._protocol.request is not None  # for the reader to take partitions
        if isinstance(source, Followed):
            self._sender = Job(lambda: None if self._serve() else math.inf, _SENDER)
            source.growth.follow(self, self._sender.ring)
            do_in_loop(self._sender)
        elif (
            source.charged
            or waits
            or not self._protocol.pointers
            or (source.pending is not None and awaited(self._protocol, source) is not None)
        ):
            self._spawn(self._serve, _SENDER)
        else:
            # The reader is waiting, and a thread would come too late.
            self._serve(in_turn=True)

    def _ask(self) -> None:
        """Ask a silent reader whether it is there; give up on one that does not answer in time."""
        now = time.monotonic()
        if self._publication is None:
            if (restriction := self._channel.restriction) is not None and not restriction.left:
                raise DeadlineExceeded(
                    "a reader named no data set in time",
                    expected=f"within {self._limits.connect_timeout} s (Limits.connect_timeout)",
                )
            self._asked = now  # or the next turn would come at once, again and again
            return
        if now < max(self._heard, self._asked) + self._limits.heartbeat:
            return
        self._asked = now
        silent = now - self._heard
        if self._protocol.hello is None:
            return  # it knows no questions; sends to it have deadlines of their own
        if self._protocol.asked and now - self._asked_devices > self._limits.lease_timeout:
            raise LeaseExpired("the reader did not say in time which devices it can reach")
        if self._protocol.pinged and silent > self._limits.heartbeat + self._limits.lease_timeout:
            raise LeaseExpired(
                "the reader did not answer in time",
                expected=f"an answer within {self._limits.lease_timeout} s (Limits.lease_timeout)",
                hint="Batches that it holds stay true; the producer uses their memory no more.",
            )
        # While something is being sent, its own deadline watches the reader.
        if self._sending.acquire(blocking=False):
            try:
                self._say(self._protocol.ping())
            finally:
                self._sending.release()

    def _say(self, outgoing: Sequence[Outgoing]) -> None:
        """Send, without waiting; nothing to a reader that has hung up: what it sent before is received first."""
        self._unsent = False
        with contextlib.suppress(BrokenError):
            self._unsent = not self._channel.send_soon(as_messages(outgoing, self._channel))

    # The sending thread.

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
                    self._spawn(rest, _SENDER)
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
                _log_failure(publication.name, error)
                self._tell(error)
        finally:
            if is_over:
                self._end_stream(in_turn=in_turn)
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

    def _end_stream(self, *, in_turn: bool) -> None:
        if stopped := self._protocol.stop():
            with contextlib.suppress(BowstringError):
                self._send(stopped)
        self._served = True
        if isinstance(self._publication, Partitions):
            self._give_partitions_up()
        if not in_turn:
            self._ring()

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
        room = Room(protocol, self._pool, self._limits, self._changed, self._is_over, self._send)
        items = (
            source.items(columns, pointers=protocol.pointers, make_room=room.make)
            if following is None
            else following
        )
        together = _FIRST_TOGETHER
        nbytes = 0
        try:
            for item in items:
                room.found()
                if isinstance(item, PartitionMark):
                    waiting = self._begin_partition(item, waiting)
                else:
                    nbytes += 0 if protocol.pointers else item.nbytes
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

    def _begin_partition(self, mark: PartitionMark, waiting: list[Outgoing]) -> list[Outgoing]:
        """Return `waiting` with what begins a partition behind it, once the reader has taken enough of others."""
        protocol = self._protocol
        with self._changed:
            said = protocol.partition(mark.number, mark.num_batches)
        if said is not None:
            waiting += said
            return waiting
        self._send(waiting)
        with self._changed:
            while not (protocol.takes_partition or self._is_over()):
                # The reading thread watches the reader: this wait ends when the reader answers no more.
                self._changed.wait(self._limits.heartbeat)
            return [] if self._is_over() else protocol.partition(mark.number, mark.num_batches) or []

    def _is_over(self) -> bool:
        return self._stopped or self._over

    def _offer(self, item: IpcMessage, waiting: list[Outgoing]) -> list[Outgoing]:
        """Return `waiting` with the messages of an item behind it, once there is credit for them."""
        protocol = self._protocol
        with self._changed:
            if self._over:
                return []
            said = protocol.offer(item)
            if said is not None:
                waiting += said
                return waiting
            cost = protocol.cost(item)
            blocked = protocol.blocked(cost)
        self._send([*waiting, *blocked])
        with self._changed:
            while not (protocol.window.allows(cost) or self._stopped or self._over):
                # The reading thread watches the reader: this wait ends when the reader answers no more.
                self._changed.wait(self._limits.heartbeat)
            return [] if self._is_over() else [*protocol.send(item)]

    # Both.

    def _send(self, outgoing: Sequence[Outgoing]) -> list[Outgoing]:
        with self._sending:
            self._send_now(outgoing)
        self._pay_pongs()
        return []

    def _send_now(self, outgoing: Sequence[Outgoing]) -> None:
        if not outgoing:
            return
        try:
            self._channel.send(as_messages(outgoing, self._channel), self._limits.stall_timeout)
        except DeadlineExceeded:
            self._stalled = True
            raise

    def _pay_pongs(self) -> None:
        """Answer the reader's questions at once, unless another thread is sending: then it answers afterwards.

        While the reader takes no answers, they are one: its questions shall not fill the memory.
        """
        while self._protocol.owes_pong and not self._unsent and self._sending.acquire(blocking=False):
            try:
                self._say(self._protocol.pong())
            finally:
                self._sending.release()

    def _tell(self, error: BaseException, patience: float | None = _PATIENCE) -> None:
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

    def _begin_end(self, error: BaseException | None) -> None:
        """Take note that nothing more is heard."""
        self._channel.last_words = None
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._sender is not None:
            self._sender.ring()
        if self._client is not None:
            self._client.gone()
        if error is not None and type(error) not in (BrokenError, ClosedError):
            self._tell(error, None if not self._has_thread else _PATIENCE)
        self._end = _End(error, time.monotonic())

    def _settle(self) -> float | None:
        """Decide what becomes of the memory that the reader still holds, once that can be known; ``None`` then."""
        assert self._end is not None
        error, began = self._end
        now = time.monotonic()
        protocol = self._protocol
        with self._changed:
            sends = self._begun and not self._served and (protocol.may_have_read_all or protocol.done)
            if sends and now < began + _EXIT_GRACE:
                # The other thread is about to return from sending the last message, or fails at it; until then
                # it holds what it sent, and who waits for the release finds the memory free.
                return began + _EXIT_GRACE - now
            returned = protocol.returned and not (self._client is not None and self._client.lent)
        if self._unsent and now < began + (_PATIENCE if error is not None else self._limits.stall_timeout):
            with contextlib.suppress(BowstringError):
                self._say(())
                if self._unsent:
                    return _MOMENT
        gone = returned or self._channel.peer_exited(0.0)
        peer, left = self._channel.peer, began + _EXIT_GRACE - now
        # A process that dies closes its sockets a moment before it counts as gone.
        dies = isinstance(error, BrokenError) and peer.pidfd is not None and not peer.exited(0.0)
        if dies and left > 0 and not gone:
            job = self._job
            if job is None or (loop := job.loop) is None:
                return _MOMENT
            # The server may close the channel meanwhile, and with it the peer.
            return left if peer.watch(lambda fds: loop.wait_for(job, fds)) else _MOMENT
        self._channel.close()  # which says so to a reader that reads this memory, before it is used again
        self._let_all_go(error, gone=gone)
        return None

    def _let_all_go(self, error: BaseException | None, *, gone: bool) -> None:
        protocol = self._protocol
        with self._changed:
            outcome = outcome_of(
                protocol,
                error,
                admitted=self._publication is not None,
                gone=gone,
                closing=self._closing,
                reported=protocol.reported,
            )
            if not gone:
                # It, or a child of its, is alive and may look at this memory for ever: nobody writes it again.
                protocol.ledger.retire()
            protocol.ledger.clear()
        try:
            client, self._client = self._client, None
            if client is not None:
                client.leave(exited=gone)
                outcome = Outcome.IDLE
            elif outcome in (Outcome.REFUSED, Outcome.LOST):
                # As text, here and below: a record that a handler keeps must keep no connection, frames or batches.
                reader, why = str(self._channel), f": {error}" if str(error or "") else ""
                if outcome is Outcome.REFUSED:
                    _log.warning("refused a reader (%s)%s", reader, why)
                else:
                    name = None if self._publication is None else self._publication.name
                    _log.warning("lost a reader of %r (%s)%s", name, reader, why)
        finally:  # whatever a handler of the user's raises
            self._leave(outcome)
            self._ended(self, outcome)

    def _leave(self, outcome: Outcome) -> None:
        """Count the reader out of what it was let in to."""
        protocol = self._protocol
        if isinstance(self._source, Followed):
            self._source.growth.leave(self)
        if isinstance(self._publication, Partitions):
            self._let_go(Partitions.ended)
        elif self._publication is not None and protocol.looks:
            if protocol.role is not Role.METADATA:
                self._publication.look_away()
        elif self._publication is not None and outcome is not Outcome.METADATA:
            shard = protocol.hello.shard if protocol.hello is not None else None
            shards = 1 if shard is None else shard[1]
            self._publication.leave(
                completed=outcome is Outcome.COMPLETED, shards=shards, reading=self._reading
            )


def _log_failure(name: str, error: BaseException) -> None:
    """Log what keeps a data set from being sent, with the traceback where code of the user's raised it."""
    if isinstance(error, BowstringError) and error.__cause__ is None:
        _log.warning("%r cannot be sent to a reader: %s", name, str(error))
    else:
        text = "".join(traceback.format_exception(error.__cause__ or error))
        _log.error("the code that makes the batches of %r raised\n%s", name, text)


def _no_bodies(tag: int, nbytes: int) -> bytearray:
    """Receive messages of a reader: short ones only, bounded by ``Limits.control_bytes``."""
    if tag >> 56 in (0, 1):
        raise ProtocolError("a reader sends no bodies", found=f"tag {tag:#x}, {nbytes} bytes")
    return bytearray(nbytes)
