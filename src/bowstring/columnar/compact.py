"""Compact batches, as they are written or published: offsets start at 0, and nothing is left that no slot needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bowstring.columnar.dictionary import Dictionary
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import batch_parts, derived, offset_bounds
from bowstring.columnar.slice import slice_parts

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch


def compacted(batch: Batch) -> Batch:
    """Return a batch with the same values that holds no more than it must; the batch itself where nothing changes.

    On a device the host reads once, and for a batch that is not compact once more for each level of nesting.
    """
    dictionaries: dict[int, Dictionary] = {}
    same = True
    for id_, each in batch.dictionaries.items():
        dictionaries[id_] = _compacted_dictionary(each)
        same &= dictionaries[id_] is each
    if is_compact(batch):
        return batch if same else derived(batch, batch_parts(batch), batch.num_rows, dictionaries)
    parts = slice_parts(batch_parts(batch), batch.device, 0, batch.num_rows, trim=True)
    return derived(batch, parts, batch.num_rows, dictionaries)


def _compacted_dictionary(dictionary: Dictionary) -> Dictionary:
    # Kept, so that batches that shared a dictionary still do.
    if not dictionary._is_compact and dictionary._compact is None:
        values = compacted(dictionary.values)
        # Never itself: a cycle would keep its memory until the collector comes by.
        dictionary._is_compact = values is dictionary.values
        if not dictionary._is_compact:
            dictionary._compact = Dictionary(dictionary.id, values, dictionary.lease)
    return dictionary._compact or dictionary


def is_compact(batch: Batch) -> bool:
    """Whether nothing can be left out of a batch, its dictionaries aside: O(columns), one read by the host."""
    layout, nodes = batch.layout, batch_parts(batch).nodes
    if (nodes[:, 1] < 0).any():
        return False
    lengths = nodes[:, 0]
    if not layout.is_flat:
        exact = lengths[layout.bounded_children] == lengths[layout.bounding_parents] * layout.bounding_factors
        if not exact.all():
            return False
    parts = batch_parts(batch)
    sizes = parts.spans.table[layout.fixed_buffers(parts.variadic_counts), 2]
    needed = layout.minimum_lengths(lengths)
    needed[layout.validity_buffers] *= nodes[layout.validity_nodes, 1] > 0
    if not ((sizes == needed) | (layout.buffer_kinds == Kind.BYTES)).all():
        return False
    return _offsets_span_all(batch)  # the one part that reads


def _offsets_span_all(batch: Batch) -> bool:
    """Whether offsets start at 0 and end where their bytes or children end, and run ends where their rows do."""
    parts = batch_parts(batch)
    layout = batch.layout
    if not (layout.offsets or layout.run_ends):
        return True
    lengths = parts.nodes[:, 0].tolist()
    fixed = layout.fixed_buffers(parts.variadic_counts)
    for node, position, _, child in layout.offsets:
        if not lengths[node] and (
            lengths[child] if child >= 0 else parts.spans.table[fixed[position + 1], 2]
        ):
            return False
    for node in layout.run_ends:
        ends, values = layout.nodes[node].children
        if lengths[ends] != lengths[values] or bool(lengths[ends]) != bool(lengths[node]):
            return False
    return all(end.last == end.bound and (end.is_runs or not end.first) for end in offset_bounds(batch))
