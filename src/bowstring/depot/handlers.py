"""A client's session in the depot: what reads its requests, and the answer to each of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.depot.applications import Committed, Holder
from bowstring.depot.manifest import Attempt, moved, pieces_of
from bowstring.depot.names import Announcement
from bowstring.depot.protocol import VERSION, Fields, Verb, pack, pack_failure
from bowstring.dissociated.endpoint import Dataset, this_host
from bowstring.dissociated.producer import Outcome
from bowstring.errors import (
    AccessDenied,
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    OutOfBudget,
    ProtocolError,
    RefusedError,
    UnknownTicket,
    UsageError,
)
from bowstring.memory.handle import this_process
from bowstring.server import offer
from bowstring.server.materialized import MaterializedSource
from bowstring.transport import Message
from bowstring.transport.accepting import Restriction
from bowstring.transport.descriptors import close_all
from bowstring.transport.loop import Job, do_in_loop
from bowstring.transport.threads import NO_THREAD, report_uncaught, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.depot.daemon import Depot
    from bowstring.transport import Channel, Received
    from bowstring.transport.threads import Work

    Answer = tuple[dict[str, Any], tuple[int, ...]]

_EXIT_GRACE: Final = 1.0
_GONE: Final = (BrokenError, ClosedError, DeadlineExceeded)
_MOST_TOKEN: Final = 200
# So many messages of a client are heard in one turn; then others have theirs.
_HEARD_AT_ONCE: Final = 64
# How often a client is looked at that does not take its answer.
_MOMENT: Final = 0.05


class _Waits(Exception):
    """A request has to wait for others, in a thread of its own."""


class Session:
    """Answers one client, in turns of the loop of this process, which wait for nothing."""

    def __init__(self, depot: Depot, channel: Channel, ended: Callable[[Any, Outcome], object]) -> None:
        self.depot = depot
        self._leave = ended
        self.channel = channel
        self.local = channel.passes_memory == "fd"
        self.greeted = False
        self.attempt: Attempt | None = None
        self.holder: Holder | None = None
        # Which slabs it would write sooner than others.
        self.mapped: frozenset[bytes] = frozenset()
        self.ends_depot = False
        self.may_wait = False  # a thread of its own answers
        self.work: list[Work] = []  # none is waited for
        self._unsent = False  # of an answer
        self._ended: float | None = None
        self._job = Job(self._turn, "bowstring-depot-session", prompt=True)

    @property
    def is_stranger(self) -> bool:
        """Whether anybody could be there: it came over a network, and has not said the token."""
        return not (self.local or self.greeted)

    def begin(self) -> None:
        """Answer from now on."""
        self.depot.asked()
        self.channel.restriction = Restriction.within(self.channel.limits.connect_timeout)
        do_in_loop(self._job)

    def _turn(self) -> float | None:
        """Answer what the client has asked; return when to look again, ``None`` once the session is over."""
        if self.may_wait:
            return math.inf
        if self._ended is None:
            try:
                return self._listen()
            except BowstringError as error:
                # Who breaks the protocol hears of it; who is gone does not.
                if isinstance(error, ProtocolError) or not isinstance(error, _GONE):
                    self._say_no(error)
            except Exception:  # noqa: BLE001  whatever it is, what the client has must be settled
                report_uncaught()
        return self._settle()

    def _listen(self) -> float:
        """Answer as far as requests have come; return how long nothing more may come."""
        for _ in range(_HEARD_AT_ONCE):
            if self.depot.stopping:
                raise ClosedError("the depot ends")
            self._unsent = self._unsent and not self.channel.send_soon(())
            if self._unsent:
                return _MOMENT
            received = self.channel.receive_whole()
            if received is None:
                self.channel.watch(self._watch)
                restriction = self.channel.restriction
                if restriction is None:
                    return self.channel.limits.heartbeat
                restriction.check_time()  # also of a client that says nothing at all
                return restriction.left
            if self.greeted:
                self._hear(received)
            else:
                self._greet(received)
            if self.may_wait:
                return math.inf
        return 0.0  # more may have been read ahead, of which no descriptor tells

    def _watch(self, fds: Sequence[int]) -> None:
        if self._job.loop is not None:
            self._job.loop.wait_for(self._job, fds)

    def _greet(self, received: Received) -> None:
        """Hear the hello."""
        self._no_descriptors(received)
        fields = Fields(received.body)
        if received.tag == Verb.DRAIN:
            if self.local:
                self.depot.drain()
            self._answer({"version": VERSION})
            raise ClosedError("who asks that asks nothing more")
        if received.tag != Verb.HELLO:
            raise ProtocolError("a client says hello first", found=f"tag {received.tag}")
        version = fields.number("version")
        if version != VERSION:
            raise RefusedError(
                "the depot speaks another version of its protocol",
                expected=f"version {VERSION}",
                found=f"version {version}",
                hint="A client of another version starts a depot of its own beside this one.",
            )
        if not self.local and not self._token_fits(fields.maybe_text("token", _MOST_TOKEN)):
            raise AccessDenied("the token is wrong", hint="Use the whole address that the depot gave.")
        self.greeted = True
        self.channel.restriction = None
        depot = self.depot
        said = {"version": VERSION, "pid": os.getpid(), "remote": depot.remote_address}
        said |= {"options": depot.options.to_json(), "address_space": depot.slab_pool.address_space}
        said["kept"] = depot.kept
        self._answer(said | {"token": depot.token} if self.local else said)

    def _token_fits(self, token: str | None) -> bool:
        given = (token or "").encode(errors="replace")
        return secrets.compare_digest(given, self.depot.token.encode())

    def _hear(self, received: Received) -> None:
        self._no_descriptors(received)
        if received.tag is None:
            if self.attempt is None:
                raise ProtocolError("parts of an attempt that has not begun")
            self.attempt.hear(received.body)
            return
        answer = HANDLERS.get(received.tag)
        if answer is None:
            raise ProtocolError("the depot knows no such request", found=f"tag {received.tag:#x}")
        fields = Fields(received.body)
        self.depot.asked()
        if not self.local and received.tag in LOCAL:
            self._say_no(AccessDenied("that is for processes on the depot's own host", found=answer.__name__))
            return
        try:
            self._answer_by(answer, fields)
        except _Waits:
            self.may_wait = True
            try:
                run_in_thread(self._wait_and_answer, answer, fields, name="bowstring-depot-request")
            except NO_THREAD as error:
                self.may_wait = False
                self._say_no(error)

    def _answer_by(self, answer: Callable[[Session, Fields], Answer], fields: Fields) -> None:
        try:
            said, descriptors = answer(self, fields)
        except (ProtocolError, BrokenError, _Waits):
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the client hears of it and may go on
            self._say_no(error)
            return
        try:
            self._answer(said, descriptors)
        finally:  # whoever asked for it may be gone
            if self.ends_depot:
                self.depot.stop()

    def _wait_and_answer(self, answer: Callable[[Session, Fields], Answer], fields: Fields) -> None:
        try:
            self._answer_by(answer, fields)
        except BowstringError as error:
            if isinstance(error, ProtocolError):
                self._say_no(error)
            self.channel.close()
        finally:
            self.may_wait = False
            self._ring()

    def wait_here(self) -> None:
        """Let the request be answered by a thread of its own, from its beginning, unless one does so already."""
        if not self.may_wait:
            raise _Waits

    def _no_descriptors(self, received: Received) -> None:
        if received.attachments:
            close_all(received.attachments)
            raise ProtocolError(
                "a client hands over no memory", found=f"{len(received.attachments)} descriptors"
            )

    def _answer(self, fields: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        self._unsent = not self.channel.send_soon([Message(Verb.DONE, [pack(fields)], descriptors)])

    def _say_no(self, error: BaseException) -> None:
        with contextlib.suppress(BowstringError):
            self._unsent = not self.channel.send_soon([Message(Verb.FAILED, [pack_failure(error)])])

    def check_there(self) -> None:
        """Raise when the client is gone; for answers that wait."""
        if self.depot.stopping:
            raise ClosedError("the depot ends")
        if self.channel.receive(0.0) is not None:
            raise ProtocolError("a client asks again before it has its answer")

    def wait(self, done: Any, seconds: float) -> bool:
        """Wait until something is so; return whether it is."""
        end = time.monotonic() + seconds
        pause = 0.001
        while not done():
            if time.monotonic() >= end:
                return False
            self.wait_here()
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            self.check_there()
        return True

    def _settle(self) -> float | None:
        """Decide what becomes of what the client had, once that can be known; ``None`` then."""
        attempt, now = self.attempt, time.monotonic()
        if self._ended is None:
            self._ended = now
            if attempt is not None:
                # The next try may come while it is found out whether this one is gone.
                self.depot.slab_pool.give_up(attempt.regions)
        if attempt is not None:
            peer, left = self.channel.peer, self._ended + _EXIT_GRACE - now
            # Where its process is known to be gone, nobody writes there any more.
            gone = not attempt.regions or peer.exited(0.0)
            if not gone and peer.pidfd is not None and left > 0 and self._job.loop is not None:
                self._job.loop.wait_for(self._job, [peer.pidfd])
                return left
            attempt.let_go(() if gone else None)
            self.depot.registry.over(attempt)
            self.attempt = None
        if self.holder is not None:
            self.holder.close()
            self.depot.registry.let_go(self.holder)
        self.channel.close()
        self._leave(self, Outcome.COMPLETED)
        return None

    def _ring(self) -> None:
        if self._job.loop is not None:
            self._job.loop.ring(self._job)

    def turn_away(self, error: BaseException) -> None:  # noqa: ARG002  as sessions of servers
        """Hang up, as there is no thread for it."""
        self.channel.close()

    def close(self, patience: float = 0.0) -> None:  # noqa: ARG002  as sessions of servers
        """End the session, from any thread."""
        self.channel.close()
        self._ring()


_NONE: Final[Answer] = ({}, ())
# A ticket, with the name in it, has at most 4096 bytes, and a character up to four.
_LONGEST_NAME: Final = 1000


def _begin(session: Session, fields: Fields) -> Answer:
    if session.attempt is not None:
        raise UsageError("an attempt goes on over this connection already")
    session.depot.check_takes_more()
    attempt = Attempt(
        fields.text("application"),
        fields.text("dataset", _LONGEST_NAME),
        partition=fields.number("partition"),
        number=fields.number("attempt"),
        readers=fields.maybe_number("readers"),
        folder=_folder(fields.maybe_text("spill_folder")) or session.depot.options.folder,
        limits=session.depot.limits,
    )
    if attempt.readers == 0:
        raise UsageError("a data set needs a reader", found="readers=0")
    mapped = {bytes.fromhex(each) for each in fields.texts("mapped")}
    known = session.depot.slab_pool.known(mapped)
    session.depot.registry.begin(attempt)
    session.attempt = attempt
    session.mapped = known
    return {"gone": [each.hex() for each in mapped - known]}, ()


def _folder(path: str | None) -> str | None:
    if path is not None and not (os.path.isabs(path) and os.path.isdir(path)):
        raise UsageError("the folder for files must be there, and absolute", found=path)
    return path


def _borrow(session: Session, fields: Fields) -> Answer:
    attempt = _attempt_of(session)
    attempt.check()
    depot = session.depot

    def still_wanted() -> None:
        session.check_there()
        attempt.check()

    seconds = fields.seconds("wait")
    try:
        lent, region = depot.slab_pool.borrow(
            fields.number("nbytes"),
            attempt.dataset,
            attempt.folder,
            seconds if session.may_wait else 0.0,
            still_wanted,
            session.mapped,
            wanted=fields.number("wanted", 0),
        )
    except OutOfBudget:
        if seconds:
            session.wait_here()
        raise
    said = {
        "slab": attempt.lend(region),
        "nbytes": lent.slab.nbytes,
        "uuid": lent.slab.uuid.hex(),
        "kind": lent.kind,
    }
    return said, (lent.fd,)


def _commit(session: Session, fields: Fields) -> Answer:
    attempt = _attempt_of(session)
    kept = fields.numbers("kept")
    depot = session.depot
    session.attempt = None
    publication = None
    try:
        attempt.finish()
        source = attempt.rebuilt.source()
        if not kept:  # nobody writes there any more
            pieces = pieces_of(source)
            copied = depot.slab_pool.keep(attempt.dataset, pieces)
            source = source if copied is None else moved(source, pieces, *copied, attempt.limits)
        name = f"{attempt.dataset}/{attempt.partition}.{attempt.number}"
        publication, endpoint = offer(depot.server, name, source, attempt.readers)
        stream = Committed(
            publication,
            dataclasses.replace(endpoint, host=this_host()),
            attempt.partition,
            attempt.number,
            source.num_rows or 0,
            source.num_batches or 0,
            source.nbytes or 0,
            attempt.folder,
        )
        depot.registry.commit(attempt, stream)
    except BaseException:
        if publication is not None:
            publication.withdraw()
        depot.registry.over(attempt)
        raise
    finally:
        attempt.let_go(kept)
    return _described(stream), ()


def _gather(depot: Depot, part: str, name: str) -> None:
    """Copy the small streams of a data set that is appended to a name into slabs that only such share."""
    dataset = depot.registry.datasets.get(part)
    for stream in sorted(depot.registry.offered(part), key=lambda each: each.partition):
        source = stream.publication.source
        if dataset is None or stream.slab is not None or stream.publication.readers is not None:
            continue  # what ends with its readers does not end with the name
        assert isinstance(source, MaterializedSource)
        with contextlib.suppress(UnknownTicket):  # it was released just now
            pieces = pieces_of(source)
            owner = f"{name!r} of {dataset.application}"
            shared = depot.slab_pool.share(owner, pieces, stream.folder)
            if shared is not None:
                stream.publication.move(moved(source, pieces, *shared, depot.limits))
            if shared is not None or not pieces:
                coded = any(batch.dictionaries for batch in source.batches())
                stream.schema = source.encoded()[0].metadata if coded else b""
                stream.slab = b"" if shared is None else shared[0].uuid
                stream.shared_bytes = sum(each.end - each.first for each in pieces)


def _described(stream: Committed) -> dict[str, Any]:
    return {
        "endpoint": str(stream.endpoint),
        "partition": stream.partition,
        "attempt": stream.number,
        "num_rows": stream.num_rows,
        "num_batches": stream.num_batches,
        "nbytes": stream.nbytes,
    }


def _abort(session: Session, fields: Fields) -> Answer:
    attempt = _attempt_of(session)
    session.attempt = None
    attempt.let_go(fields.numbers("kept"))
    session.depot.registry.over(attempt)
    return _NONE


def _attempt_of(session: Session) -> Attempt:
    if session.attempt is None:
        raise UsageError("no attempt goes on over this connection")
    return session.attempt


def _hold(session: Session, fields: Fields) -> Answer:
    seconds = fields.seconds("lease_seconds", 0.0) or None
    pid = fields.maybe_number("watch_pid")
    if pid is not None and not session.local:
        raise UsageError("a process on another host cannot be watched", found=f"watch_pid={pid}")
    if pid is not None and fields.maybe_number("pid_namespace") not in (None, this_process().namespace):
        return _NONE  # here that number is somebody else's, or nobody's
    if pid is not None:
        holder: Holder | None = Holder(pid)
    elif fields.flag("unattended"):
        holder = None
    else:
        holder = session.holder = session.holder or Holder()
    session.depot.registry.hold(fields.text("application"), seconds, holder)
    return {"watched": pid is not None}, ()


def _answer_settle(session: Session, fields: Fields) -> Answer:
    tickets = [bytes.fromhex(each) for each in fields.texts("tickets")]
    ttl, dataset, name = fields.maybe_seconds("ttl"), fields.text("dataset"), fields.maybe_text("name")
    kept = session.depot.registry.settle(dataset, tickets, ttl)
    if name is not None:
        _gather(session.depot, dataset, name)
    return {"kept": kept}, ()


def _release(session: Session, fields: Fields) -> Answer:
    known = session.depot.registry.release(fields.text("dataset"), final=fields.flag("final"))
    return {"known": known}, ()


def _end(session: Session, fields: Fields) -> Answer:
    given = fields.inside("stays")
    stays = {name: given.seconds(name) for name in given.raw()}
    return {"known": session.depot.registry.end(fields.text("application"), stays)}, ()


def _offered(session: Session, fields: Fields) -> Answer:
    return {
        "streams": [_described(each) for each in session.depot.registry.offered(fields.text("dataset"))]
    }, ()


def _wait_released(session: Session, fields: Fields) -> Answer:
    name, seconds = fields.text("dataset"), fields.seconds("timeout")
    if not session.wait(lambda: session.depot.registry.is_released(name), seconds):
        raise DeadlineExceeded(
            "the data set is still read, or waits for a reader",
            found=f"{len(session.depot.registry.offered(name))} streams after {seconds:g} s",
            hint="Data sets written without readers= are released when somebody releases them.",
        )
    return _NONE


def _announce(session: Session, fields: Fields) -> Answer:
    wanted = Announcement(
        fields.text("name"),
        Dataset.from_json(fields.text("dataset", 1 << 26)),
        fields.text("application"),
        fields.text("version", _LONGEST_NAME),
        append=fields.flag("append"),
        new=fields.flag("new"),
        batch=fields.maybe_text("once", 32) or fields.maybe_number("batch"),
        part=fields.maybe_text("part", _LONGEST_NAME),
        depots=tuple(fields.texts("depots")),
        ttl=fields.maybe_seconds("ttl"),
        state=fields.maybe_text("state", 1 << 20),
        note=fields.maybe_text("note", 1 << 20),
    )
    if wanted.state is None and wanted.append and wanted.part is not None and wanted.ttl is None:
        _gather(session.depot, wanted.part, wanted.name)
    changed, replaced, note = session.depot.registry.announce(wanted)
    return {"changed": changed, "replaced": replaced, "note": note}, ()


def _check_name(session: Session, fields: Fields) -> Answer:
    session.depot.registry.check_name(fields.text("name"), fields.text("application"), new=fields.flag("new"))
    return _NONE


def _drop(session: Session, fields: Fields) -> Answer:
    return {"replaced": session.depot.registry.drop(fields.text("name"))}, ()


def _list(session: Session, fields: Fields) -> Answer:  # noqa: ARG001  every answer takes the same
    return {"names": [each.pack().decode() for each in session.depot.registry.named()]}, ()


def _lookup(session: Session, fields: Fields) -> Answer:
    version, count, state, dataset = session.depot.registry.lookup(
        fields.text("name"),
        fields.number("first", 0),
        fields.maybe_number("last"),
        joined=fields.flag("joined"),
    )
    return {"dataset": dataset.to_json(), "version": version, "count": count, "state": state}, ()


def _status(session: Session, fields: Fields) -> Answer:  # noqa: ARG001  every answer takes the same
    return session.depot.status().to_json(), ()


def _listen(session: Session, fields: Fields) -> Answer:
    return {"remote": session.depot.listen_too(fields.text("address"))}, ()


def _stop(session: Session, fields: Fields) -> Answer:
    depot, application = session.depot, fields.maybe_text("application")
    elsewhere = depot.registry.elsewhere(application)
    if application is not None:
        depot.registry.end(application, {})
    conditional = application is not None or fields.flag("if_empty")
    session.ends_depot = not conditional or depot.ends_if_empty()
    return {"stopped": session.ends_depot, "elsewhere": elsewhere}, ()


def _hello(session: Session, fields: Fields) -> Answer:  # noqa: ARG001  every answer takes the same
    raise RefusedError("a client says hello once")


HANDLERS: Final[dict[int, Callable[[Session, Fields], Answer]]] = {
    Verb.HELLO: _hello,
    Verb.BEGIN: _begin,
    Verb.BORROW: _borrow,
    Verb.COMMIT: _commit,
    Verb.ABORT: _abort,
    Verb.HOLD: _hold,
    Verb.SETTLE: _answer_settle,
    Verb.RELEASE: _release,
    Verb.END: _end,
    Verb.OFFERED: _offered,
    Verb.WAIT_RELEASED: _wait_released,
    Verb.ANNOUNCE: _announce,
    Verb.LOOKUP: _lookup,
    Verb.DROP: _drop,
    Verb.LIST: _list,
    Verb.CHECK_NAME: _check_name,
    Verb.STATUS: _status,
    Verb.LISTEN: _listen,
    Verb.STOP: _stop,
}
# What needs memory of this host, or lets others in.
LOCAL: Final = frozenset({Verb.BEGIN, Verb.BORROW, Verb.COMMIT, Verb.ABORT, Verb.LISTEN})
