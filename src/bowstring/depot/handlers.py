"""What answers a client of the depot: its requests, one by one, and what becomes of what it had."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring import errors
from bowstring.depot.entries import Holder, Stream
from bowstring.depot.manifest import BegunAttempt, moved, pieces_of
from bowstring.depot.protocol import COMMITTED, MESSAGES, REPLACED, STAY, VERSION, Verb, texts
from bowstring.depot.slab_pool import Turn
from bowstring.dissociated.endpoint import Dataset, this_host
from bowstring.dissociated.failures import pack_error
from bowstring.dissociated.position import version_made_of
from bowstring.dissociated.tags import Control
from bowstring.memory.handle import this_process
from bowstring.server import offer
from bowstring.server.materialized import MaterializedSource
from bowstring.transport import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.depot.service import DepotProcess
    from bowstring.transport import Channel

_UUID_BYTES: Final = 16
# After how many seconds a request that waits is tried again.
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05


class _Waits(Exception):
    """A request has to wait for others: it is tried again."""


class Client:
    """Answers the requests of one connection of the depot's server, in its session's turns, which never wait."""

    def __init__(
        self, depot: DepotProcess, channel: Channel, say: Callable[[Message], None], ring: Callable[[], None]
    ) -> None:
        self.depot = depot
        self._say = say
        self.ring = ring
        self.local = channel.passes_memory == "fd"
        self._greeted = False
        self.attempt: BegunAttempt | None = None
        self.holder: Holder | None = None
        # Which slabs it would write sooner than others.
        self.mapped: set[bytes] = set()
        self.ends_depot = False
        # A request that waits, since when, when it is tried again, and its place among those that borrow.
        self._waiting: tuple[int, dict[str, Any]] | None = None
        self.asked = 0.0
        self.pause: float | None = None
        self.turn: Turn | None = None

    @property
    def lent(self) -> bool:
        """Whether there is memory that it may write."""
        return self.attempt is not None and bool(self.attempt.regions)

    def hear(self, tag: int | None, body: Any) -> None:
        if self._waiting is not None:
            raise errors.ProtocolError("a client asks again before it has its answer")
        if tag == Verb.PARTS and self._greeted:
            if self.attempt is None:
                raise errors.ProtocolError("parts of an attempt that has not begun")
            self.attempt.hear(body)
            return
        handler = HANDLERS.get(tag)
        if tag is None or handler is None or self._greeted is (tag == Verb.HELLO):
            raise errors.ProtocolError(
                "the depot knows no such request, or not now", found=f"tag {tag or 0:#x}"
            )
        fields = MESSAGES[tag][0].unpack(body)
        if not self._greeted:
            self._greeted = True
            self.depot.clients.add(self)
        self.asked = self.depot.asked = time.monotonic()
        if not self.local and tag in LOCAL:
            self._say_no(
                errors.AccessDenied("that is for processes on the depot's own host", found=Verb(tag).name)
            )
            return
        self._answer(tag, fields)

    def go_on(self) -> None:
        if self._waiting is not None:
            self._answer(*self._waiting)

    def _answer(self, tag: int, fields: dict[str, Any]) -> None:
        try:
            answer = HANDLERS[tag](self, **fields) or {}
            fd = answer.pop("fd", None)
            body = MESSAGES[tag][1].pack(answer)
        except _Waits:
            self._waiting = tag, fields
            self.pause = min(2 * (self.pause or _FIRST_PAUSE), _LONGEST_PAUSE)
            return
        except Exception as error:
            self._waiting = self.pause = self.turn = None
            if tag == Verb.HELLO or isinstance(error, (errors.ProtocolError, errors.BrokenError)):
                raise
            self._say_no(error)
            return
        self._waiting = self.pause = self.turn = None
        try:
            self._say(Message(Verb.DONE, [body], () if fd is None else (fd,)))
        finally:  # the client that asked for it may be gone
            if self.ends_depot:
                self.depot.stop()

    def _say_no(self, error: BaseException) -> None:
        if isinstance(error, errors.ClosedError):
            error = errors.BrokenError("the depot ends", found=str(error))
        if not isinstance(error, errors.BowstringError):
            error = errors.RefusedError("the depot failed", found=f"{type(error).__name__}: {error}"[:2000])
        self._say(Message(Control.ERROR, [pack_error(error)]))

    def gone(self) -> None:
        """Let the next try of an attempt come while it is found out whether this one is gone."""
        self._waiting = self.pause = self.turn = None
        if self.attempt is not None:
            self.depot.slab_pool.give_up(self.attempt.regions)

    def leave(self, *, exited: bool) -> None:
        """Free what it had; `exited` where its process is known to write nothing any more."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.let_go(() if exited else None)
            self.depot.registry.over(attempt)
        if self.holder is not None:
            self.holder.gone = True
            self.depot.registry.let_go(self.holder)
        self.depot.clients.discard(self)

    def current(self) -> BegunAttempt:
        if self.attempt is None:
            raise errors.UsageError("no attempt goes on over this connection")
        return self.attempt


