"""What `publish` returns: a data set that its driver can free, and one whose job readers follow until its end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import math
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from bowstring.cli.terminal import number, size
from bowstring.client.dataset import sum_of
from bowstring.client.stream import Stream, StreamStatistics, chosen_columns
from bowstring.columnar.display import table_of_facts
from bowstring.depot.launch import connect
from bowstring.depot.protocol import COMPLETE, LOST, RUNNING
from bowstring.dissociated.endpoint import Dataset
from bowstring.dissociated.failures import unpack_error
from bowstring.dissociated.position import place_of
from bowstring.errors import (
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    EndOfStream,
    UnknownTicket,
    UsageError,
    without_frames,
)
from bowstring.locks import Event
from bowstring.server.arguments import check_seconds
from bowstring.spark.publication import Publication

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Endpoint

_LEAST_PAUSE: Final = 0.005
_MOST_PAUSE: Final = 0.1
_SLICE: Final = 1.0


@dataclasses.dataclass(frozen=True, repr=False)
class PublishedDataset(Dataset):
    """A :class:`bowstring.Dataset` of :func:`bowstring.spark.publish`; elsewhere it is a plain one.

    ``metadata`` says the ``name``, the ``id`` and the ``application`` of the data set, and the ``partitions`` that
    its endpoints are, with their ``rows``. Used in a ``with`` block it is released at the end of the block. One
    without a name is freed when nothing refers to it any more; streams that read it refer to it.
    """

    control: Publication | None = dataclasses.field(default=None, repr=False, compare=False)

    @classmethod
    def _of(cls, plain: Dataset, control: Publication, **more: Any) -> Self:
        return cls(
            plain.endpoints, plain.schema, plain.num_rows, plain.nbytes, plain.metadata, control, **more
        )

    def release(self) -> None:
        """Free the data: no new readers, those that read keep what they have. Idempotent."""
        self._known.release()

    def wait(self, timeout: float | None = None) -> PublishedDataset:  # noqa: ARG002  for one whose job runs
        """Wait for the job of a data set that was published with ``wait=False``, and return the whole data set.

        Parameters
        ----------
        timeout
            Seconds; as long as the job runs by default.

        Raises
        ------
        DeadlineExceeded
            The job still runs.
        BowstringError
            It failed, as :func:`bowstring.spark.publish` does.
        """
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _repr_html_(self) -> str:
        """Return a table for notebooks: name, rows, bytes, partitions, hosts and state."""
        facts = {
            "Name": self.metadata.get("name") or "(none: freed with this object)",
            "Rows": number(self.num_rows),
            "Size": size(self.nbytes or 0),
            "Partitions": number(len(self.endpoints)),
            "Hosts": ", ".join(sorted({_host_of(each) for each in self.endpoints})) or "none",
            "State": "unknown here" if self.control is None else self.control.state(),
        }
        return table_of_facts("Bowstring data set", ("", ""), facts.items())

    def wait_released(self, timeout: float | None = None) -> None:
        """Wait until every stream was read to the end by its readers and freed.

        Parameters
        ----------
        timeout
            Seconds; ``Limits.release_timeout`` by default.

        Raises
        ------
        DeadlineExceeded
            Somebody still reads, or has not come.
        """
        self._known.wait_released(timeout)

    def republish(self, partitions: Iterable[int] | None = None) -> PublishedDataset:
        """Publish partitions that were lost again, from Spark; the other ones stay as they are.

        Parameters
        ----------
        partitions
            Their numbers; by default those whose depot does not offer them any more.

        Returns
        -------
        PublishedDataset
            The data set with new endpoints for these partitions.

        Raises
        ------
        UsageError
            It was not published with ``recoverable=True``.
        InvalidData
            Spark made other rows this time.
        """
        known = self.wait()._known
        again = known.republish(None if partitions is None else frozenset(partitions))
        return PublishedDataset._of(again, known)

    @property
    def _known(self) -> Publication:
        if self.control is None:
            raise UsageError(
                "only the process that published a data set can do this", hint="Call it in Spark's driver."
            )
        return self.control

    def __reduce__(self) -> tuple[Any, ...]:
        # The publication is of this process: a pickle of it is a plain data set.
        return Dataset, (self.endpoints, self.schema, self.num_rows, self.nbytes, self.metadata)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        # Dask names its tasks by their arguments, for which it looks at fields rather than at the pickle.
        return self.__reduce__()


def _host_of(endpoint: Endpoint) -> str:
    """Return the name of the host that offers a stream, as far as its URI tells."""
    for uri in (endpoint.elsewhere, endpoint.uri):
        host = urlsplit(uri).hostname if uri else None
        if host:
            return host
    return socket.gethostname() if endpoint.is_here else str(endpoint.host)


@dataclasses.dataclass(frozen=True, repr=False)
class RunningDataset(PublishedDataset):
    """A data set of :func:`bowstring.spark.publish` with ``wait=False``: a job writes it. It pickles.

    :func:`bowstring.connect` reads partitions in the order in which tasks commit them, each exactly once, whatever
    Spark tries again or twice, and ends when the job is complete. A job that fails is an error of the stream, with
    the job's reason; so is a driver that ends before. A stream waits for the next partition as long as the driver
    lives.
    """

    job: concurrent.futures.Future[PublishedDataset] | None = dataclasses.field(default=None, compare=False)

    def wait(self, timeout: float | None = None) -> PublishedDataset:
        """Wait for the end of the job, and return the data set, whose partitions are in their order."""
        _ = self._known
        assert self.job is not None
        end = math.inf if timeout is None else time.monotonic() + check_seconds(timeout)
        while not self.job.done():
            left = end - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded("the job that publishes the data set still runs", found=f"{timeout} s")
            concurrent.futures.wait([self.job], min(left, _SLICE))
        return self.job.result()

    def release(self) -> None:
        """Free the data, and let the job fail if it still runs. Readers keep what they have. Idempotent."""
        if self._known.running:
            self._known.abandon(BrokenError("the data set was released while its job ran"))
        self._known.release()

    # Its endpoints are not known here: a reader that took it for an empty data set would read no rows.

    def to_json(self) -> str:
        """Refuse: what is read from that would follow no job."""
        raise self._not_whole()

    def __len__(self) -> int:
        raise self._not_whole()

    def __iter__(self) -> Iterator[Endpoint]:
        raise self._not_whole()

    def __bool__(self) -> bool:
        return True

    def _not_whole(self) -> UsageError:
        return UsageError(
            "the endpoints of a data set that was published with wait=False are known once its job is complete",
            hint="wait() returns the whole data set; bow.connect follows this one.",
        )

    def __repr__(self) -> str:
        name = self.metadata.get("name") or "without a name"
        return f"<{type(self).__name__} {name}, {len(self.schema)} columns>"

    def __reduce__(self) -> tuple[Any, ...]:
        return RunningDataset, (self.endpoints, self.schema, None, None, self.metadata)

    def _stream(
        self, opened: Callable[[Dataset], Stream], columns: tuple[str, ...] | None, tls: Any
    ) -> Stream:
        return FollowingStream(self, opened, columns, tls)


class FollowingStream(Stream):
    """The partitions of a data set as a depot counts them; asks that for more at their end."""

    def __init__(
        self,
        dataset: RunningDataset,
        opened: Callable[[Dataset], Stream],
        columns: tuple[str, ...] | None,
        tls: Any,
    ) -> None:
        super().__init__()
        self._id: str = dataset.metadata["id"]
        self._opened = opened
        self._schema = dataset.schema if columns is None else chosen_columns(dataset.schema, columns)
        self._next = 0
        self._stream_now: Stream | None = None
        self._done: list[StreamStatistics] = []
        self._turn = threading.RLock()
        self._closed = Event()
        self._depot = connect(start=False, address=dataset.metadata["growing"], tls=tls)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches; waits for the first of them, or the end of the job."""
        with self._turn:
            if not (self._next or self._ended or self._closed.is_set()):
                self._take_more()
            return self._schema

    @property
    def stats(self) -> StreamStatistics:
        """The sum over all partitions so far."""
        now = self._stream_now
        return sum_of(self._done if now is None else [*self._done, now.stats])

    def read_next_batch(self) -> Batch:
        """Return the next batch, waiting until a task commits it."""
        with self._turn:
            while self._stream_now is not None or self._take_more():
                now = self._stream_now
                assert now is not None
                try:
                    return now.read_next_batch()
                except EndOfStream:
                    self._done.append(now.stats)
                    self._stream_now = None
                    now.close()
                except BowstringError as error:
                    self._fail(error)
            self._note_end()
            raise EndOfStream("there are no more batches")

    def _take_more(self) -> bool:
        """Open what was committed since, waiting for it; return false at the end of a job that is complete."""
        pause = _LEAST_PAUSE
        while True:
            self._check_open()
            try:
                position, more, state = self._depot._lookup(self._id, self._next)
                _, count = place_of(position)
                if count > self._next:
                    self._stream_now = self._opened(dataclasses.replace(more, num_rows=None, nbytes=None))
                    if self._closed.is_set():  # by another thread, meanwhile
                        self._stream_now.close()
                        self._check_open()
                    self._next, self._schema = count, self._stream_now.schema
                    return True
                if state == COMPLETE:
                    return False
                if state != RUNNING:
                    raise _failure(state)
            except BowstringError as error:
                self._fail(error)
            self._closed.wait(pause)
            pause = min(2 * pause, _MOST_PAUSE)

    def _fail(self, error: BowstringError) -> None:
        """Raise the reason for which the job failed, where it did, or else an error of reading."""
        failure = error
        if not self._closed.is_set():
            with contextlib.suppress(BowstringError):
                state = self._depot._lookup(self._id, self._next)[2]
                failure = error if state in (RUNNING, COMPLETE) else _failure(state)
            if isinstance(failure, UnknownTicket):
                failure = BrokenError(
                    "the data set was released, or its driver has ended, before all of it was read",
                    found=f"{self._next} partitions so far",
                )
        self.close()
        raise without_frames(failure) from None

    def close(self) -> None:
        """Ask for nothing more. Batches stay true. Idempotent."""
        self._closed.set()
        self._depot.close()
        now = self._stream_now
        if now is not None:
            now.close()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClosedError("the stream is closed")


def _failure(state: str | None) -> BowstringError:
    """Return the error for a job that has neither come to its end nor runs."""
    if state is None or state == LOST:
        return BrokenError("the driver of the job that publishes the data set has ended before the job")
    return unpack_error(state.encode())
