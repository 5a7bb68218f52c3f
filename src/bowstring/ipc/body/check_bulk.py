"""Whether the headers of record batches fit their schema and their bodies: arrays of messages × buffers.

The same rules as :mod:`bowstring.ipc.body.check_scalar`, in a fixed number of NumPy operations for hundreds of
messages, or for one message of many columns. What is right here is right there. What is not right here may still
be right there: the scalar form decides, and names the error. Null counts of -1, run-end encoded columns and very
large numbers are always left to it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.layout import Layout
    from bowstring.ipc.flatbuf.message import RecordBatchHeader
    from bowstring.memory import Region

__all__ = [
    "Flags",
    "MessageTable",
    "Table",
    "all_of",
    "header_is_right",
    "leading",
    "leave_out_unused_bitmaps",
    "minimum_sizes",
    "nodes_are_right",
    "offsets_are_right",
    "places_are_right",
    "sizes_are_right",
]

Table = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_LONGEST_LENGTH: Final = (1 << 31) - 1
_WORD: Final = 8
_KEPT_BUFFERS: Final = 8192
_FALSE: Final = 0
_TRUE: Final = 1
# Comparing a small array with an array of no dimensions is twice as fast as with a number.
_NOTHING: Final = np.array(0)
_LONGEST = np.array(_LONGEST_LENGTH, np.uint64)
_YES: Any = np.True_
_NO: Any = np.False_
# The sign, and what a multiple of 8 does not have.
_WRONG_OFFSET: Final = np.array(-(1 << 63) | 7)


class MessageTable(NamedTuple):
    """The numbers in the headers of some messages, or of one message (then without the first dimension).

    Attributes
    ----------
    lengths : ndarray of int64, shape (messages,)
        Rows of each batch.
    nodes : ndarray of int64, shape (messages, nodes, 2)
        Length and null count.
    buffers : ndarray of int64, shape (messages, buffers, 2)
        Offset in the body and length.
    bodies, places : ndarray of int64, shape (messages,)
        Bytes of each body, and where it begins.
    """

    lengths: Table
    nodes: Table
    buffers: Table
    bodies: Table
    places: Table

    def of_each(self, numbers: Table) -> Table:
        """Return one number a message, to be compared with all numbers of its nodes or buffers."""
        return numbers[:, None] if numbers.ndim else numbers

    def first(self, count: int) -> MessageTable:
        """Return the numbers of the first messages."""
        return self if count == len(self.lengths) else MessageTable(*(each[:count] for each in self))


def header_is_right(header: RecordBatchHeader, layout: Layout, body_length: int | None = None) -> bool:
    """Whether the header of one batch surely fits; its counts have been checked.

    Parameters
    ----------
    header, layout
        As for :func:`bowstring.ipc.body.check_scalar.check`.
    body_length
        Bytes of the body; by default the buffers are given by address, and where they lie has no meaning.
    """
    if layout.run_ends:
        return False
    body = _NOTHING if body_length is None else np.array(body_length)
    table = MessageTable(np.array(header.length), header.nodes, header.buffers, body, _NOTHING)
    if not nodes_are_right(table, layout):
        return False
    few = layout.is_flat and layout.num_buffers <= _KEPT_BUFFERS
    minimum = _minimum_of_rows(layout, header.length) if few else minimum_sizes(table, layout)
    sizes = table.buffers[..., 1]
    if header.variadic_counts:
        if _TRUE in (sizes < _NOTHING).tobytes():
            return False
        sizes = sizes[layout.fixed_buffers(header.variadic_counts)]
    fine = sizes_are_right(table, layout, sizes, minimum)
    return bool(fine and (body_length is None or places_are_right(table)))


@functools.lru_cache(16)
def _minimum_of_rows(layout: Layout, rows: int) -> Table:
    """Return :func:`minimum_sizes` of one message of flat columns: most batches of a stream are equally long."""
    return layout.minimum_lengths(np.full(layout.num_nodes, rows))


def nodes_are_right(table: MessageTable, layout: Layout) -> Flags:
    """Whether lengths and null counts fit the schema and each other."""
    lengths, rows = table.nodes[..., 0], table.of_each(table.lengths)
    columns = lengths if layout.is_flat else lengths[..., layout.column_nodes]
    longest = _LONGEST if layout.longest >= _LONGEST_LENGTH else np.array(layout.longest, np.uint64)
    # What is negative is too large a number without a sign.
    unsigned = table.nodes.view(np.uint64)
    slots, nulls = unsigned[..., 0], unsigned[..., 1]
    bounded = rows.view(np.uint64) if layout.is_flat else slots
    fine = all_of(columns == rows) & all_of(bounded <= longest)
    fine = fine & all_of(nulls <= slots)
    if layout.bounded_children.size:
        needed = lengths[..., layout.bounding_parents] * layout.bounding_factors
        fine = fine & all_of(lengths[..., layout.bounded_children] >= needed)
    if layout.never_null.size:
        fine = fine & all_of(table.nodes[..., layout.never_null, 1] == _NOTHING)
    if layout.null_nodes.size:
        null = layout.null_nodes
        fine = fine & all_of(table.nodes[..., null, 1] == lengths[..., null])
    return fine


def places_are_right(table: MessageTable) -> Flags:
    """Whether all buffers lie in their body, each at a multiple of 8 bytes; where no size is negative."""
    offsets, sizes = table.buffers[..., 0], table.buffers[..., 1]
    # Where neither is negative, neither this difference nor the sum can overflow.
    fine = all_of(offsets <= table.of_each(table.bodies) - sizes)
    return fine & all_of((offsets & _WRONG_OFFSET) == _NOTHING)


def minimum_sizes(table: MessageTable, layout: Layout) -> Table:
    """Return the bytes that each buffer of the layout needs, if it is there at all.

    Parameters
    ----------
    table
        Of messages that :func:`nodes_are_right` finds right: no length is so large that its bytes overflow, which
        :meth:`~bowstring.columnar.layout.Layout.minimum_lengths` asserts.
    layout
        Of all of them.

    Returns
    -------
    ndarray of int64, shape (messages, layout.num_buffers)
    """
    return layout.minimum_lengths(table.nodes[..., 0])


def sizes_are_right(table: MessageTable, layout: Layout, sizes: Table, minimum: Table) -> Flags:
    """Whether buffers of these sizes are as long as their nodes need; where :func:`nodes_are_right` only."""
    enough = sizes >= minimum
    if _FALSE in enough.tobytes():
        # A bitmap may be left out where nothing is null.
        at, nulls = layout.validity_at, table.nodes[..., layout.validity_of, 1]
        enough[..., at] |= (sizes[..., at] | nulls) == _NOTHING
    return all_of(enough)


def offsets_are_right(
    lengths: Table, spans: Table, layout: Layout, variadic_counts: Sequence[int], region: Region
) -> Flags:
    """Whether first and last offsets lie in what they delimit.

    Parameters
    ----------
    lengths : ndarray of int64, shape (…, nodes)
        Of nodes that are right.
    spans : ndarray of int64, shape (…, buffers, 3)
        As :class:`~bowstring.columnar.spans.Spans` has them, within the region.
    layout, variadic_counts
        Of all the batches.
    region
        Where all of them lie.
    """
    if not region.device.is_host or region.address % _WORD or region.nbytes < _WORD:
        return np.zeros(lengths.shape[:-1], np.bool_)
    fine: Flags = np.ones(lengths.shape[:-1], np.bool_)
    for nodes, buffers, width, children in layout.offset_groups:
        if variadic_counts:
            buffers = layout.fixed_buffers(variadic_counts)[buffers]  # noqa: PLW2901
        slots, rows = lengths[..., nodes], spans[..., buffers, :]
        limits = spans[..., buffers + 1, 2] if children is None else lengths[..., children]
        starts = rows[..., 1]
        # One offset more than slots, but where there are no slots there may be none: any number stands for them.
        used = slots > _NOTHING
        there = used & ((starts & (width - 1)) == _NOTHING) & (rows[..., 2] - slots * width >= width)
        first = starts // width
        some_missing = _FALSE in there.tobytes()
        if some_missing:
            first, slots = first * there, slots * there
        whole = region.array(0, region.nbytes & -width).view(f"<i{width}")
        begin, end = whole[first], whole[first + slots]
        right = (begin >= _NOTHING) & (begin <= end) & (end <= limits)
        fine = fine & all_of(right & there | ~used if some_missing else right)
    return fine


def leave_out_unused_bitmaps(
    spans: Table, nodes: Table, layout: Layout, variadic_counts: Sequence[int] = ()
) -> None:
    """Empty the validity bitmaps of nodes with a null count of 0, of one batch or of many.

    A writer may send such a bitmap with anything in it, and Arrow's readers do not look at it. It is left out of
    the batch, since a slice would count its bits, and a kernel or another library would believe them.

    Parameters
    ----------
    spans : ndarray of int64, shape (…, buffers, 3)
        As :class:`~bowstring.columnar.spans.Spans` has them, checked; lengths are written.
    nodes : ndarray of int64, shape (…, nodes, 2)
        Length and null count.
    layout, variadic_counts
        Of all the batches.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> layout = Layout.of(pa.schema({"a": pa.int8(), "b": pa.int8()}))
    >>> spans = np.array([(0, 0, 1), (0, 8, 3), (0, 16, 1), (0, 24, 3)])
    >>> leave_out_unused_bitmaps(spans, np.array([(3, 0), (3, 1)]), layout)
    >>> spans[:, 2].tolist()
    [0, 3, 1, 3]
    """
    lengths, at = spans[..., 2], layout.validity_at
    if variadic_counts:
        at = layout.fixed_buffers(variadic_counts)[layout.validity_buffers]
    # Mostly there are none, and looking costs less than writing.
    present = lengths[..., at] != _NOTHING
    if _TRUE in present.tobytes():
        lengths[..., at] *= nodes[..., layout.validity_of, 1] != _NOTHING


def all_of(flags: Flags) -> Flags:
    """Return for each message whether all of its flags are set."""
    if flags.ndim > 1:
        every: Flags = np.logical_and.reduce(flags, axis=1)
        return every
    # Of one message: on arrays this small, looking for a byte is ten times as fast as a reduction.
    one: Flags = _NO if _FALSE in flags.tobytes() else _YES
    return one


def leading(flags: Flags) -> int:
    """Return how many flags are set before the first that is not.

    Examples
    --------
    >>> leading(np.array([True, True, False, True]))
    2
    """
    return len(flags) if flags.all() else int(np.argmin(flags))
