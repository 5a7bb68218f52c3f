"""A stream: the batches of one data set, as its reader has them."""

from __future__ import annotations

import abc
import dataclasses
import enum
import threading
import weakref
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pyarrow as pa

from bowstring.closing import Closing
from bowstring.columnar.batch import Batch
from bowstring.columnar.display import table_of_batch, table_of_facts
from bowstring.columnar.interchange.conversions import Converting
from bowstring.columnar.lookup import column_positions
from bowstring.columnar.materialize import placed
from bowstring.errors import EndOfStream, NotOnDevice, NotPicklable, Starved, UsageError
from bowstring.memory.buffer import PrivateMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.columnar.parts import Dictionary
    from bowstring.dissociated.endpoint import Dataset, Endpoint
    from bowstring.dissociated.position import Position
    from bowstring.dissociated.wire import Welcome


class Readiness(enum.Enum):
    """What asking a stream for its next batch would do."""

    NOT_YET = "wait for the producer"
    READY = "return it, or raise what is wrong or that there are no more, at once"
    SLOW = "return it after work that takes a while, such as a copy"


@dataclasses.dataclass(frozen=True, slots=True)
class StreamStatistics:
    """What came over a stream so far, and how.

    Attributes
    ----------
    batches, rows, nbytes
        Delivered so far; bytes are those of the buffers.
    path, why
        How the bodies are moved, and why.
    seconds_waited
        Time spent waiting for the producer.
    regions, cached_regions
        Regions that the stream uses, and how many of them this process had mapped already.
    device
        Where the batches are.
    copied, copied_why
        How batches were copied that were not wanted, or could not stay, where they came (``"peer copy"``, ``"staged
        copy"``, ``"copy to the host"``, ``"copy"`` …), and why so; empty where none was.
    decompressed
        How compressed buffers came to a device that was asked for, and why not in another way.
    """

    batches: int
    rows: int
    nbytes: int
    path: str
    why: str
    seconds_waited: float
    regions: int
    cached_regions: int
    device: str
    copied: str = ""
    copied_why: str = ""
    decompressed: str = ""

    def _repr_html_(self) -> str:
        facts = dataclasses.asdict(self).items()
        return table_of_facts("What came over the stream so far", ("", ""), facts)


class Described:
    """What is known of a data set that is read."""

    _schema: pa.Schema
    _facts: Welcome | Dataset | Stream | None = None  # what knows how large the data set is

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._schema

    @property
    def num_rows(self) -> int | None:
        """How many rows the whole stream has, where the producer knows it."""
        return None if self._facts is None else self._facts.num_rows

    @property
    def num_batches(self) -> int | None:
        """How many batches the whole stream has, where the producer knows it."""
        return getattr(self._facts, "num_batches", None)

    @property
    def nbytes(self) -> int | None:
        """How many bytes all columns of the data set have, where the producer knows it."""
        return None if self._facts is None else self._facts.nbytes


