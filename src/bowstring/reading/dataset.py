"""A data set of many endpoints as one stream."""

from __future__ import annotations

import collections
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bowstring.errors import BowstringError, ClosedError, EndOfStream, InvalidData
from bowstring.reading.stream import EndpointStream, Stream, StreamStatistics, chosen_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.uri import Dataset

__all__ = ["DatasetStream"]

_AHEAD: Final = 4
_Result = TypeVar("_Result")


class DatasetStream(Stream):
    """The streams of a data set of many endpoints as one; a few are open at a time."""

    def __init__(
        self, dataset: Dataset, open_one: Any, columns: tuple[str, ...] | None, *, ordered: bool
    ) -> None:
        self._dataset = dataset
        self._open_one = open_one
        self._ordered = ordered
        self._schema = dataset.schema if columns is None else chosen_columns(dataset.schema, columns)
        self._pending = collections.deque(dataset.endpoints)
        self._opening: collections.deque[concurrent.futures.Future[EndpointStream]] = collections.deque()
        self._reading: dict[concurrent.futures.Future[Batch | None], EndpointStream] = {}
        self._done: list[StreamStatistics] = []
        self._current: EndpointStream | None = None
        self._closed = False
        self._open_more()

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
        parts = list(self._done)
        parts += [stream.stats for stream in (self._current, *self._reading.values()) if stream is not None]
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
        )

    def _open_more(self) -> None:
        while self._pending and len(self._opening) + len(self._reading) < _AHEAD:
            self._opening.append(_started(self._open_one, self._pending.popleft()))

    def _opened(self, future: concurrent.futures.Future[EndpointStream]) -> EndpointStream:
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
        if self._closed:
            raise ClosedError("the stream is closed")
        try:
            return self._next_in_order() if self._ordered else self._next_as_they_come()
        except EndOfStream:
            raise
        except BowstringError:
            self.close()
            raise

    def _next_in_order(self) -> Batch:
        while True:
            if self._current is None:
                self._open_more()
                if not self._opening:
                    raise EndOfStream("there are no more batches")
                self._current = self._opened(self._opening[0])
            try:
                return self._current.read_next_batch()
            except EndOfStream:
                self._finish(self._current)
                self._current = None

    def _next_as_they_come(self) -> Batch:
        while True:
            self._open_more()
            waited: list[concurrent.futures.Future[Any]] = [*self._reading, *self._opening]
            if not waited:
                raise EndOfStream("there are no more batches")
            done, _ = concurrent.futures.wait(waited, return_when=concurrent.futures.FIRST_COMPLETED)
            for opened in [each for each in self._opening if each in done]:
                self._ask(self._opened(opened))
            for read in [each for each in self._reading if each in done]:
                stream = self._reading.pop(read)
                batch = read.result()
                if batch is not None:
                    self._ask(stream)
                    return batch
                self._finish(stream)

    def _ask(self, stream: EndpointStream) -> None:
        self._reading[_started(_next_or_none, stream)] = stream

    def _finish(self, stream: EndpointStream) -> None:
        self._done.append(stream.stats)
        stream.close()

    def close(self) -> None:
        """Close all streams. Batches stay true."""
        if self._closed:
            return
        self._closed = True
        self._pending.clear()
        streams = [self._current, *self._reading.values()]
        for future in self._opening:
            future.add_done_callback(_close_opened)
        self._opening.clear()
        for stream in streams:
            if stream is not None:
                stream.close()

    def __repr__(self) -> str:
        return f"<DatasetStream of {len(self._dataset)} endpoints, {len(self._done)} read>"


def _started(function: Callable[..., _Result], *arguments: Any) -> concurrent.futures.Future[_Result]:
    """Run a function in a thread of its own, one that the end of the interpreter does not wait for."""
    future: concurrent.futures.Future[_Result] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001  whoever asks for the result hears of it
            future.set_exception(error)

    threading.Thread(target=run, name="bowstring-dataset", daemon=True).start()
    return future


def _close_opened(future: concurrent.futures.Future[EndpointStream]) -> None:
    if future.exception() is None:
        future.result().close()


def _next_or_none(stream: EndpointStream) -> Batch | None:
    try:
        return stream.read_next_batch()
    except EndOfStream:
        return None
