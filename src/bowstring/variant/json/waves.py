"""How the rows of JSON texts are divided, and the launches that read and write each division.

The rows of a block share a dictionary of keys; where each row has keys of its own, it is a block. A chunk is what
one work item reads, a wave the chunks of a launch: these only bound memory, and give every thread work. A wave is
read into nodes and numbered keys; where all keys of its block are known, the nodes are measured and written.
Scratch is bounded by the nodes that a count of commas and brackets allows, 40 bytes each.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.errors import InvalidBody, LimitExceeded
from bowstring.kernels.json.keys import KEYS, LENGTH, NAME, NO_ROOM, PLAN, SPARE, START, STATE, UNKNOWN
from bowstring.kernels.json.order import order_keys, write_keys
from bowstring.kernels.json.read import count_nodes, read_rows
from bowstring.kernels.json.tree import BODY, HEAD, INTEGER, KEEP_LAST, NODE, RANGE, READ, SPARK, UNDECIDED
from bowstring.kernels.json.write import measure_rows, write_rows
from bowstring.kernels.launch import launch
from bowstring.limits import Limits
from bowstring.memory.arrays import distinct
from bowstring.variant.column import BLOCK_ROWS
from bowstring.variant.json.source import Texts

# Enough text for a thread to forget what starting it took, and not so much that one would be left alone at the end.
_CHUNK_BYTES: Final = 1 << 19
_CHUNK_BYTES_ON_DEVICE: Final = 1 << 14
# A wave of few nodes stays in the caches; a block of more than the most is read twice rather than kept.
_PREFERRED_NODES: Final = 1 << 21
_MOST_NODES: Final = 1 << 24

Wave = slice
"""Chunks that are read by one launch."""
Ranks = np.ndarray[Any, np.dtype[np.uint32]]
"""Of each key of a wave, its rank among all keys of its block."""

# Tables that hold the keys of nearly all columns; where they are too small, they become as large as can be needed.
_TABLE: Final = 2048
_POOL: Final = 1 << 15
_WORDS: Final = int(NODE)
_KIND: Final = 0xFF
_LENGTH: Final = np.uint64((1 << 63) - 1)
_DOUBLE: Final = int(INTEGER) | 7 << 2 << 8
_LITERAL: Final = re.compile(rb"[-+.0-9eE]*")
_FIRST_LOOK: Final = 64
_CHANGED: Final = "JSON text has changed while it was read"
_Array = np.ndarray[Any, Any]
_LARGEST: Final = (1 << 31) - 1
# Rows whose keys nearly always are of one row alone do not share a dictionary.
_SAMPLE_ROWS: Final = 8
_MOST_SAMPLED: Final = 64
_SAMPLED: Final = 16  # of so many rows one
_MANY_KEYS: Final = 4096
_KEYS_OF_A_ROW: Final = 8
_TIMES_A_KEY: Final = 4  # that comes more often in the sample is shared


class Keys(NamedTuple):
    """Keys as some chunks have numbered them, each for itself."""

    data: _Array
    starts: _Array  # of each key, in `data`
    lengths: _Array
    counts: _Array  # of each chunk


@dataclasses.dataclass(frozen=True, slots=True)
class Chunks:
    """Runs of rows that are read by one work item each, in the order of the rows: arrays of int64, shape
    (chunks,).
    """

    firsts: _Array  # rows
    lasts: _Array  # rows, exclusive
    blocks: _Array
    nbytes: _Array  # of the texts
    nodes: _Array  # bounds of what comes out
    keys: _Array


def chunks_of(texts: Texts, limits: Limits) -> Chunks:
    """Divide rows into chunks, none of which is in two blocks: one for each row, where rows share few keys."""
    rows = len(texts.starts)
    # A row costs something even where it is empty.
    work = np.concatenate([np.zeros(1, np.int64), np.cumsum(texts.stops - texts.starts + 1)])
    most = _CHUNK_BYTES if texts.device.is_host else _CHUNK_BYTES_ON_DEVICE
    bounds: list[Any] = []
    for first in range(0, rows, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, rows)
        count = -(-int(work[last] - work[first]) // most)
        targets = work[first] + (work[last] - work[first]) * np.arange(count) // count
        bounds.append(np.searchsorted(work[first:last], targets) + first)
    ends = np.array(distinct(np.concatenate([np.zeros(0, np.int64), *bounds, np.array([rows])])), np.int64)
    counts = _counts(texts)
    if int(counts[1].sum()) > max(_MANY_KEYS, _KEYS_OF_A_ROW * rows) and _share_few(texts, limits):
        return _chunks(texts, np.arange(rows + 1), 1, counts)
    return _chunks(texts, ends, BLOCK_ROWS, counts)


def _share_few(texts: Texts, limits: Limits) -> bool:
    """Return whether rows from all of a column that have text share few keys; not if none of them can be read."""
    read = np.flatnonzero(texts.statuses == READ)
    count = min(len(read), max(_SAMPLE_ROWS, min(len(read) // _SAMPLED, _MOST_SAMPLED)))
    some = read[np.arange(count) * len(read) // count]
    starts, stops, statuses = texts.starts[some], texts.stops[some], texts.statuses[some]
    sample = dataclasses.replace(texts, starts=starts, stops=stops, statuses=statuses)
    chunks = _chunks(sample, np.arange(count + 1), count, _counts(sample))
    found = Waves(sample, chunks, spark=True, last=True, limits=limits).read(slice(0, count))
    _, ranks = join_keys([found.keys], np.array([0, count]))
    nodes = int(texts.device.to_host(found.counts).sum())
    return 0 < nodes <= _TIMES_A_KEY * (int(ranks.max(initial=0)) + 1)


def _counts(texts: Texts) -> tuple[_Array, _Array]:
    """Return how many nodes and how many keys can come out of each row."""
    device, rows = texts.device, len(texts.starts)
    nodes, keys = (device.xp.zeros(rows, np.int64) for _ in range(2))
    launch(count_nodes, rows, texts.data, *map(device.from_host, (texts.starts, texts.stops)), nodes, keys)
    return device.to_host(nodes), device.to_host(keys)


def _chunks(texts: Texts, bounds: _Array, block_rows: int, counts: tuple[_Array, _Array]) -> Chunks:
    """Return chunks between some rows, each with what can come out of it."""
    firsts = bounds[:-1]
    sizes = texts.stops - texts.starts, *counts
    nbytes, nodes, keys = (np.add.reduceat(each, firsts) if len(firsts) else firsts for each in sizes)
    return Chunks(firsts, bounds[1:], firsts // block_rows, nbytes, nodes, keys)


def waves_of(chunks: Chunks) -> Iterator[list[Wave]]:
    """Yield the waves of one or of several whole blocks: one, or, for a block of too many nodes, several."""
    bounds = np.flatnonzero(np.diff(chunks.blocks, prepend=-1, append=-1))
    sizes = np.add.reduceat(chunks.nodes, bounds[:-1]).tolist() if len(chunks.nodes) else []
    for begin, end in _runs(sizes, _PREFERRED_NODES):
        first, last = int(bounds[begin]), int(bounds[end])
        if end == begin + 1 and sizes[begin] > _MOST_NODES:
            runs = _runs(chunks.nodes[first:last].tolist(), _MOST_NODES)
            yield [slice(first + start, first + stop) for start, stop in runs]
        else:
            yield [slice(first, last)]


def _runs(sizes: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of runs of items that together have at most this size, or that are a single one."""
    begin = held = 0
    for item, size in enumerate(sizes):
        if begin < item and held + size > most:
            yield begin, item
            begin, held = item, 0
        held += size
    if sizes:
        yield begin, len(sizes)


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """A wave of rows, read."""

    rows: slice
    # For each row, on the host: what became of it, and at which byte.
    statuses: _Array
    positions: _Array
    # The keys of all chunks; and how many rows each chunk has.
    keys: Keys
    lengths: _Array
    # For each row, on the device, as uint64: its first node, and how many nodes it has.
    firsts: Any
    counts: Any


