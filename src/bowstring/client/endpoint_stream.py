"""The streams of one connection: of one endpoint, or of several of one server, and what brings them in."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import weakref
from typing import TYPE_CHECKING, Literal, Protocol

import pyarrow as pa

from bowstring.client.pinned import Pinned
from bowstring.client.stream import Counters, Readiness, Stream, StreamStatistics, chosen_columns
from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import dictionaries_placed, placed
from bowstring.columnar.parts import batch_parts
from bowstring.columnar.validation import check_once
from bowstring.dissociated.position import position_at
from bowstring.errors import (
    BowstringError,
    BrokenError,
    ClosedError,
    EndOfStream,
    InvalidData,
    UsageError,
    without_frames,
)
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Device, Pool, Road, default_pool
from bowstring.memory.buffer import PrivateMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.validation import Validated
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.dissociated.position import Position
    from bowstring.dissociated.wire import Welcome
    from bowstring.ipc.compression.device.decompress import DeviceBodies
    from bowstring.memory import Allocator


class Incoming(Protocol):
    """What brings in a stream: a connection by our protocol, or Flight's ``DoGet``."""

    endpoint: Endpoint
    counters: Counters

    @property
    def extended(self) -> bool:
        """Whether the server chooses the columns."""

    @property
    def trusted(self) -> bool:
        """Whether only processes of this user can have written what comes."""

    @property
    def welcome(self) -> Welcome | None:
        """The server's welcome, if it sent one."""

    @property
    def begins(self) -> tuple[str, int] | None:
        """The version that is read, and the index in it of the first batch, where there is such."""

    @property
    def path(self) -> tuple[str, str]:
        """The path that the bodies take, and the reason."""

    @property
    def bodies(self) -> DeviceBodies | None:
        """What decompresses on a device."""

    @property
    def peer(self) -> object:
        """The address of the other end."""

    @property
    def over(self) -> bool:
        """Whether the connection is not there any more."""

    @property
    def closed(self) -> bool:
        """Whether the user asked for nothing more."""

    def start(self) -> None:
        """Start what only `abandon` ends."""

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
        """Ask for nothing more, because the stream is no longer referenced."""

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
    """The stream of one endpoint; made by :func:`bowstring.connect`."""

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
        validate: Validated | None = None,
        timeout: float | None = None,
    ) -> None:
        super().__init__()
        self._timeout = timeout
        self._connection = connection
        self._checks = validate == "full" or (validate is None and not connection.trusted)
        self._failure: BowstringError | None = None  # what ended the stream here: a batch was not delivered
        self._missed: int | None = None  # how many batches came before the first one that was not delivered
        self._select = None if connection.extended else columns
        self._device = device
        self._pool = pool
        self._mode = mode
        # For copies on the host whose views may be written; `None` for read-only batches.
        self._private = private
        self._seconds = seconds
        self._road: Road | None = None
        self._allocators = allocators  # of copies, by device; shared with other streams
        # A dictionary is copied once, not with each batch that uses it.
        self._copied: weakref.WeakKeyDictionary[Dictionary, Dictionary] = weakref.WeakKeyDictionary()
        self._device_name = device.name if device is not None else "cpu"
        schema = connection.schema()
        connection.start()
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
        if self._failure is not None:
            self._check_whole()
        before = self._connection.counters.batches
        batch: Batch | None = None
        try:
            batch = self._connection.next()
            return self._delivered(batch)
        except EndOfStream:
            self._note_end()
            raise
        except BaseException as error:
            came, batch = batch is not None, None  # what is raised keeps this frame
            if came or not isinstance(error, BowstringError):  # else another thread may have taken one
                self._note_missed(before, error)
            raise

    def _note_missed(self, before: int, error: BaseException) -> None:
        """Take note of a batch that came and was not delivered."""
        if self._connection.counters.batches == before:
            return
        if self._missed is None:
            self._missed = before
        if not isinstance(error, Exception):  # the next one would hide that it is missing
            self._failure = BrokenError(
                "the stream was interrupted while a batch was delivered",
                where=str(self._connection.peer),
                hint="Batches that are there stay true; connect() again reads the data set anew.",
            )
        if self._failure is not None:
            self._connection.close()  # nothing behind it is asked for

    @property
    def position(self) -> Position | None:
        """Where the stream is in its data set: before the next batch that was not delivered."""
        begins = self._connection.begins
        if begins is None:
            return None
        delivered = self._connection.counters.batches if self._missed is None else self._missed
        return position_at(begins[0], begins[1] + delivered)

    def _check_whole(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure)

    def _delivered(self, batch: Batch) -> Batch:
        """Return a batch that came as the user wants it: checked, with its columns, where it shall be."""
        # What came as bytes lies in memory of ours already.
        borrowed = batch.lease.borrowed
        copies = borrowed and (
            self._mode == "copy" or (self._mode is None and not batch.device.maps_by_default)
        )
        copies = copies or (self._private is not None and self._shared(batch))
        out = not (copies or borrowed) and self._is_copied_out(batch)
        if self._select is not None:
            batch = batch.select(list(self._select))
        if self._checks:
            try:
                check_once(batch)
            except InvalidData as error:
                del batch  # which what is raised would keep
                self._failure = without_frames(error)
            self._check_whole()
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
        return Readiness.SLOW if (copies or self._looks_at_elements) and found is Readiness.READY else found

    @functools.cached_property
    def _looks_at_elements(self) -> bool:
        if not self._checks:
            return False
        from bowstring.columnar.validation.elements import may_be_wrong  # kernels that only this needs

        return may_be_wrong(Layout.of(self._schema))

    def _shared(self, batch: Batch) -> bool:
        """Whether the batch shall be written, and lies in memory that others see: then it must be copied."""
        if self._private is None or all(region.private for region in batch_parts(batch).spans.regions):
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

    @functools.cached_property
    def _pinned(self) -> Pinned:
        return Pinned()

    def _is_copied_out(self, batch: Batch) -> bool:
        """Whether a batch that came as bytes leaves the region that it landed in."""
        self._pinned.add(batch)
        if self._pinned.wasteful:
            self._road = Road("copy", "the batches that are kept held far more memory than they use")
        return self._pinned.wasteful

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
        self._failure = None
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
    _asked: int | None = None

    def read_next_batch(self) -> Batch:
        """Return the next batch of any partition, waiting for it."""
        self._asked = self._connection.partition
        return super().read_next_batch()

    def read_of(self, partition: int) -> Batch | None:
        """Return the next batch of a partition, which the user has reached; ``None`` behind its last one."""
        self._check_whole()
        self._asked = partition
        before = self._connection.counters.batches
        try:
            batch = self._connection.next_of(partition)
            return None if batch is None else self._delivered(batch)
        except BaseException as error:
            self._note_missed(before, error)
            raise

    def readiness_of(self, partition: int, wake: Callable[[], object], began: float) -> Readiness:
        """Return what `read_of` would do, as :meth:`Connection.readiness` does."""
        return self._as_ready(self._connection.readiness_of(partition, wake, began))

    @property
    def partition(self) -> int | None:
        """The number of the partition that the user is in, where that is known."""
        # The last batch of a partition may be what is wrong: then the user is in the next one.
        return self._connection.partition if self._failure is None else self._asked