Answer = dict[str, Any]


def _hello(client: Client, version: int, token: str | None) -> Answer:
    depot = client.depot
    if version != VERSION:
        raise errors.RefusedError(
            "the depot speaks another version of its protocol",
            expected=f"version {VERSION}",
            found=f"version {version}",
            hint="A client of another version starts a depot of its own beside this one.",
        )
    fits = secrets.compare_digest((token or "").encode(), depot.token.encode())
    if not (client.local or fits):
        raise errors.AccessDenied("the token is wrong", hint="Use the whole address that the depot gave.")
    return {
        "pid": os.getpid(),
        "remote": depot.remote_address,
        "options": depot.options.to_json(),
        "address_space": depot.slab_pool.address_space,
        "kept": depot.kept,
        "token": depot.token if client.local else None,
    }


def _begin(
    client: Client,
    application: str,
    dataset: str,
    partition: int,
    attempt: int,
    readers: int | None,
    spill_folder: str | None,
    mapped: bytes,
) -> Answer:
    depot = client.depot
    if client.attempt is not None:
        raise errors.UsageError("an attempt goes on over this connection already")
    if readers == 0:
        raise errors.UsageError("a data set needs a reader", found="readers=0")
    if spill_folder is not None and not (os.path.isabs(spill_folder) and os.path.isdir(spill_folder)):
        raise errors.UsageError("the folder for files must be there, and absolute", found=spill_folder)
    folder = spill_folder or depot.options.folder
    begun = BegunAttempt(application, dataset, partition, attempt, readers, folder, depot.limits)
    named = {mapped[at : at + _UUID_BYTES] for at in range(0, len(mapped), _UUID_BYTES)}
    known = depot.slab_pool.known(named)
    depot.registry.begin(begun)
    client.attempt, client.mapped = begun, known
    return {"gone": b"".join(named - known)}


def _borrow(client: Client, nbytes: int, wanted: int, wait: float) -> Answer:
    attempt = client.current()
    attempt.check()
    pool = client.depot.slab_pool
    turn = client.turn = client.turn or Turn(attempt.dataset, client.ring)
    borrowed = pool.borrow(turn, nbytes, attempt.folder, client.mapped, wanted=wanted)
    if borrowed is None:
        if time.monotonic() >= client.asked + wait:
            raise pool.too_late(nbytes, wait)
        raise _Waits
    lent, region = borrowed
    return {"slab": attempt.lend(region), "nbytes": lent.slab.nbytes, "uuid": lent.slab.uuid, "fd": lent.fd}


def _commit(client: Client, kept: bytes, parts: bytes) -> Answer:
    attempt = client.current()
    numbers = _numbers(kept)
    depot = client.depot
    client.attempt = None
    publication = None
    try:
        attempt.hear(parts)
        attempt.check()
        if attempt.rebuilt.schema is None:
            raise errors.ProtocolError("an attempt commits without a schema")
        source = attempt.rebuilt.source()
        if not numbers:  # nobody writes there any more
            pieces = pieces_of(source)
            copied = depot.slab_pool.keep(attempt.dataset, pieces)
            source = source if copied is None else moved(source, pieces, *copied, attempt.limits)
        name = f"{attempt.dataset}/{attempt.partition}.{attempt.number}"
        publication, endpoint = offer(depot.server, name, source, attempt.readers)
        described = {
            "uri": endpoint.uri,
            "ticket": endpoint.ticket,
            "elsewhere": endpoint.elsewhere,
            "host": this_host(),
            "partition": attempt.partition,
            "attempt": attempt.number,
            "num_rows": source.num_rows or 0,
            "num_batches": source.num_batches or 0,
            "nbytes": source.nbytes or 0,
        }
        depot.registry.commit(attempt, Stream(publication, described, attempt.folder))
    except BaseException:
        if publication is not None:
            publication.withdraw()
        depot.registry.over(attempt)
        raise
    finally:
        attempt.let_go(numbers)
    return described


def _numbers(kept: bytes) -> list[int]:
    if len(kept) % 8:
        raise errors.ProtocolError("numbers of slabs are 8 bytes each", found=f"{len(kept)} bytes")
    numbers: list[int] = np.frombuffer(kept, "<i8").tolist()
    return numbers


def _gather(depot: DepotProcess, part: str, name: str) -> None:
    """Copy the small streams of a data set that is appended to a name into slabs that only such share."""
    dataset = depot.registry.datasets.get(part)
    for stream in sorted(depot.registry.offered(part), key=lambda each: each.described["partition"]):
        source = stream.publication.source
        if dataset is None or stream.slab is not None or stream.publication.readers is not None:
            continue  # what ends with its readers does not end with the name
        assert isinstance(source, MaterializedSource)
        with contextlib.suppress(errors.UnknownTicket):  # it was released just now
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


