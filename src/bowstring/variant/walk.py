"""Where paths lead in every row: one pass walks a tree of steps, and reads what are plain numbers.

Names become ids once for each distinct metadata.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.kernels.launch import launch
from bowstring.kernels.variant import numbers
from bowstring.kernels.variant.encoding import OK, SIZES
from bowstring.kernels.variant.metadata import NAMED, find_names
from bowstring.kernels.variant.numbers import read_located
from bowstring.kernels.variant.walk import BY_INDEX, BY_NAME, LATER, LOCATED, PLACE, ROOT, WHOLE, read_plain
from bowstring.kernels.variant.walk import locate as locate_rows
from bowstring.variant.cast import Numbers
from bowstring.variant.status import Status

if TYPE_CHECKING:
    from bowstring.memory import Device
    from bowstring.variant.cast import Target
    from bowstring.variant.column import MetadataDictionary, VariantColumn
    from bowstring.variant.path import Path


ROWS_PER_CALL: Final = 1024
"""Rows that one call of a kernel takes on the host; a GPU has a thread for each."""
_PLACES_OF_4: Final = 1 << 32
_ALIGNED: Final = 64
"""Columns begin at multiples of so many elements."""
_WRITTEN: Final = {0: np.uint64, 1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_ABOVE: Final = -1
_COUNTED: Final = 255

_INT8, _DOUBLE, _DECIMAL4, _DATE, _FLOAT = 3, 7, 8, 11, 14
_INTEGERS: Final = [_INT8 + k for k in range(4)]
_DECIMALS: Final = [_DECIMAL4 + k for k in range(3)]
_MICROS: Final = {int(numbers.TIMESTAMP): 12, int(numbers.TIMESTAMP_NTZ): 13}
_NANOS: Final = {int(numbers.TIMESTAMP): 18, int(numbers.TIMESTAMP_NTZ): 19}
_WIDE, _HALF = 0, 32  # values of eight and of four bytes
_NUMBER_1: Final = 32


# How long a value is by its header, 0 where the header does not say.
_LENGTHS: Final = np.zeros(256, np.uint16)
_LENGTHS[: len(SIZES) << 2 : 4] = np.where(SIZES == _COUNTED, 0, SIZES.astype(np.uint16) + 1)
_LENGTHS[1::4] = np.arange(1, 65)
_PLACES: Final = (_LENGTHS << 8).tobytes()


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """The number that a path is read as during the walk."""

    width: int  # in bytes
    meanings: bytes  # two bytes for each of the 256 headers, as read_plain takes them
    asked: tuple[int, int, int, int]  # for a cast: family, least, greatest, unit


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """One result of the walk."""

    index: int
    width: int  # of its number in bytes; 0 where it is a place
    column: int  # index among the outputs of the same width


Wanted = tuple["Path", Number | None]


class Tree(NamedTuple):
    """Paths as a tree: parents first, and the children of one parent by one kind of step together."""

    nodes: list[Node]  # of what is wanted, in its order
    size: int
    count_of: dict[int, int]  # columns of each width
    has_root: bool  # whether the whole value is wanted
    # What :func:`~bowstring.kernels.variant.walk.locate` takes: texts of all names, their ends, operands, indices,
    # families, kinds, columns and meanings.
    tables: tuple[np.ndarray[Any, Any], ...]


@functools.lru_cache(64)
def _tree_of(wanted: tuple[Wanted, ...]) -> Tree:
    # At each path what is wanted; its place, where others begin with it.
    results: dict[Path, list[Number | None]] = {}
    for path, number in wanted:
        inner = [(path[:length], None) for length in range(1, len(path))]
        for each, what in (*inner, (path, number)):
            at = results.setdefault(each, [])
            if what not in at:
                at.append(what)
    children: dict[Path, list[Path]] = {}
    for path in sorted((path for path in results if path), key=repr):
        children.setdefault(path[:-1], []).append(path)
    names: dict[str, int] = {}
    nodes: dict[Wanted, Node] = {}
    rows: list[tuple[Any, ...]] = []
    families: list[int] = []
    count_of = dict.fromkeys(_WRITTEN, 0)
    waiting: list[Path] = [()]
    for parent in waiting:
        below = children.get(parent, [])
        steps = [
            (BY_NAME, [path for path in below if isinstance(path[-1], str)]),
            (BY_INDEX, [path for path in below if isinstance(path[-1], int)]),
        ]
        if not parent and () in results:
            steps.insert(0, (ROOT, [()]))
        # The whole value is where every path begins, and is not a parent.
        above = nodes[parent, None].index if parent else _ABOVE
        for step, paths in steps:
            for path in paths:
                last = path[-1] if path else 0
                where = (
                    (names.setdefault(last, len(names)), int(NAMED)) if isinstance(last, str) else (0, last)
                )
                for number in results[path]:
                    width = number.width if number else int(PLACE)
                    nodes[path, number] = Node(len(rows), width, count_of[width])
                    rows.append((*where, width, count_of[width], number.meanings if number else _PLACES))
                    count_of[width] += 1
            if paths:
                families += [above, int(step), len(rows)]
        waiting.extend(path for path in below if path in children)
    operands, indices, kinds, columns, meanings = zip(*rows, strict=True)
    encoded = [name.encode() for name in names]
    tables: tuple[np.ndarray[Any, Any], ...] = (
        np.frombuffer(b"".join(encoded), np.uint8),
        np.cumsum([0, *map(len, encoded)], dtype=np.int64),
        *(np.array(each, np.int64) for each in (operands, indices, families)),
        np.array(kinds, np.uint8),
        np.array(columns, np.int64),
        np.frombuffer(b"".join(meanings), np.uint16),
    )
    return Tree([nodes[each] for each in wanted], len(rows), count_of, () in results, tables)


def inline_number(target: Target) -> Number | None:
    """Return what the headers of values mean to a type, ``None`` where none is a plain number to it."""
    if not isinstance(target, Numbers) or target.kernel is not numbers.cast_numbers:
        return None
    family, low, high, unit, _ = (each for each in target.arguments if isinstance(each, int))
    limits = np.iinfo(target.dtype)
    if (low, high) != (limits.min, limits.max):
        return None
    return _number(family, unit, limits.bits // 8)


@functools.cache
def _number(family: int, unit: int, width: int) -> Number | None:
    read, later = _types_of(family, unit)
    if not read:
        return None
    spans = _LENGTHS.copy()
    readings = np.full(256, int(WHOLE) + Status.TYPE_MISMATCH, np.uint16)
    readings[0] = int(WHOLE) + Status.VARIANT_NULL
    for kind, reading in read.items():
        readings[kind << 2] = reading
        if reading < int(WHOLE) and 8 - reading // 8 > width:
            spans[kind << 2] = 0  # it may not fit, and must be looked at
    for kind in later:
        readings[kind << 2] = LATER
    limits = np.iinfo(f"i{width}")
    asked = family, int(limits.min), int(limits.max), unit
    return Number(width, (spans << 8 | readings).tobytes(), asked)


def _types_of(family: int, unit: int) -> tuple[dict[int, int], list[int]]:
    """Return the types that are read and how, and those that need a cast."""
    if family in (numbers.INTEGER, numbers.ANY_INTEGER):
        shifts = {each: 64 - (8 << each - _INT8) for each in _INTEGERS}
        return shifts, [*_DECIMALS, *([] if family == numbers.INTEGER else (_DOUBLE, _FLOAT))]
    if family == numbers.BOOLEAN:
        return {1: int(WHOLE) + _NUMBER_1, 2: int(WHOLE)}, []
    if family in (numbers.FLOAT, numbers.ANY_FLOAT):
        return {_FLOAT: _HALF}, [] if family == numbers.FLOAT else [*_INTEGERS, *_DECIMALS, _DOUBLE]
    if family in (numbers.DOUBLE, numbers.ANY_DOUBLE):
        return {_DOUBLE: _WIDE}, [] if family == numbers.DOUBLE else [*_INTEGERS, *_DECIMALS, _FLOAT]
    if family == numbers.DATE:
        return ({_DATE: _HALF}, []) if unit == 1 else ({}, [])
    if family in _MICROS and unit in (1_000_000, 1_000_000_000):
        same, other = _MICROS[family], _NANOS[family]
        if unit != 1_000_000:
            same, other = other, same
        return {same: _WIDE}, [other]
    return {}, []


class Located(NamedTuple):
    """Where one path leads."""

    positions: Any  # uint64: the first byte of the value, where the status is OK
    statuses: Any  # uint8


class Read(NamedTuple):
    """The numbers that one path leads to."""

    numbers: Any  # int8 to int64, 0 where the status is not OK
    statuses: Any
    complete: bool  # every status is OK


def locate(opened: VariantColumn, dictionary: MetadataDictionary, paths: Sequence[Path]) -> list[Located]:
    """Return where each path leads in every row, by metadata that are in a dictionary: one launch for all."""
    walk = _walk(opened, dictionary, [(path, None) for path in paths])
    # A path that is asked for twice is cast twice, each with statuses of its own.
    return [Located(places, statuses.copy()) for places, statuses in map(walk.column, walk.tree.nodes)]


def extract(
    opened: VariantColumn, dictionary: MetadataDictionary, wanted: Sequence[Wanted]
) -> list[Located | Read]:
    """Return where each path leads, or the numbers there. What only a cast can read has its place where the
    number shall be; where that does not fit, a second walk finds where the numbers lie.
    """
    device, data = opened.column.device, opened.value.data
    walk = _walk(opened, dictionary, wanted)
    worst, was_cast = walk.worst(device), False
    for node, (_, number) in zip(walk.tree.nodes, wanted, strict=True):
        if worst[node.index] != LOCATED or number is None:
            continue
        # Where the places fit, the numbers there are read.
        if number.width == 8 or (number.width == 4 and len(data) <= _PLACES_OF_4):
            block = ROWS_PER_CALL if device.is_host else 1
            out, statuses = walk.column(node)
            what = *number.asked, 64 - 8 * number.width, block, statuses, out
            launch(read_located, -(-walk.rows // block), data, *what)
            was_cast = True
    if was_cast:
        worst = walk.worst(device)
    results: list[Any] = []
    again = []
    for node, (path, _) in zip(walk.tree.nodes, wanted, strict=True):
        values, statuses = walk.column(node)
        results.append(Read(values, statuses, worst[node.index] == OK))
        if not node.width:
            results[-1] = Located(values, statuses.copy())
        elif worst[node.index] == LOCATED:
            again.append((len(results) - 1, path))
    if again:
        places, paths = zip(*again, strict=True)
        for place, located in zip(places, locate(opened, dictionary, paths), strict=True):
            results[place] = located
    return results


class _Walk(NamedTuple):
    """What a walk wrote: statuses by node, and located and numbers by width, in columns of `stride`."""

    tree: Tree
    rows: int
    stride: int
    statuses: Any
    columns: dict[int, Any]

    def column(self, node: Node) -> tuple[Any, Any]:
        """Return what was written for a node, and its statuses."""
        begin, above = node.column * self.stride, node.index * self.stride
        return self.columns[node.width][begin : begin + self.rows], self.statuses[above : above + self.rows]

    def worst(self, device: Device) -> list[int]:
        """Return the greatest status of each node."""
        if not self.rows:
            return [0] * self.tree.size
        worst: list[int] = device.to_host(self.statuses.reshape(self.tree.size, -1).max(axis=1)).tolist()
        return worst


def _walk(opened: VariantColumn, dictionary: MetadataDictionary, wanted: Sequence[Wanted]) -> _Walk:
    device, value, tree = opened.column.device, opened.value, _tree_of(tuple(wanted))
    xp, rows = device.xp, len(dictionary.indices)
    stride = -(-rows // _ALIGNED) * _ALIGNED
    texts, ends, operands, indices, families, kinds, columns, meanings = map(xp.asarray, tree.tables)
    names = texts, ends
    metadata = dictionary.starts, dictionary.stops, dictionary.data, dictionary.marks
    ids = xp.empty(len(dictionary.marks) * tree.size, np.int64)
    launch(find_names, len(ids), *metadata, *names, operands, indices, ids)
    columns = columns * stride
    written = {width: xp.empty(tree.count_of[width] * stride, dtype) for width, dtype in _WRITTEN.items()}
    places, *numbers = written.values()
    walk = _Walk(tree, rows, stride, xp.zeros(tree.size * stride, np.uint8), written)
    outputs = places, walk.statuses, *numbers
    block = ROWS_PER_CALL if device.is_host else 1
    slots = opened.validity, value.validity, value.starts, value.stops, value.data, dictionary.indices
    shape = block, rows, stride
    chosen, items = xp.empty(0, np.int64), rows
    if not tree.has_root:
        left = xp.zeros(rows, np.uint8)
        paths = dictionary.marks, ids, families, kinds, columns, meanings
        launch(read_plain, -(-rows // block), *slots, *paths, *shape, left, *outputs)
        chosen = xp.flatnonzero(left.view(np.bool_))
        items = len(chosen)
    if items:
        nodes = ids, families, operands, kinds, columns, meanings
        launch(locate_rows, -(-items // block), *slots, *metadata, *names, *nodes, *shape, chosen, *outputs)
    return walk
