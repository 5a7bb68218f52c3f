"""A data set of many endpoints as one stream."""

from __future__ import annotations

import collections
import concurrent.futures
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bowstring.client.endpoint_stream import EndpointStream
from bowstring.client.grouping import Unit, apart, grouped, in_turn
from bowstring.client.stream import Readiness, Stream, StreamStatistics, chosen_columns
from bowstring.errors import (
    AccessDenied,
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    EndOfStream,
    ForkedError,
    InvalidData,
    Unsupported,
    without_frames,
)
from bowstring.memory import settle_devices
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Dataset

_AHEAD: Final = 4
_LOOK: Final = 0.5
_UNREACHED: Final = (AccessDenied, BrokenError, DeadlineExceeded)
_Result = TypeVar("_Result")


class DatasetStream(Stream):
    """The streams of a data set of many endpoints as one; a few are open at a time.

    Endpoints of one serving process share a stream where that process can do it.
    """

    def __init__(
        self,
        dataset: Dataset,
        open_unit: Callable[[Unit], EndpointStream],
        columns: tuple[str, ...] | None,
        *,
        ordered: bool,
        connections: int,
    ) -> None:
        super().__init__()
        self._dataset = self._facts = dataset
        self._open_unit = open_unit
        self._ordered = ordered
        self._ahead = max(_AHEAD, connections)
        self._schema = dataset.schema if columns is None else chosen_columns(dataset.schema, columns)
        self._pending = collections.deque(grouped(dataset, connections, ordered=ordered))
        self._unit_of = {number: unit for unit in self._pending for number in unit.numbers}
        self._at = 0  # in order, the endpoint that is read
        self._opening: dict[concurrent.futures.Future[EndpointStream], Unit] = {}
        self._open: dict[Unit, EndpointStream] = {}
        self._reading: dict[concurrent.futures.Future[Batch | None], Unit] = {}
        # Where nobody may wait: those whose batches may come next, the one of them that has one, and the work that
        # will say so when it is done.
        self._active: collections.deque[Unit] = collections.deque()
        self._chosen: Unit | None = None
        self._awaited: weakref.WeakSet[concurrent.futures.Future[EndpointStream]] = weakref.WeakSet()
        self._done: list[StreamStatistics] = []
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
    def stats(self) -> StreamStatistics:
        with self._lock:
            return sum_of([*self._done, *(stream.stats for stream in self._begun)])

    def _open_more(self) -> None:
        while self._pending and (
            len(self._opening) + len(self._open) < self._ahead
            # In order, endpoints of several processes may alternate: the next one is needed, whatever is open.
            or (self._ordered and self._pending[0].numbers[0] <= self._at)
        ):
            unit = self._pending.popleft()
            self._opening[_started(self._opened_in_time, unit)] = unit

    def _opened_in_time(self, unit: Unit) -> EndpointStream:
        stream = self._open_unit(unit)
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

    def _take_opened(self, future: concurrent.futures.Future[EndpointStream]) -> EndpointStream | None:
        """Return a stream that was opened; ``None`` where its endpoints are to be opened one by one."""
        unit = self._opening.pop(future, None)
        if unit is None:  # closed by another thread just now
            raise ClosedError("the stream is closed")
        try:
            stream = future.result()
        except BowstringError as error:
            others = (Unsupported, *(_UNREACHED if unit.by_flight else ()))
            if unit.tickets and isinstance(error, others):
                without_frames(error)  # they would keep the connection that failed
                units = apart(unit, self._dataset)
                self._unit_of |= {each.numbers[0]: each for each in units}
                self._pending = collections.deque(in_turn((*self._pending, *units), ordered=self._ordered))
                return None
            self._locate(error, unit, None)
            raise
        if not stream.schema.equals(self._schema):
            stream.close()
            raise InvalidData(
                "an endpoint has another schema than its data set", expected=self._schema, found=stream.schema
            )
        with self._lock:
            if not self._closed:
                self._begun.add(stream)
        self._open[unit] = stream
        return stream

    def _locate(self, error: BowstringError, unit: Unit, stream: EndpointStream | None) -> None:
        """Let an error say in which endpoint it happened, where that is known."""
        number: int | None = unit.numbers[0]
        if unit.tickets:
            number = None if stream is None else stream._partition
        if len(self._dataset) > 1 and number is not None and not isinstance(error, ClosedError | ForkedError):
            where = f"partition {number}"
            if not (error.where or "").startswith(where):
                error.where = where if error.where is None else f"{where}, {error.where}"

    def read_next_batch(self) -> Batch:
        self._check_open()
        try:
            with self._turn:
                if self._ordered:
                    return self._next_in_order()
                chosen, self._chosen = self._chosen, None
                return self._next_as_they_come() if chosen is None else self._next_of(chosen)
        except EndOfStream:
            self._note_end()
            raise
        except BowstringError as error:
            self.close()
            # The frames that it passed hold the work that holds it: together they would keep batches alive.
            raise without_frames(error) from error.__cause__

    def _next_in_order(self) -> Batch:
        while self._at < len(self._dataset):
            unit = self._unit_of[self._at]
            stream = self._open.get(unit)
            if stream is None:
                self._open_more()
                opening = self._opening_of(unit)
                self._first_of(opening)
                stream = self._take_opened(opening)
            if stream is None:  # taken apart
                continue
            batch = self._read(stream, unit, self._at)
            if batch is not None:
                return batch
            if self._at == unit.numbers[-1]:
                if unit.tickets:  # behind its last partition comes its end
                    self._read(stream, unit)
                self._finish(unit)
            self._at += 1
        self._check_open()
        raise EndOfStream("there are no more batches")

    def _opening_of(self, unit: Unit) -> concurrent.futures.Future[EndpointStream]:
        for future, opening in self._opening.items():
            if opening is unit:
                return future
        raise ClosedError("the stream is closed")  # just now, as else it would be opening

    def _read(self, stream: EndpointStream, unit: Unit, number: int | None = None) -> Batch | None:
        """Return the next batch of a unit, or of one endpoint of it; ``None`` where there is none."""
        try:
            return stream._read_of(number if unit.tickets else None)
        except EndOfStream:
            return None
        except BowstringError as error:
            self._locate(error, unit, stream)
            raise

    def _next_as_they_come(self) -> Batch:
        while True:
            self._open_more()
            if not (self._reading or self._opening):
                self._check_open()
                raise EndOfStream("there are no more batches")
            done = self._first_of(*self._reading, *self._opening)
            for opened in [each for each in self._opening if each in done]:
                unit = self._opening[opened]
                if self._take_opened(opened) is not None:
                    self._ask(unit)
            for read in [each for each in self._reading if each in done]:
                unit_read = self._reading.pop(read, None)
                batch = read.result()
                if unit_read is None:
                    self._check_open()
                elif batch is not None:
                    self._ask(unit_read)
                    if not batch.device.is_host:  # the stream that is current here reads it from now on
                        batch.lease.read_on(batch.device.handed_out())
                    return batch
                else:
                    self._finish(unit_read)

    def _next_of(self, unit: Unit) -> Batch:
        """Return the batch that a unit is known to have."""
        stream = self._open.get(unit)
        batch = None if stream is None else self._read(stream, unit)
        if batch is None:
            self._check_open()
            raise EndOfStream("there are no more batches")
        return batch

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
        """Return the readiness of the next endpoint; ``None`` if it has just opened, or come to its end."""
        if self._at == len(self._dataset):
            return Readiness.ENDED
        unit = self._unit_of[self._at]
        stream = self._open.get(unit)
        if stream is None:
            opening = self._opening_of(unit)
            if not self._is_done(opening, wake):
                return Readiness.NOT_YET
            self._take_opened(opening)
            return None
        last = self._at == unit.numbers[-1]
        found = self._ready(stream, unit, wake, began, self._at)
        if found is Readiness.ENDED and last and unit.tickets:  # behind its last partition comes its end
            found = self._ready(stream, unit, wake, began)
        if found is not Readiness.ENDED:
            return found
        if last:
            self._read(stream, unit)
            self._finish(unit)
        self._at += 1
        return None

    def _first_ready(self, wake: Callable[[], object], began: float) -> Readiness | None:
        """Choose a unit with a batch, if there is one; ``None`` if one has just opened, or come to its end."""
        for opening in list(self._opening):
            if self._is_done(opening, wake):
                unit = self._opening[opening]
                if self._take_opened(opening) is None:
                    return None
                self._active.append(unit)
        if not (self._opening or self._active):
            return Readiness.ENDED
        for unit in list(self._active):
            stream = self._open.get(unit)
            if stream is None:
                raise ClosedError("the stream is closed")
            found = self._ready(stream, unit, wake, began)
            if found is Readiness.ENDED:
                self._read(stream, unit)
                self._active.remove(unit)
                self._finish(unit)
                return None
            if found is not Readiness.NOT_YET:
                self._active.rotate(-1)  # the others are next
                self._chosen = unit
                return found
        return Readiness.NOT_YET

    def _ready(
        self,
        stream: EndpointStream,
        unit: Unit,
        wake: Callable[[], object],
        began: float,
        number: int | None = None,
    ) -> Readiness:
        """Return what `_read` would do."""
        try:
            return stream._readiness(wake, began, number if unit.tickets else None)
        except BowstringError as error:
            self._locate(error, unit, stream)
            raise

    def _is_done(
        self, opening: concurrent.futures.Future[EndpointStream], wake: Callable[[], object]
    ) -> bool:
        if not opening.done() and opening not in self._awaited:
            self._awaited.add(opening)
            opening.add_done_callback(lambda _: wake())
        return opening.done()

    def _ask(self, unit: Unit) -> None:
        stream = self._open.get(unit)
        if stream is not None:  # else all was closed just now
            self._reading[_started(self._read_ahead, stream, unit)] = unit

    def _read_ahead(self, stream: EndpointStream, unit: Unit) -> Batch | None:
        """Read a batch that is complete, whatever stream its taker works on: that of this thread is another one."""
        batch = self._read(stream, unit)
        if batch is not None:
            settle_devices((batch.device,), stream._reading.limits.device_timeout)
        return batch

    def _finish(self, unit: Unit) -> None:
        stream = self._open.pop(unit, None)
        if stream is None:
            return
        final = stream.stats
        with self._lock:
            self._streams.discard(stream)
            if stream in self._begun:  # else it was closed meanwhile, and counted then
                self._begun.discard(stream)
                self._done.append(final)
        stream.close()

    def close(self) -> None:
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
        self._reading, self._opening, self._open = {}, {}, {}
        self._active, self._chosen = collections.deque(), None
        for stream in streams:
            stream.close()

    def __repr__(self) -> str:
        return f"<DatasetStream of {len(self._dataset)} endpoints, {self.stats.batches} batches so far>"


def sum_of(parts: Sequence[StreamStatistics]) -> StreamStatistics:
    """Return what came over several streams."""
    return StreamStatistics(
        sum(part.batches for part in parts),
        sum(part.rows for part in parts),
        sum(part.nbytes for part in parts),
        _listed(part.path for part in parts),
        _listed(part.why for part in parts),
        sum(part.seconds_waited for part in parts),
        sum(part.regions for part in parts),
        sum(part.cached_regions for part in parts),
        _listed(part.device for part in parts),
        _listed(part.copied for part in parts),
        _listed(part.copied_why for part in parts),
        _listed(part.decompressed for part in parts),
    )


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts) - {""}))


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
