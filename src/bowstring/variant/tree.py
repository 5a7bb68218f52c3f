"""Paths as a tree of steps, each walked once, and which values the walk itself reads as numbers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.kernels.variant import any_numbers, numbers
from bowstring.kernels.variant.format import SIZES
from bowstring.kernels.variant.metadata import NAMED
from bowstring.kernels.variant.walk_fast import BY_INDEX, BY_NAME, LATER, PLACE, ROOT, WHOLE
from bowstring.variant.cast import Numbers
from bowstring.variant.status import Status

if TYPE_CHECKING:
    from bowstring.variant.cast import Target
    from bowstring.variant.path import Path, Step

_ABOVE: Final = -1
_COUNTED: Final = 255

_INT8, _DOUBLE, _DECIMAL4, _DATE, _FLOAT = 3, 7, 8, 11, 14
_INTEGERS: Final = [_INT8 + k for k in range(4)]
_DECIMALS: Final = [_DECIMAL4 + k for k in range(3)]
_MICROS: Final = {int(numbers.TIMESTAMP): 12, int(numbers.TIMESTAMP_NTZ): 13}
_NANOS: Final = {int(numbers.TIMESTAMP): 18, int(numbers.TIMESTAMP_NTZ): 19}
_WIDE, _HALF = 0, 32  # values of eight and of four bytes
_NUMBER_1: Final = 32


@functools.cache
def lengths() -> np.ndarray[Any, Any]:
    """Return how long a value is by its header, 0 where the header does not say."""
    found = np.zeros(256, np.uint16)
    sizes = SIZES.astype(np.uint16)
    found[: len(sizes) << 2 : 4] = np.where(sizes == _COUNTED, 0, sizes + 1)
    found[1::4] = np.arange(1, 65)
    found.flags.writeable = False
    return found


_PLACES: Final = (lengths() << 8).tobytes()


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """The number that a path is read as during the walk."""

    width: int  # in bytes
    meanings: bytes  # two bytes for each of the 256 headers, as walk_fast takes them
    asked: tuple[int, int, int, int]  # for a cast: family, least, greatest, unit


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """One result of the walk."""

    index: int
    width: int  # of its number in bytes; 0 where it is a place
    column: int  # index among the outputs of the same width


class Tree:
    """Paths as a tree: parents first, and the children of one parent by one kind of step together. The lists
    are what :func:`~bowstring.kernels.variant.walk.locate` takes.
    """

    def __init__(self, wanted: Sequence[tuple[Path, Number | None]]) -> None:
        self.names: dict[str, int] = {}
        self.families: list[int] = []
        self.operands: list[int] = []
        self.indices: list[int] = []
        self.kinds: list[int] = []
        self.columns: list[int] = []
        self.meanings: list[bytes] = []
        # Columns of each width.
        self.count_of = dict.fromkeys((0, 1, 2, 4, 8), 0)
        self._known: dict[tuple[Path, Number | None], Node] = {}
        results = _by_path(wanted)
        children: dict[Path, list[Path]] = {}
        for path in sorted((path for path in results if path), key=repr):
            children.setdefault(path[:-1], []).append(path)
        self._family(_ABOVE, ROOT, [()] if () in results else [], results)
        waiting: list[Path] = [()]
        for parent in waiting:
            below = children.get(parent, [])
            # The whole value is where every path begins, and is not a parent.
            above = self._known[parent, None].index if parent else _ABOVE
            self._family(above, BY_NAME, [path for path in below if isinstance(path[-1], str)], results)
            self._family(above, BY_INDEX, [path for path in below if isinstance(path[-1], int)], results)
            waiting.extend(path for path in below if path in children)
        # In the order of what is wanted.
        self.nodes = [self._known[each] for each in wanted]

    def _family(self, parent: int, step: Any, paths: list[Path], results: _Results) -> None:
        if not paths:
            return
        for path in paths:
            for number in results[path]:
                self._known[path, number] = self._node(path[-1] if path else 0, number)
        self.families += [parent, int(step), len(self.kinds)]

    def _node(self, step: Step, number: Number | None) -> Node:
        kind = number.width if number else int(PLACE)
        node = Node(len(self.kinds), kind, self.count_of[kind])
        self.operands.append(self.names.setdefault(step, len(self.names)) if isinstance(step, str) else 0)
        self.indices.append(int(NAMED) if isinstance(step, str) else step)
        self.kinds.append(kind)
        self.columns.append(node.column)
        self.meanings.append(number.meanings if number else _PLACES)
        self.count_of[kind] += 1
        return node

    @property
    def has_root(self) -> bool:
        """Whether the whole value is wanted."""
        return int(ROOT) in self.families[1::3]

    def texts(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the bytes of all names, and where each begins and the last ends."""
        encoded = [name.encode() for name in self.names]
        ends = np.cumsum([0, *(len(each) for each in encoded)], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), ends


_Results = dict["Path", list["Number | None"]]


def _by_path(wanted: Sequence[tuple[Path, Number | None]]) -> _Results:
    """Return what is wanted at each path; the place, where others begin with it."""
    results: _Results = {}
    for path, number in wanted:
        for length in range(1, len(path)):
            _add(results, path[:length], None)
        _add(results, path, number)
    return results


def _add(results: _Results, path: Path, number: Number | None) -> None:
    at = results.setdefault(path, [])
    if number not in at:
        at.append(number)


def inline_number(target: Target) -> Number | None:
    """Return what the headers of values mean to a type, ``None`` where none is a plain number to it."""
    if not isinstance(target, Numbers) or target.kernel not in _READ:
        return None
    family, low, high, *rest = (each for each in target.arguments if isinstance(each, int))
    limits = np.iinfo(target.dtype)
    if (low, high) != (limits.min, limits.max):
        return None
    unit = rest[0] if target.kernel is numbers.cast_numbers else 1
    return _number(family, unit, limits.bits // 8)


_READ: Final = (numbers.cast_numbers, any_numbers.cast_any_numbers)


@functools.cache
def _number(family: int, unit: int, width: int) -> Number | None:
    read, later = _types_of(family, unit)
    if not read:
        return None
    spans = lengths().copy()
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
    if family in (numbers.INTEGER, any_numbers.ANY_INTEGER):
        shifts = {each: 64 - (8 << each - _INT8) for each in _INTEGERS}
        return shifts, [*_DECIMALS, *([] if family == numbers.INTEGER else (_DOUBLE, _FLOAT))]
    if family == numbers.BOOLEAN:
        return {1: int(WHOLE) + _NUMBER_1, 2: int(WHOLE)}, []
    if family in (numbers.FLOAT, any_numbers.ANY_FLOAT):
        return {_FLOAT: _HALF}, [] if family == numbers.FLOAT else [*_INTEGERS, *_DECIMALS, _DOUBLE]
    if family in (numbers.DOUBLE, any_numbers.ANY_DOUBLE):
        return {_DOUBLE: _WIDE}, [] if family == numbers.DOUBLE else [*_INTEGERS, *_DECIMALS, _FLOAT]
    if family == numbers.DATE:
        return ({_DATE: _HALF}, []) if unit == 1 else ({}, [])
    if family in _MICROS and unit in (1_000_000, 1_000_000_000):
        same, other = _MICROS[family], _NANOS[family]
        if unit != 1_000_000:
            same, other = other, same
        return {same: _WIDE}, [other]
    return {}, []
