"""The plan of a layout: what kernels must know of it, as one table of integers, made once with it.

* Its head: ``nodes``, ``buffers``, ``longest`` (as of :class:`~bowstring.columnar.layout.Layout`).
* Each node: ``parent`` (-1: it is a column), ``ordinal`` (which child, or which column), ``factor`` (its slots for
  each slot of the parent; -1: the offsets of the parent say), ``rule`` of its null count (1: all slots are null),
  ``first`` buffer, ``count`` of buffers, ``children``.
* Each buffer: ``node``, ``bits`` for each slot, ``end bits`` beyond the last slot, ``role`` (0: values of a fixed
  width, 1: validity, 2: offsets, 3: the bytes that the offsets before them delimit).

The names are those of :mod:`bowstring.kernels.ipc.batch`. Views, list views, unions and runs have no plan: counts
and offsets alone do not say what their slots need.
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

_ROLES: Final = {
    Kind.VALIDITY: kernel.VALIDITY,
    Kind.DATA: kernel.FIXED,
    Kind.BITS: kernel.FIXED,
    Kind.OFFSETS32: kernel.OFFSETS,
    Kind.OFFSETS64: kernel.OFFSETS,
    Kind.BYTES: kernel.BYTES,
}


def plan_of(nodes: Sequence[Node], longest: int, bits: Table, end_bits: Table) -> Table | None:
    """Return the plan of a layout of these nodes and buffers; None where a type has none."""
    words = [len(nodes), len(bits), longest]
    columns = 0
    for index, node in enumerate(nodes):
        kinds = node.buffer_kinds
        if not (_ROLES.keys() >= set(kinds) and (kinds or pa.types.is_null(node.type))):
            return None
        ordinal, factor = columns, 1
        if node.parent < 0:
            columns += 1
        else:
            parent = nodes[node.parent]
            ordinal, factor = parent.children.index(index), _factor(parent.type)
        rule = kernel.COUNTED if kinds else kernel.ALL_NULL
        words += [node.parent, ordinal, factor, int(rule), node.first_buffer, len(kinds), len(node.children)]
    kinds_of_all = [(index, kind) for index, node in enumerate(nodes) for kind in node.buffer_kinds]
    for (index, kind), *sizes in zip(kinds_of_all, bits.tolist(), end_bits.tolist(), strict=True):
        words += [index, *sizes, int(_ROLES[kind])]
    return np.array(words, np.int64) if nodes else None


def _factor(parent: pa.DataType) -> int:
    if parent.id == pa.lib.Type_FIXED_SIZE_LIST:
        return int(parent.list_size)
    return 1 if parent.id == pa.lib.Type_STRUCT else -1
