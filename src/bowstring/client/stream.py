"""A stream: the batches of one data set, as its reader has them."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import threading
import weakref
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, Self

import pyarrow as pa

from bowstring.client.pinned import Pinned
from bowstring.client.poller import Readiness
from bowstring.closing import Closing
from bowstring.columnar.interchange.conversions import Converting
from bowstring.columnar.lookup import column_positions
from bowstring.columnar.materialize import dictionaries_placed, placed
from bowstring.errors import ClosedError, EndOfStream, NotOnDevice, NotPicklable, Starved, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Device, Pool, Road, default_pool, device_by_name
from bowstring.memory.buffer import PrivateMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.dictionary import Dictionary
    from bowstring.dissociated.endpoint import Dataset, Endpoint
    from bowstring.dissociated.wire import Welcome
    from bowstring.ipc.compression.device.decompress import DeviceBodies
    from bowstring.memory import Allocator

__all__ = [
    "Counters",
    "EndpointStream",
    "Incoming",
    "IncomingPartitions",
    "PartitionsStream",
    "Stream",
    "StreamStatistics",
    "copy_borrowed",
]


@dataclasses.dataclass(frozen=True, slots=True)
class StreamStatistics:
    """What came over a stream so far, and how.

    Attributes
    ----------
    batches, rows, nbytes
        Delivered so far; bytes are those of the buffers.
    path, why
        The road that the bodies take, and the reason.
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
        Which road compressed buffers took to a device that was asked for, and why not another one.
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


class Stream(Closing, Converting):
    """Batches, one after the other. Iterate over it, in a ``with`` block.

    The batches stay true after the stream is closed, and after its producer is gone. A stream is read once: to
    begin again after its end (``for``, `read_all`, `to_pandas`, ``pyarrow.table(stream)`` …) raises `UsageError`.
    Threads may share a stream, each batch goes to one of them: a thread that begins after another has read the last
    batch finds nothing left, without an error.
    """

    def __init__(self) -> None:
        self._ended = False  # whether it was read to its end
        # For these threads, reading on is reading again: the one that opened the stream, and all that saw its end.
        self._readers = weakref.WeakSet([threading.current_thread()])

    @property
    @abc.abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the batches."""

    @property
    @abc.abstractmethod
    def stats(self) -> StreamStatistics:
        """What came so far, and how."""

    @property
    def num_rows(self) -> int | None:
        """How many rows the whole stream has, where the producer knows it."""
        return None

    @property
    def num_batches(self) -> int | None:
        """How many batches the whole stream has, where the producer knows it."""
        return None

    @property
    def nbytes(self) -> int | None:
        """How many bytes all columns of the data set have, where the producer knows it."""
        return None

    @property
    def endpoint(self) -> Endpoint | Dataset | None:
        """What this stream reads, to send to others: it stands for this version alone, whatever replaces it."""
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
        from bowstring.client.preview import stream_html

        return stream_html(self)

    def _readiness(self, wake: Callable[[], object], began: float) -> Readiness:  # noqa: ARG002  for those that know
        """Return what `read_next_batch` would do, as :meth:`Connection.readiness` does."""
        return Readiness.SLOW

    @abc.abstractmethod
    def _check_open(self) -> None:
        """Raise `ClosedError` where the stream is closed: here, and not out of what somebody makes of it."""

    def __iter__(self) -> Self:
        self._check_more()
        return self

    def _check_more(self) -> None:
        """Refuse to begin anew with a stream that was read to its end: that would look like an empty data set."""
        if self._ended and threading.current_thread() in self._readers:
            self._check_open()
            raise UsageError(
                "the stream was read to its end, and is read once",
                hint="Call connect() again to read the data set again, or keep its batches or a table.",
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
        """Return what :meth:`read_all` returns; ``to_pandas``, ``to_polars`` and ``to_pylist`` convert it."""
        return self.read_all()

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
        # Whoever asks by this name has not asked for a copy from a device, as whoever calls to_reader() has.
        taken = (_on_host(batch).to_arrow() for batch in self)
        return pa.RecordBatchReader.from_batches(self.schema, taken).__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> NoReturn:
        raise NotPicklable(
            "a Stream belongs to its process", hint="Send the Endpoint, and connect in the other process."
        )


class Incoming(Protocol):
    """What brings in a stream: a connection by our protocol, or Flight's ``DoGet``."""

    endpoint: Endpoint
    counters: Counters

    @property
    def extended(self) -> bool:
        """Whether the server chooses the columns, as it was told."""

    @property
    def welcome(self) -> Welcome | None:
        """What the server said of the stream, if it did."""

    @property
    def path(self) -> tuple[str, str]:
        """The path that the bodies take, and the reason."""

    @property
    def bodies(self) -> DeviceBodies | None:
        """What decompresses on a device."""

    @property
    def peer(self) -> object:
        """Who is at the other end."""

    @property
    def over(self) -> bool:
        """Whether the connection is not there any more."""

    @property
    def closed(self) -> bool:
        """Whether the user asked for nothing more."""

    def schema(self) -> pa.Schema:
        """Return the schema of the batches."""

    def next(self) -> Batch:
        """Return the next batch, waiting for it."""

    def peek(self) -> Batch | None:
        """Return the next batch if it is there already, on the host; it stays the next one."""

    def readiness(self, wake: Callable[[], object], began: float) -> Readiness:
        """Return what `next` would do; if it would wait, have `wake` called once something has changed."""

    def close(self) -> None:
        """Ask for nothing more."""

    def abandon(self) -> None:
        """Ask for nothing more, where nobody holds the stream any more."""

    def check_process(self) -> None:
        """Refuse to go on in the child of a fork."""


