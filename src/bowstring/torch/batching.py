"""Rows in another order, and in batches of another size: dicts of arrays in, dicts of arrays out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

Arrays = dict[str, Any]
"""Arrays by the names of their columns, equally long."""


def shuffled(batches: Iterable[Arrays], size: int, random: np.random.Generator) -> Iterator[Arrays]:
    """Yield all rows (host memory) once, in another order: each waits in a buffer until chance takes it out.

    A buffer of `size` rows shuffles perfectly if it holds all of them; else only nearby rows.
    """
    pool: Arrays = {}
    for batch in batches:
        rows = _rows(batch)
        missing = size - _rows(pool) if pool else size
        if missing > 0:
            taken = {name: array[:missing] for name, array in batch.items()}
            pool = {
                name: np.concatenate([pool[name], part]) if pool else np.array(part)
                for name, part in taken.items()
            }
            batch = {name: array[missing:] for name, array in batch.items()}  # noqa: PLW2901  what is left of it
            rows -= min(rows, missing)
        if rows:
            yield _exchanged(pool, batch, random)
    if pool:
        order = random.permutation(_rows(pool))
        yield {name: array[order] for name, array in pool.items()}


def _exchanged(held: Arrays, batch: Arrays, random: np.random.Generator) -> Arrays:
    """Return as many rows as a batch has, of it and of those that are held; the rest is held."""
    size, rows = _rows(held), _rows(batch)
    chosen = random.choice(size + rows, rows, replace=False)
    old = chosen[chosen < size]
    new = np.zeros(rows, bool)
    new[chosen[chosen >= size] - size] = True
    place = np.empty(rows, np.int64)
    place[np.flatnonzero(chosen < size)] = np.arange(len(old))
    place[np.flatnonzero(chosen >= size)] = len(old) + np.arange(rows - len(old))
    given = {}
    for name, array in batch.items():
        out = np.concatenate([held[name][old], array[chosen[chosen >= size] - size]])
        held[name][old] = array[~new]
        given[name] = out[place]
    return given


def rebatched(batches: Iterable[Arrays], size: int, *, drop_last: bool) -> Iterator[Arrays]:
    """Yield the same rows in batches of `size` rows; the last one may have fewer, unless `drop_last`.

    A batch that lies within one of those that come is a view.
    """
    waiting: list[Arrays] = []
    missing = size
    for batch in batches:
        rows, begin = _rows(batch), 0
        while rows - begin >= missing:
            waiting.append(_slice(batch, begin, begin + missing))
            yield _joined(waiting)
            begin += missing
            waiting, missing = [], size
        if begin < rows:
            waiting.append(_slice(batch, begin, rows))
            missing -= rows - begin
    if waiting and not drop_last:
        yield _joined(waiting)


def _rows(batch: Arrays) -> int:
    return len(next(iter(batch.values())))


def _slice(batch: Arrays, begin: int, end: int) -> Arrays:
    return {name: array[begin:end] for name, array in batch.items()}


def _joined(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(array, np.ndarray) for array in parts[0].values()):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    import torch  # which computes where those of a GPU lie

    return {name: torch.cat([torch.from_dlpack(part[name]) for part in parts]) for name in parts[0]}
