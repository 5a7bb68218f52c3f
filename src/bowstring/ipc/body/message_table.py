"""What many messages say that look alike: one row of a table for each, and whether it is right.

Right is what :mod:`bowstring.ipc.body.check` finds right. Where that takes more than a few operations on tables,
a message counts as not right here, and is looked at by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.columnar.nodes import Kind
from bowstring.ipc.flatbuf.message import MetadataVersion

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.body.template import Likeness

__all__ = [
    "Flags",
    "Numbers",
    "Table",
    "all_of",
    "can_take",
    "leading",
    "minimum_sizes",
    "nodes_are_right",
    "numbers_of",
    "places_are_right",
    "sizes_are_right",
]

Table = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_LONGEST: Final = 1 << 31
_WORD: Final = 8


class Numbers(NamedTuple):
    """What some messages say.

    Attributes
    ----------
    lengths : ndarray of int64, shape (messages,)
        Rows of each batch.
    nodes : ndarray of int64, shape (messages, nodes, 2)
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

    def first(self, count: int) -> Numbers:
        """Return what the first messages say."""
        return self if count == len(self.lengths) else Numbers(*(each[:count] for each in self))


def can_take(like: Likeness, layout: Layout) -> bool:
    """Whether batches of a layout can be made of messages that look so, many at a time."""
    return (
        like.version is MetadataVersion.V5
        and not layout.run_ends
        and like.nodes[1] == (layout.num_nodes, 2)
        and like.size % _WORD == 0
        and len(like.variadic_counts) == len(layout.variadic_nodes)
        and like.buffers[1] == (layout.num_buffers + sum(like.variadic_counts), 2)
    )


def numbers_of(metadata: bytes, places: list[int], like: Likeness) -> Numbers:
    """Find the numbers of messages, of those in front that look alike.

    Parameters
    ----------
    metadata
        Of all messages, one behind the other, each of ``like.size`` bytes.
    places
        Where their bodies are.
    """
    count = len(places)
    rows = np.frombuffer(metadata, np.uint8).reshape(count, like.size)
    alike = np.ones(count, np.bool_)
    for where, expected in like.same:
        alike &= all_of(rows[:, where] == np.frombuffer(expected, np.uint8))
    count = leading(alike)
    words = np.frombuffer(metadata, "<i8").reshape(len(places), like.size // _WORD)[:count]

    def table(place: int, shape: tuple[int, ...]) -> Table:
        first = place // _WORD
        found: Table = words[:, first : first + shape[0] * shape[1]].reshape(count, *shape)
        return found

    return Numbers(
        words[:, like.length // _WORD],
        table(*like.nodes),
        table(*like.buffers),
        words[:, like.body_length // _WORD],
        np.array(places[:count], np.int64),
    )


def nodes_are_right(found: Numbers, layout: Layout) -> Flags:
    """Whether lengths and null counts fit the schema and each other."""
    lengths, nulls = found.nodes[:, :, 0], found.nodes[:, :, 1]
    fine = all_of((lengths >= 0) & (lengths < _LONGEST) & (nulls >= -1) & (nulls <= lengths))
    fine &= all_of(lengths[:, layout.column_nodes] == found.lengths[:, None])
    if layout.bounded_children.size:
        needed = lengths[:, layout.bounding_parents] * layout.bounding_factors
        fine &= all_of(lengths[:, layout.bounded_children] >= needed)
    if layout.never_null.size:
        fine &= all_of(nulls[:, layout.never_null] == 0)
    if layout.null_nodes.size:
        fine &= all_of(nulls[:, layout.null_nodes] == lengths[:, layout.null_nodes])
    return fine


def places_are_right(found: Numbers) -> Flags:
    """Whether all buffers lie in their body, each at a multiple of 8 bytes."""
    # As unsigned numbers, negative ones are too large; and ``body - length`` cannot wrap once length <= body.
    spans = found.buffers.view(np.uint64)
    offsets, sizes, bodies = spans[:, :, 0], spans[:, :, 1], found.bodies.view(np.uint64)[:, None]
    return all_of((sizes <= bodies) & (offsets <= bodies - sizes) & (offsets % _WORD == 0))


def minimum_sizes(found: Numbers, layout: Layout) -> Table:
    """Return the bytes that each buffer needs that the layout knows of, if it is there at all."""
    slots = found.nodes[:, layout.buffer_nodes, 0]
    needed: Table = (slots * layout.buffer_bits + (slots > 0) * layout.buffer_end_bits + 7) >> 3
    return needed


def sizes_are_right(found: Numbers, layout: Layout, sizes: Table, minimum: Table) -> Flags:
    """Whether buffers of these sizes are as long as their nodes need; those of `nodes_are_right` only."""
    # A bitmap may be left out where nothing is null.
    nulls = found.nodes[:, layout.buffer_nodes, 1]
    needed = (layout.buffer_kinds != Kind.VALIDITY) | (sizes != 0) | (nulls > 0)
    return all_of((sizes >= minimum) | ~needed)


def all_of(flags: Flags) -> Flags:
    """Return, for each row, whether all of its flags are set."""
    every: Flags = np.logical_and.reduce(flags, axis=1)
    return every


def leading(flags: Flags) -> int:
    """Return how many flags are set before the first that is not.

    Examples
    --------
    >>> leading(np.array([True, True, False, True]))
    2
    """
    return len(flags) if flags.all() else int(np.argmin(flags))
