"""Probes: numbers that a device computes about the elements of a batch, and what the host makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Kind, Node
from bowstring.columnar.offset_bounds import offset_bounds
from bowstring.errors import InvalidBody
from bowstring.kernels.launch import launch
from bowstring.kernels.validation.text import NO_ROW, blocks_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.offset_bounds import OffsetBounds

__all__ = ["Probe", "Subject"]

_SAME_ROW = (pa.lib.Type_STRUCT, pa.lib.Type_SPARSE_UNION)
_RUNS = pa.lib.Type_RUN_END_ENCODED
_FIXED_LIST = pa.lib.Type_FIXED_SIZE_LIST


class Probe(NamedTuple):
    """One number about a node, still on its device, and the function that judges it."""

    answer: Any
    """Array of int64, shape (1,), of the batch's device."""
    judge: Callable[[int], None]
    """Raises where the number shows an error."""


class Subject:
    """A batch under examination: its buffers as kernels take them, and names for its rows.

    Parameters
    ----------
    batch
        Its structure and its ends are right.
    path
        Of a dictionary, whose values `batch` holds; none for a batch of a stream.
    """

    def __init__(self, batch: Batch, path: str = "") -> None:
        self.batch = batch
        self.path = path
        self.device = batch.device
        self.xp = batch.device.xp
        self.first = batch.layout.first_buffers(batch.variadic_counts).tolist()
        self._ends: dict[int, OffsetBounds] | None = None

    # What kernels take

    def node(self, index: int) -> Node:
        """Return a node of the layout."""
        return self.batch.layout.nodes[index]

    def rows(self, index: int) -> int:
        """Return the number of slots of a node."""
        return int(self.batch.nodes[index, 0])

    def end(self, index: int) -> OffsetBounds:
        """Return where the offsets of a node begin and end."""
        if self._ends is None:
            self._ends = {end.node: end for end in offset_bounds(self.batch)}
        return self._ends[index]

    def row_of(self, index: int, kind: Kind) -> int:
        """Return which buffer of the batch is that of a node."""
        return int(self.first[index]) + self.node(index).buffer_kinds.index(kind)

    def size(self, index: int, kind: Kind) -> int:
        """Return the bytes of a buffer."""
        return int(self.batch.spans.table[self.row_of(index, kind), 2])

    def array(self, index: int, kind: Kind, dtype: npt.DTypeLike) -> Any:
        """Return a buffer as an array: aligned for its type, by a copy where the buffer is not."""
        size = np.dtype(dtype).itemsize
        row = self.row_of(index, kind)
        raw = self.batch.spans.array(row)
        if int(self.batch.spans.addresses()[row]) % size:
            raw = raw.copy()
        return raw[: len(raw) - len(raw) % size].view(dtype)

    def validity(self, index: int) -> Any:
        """Return the bitmap of a node, no bytes where it has none."""
        return self.batch.spans.array(self.row_of(index, Kind.VALIDITY))

    def first_row(self, kernel: Callable[..., None], rows: int, *arguments: Any) -> Any:
        """Launch a kernel that answers for blocks of rows, and return the first wrong row of all, shape (1,)."""
        bad = self.xp.empty(blocks_of(rows), np.int64)
        launch(kernel, len(bad), *arguments, bad)
        return bad.min(keepdims=True)

    # What the host makes of the answers

    def probe(
        self,
        index: int,
        answer: Any,
        what: str,
        explain: Callable[[int], tuple[object, object]],
    ) -> Probe:
        """Return a probe whose answer is the first wrong row; `explain` returns what was expected and found."""

        def judge(row: int) -> None:
            if row != NO_ROW:
                expected, found = explain(row)
                self.refuse(index, what, row, expected=expected, found=found)

        return Probe(answer, judge)

    def fetch(self, index: int, kind: Kind, width: int, *slots: int) -> list[int]:
        """Return single numbers of a buffer, signed, `width` bytes each."""
        rows = [self.row_of(index, kind)] * len(slots)
        at = [slot * width for slot in slots]
        return self.batch.spans.fetch(self.device, rows, at, [width] * len(slots))

    def refuse(
        self, index: int, what: str, slot: int | None = None, *, expected: object, found: object
    ) -> NoReturn:
        """Raise an error that names a node, and the row if it is known."""
        where = ".".join(filter(None, (self.path, *self.node(index).path[bool(self.path) :])))
        if slot is not None:
            row = None if self.path else self._row(index, slot)
            where += f", slot {slot}" if row is None else f", row {row}"
        raise InvalidBody(what, expected=expected, found=found, where=where)

    def _row(self, index: int, slot: int) -> int | None:
        """Return the row of the batch that a slot belongs to, unless several or none might use it."""
        node = self.node(index)
        while node.parent >= 0:
            index, child, node = node.parent, index, self.node(node.parent)
            if node.type.id in _SAME_ROW:
                continue
            if node.type.id == _FIXED_LIST:
                slot //= node.type.list_size
            elif node.type.id == _RUNS and child == node.children[1]:
                ends = node.children[0]
                slot = self.fetch(ends, Kind.DATA, self.node(ends).width, slot - 1)[0] if slot else 0
            elif len(node.buffer_kinds) > 1 and node.buffer_kinds[1].has_end:
                slot = self._list_of(index, slot)
            else:
                return None
            if not 0 <= slot < self.rows(index):
                return None
        return slot

    def _list_of(self, index: int, slot: int) -> int:
        kind = self.node(index).buffer_kinds[1]
        offsets = self.array(index, kind, f"i{kind.bits >> 3}")[: self.rows(index) + 1]
        wanted = self.xp.asarray(np.array([slot], offsets.dtype))
        after = self.xp.searchsorted(offsets, wanted, side="right")
        return int(self.device.to_host(after)[0]) - 1
