"""Growth: a version of a data set as a list of sealed batches, to which more are appended."""

from __future__ import annotations

import itertools
import math
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring import errors
from bowstring.columnar import materialize
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import Dictionary, batch_parts, make_batch
from bowstring.columnar.slice import compacted
from bowstring.dissociated.position import position_at
from bowstring.ipc.dictionary.writer import same_values
from bowstring.memory import Buffer, default_pool, settle_devices
from bowstring.server.encoder import Encoder
from bowstring.server.materialized import MaterializedSource
from bowstring.transport.loop import Job, do_in_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from bowstring.dissociated.items import IpcMessage
    from bowstring.dissociated.position import Position
    from bowstring.memory import Device, Pool, Region

_MIB: Final = 1 << 20
_LARGEST: Final = 64 * _MIB
_GROWN: Final = 4 * _MIB


_OFFSETS = {Kind.OFFSETS32: "<i4", Kind.OFFSETS64: "<i8"}


class Chunk(NamedTuple):
    """A sealed batch, its messages by pointers, and those of the dictionaries that were there before it."""

    batch: Batch
    items: Sequence[IpcMessage]
    dictionaries: Sequence[IpcMessage]
    nbytes: int
    made: float  # on the monotonic clock


class _Slabs:
    """Cuts buffers from regions, one behind the other; what an append that failed took can be taken again."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._size = pool.device.smallest_region
        self.at: tuple[Region | None, int] = (None, 0)

    @property
    def device(self) -> Device:
        return self._pool.device

    def allocate(self, nbytes: int) -> Buffer:
        """Return a fresh buffer; where there is no room, all stays as it was."""
        pool, (region, begin) = self._pool, self.at
        if region is None or begin + nbytes > region.nbytes:
            # Regions grow with what is in use, as each costs a descriptor.
            in_use = 0 if self._size < _GROWN else pool.stats.in_use
            most = min(
                _LARGEST, max(_GROWN, in_use // 8), max(pool.device.smallest_region, pool.budget // 16)
            )
            try:
                region, begin = pool.region(max(nbytes, self._size), least=nbytes), 0
            except errors.OutOfBudget:
                region, begin = pool.region(nbytes), 0
            self._size = min(2 * region.nbytes, most)
        alignment = pool.device.alignment
        self.at = region, begin + -(-nbytes // alignment) * alignment
        return Buffer.fresh(region, begin, nbytes)


class Growth:
    """The chunks of one version, and the readers that follow it.

    `appending` is held while something is appended; chunks and what became of the version change under a lock that
    is held for a moment only. A chunk's bytes are written before it is entered, and never again.
    """

    def __init__(self, version: str, source: MaterializedSource, pool: Pool | None) -> None:
        if source.lending is not None:
            raise errors.UsageError(
                "what is lent in place does not grow", hint='Publish it with share="copy", or append() it.'
            )
        self.version = version
        self.schema = source.schema
        self.appending = threading.Lock()
        self.appended = False  # whether there is more than was published at first
        self.finished = False
        self.failure: errors.BowstringError | None = None  # why nothing more comes
        self.first = 0  # index of the first batch that is kept
        self._layout = Layout.of(source.schema)
        self._pool = pool or default_pool()
        self._slabs = _Slabs(self._pool)
        self._grown: dict[int, _GrownValues] = {}  # by number, dictionaries with room behind them
        self._guard = threading.Lock()
        self._encoder = self._fresh_encoder()
        self._chunks = self._encoded(list(source.batches()), self._encoder)
        self._known = self._last_known(self._chunks)  # by number, those of the last batch
        self._encodes = False  # what may never be entered
        self._snapshot: MaterializedSource | None = source
        self._rings: dict[object, Callable[[], None]] = {}
        # How much is kept: the most batches, bytes and seconds.
        self._retain: Mapping[str, float] = {}
        self._nbytes = sum(each.nbytes for each in self._chunks)
        self._trimming: Job | None = None  # of the loop, while there is something that is kept for a time

    def _fresh_encoder(self) -> Encoder:
        encoder = Encoder(self.schema, None, pointers=True, charged=False)
        self.opening = encoder.schema()
        return encoder

    @property
    def devices(self) -> tuple[Device, ...]:
        return () if self._pool.device.is_host else (self._pool.device,)

    @property
    def total(self) -> int:
        """How many batches there were, those included that are not kept."""
        return self.first + len(self._chunks)

    @property
    def position(self) -> Position:
        return position_at(self.version, self.total)

    # Appending; under `appending`.

    def check(self, schema: pa.Schema) -> None:
        if not schema.equals(self.schema, check_metadata=True):
            raise errors.UsageError(
                "the data have another schema than the data set",
                expected=self.schema.to_string(),
                found=schema.to_string(),
                hint="Cast them to its schema, metadata included: table.cast(schema), replace_schema_metadata().",
            )

    def placed(self, batches: Iterable[Batch], seconds: float) -> list[Chunk]:
        """Return batches as chunks that are not entered yet; if that fails, nothing was taken."""
        slabs = self._slabs  # which `release` may take away meanwhile
        begun, grown = slabs.at, dict(self._grown)
        if self._encodes:  # the dictionaries of an append that failed were sent to nobody
            self._encoder = self._fresh_encoder()
        self._encodes, encoder = True, self._encoder
        try:
            placed, last = [], self._known
            for batch in batches:
                settle_devices((batch.device,), seconds)
                compact = compacted(batch)
                known = self._same(compact, last, grown, slabs)
                placed.append(materialize.placed(compact, slabs, known, seconds=seconds, is_compact=True))  # type: ignore[arg-type]
                last = self._numbered(placed[-1])
            settle_devices((self._pool.device,), seconds)
            chunks = self._encoded(placed, encoder)
        except BaseException:
            slabs.at = begun
            raise
        self._grown = grown if slabs is self._slabs else {}
        return chunks

    def _numbered(self, batch: Batch) -> dict[int, Dictionary]:
        """Return the dictionaries of a batch by the numbers that they have in the version."""
        own = zip(self._layout.dictionary_ids, batch.layout.dictionary_ids, strict=True)
        return {number: batch.dictionaries[id_] for number, id_ in own if id_ in batch.dictionaries}

    def _same(
        self, batch: Batch, last: dict[int, Dictionary], grown: dict[int, _GrownValues], slabs: _Slabs
    ) -> dict[Dictionary, Dictionary]:
        """Return dictionaries that are there already: with the same values, or with others behind them."""
        known: dict[Dictionary, Dictionary] = {}
        for number, dictionary in self._numbered(batch).items():
            before = last.get(number)
            if before is None or not (before.values.device.is_host and dictionary.values.device.is_host):
                continue
            if same_values(before.values, dictionary.values):
                known[dictionary] = before
            elif longer := _grown_values(dictionary.values, before.values, grown.get(number), slabs.allocate):
                values, grown[number] = longer
                known[dictionary] = Dictionary(dictionary.id, values)
        return known

    def _encoded(self, placed: Sequence[Batch], encoder: Encoder) -> list[Chunk]:
        chunks = []
        for batch in placed:
            before = tuple(encoder.present.values()) if self._layout.dictionaries else ()
            items = tuple(encoder.encode(batch))
            nbytes = sum(each.nbytes for each in items)
            chunks.append(Chunk(batch, items, before, nbytes, time.monotonic()))
        return chunks

    def _last_known(self, chunks: Sequence[Chunk]) -> dict[int, Dictionary]:
        return self._numbered(chunks[-1].batch) if chunks else {}

    def enter(self, chunks: Sequence[Chunk]) -> Position:
        """Add chunks, all at once; return the position behind them."""
        with self._guard:
            self._chunks += chunks
            self._nbytes += sum(each.nbytes for each in chunks)
            self._snapshot = None if chunks else self._snapshot
            self._known = self._last_known(chunks) or self._known
            self._encodes = False
            self.appended = True
            self._trim()
            position = self.position
        self._trim_later()
        return position

    # Trimming.

    def keep(self, retain: Mapping[str, float]) -> None:
        """Keep no more than that from now on."""
        with self._guard:
            job = self._trimming if retain != self._retain else None
            self._retain = dict(retain)
            self._trim()
        self._trim_later()
        if job is not None:  # which waits for another time
            job.ring()

    def _trim(self) -> None:
        """Let go of the oldest batches that are not to be kept; of those bounded by bytes, the last one stays."""
        chunks, most = self._chunks, self._retain
        if not most:
            return
        count = max(0, len(chunks) - int(most.get("batches", len(chunks))))
        left = self._nbytes - sum(each.nbytes for each in chunks[:count])
        while count < len(chunks) - 1 and left > most.get("bytes", math.inf):
            left -= chunks[count].nbytes
            count += 1
        oldest = time.monotonic() - most.get("seconds", math.inf)
        while count < len(chunks) and chunks[count].made <= oldest:
            left -= chunks[count].nbytes
            count += 1
        if count:
            self.first += count
            self._chunks, self._nbytes, self._snapshot = chunks[count:], left, None

    def _trim_later(self) -> None:
        """Have batches trimmed when their time is over, whether or not something is appended then."""
        with self._guard:
            if "seconds" not in self._retain or self._trimming is not None or not self._chunks:
                return
            job = self._trimming = Job(self._trim_in_time, "bowstring-retention", prompt=True)
        try:
            do_in_loop(job)
        except BaseException as error:
            self._trimming = None  # the next append trims, and tries again
            if not isinstance(error, errors.LimitExceeded):
                raise

    def _trim_in_time(self) -> float | None:
        with self._guard:
            self._trim()
            if not (self._chunks and "seconds" in self._retain):
                self._trimming = None
                return None
            return max(0.0, self._chunks[0].made + self._retain["seconds"] - time.monotonic())

    def end(self, failure: errors.BowstringError | None = None) -> None:
        """Note that nothing more comes: the version is finished, or why not."""
        with self._guard:
            self.finished |= failure is None
            self.failure = self.failure or failure
        self.ring()

    def release(self) -> None:
        with self._guard:
            self.first = self.total
            self._chunks, self._snapshot = [], None
            self._known = {}
            self._encoder = self._fresh_encoder()
            self._slabs, self._grown = _Slabs(self._pool), {}
            job = self._trimming
        if job is not None:
            job.ring()

    # Readers.

    def snapshot(self) -> MaterializedSource:
        """Return what is there now as a data set of its own."""
        with self._guard:
            if self._snapshot is None:
                self._snapshot = self._of(self._chunks, self.first)
            return self._snapshot

    def _of(self, chunks: Sequence[Chunk], begins: int) -> MaterializedSource:
        before = chunks[0].dictionaries if chunks else ()
        items = [self.opening, *before, *itertools.chain.from_iterable(each.items for each in chunks)]
        source = MaterializedSource.of_placed(self.schema, [each.batch for each in chunks], items, self._pool)
        source.begins = begins
        return source

    def check_kept(self, index: int) -> None:
        if index < self.first:
            raise errors.PositionExpired(
                "batches from this position on are no longer kept",
                expected=f"{self.first} or more",
                found=f"batch {index}",
                hint="Keep more (retain=), or connect() without since=, which begins with what is kept.",
            )

    def chunks(self, index: int, count: int) -> tuple[list[Chunk], errors.BowstringError | None, bool]:
        """Return the next chunks of a follower, or why there are no more, or that these are all."""
        with self._guard:
            self.check_kept(index)
            begin = index - self.first
            chunks = self._chunks[begin : begin + count]
            return chunks, None if chunks else self.failure, not chunks and self.finished

    def follow(self, who: object, ring: Callable[[], None]) -> None:
        """Have `ring` called, which waits for nothing, each time that something is appended, or at the end."""
        with self._guard:
            self._rings[who] = ring

    def leave(self, who: object) -> None:
        with self._guard:
            self._rings.pop(who, None)

    def ring(self) -> None:
        with self._guard:
            rings = list(self._rings.values())
        for each in rings:
            each()


def all_of(schema: pa.Schema, batches: Iterable[Batch], pool: Pool, seconds: float) -> Growth:
    """Take batches into shared memory, one after the other, as a version that is finished."""
    growth = Growth("", MaterializedSource.of_placed(schema, (), (), pool), pool)
    for batch in batches:
        growth.enter(growth.placed([batch], seconds))
        del batch  # before the next one is made
    growth.end()
    return growth


# The values of a dictionary that grows with a data set lie once, with room behind them for what comes.


class _GrownValues(NamedTuple):
    """Where the values lie, and how many bytes of each buffer were written, which are never written again."""

    buffers: Sequence[Buffer]
    used: Sequence[int]

    def arrays(self) -> list[Any]:
        return [buffer.array()[:used] for buffer, used in zip(self.buffers, self.used, strict=True)]


def _grown_values(
    values: Batch, before: Batch, known: _GrownValues | None, allocate: Callable[[int], Buffer]
) -> tuple[Batch, _GrownValues] | None:
    """Return values in shared memory that they share with those before, which they begin with.

    ``None`` where they begin otherwise, there is no room, or they are no plain numbers or texts of the host.
    """
    arrays = _arrays(values)
    if arrays is None:
        return None
    fits = known is not None and all(
        len(array) <= buffer.nbytes for array, buffer in zip(arrays, known.buffers, strict=True)
    )
    if known is None or not (fits and _begin_alike(arrays, known.arrays())):
        old = _arrays(before)
        if old is None or values.num_rows <= before.num_rows or not _begin_alike(arrays, old):
            return None
        try:
            buffers = [allocate(2 * len(array)) for array in arrays]
        except errors.OutOfBudget:
            return None
        for buffer in buffers:
            buffer.freeze()
        known = _GrownValues(buffers, [0] * len(arrays))
    for buffer, used, array in zip(*known, arrays, strict=True):
        if used < len(array):
            new = buffer.region.array(buffer.offset + used, len(array) - used, writable=True)
            new[:] = array[used:]
    parts = [buffer.slice(0, len(array)) for buffer, array in zip(known.buffers, arrays, strict=True)]
    longer = make_batch(
        Batch, values.layout, values.num_rows, batch_parts(values).nodes, [None, *parts], device=values.device
    )
    longer.validated = values.validated
    return longer, known._replace(used=[max(pair) for pair in zip(known.used, map(len, arrays), strict=True)])


def _arrays(values: Batch) -> list[Any] | None:
    """Return the bytes of compact values without nulls, of one node, as arrays; ``None`` for any others."""
    layout, _, spans, _ = batch_parts(values)
    node, rows = layout.nodes[0], values.num_rows
    if len(layout.nodes) > 1 or values.dictionaries or not values.device.is_host or not rows:
        return None
    kinds, has = node.buffer_kinds, spans.table[:, 2].tolist()
    if kinds == (Kind.VALIDITY, Kind.DATA) and not node.bits % 8:
        wanted = [rows * node.width]
    elif len(kinds) == 3 and kinds[1] in _OFFSETS and has[1]:
        offsets = spans.array(1, _OFFSETS[kinds[1]])[: rows + 1]
        if offsets[0]:
            return None
        wanted = [(rows + 1) * offsets.itemsize, int(offsets[-1])]
    else:
        return None
    if has[0] or any(size > there for size, there in zip(wanted, has[1:], strict=True)):
        return None
    return [spans.array(index)[:size] for index, size in enumerate(wanted, 1)]


def _begin_alike(arrays: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether one is the beginning of the other, in each buffer, byte for byte."""
    pairs = ((one, other, min(len(one), len(other))) for one, other in zip(arrays, others, strict=True))
    return all(np.array_equal(one[:size], other[:size]) for one, other, size in pairs)
