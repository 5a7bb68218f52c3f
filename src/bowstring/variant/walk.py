"""Where paths lead in every row: names become ids once for each distinct metadata, then one pass walks the rows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.kernels.launch import launch
from bowstring.kernels.variant.any_numbers import read_located
from bowstring.kernels.variant.format import OK
from bowstring.kernels.variant.metadata import find_names
from bowstring.kernels.variant.walk import locate as locate_rows
from bowstring.kernels.variant.walk_fast import LOCATED, read_plain
from bowstring.variant.metadata_dictionary import MetadataDictionary, dictionary_of
from bowstring.variant.tree import Tree

if TYPE_CHECKING:
    from bowstring.columnar.slots import Slots
    from bowstring.memory import Device
    from bowstring.variant.column import VariantColumn
    from bowstring.variant.path import Path
    from bowstring.variant.tree import Node, Number

ROWS_PER_CALL: Final = 1024
"""Rows that one call of a kernel takes on the host; a GPU has a thread for each."""
_PLACES_OF_4: Final = 1 << 32
_ALIGNED: Final = 64
"""Columns begin at multiples of so many elements."""
_WRITTEN: Final = {0: np.uint64, 1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


class Located(NamedTuple):
    """Where one path leads."""

    positions: Any  # uint64: the first byte of the value, where the status is OK
    statuses: Any  # uint8


class Read(NamedTuple):
    """The numbers that one path leads to."""

    numbers: Any  # int8 to int64, 0 where the status is not OK
    statuses: Any
    complete: bool  # every status is OK


def locate(opened: VariantColumn, paths: Sequence[Path]) -> list[Located]:
    """Return where each path leads in every row: one launch for all of them."""
    return locate_in(opened.column.device, opened.validity, opened.value, dictionary_of(opened), paths)


def locate_in(
    device: Device, validity: Any, value: Slots, dictionary: MetadataDictionary, paths: Sequence[Path]
) -> list[Located]:
    """Return where each path leads in slots of values whose metadata are in a dictionary.

    `validity` is a bitmap of the rows, empty where none is null.
    """
    walk = _walk(device, validity, value, dictionary, [(path, None) for path in paths])
    # A path that is asked for twice is cast twice, each with statuses of its own.
    found = map(walk.column, walk.tree.nodes)
    return [Located(positions, statuses.copy()) for positions, statuses in found]


def extract(
    opened: VariantColumn, dictionary: MetadataDictionary, wanted: Sequence[tuple[Path, Number | None]]
) -> list[Located | Read]:
    """Return where each path leads, or the numbers there. What only a cast can read has its place where the
    number shall be; where that does not fit, a second walk finds where the numbers lie.
    """
    device = opened.column.device
    value = opened.value
    slots = device, opened.validity, value, dictionary
    walk = _walk(*slots, wanted)
    worst, was_cast = walk.worst(device), False
    for node, (_, number) in zip(walk.tree.nodes, wanted, strict=True):
        if worst[node.index] == LOCATED and number is not None and _holds_places(number, value):
            _read_located(device, value.data, walk, node, number)
            was_cast = True
    if was_cast:
        worst = walk.worst(device)
    found: list[Located | Read] = []
    again = []
    for at, node in enumerate(walk.tree.nodes):
        values, statuses = walk.column(node)
        if not node.width:
            found.append(Located(values, statuses.copy()))
            continue
        found.append(Read(values, statuses, worst[node.index] == OK))
        if worst[node.index] == LOCATED:
            again.append(at)
    if again:
        for at, located in zip(again, locate_in(*slots, [wanted[at][0] for at in again]), strict=True):
            found[at] = located
    return found


def _holds_places(number: Number, value: Slots) -> bool:
    return number.width == 8 or (number.width == 4 and len(value.data) <= _PLACES_OF_4)


def _read_located(device: Device, data: Any, walk: _Walk, node: Node, number: Number) -> None:
    """Read the numbers of which a walk wrote the places."""
    block = ROWS_PER_CALL if device.is_host else 1
    spare = 64 - 8 * number.width
    numbers, statuses = walk.column(node)
    launch(read_located, -(-walk.rows // block), data, *number.asked, spare, block, statuses, numbers)


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
            return [0] * len(self.tree.kinds)
        found: list[int] = device.to_host(
            self.statuses.reshape(len(self.tree.kinds), -1).max(axis=1)
        ).tolist()
        return found


class _Settled(NamedTuple):
    """The tree of some paths, and its tables in the order in which a walk takes them."""

    tree: Tree
    has_root: bool
    tables: tuple[np.ndarray[Any, Any], ...]


@functools.lru_cache(64)
def _settled(wanted: tuple[tuple[Path, Number | None], ...]) -> _Settled:
    tree = Tree(wanted)
    numbers = (np.array(each, np.int64) for each in (tree.operands, tree.indices, tree.families))
    kinds, columns = np.array(tree.kinds, np.uint8), np.array(tree.columns, np.int64)
    meanings = np.frombuffer(b"".join(tree.meanings), np.uint16)
    return _Settled(tree, tree.has_root, (*tree.texts(), *numbers, kinds, columns, meanings))


def _walk(
    device: Device,
    validity: Any,
    value: Slots,
    dictionary: MetadataDictionary,
    wanted: Sequence[tuple[Path, Number | None]],
) -> _Walk:
    settled = _settled(tuple(wanted))
    tree, xp, rows = settled.tree, device.xp, len(dictionary.indices)
    stride = -(-rows // _ALIGNED) * _ALIGNED
    count = len(tree.kinds)
    texts, ends, operands, indices, families, kinds, columns, meanings = map(xp.asarray, settled.tables)
    names = texts, ends
    found = dictionary.starts, dictionary.stops, dictionary.data, dictionary.marks
    ids = xp.empty(len(dictionary.marks) * count, np.int64)
    launch(find_names, len(ids), *found, *names, operands, indices, ids)
    columns = columns * stride
    written = {}
    for width, dtype in _WRITTEN.items():
        written[width] = xp.empty(tree.count_of[width] * stride, dtype)
    places, *numbers = written.values()
    walk = _Walk(tree, rows, stride, xp.zeros(count * stride, np.uint8), written)
    outputs = places, walk.statuses, *numbers
    block = ROWS_PER_CALL if device.is_host else 1
    slots = validity, value.validity, value.starts, value.stops, value.data, dictionary.indices
    shape = block, rows, stride
    chosen, items = xp.empty(0, np.int64), rows
    if not settled.has_root:
        left = xp.zeros(rows, np.uint8)
        launch(
            read_plain,
            -(-rows // block),
            *(*slots, dictionary.marks, ids, families, kinds, columns, meanings, *shape, left, *outputs),
        )
        chosen = xp.flatnonzero(left.view(np.bool_))
        items = len(chosen)
    if items:
        nodes = ids, families, operands, kinds, columns, meanings
        launch(
            locate_rows,
            -(-items // block),
            *(*slots, *found, *names, *nodes, *shape, chosen, *outputs),
        )
    return walk
