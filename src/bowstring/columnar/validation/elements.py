"""Full validation by kernels: every element of a batch, where its data are, and one answer for the host to fetch.

What is wrong in a slot that is null does not count, except where pyarrow counts it too: offsets, list views, and
the slots of unions and run ends, which have no bitmap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from bowstring.columnar.dictionary import dictionaries_of
from bowstring.columnar.layout import Kind, Node
from bowstring.columnar.validation.children import (
    check_dense_union,
    check_list_views,
    check_offsets,
    check_run_ends,
    check_type_ids,
)
from bowstring.columnar.validation.probes import Probe, Subject
from bowstring.columnar.validation.text import check_text, check_views
from bowstring.columnar.validation.values import check_days, check_decimals, check_indices, check_times
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch

__all__ = ["check_elements"]

Check = Callable[[Subject, int], Iterator[Probe]]

_RUNS = pa.lib.Type_RUN_END_ENCODED

_CHECKS: dict[int, tuple[Check, ...]] = {
    pa.lib.Type_STRING: (check_offsets, check_text),
    pa.lib.Type_LARGE_STRING: (check_offsets, check_text),
    pa.lib.Type_STRING_VIEW: (check_views,),
    pa.lib.Type_BINARY_VIEW: (check_views,),
    pa.lib.Type_LIST_VIEW: (check_list_views,),
    pa.lib.Type_LARGE_LIST_VIEW: (check_list_views,),
    pa.lib.Type_SPARSE_UNION: (check_type_ids,),
    pa.lib.Type_DENSE_UNION: (check_dense_union,),
    pa.lib.Type_DATE64: (check_days,),
    **dict.fromkeys(
        (
            pa.lib.Type_BINARY,
            pa.lib.Type_LARGE_BINARY,
            pa.lib.Type_LIST,
            pa.lib.Type_LARGE_LIST,
            pa.lib.Type_MAP,
        ),
        (check_offsets,),
    ),
    _RUNS: (check_run_ends,),
    **dict.fromkeys((pa.lib.Type_TIME32, pa.lib.Type_TIME64), (check_times,)),
    **dict.fromkeys(
        (
            pa.lib.Type_DECIMAL32,
            pa.lib.Type_DECIMAL64,
            pa.lib.Type_DECIMAL128,
            pa.lib.Type_DECIMAL256,
        ),
        (check_decimals,),
    ),
}


def check_elements(batch: Batch) -> None:
    """Check every element of a batch whose structure and ends are right, and of its dictionaries.

    The host fetches all answers at once. Nodes are judged in the order of the schema, parents first.

    Raises
    ------
    InvalidBody
        Names the path of the column or child, and the first wrong row of the batch; or the slot of the child or
        dictionary, where several rows or none might use it.
    MissingDependency
        No compiler for this device is installed.

    Examples
    --------
    >>> from bowstring.columnar.batch import Batch
    >>> check_elements(Batch.from_arrow({"a": ["x", "yz"]}))
    """
    with batch.device.use():
        probes = [probe for subject in _subjects(batch) for probe in _probes(subject)]
        if not probes:
            return
        device = batch.device
        answers = device.to_host(device.xp.concatenate([probe.answer for probe in probes])).tolist()
        for probe, answer in zip(probes, answers, strict=True):
            probe.judge(answer)


def _subjects(batch: Batch) -> Iterator[Subject]:
    yield Subject(batch)
    for path, dictionary in dictionaries_of(batch):
        yield Subject(dictionary.values, path)


def _probes(subject: Subject) -> Iterator[Probe]:
    layout = subject.batch.layout
    never_null = set(layout.never_null.tolist()) | {
        layout.nodes[each].children[0] for each in layout.run_ends
    }
    for index, node in enumerate(layout.nodes):
        yield from _null_count(subject, index, node, never=index in never_null)
        if not subject.rows(index):
            continue
        if node.dictionary_id is not None:
            yield from check_indices(subject, index)
            continue
        for check in _CHECKS.get(node.type.id, ()):
            yield from check(subject, index)


def _null_count(subject: Subject, index: int, node: Node, *, never: bool) -> Iterator[Probe]:
    """Compare what the node says with the bitmap; a count of -1 says nothing."""
    rows, said = subject.batch.nodes[index].tolist()
    bits = Kind.VALIDITY in node.buffer_kinds and subject.validity(index)
    if bits is False or not len(bits):
        if never and said > 0:
            subject.refuse(index, "nulls where none can be", expected=0, found=said)
        return
    if said < 0 and not never:
        return

    def judge(valid: int) -> None:
        if said >= 0 and rows - valid != said:
            what = "the null count is not that of the bitmap"
            subject.refuse(index, what, expected=rows - valid, found=said)
        if never and valid != rows:
            subject.refuse(index, "nulls where none can be", expected=0, found=rows - valid)

    yield Probe(bitmap.count_set(bits, 0, rows), judge)
