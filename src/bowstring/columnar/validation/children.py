"""Probes of what points into a child, or into bytes: offsets, list views, run ends, unions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bowstring.columnar.layout import Kind
from bowstring.columnar.validation.probes import Probe, Subject
from bowstring.kernels.launch import launch
from bowstring.kernels.validation import nested as validation_offsets
from bowstring.kernels.validation.text import blocks_of

__all__ = ["check_dense_union", "check_list_views", "check_offsets", "check_run_ends", "check_type_ids"]

_TYPE_IDS = 256


def check_offsets(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether offsets rise, and stay within the bytes or the child that they delimit."""
    node, rows = subject.node(index), subject.rows(index)
    kind = node.buffer_kinds[1]
    width = kind.bits >> 3
    limit = subject.rows(node.children[0]) if node.children else subject.size(index, Kind.BYTES)
    offsets = subject.array(index, kind, f"i{width}")
    answer = subject.first_row(validation_offsets.check_offsets, rows, offsets, rows, limit)

    def explain(row: int) -> tuple[object, object]:
        start, end = subject.fetch(index, kind, width, row, row + 1)
        return f"0 <= start <= end <= {limit}", f"start {start}, end {end}"

    yield subject.probe(index, answer, "offsets do not delimit a value", explain)


def check_list_views(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether list views lie within their child."""
    node, rows = subject.node(index), subject.rows(index)
    _, starts, sizes = node.buffer_kinds
    width = starts.bits >> 3
    limit = subject.rows(node.children[0])
    arrays = [subject.array(index, kind, f"i{width}") for kind in (starts, sizes)]
    answer = subject.first_row(validation_offsets.check_list_views, rows, *arrays, rows, limit)

    def explain(row: int) -> tuple[object, object]:
        (start,), (size,) = (subject.fetch(index, kind, width, row) for kind in (starts, sizes))
        return f"within {limit} slots of the child", f"{size} slots from {start} on"

    yield subject.probe(index, answer, "a list view points outside its child", explain)


def check_run_ends(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether each run ends behind the run before it."""
    ends = subject.node(index).children[0]
    runs, width = subject.rows(ends), subject.node(ends).width
    answer = subject.first_row(
        validation_offsets.check_run_ends, runs, subject.array(ends, Kind.DATA, f"i{width}"), runs
    )

    def explain(run: int) -> tuple[object, object]:
        before = subject.fetch(ends, Kind.DATA, width, run - 1)[0] if run else 0
        return f"more than {before}", subject.fetch(ends, Kind.DATA, width, run)[0]

    yield subject.probe(ends, answer, "a run does not end behind the run before it", explain)


def _children_by_type_id(subject: Subject, index: int) -> Any:
    table = np.full(_TYPE_IDS, -1, np.int64)
    type_ = subject.node(index).type
    table[np.array(type_.type_codes, np.int64)] = np.arange(type_.num_fields)
    return subject.xp.asarray(table)


def _type_id(subject: Subject, index: int, row: int) -> int:
    return subject.fetch(index, Kind.TYPE_IDS, 1, row)[0]


def check_type_ids(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether each type id is that of a child."""
    rows = subject.rows(index)
    type_ids = subject.array(index, Kind.TYPE_IDS, np.uint8)
    table = _children_by_type_id(subject, index)
    answer = subject.first_row(validation_offsets.check_type_ids, rows, type_ids, table, rows)

    def explain(row: int) -> tuple[object, object]:
        return f"one of {subject.node(index).type.type_codes}", _type_id(subject, index, row)

    yield subject.probe(index, answer, "no child has this type id", explain)


def check_dense_union(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether each type id is that of a child, and the offsets into each child are slots of it and do not fall."""
    xp, rows = subject.xp, subject.rows(index)
    children = subject.node(index).children
    type_ids = subject.array(index, Kind.TYPE_IDS, np.uint8)
    starts = subject.array(index, Kind.STARTS32, np.int32)
    table = _children_by_type_id(subject, index)
    lengths = xp.asarray(subject.batch.nodes[list(children), 0])
    firsts = xp.empty(blocks_of(rows) * len(children), np.int64)
    lasts = xp.empty(blocks_of(rows) * len(children), np.int64)
    within = subject.first_row(
        validation_offsets.check_dense, rows, type_ids, starts, table, lengths, rows, firsts, lasts
    )

    def explain(row: int) -> tuple[object, object]:
        start = subject.fetch(index, Kind.STARTS32, 4, row)[0]
        expected = (
            f"one of {subject.node(index).type.type_codes}, and an offset that is no less than the last"
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
