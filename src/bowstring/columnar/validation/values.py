"""Probes of values with a fixed width: dictionary indices, times, days, decimals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Kind
from bowstring.columnar.validation.probes import Probe, Subject
from bowstring.kernels.validation import values as validation_values

__all__ = ["check_days", "check_decimals", "check_indices", "check_times"]

_UNSIGNED = (pa.lib.Type_UINT8, pa.lib.Type_UINT16, pa.lib.Type_UINT32, pa.lib.Type_UINT64)
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_WORD = 8


def check_indices(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether the indices of a dictionary-encoded node lie within its dictionary."""
    node = subject.node(index)
    dictionary = subject.batch.dictionaries.get(node.dictionary_id or 0)
    if dictionary is None:
        subject.refuse(index, "the dictionary is missing", expected=f"id {node.dictionary_id}", found=None)
    length = len(dictionary)
    most = 1 << (node.bits - (node.type.id not in _UNSIGNED))
    what = "an index points outside the dictionary"
    yield _range(subject, index, 0, min(length, most), what, f"0 <= index < {length}")


def check_times(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether times lie within a day."""
    unit = subject.node(index).type.unit
    expected = f"0 <= time < {_DAY[unit]} {unit}"
    yield _range(subject, index, 0, _DAY[unit], "a time is not within a day", expected)


def check_decimals(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether decimals have no more digits than their type.

    The lowest number of 128 or 256 bits has too many; pyarrow takes it, since it has no absolute value.
    """
    node = subject.node(index)
    most = 10**node.type.precision - 1
    what = "a decimal has more digits than its type"
    expected = f"at most {node.type.precision} digits"
    if node.width <= _WORD:
        yield _range(subject, index, -most, 2 * most + 1, what, expected)
        return
    limbs = node.width // _WORD
    words = np.frombuffer(
        most.to_bytes(node.width, "little") + (2 * most).to_bytes(node.width, "little"), "u8"
    )
    rows = subject.rows(index)
    answer = subject.first_row(
        validation_values.check_range_128 if limbs == 2 else validation_values.check_range_256,
        rows,
        subject.array(index, Kind.DATA, np.uint64),
        subject.xp.asarray(words),
        subject.validity(index),
        rows,
    )

    def explain(row: int) -> tuple[object, object]:
        found = subject.fetch(index, Kind.DATA, _WORD, *range(row * limbs, (row + 1) * limbs))
        low = sum((word & (2**64 - 1)) << (64 * place) for place, word in enumerate(found[:-1]))
        return expected, low + (found[-1] << (64 * (limbs - 1)))

    yield subject.probe(index, answer, what, explain)


def check_days(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether dates in milliseconds are whole days."""
    rows = subject.rows(index)
    values = subject.array(index, Kind.DATA, np.int64)
    validity = subject.validity(index)
    answer = subject.first_row(validation_values.check_days, rows, values, validity, rows)

    def explain(row: int) -> tuple[object, object]:
        return "a multiple of 86400000 ms", subject.fetch(index, Kind.DATA, _WORD, row)[0]

    yield subject.probe(index, answer, "a date is not a whole day", explain)


def _range(subject: Subject, index: int, lowest: int, count: int, what: str, expected: str) -> Probe:
    """Whether valid numbers are among the `count` ones from `lowest` on."""
    node, rows = subject.node(index), subject.rows(index)
    mask = (1 << node.bits) - 1
    values: Any = subject.array(index, Kind.DATA, f"u{node.width}")
    validity = subject.validity(index)
    answer = subject.first_row(
        validation_values.check_range, rows, values, validity, rows, lowest & mask, mask, count
    )

    def explain(row: int) -> tuple[object, object]:
        found = subject.fetch(index, Kind.DATA, node.width, row)[0]
        return expected, found & mask if node.type.id in _UNSIGNED else found

    return subject.probe(index, answer, what, explain)
