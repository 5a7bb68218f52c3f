"""Where paths lead in every row: names become ids once for each distinct metadata, then one pass walks the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.errors import InvalidBody
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant_locate import BY_INDEX, BY_NAME, ROOT
from bowstring.kernels.variant_locate import locate as locate_rows
from bowstring.kernels.variant_metadata import find_names, inspect_metadata, mark_changes

if TYPE_CHECKING:
    from bowstring.variant.column import Slots, VariantColumn
    from bowstring.variant.path import Path, Step

__all__ = ["ROWS_PER_CALL", "Classes", "Places", "check_order", "classes_of", "locate"]

ROWS_PER_CALL: Final = 1024
"""Rows that one call of a kernel takes on the host; a GPU has a thread for each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Classes:
    """The distinct metadata of a column.

    Attributes
    ----------
    indices : array of int32, shape (rows,)
        Which of them is that of each row; one that is none is malformed.
    starts, stops : array of int64
    data : array of uint8
    marks : array of uint8
        What :func:`~bowstring.kernels.variant_metadata.inspect_metadata` says of each.
    """

    indices: Any
    starts: Any
    stops: Any
    data: Any
    marks: Any


class Places(NamedTuple):
    """Where one path leads.

    Attributes
    ----------
    places : array of uint64, shape (rows,)
        The first byte of the value, where the status is ``OK``.
    statuses : array of uint8, shape (rows,)
    """

    places: Any
    statuses: Any


def classes_of(opened: VariantColumn, *, full: bool = False) -> Classes:
    """Return the distinct metadata of a column, inspected; with `full`, their text too.

    Metadata that stand in every row are distinct where they differ from those of the row before.

    Raises
    ------
    InvalidBody
        Offsets decrease, so that the same bytes belong to several metadata.
    """
    metadata, xp = opened.metadata, opened.column.device.xp
    if opened.indices is None:
        rows = opened.rows
        starts, stops = metadata.starts[:rows], metadata.stops[:rows]
        check_order(opened, metadata)
        changed = xp.empty(rows, np.uint8)
        launch(mark_changes, rows, starts, stops, metadata.data, changed)
        indices = xp.cumsum(changed, dtype=np.int32) - np.int32(1)
        heads = xp.flatnonzero(changed)
        starts, stops = starts[heads].astype(np.int64), stops[heads].astype(np.int64)
        if len(metadata.validity):
            indices = xp.where(bitmap.expanded(metadata.validity, 0, rows), indices, np.int32(-1))
            indices = indices.astype(np.int32)
    else:
        check_order(opened, metadata)
        indices = opened.indices
        starts, stops = metadata.starts.astype(np.int64), metadata.stops.astype(np.int64)
    marks = xp.empty(len(starts), np.uint8)
    launch(inspect_metadata, len(marks), starts, stops, metadata.data, int(full), marks)
    return Classes(indices, starts, stops, metadata.data, marks)


def check_order(opened: VariantColumn, slots: Slots) -> None:
    """Check that offsets do not decrease: only then is the work on all slots bounded by their bytes.

    Raises
    ------
    InvalidBody
        They do.
    """
    if slots.shared or not len(slots.starts):
        return
    device = opened.column.device
    if device.to_host((slots.stops < slots.starts).sum(keepdims=True))[0]:
        raise InvalidBody(
            "the offsets of a Variant column decrease",
            expected="offsets that ascend",
            where=opened.column.name,
        )


def locate(opened: VariantColumn, paths: Sequence[Path]) -> list[Places]:
    """Return where each path leads in every row: one launch for all of them.

    Raises
    ------
    InvalidBody
        The offsets of the metadata decrease.
    """
    tree = _Tree(paths)
    classes = classes_of(opened)
    device, rows = opened.column.device, opened.rows
    xp = device.xp
    texts, ends = tree.texts()
    names = xp.asarray(texts), xp.asarray(ends)
    ids = xp.empty(len(classes.marks) * (len(ends) - 1), np.int64)
    launch(find_names, len(ids), classes.starts, classes.stops, classes.data, classes.marks, *names, ids)
    count = len(tree.parents)
    places = xp.empty(count * rows, np.uint64)
    statuses = xp.empty(count * rows, np.uint8)
    block = ROWS_PER_CALL if device.is_host else 1
    launch(
        locate_rows,
        -(-rows // block),
        opened.validity,
        opened.value.validity,
        opened.value.starts,
        opened.value.stops,
        opened.value.data,
        classes.indices,
        classes.starts,
        classes.stops,
        classes.data,
        classes.marks,
        *names,
        ids,
        xp.asarray(np.array(tree.parents, np.int32)),
        xp.asarray(np.array(tree.steps, np.int32)),
        xp.asarray(np.array(tree.operands, np.int64)),
        block,
        rows,
        places,
        statuses,
    )
    # A path that is asked for twice is cast twice, each with statuses of its own.
    return [
        Places(places[node * rows : (node + 1) * rows], statuses[node * rows : (node + 1) * rows].copy())
        for node in tree.nodes
    ]


class _Tree:
    """Paths as a tree of steps, parents first and children of one parent together."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.names: dict[str, int] = {}
        self.parents: list[int] = []
        self.steps: list[int] = []
        self.operands: list[int] = []
        known: dict[Path, int] = {}
        wanted = {path[:length] for path in paths for length in range(len(path) + 1)}
        children: dict[Path, list[Path]] = {}
        for path in sorted(wanted - {()}, key=repr):
            children.setdefault(path[:-1], []).append(path)
        if () in paths:
            known[()] = self._add(-1, int(ROOT), 0)
        waiting: list[Path] = [()]
        for parent in waiting:
            for path in children.get(parent, ()):
                # The whole value is where every path begins, and is no parent.
                known[path] = self._step(known[parent] if parent else -1, path[-1])
                waiting.append(path)
        self.nodes = [known[path] for path in paths]

    def _step(self, parent: int, step: Step) -> int:
        if isinstance(step, str):
            return self._add(parent, int(BY_NAME), self.names.setdefault(step, len(self.names)))
        return self._add(parent, int(BY_INDEX), step)

    def _add(self, parent: int, step: int, operand: int) -> int:
        self.parents.append(parent)
        self.steps.append(step)
        self.operands.append(operand)
        return len(self.parents) - 1

    def texts(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the bytes of all names, and where each begins and the last ends."""
        encoded = [name.encode() for name in self.names]
        ends = np.cumsum([0, *(len(each) for each in encoded)], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), ends
