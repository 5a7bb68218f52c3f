"""Probes: numbers that a device computes about the elements of a batch, and what the host makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import BatchData, OffsetBounds, batch_parts, offset_bounds
from bowstring.errors import InvalidBody
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch, run_arrays
from bowstring.kernels.validation import nested as validation_offsets
from bowstring.kernels.validation import text as validation_text
from bowstring.kernels.validation import values as validation_values
from bowstring.kernels.validation.text import BROKEN, NO_ROW, WORDS, blocks_of
from bowstring.memory.arrays import distinct

_SAME_ROW = (pa.lib.Type_STRUCT, pa.lib.Type_SPARSE_UNION)
_RUNS = pa.lib.Type_RUN_END_ENCODED
_FIXED_LIST = pa.lib.Type_FIXED_SIZE_LIST


class Probe(NamedTuple):
    """One number about a node, still on its device, and the function that judges it."""

    answer: Any  # array of int64, shape (1,), of the batch's device
    judge: Callable[[int], None]  # raises where the number shows an error


class Subject:
    """A batch under examination: its buffers as kernels take them, and names for its rows."""

    def __init__(self, batch: BatchData, path: str = "") -> None:
        self.batch = batch
        self.path = path
        self.device = batch.device
        self.xp = batch.device.xp
        self.parts = parts = batch_parts(batch)
        self.nodes = batch.layout.nodes
        self.rows: list[int] = parts.nodes[:, 0].tolist()
        self.first = batch.layout.first_buffers(parts.variadic_counts).tolist()
        self._ends: dict[int, OffsetBounds] | None = None

    # What kernels take

    def end(self, index: int) -> OffsetBounds:
        if self._ends is None:
            self._ends = {end.node: end for end in offset_bounds(self.batch)}
        return self._ends[index]

    def row_of(self, index: int, kind: Kind) -> int:
        return int(self.first[index]) + self.nodes[index].buffer_kinds.index(kind)

    def array(self, index: int, kind: Kind, dtype: npt.DTypeLike) -> Any:
        """Return a buffer as an array: aligned for its type, by a copy where the buffer is not."""
        spans, row, size = self.parts.spans, self.row_of(index, kind), np.dtype(dtype).itemsize
        raw = spans.array(row)
        if int(spans.addresses()[row]) % size:
            raw = raw.copy()
        return raw[: len(raw) - len(raw) % size].view(dtype)

    def validity(self, index: int) -> Any:
        return self.parts.spans.array(self.row_of(index, Kind.VALIDITY))

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
        rows = [self.row_of(index, kind)] * len(slots)
        at = [slot * width for slot in slots]
        return self.parts.spans.fetch(self.device, rows, at, [width] * len(slots))

    def refuse(
        self, index: int, what: str, slot: int | None = None, *, expected: object, found: object
    ) -> NoReturn:
        """Raise an error that names a node, and the row if it is known."""
        where = ".".join(filter(None, (self.path, *self.nodes[index].path[bool(self.path) :])))
        if slot is not None:
            row = None if self.path else self._row(index, slot)
            where += f", slot {slot}" if row is None else f", row {row}"
        raise InvalidBody(what, expected=expected, found=found, where=where)

    def _row(self, index: int, slot: int) -> int | None:
        """Return the row of the batch that a slot belongs to, unless several or none might use it."""
        node = self.nodes[index]
        while node.parent >= 0:
            index, child, node = node.parent, index, self.nodes[node.parent]
            if node.type.id in _SAME_ROW:
                continue
            if node.type.id == _FIXED_LIST:
                slot //= node.type.list_size
            elif node.type.id == _RUNS and child == node.children[1]:
                ends = node.children[0]
                slot = self.fetch(ends, Kind.DATA, self.nodes[ends].width, slot - 1)[0] if slot else 0
            elif len(node.buffer_kinds) > 1 and node.buffer_kinds[1].has_end:
                kind = node.buffer_kinds[1]
                offsets = self.array(index, kind, f"i{kind.bits >> 3}")[: self.rows[index] + 1]
                wanted = self.xp.asarray(np.array([slot], offsets.dtype))
                slot = int(self.device.to_host(self.xp.searchsorted(offsets, wanted, side="right"))[0]) - 1
            else:
                return None
            if not 0 <= slot < self.rows[index]:
                return None
        return slot


_TYPE_IDS = 256


def check_offsets(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether offsets rise, and stay within the bytes or the child that they delimit."""
    node, rows = subject.nodes[index], subject.rows[index]
    kind = node.buffer_kinds[1]
    width = kind.bits >> 3
    limit = (
        subject.rows[node.children[0]]
        if node.children
        else int(subject.parts.spans.table[subject.row_of(index, Kind.BYTES), 2])
    )
    offsets = subject.array(index, kind, f"i{width}")
    answer = subject.first_row(validation_offsets.check_offsets, rows, offsets, rows, limit)

    def explain(row: int) -> tuple[object, object]:
        start, end = subject.fetch(index, kind, width, row, row + 1)
        return f"0 <= start <= end <= {limit}", f"start {start}, end {end}"

    yield subject.probe(index, answer, "offsets do not delimit a value", explain)


