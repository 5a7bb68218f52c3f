"""The values of a column level by level: all that lie equally deep, with the number of the place of each."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.kernels.launch import launch
from bowstring.kernels.variant import shred as kernels
from bowstring.kernels.variant.encoding import OBJECT
from bowstring.kernels.variant.shredded import place_groups
from bowstring.kernels.variant.slots import ANY_COUNT, count_children
from bowstring.variant.nested import CHILD, children_at, elements, ends_of
from bowstring.variant.shredded.encode import Names
from bowstring.variant.walk import Located

if TYPE_CHECKING:
    from bowstring.memory import Device
    from bowstring.variant.column import MetadataDictionary
    from bowstring.variant.nested import Source

_MOST_COUNTED: Final = 1 << 22
"""Of more keys than these, the distinct ones are found by sorting."""


@dataclasses.dataclass(slots=True)
class Level:
    """The values of one level: where they lie, their metadata, and the number of the place of each."""

    located: Located
    groups: Any
    numbers: Any

    def joined(self, other: Level, xp: Any) -> Level:
        """Return these values, and others behind them."""
        parts = zip(
            (*self.located, self.groups, self.numbers),
            (*other.located, other.groups, other.numbers),
            strict=True,
        )
        positions, statuses, groups, numbers = (xp.concatenate(each) for each in parts)
        return Level(Located(positions, statuses), groups, numbers)


class Levels:
    """The steps from one level of a column to the next; `seed` as of :class:`Texts`."""

    def __init__(self, source: Source, seed: int = 0) -> None:
        self._source = source
        self._device = source.device
        self.texts = Texts(source.device, source.dictionary, seed)

    def chosen(self, level: Level, flags: Any) -> Level:
        """Return some of the values of a level."""
        at = self._device.xp.flatnonzero(flags)
        located = Located(level.located.positions[at], level.located.statuses[at])
        return Level(located, level.groups[at], level.numbers[at])

    def kinds(self, level: Level, *, exact: bool = False) -> Any:
        """Return what each value is to inference; with `exact`, decimals with all their digits."""
        rows = len(level.numbers)
        kinds = self._device.xp.empty(rows, np.int32)
        launch(kernels.name_shapes, rows, self._source.data, *level.located, int(exact), kinds)
        return kinds

    def elements(self, level: Level, positions: Any) -> Level:
        """Return the elements of arrays: `positions` say of each place of theirs the place of its elements."""
        offsets, inside, groups = elements(self._source, level.located, level.groups, size=None, large=True)
        numbers = self._device.xp.zeros(len(groups), np.int32)
        starts, stops = offsets[:-1], offsets[1:]
        launch(place_groups, len(starts), starts, stops, positions[level.numbers], numbers)
        return Level(inside, groups, numbers)

    def members(self, level: Level) -> tuple[Level, Any]:
        """Return the fields of objects, by the numbers of their names, and the place of the object of each."""
        xp, texts, rows = self._device.xp, self.texts, len(level.numbers)
        counts = xp.empty(rows, np.int64)
        data, (places, statuses) = self._source.data, level.located
        launch(count_children, rows, data, places, OBJECT, int(ANY_COUNT), statuses, counts)
        offsets, total = ends_of(self._source, counts, CHILD)
        found, groups = children_at(self._source, level.located, level.groups, offsets, total)
        parents = xp.zeros(total, np.int32)
        launch(place_groups, rows, offsets[:-1], offsets[1:], level.numbers, parents)
        names = xp.empty(total, np.int32)
        metas = level.groups, texts.bases, texts.numbers
        launch(kernels.list_fields, rows, data, places, *metas, offsets, names)
        return Level(found, groups, names), parents

    def renumbered(self, level: Level, keys: Any, chosen: np.ndarray[Any, Any]) -> Level:
        """Return the values with one of some ascending keys, by the place of their key among these."""
        xp = self._device.xp
        if not len(chosen):
            return self.chosen(level, keys < np.int64(-1))
        known = xp.asarray(chosen)
        at = xp.minimum(xp.searchsorted(known, keys), np.int64(len(chosen) - 1))
        level.numbers = at.astype(np.int32)
        return self.chosen(level, known[at] == keys)

    def counted(self, keys: Any, most: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the distinct keys and how often each is there."""
        xp, to_host = self._device.xp, self._device.to_host
        if most > _MOST_COUNTED:
            # By `return_inverse` NumPy sorts; its hashes may abort the process at its end.
            unique, _, counts = xp.unique(keys, return_inverse=True, return_counts=True)
            return to_host(unique), to_host(counts)
        counts = to_host(xp.bincount(keys[keys >= np.int64(0)], minlength=1))
        unique = np.flatnonzero(counts)
        return unique, counts[unique]


class Texts:
    """The names of all metadata, each once: `numbers` say of each name of each metadata which it is.

    Names are told apart by a hash; with a random `seed`, nobody can choose two names that pass for one.
    """

    def __init__(self, device: Device, dictionary: MetadataDictionary, seed: int = 0) -> None:
        self._device = device
        self._dictionary = dictionary
        known = Names(device, dictionary)
        xp, self.bases = device.xp, known.bases
        self._ends = device.to_host(self.bases)
        hashes = xp.zeros(int(self._ends[-1]), np.uint64)
        slots = dictionary.starts, dictionary.stops, dictionary.data
        launch(kernels.hash_names, len(dictionary.marks), *slots, self.bases, seed, hashes)
        unique, first, numbers = xp.unique(hashes, return_index=True, return_inverse=True)
        self.numbers = numbers.astype(np.int32)
        self.count = len(unique)
        self._first = first

    def text(self, number: int) -> str | None:
        """Return a name; ``None`` where it is not UTF-8."""
        to_host = self._device.to_host
        place = int(to_host(self._first[number : number + 1])[0])
        group = int(np.searchsorted(self._ends, place, side="right")) - 1
        start, stop = (
            int(to_host(each[group : group + 1])[0])
            for each in (self._dictionary.starts, self._dictionary.stops)
        )
        try:
            return _name_of(
                to_host(self._dictionary.data[start:stop]).tobytes(), place - int(self._ends[group])
            )
        except UnicodeDecodeError:
            return None


def _name_of(metadata: bytes, number: int) -> str:
    """Return a name of metadata that are well-formed."""
    width = (metadata[0] >> 6) + 1
    count = int.from_bytes(metadata[1 : 1 + width], "little")
    names = 1 + width * (count + 2)
    at = 1 + width * (number + 1)
    first, last = (int.from_bytes(metadata[k : k + width], "little") for k in (at, at + width))
    return metadata[names + first : names + last].decode()
