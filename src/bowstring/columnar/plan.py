"""The plan of a layout: the integers that kernels need to know of it, in one table, made once.

The names are those of :mod:`bowstring.kernels.ipc.batch`. Batches of all types can be read by a plan but maps
whose keys are null, and unions without children. Only those of :func:`is_written` are written by one: counts and
offsets alone do not tell the sizes of views, list views, unions and runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind, Node
from bowstring.kernels.ipc import batch as kernel

Table = npt.NDArray[np.int64]

_ROLES: Final = dict.fromkeys(Kind, int(kernel.FIXED)) | {
    Kind.VALIDITY: int(kernel.VALIDITY),
    Kind.OFFSETS32: int(kernel.OFFSETS),
    Kind.OFFSETS64: int(kernel.OFFSETS),
    Kind.BYTES: int(kernel.BYTES),
    Kind.VIEWS: int(kernel.VIEWS),
}
_WRITTEN: Final = {Kind.VALIDITY, Kind.DATA, Kind.BITS, Kind.OFFSETS32, Kind.OFFSETS64, Kind.BYTES}


def plan_of(nodes: Sequence[Node], longest: int, bits: Table, end_bits: Table) -> Table | None:
    """Return the plan of a layout of these nodes and buffers; None where it cannot have one."""
    # The head: nodes, buffers, longest node, nodes with variadic buffers.
    words = [len(nodes), len(bits), longest, sum(node.variadic for node in nodes)]
    ordinals = [0] * (len(nodes) + 1)  # of the next child of each node; the last is that of columns
    for index, node in enumerate(nodes):
        parent, factor = node.parent, 1
        if parent >= 0 and nodes[parent].type.id == pa.lib.Type_FIXED_SIZE_LIST:
            factor = nodes[parent].type.list_size
        elif parent >= 0 and nodes[parent].type.id not in (pa.lib.Type_STRUCT, pa.lib.Type_SPARSE_UNION):
            factor = -1
        rule = _rule(nodes, index)
        if rule is None:
            return None
        kinds = len(node.buffer_kinds)
        # A node: its parent (-1: a column), its index among the children or columns, its slots for each slot of the
        # parent (-1: other data say), the rule of its null count, first buffer, buffers, children.
        words += [parent, ordinals[parent], factor, rule, node.first_buffer, kinds, len(node.children)]
        ordinals[parent] += 1
    kinds_of_all = [(index, kind) for index, node in enumerate(nodes) for kind in node.buffer_kinds]
    for (index, kind), *sizes in zip(kinds_of_all, bits.tolist(), end_bits.tolist(), strict=True):
        # A buffer: its node, bits for each slot, bits beyond the last slot, role.
        words += [index, *sizes, _ROLES[kind]]
    return np.array(words, np.int64)


def is_written(nodes: Sequence[Node]) -> bool:
    """Whether batches of these nodes are written and taken over by their plan."""
    kinds = [node.buffer_kinds for node in nodes]
    return bool(nodes) and all(
        _WRITTEN.issuperset(each) and (each or pa.types.is_null(node.type))
        for each, node in zip(kinds, nodes, strict=True)
    )


def _rule(nodes: Sequence[Node], index: int) -> int | None:
    node = nodes[index]
    outer = nodes[node.parent] if node.parent >= 0 else None
    is_key = outer is not None and outer.parent >= 0 and outer.children[0] == index
    is_key = is_key and nodes[outer.parent].type.id == pa.lib.Type_MAP  # type: ignore[union-attr]
    if pa.types.is_null(node.type):
        return None if is_key else int(kernel.ALL_NULL)
    if node.type.id == pa.lib.Type_RUN_END_ENCODED:
        return int(kernel.RUNS)
    if pa.types.is_union(node.type) and not node.children:
        return None
    if Kind.VALIDITY not in node.buffer_kinds:
        return int(kernel.NO_NULLS)
    is_entries = outer is not None and outer.type.id == pa.lib.Type_MAP
    return int(kernel.NEVER_NULL if is_key or is_entries else kernel.COUNTED)