def check_list_views(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether list views lie within their child."""
    node, rows = subject.nodes[index], subject.rows[index]
    _, starts, sizes = node.buffer_kinds
    width = starts.bits >> 3
    limit = subject.rows[node.children[0]]
    arrays = [subject.array(index, kind, f"i{width}") for kind in (starts, sizes)]
    answer = subject.first_row(validation_offsets.check_list_views, rows, *arrays, rows, limit)

    def explain(row: int) -> tuple[object, object]:
        (start,), (size,) = (subject.fetch(index, kind, width, row) for kind in (starts, sizes))
        return f"within {limit} slots of the child", f"{size} slots from {start} on"

    yield subject.probe(index, answer, "a list view points outside its child", explain)


def check_run_ends(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether each run ends behind the run before it."""
    ends = subject.nodes[index].children[0]
    runs, width = subject.rows[ends], subject.nodes[ends].width
    answer = subject.first_row(
        validation_offsets.check_run_ends, runs, subject.array(ends, Kind.DATA, f"i{width}"), runs
    )

    def explain(run: int) -> tuple[object, object]:
        before = subject.fetch(ends, Kind.DATA, width, run - 1)[0] if run else 0
        return f"more than {before}", subject.fetch(ends, Kind.DATA, width, run)[0]

    yield subject.probe(ends, answer, "a run does not end behind the run before it", explain)


def _children_by_type_id(subject: Subject, index: int) -> Any:
    table = np.full(_TYPE_IDS, -1, np.int64)
    type_ = subject.nodes[index].type
    table[np.array(type_.type_codes, np.int64)] = np.arange(type_.num_fields)
    return subject.xp.asarray(table)


def _type_id(subject: Subject, index: int, row: int) -> int:
    return subject.fetch(index, Kind.TYPE_IDS, 1, row)[0]


def check_type_ids(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether each type id is that of a child."""
    rows = subject.rows[index]
    type_ids = subject.array(index, Kind.TYPE_IDS, np.uint8)
    table = _children_by_type_id(subject, index)
    answer = subject.first_row(validation_offsets.check_type_ids, rows, type_ids, table, rows)

    def explain(row: int) -> tuple[object, object]:
        return f"one of {subject.nodes[index].type.type_codes}", _type_id(subject, index, row)

    yield subject.probe(index, answer, "no child has this type id", explain)


def check_dense_union(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether each type id is that of a child, and the offsets into each child are slots of it and do not fall."""
    xp, rows = subject.xp, subject.rows[index]
    children = subject.nodes[index].children
    type_ids = subject.array(index, Kind.TYPE_IDS, np.uint8)
    starts = subject.array(index, Kind.STARTS32, np.int32)
    table = _children_by_type_id(subject, index)
    lengths = xp.asarray(subject.parts.nodes[list(children), 0])
    firsts = xp.empty(blocks_of(rows) * len(children), np.int64)
    lasts = xp.empty(blocks_of(rows) * len(children), np.int64)
    within = subject.first_row(
        validation_offsets.check_dense, rows, type_ids, starts, table, lengths, rows, firsts, lasts
    )

    def explain(row: int) -> tuple[object, object]:
        start = subject.fetch(index, Kind.STARTS32, 4, row)[0]
        expected = (
            f"one of {subject.nodes[index].type.type_codes}, and an offset that is no less than the last"
        )
        return expected, f"type id {_type_id(subject, index, row)}, offset {start}"

    what = "a slot of a union points to no slot of a child"
    yield subject.probe(index, within, what, explain)
    if children:
        fallen = xp.empty(len(children), np.int64)
        launch(
            validation_offsets.check_dense_order,
            len(children),
            type_ids,
            table,
            firsts,
            lasts,
            len(children),
            rows,
            fallen,
        )
        yield subject.probe(index, fallen.min(keepdims=True), what, explain)


_SHOWN = 1 << 16


def check_text(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether text is UTF-8, value by value."""
    rows = subject.rows[index]
    kind = subject.nodes[index].buffer_kinds[1]
    width = kind.bits >> 3
    offsets = subject.array(index, kind, f"i{width}")
    data = subject.array(index, Kind.BYTES, np.uint8)
    # They were right when they were checked; another process that shares the memory may have changed them.
    stop = min(subject.end(index).last, len(data))
    start = max(subject.end(index).first, 0)
    if start >= stop:
        return
    worst = _marks(data, start, stop)[0].max(keepdims=True)
    inside = subject.first_row(validation_text.check_starts, rows, offsets, data, rows, stop, worst)

    def judge_rows() -> None:
        validity = subject.validity(index)
        first_row = subject.first_row(validation_text.check_text_rows, rows, offsets, validity, data, rows)
        row = int(subject.device.to_host(first_row)[0])
        if row != NO_ROW:
            first, last = subject.fetch(index, kind, width, row, row + 1)
            value = bytes(subject.device.to_host(data[first : min(last, first + _SHOWN)]))
            shown = "other bytes"
            try:
                value.decode()
            except UnicodeDecodeError as error:
                shown = f"byte {value[error.start]:#04x} at {error.start} of the value: {error.reason}"
            subject.refuse(index, "text is not UTF-8", row, expected="UTF-8", found=shown)

    yield Probe(worst, lambda mark: judge_rows() if mark == BROKEN else None)
    yield Probe(inside, lambda row: judge_rows() if row != NO_ROW else None)


def _marks(data: Any, start: int, stop: int) -> tuple[Any, int]:
    """Return what :func:`~bowstring.kernels.validation.text.check_text` finds for each block, and the lead."""
    data, words, lead = bitmap.with_words(data)
    span = ((stop - lead) >> 3) + 1 - ((start - lead) >> 3)
    marks = run_arrays(lambda xp, _: xp.empty(-(-span // int(WORDS)), np.int64), data)
    launch(validation_text.check_text, len(marks), data, words, lead, start, stop, marks)
    return marks, lead


def check_views(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether views lie within their buffers, begin with their prefixes, and are text where they must be."""
    node, rows = subject.nodes[index], subject.rows[index]
    is_text = node.type.id == pa.lib.Type_STRING_VIEW
    parts = subject.array(index, Kind.VIEWS, np.uint32)
    validity = subject.validity(index)
    first = subject.row_of(index, Kind.VIEWS) + 1
    table = subject.parts.spans.table[first : subject.first[index + 1]]
    sizes = subject.xp.asarray(np.ascontiguousarray(table[:, 2]))

    def explain(row: int) -> tuple[object, object]:
        size, prefix, buffer, offset = subject.fetch(index, Kind.VIEWS, 4, *range(4 * row, 4 * row + 4))
        if size <= 12:
            inside = (np.array([prefix, buffer, offset], "<i4")).tobytes()
            return "a value, then zeros" + ", in UTF-8" * is_text, f"size {size}, {inside!r}"
        expected = (
            f"a value in one of {len(table)} buffers that begins with its prefix" + ", in UTF-8" * is_text
        )
        return expected, f"{size} bytes at {offset} of buffer {buffer}, prefix {prefix & 0xFFFFFFFF:#010x}"

    for data, firsts in _variadic_memory(subject, table):
        # How many blocks of the bytes before each are not UTF-8, and the lead of the blocks.
        broken, lead = subject.xp.zeros(1, np.int64), 0
        if is_text:
            marks, lead = _marks(data, 0, len(data))
            counts = subject.xp.cumsum((marks == BROKEN).astype(np.int64))
            broken = subject.xp.concatenate([broken, counts])
        answer = subject.first_row(
            validation_values.check_views,
            rows,
            parts,
            validity,
            data,
            subject.xp.asarray(firsts),
            sizes,
            rows,
            int(is_text),
            broken,
            lead,
        )
        yield subject.probe(index, answer, "a view does not hold what it says", explain)


def _variadic_memory(subject: Subject, table: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the memory of variadic buffers, region by region, and where in it each buffer begins.

    A buffer begins at -1 where it lies in another region, or nowhere.
    """
    spans = subject.parts.spans
    present = table[:, 2] > 0
    if not present.any():
        yield subject.xp.empty(0, np.uint8), np.full(len(table), -1, np.int64)
    for region in distinct(table[present, 0]):
        here = present & (table[:, 0] == region)
        start = int(table[here, 1].min())
        stop = int((table[here, 1] + table[here, 2]).max())
        data = spans.regions[region].array(start, stop - start)
        yield data, np.where(here, table[:, 1] - start, -1)