class Stream(Described, Closing, Converting):
    """Batches, one after the other. Iterate over it, in a ``with`` block.

    The batches stay true after the stream is closed, and after its producer is gone. A stream is read once: to
    begin again after its end (``for``, `read_all`, `to_pandas`, ``pyarrow.table(stream)`` …) raises `UsageError`.
    Threads may share a stream, each batch goes to one of them: a thread that begins after another has read the last
    batch finds nothing left, without an error.
    """

    _timeout: float | None = None  # seconds that a call waits for a batch

    def __init__(self) -> None:
        self._ended = False  # whether it was read to its end
        # For these threads, reading on is reading again: the one that opened the stream, and all that saw its end.
        self._readers: weakref.WeakSet[Any] = weakref.WeakSet([threading.current_thread()])

    @property
    @abc.abstractmethod
    def stats(self) -> StreamStatistics:
        """What came so far, and how."""

    @property
    def endpoint(self) -> Endpoint | Dataset | None:
        """What this stream reads, to send to others: it stands for this version alone, whatever replaces it."""
        return None

    @property
    def position(self) -> Position | None:
        """Where the stream is in its data set: before the next batch, or behind the last one.

        ``connect(since=…)`` goes on from there. ``None`` for what has no positions: data that are made as they are
        read, shards, data sets of many endpoints, and servers of other kinds.

        Examples
        --------
        >>> import bowstring as bow
        >>> with bow.Server() as server:
        ...     end = server.append("t", {"a": [1, 2]})
        ...     with bow.connect(server, "t") as stream:
        ...         batch = stream.read_next_batch()
        ...         stream.position == end
        True
        """
        return None

    @abc.abstractmethod
    def read_next_batch(self) -> Batch:
        """Return the next batch, waiting for it.

        Raises
        ------
        EndOfStream
            There are no more.
        BrokenError, DeadlineExceeded, ProducerFailed, Starved, ClosedError
            The stream cannot go on; the error says why.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Ask for nothing more. Batches stay true. Idempotent."""

    def _peek(self) -> Batch | None:
        """Return the next batch if it is there already, on the host; it stays the next one."""
        return None

    def _repr_html_(self) -> str:
        """Return what notebooks show: schema, size, path, and the first rows of the next batch if it is there."""
        return self._html(type(self).__name__.removeprefix("Endpoint"))

    def _html(self, name: str) -> str:
        stats, size = self.stats, size_shown(self.num_rows, self.nbytes)
        title = f"{name} of {size}{stats.path}, {stats.batches} batches read"
        return shown_html(title, self.schema, self._peek())

    def _readiness(self, wake: Callable[[], object], began: float) -> Readiness:  # noqa: ARG002  for those that know
        """Return what `read_next_batch` would do, as :meth:`Connection.readiness` does."""
        return Readiness.SLOW

    @abc.abstractmethod
    def _check_open(self) -> None:
        """Raise `ClosedError` if the stream is closed."""

    def __iter__(self) -> Self:
        self._check_more()
        return self

    def _check_more(self, task: Any = None) -> None:
        """Refuse to begin anew with a stream that was read to its end: that would look like an empty data set."""
        if self._ended and (task or threading.current_thread()) in self._readers:
            self._check_open()
            call = "connect()" if task is None else "connect_async()"
            raise UsageError(
                "the stream was read to its end, and is read once",
                hint=f"Call {call} again to read the data set again, or keep its batches or a table.",
            )

    def _note_end(self) -> None:
        self._ended = True
        self._readers.add(threading.current_thread())

    def __next__(self) -> Batch:
        try:
            return self.read_next_batch()
        except EndOfStream:
            raise StopIteration from None

    def read_all(self) -> pa.Table:
        """Return all batches that are left as one pyarrow table, without a copy on the host.

        Where the producer needs the memory of these batches to make more, because it makes them lazily and together
        they are larger than its pool or ``Limits.outstanding_bytes``, they are copied.

        Raises
        ------
        BowstringError
            As `read_next_batch`; never a table that is shorter than the stream.
        UsageError
            The stream was read to its end already.
        """
        self._check_open()
        self._check_more()
        taken: list[Batch] = []
        while True:
            try:
                taken.append(self.read_next_batch())
            except EndOfStream:
                break
            except Starved:
                if not copy_borrowed(taken):
                    raise
        return pa.Table.from_batches([batch.to_arrow() for batch in taken], schema=self.schema)

    def to_arrow(self) -> pa.Table:
        """Return what :meth:`read_all` returns; `to_pandas`, `to_polars`, `to_pylist`, `to_pydict` convert it."""
        return self.read_all()

    def to_pydict(self) -> dict[str, list[Any]]:
        """Return the columns of all batches that are left as lists of Python objects, by name.

        Examples
        --------
        >>> import bowstring as bow
        >>> with bow.Server() as server, bow.connect(server.publish("t", {"a": [1, 2]})) as stream:
        ...     stream.to_pydict()
        {'a': [1, 2]}
        """
        columns: dict[str, list[Any]] = self.read_all().to_pydict()
        return columns

    def _as_pyarrow(self) -> pa.Table:
        return self.read_all()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the stream as a pyarrow reader, which fetches as it is read.

        Raises
        ------
        ClosedError
            The stream is closed.
        UsageError
            The stream was read to its end already.
        """
        self._check_open()
        self._check_more()
        return pa.RecordBatchReader.from_batches(self.schema, (batch.to_arrow() for batch in self))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self._check_open()
        self._check_more()
        # A caller of this protocol has not asked for a copy from a device, as one of to_reader() has.
        taken = (_on_host(batch).to_arrow() for batch in self)
        return pa.RecordBatchReader.from_batches(self.schema, taken).__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> NoReturn:
        raise NotPicklable(
            "a Stream belongs to its process", hint="Send the Endpoint, and connect in the other process."
        )


def copy_borrowed(batches: list[Batch]) -> bool:
    """Put copies in the place of batches over the producer's memory, which goes back; false if there are none."""
    memory = PrivateMemory()
    known: dict[Dictionary, Dictionary] = {}
    borrowed = [index for index, batch in enumerate(batches) if batch.lease.borrowed]
    for index in borrowed:
        batches[index] = placed(batches[index].to_device("cpu"), memory, known, in_place=False)
    return bool(borrowed)


def _on_host(batch: Batch) -> Batch:
    if not batch.device.is_host:
        raise NotOnDevice(
            "the batches of the stream are not on the host",
            found=batch.device.name,
            hint='connect(device="cpu") or to_reader() copy them; batches know __arrow_c_device_array__.',
        )
    return batch


def size_shown(rows: int | None, nbytes: int | None) -> str:
    """Return how large a data set is, as far as that is known, for the middle of a title."""
    known = "" if rows is None else f"{rows:,} rows, "
    return known if nbytes is None else f"{known}{nbytes:,} bytes, "


def shown_html(title: str, schema: pa.Schema, batch: Batch | None, num_rows: int | None = None) -> str:
    """Return what notebooks show of data that begin with a batch, if that is known."""
    if batch is None:
        batch = Batch.from_arrow(pa.Table.from_batches([], schema=schema))
    return table_of_batch(title.removesuffix(", "), batch, num_rows)


def chosen_columns(schema: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    """Return the schema of some columns, in the order given."""
    fields = [schema.field(position) for position in column_positions(schema, names)]
    return pa.schema(fields, metadata=schema.metadata)


@dataclasses.dataclass(slots=True)
class Counters:
    """What a connection has counted so far; bytes are those of the buffers, times are seconds."""

    batches: int = 0
    rows: int = 0
    nbytes: int = 0
    seconds_waited: float = 0.0
    regions: int = 0
    cached_regions: int = 0
