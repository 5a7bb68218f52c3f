"""The stream of one connection, whose batches come as the user wants them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import weakref
from typing import TYPE_CHECKING, Final, TypeAlias

from bowstring import errors
from bowstring.client.stream import Readiness, Stream, StreamStatistics, chosen_columns
from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import dictionaries_placed, placed
from bowstring.columnar.parts import batch_parts
from bowstring.columnar.validation import check_once
from bowstring.dissociated.position import position_at
from bowstring.memory import Device, Pool, Road, default_pool
from bowstring.memory.buffer import PrivateMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.client.connection import Connection
    from bowstring.client.do_get import DoGet
    from bowstring.client.reading import Reading
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.parts import Dictionary
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.dissociated.position import Position
    from bowstring.memory import Allocator, Lease, Region
    from bowstring.memory.buffer import PrivateMemory

    Incoming: TypeAlias = Connection | DoGet

# So much may be held for nothing.
_SLACK: Final = 4 << 20
# Counting looks at every batch that is kept: it is done when so much more is held than the last time.
_GROWTH: Final = 1.25
# What may be held for each byte that is used.
_MOST: Final = 2


class EndpointStream(Stream):
    """The stream of one connection: of one endpoint, or of several of one server, one after the other."""

    def __init__(self, connection: Incoming, reading: Reading, *, shared: bool = False) -> None:
        super().__init__()
        self._timeout = reading.timeout
        self._connection = connection
        self._reading = reading
        self._checks = reading.validate == "full" or (reading.validate is None and not connection.trusted)
        self._failure: errors.BowstringError | None = (
            None  # what ended the stream here: a batch was not delivered
        )
        self._missed: int | None = None  # how many batches came before the first one that was not delivered
        self._shared = shared  # by several endpoints, its partitions
        self._asked: int | None = None  # the partition that the user was in when it last asked
        columns = reading.hello.columns
        self._select = None if connection.extended else columns
        self._device = device = reading.device
        self._private = reading.private
        self._pinned: Pinned | None = None
        self._road: Road | None = None
        # A dictionary is copied once, not with each batch that uses it.
        self._copied: weakref.WeakKeyDictionary[Dictionary, Dictionary] = weakref.WeakKeyDictionary()
        self._device_name = device.name if device is not None else "cpu"
        schema = connection.schema()
        self._facts = connection.welcome
        connection.start()
        self._schema = schema if self._select is None else chosen_columns(schema, self._select)

    @property
    def endpoint(self) -> Endpoint:
        welcome, endpoint = self._connection.welcome, self._connection.endpoint
        if welcome is None or welcome.ticket is None:
            return endpoint
        return dataclasses.replace(endpoint, ticket=welcome.ticket.encode())

    @property
    def stats(self) -> StreamStatistics:
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
        # In one line: an interrupt behind the call would lose the batch.
        return self._read_of(None)  # type: ignore[return-value]  # there is one, unless it raises

    def _read_of(self, partition: int | None) -> Batch | None:
        """Return the next batch, or of a partition that the user has reached; ``None`` behind its last one."""
        if self._failure is not None:
            raise copy.copy(self._failure)
        connection = self._connection
        if self._shared:
            self._asked = connection.partition if partition is None else partition
        before = connection.counters.batches
        batch: Batch | None = None
        try:
            batch = connection.next(partition)
            return None if batch is None else self._delivered(batch)
        except errors.EndOfStream:
            self._note_end()
            raise
        except BaseException as error:
            came, batch = batch is not None, None  # what is raised keeps this frame
            if came or not isinstance(error, errors.BowstringError):  # else another thread may have taken one
                self._note_missed(before, error)
            raise

    def _note_missed(self, before: int, error: BaseException) -> None:
        """Take note of a batch that came and was not delivered."""
        if self._connection.counters.batches == before:
            return
        if self._missed is None:
            self._missed = before
        if not isinstance(error, Exception):  # the next one would hide that it is missing
            self._failure = interrupted_in_delivery(self._connection.peer)
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

    def _delivered(self, batch: Batch) -> Batch:
        """Return a batch that came as the user wants it: checked, with its columns, where it shall be."""
        # What came as bytes lies in memory of ours already.
        borrowed = batch.lease.borrowed
        copies = borrowed and (
            self._reading.mode == "copy" or (self._reading.mode is None and not batch.device.maps_by_default)
        )
        copies = copies or (self._private is not None and self._is_seen(batch))
        out = False  # whether a batch that came as bytes leaves the region that it landed in
        if not (copies or borrowed):
            if self._pinned is None:
                self._pinned = Pinned()
            self._pinned.add(batch)
            out = self._pinned.wasteful
            if out:
                self._road = Road("copy", "the batches that are kept held far more memory than they use")
        if self._select is not None:
            batch = batch.select(list(self._select))
        if self._checks:
            try:
                check_once(batch)
            except errors.InvalidData as error:
                del batch  # which what is raised would keep
                self._failure = errors.without_frames(error)
            if self._failure is not None:
                raise copy.copy(self._failure)
        device = self._device or batch.device
        if out and device.is_host:
            batch = placed(batch, PrivateMemory(), self._copied, in_place=False)
        elif copies or device is not batch.device:
            batch = placed(
                batch,
                self._allocator(device),
                self._copied,
                in_place=False,
                seconds=self._reading.limits.device_timeout,
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
        readiness = self._connection.readiness(wake, began)
        return Readiness.SLOW if self._is_slow and readiness is Readiness.READY else readiness

    @property
    def _at_once(self) -> bool:
        """Whether the next batch is there, and is delivered as it is."""
        return not self._is_slow and self._connection.peek() is not None

    @functools.cached_property
    def _is_slow(self) -> bool:
        """Whether batches are copied, or their elements looked at, when they are delivered."""
        if self._reading.mode == "copy" or self._device is not None or self._private is not None:
            return True
        if not self._checks:
            return False
        from bowstring.columnar.validation.elements import may_be_wrong  # kernels that only this needs

        return may_be_wrong(Layout.of(self._schema))

    def _is_seen(self, batch: Batch) -> bool:
        """Whether the batch shall be written, and lies in memory that others see: then it must be copied."""
        if self._private is None or all(region.private for region in batch_parts(batch).spans.regions):
            return False
        if self._reading.mode == "map":
            raise errors.UsageError(
                f"memory of {batch.device.name} that others see is written only in a copy",
                found='connect(writable=True, mode="map")',
                where=self._connection.path[0],
                hint='Leave out mode="map".',
            )
        self._road = Road("copy", "writable=True, and others see the memory that the batches came in")
        return batch.lease.borrowed or batch.device.is_host

    def _note(self, road: Road) -> None:
        if road.name != "none":
            self._road = road

    def _allocator(self, device: Device) -> Allocator | PrivateMemory:
        if self._private is not None and device.is_host:
            return self._private
        allocators = self._reading.allocators
        allocator = allocators.get(device)
        if allocator is None:
            pool = self._reading.copies
            if pool.device is not device:
                pool = default_pool() if device.is_host else Pool(device)
            allocator = allocators.setdefault(device, pool.allocator())
        return allocator

    def close(self) -> None:
        self._failure = None
        self._connection.close()

    def _check_open(self) -> None:
        self._connection.check_process()
        if self._connection.closed:
            raise errors.ClosedError("the stream is closed")

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.abandon()

    @property
    def _partition(self) -> int | None:
        """The number of the partition that the user is in, where that is known."""
        # The last batch of a partition may be what is wrong: then the user is in the next one.
        return self._connection.partition if self._failure is None else self._asked

    def __repr__(self) -> str:
        stats = self.stats
        return f"<Stream {self._connection.peer} {stats.path}, {stats.batches} batches so far>"


def interrupted_in_delivery(where: str) -> errors.BrokenError:
    """Return the error of a stream that may have lost a batch to an interrupt."""
    return errors.BrokenError(
        "the stream was interrupted while a batch was delivered",
        where=where,
        hint="Batches that are there stay true; connect() again reads the data set anew.",
    )


class Pinned:
    """Tells when packed bodies should be copied out of their regions: a batch that is kept holds a whole region."""

    def __init__(self) -> None:
        self.wasteful = False  # whether kept batches hold more than twice what they use, and 4 MiB
        self._regions: list[tuple[weakref.ref[Region], list[tuple[weakref.ref[Lease], int]]]] = []
        self._landing: weakref.ref[Region] | None = None
        self._batches: list[tuple[weakref.ref[Lease], int]] = []
        self._next = _SLACK

    def add(self, batch: Batch) -> None:
        """Take note of a batch, as it came."""
        parts = batch_parts(batch)
        if len(parts.spans.regions) != 1 or batch.lease is None:
            return
        region = parts.spans.regions[0]
        if self._landing is None or self._landing() is not region:
            self._count()
            self._landing = weakref.ref(region)
            self._batches = []
            self._regions.append((self._landing, self._batches))
        self._batches.append((weakref.ref(batch.lease), batch.nbytes))

    def _count(self) -> None:
        """Look again at what is held, but in the last region: the batch before this one may be in use yet."""
        self._regions = [each for each in self._regions if each[0]() is not None]
        sizes = [region.nbytes for each in self._regions[:-1] if (region := each[0]())]
        if not self.wasteful and sum(sizes) < self._next:
            return
        nbytes_held = used = 0
        for reference, batches in self._regions[:-1]:
            kept = sum(nbytes for lease, nbytes in batches if lease() is not None)
            region = reference()
            if kept and region is not None:
                nbytes_held, used = nbytes_held + region.nbytes, used + kept
        self._next = max(_SLACK, int(nbytes_held * _GROWTH))
        self.wasteful = nbytes_held > _SLACK + _MOST * used
