"""``DoGet``: brings in a stream by Arrow Flight where none of our transports does."""

from __future__ import annotations

import collections
import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring import errors
from bowstring.client.connection import Connection
from bowstring.client.connection.wire import first_that_opens
from bowstring.client.flight import FlightClient
from bowstring.client.stream import Counters, Readiness
from bowstring.columnar.batch import Batch
from bowstring.dissociated.endpoint import of_offers
from bowstring.dissociated.location import token_of
from bowstring.locks import Condition
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.client.reading import Reading
    from bowstring.dissociated.endpoint import Endpoint, Offer
    from bowstring.dissociated.partitions import PartitionTicket

_AHEAD = 2


def opened(endpoint: Endpoint, reading: Reading, partitions: Sequence[PartitionTicket]) -> Connection | DoGet:
    """Return what receives a stream: a connection to the best offer that works, else ``DoGet``."""
    ours = [each for each in endpoint.offers if not each.by_flight]
    flights = [each for each in endpoint.offers if each.by_flight]
    passed_over: list[str] = []
    if ours:
        rest = of_offers(endpoint.ticket, ours)
        try:
            return Connection(rest, reading, partitions)
        except (errors.AccessDenied, errors.BrokenError, errors.DeadlineExceeded, errors.UsageError) as error:
            # It is that of the last offer, and its hint names the others.
            passed_over.append(f"{ours[-1].address}: {errors.without_frames(error).what}")
            passed_over += [error.hint] if error.hint else []
    if reading.hello.shard is not None:
        raise errors.Unsupported("Flight has no shards", hint="; ".join(passed_over))
    if reading.hello.looks:
        raise errors.Unsupported("a Flight server may count each client that asks for rows as a reader")
    return first_that_opens(flights, lambda offer: DoGet(endpoint, offer, reading, passed_over), passed_over)


class DoGet:
    """Receives a stream by Flight, like :class:`~bowstring.client.connection.Connection` by our protocol.

    A thread waits for the server, since only that can be waited for with a deadline; it reads two batches ahead.
    """

    extended = False
    trusted = False
    welcome = bodies = begins = partition = None

    def __init__(self, endpoint: Endpoint, offer: Offer, reading: Reading, passed_over: list[str]) -> None:
        self.endpoint = endpoint
        self.counters = Counters()
        self.peer = offer.address
        not_taken = f"; not taken: {'; '.join(passed_over)}" if passed_over else ""
        self.path = "flight: packed", f"Flight sends the bytes{not_taken}"
        self._limits = limits = reading.limits
        self._pid = os.getpid()
        self._changed = Condition()
        self._schema: pa.Schema | None = None
        self._ready: collections.deque[pa.RecordBatch] = collections.deque()
        self._error: errors.BowstringError | None = None
        self._reader: Any = None
        self.over = self.closed = False
        tokens = [token_of(each.uri) for each in endpoint.offers if each.by_flight]
        self._token_withheld = token_of(offer.uri) is None and any(tokens)
        self._server = FlightClient(offer.uri, reading.tls, limits)
        try:
            run_in_thread(self._read, endpoint.ticket, name="bowstring-flight-reader")
            self._await(lambda: self._schema is not None, limits.connect_timeout)
        except BaseException:
            self.close()
            raise

    # The thread.

    def _read(self, ticket: bytes) -> None:
        from pyarrow import flight

        error: errors.BowstringError | None = None
        try:
            with self._server.asking():
                reader = self._server.client.do_get(flight.Ticket(ticket), self._server.options(None))
                with self._changed:
                    self._reader, self._schema = reader, reader.schema
                    self._changed.notify_all()
                while True:
                    with self._changed:
                        self._changed.wait_for(lambda: self.closed or len(self._ready) < _AHEAD)
                        if self.closed:
                            break
                    batch = reader.read_chunk().data
                    try:  # pyarrow has not looked whether the buffers fit the nodes
                        _ = batch is None or batch.validate()
                    except pa.ArrowException as wrong:
                        raise errors.InvalidBody(
                            "a batch of the Flight server is malformed", found=str(wrong)
                        ) from wrong
                    with self._changed:
                        if batch is not None:
                            self._ready.append(batch)
                        self._changed.notify_all()
                reader.cancel()
        except StopIteration:
            error = errors.EndOfStream("there are no more batches")
        except errors.BowstringError as raised:
            error = errors.without_frames(raised)
            if self._token_withheld and isinstance(error, errors.AccessDenied):
                error = errors.AccessDenied(
                    "the token goes to the server that is asked, and to the hosts in token_hosts",
                    found=self.peer,
                    hint="From Python, ConnectOptions(token_hosts=[…]) lists further hosts that may have it.",
                )
        except Exception as raised:  # noqa: BLE001  the thread that waits must learn of it
            error = errors.BrokenError("the Flight client failed", found=repr(raised)[:200])
        with self._changed:
            self._error = error or errors.ClosedError("the stream is closed")
            self.over = True
            self._changed.notify_all()
        self._server.close()

    # The user.

    def start(self) -> None:
        """Do nothing: it has begun, since whether it works decides which server is taken."""

    def schema(self) -> pa.Schema:
        assert self._schema is not None
        return self._schema

    def next(self, _: int | None = None) -> Batch:
        self.check_process()
        began = time.monotonic()
        self._await(lambda: bool(self._ready), self._limits.reply_timeout)
        with self._changed:
            batch = self._ready[0]
            self.counters.batches += 1  # first: it tells of one that is lost
            self.counters.rows += batch.num_rows
            self.counters.nbytes += batch.nbytes
            self._ready.popleft()
            self._changed.notify_all()
        self.counters.seconds_waited += time.monotonic() - began
        return Batch.from_arrow(batch)

    def peek(self) -> Batch | None:
        with self._changed:
            return Batch.from_arrow(self._ready[0]) if self._ready and not self.closed else None

    def readiness(self, wake: Callable[[], object], began: float) -> Readiness:  # noqa: ARG002  nothing wakes
        self.check_process()
        with self._changed:
            is_there = self._ready or self.closed or self._error is not None
            return Readiness.READY if is_there else Readiness.SLOW

    def _await(self, true: Callable[[], bool], seconds: float) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self.closed or true() or self._error is not None, seconds):
                self._cancel()
                raise errors.DeadlineExceeded(
                    f"the Flight server sent nothing for {seconds:g} s", where=self.peer
                )
            if self.closed:
                raise errors.ClosedError("the stream is closed")
            if true() or self._error is None:
                return
            raise self._error

    def check_process(self) -> None:
        if self._pid != os.getpid():
            raise errors.ForkedError("the stream belongs to the parent process", hint="Connect in the child.")

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with self._changed:
            self.closed = True
            self._ready.clear()
            self._cancel()
            self._changed.notify_all()

    abandon = close

    def _cancel(self) -> None:
        reader = self._reader
        if reader is not None and not self.over:
            with contextlib.suppress(pa.ArrowException):
                reader.cancel()
