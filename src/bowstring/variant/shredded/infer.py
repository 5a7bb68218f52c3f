"""Shredding schemas out of columns: which fields are frequent, and what kind most of their values are.

Levels are looked at one after the other, and all values of a level at once, on the device of the column: the host
gets counts.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.kernels.variant import shred as kernels
from bowstring.variant.column import VariantType
from bowstring.variant.shredded.levels import Level, Levels
from bowstring.variant.status import Status
from bowstring.variant.walk import Located

if TYPE_CHECKING:
    from bowstring.variant.nested import Source

MOST_COLUMNS: Final = 300
"""How many columns are inferred, unless told otherwise: as many as Spark's."""

_SAMPLE: Final = 16_384
_RARE: Final = 10
"""A field is a column where one of so many has it."""
_MOST_LEVELS: Final = 24
"""Each level of a document is two of Arrow's, of which a batch has 64."""
_MOST_NODES: Final = 1_000
"""Columns of one level, whatever the bound is: counts are tables of them."""
_MOST_DIGITS: Final = 38
_LONG_DIGITS: Final = 18
_INTEGERS: Final = {3: 3, 4: 5, 5: 10, 6: 19}
"""The digits of whole numbers of 1, 2, 4 and 8 bytes."""
_EXACT_NUMBERS: Final = 3

_NULL, _ABSENT = int(kernels.NULL_KIND), int(kernels.ABSENT_KIND)
_OBJECT, _ARRAY, _OTHER = int(kernels.OBJECT_KIND), int(kernels.ARRAY_KIND), int(kernels.OTHER_KIND)
_EXACT, _SCALES = int(kernels.EXACT_KIND), int(kernels.SCALES)
_KINDS: Final = int(kernels.KINDS)
_TYPES: Final = {
    int(kernels.BOOLEAN_KIND): pa.bool_(),
    7: pa.float64(),
    11: pa.date32(),
    12: pa.timestamp("us", "UTC"),
    13: pa.timestamp("us"),
    14: pa.float32(),
    15: pa.binary(),
    int(kernels.STRING_KIND): pa.string(),
    17: pa.time64("us"),
    18: pa.timestamp("ns", "UTC"),
    19: pa.timestamp("ns"),
    20: pa.uuid(),
}
_MICROS: Final = {18: 12, 19: 13}
"""Timestamps of nanoseconds are of one kind with those of microseconds."""


@dataclasses.dataclass(eq=False, slots=True)
class _Node:
    """A place in the documents."""

    share: float  # of the rows, or of the elements around it, that have it
    population: int  # slots that a field here could be in
    order: int  # of two nodes that are equally frequent, the first is kept
    schema: pa.DataType = dataclasses.field(default_factory=VariantType)
    fields: dict[str, _Node] | None = None
    item: _Node | None = None


def infer(source: Source, located: Located, most: int) -> pa.DataType:
    """Return the schema of at most `most` columns by which a column is shredded; ``variant.type()`` if nothing
    in it is frequent.
    """
    return _Inference(source, min(most, _MOST_NODES)).schema(located)


