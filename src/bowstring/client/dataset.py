"""A data set of many endpoints as one stream."""

from __future__ import annotations

import collections
import concurrent.futures
import copy
import dataclasses
import os
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bowstring.client.endpoint_stream import EndpointStream, interrupted_in_delivery
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
    from collections.abc import Callable, Sequence

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
        # Those that are open; when one ends, its statistics are in `_done` instead. Both change under the lock.
        self._streams: set[EndpointStream] = set()
        self._done: list[StreamStatistics] = []
        self._lock = threading.RLock()
        self._turn = threading.Lock()
        self._closed = False
        self._failure: BowstringError | None = None  # an interrupt, which may have lost a batch
        self._goes_on = False  # whether the call that is interrupted has lost nothing
        self._pid = os.getpid()
        try:
            self._open_more()
        except BaseException:  # no thread can be started
            self.close()
            raise

    @property
    def stats(self) -> StreamStatistics:
        with self._lock:
            return sum_of([*self._done, *(stream.stats for stream in self._streams)])

    def _open_more(self) -> None:
        while self._pending and (
            len(self._opening) + len(self._open) < self._ahead
            # In order, endpoints of several processes may alternate: the next one is needed, whatever is open.
            or (self._ordered and self._pending[0].numbers[0] <= self._at)
        ):
            unit = self._pending.popleft()
            future: concurrent.futures.Future[EndpointStream] = concurrent.futures.Future()
            run_in_thread(_run, future, self._opened_in_time, unit, name="bowstring-dataset")
            self._opening[future] = unit

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
            raise ClosedError("the stream is closed") if self._failure is None else copy.copy(self._failure)

    def _first_of(self, *waited: concurrent.futures.Future[Any]) -> set[concurrent.futures.Future[Any]]:
        """Return what is done of some work, once anything is; raise when the stream is closed meanwhile."""
        while True:
            try:
                done, _ = concurrent.futures.wait(waited, _LOOK, concurrent.futures.FIRST_COMPLETED)
            except BaseException:
                self._goes_on = True
                raise
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
        self._goes_on = False
        try:
            with self._turn:
                return self._next_in_order() if self._ordered else self._next_as_they_come()
        except EndOfStream:
            self._note_end()
            raise
        except BowstringError as error:
            self.close()
            # The frames that it passed hold the work that holds it: together they would keep batches alive.
            raise without_frames(error) from error.__cause__
        except BaseException:
            if not self._goes_on:
                self.close()
                self._failure = interrupted_in_delivery(repr(self))
            raise

    def _next_in_order(self) -> Batch:
        while self._at < len(self._dataset):
            unit = self._unit_of[self._at]
            stream = self._open.get(unit)
            if stream is None:
                self._open_more()
                openings = [future for future, opening in self._opening.items() if opening is unit]
                if not openings:
                    raise ClosedError("the stream is closed")  # just now, as else it would be opening
                self._first_of(*openings)
                stream = self._take_opened(openings[0])
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

    def _read(self, stream: EndpointStream, unit: Unit, number: int | None = None) -> Batch | None:
        """Return the next batch of a unit, or of one endpoint of it; ``None`` where there is none."""
        try:
            return stream._read_of(number if unit.tickets else None)
        except EndOfStream:
            return None
        except BowstringError as error:
            self._locate(error, unit, stream)
            raise
        except BaseException:
            self._goes_on = self._ordered  # then the stream says itself what it has lost
            raise

    def _next_as_they_come(self) -> Batch:
        while True:
            self._open_more()
            if not (self._reading or self._opening):
                self._check_open()
                raise EndOfStream("there are no more batches")
            done = self._first_of(*self._reading, *self._opening)
            for opened, unit in [each for each in self._opening.items() if each[0] in done]:
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

    def _readiness(self, wake: Callable[[], object], began: float) -> Readiness:  # noqa: ARG002  nothing wakes
        """Return what is so at once; endpoints that are to be opened, or have nothing yet, are waited for."""
        self._check_open()
        if self._ordered:
            unit = self._unit_of.get(self._at)
            stream = None if unit is None else self._open.get(unit)
            # Of a stream that several endpoints share, the next batch may be behind one of another stream.
            is_next = stream is not None and (not stream._shared or stream._partition == self._at)
            is_there = is_next and stream is not None and stream._at_once
        else:
            done = [each for each in self._reading if each.done()]
            is_there = any(each.exception(0) is not None or each.result(0) is not None for each in done)
        return Readiness.READY if is_there else Readiness.SLOW

    def _ask(self, unit: Unit) -> None:
        stream = self._open.get(unit)
        if stream is None:  # all was closed just now
            return
        future: concurrent.futures.Future[Batch | None] = concurrent.futures.Future()
        self._reading[future] = unit
        if stream._at_once:
            try:
                future.set_result(self._read_ahead(stream, unit))
            except Exception as error:  # noqa: BLE001  as in a thread; but for an interrupt, which is of this call
                future.set_exception(without_frames(error))
        else:
            run_in_thread(_run, future, self._read_ahead, stream, unit, name="bowstring-dataset")

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
            if stream in self._streams:  # else it was closed meanwhile, and counted then
                self._streams.discard(stream)
                self._done.append(final)
        stream.close()

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._closed:
                self._failure = None
                return
            self._closed = True
            streams, self._streams = self._streams, set()
            self._done += [stream.stats for stream in streams]
        # With the work go the batches that nobody has asked for.
        self._reading, self._opening, self._open = {}, {}, {}
        for stream in streams:
            stream.close()

    def __repr__(self) -> str:
        return f"<DatasetStream of {len(self._dataset)} endpoints, {self.stats.batches} batches so far>"


def sum_of(parts: Sequence[StreamStatistics]) -> StreamStatistics:
    """Return what came over several streams: numbers are added, texts listed."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(StreamStatistics):
        values = [getattr(part, field.name) for part in parts]
        fields[field.name] = ", ".join(sorted({*values} - {""})) if field.type == "str" else sum(values)
    return StreamStatistics(**fields)


def _run(
    future: concurrent.futures.Future[_Result], function: Callable[..., _Result], *arguments: Any
) -> None:
    """Give a future what a call returns or raises."""
    try:
        future.set_result(function(*arguments))
    except BaseException as error:  # noqa: BLE001  the caller that asks for the result gets it
        future.set_exception(without_frames(error))
    finally:
        del future, arguments  # the error holds this frame