def _abort(client: Client, kept: bytes) -> None:
    attempt = client.current()
    client.attempt = None
    attempt.let_go(_numbers(kept))
    client.depot.registry.over(attempt)


def _hold(
    client: Client,
    application: str,
    lease_seconds: float | None,
    watch_pid: int | None,
    pid_namespace: int | None,
    unattended: bool | None,
) -> Answer:
    holders = []
    if watch_pid is not None:
        if not client.local:
            raise errors.UsageError(
                "a process on another host cannot be watched", found=f"watch_pid={watch_pid}"
            )
        # In another namespace that number is of another process, or of none.
        if pid_namespace in (None, this_process().namespace):
            holders.append(Holder(watch_pid))
    watched = bool(holders)
    if not unattended:
        client.holder = client.holder or Holder()
        holders.append(client.holder)
    client.depot.registry.hold(application, lease_seconds or None, holders)
    return {"watched": watched}


def _settle(
    client: Client, dataset: str, tickets: list[bytes], ttl: float | None, name: str | None
) -> Answer:
    kept = client.depot.registry.settle(dataset, tickets, ttl)
    if name is not None:
        _gather(client.depot, dataset, name)
    return {"kept": kept}


def _end(client: Client, application: str, stays: list[bytes] | None) -> Answer:
    seconds = {stay["name"]: stay["seconds"] for stay in map(STAY.unpack, stays or ())}
    return {"known": client.depot.registry.end(application, seconds)}


def _wait_released(client: Client, dataset: str, timeout: float) -> None:
    registry = client.depot.registry
    if registry.is_released(dataset):
        return
    if time.monotonic() >= client.asked + timeout:
        raise errors.DeadlineExceeded(
            "the data set is still read, or waits for a reader",
            found=f"{len(registry.offered(dataset))} streams after {timeout:g} s",
            hint="Data sets written without readers= are released when somebody releases them.",
        )
    raise _Waits


def _announce(
    client: Client,
    name: str,
    dataset: str,
    version: str,
    batch: int | None,
    once: str | None,
    depots: list[bytes] | None,
    **given: Any,
) -> Answer:
    meant = Dataset.from_json(dataset)
    addresses = tuple(texts("depots", depots or []))
    part = given["part"]
    if given["state"] is None and given["append"] and part is not None and given["ttl"] is None:
        _gather(client.depot, part, name)
    changed, replaced, note = client.depot.registry.announce(
        name, meant, version_made_of(version), batch=once or batch, depots=addresses, **given
    )
    return {"changed": changed, "note": note} | _replaced(replaced)


def _replaced(parts: dict[str, tuple[str, ...]]) -> Answer:
    return {"replaced": [REPLACED.pack({"part": part, "depots": held}) for part, held in parts.items()]}


def _lookup(client: Client, name: str, first: int | None, last: int | None, joined: bool | None) -> Answer:
    position, state, dataset = client.depot.registry.lookup(name, first or 0, last, joined=bool(joined))
    return {"dataset": dataset.to_json(), "position": str(position), "state": state}


def _stop(client: Client, application: str | None, if_empty: bool | None) -> Answer:
    depot = client.depot
    elsewhere = depot.registry.elsewhere(application)
    if application is not None:
        depot.registry.end(application, {})
    conditional = application is not None or if_empty
    client.ends_depot = not conditional or depot.ends_if_empty()
    return {"stopped": client.ends_depot, "elsewhere": elsewhere}


HANDLERS: Final[dict[int | None, Callable[..., Answer | None]]] = {
    Verb.HELLO: _hello,
    Verb.BEGIN: _begin,
    Verb.BORROW: _borrow,
    Verb.COMMIT: _commit,
    Verb.ABORT: _abort,
    Verb.HOLD: _hold,
    Verb.SETTLE: _settle,
    Verb.RELEASE: lambda client, dataset, final: {
        "known": client.depot.registry.release(dataset, final=bool(final))
    },
    Verb.END: _end,
    Verb.OFFERED: lambda client, dataset: {
        "streams": [COMMITTED.pack(each.described) for each in client.depot.registry.offered(dataset)]
    },
    Verb.WAIT_RELEASED: _wait_released,
    Verb.ANNOUNCE: _announce,
    Verb.LOOKUP: _lookup,
    Verb.DROP: lambda client, name: _replaced(client.depot.registry.drop(name)),
    Verb.LIST: lambda client: {"names": [each.pack() for each in client.depot.registry.named()]},
    Verb.CHECK_NAME: lambda client, name, application, new: {
        "given_up": client.depot.registry.check_name(name, application, new=new)
    },
    Verb.STATUS: lambda client: {"status": json.dumps(client.depot.status().to_json())},
    Verb.LISTEN: lambda client, address: {"remote": client.depot.listen_too(address)},
    Verb.STOP: _stop,
}
# What needs memory of this host, or lets others in.
LOCAL: Final = frozenset({Verb.BEGIN, Verb.BORROW, Verb.COMMIT, Verb.ABORT, Verb.LISTEN})