class _Inference:
    def __init__(self, source: Source, most: int) -> None:
        self._source = source
        self._device = source.device
        self._most = most
        self._levels = Levels(source)
        self._texts = self._levels.texts
        self._made = 0

    def schema(self, located: Located) -> pa.DataType:
        """Return the schema of a column."""
        level = self._sample(located)
        rows = int(self._sum(level.located.statuses != np.uint8(Status.SQL_NULL)))
        root = self._node(1.0, rows)
        nodes = [root]
        for _ in range(_MOST_LEVELS):
            if not nodes or not len(level.numbers):
                break
            kinds = self._levels.kinds(level)
            self._count(nodes, level.numbers, kinds)
            level, nodes = self._below(nodes, level, kinds)
        return self._pruned(root)

    def _sample(self, located: Located) -> Level:
        """Return at most so many rows, at the same distance from each other."""
        xp, rows = self._device.xp, len(located.statuses)
        groups = self._source.dictionary.indices
        level = Level(located, groups, xp.zeros(rows, np.int32))
        if rows <= _SAMPLE:
            return level
        at = xp.asarray(np.linspace(0, rows - 1, _SAMPLE).astype(np.int64))
        return Level(
            Located(located.positions[at], located.statuses[at]), groups[at], xp.zeros(_SAMPLE, np.int32)
        )

    def _node(self, share: float, population: int) -> _Node:
        self._made += 1
        return _Node(share, population, self._made)

    def _sum(self, flags: Any) -> int:
        return int(self._device.to_host(flags.sum(keepdims=True, dtype=np.int64))[0])

    def _count(self, nodes: list[_Node], numbers: Any, kinds: Any) -> None:
        """Count the kinds of the values of each node, and decide what it is to be."""
        xp = self._device.xp
        keys = numbers.astype(np.int64) * np.int64(_KINDS) + kinds
        table = xp.bincount(keys, minlength=len(nodes) * _KINDS)
        counts = self._device.to_host(table).reshape(len(nodes), _KINDS)
        for node, found in zip(nodes, counts, strict=True):
            kind, schema = _decided(found)
            if kind == _OBJECT:
                node.fields = {}
            elif kind == _ARRAY:
                node.item = self._node(node.share, int(found[_ARRAY]))
            else:
                node.schema = schema

    def _below(self, nodes: list[_Node], level: Level, kinds: Any) -> tuple[Level, list[_Node]]:
        """Return the values inside those of a level, and their nodes."""
        xp = self._device.xp
        objects, of_objects = self._members(nodes, level, kinds)
        arrays = xp.asarray(np.array([node.item is not None for node in nodes], np.bool_))
        inside = self._levels.chosen(level, (kinds == np.int32(_ARRAY)) & arrays[level.numbers])
        if not len(inside.numbers):
            return objects, of_objects
        items = [node.item for node in nodes if node.item is not None]
        positions = np.cumsum([node.item is not None for node in nodes]) - 1 + len(of_objects)
        of_arrays = self._levels.elements(inside, xp.asarray(positions.astype(np.int32)))
        counts = self._device.to_host(xp.bincount(of_arrays.numbers, minlength=len(of_objects) + len(items)))
        for item, count in zip(items, counts[len(of_objects) :].tolist(), strict=True):
            item.population = int(count)
        return objects.joined(of_arrays, xp), [*of_objects, *items]

    def _members(self, nodes: list[_Node], level: Level, kinds: Any) -> tuple[Level, list[_Node]]:
        """Return the frequent fields of objects."""
        xp, texts = self._device.xp, self._texts
        wanted = xp.asarray(np.array([node.fields is not None for node in nodes], np.bool_))
        inside = self._levels.chosen(level, (kinds == np.int32(_OBJECT)) & wanted[level.numbers])
        found, parents = self._levels.members(inside)
        names = found.numbers
        keys = xp.where(names < np.int32(0), np.int64(-1), parents * np.int64(max(texts.count, 1)) + names)
        return self._frequent(nodes, found, keys)

    def _frequent(self, nodes: list[_Node], level: Level, keys: Any) -> tuple[Level, list[_Node]]:
        """Return the fields that one of ten could-be holders has: `keys` say of which node, and which name."""
        texts = self._texts
        unique, counts = self._levels.counted(keys, len(nodes) * texts.count)
        order = np.argsort(-counts, kind="stable")
        made: dict[int, _Node] = {}
        for key, count in zip(unique[order].tolist(), counts[order].tolist(), strict=True):
            if key < 0:  # fields without a name
                continue
            node = nodes[key // texts.count]
            if count * _RARE < node.population or len(made) >= self._most:
                continue
            name = texts.text(key % texts.count)
            if name is not None:
                share = node.share * count / max(node.population, 1)
                assert node.fields is not None
                made[key] = node.fields[name] = self._node(share, node.population)
        chosen = np.array(sorted(made), np.int64)
        return self._levels.renumbered(level, keys, chosen), [made[int(key)] for key in chosen]

    def _pruned(self, root: _Node) -> pa.DataType:
        """Return the schema of the most frequent columns."""
        leaves = sorted(_leaves(root), key=lambda node: (-node.share, node.order))
        kept = {id(node) for node in leaves[: self._most]}
        return _schema(root, kept) or VariantType()


def _leaves(node: _Node) -> list[_Node]:
    if node.fields is not None:
        return [leaf for child in node.fields.values() for leaf in _leaves(child)]
    return _leaves(node.item) if node.item is not None else [node]


def _schema(node: _Node, kept: set[int]) -> pa.DataType | None:
    """Return the schema of a node; one whose values have no typed column is a column of values."""
    if node.fields is not None:
        found = {name: _schema(child, kept) for name, child in node.fields.items()}
        inside = [(name, found[name]) for name in sorted(found, key=str.encode) if found[name] is not None]
        return pa.struct(inside) if inside else None
    if node.item is not None:
        item = _schema(node.item, kept)
        return VariantType() if item is None or isinstance(item, VariantType) else pa.list_(item)
    return node.schema if id(node) in kept else None


def _decided(counts: np.ndarray[Any, Any]) -> tuple[int, pa.DataType]:
    """Return the kind of more than half of some values, and its type; ``OTHER`` where no kind is."""
    by_kind = {kind: int(counts[kind]) for kind in range(_ABSENT) if kind != _NULL and counts[kind]}
    for nanos, micros in _MICROS.items():
        if nanos in by_kind:
            by_kind[nanos] += by_kind.pop(micros, 0)
    decimals = counts[_EXACT:]
    digits = max((digits for kind, digits in _INTEGERS.items() if kind in by_kind), default=0)
    exact = sum(by_kind.pop(kind, 0) for kind in _INTEGERS) + int(decimals.sum())
    if exact:
        by_kind[_EXACT_NUMBERS] = exact
    total = sum(by_kind.values())
    kind = max(by_kind, key=lambda each: by_kind[each], default=_OTHER)
    if kind == _OTHER or by_kind[kind] * 2 <= total:
        return _OTHER, VariantType()
    if kind == _EXACT_NUMBERS:
        return kind, _exact(digits, np.flatnonzero(decimals))
    return kind, _TYPES.get(kind, VariantType())


def _exact(digits: int, decimals: np.ndarray[Any, Any]) -> pa.DataType:
    """Return the type of whole numbers of some digits, and of decimals of some scales and digits."""
    scale = int((decimals // _SCALES).max(initial=0))
    whole = max(int((decimals % _SCALES).max(initial=0)), digits)
    if not scale and whole <= _INTEGERS[6]:
        return pa.int64()
    if whole + scale <= _LONG_DIGITS:
        return pa.decimal128(_LONG_DIGITS, scale)
    return pa.decimal128(_MOST_DIGITS, min(scale, _MOST_DIGITS - whole))
