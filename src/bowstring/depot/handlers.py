"""What the depot answers to each request."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, Final

from bowstring.depot.manifest import Attempt
from bowstring.depot.protocol import Verb
from bowstring.depot.registry import Committed, Holder
from bowstring.dissociated.endpoint import Dataset, this_host
from bowstring.errors import DeadlineExceeded, RefusedError, UsageError
from bowstring.memory.handle import this_process
from bowstring.server.materialized import MaterializedSource

__all__ = ["HANDLERS", "LOCAL"]

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.depot.protocol import Fields
    from bowstring.depot.session import Session

    Answer = tuple[dict[str, Any], tuple[int, ...]]

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

    lent, region = depot.slab_pool.borrow(
        fields.number("nbytes"),
        attempt.dataset,
        attempt.folder,
        fields.seconds("wait"),
        still_wanted,
        session.mapped,
        wanted=fields.number("wanted", 0),
    )
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
        source = _Slabs.of_placed(attempt.rebuilt.schema, attempt.rebuilt.batches)
        name = f"{attempt.dataset}/{attempt.partition}.{attempt.number}"
        publication, endpoint = depot.server.offer(name, source, attempt.readers)
        stream = Committed(
            publication,
            dataclasses.replace(endpoint, host=this_host()),
            attempt.partition,
            attempt.number,
            source.num_rows or 0,
            source.num_batches or 0,
            source.nbytes or 0,
        )
        depot.registry.commit(attempt, stream)
    except BaseException:
        if publication is not None:
            publication.withdraw()
        depot.registry.over(attempt)
        raise
    finally:
        attempt.let_go(kept)
    # The first reader finds everything encoded, and the task does not wait for that.
    session.after.append(lambda: source.prepare(pointers=True))
    return _described(stream), ()


class _Slabs(MaterializedSource):
    """A data set that lies in slabs; that it was released meanwhile is no failure of whoever prepares it."""

    def prepare(self, *, pointers: bool) -> None:
        """Encode what most readers will ask for, if it is still there."""
        with self._lock:
            if not self._released:
                self._encoded(None, pointers=pointers)


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
    if pid is None and session.holder is None:
        session.holder = Holder()
    holder = session.holder if pid is None else Holder(pid)
    assert holder is not None
    session.depot.registry.hold(fields.text("application"), seconds, holder)
    return _NONE


def _settle(session: Session, fields: Fields) -> Answer:
    tickets = [bytes.fromhex(each) for each in fields.texts("tickets")]
    return {"kept": session.depot.registry.settle(fields.text("dataset"), tickets)}, ()


def _release(session: Session, fields: Fields) -> Answer:
    known = session.depot.registry.release(fields.text("dataset"), final=fields.flag("final"))
    return {"known": known}, ()


def _end(session: Session, fields: Fields) -> Answer:
    return {"known": session.depot.registry.end(fields.text("application"))}, ()


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
    changed = session.depot.registry.announce(
        fields.text("name"),
        Dataset.from_json(fields.text("dataset", 1 << 26)),
        fields.text("application"),
        append=fields.flag("append"),
        batch=fields.maybe_text("once", 32) or fields.maybe_number("batch"),
    )
    return {"changed": changed}, ()


def _lookup(session: Session, fields: Fields) -> Answer:
    return {"dataset": session.depot.registry.lookup(fields.text("name")).to_json()}, ()


def _status(session: Session, fields: Fields) -> Answer:  # noqa: ARG001  every answer takes the same
    return session.depot.status().to_json(), ()


def _listen(session: Session, fields: Fields) -> Answer:
    return {"remote": session.depot.listen_too(fields.text("address"))}, ()


def _stop(session: Session, fields: Fields) -> Answer:  # noqa: ARG001  every answer takes the same
    session.after.append(session.depot.stop)
    return _NONE


def _hello(session: Session, fields: Fields) -> Answer:  # noqa: ARG001  every answer takes the same
    raise RefusedError("a client says hello once")


HANDLERS: Final[dict[int, Callable[[Session, Fields], Answer]]] = {
    Verb.HELLO: _hello,
    Verb.BEGIN: _begin,
    Verb.BORROW: _borrow,
    Verb.COMMIT: _commit,
    Verb.ABORT: _abort,
    Verb.HOLD: _hold,
    Verb.SETTLE: _settle,
    Verb.RELEASE: _release,
    Verb.END: _end,
    Verb.OFFERED: _offered,
    Verb.WAIT_RELEASED: _wait_released,
    Verb.ANNOUNCE: _announce,
    Verb.LOOKUP: _lookup,
    Verb.STATUS: _status,
    Verb.LISTEN: _listen,
    Verb.STOP: _stop,
}
# What needs memory of this host, or decides about the process itself.
LOCAL: Final = frozenset({Verb.BEGIN, Verb.BORROW, Verb.COMMIT, Verb.ABORT, Verb.LISTEN, Verb.STOP})
