"""How the rows of JSON texts are divided: blocks that share a dictionary, parts that a thread reads, and waves.

Blocks are what the result shows; parts and waves are not: they only bound memory, and give every thread work.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from bowstring.kernels.json.names import PLAN
from bowstring.kernels.json.read import count_nodes
from bowstring.kernels.launch import launch
from bowstring.memory.distinct import distinct
from bowstring.variant.build import BLOCK_ROWS
from bowstring.variant.json.source import Texts

__all__ = ["Parts", "Wave", "parts_of", "waves_of"]

# Enough text for a thread to forget what starting it took, and not so much that one would be left alone at the end.
_PART_BYTES: Final = 1 << 19
_PART_BYTES_ON_DEVICE: Final = 1 << 14
# A wave of few nodes stays in the caches; a block of more than the most is read twice rather than kept.
_PREFERRED_NODES: Final = 1 << 21
_MOST_NODES: Final = 1 << 24


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """Runs of rows that are read by one work item each, in the order of the rows.

    Attributes
    ----------
    firsts, lasts : ndarray of int64, shape (parts,)
        The first row of each, and the one behind its last.
    blocks : ndarray of int64, shape (parts,)
        The block that each is in.
    nbytes : ndarray of int64, shape (parts,)
        Bytes of its texts.
    nodes : ndarray of int64, shape (parts,)
        At most so many nodes come out of it.
    keys : ndarray of int64, shape (parts,)
        And at most so many keys.
    """

    firsts: np.ndarray[Any, np.dtype[np.int64]]
    lasts: np.ndarray[Any, np.dtype[np.int64]]
    blocks: np.ndarray[Any, np.dtype[np.int64]]
    nbytes: np.ndarray[Any, np.dtype[np.int64]]
    nodes: np.ndarray[Any, np.dtype[np.int64]]
    keys: np.ndarray[Any, np.dtype[np.int64]]


@dataclasses.dataclass(frozen=True, slots=True)
class Wave:
    """Parts that are read at once: those from `first` on and before `last`."""

    first: int
    last: int


def parts_of(texts: Texts) -> Parts:
    """Divide rows into parts, none of which is in two blocks."""
    rows = len(texts.starts)
    # A row costs something even where it is empty.
    work = np.concatenate([np.zeros(1, np.int64), np.cumsum(texts.stops - texts.starts + 1)])
    most = _PART_BYTES if texts.device.is_host else _PART_BYTES_ON_DEVICE
    bounds: list[Any] = []
    for first in range(0, rows, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, rows)
        count = -(-int(work[last] - work[first]) // most)
        targets = work[first] + (work[last] - work[first]) * np.arange(count) // count
        bounds.append(np.searchsorted(work[first:last], targets) + first)
    firsts = np.array(distinct(np.concatenate([np.zeros(0, np.int64), *bounds])), np.int64)
    lasts = np.append(firsts[1:], rows)[: len(firsts)]
    nbytes = work[lasts] - work[firsts] - (lasts - firsts)
    plan = np.zeros((len(firsts), int(PLAN)), np.uint64)
    plan[:, 0], plan[:, 1] = firsts, lasts
    device = texts.device
    nodes, keys = (device.xp.zeros(len(firsts), np.int64) for _ in range(2))
    starts, stops = device.from_host(texts.starts), device.from_host(texts.stops)
    slots = starts, stops, device.from_host(plan.reshape(-1))
    launch(count_nodes, len(firsts), texts.data, *slots, nodes, keys)
    return Parts(firsts, lasts, firsts // BLOCK_ROWS, nbytes, device.to_host(nodes), device.to_host(keys))


def waves_of(parts: Parts) -> Iterator[list[Wave]]:
    """Yield the waves of one or of several whole blocks: one, or, for a block of too many nodes, several."""
    begin = 0
    held = 0
    for first, last in _runs(parts.blocks):
        size = int(parts.nodes[first:last].sum())
        if begin < first and held + size > _PREFERRED_NODES:
            yield [Wave(begin, first)]
            begin, held = first, 0
        if size > _MOST_NODES:
            yield [Wave(*each) for each in _pieces(parts, first, last)]
            begin, held = last, 0
        else:
            held += size
    if begin < len(parts.blocks):
        yield [Wave(begin, len(parts.blocks))]


def _runs(blocks: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    bounds = np.flatnonzero(np.diff(blocks, prepend=-1, append=-1)).tolist()
    return itertools.pairwise(bounds)


def _pieces(parts: Parts, first: int, last: int) -> Iterator[tuple[int, int]]:
    begin, held = first, 0
    for part in range(first, last):
        if begin < part and held + int(parts.nodes[part]) > _MOST_NODES:
            yield begin, part
            begin, held = part, 0
        held += int(parts.nodes[part])
    yield begin, last
