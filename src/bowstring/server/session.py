"""A session: one reader's connection, as the server serves it."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from typing import TYPE_CHECKING, Final

from bowstring import errors
from bowstring.dissociated import producer
from bowstring.dissociated.listing import list_of
from bowstring.dissociated.opening import Ask
from bowstring.dissociated.partitions import MOST_BYTES, STRANGERS_BYTES
from bowstring.dissociated.producer import Outcome, Role, outcome_of
from bowstring.dissociated.tags import is_request
from bowstring.server.following import Followed, since_of
from bowstring.server.handshake import awaited, hands_over, question
from bowstring.server.partitions import Partitions
from bowstring.server.sender import PATIENCE, SENDER, Sender
from bowstring.transport import Message
from bowstring.transport.channel import UNAUTHENTICATED_BYTES, Restriction
from bowstring.transport.framing import whole_messages
from bowstring.transport.loop import Job, do_in_loop
from bowstring.transport.sockets import StreamChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.limits import Limits
    from bowstring.memory import Pool
    from bowstring.server.catalogue import Catalogue, Client, ClientOf, Leave, Publication
    from bowstring.server.partitions import PartitionedSource
    from bowstring.server.sources import Source
    from bowstring.transport import Channel, Received

_log = logging.getLogger("bowstring")

_EXIT_GRACE: Final = 1.0
# How often a reader is looked at that does not take what is sent to it.
_MOMENT: Final = 0.05
# So many messages of a reader are heard in one turn; then others have theirs.
_HEARD_AT_ONCE: Final = 64
_JOB: Final = "bowstring-server-reader"


class Session(Sender):
    """Serves one reader, a turn each time that something came from it, or that a time is over.

    Turns wait for nothing. What may have to wait for the reader, a device or code of the user sends in a thread of
    its own, for as long as it sends.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        pool: Pool,
        limits: Limits,
        ended: Callable[[Session, Outcome], None],
        channel: Channel,
    ) -> None:
        super().__init__(pool, limits, channel)
        self._catalogue = catalogue
        self._ended = ended
        self._left: Leave | None = None  # counts the reader out of a publication
        self._sender: Job | None = None  # of a reader that follows
        self._client: Client | None = None  # of a connection that is for no data set
        self._needs_thread = self._has_thread = False  # where the channel has nothing to watch
        self._is_new = True  # nothing came yet
        self._begun = False
        self._heard = self._asked = time.monotonic()
        self._protocol.most_listed = MOST_BYTES if self._is_known or catalogue.token else STRANGERS_BYTES
        self._asked_devices = 0.0
        self._closing = False
        # Why nothing more is heard, and since when.
        self._end: tuple[BaseException | None, float] | None = None
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

    def close(self, patience: float) -> None:
        """End the session because the server closes; wait at most `patience` seconds to send that."""
        with self._changed:
            self._closing = True
            busy = self._publication is not None and not self._protocol.ended
        if busy:
            self._tell(errors.ClosedError("the server was closed"), min(patience, PATIENCE))
        self._finish()

    def turn_away(self, error: BaseException) -> None:
        """Send a reader the error for which it is not served, if it says hello at once, and end the session."""
        with contextlib.suppress(errors.BowstringError):
            received = self._channel.receive(PATIENCE, _no_bodies)
            if received is not None:
                self._refuse(received.attachments)
                self._protocol.receive(received.tag, received.body)
                # Any other would be reported as the user's code failing.
                if isinstance(error, errors.BowstringError):
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
            except Exception as raised:  # noqa: BLE001  whatever it is, the leases must be settled
                error = errors.without_frames(raised)
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
                self._hear_client(self._catalogue.client_of, received)
                if self._unsent:
                    break
            else:
                self._hear(received)
        if self._over:
            return None
        # A client that has hung up was noticed above: it is lent nothing any more.
        if not heard and self._client is not None and self._client_waits:
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
            raise errors.ProtocolError(
                "a reader hands over no memory", found=f"{len(attachments)} attachments"
            )

    def _hear(self, received: Received) -> None:
        with self._changed:
            self._heard = time.monotonic()
            event = self._protocol.receive(received.tag, received.body)
            self._changed.notify_all()
        self._handle(event)

    def _hear_client(self, client_of: ClientOf, received: Received) -> None:
        """Let a request be answered that is not for a data set; the first one must let its client in."""
        self._heard = time.monotonic()
        if self._client is None:
            self._protocol.takes_errors = True
            self._client = client_of(self._channel, self._answer, self._ring)
        self._client.hear(received.tag, received.body)
        self._channel.restriction = None

    def _answer(self, message: Message) -> None:
        self._unsent = not self._channel.send_soon([message])

    def _handle(self, event: producer.ReaderEvent | None) -> None:
        match event:
            case None:  # a hello
                self._check_token()
                # From now on it may name thousands of columns; when it must have asked stays as it was.
                if (restriction := self._channel.restriction) is not None:
                    self._channel.restriction = Restriction(restriction.until, None)
            case producer.Wanted(ticket=ticket):
                self._begin(ticket)
                self._channel.restriction = None
            case producer.Heard.LIST:
                self._say(list_of(self._catalogue.infos(authenticated=self._is_known)))
                self._over = True  # once that was sent
            case producer.Heard.PING:
                self._pay_pongs()
            case producer.Heard.ANSWERED:
                self._start_sending()
            case producer.Taken(partitions=numbers):
                self._let_go(lambda each: each.taken(numbers, self._protocol.ledger.holds))
            case producer.Heard.FREED if isinstance(self._source, Followed):
                if self._source.blocked and self._sender is not None:
                    self._sender.ring()
            case producer.Heard.FREED:
                self._let_go(lambda each: each.emptied(self._protocol.ledger.take_emptied()))
            case producer.Heard.STOPPED | producer.Heard.DONE:
                with self._changed:
                    self._stopped = True
                    self._changed.notify_all()
                self._give_partitions_up()
                self._start_sending()  # what it was asked, if anything, need not be known any more
                if self._sender is not None:
                    self._sender.ring()

    def _check_token(self) -> None:
        hello = self._protocol.hello
        if not self._catalogue.token_matches(hello.token if hello is not None else None):
            raise errors.AccessDenied(
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
                self._spawn(self._question, SENDER)
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
        admit = functools.partial(
            self._catalogue.admit,
            role=role,
            authenticated=self._is_known,
            shards=1 if shard is None else shard[1],
            looks=self._protocol.looks,
        )
        if request is not None:
            partitions = Partitions(request, admit, shard)
            return partitions, partitions.source
        follows, since = False, None
        if hello is not None and hello.follows:
            follows, since = hello.follow, since_of(hello, role)
        publication, self._left = admit(ticket, follows=follows, since=since)
        self._publication = publication  # which counts the reader, also where it has no such shard
        if hello is not None and hello.follows:
            return publication, Followed(self._catalogue.growth_of(publication, self._pool), hello, since)
        return publication, publication.source if shard is None else publication.source.shard(*shard)

    def _question(self) -> None:
        # A reader that is gone is seen by the thread that reads.
        with contextlib.suppress(errors.BrokenError, errors.ClosedError, errors.DeadlineExceeded):
            if self._source is not None and not (self._stopped or self._over):
                self._send(question(self._protocol, self._source))

    def _start_sending(self) -> None:
        if self._begun or self._source is None:
            return
        self._begun = True
        source = self._source
        waits = self._protocol.request is not None  # for the reader to take partitions
        if isinstance(source, Followed):
            self._sender = Job(lambda: None if self._serve() else math.inf, SENDER)
            source.growth.follow(self, self._sender.ring)
            do_in_loop(self._sender)
        elif (
            source.charged
            or waits
            or not self._protocol.pointers
            or (source.pending is not None and awaited(self._protocol, source) is not None)
        ):
            self._spawn(self._serve, SENDER)
        else:
            # The reader is waiting, and a thread would come too late.
            self._serve(in_turn=True)

    def _ask(self) -> None:
        """Ask a silent reader whether it is there; give up on one that does not answer in time."""
        now = time.monotonic()
        if self._publication is None:
            if (restriction := self._channel.restriction) is not None and not restriction.left:
                raise errors.DeadlineExceeded(
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
            raise errors.LeaseExpired("the reader did not say in time which devices it can reach")
        if self._protocol.pinged and silent > self._limits.heartbeat + self._limits.lease_timeout:
            raise errors.LeaseExpired(
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
        if error is not None and type(error) not in (errors.BrokenError, errors.ClosedError):
            self._tell(error, None if not self._has_thread else PATIENCE)
        self._end = error, time.monotonic()

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
        if self._unsent and now < began + (PATIENCE if error is not None else self._limits.stall_timeout):
            with contextlib.suppress(errors.BowstringError):
                self._say(())
                if self._unsent:
                    return _MOMENT
        gone = returned or self._channel.peer_exited(0.0)
        peer, left = self._channel.peer, began + _EXIT_GRACE - now
        # A process that dies closes its sockets a moment before it counts as gone.
        dies = isinstance(error, errors.BrokenError) and peer.pidfd is not None and not peer.exited(0.0)
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
        if isinstance(self._source, Followed):
            self._source.growth.leave(self)
        if isinstance(self._publication, Partitions):
            self._let_go(Partitions.ended)
        elif self._left is not None:
            self._left(outcome is Outcome.COMPLETED)


def _no_bodies(tag: int, nbytes: int) -> bytearray:
    """Receive messages of a reader: short ones only, bounded by ``Limits.control_bytes``."""
    if tag >> 56 in (0, 1):
        raise errors.ProtocolError("a reader sends no bodies", found=f"tag {tag:#x}, {nbytes} bytes")
    return bytearray(nbytes)