class IncomingPartitions(Incoming, Protocol):
    """What brings in a stream of many partitions."""

    def next_of(self, partition: int) -> Batch | None:
        """Return the next batch of a partition; ``None`` behind its last one."""

    def readiness_of(self, partition: int, wake: Callable[[], object], began: float) -> Readiness:
        """Return what `next_of` would do, as `readiness` does."""

    @property
    def partition(self) -> int | None:
        """The number of the partition that the user is in."""


class EndpointStream(Stream):
    """The stream of one endpoint; made by :func:`bowstring.connect`.

    Parameters
    ----------
    connection
        What brings it in.
    columns
        The columns to keep, where the server does not choose them itself.
    device
        Where the batches shall be; where they come, by default.
    pool
        Where copies go, as far as it is on their device.
    allocators
        Out of which regions they are cut there, shared with other streams.
    mode
        Whether batches are views, or copied when they are delivered; ``None`` leaves it to the device they are on.
    private
        Where copies on the host go so that their views may be written; ``None`` for batches that are only read.
    seconds
        The most that each wait for a device may take.
    """

    def __init__(
        self,
        connection: Incoming,
        columns: tuple[str, ...] | None,
        device: Device | None,
        pool: Pool,
        allocators: dict[Device, Allocator],
        *,
        mode: Literal["map", "copy"] | None = None,
        private: PrivateMemory | None = None,
        seconds: float = DEFAULT_LIMITS.device_timeout,
    ) -> None:
        super().__init__()
        self._connection = connection
        self._select = None if connection.extended else columns
        self._device = device
        self._pool = pool
        self._mode = mode
        self._private = private
        self._seconds = seconds
        self._road: Road | None = None
        self._allocators = allocators
        self._pinned = Pinned()
        # A dictionary is copied once, not with each batch that uses it.
        self._copied: weakref.WeakKeyDictionary[Dictionary, Dictionary] = weakref.WeakKeyDictionary()
        self._device_name = device.name if device is not None else "cpu"
        schema = connection.schema()
        self._schema = schema if self._select is None else chosen_columns(schema, self._select)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self._schema

    @property
    def endpoint(self) -> Endpoint:
        """What this stream reads, to send to others: it stands for this version alone, whatever replaces it."""
        welcome, endpoint = self._connection.welcome, self._connection.endpoint
        if welcome is None or welcome.ticket is None:
            return endpoint
        return dataclasses.replace(endpoint, ticket=welcome.ticket.encode())

    @property
    def num_rows(self) -> int | None:
        """How many rows the whole stream has, where the producer knows it."""
        welcome = self._connection.welcome
        return None if welcome is None else welcome.num_rows

    @property
    def num_batches(self) -> int | None:
        """How many batches the whole stream has, where the producer knows it."""
        welcome = self._connection.welcome
        return None if welcome is None else welcome.num_batches

    @property
    def nbytes(self) -> int | None:
        """How many bytes the whole data set has, where the producer knows it."""
        welcome = self._connection.welcome
        return None if welcome is None else welcome.nbytes

    @property
    def stats(self) -> StreamStatistics:
        """What came so far, and how."""
        counters = self._connection.counters
        path, why = self._connection.path
        return StreamStatistics(
            counters.batches,
            counters.rows,
            counters.nbytes,
            path,
            why,
            counters.seconds_waited,
            counters.regions,
            counters.cached_regions,
            self._device_name,
            "" if self._road is None else self._road.name,
            "" if self._road is None else self._road.why,
            "" if self._connection.bodies is None else str(self._connection.bodies.counts),
        )

    def read_next_batch(self) -> Batch:
        """Return the next batch, waiting for it."""
        try:
            batch = self._connection.next()
        except EndOfStream:
            self._note_end()
            raise
        return self._delivered(batch)

    def _delivered(self, batch: Batch) -> Batch:
        """Return a batch that came as the user wants it: with its columns, where it shall be."""
        # What came as bytes lies in memory of ours already.
        copies = (batch.lease.borrowed and self._copies(batch.device)) or self._shared(batch)
        out = not (copies or batch.lease.borrowed) and self._is_copied_out(batch)
        if self._select is not None:
            batch = batch.select(list(self._select))
        device = self._device or batch.device
        if out and device.is_host:
            batch = placed(batch, PrivateMemory(), self._copied, in_place=False)
        elif copies or device is not batch.device:
            batch = placed(
                batch,
                self._allocator(device),
                self._copied,
                in_place=False,
                seconds=self._seconds,
                note=self._note,
            )
        elif self._device is not None:
            # What was compressed came to the device by itself.
            batch = dictionaries_placed(batch, self._allocator(device), self._copied)
        self._device_name = batch.device.name
        return batch

    def _peek(self) -> Batch | None:
        batch = self._connection.peek()
        return batch if batch is None or self._select is None else batch.select(list(self._select))

    def _readiness(self, wake: Callable[[], object], began: float) -> Readiness:
        return self._as_ready(self._connection.readiness(wake, began))

    def _as_ready(self, found: Readiness) -> Readiness:
        copies = self._mode == "copy" or self._device is not None or self._private is not None
        return Readiness.SLOW if copies and found is Readiness.READY else found

    def _shared(self, batch: Batch) -> bool:
        """Whether the batch shall be written, and lies in memory that others see.

        Raises
        ------
        UsageError
            It was asked for without a copy.
        """
        if self._private is None or all(region.private for region in batch.spans.regions):
            return False
        if self._mode == "map":
            raise UsageError(
                f"memory of {batch.device.name} that others see is written only in a copy",
                found='connect(writable=True, mode="map")',
                where=self._connection.path[0],
                hint='Leave out mode="map".',
            )
        self._road = Road("copy", "writable=True, and others see the memory that the batches came in")
        return batch.lease.borrowed or batch.device.is_host

    def _is_copied_out(self, batch: Batch) -> bool:
        """Whether a batch that came as bytes leaves the region that it landed in."""
        self._pinned.add(batch)
        if self._pinned.wasteful:
            self._road = Road("copy", "the batches that are kept held far more memory than they use")
        return self._pinned.wasteful

    def _copies(self, device: Device) -> bool:
        return self._mode == "copy" or (self._mode is None and not device.maps_by_default)

    def _note(self, road: Road) -> None:
        if road.name != "none":
            self._road = road

    def _allocator(self, device: Device) -> Allocator | PrivateMemory:
        if self._private is not None and device.is_host:
            return self._private
        allocator = self._allocators.get(device)
        if allocator is None:
            pool = self._pool
            if pool.device is not device:
                pool = default_pool() if device.is_host else Pool(device)
            allocator = self._allocators.setdefault(device, pool.allocator())
        return allocator

    def close(self) -> None:
        """Ask for nothing more. Batches stay true."""
        self._connection.close()

    def _check_open(self) -> None:
        self._connection.check_process()
        if self._connection.closed:
            raise ClosedError("the stream is closed")

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.abandon()

    def __repr__(self) -> str:
        stats = self.stats
        return f"<Stream {self._connection.peer} {stats.path}, {stats.batches} batches so far>"


