"""Resident data: batches that lie in regions for as long as the data set is offered or read."""

from __future__ import annotations

import collections
import operator
import threading
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import numpy as np

from bowstring.columnar import materialize
from bowstring.columnar.materialize import Lender, wholly_lent
from bowstring.columnar.parts import batch_parts
from bowstring.columnar.slice import compacted
from bowstring.dissociated.items import regions_of
from bowstring.errors import UnknownTicket, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Pending, cpu, default_pool, owned_regions, settle_devices
from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.server.encoder import Encoder, MakeRoom, place_and_encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.materialize import Lending
    from bowstring.columnar.parts import Dictionary
    from bowstring.dissociated.items import IpcMessage
    from bowstring.memory import Allocator, Device, Pool, Region

_Answer = TypeVar("_Answer")
_MOST_SELECTIONS: Final = 16
# Each has up to 64 KiB (`MOST_BYTES`), which no pool counts.
_MOST_ANSWERS: Final = 4
_DEVICE: Final = operator.attrgetter("device")
# Bitmaps of a shard that begins at such a row are views, and need not be moved by bits.
_ALIGNED_ROWS: Final = 64
_ROWS_WORTH_ALIGNING: Final = 16 * _ALIGNED_ROWS


class MaterializedSource:
    """A data set whose batches all lie in regions, copied there once when it was published, or lent as they lie."""

    charged = False
    begins = 0  # index of the first batch in the version, where the beginning is no longer kept

    def __init__(
        self,
        schema: pa.Schema,
        source: Iterable[Batch],
        pool: Pool,
        seconds: float = DEFAULT_LIMITS.device_timeout,
        *,
        in_place: bool = False,
        waits: bool = True,
    ) -> None:
        self.schema = schema
        ready = []
        for batch in source:
            if waits and not batch.device.is_host:  # it is read on another stream, maybe
                settle_devices((batch.device,), seconds)
            ready.append(batch)
        ordinary = None if in_place else place_and_encode(schema, ready, pool)
        if ordinary is not None:
            placed, items = ordinary
            self._hold(placed, on_host=True, pool=pool)
            self._items[None, True] = items
            return
        compact = [compacted(batch) for batch in ready]
        lender = Lender() if in_place else None
        if lender is not None:
            compact = [lender.lent(batch) for batch in compact]
        allocator = pool.allocator(_room(compact, pool.device))
        known: dict[Dictionary, Dictionary] = {}
        placed = [
            batch
            if lender is not None and wholly_lent(batch)
            else materialize.placed(batch, allocator, known, seconds=seconds, is_compact=True)
            for batch in compact
        ]
        lending = None if lender is None else lender.result(placed, pool.device)
        # What is lent was maybe made compact just now, by work that was queued on its own device.
        devices = [pool.device, *(map(_DEVICE, compact) if in_place else ())]
        pending = None
        # Memory of a pool of ours comes back when it is freed, and nothing says that a reader closed the event.
        if lender is not None and lending is not None and lending.nbytes and not (waits or lender.of_pools):
            pending = _pending(devices)
        if pending is None or lender is None:
            settle_devices(devices, seconds)
        else:
            lender.keep(pending)
        self._hold(placed, on_host=pool.device.is_host, lending=lending, pending=pending, pool=pool)

    @classmethod
    def of_placed(
        cls,
        schema: pa.Schema,
        placed: Sequence[Batch],
        encoded: Sequence[IpcMessage] = (),
        pool: Pool | None = None,
    ) -> Self:
        """Return a data set of batches in regions which readers can map already, of `pool` or of the host."""
        source = cls.__new__(cls)
        source.schema = schema
        source._hold(placed, on_host=pool is None or pool.device.is_host, pool=pool)
        if encoded:  # of all columns, with bodies of pointers; sent to readers as they are
            source._items[None, True] = list(encoded)
        return source

    @classmethod
    def joined(cls, sources: Sequence[MaterializedSource]) -> Self:
        """Return one data set of the batches of several with one schema, one or more, where they lie."""
        encoded = [source.encoded() for source in sources]
        messages = [encoded[0][0], *(message for each in encoded for message in each[1:])]
        batches = [batch for source in sources for batch in source.batches()]
        joined = cls.of_placed(sources[0].schema, batches, messages)
        joined._most_answers = 0  # it is for one reader, and nobody else would be sent them
        return joined

    def _hold(
        self,
        placed: Sequence[Batch],
        *,
        on_host: bool,
        lending: Lending | None = None,
        pending: Pending | None = None,
        pool: Pool | None = None,
    ) -> None:
        self._pool = pool
        self._allocator: Allocator | None = None
        self._shards: dict[tuple[int, int], MaterializedSource] = {}
        self._batches: list[Batch] = list(placed)
        self.lending = lending  # what is lent where it lies, if that was asked for
        self.pending = pending  # work on the data that nobody has waited for, if there is any
        self._items: collections.OrderedDict[tuple[Any, ...], list[IpcMessage]] = collections.OrderedDict()
        # What readers are sent first, by columns and what else it depends on.
        self._answers: collections.OrderedDict[tuple[Any, ...], Any] = collections.OrderedDict()
        self._most_answers = _MOST_ANSWERS
        self._on_host = on_host
        self._lock = threading.RLock()
        self._released = False
        # Where the memory of batches is, the host aside.
        self.devices = tuple(set(map(_DEVICE, self._batches)) - {cpu()})
        rows = nbytes = 0
        for batch in self._batches:
            rows += batch.num_rows
            nbytes += int(batch_parts(batch).spans.table[:, 2].sum())
        self.num_rows: int | None = rows
        self.num_batches: int | None = len(self._batches)
        self.nbytes: int | None = nbytes

    def items(
        self,
        columns: tuple[str, ...] | None,
        *,
        pointers: bool,
        make_room: MakeRoom,  # noqa: ARG002  all the room was taken when it was published
    ) -> Iterator[IpcMessage]:
        """Return the items, encoded once for each selection of columns."""
        if pointers or self._on_host:
            return iter(self.encoded(columns, pointers=pointers))
        # Bodies of a device are copied to the host to be sent, one after the other, and not kept.
        return self._encode(columns, pointers=pointers)

    def batches(self) -> Iterator[Batch]:
        """Yield the batches, when all work on them is done."""
        with self._lock:
            if self._released:
                raise UnknownTicket("the data set is no longer offered")
            batches, pending = list(self._batches), self.pending
        if pending is not None:
            pending.wait(DEFAULT_LIMITS.device_timeout)
        return iter(batches)

    def regions(self, columns: tuple[str, ...] | None, first: int | None = None) -> list[Region]:
        """Return the regions that a stream of these columns points into, or its first messages do."""
        return regions_of(self.encoded(columns)[:first])

    def prepare(self, *, pointers: bool) -> None:
        if (None, pointers) not in self._items and (pointers or self._on_host):
            self.encoded(pointers=pointers)

    def shard(self, index: int, count: int) -> MaterializedSource:
        """Return one of `count` contiguous ranges of rows, cut once for all of its readers."""
        if self.lending is not None:
            raise UsageError("what is lent in place is read whole", hint='Publish it with share="copy".')
        with self._lock:
            if self._released:
                raise UnknownTicket("the data set is no longer offered")
            shard = self._shards.get((index, count))
            if shard is None:
                shard = self._shards[index, count] = self._cut(index, count)
            return shard

    def _cut(self, index: int, count: int) -> MaterializedSource:
        rows = self.num_rows or 0
        aligned = _ALIGNED_ROWS if rows // count >= _ROWS_WORTH_ALIGNING else 1
        first, last = (rows * each // count for each in (index, index + 1))
        if self._allocator is None:  # one for all shards: what is copied for one is little
            self._allocator = (self._pool or default_pool()).allocator()
        allocator = self._allocator
        known: dict[Dictionary, Dictionary] = {
            dictionary: dictionary for batch in self._batches for dictionary in batch.dictionaries.values()
        }
        parts: list[Batch] = []
        begin = 0
        for batch in self._batches:
            start, stop = (_within(batch, row - begin, aligned) for row in (first, last))
            if start < stop:
                part = compacted(batch.slice(start, stop - start))
                parts.append(materialize.placed(part, allocator, known, is_compact=True))
            begin += batch.num_rows
        settle_devices(self.devices)
        shard = MaterializedSource.of_placed(self.schema, parts)
        shard._on_host, shard._most_answers = self._on_host, self._most_answers
        return shard

    def answer(
        self, columns: tuple[str, ...] | None, kind: Any, make: Callable[[Sequence[IpcMessage]], _Answer]
    ) -> _Answer:
        """Return what `make` makes of the messages of these columns, once for all readers of a kind.

        Whatever follows an answer must come from the list it was made of: the next list may be encoded anew.
        """
        key = (columns, kind)
        with self._lock:
            is_known = key in self._answers
            answer: _Answer = self._answers.pop(key) if is_known else make(self.encoded(columns))
            self._answers[key] = answer
            while len(self._answers) > self._most_answers:
                self._answers.popitem(last=False)
            return answer

    def encoded(self, columns: tuple[str, ...] | None = None, *, pointers: bool = True) -> list[IpcMessage]:
        """Return the messages of a stream, the schema first, encoded once for each selection of columns."""
        key = (columns, pointers)
        with self._lock:
            if self._released:
                raise UnknownTicket("the data set is no longer offered")
            messages = self._items.pop(key, None)
            if messages is None:
                messages = list(self._encode(columns, pointers=pointers))
            self._items[key] = messages
            while len(self._items) > _MOST_SELECTIONS:
                self._items.popitem(last=False)
            return messages

    def _encode(self, columns: tuple[str, ...] | None, *, pointers: bool) -> Iterator[IpcMessage]:
        encoder = Encoder(self.schema, columns, pointers=pointers, charged=False)
        yield encoder.schema()
        for batch in self._batches:
            yield from encoder.encode(batch)

    def release(self) -> None:
        """Let go of the batches; their regions return to the pool when no reader uses them any more."""
        with self._lock:
            self._released = True
            shards, self._shards = self._shards, {}
            self._allocator = None
            self._batches = []
            self._items.clear()
            self._answers.clear()
            self.pending = None
        for shard in shards.values():
            shard.release()


def _within(batch: Batch, row: int, aligned: int) -> int:
    """Return where a row that is counted from the beginning of a batch cuts it."""
    return min(max(row, 0), batch.num_rows) // aligned * aligned if row < batch.num_rows else batch.num_rows


def _pending(devices: Iterable[Device]) -> Pending | None:
    """Return an event after all that is queued now, where one can stand for all of it: on one device alone."""
    used = {device for device in devices if not device.is_host}
    [device] = used if len(used) == 1 else [None]
    shares = isinstance(device, DriverDevice) and device.driver.has_shared_events(device.ordinal)
    return Pending(cast("DriverDevice", device)) if shares else None


def _room(batches: list[Batch], device: Device) -> int:
    """Return how many bytes compact batches take at most, so that they can lie in one region."""
    dictionaries: dict[int, Batch] = {}
    for batch in batches:
        for each in batch.dictionaries.values():
            dictionaries[id(each)] = each.values
    nbytes = 0
    for batch in (*batches, *dictionaries.values()):
        spans = batch_parts(batch).spans
        moving = spans.table[:, 2]
        if batch.device is device:  # what lies in shared memory stays there
            stays = owned_regions(np.where(moving, spans.addresses(), 0), moving)[1] >= 0
            if not device.is_host and any(region.in_place for region in spans.regions):
                stays |= spans.lent
            moving = moving[~stays]
        nbytes += int(moving.sum()) + max(device.alignment, batch.device.alignment) * len(moving)
    return nbytes
