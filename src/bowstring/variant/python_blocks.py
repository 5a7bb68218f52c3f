"""Blocks of plain Python rows, which kernels encode from what ``marshal`` writes of them."""

from __future__ import annotations

import marshal
import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.kernels.json.format import NODE
from bowstring.kernels.json.names import KEYS, LENGTH, NAME, NO_ROOM, POOL_END, START, STATE
from bowstring.kernels.json.write import measure_rows, write_rows
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.read_objects import (
    BYTES,
    ENCODED,
    KEYS_FULL,
    NODES_FULL,
    REFUSED,
    read_objects,
)
from bowstring.variant.json.waves import Keys, join_keys

_VERSION: Final = 4
"""Of what ``marshal`` writes: the one that names objects that occur again, and that every Python since 3.4 has."""
_LONGEST: Final = (1 << 32) - 1
# What most rows need. Memory that is not written takes none.
_NODES: Final = 1 << 15
_TABLE: Final = 512
_POOL: Final = 1 << 13
_MOST_SHARED: Final = 1 << 20
"""Nodes of a list in which containers occur again: else Python copies them, within its bounds."""
_Array = np.ndarray[Any, Any]


def _written(rows: Sequence[Any]) -> bytes:
    """Return what ``marshal`` would write of rows that are plain, however deep they are nested."""
    out: list[bytes] = []
    end = object()
    work: list[Any] = [rows]
    while work:
        thing = work.pop()
        if thing is end:
            out.append(b"0")
        elif type(thing) is dict:
            out.append(b"{")
            work.append(end)
            for key, child in reversed(thing.items()):
                work += child, key
        elif type(thing) is list:
            out.append(b"[" + len(thing).to_bytes(4, "little"))
            work += reversed(thing)
        else:
            out.append(marshal.dumps(thing, _VERSION))
    return b"".join(out)


class _Chunk(NamedTuple):
    """Rows that were read together."""

    data: _Array
    firsts: _Array
    counts: _Array
    nodes: _Array
    keys: Keys


class Block:
    """Rows that share a dictionary of names. `nbytes` counts values, a byte for the head of each container;
    `nodes` takes 32 bytes each until the block is finished.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._chunks: list[_Chunk] = []
        self._seed = secrets.randbits(64)
        self._nodes, self._slots, self._pool = _NODES, _TABLE, _POOL
        self._refs = np.empty(0, np.uint64)
        self.rows = self.nbytes = self.nodes = 0

    def take(self, rows: Sequence[Any], most: int, *, encoded: bool = False) -> bool:
        """Add rows; return False, and add none, where there is something among them that is not plain, or `nbytes`
        would be more than `most`. Bytes are values of their own if they are `encoded`.
        """
        try:
            stream = marshal.dumps(list(rows), _VERSION)
        except ValueError:  # of another type, or nested deeper than it goes
            if not encoded:
                return False
            stream = _written(rows)
        if len(stream) > _LONGEST:
            return False
        data = np.frombuffer(stream, np.uint8)
        firsts, counts = np.empty(len(rows), np.uint64), np.zeros(len(rows), np.uint64)
        if len(self._refs) < len(data):
            self._refs = np.empty(len(data), np.uint64)  # two words for each object, of two bytes at least
        while True:
            nodes = np.empty(self._nodes * int(NODE), np.uint64)
            table = np.zeros(self._slots, np.uint64)
            names = np.empty(self._slots // 2 * int(NAME), np.uint64)
            pool = np.empty(self._pool, np.uint8)
            states = np.zeros(int(STATE), np.uint64)
            plan = np.array([0, 0, 0, self._nodes, 0, self._slots, 0, self._pool], np.uint64)
            rule = int(ENCODED) if encoded else 0
            scratch = self._refs, nodes, table, names, pool, states
            launch(read_objects, 1, data, plan, rule, self._depth, self._seed, firsts, counts, *scratch)
            if states[NO_ROOM] == KEYS_FULL:
                self._slots, self._pool = self._slots * 4, self._pool * 4
            elif states[NO_ROOM] == NODES_FULL:
                # None takes less than a byte; more than these are containers that occur again, in each other.
                if self._nodes > min(most, max(_MOST_SHARED, len(data))):
                    self._nodes = _NODES
                    return False
                self._nodes *= 2
            else:
                break
        nbytes = self.nbytes + int(states[BYTES])
        if states[REFUSED] or nbytes > most:
            return False
        found = names.reshape(-1, int(NAME))[: int(states[KEYS])]
        text = pool[: int(states[POOL_END])].copy()
        keys = Keys(text, found[:, int(START)].copy(), found[:, int(LENGTH)].copy(), np.array([len(found)]))
        self._chunks.append(_Chunk(data, firsts, counts, nodes, keys))
        used = int(firsts[-1] + counts[-1])
        self._nodes = max(_NODES, min(self._nodes, 2 * used))  # rows of a later list may be smaller
        self.nodes += used
        self.rows += len(rows)
        self.nbytes = nbytes
        return True

    def finish(self) -> tuple[bytes, _Array, _Array, list[_Array]]:
        """Return the metadata of the block, the size of each row, which rows are not null, and their values."""
        [metadata], ranks = join_keys(
            [chunk.keys for chunk in self._chunks], np.array([0, len(self._chunks)])
        )
        ends = np.cumsum([len(chunk.keys.starts) for chunk in self._chunks])
        sizes, values = [], []
        for chunk, ranked in zip(self._chunks, np.split(ranks, ends[:-1]), strict=True):
            rows = len(chunk.counts)
            children = np.empty(len(chunk.nodes) // int(NODE), np.uint64)
            measured = np.empty(rows, np.int64)
            read = chunk.firsts, chunk.counts
            bases = np.zeros(rows, np.uint64)
            launch(measure_rows, rows, *read, bases, ranked, chunk.nodes, children, measured)
            offsets = np.concatenate([np.zeros(1, np.int64), measured.cumsum()])
            out = np.empty(int(offsets[-1]), np.uint8)
            if len(out):
                # The text has no escapes: where its rows end is not looked at.
                launch(
                    write_rows,
                    rows,
                    chunk.data,
                    bases.view(np.int64),
                    *read,
                    offsets,
                    chunk.nodes,
                    children,
                    out,
                )
            sizes.append(measured)
            values.append(out)
        valid = np.concatenate([chunk.counts > 0 for chunk in self._chunks])
        return metadata, np.concatenate(sizes), valid, values
