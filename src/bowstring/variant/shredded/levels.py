"""The values of a column level by level: all that lie equally deep, with the number of the place of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.kernels.launch import launch
from bowstring.kernels.variant import shred as kernels
from bowstring.kernels.variant.encoding import OBJECT
from bowstring.kernels.variant.shredded import place_groups
from bowstring.variant.nested import CHILD, child_counts, children_at, elements, ends_of
from bowstring.variant.shredded.encode import Names
from bowstring.variant.walk import Located

if TYPE_CHECKING:
    from bowstring.variant.nested import Source

_MOST_COUNTED: Final = 1 << 22
"""Of more keys than these, the distinct ones are found by sorting."""


@dataclasses.dataclass(slots=True)
class Level:
    """The values of one level: where they lie, their metadata, and the number of the place of each."""

    located: Located
    groups: Any
    numbers: Any


class Levels:
    """The steps from one level of a column to the next, and the names of all metadata, each once.

    Names are told apart by a hash; with a random `seed`, nobody can choose two names that pass for one.
    """

    def __init__(self, source: Source, seed: int = 0) -> None:
        self._source = source
        self._device = device = source.device
        self._dictionary = dictionary = source.dictionary
        self._bases = Names(device, dictionary).bases
        self._ends = device.to_host(self._bases)
        hashes = device.xp.zeros(int(self._ends[-1]), np.uint64)
        slots = dictionary.starts, dictionary.stops, dictionary.data
        launch(kernels.hash_names, len(dictionary.marks), *slots, self._bases, seed, hashes)
        unique, self._first, numbers = device.xp.unique(hashes, return_index=True, return_inverse=True)
        self._numbers = numbers.astype(np.int32)  # of each name of each metadata, which it is
        self.count = max(len(unique), 1)

    def text(self, number: int) -> str | None:
        """Return a name; ``None`` where it is not UTF-8."""
        to_host, dictionary = self._device.to_host, self._dictionary
        place = int(to_host(self._first[number : number + 1])[0])
        group = int(np.searchsorted(self._ends, place, side="right")) - 1
        bounds = dictionary.starts, dictionary.stops
        start, stop = (int(to_host(each[group : group + 1])[0]) for each in bounds)
        try:
            return _name_of(to_host(dictionary.data[start:stop]).tobytes(), place - int(self._ends[group]))
        except UnicodeDecodeError:
            return None

    def kinds(self, level: Level, *, exact: bool = False) -> Any:
        """Return what each value is to inference; with `exact`, decimals with all their digits."""
        rows = len(level.numbers)
        kinds = self._device.xp.empty(rows, np.int32)
        launch(kernels.name_shapes, rows, self._source.data, *level.located, int(exact), kinds)
        return kinds

    def below(
        self,
        level: Level,
        kinds: Any,
        objects: Sequence[bool],
        arrays: Sequence[bool],
        keep: Callable[[Any, Any], Sequence[int]],
    ) -> tuple[Level, list[int], Any]:
        """Return the values inside the objects and the arrays of some places, the keys of the fields among them,
        and the statuses of these objects and arrays.

        A key is the place of the object times :attr:`count`, and the number of the name; `keep` says which of the
        distinct ones are taken, of which it gets the counts. Fields are numbered by their key, ascending, elements
        behind them by the place of their array.
        """
        xp = self._device.xp
        is_object, is_array = (xp.asarray(np.array(each, np.bool_)) for each in (objects, arrays))
        holders = self._chosen(level, (kinds == np.int32(kernels.OBJECT_KIND)) & is_object[level.numbers])
        fields, keys = self._fields(holders)
        kept = np.array(sorted(keep(*self.counted(keys, len(objects) * self.count))), np.int64)
        if len(kept):
            known = xp.asarray(kept)
            at = xp.minimum(xp.searchsorted(known, keys), np.int64(len(kept) - 1))
            fields.numbers = at.astype(np.int32)
            fields = self._chosen(fields, known[at] == keys)
        else:
            fields = self._chosen(fields, keys < np.int64(-1))
        lists = self._chosen(level, (kinds == np.int32(kernels.ARRAY_KIND)) & is_array[level.numbers])
        offsets, inside, groups = elements(self._source, lists.located, lists.groups, large=True)
        positions = xp.asarray((np.cumsum(arrays) - 1 + len(kept)).astype(np.int32))
        numbers = xp.zeros(len(groups), np.int32)
        launch(place_groups, len(lists.numbers), offsets[:-1], offsets[1:], positions[lists.numbers], numbers)
        statuses = xp.concatenate([holders.located.statuses, lists.located.statuses])
        parts = zip((*fields.located, fields.groups, fields.numbers), (*inside, groups, numbers), strict=True)
        places, found, groups, numbers = (xp.concatenate(each) for each in parts)
        return Level(Located(places, found), groups, numbers), kept.tolist(), statuses

    def _chosen(self, level: Level, flags: Any) -> Level:
        at = self._device.xp.flatnonzero(flags)
        located = Located(level.located.positions[at], level.located.statuses[at])
        return Level(located, level.groups[at], level.numbers[at])

    def _fields(self, level: Level) -> tuple[Level, Any]:
        """Return the fields of objects, and the key of each, -1 for one without a name."""
        xp, rows = self._device.xp, len(level.numbers)
        counts = child_counts(self._source, level.located, OBJECT)
        offsets, total = ends_of(self._source, counts, CHILD)
        located, groups = children_at(self._source, level.located, level.groups, offsets, total)
        parents, names = xp.zeros(total, np.int32), xp.empty(total, np.int32)
        launch(place_groups, rows, offsets[:-1], offsets[1:], level.numbers, parents)
        metas = level.groups, self._bases, self._numbers
        launch(kernels.list_fields, rows, self._source.data, level.located.positions, *metas, offsets, names)
        keys = xp.where(names < np.int32(0), np.int64(-1), parents * np.int64(self.count) + names)
        return Level(located, groups, names), keys

    def counted(self, keys: Any, most: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the distinct keys that are not negative, and how often each is there."""
        xp, to_host = self._device.xp, self._device.to_host
        keys = keys[keys >= np.int64(0)]
        if most > _MOST_COUNTED:
            # By `return_inverse` NumPy sorts; its hashes may abort the process at its end.
            unique, _, counts = xp.unique(keys, return_inverse=True, return_counts=True)
            return to_host(unique), to_host(counts)
        counts = to_host(xp.bincount(keys, minlength=1))
        unique = np.flatnonzero(counts)
        return unique, counts[unique]


def _name_of(metadata: bytes, number: int) -> str:
    """Return a name of metadata that are well-formed."""
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    names = 1 + width * (count + 2)
    at = 1 + width * (number + 1)
    first, last = (int.from_bytes(metadata[k : k + width], "little") for k in (at, at + width))
    return metadata[names + first : names + last].decode()