class Waves:
    """The kernels over the waves of some texts, and their scratch, which each wave uses again."""

    def __init__(self, texts: Texts, chunks: Chunks, *, spark: bool, last: bool, limits: Limits) -> None:
        self._texts = texts
        self._chunks = chunks
        self._spark = spark
        self._rules = spark * int(SPARK) | last * int(KEEP_LAST)
        self._limits = limits
        self._seed = secrets.randbits(64)
        self._large = False
        self._nodes = self._children = texts.device.xp.empty(0, np.uint64)

    def read(self, wave: Wave) -> Read:
        """Read the rows of a wave; what was read before is lost."""
        read = self._try(wave)
        if read is None:
            self._large = True
            read = self._try(wave)
        if read is None:
            raise InvalidBody(_CHANGED)
        return read

    def _try(self, wave: Wave) -> Read | None:
        """Read a wave, or return None where a table was too small."""
        texts, device, xp = self._texts, self._texts.device, self._texts.device.xp
        plan = self._plan(wave)
        rows = slice(int(self._chunks.firsts[wave.start]), int(self._chunks.lasts[wave.stop - 1]))
        nodes = _end(plan, 2)
        if len(self._children) < nodes:
            self._nodes = self._children = None
            self._nodes, self._children = xp.empty(nodes * int(NODE), np.uint64), xp.empty(nodes, np.uint64)
        statuses = device.from_host(texts.statuses[rows].copy())
        positions = xp.zeros(len(statuses), np.int64)
        firsts, counts = xp.zeros(len(statuses), np.uint64), xp.zeros(len(statuses), np.uint64)
        table = xp.zeros(_end(plan, 4), np.uint64)
        names = xp.empty(len(table) // 2 * int(NAME), np.uint64)
        pool = xp.empty(_end(plan, 6), np.uint8)
        states = xp.zeros(len(plan) * int(STATE), np.uint64)
        slots = map(device.from_host, (texts.starts[rows], texts.stops[rows], plan.reshape(-1)))
        rules = self._rules, self._limits.depth, self._seed
        found = statuses, positions, firsts, counts, self._nodes, self._children
        launch(read_rows, len(plan), texts.data, *slots, *rules, *found, table, names, pool, states)
        results = device.to_host(states).reshape(-1, int(STATE))
        if results[:, int(NO_ROOM)].any():
            return None
        sizes = results[:, int(KEYS)].astype(np.int64)
        # How far the keys of each chunk lie, in its part of the names, from where they come to be.
        moved = np.repeat((plan[:, 4] // 2).astype(np.int64) - sizes.cumsum() + sizes, sizes)
        known = device.to_host(names).reshape(-1, int(NAME))[np.arange(len(moved)) + moved]
        keys = Keys(device.to_host(pool), known[:, int(START)], known[:, int(LENGTH)] & _LENGTH, sizes)
        lengths = (plan[:, 1] - plan[:, 0]).astype(np.int64)
        read = Read(rows, device.to_host(statuses), device.to_host(positions), keys, lengths, firsts, counts)
        self._decide(read, np.flatnonzero(results[:, int(UNKNOWN)]))
        return read

    def read_again(self, wave: Wave, before: Read) -> Read:
        """Read a wave that was read before, whose keys have been ranked since."""
        read = self.read(wave)
        # Kernels look ranks up by the numbers of keys: these must be the same.
        if not (
            np.array_equal(read.keys.starts, before.keys.starts)
            and np.array_equal(read.keys.lengths, before.keys.lengths)
            and all(map(np.array_equal, _texts(read.keys), _texts(before.keys)))
        ):
            raise InvalidBody(_CHANGED)
        return read

    def _plan(self, wave: Wave) -> _Array:
        """Return the plan of each chunk: its rows, counted from the first of the wave, and its scratch."""
        chunks = self._chunks
        nodes, first = chunks.nodes[wave], chunks.firsts[wave.start]
        # A table must be half empty.
        tables = 1 << np.ceil(np.log2(2 * chunks.keys[wave] + 4)).astype(np.int64)
        pools = chunks.nbytes[wave] + int(SPARE)
        if not self._large:
            tables, pools = np.minimum(tables, _TABLE), np.minimum(pools, _POOL)
        plan = np.zeros((len(nodes), int(PLAN)), np.uint64)
        plan[:, 0], plan[:, 1] = chunks.firsts[wave] - first, chunks.lasts[wave] - first
        for column, sizes in ((2, nodes), (4, tables), (6, pools)):
            plan[:, column] = np.cumsum(sizes) - sizes
            plan[:, column + 1] = sizes
        return plan

    def measure(self, read: Read, ranks: Ranks) -> Any:
        """Return how many bytes each row takes, given the rank of each key of each chunk of its wave."""
        device = self._texts.device
        rows = read.rows.stop - read.rows.start
        counts = read.keys.counts
        bases = np.repeat((np.cumsum(counts) - counts).astype(np.uint64), read.lengths)
        sizes = device.xp.empty(rows, np.int64)
        keys = device.from_host(bases), device.from_host(ranks)
        launch(measure_rows, rows, read.firsts, read.counts, *keys, self._nodes, self._children, sizes)
        return sizes

    def write(self, read: Read, offsets: Any, out: Any) -> None:
        texts = self._texts
        stops = texts.device.from_host(texts.stops[read.rows])
        scratch = (read.firsts, read.counts, offsets, self._nodes, self._children)
        launch(write_rows, read.rows.stop - read.rows.start, texts.data, stops, *scratch, out)

    def _decide(self, read: Read, chunks: _Array) -> None:
        """Let Python's float find the doubles of some chunks that need more digits than kernels look at."""
        if not len(chunks):
            return
        device, texts = self._texts.device, self._texts
        data = device.to_host(texts.data)
        firsts, counts = device.to_host(read.firsts), device.to_host(read.counts)
        ends = np.cumsum(read.lengths)
        for chunk in chunks:
            begin = int(firsts[ends[chunk] - read.lengths[chunk]])
            end = int(firsts[ends[chunk] - 1] + counts[ends[chunk] - 1])
            scratch = slice(begin * _WORDS, end * _WORDS)
            nodes = device.to_host(self._nodes[scratch]).reshape(-1, _WORDS)
            undecided = np.flatnonzero(nodes[:, int(HEAD)] & _KIND == UNDECIDED)
            rows = np.searchsorted(firsts, (begin + undecided).astype(np.uint64), side="right") - 1
            for node, row in zip(undecided.tolist(), rows.tolist(), strict=True):
                start = int(nodes[node, int(BODY)])
                value = _number(data, start, int(texts.stops[read.rows.start + row]))
                if math.isinf(value) and not self._spark:
                    read.statuses[row] = RANGE
                    read.positions[row] = start - texts.starts[read.rows.start + row]
                    read.counts[row : row + 1] = device.from_host(np.zeros(1, np.uint64))
                nodes[node, int(HEAD)] = _DOUBLE
                nodes[node, int(BODY)] = np.float64(value).view(np.uint64)
            self._nodes[scratch] = device.from_host(nodes.reshape(-1))


def _number(data: np.ndarray[Any, np.dtype[np.uint8]], start: int, stop: int) -> float:
    """Return the number that begins at a position of the text."""
    size = _FIRST_LOOK
    while True:
        literal = _LITERAL.match(data[start : min(start + size, stop)].tobytes())
        assert literal is not None
        if literal.end() < size or start + size >= stop:
            return float(literal.group())
        size *= 2


def _end(plan: _Array, column: int) -> int:
    return int(plan[-1, column] + plan[-1, column + 1])


def _texts(keys: Keys) -> Iterator[_Array]:
    """Yield the bytes of the keys of each chunk, which lie one behind the other."""
    ends = keys.counts.cumsum().tolist()
    for first, last in itertools.pairwise([0, *ends]):
        if first < last:
            yield keys.data[int(keys.starts[first]) : int(keys.starts[last - 1] + keys.lengths[last - 1])]


def join_keys(keys: Sequence[Keys], blocks: _Array) -> tuple[list[bytes], Ranks]:
    """Return the metadata of the distinct keys of each block, and the rank of each key in its block.

    Block k has the chunks from `blocks[k]` on to those of the next.
    """
    begins = np.cumsum([0, *(len(each.data) for each in keys)], dtype=np.uint64)
    data = keys[0].data if len(keys) == 1 else np.concatenate([each.data for each in keys])
    starts = np.concatenate([each.starts + begin for each, begin in zip(keys, begins[:-1], strict=True)])
    lengths = np.concatenate([each.lengths for each in keys])
    counts = np.concatenate([np.zeros(1, np.int64), *(each.counts for each in keys)])
    bounds = counts.cumsum()[blocks]
    words, ranks = np.empty(len(starts), np.uint64), np.empty(len(starts), np.uint32)
    order = np.empty(2 * len(starts), np.uint32)
    distinct_keys, sizes = np.empty(len(bounds) - 1, np.int64), np.empty(len(bounds) - 1, np.int64)
    launch(order_keys, len(sizes), bounds, starts, lengths, data, words, order, ranks, distinct_keys, sizes)
    largest = int(sizes.max(initial=0))
    if largest > _LARGEST:
        raise LimitExceeded("the keys of a block of rows", expected="at most 2 GiB", found=largest)
    offsets = np.concatenate([np.zeros(1, np.int64), sizes.cumsum()])
    out = np.empty(int(offsets[-1]), np.uint8)
    launch(write_keys, len(sizes), bounds, starts, lengths, data, order, distinct_keys, offsets, out)
    written = out.tobytes()
    return [written[start:stop] for start, stop in itertools.pairwise(offsets.tolist())], ranks