class PartitionsStream(EndpointStream):
    """The stream of several endpoints of one server, one after the other; takes what `EndpointStream` takes."""

    _connection: IncomingPartitions

    def read_of(self, partition: int) -> Batch | None:
        """Return the next batch of a partition, to which the user has come; ``None`` behind its last one.

        Raises
        ------
        BowstringError
            As `read_next_batch`.
        """
        batch = self._connection.next_of(partition)
        return None if batch is None else self._delivered(batch)

    def readiness_of(self, partition: int, wake: Callable[[], object], began: float) -> Readiness:
        """Return what `read_of` would do, as :meth:`Connection.readiness` does."""
        return self._as_ready(self._connection.readiness_of(partition, wake, began))

    @property
    def partition(self) -> int | None:
        """The number of the partition that the user is in, where that is known."""
        return self._connection.partition


def copy_borrowed(batches: list[Batch]) -> bool:
    """Put copies in the place of batches over the producer's memory, which goes back; false if there are none."""
    memory = PrivateMemory()
    known: dict[Dictionary, Dictionary] = {}
    found = [index for index, batch in enumerate(batches) if batch.lease.borrowed]
    for index in found:
        batches[index] = placed(batches[index].to_device("cpu"), memory, known, in_place=False)
    return bool(found)


def _on_host(batch: Batch) -> Batch:
    if not batch.device.is_host:
        raise NotOnDevice(
            "the batches of the stream are not on the host",
            found=batch.device.name,
            hint='connect(device="cpu") or to_reader() copy them; batches know __arrow_c_device_array__.',
        )
    return batch


def chosen_columns(schema: pa.Schema, names: tuple[str, ...]) -> pa.Schema:
    """Return the schema of some columns, in the order given.

    Raises
    ------
    UnknownColumn
        There is no such column, or several have the name.
    """
    fields = [schema.field(position) for position in column_positions(schema, names)]
    return pa.schema(fields, metadata=schema.metadata)


def device_named(device: Device | str | None) -> Device | None:
    """Return the device that a user means."""
    return device if device is None or isinstance(device, Device) else device_by_name(device)


@dataclasses.dataclass(slots=True)
class Counters:
    """What a connection has counted so far; bytes are those of the buffers, times are seconds."""

    batches: int = 0
    rows: int = 0
    nbytes: int = 0
    seconds_waited: float = 0.0
    regions: int = 0
    cached_regions: int = 0

    def count(self, rows: int, nbytes: int) -> None:
        """Count a batch that the user has now."""
        self.batches += 1
        self.rows += rows
        self.nbytes += nbytes
