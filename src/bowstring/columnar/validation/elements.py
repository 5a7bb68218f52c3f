"""Full validation by kernels: every element of a batch, where its data are, and one answer for the host to fetch.

What is wrong in a slot that is null does not count, except where pyarrow counts it too: offsets, list views, and
the slots of unions and run ends, which have no bitmap.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind, Node
from bowstring.columnar.parts import BatchData, dictionaries_of
from bowstring.columnar.validation import probes
from bowstring.columnar.validation.probes import Probe, Subject
from bowstring.kernels import bitmap
from bowstring.kernels.validation import values as validation_values

Check = Callable[[Subject, int], Iterator[Probe]]

_UNSIGNED = (pa.lib.Type_UINT8, pa.lib.Type_UINT16, pa.lib.Type_UINT32, pa.lib.Type_UINT64)
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_WORD = 8
_TIMES = (pa.lib.Type_TIME32, pa.lib.Type_TIME64)


def check_elements(
    batch: BatchData, parts: Sequence[BatchData] | None = None, *, values: bool = True
) -> None:
    """Check every element of a batch whose structure and ends are right, and of its dictionaries, parents first.

    `parts`: the batch and the dictionary values to check, all by default. `values`: check their meaning too.
    """
    subjects = [Subject(batch)]
    for path, dictionary in dictionaries_of(batch):
        if parts is None or any(dictionary.values is each for each in parts):
            subjects.append(Subject(dictionary.values, path))
    # A batch that landed on a device may use dictionaries that are on the host still.
    for device in dict.fromkeys(each.device for each in subjects):
        with device.use():
            asked = [
                probe for each in subjects if each.device is device for probe in _probes(each, values=values)
            ]
            if not asked:
                continue
            answers = device.to_host(device.xp.concatenate([probe.answer for probe in asked])).tolist()
            for probe, answer in zip(asked, answers, strict=True):
                probe.judge(answer)


_known: Final[weakref.WeakKeyDictionary[Layout, bool]] = weakref.WeakKeyDictionary()


def may_be_wrong(layout: Layout) -> bool:
    """Whether a layout has elements that can lead anywhere, or text; null counts aside."""
    answer = _known.get(layout)
    if answer is None:
        answer = _known[layout] = not layout.is_flat or any(
            each.dictionary_id is not None or each.type.id in _CHECKS for each in layout.nodes
        )
    return answer


def _probes(subject: Subject, *, values: bool) -> Iterator[Probe]:
    layout = subject.batch.layout
    never_null = set(layout.never_null.tolist()) | {
        layout.nodes[each].children[0] for each in layout.run_ends
    }
    for index, node in enumerate(layout.nodes):
        yield from _null_count(subject, index, node, never=index in never_null)
        if not subject.rows[index]:
            continue
        if node.dictionary_id is not None:
            dictionary = subject.batch.dictionaries.get(node.dictionary_id)
            if dictionary is None:
                what = "the dictionary is missing"
                subject.refuse(index, what, expected=f"id {node.dictionary_id}", found=None)
            length, what = len(dictionary), "an index points outside the dictionary"
            most = 1 << (node.bits - (node.type.id not in _UNSIGNED))
            yield _range(subject, index, 0, min(length, most), what, f"0 <= index < {length}")
            continue
        for check in _CHECKS.get(node.type.id, ()):
            yield from check(subject, index)
        if values and node.type.id in _TIMES:
            unit = node.type.unit
            expected = f"0 <= time < {_DAY[unit]} {unit}"
            yield _range(subject, index, 0, _DAY[unit], "a time is not within a day", expected)
        elif values and node.type.id in _VALUES:
            yield from _VALUES[node.type.id](subject, index)


def _null_count(subject: Subject, index: int, node: Node, *, never: bool) -> Iterator[Probe]:
    """Compare the null count of the node with the bitmap; -1 is unknown."""
    rows, claimed = subject.parts.nodes[index].tolist()
    bits = Kind.VALIDITY in node.buffer_kinds and subject.validity(index)
    if bits is False or not len(bits):
        if never and claimed > 0:
            subject.refuse(index, "nulls where none can be", expected=0, found=claimed)
        return
    if claimed < 0 and not never:
        return

    def judge(valid: int) -> None:
        if claimed >= 0 and rows - valid != claimed:
            what = "the null count is not that of the bitmap"
            subject.refuse(index, what, expected=rows - valid, found=claimed)
        if never and valid != rows:
            subject.refuse(index, "nulls where none can be", expected=0, found=rows - valid)

    yield Probe(bitmap.count_set(bits, 0, rows), judge)


def _check_decimals(subject: Subject, index: int) -> Iterator[Probe]:
    """Whether decimals have no more digits than their type.

    The lowest number of 128 or 256 bits has too many; pyarrow takes it, since it has no absolute value.
    """
    node = subject.nodes[index]
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
    rows = subject.rows[index]
    answer = subject.first_row(
        validation_values.check_wide_range,
        rows,
        subject.array(index, Kind.DATA, np.uint64),
        limbs,
        subject.xp.asarray(words),
        subject.validity(index),
        rows,
    )

    def explain(row: int) -> tuple[object, object]:
        parts = subject.fetch(index, Kind.DATA, _WORD, *range(row * limbs, (row + 1) * limbs))
        low = sum((word & (2**64 - 1)) << (64 * place) for place, word in enumerate(parts[:-1]))
        return expected, low + (parts[-1] << (64 * (limbs - 1)))

    yield subject.probe(index, answer, what, explain)


def _check_days(subject: Subject, index: int) -> Iterator[Probe]:
    rows = subject.rows[index]
    values = subject.array(index, Kind.DATA, np.int64)
    validity = subject.validity(index)
    answer = subject.first_row(validation_values.check_days, rows, values, validity, rows)

    def explain(row: int) -> tuple[object, object]:
        return "a multiple of 86400000 ms", subject.fetch(index, Kind.DATA, _WORD, row)[0]

    yield subject.probe(index, answer, "a date is not a whole day", explain)


def _range(subject: Subject, index: int, lowest: int, count: int, what: str, expected: str) -> Probe:
    """Whether valid numbers are among the `count` ones from `lowest` on."""
    node, rows = subject.nodes[index], subject.rows[index]
    mask = (1 << node.bits) - 1
    values: Any = subject.array(index, Kind.DATA, f"u{node.width}")
    validity = subject.validity(index)
    answer = subject.first_row(
        validation_values.check_range, rows, values, validity, rows, lowest & mask, mask, count
    )

    def explain(row: int) -> tuple[object, object]:
        value = subject.fetch(index, Kind.DATA, node.width, row)[0]
        return expected, value & mask if node.type.id in _UNSIGNED else value

    return subject.probe(index, answer, what, explain)


_CHECKS: dict[int, tuple[Check, ...]] = {
    **dict.fromkeys(
        (pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING), (probes.check_offsets, probes.check_text)
    ),
    **dict.fromkeys((pa.lib.Type_STRING_VIEW, pa.lib.Type_BINARY_VIEW), (probes.check_views,)),
    **dict.fromkeys((pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW), (probes.check_list_views,)),
    **dict.fromkeys((pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY), (probes.check_offsets,)),
    **dict.fromkeys((pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST, pa.lib.Type_MAP), (probes.check_offsets,)),
    pa.lib.Type_SPARSE_UNION: (probes.check_type_ids,),
    pa.lib.Type_DENSE_UNION: (probes.check_dense_union,),
    pa.lib.Type_RUN_END_ENCODED: (probes.check_run_ends,),
}
_VALUES: dict[int, Check] = {
    pa.lib.Type_DATE64: _check_days,
    **dict.fromkeys((pa.lib.Type_DECIMAL32, pa.lib.Type_DECIMAL64), _check_decimals),
    **dict.fromkeys((pa.lib.Type_DECIMAL128, pa.lib.Type_DECIMAL256), _check_decimals),
}
