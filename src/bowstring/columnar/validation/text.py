"""Probes of text, and of the views of binary and text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Kind
from bowstring.columnar.validation.probes import Probe, Subject
from bowstring.kernels.launch import launch, run_arrays
from bowstring.kernels.validation import text as validation_text
from bowstring.kernels.validation import values as validation_values
from bowstring.kernels.validation.text import BROKEN, NO_ROW, WORDS
from bowstring.memory.arrays import distinct

__all__ = ["check_text", "check_views"]

_WORD = 8
_SHOWN = 1 << 16


def check_text(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether text is UTF-8, value by value."""
    rows = subject.rows(index)
    kind = subject.node(index).buffer_kinds[1]
    width = kind.bits >> 3
    offsets = subject.array(index, kind, f"i{width}")
    data = subject.array(index, Kind.BYTES, np.uint8)
    # They were right when they were checked; another process that shares the memory may have changed them.
    stop = min(subject.end(index).last, len(data))
    start = max(subject.end(index).first, 0)
    if start >= stop:
        return
    address = int(subject.batch.spans.addresses()[subject.row_of(index, Kind.BYTES)])
    worst = _marks(data, address, start, stop)[0].max(keepdims=True)
    inside = subject.first_row(validation_text.check_starts, rows, offsets, data, rows, stop, worst)

    def judge_rows() -> None:
        validity = subject.validity(index)
        found = subject.first_row(validation_text.check_text_rows, rows, offsets, validity, data, rows)
        row = int(subject.device.to_host(found)[0])
        if row != NO_ROW:
            first, last = subject.fetch(index, kind, width, row, row + 1)
            value = subject.device.to_host(data[first : min(last, first + _SHOWN)])
            _refuse_text(subject, index, row, bytes(value))

    def judge_bytes(mark: int) -> None:
        if mark == BROKEN:
            judge_rows()

    def judge_starts(row: int) -> None:
        if row != NO_ROW:
            judge_rows()

    yield Probe(worst, judge_bytes)
    yield Probe(inside, judge_starts)


def _marks(data: Any, address: int, start: int, stop: int) -> tuple[Any, int]:
    """Return what :func:`~bowstring.kernels.validation.text.check_text` finds for each block, and the lead.

    The text ``[start, stop)`` lies in `data`, which lies at `address`.
    """
    lead = min(-address % _WORD, len(data))
    words = data[lead : lead + (len(data) - lead) // _WORD * _WORD].view(np.uint64)
    span = ((stop - lead) >> 3) + 1 - ((start - lead) >> 3)
    marks = run_arrays(lambda xp, _: xp.empty(-(-span // int(WORDS)), np.int64), data)
    launch(validation_text.check_text, len(marks), data, words, lead, start, stop, marks)
    return marks, lead


def _refuse_text(subject: Subject, index: int, row: int, value: bytes) -> None:
    found = "other bytes"
    try:
        value.decode()
    except UnicodeDecodeError as error:
        found = f"byte {value[error.start]:#04x} at {error.start} of the value: {error.reason}"
    subject.refuse(index, "text is not UTF-8", row, expected="UTF-8", found=found)


def check_views(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether views lie within their buffers, begin with their prefixes, and are text where they must be."""
    node, rows = subject.node(index), subject.rows(index)
    is_text = node.type.id == pa.lib.Type_STRING_VIEW
    parts = subject.array(index, Kind.VIEWS, np.uint32)
    validity = subject.validity(index)
    first = subject.row_of(index, Kind.VIEWS) + 1
    table = subject.batch.spans.table[first : subject.first[index + 1]]
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

    for data, address, firsts in _variadic_memory(subject, table):
        broken, lead = (
            _broken_before(subject, data, address) if is_text else (subject.xp.zeros(1, np.int64), 0)
        )
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


def _broken_before(subject: Subject, data: Any, address: int) -> tuple[Any, int]:
    """Return how many blocks of some bytes before each are not UTF-8, and the lead of the blocks."""
    marks, lead = _marks(data, address, 0, len(data))
    counts = subject.xp.cumsum((marks == BROKEN).astype(np.int64))
    return subject.xp.concatenate([subject.xp.zeros(1, np.int64), counts]), lead


def _variadic_memory(subject: Subject, table: Any) -> Iterator[tuple[Any, int, Any]]:
    """Yield the memory of variadic buffers, region by region, its address, and where in it each buffer begins.

    A buffer begins at -1 where it lies in another region, or nowhere.
    """
    spans = subject.batch.spans
    present = table[:, 2] > 0
    if not present.any():
        yield subject.xp.empty(0, np.uint8), 0, np.full(len(table), -1, np.int64)
    for region in distinct(table[present, 0]):
        here = present & (table[:, 0] == region)
        start = int(table[here, 1].min())
        stop = int((table[here, 1] + table[here, 2]).max())
        data = spans.regions[region].array(start, stop - start)
        yield data, spans.regions[region].address + start, np.where(here, table[:, 1] - start, -1)
