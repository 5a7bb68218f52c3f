"""A data set of many endpoints as one stream."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bowstring.client.poller import Readiness
from bowstring.client.stream import EndpointStream, Stream, StreamStatistics, chosen_columns
from bowstring.errors import (
    BowstringError,
    ClosedError,
    EndOfStream,
    ForkedError,
    InvalidData,
    without_frames,
)
from bowstring.memory import Road
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Dataset, Endpoint

__all__ = ["CROWDED", "DatasetStream"]

_AHEAD: Final = 4
# Each keeps a connection, of which a server has 1,024 for all its readers, and threads on both sides.
_MOST_KEPT: Final = 256
_LOOK: Final = 0.5
CROWDED: Final = Road("copy", f"the batches of {_MOST_KEPT} endpoints are kept, each with its connection")
"""What streams say of their copies that are opened when too many are kept."""
_Result = TypeVar("_Result")


class DatasetStream(Stream):
    """The streams of a data set of many endpoints as one; a few are open at a time.

    A stream whose batches somebody keeps needs its connection. Where that holds for very many, the batches of those
    that follow are copied, unless views were asked for.
    """

    def __init__(
        self,
        dataset: Dataset,
        open_one: Callable[[Endpoint], EndpointStream],
        open_copied: Callable[[Endpoint], EndpointStream] | None,
        columns: tuple[str, ...] | None,
        *,
        ordered: bool,
    ) -> None:
        super().__init__()
        self._dataset = dataset
        self._open_one = open_one
        self._open_copied = open_copied
        self._ordered = ordered
        self._schema = dataset.schema if columns is None else chosen_columns(dataset.schema, columns)
        self._pending = collections.deque(dataset.endpoints)
        self._opening: collections.deque[concurrent.futures.Future[EndpointStream]] = collections.deque()
        self._reading: dict[concurrent.futures.Future[Batch | None], EndpointStream] = {}
        # Where nobody may wait: those whose batches may come next, and the work that will say so when it is done.
        self._active: collections.deque[EndpointStream] = collections.deque()
        self._awaited: weakref.WeakSet[concurrent.futures.Future[EndpointStream]] = weakref.WeakSet()
        self._done: list[StreamStatistics] = []
        self._lingering: list[EndpointStream] = []
        self._current: EndpointStream | None = None
        # Those that are read; when one ends, its statistics are in `_done` instead. Both change under the lock.
        self._begun: set[EndpointStream] = set()
        self._lock = threading.RLock()
        self._turn = threading.Lock()
        self._streams: set[EndpointStream] = set()
        self._closed = False
        self._pid = os.getpid()
        try:
            self._open_more()
        except BaseException:  # no thread can be started
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._schema

    @property
    def num_rows(self) -> int | None:
        """How many rows the data set has, where its maker knew it."""
        return self._dataset.num_rows

    @property
    def nbytes(self) -> int | None:
        """How many bytes the data set has, where its maker knew it."""
        return self._dataset.nbytes

    @property
    def stats(self) -> StreamStatistics:
        """The sum over all endpoints so far."""
        with self._lock:
            parts = [*self._done, *(stream.stats for stream in self._begun)]
        paths = sorted({part.path for part in parts})
        return StreamStatistics(
            sum(part.batches for part in parts),
            sum(part.rows for part in parts),
            sum(part.nbytes for part in parts),
            ", ".join(paths),
            ", ".join(sorted({part.why for part in parts})),
            sum(part.seconds_waited for part in parts),
            sum(part.regions for part in parts),
            sum(part.cached_regions for part in parts),
            ", ".join(sorted({part.device for part in parts})),
            ", ".join(sorted({part.copied for part in parts} - {""})),
            ", ".join(sorted({part.copied_why for part in parts} - {""})),
            ", ".join(sorted({part.decompressed for part in parts if part.decompressed})),
        )

    @property
    def _begun_or_opening(self) -> int:
        return len(self._opening) + len(self._reading) + len(self._active)

    def _open_more(self) -> None:
        while self._pending and self._begun_or_opening < _AHEAD:
            self._opening.append(_started(self._open, self._way_to_open(), self._pending.popleft()))

    def _way_to_open(self) -> Callable[[Endpoint], EndpointStream]:
        if self._open_copied is None:
            return self._open_one
        self._lingering = [stream for stream in self._lingering if stream.lingers]
        return self._open_one if len(self._lingering) < _MOST_KEPT else self._open_copied

    def _open(self, open_one: Callable[[Endpoint], EndpointStream], endpoint: Endpoint) -> EndpointStream:
        stream = open_one(endpoint)
        with self._lock:
            if not self._closed:
                self._streams.add(stream)
                return stream
        stream.close()
        raise ClosedError("the stream is closed")

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError("the stream belongs to the parent process", hint="Call connect() in the child.")
        if self._closed:
            raise ClosedError("the stream is closed")

    def _first_of(self, *waited: concurrent.futures.Future[Any]) -> set[concurrent.futures.Future[Any]]:
        """Return what is done of some work, once anything is; raise when the stream is closed meanwhile."""
        while True:
            done, _ = concurrent.futures.wait(waited, _LOOK, concurrent.futures.FIRST_COMPLETED)
            self._check_open()
            if done:
                return done

    def _opened(self, future: concurrent.futures.Future[EndpointStream]) -> EndpointStream:
        with contextlib.suppress(ValueError):  # closed by another thread just now
            self._opening.remove(future)
        stream = future.result()
        if not stream.schema.equals(self._schema):
            stream.close()
            raise InvalidData(
                "an endpoint has another schema than its data set", expected=self._schema, found=stream.schema
            )
        return stream

    def read_next_batch(self) -> Batch:
        """Return the next batch of any endpoint, or of the first that is not at its end."""
        self._check_open()
        try:
            with self._turn:
                if self._ordered:
                    return self._next_in_order()
                chosen, self._current = self._current, None
                return self._next_as_they_come() if chosen is None else chosen.read_next_batch()
        except EndOfStream:
            self._note_end()
            raise
        except BowstringError as error:
            self.close()
            # The frames that it passed hold the work that holds it: together they would keep batches alive.
            raise without_frames(error) from error.__cause__

    def _next_in_order(self) -> Batch:
        while True:
            stream = self._current
            if stream is None:
                self._open_more()
                if not self._opening:
                    self._check_open()
                    raise EndOfStream("there are no more batches")
                first = self._opening[0]
                self._first_of(first)
                stream = self._current = self._begin(self._opened(first))
            try:
                return stream.read_next_batch()
            except EndOfStream:
                self._finish(stream)
                self._current = None

    def _next_as_they_come(self) -> Batch:
        while True:
            self._open_more()
            if not (self._reading or self._opening):
                self._check_open()
                raise EndOfStream("there are no more batches")
            done = self._first_of(*self._reading, *self._opening)
            for opened in [each for each in self._opening if each in done]:
                self._ask(self._begin(self._opened(opened)))
            for read in [each for each in self._reading if each in done]:
                stream = self._reading.pop(read, None)
                batch = read.result()
                if stream is None:
                    self._check_open()
                elif batch is not None:
                    self._ask(stream)
                    return batch
                else:
                    self._finish(stream)

    def _readiness(self, wake: Callable[[], object], began: float) -> Readiness:
        self._check_open()
        try:
            with self._turn:
                while True:
                    self._open_more()
                    find = self._first_in_order if self._ordered else self._first_ready
                    found = find(wake, began)
                    if found is not None:
                        return found
        except BowstringError as error:
            self.close()
            raise without_frames(error) from error.__cause__

    def _first_in_order(self, wake: Callable[[], object], began: float) -> Readiness | None:
        """Return the readiness of the first stream that is not at its end; ``None`` if one has just come to it."""
        stream = self._current
        if stream is None:
            if not self._opening:
                return Readiness.ENDED
            if not self._is_done(self._opening[0], wake):
                return Readiness.NOT_YET
            stream = self._current = self._begin(self._opened(self._opening[0]))
        found = stream._readiness(wake, began)
        if found is not Readiness.ENDED:
            return found
        self._read_to_end(stream)
        self._current = None
        return None

    def _first_ready(self, wake: Callable[[], object], began: float) -> Readiness | None:
        """Have `_current` be a stream with a batch, if there is one; ``None`` if one has just come to its end."""
        for opening in list(self._opening):
            if self._is_done(opening, wake):
                self._active.append(self._begin(self._opened(opening)))
        if not (self._opening or self._active):
            return Readiness.ENDED
        for stream in list(self._active):
            found = stream._readiness(wake, began)
            if found is Readiness.ENDED:
                self._read_to_end(stream)
                self._active.remove(stream)
                return None
            if found is not Readiness.NOT_YET:
                self._active.rotate(-1)  # the others are next
                self._current = stream
                return found
        return Readiness.NOT_YET

    def _is_done(
        self, opening: concurrent.futures.Future[EndpointStream], wake: Callable[[], object]
    ) -> bool:
        if not opening.done() and opening not in self._awaited:
            self._awaited.add(opening)
            opening.add_done_callback(lambda _: wake())
        return opening.done()

    def _read_to_end(self, stream: EndpointStream) -> None:
        with contextlib.suppress(EndOfStream):
            stream.read_next_batch()
        self._finish(stream)

    def _ask(self, stream: EndpointStream) -> None:
        self._reading[_started(_next_or_none, stream)] = stream

    def _begin(self, stream: EndpointStream) -> EndpointStream:
        with self._lock:
            if not self._closed:
                self._begun.add(stream)
        return stream

    def _finish(self, stream: EndpointStream) -> None:
        final = stream.stats
        with self._lock:
            self._streams.discard(stream)
            if stream in self._begun:  # else it was closed meanwhile, and counted then
                self._begun.discard(stream)
                self._done.append(final)
        stream.close()
        if self._open_copied is not None:
            self._lingering.append(stream)

    def close(self) -> None:
        """Close all streams. Batches stay true."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            streams, self._streams = self._streams, set()
            self._done += [stream.stats for stream in self._begun]
            self._begun.clear()
        # With the work go the batches that nobody has asked for.
        self._reading, self._opening, self._current = {}, collections.deque(), None
        self._lingering = []
        self._active = collections.deque()
        for stream in streams:
            stream.close()

    def __repr__(self) -> str:
        return f"<DatasetStream of {len(self._dataset)} endpoints, {len(self._done)} read>"


def _started(function: Callable[..., _Result], *arguments: Any) -> concurrent.futures.Future[_Result]:
    """Run a function in a thread of its own, one that the end of the interpreter does not wait for."""
    future: concurrent.futures.Future[_Result] = concurrent.futures.Future()
    run_in_thread(_run, future, function, *arguments, name="bowstring-dataset")
    return future


def _run(
    future: concurrent.futures.Future[_Result], function: Callable[..., _Result], *arguments: Any
) -> None:
    try:
        future.set_result(function(*arguments))
    except BaseException as error:  # noqa: BLE001  whoever asks for the result hears of it
        future.set_exception(without_frames(error))
    finally:
        del future, arguments  # the error holds this frame


def _next_or_none(stream: EndpointStream) -> Batch | None:
    try:
        return stream.read_next_batch()
    except EndOfStream:
        return None
