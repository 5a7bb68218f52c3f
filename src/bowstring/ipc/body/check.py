"""Whether the numbers in a record batch's header fit its schema and its body.

Structure only, from the header alone, in O(columns) and with a fixed number of NumPy operations; the offsets
at the two ends of every offsets buffer are looked at by :mod:`bowstring.ipc.body.offset_bounds`. What is in between
is looked at by full validation.

Two rules are stricter than Arrow C++'s reader. A validity bitmap that is there must be long enough even where the
null count is 0, since some readers look at it. Nodes that have no bitmap, unions and runs, have a null count of 0;
a stream's reader sets it, for writers that count the nulls of children there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np
import numpy.typing as npt

from bowstring.columnar.nodes import Kind
from bowstring.errors import InvalidMetadata
from bowstring.remembered import remembered

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout
    from bowstring.columnar.nodes import PlainRows
    from bowstring.ipc.flatbuf.message import RecordBatchHeader

__all__ = ["buffer_name", "check", "check_counts", "check_nodes", "check_pairs", "check_spans", "node_name"]

Table64 = npt.NDArray[np.int64]

# On arrays this small, looking for a byte is ten times as fast as any reduction of NumPy's, and comparing with
# an array of no dimensions twice as fast as with a number.
_TRUE = 1
_union = np.bitwise_or.reduce
_SIGN = 1 << 63
_SINGLE_BYTES = 7
_KEPT_BUFFERS = 8192
_UNKNOWN = np.array(-1)
_NOTHING = np.array(0)
_NARROW = 1 << 31


def check(header: RecordBatchHeader, layout: Layout, body_length: int) -> None:
    """Check the header of a batch whose buffers lie in one body.

    Parameters
    ----------
    header
        From :func:`bowstring.ipc.flatbuf.message.decode_record_batch`.
    layout
        Of the stream's schema.
    body_length
        Bytes of the body that is really there.

    Raises
    ------
    InvalidMetadata
        Something does not fit; the message names the column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> from bowstring.ipc.flatbuf.message import decode_message, decode_record_batch
    >>> batch = pa.record_batch({"a": [1, 2, 3]})
    >>> message = decode_message(pa.ipc.read_message(batch.serialize()).metadata)
    >>> check(decode_record_batch(message), Layout.of(batch.schema), message.body_length)
    >>> check(decode_record_batch(message), Layout.of(batch.schema), 16)
    Traceback (most recent call last):
      ...
    bowstring.errors.InvalidMetadata: a buffer lies outside the body; expected an end of at most 16; ...
    """
    check_counts(header, layout)
    check_spans(header, layout, body_length)
    check_nodes(header, layout)


def check_pairs(header: RecordBatchHeader, layout: Layout, lengths: Table64) -> None:
    """Check the header of a batch whose buffers are given by address (a type 1 body).

    Parameters
    ----------
    header, layout
        As for :func:`check`; the offsets in the header have no meaning here.
    lengths : ndarray of int64, shape (buffers,)
        Length of each pair. It must be the length that the header says.

    Raises
    ------
    InvalidMetadata
        Something does not fit.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> from bowstring.ipc.flatbuf.message import decode_message, decode_record_batch
    >>> batch = pa.record_batch({"a": [1, 2, 3]})
    >>> header = decode_record_batch(decode_message(pa.ipc.read_message(batch.serialize()).metadata))
    >>> check_pairs(header, Layout.of(batch.schema), np.array([0, 24]))
    """
    check_counts(header, layout)
    said = header.buffers[:, 1]
    if len(lengths) != len(said):
        raise InvalidMetadata(
            "wrong number of pairs", expected=f"{len(said)}, one a buffer", found=len(lengths)
        )
    if _TRUE in (said != lengths).tobytes():
        position = int(np.flatnonzero(said != lengths)[0])
        raise InvalidMetadata(
            "a pair and the metadata differ in a buffer's length",
            expected=int(said[position]),
            found=int(lengths[position]),
            where=buffer_name(header, layout, position),
        )
    if _TRUE in (said < _NOTHING).tobytes():
        position = int(np.flatnonzero(said < 0)[0])
        _refuse_buffer("the length of a buffer is negative", header, layout, position)
    check_nodes(header, layout)


def check_counts(header: RecordBatchHeader, layout: Layout) -> None:
    """Check that a batch has the nodes and buffers of its layout, as many as there should be."""
    if header.length < 0:
        raise InvalidMetadata("the length of the batch is negative", found=header.length)
    if len(header.nodes) != layout.num_nodes:
        raise InvalidMetadata("wrong number of nodes", expected=layout.num_nodes, found=len(header.nodes))
    expected = layout.num_buffers
    counts = header.variadic_counts
    if counts or layout.variadic_nodes:
        if len(counts) != len(layout.variadic_nodes):
            raise InvalidMetadata(
                "wrong number of variadic buffer counts",
                expected=len(layout.variadic_nodes),
                found=len(counts),
            )
        if min(counts) < 0:
            raise InvalidMetadata("a variadic buffer count is negative", found=min(counts))
        expected += sum(counts)
    if len(header.buffers) != expected:
        raise InvalidMetadata("wrong number of buffers", expected=expected, found=len(header.buffers))


def check_spans(header: RecordBatchHeader, layout: Layout, body_length: int) -> None:
    """Check that all buffers lie in the body, each at a multiple of 8 bytes; the counts have been checked."""
    spans = header.buffers.view(np.uint64).reshape(-1)
    offsets, lengths = spans[::2], spans[1::2]
    forbidden = _forbidden(len(offsets))
    # Where none is negative, no sum of two unsigned ones can wrap.
    if (
        np.count_nonzero(spans & forbidden)
        or _TRUE in (offsets + lengths > np.array(body_length, np.uint64)).tobytes()
    ):
        _refuse_spans(header, layout, body_length)


def _usual(count: int) -> bool:
    return count <= _KEPT_BUFFERS


@remembered(32, _usual)
def _forbidden(count: int) -> npt.NDArray[np.uint64]:
    """Return the bits that so many offsets and lengths must not have: signs, and offsets those of single bytes."""
    return np.tile(np.array([_SIGN | _SINGLE_BYTES, _SIGN], np.uint64), count)


def check_nodes(header: RecordBatchHeader, layout: Layout) -> None:
    """Check nodes, and that each buffer is as long as its node needs; the counts have been checked."""
    if layout.is_flat:
        _check_flat_nodes(header, layout)
        return
    lengths, nulls = header.nodes[:, 0], header.nodes[:, 1]
    if _TRUE in (lengths[layout.column_nodes] != header.length).tobytes():
        _refuse_length(header, layout)
    longest = _check_children(layout, lengths)
    _check_null_counts(layout, lengths, nulls)
    if longest > layout.longest:
        _check_sizes_exactly(header, layout)
    else:
        _check_sizes(header, layout, layout.minimum_lengths(lengths), nulls)


def _check_flat_nodes(header: RecordBatchHeader, layout: Layout) -> None:
    nodes = header.nodes
    plain = layout.plain_rows(header.length)
    if nodes.tobytes() == plain.nodes:
        _check_sizes(header, layout, plain.minimum, None)
        return
    lengths, nulls = nodes[:, 0], nodes[:, 1]
    if lengths.tobytes() != plain.lengths:
        _refuse_length(header, layout)
    if _TRUE in (nodes.view(np.uint64) > plain.bound).tobytes():
        _check_null_counts(layout, lengths, nulls)
    if header.length > layout.longest:
        _check_sizes_exactly(header, layout)
    elif header.variadic_counts or not _sizes_are_plain(header.buffers[:, 1], layout, plain, nulls):
        _check_sizes(header, layout, plain.minimum, nulls)


def _sizes_are_plain(sizes: Table64, layout: Layout, plain: PlainRows, nulls: Table64) -> bool:
    """Whether all buffers are surely long enough, where a few operations on slices tell.

    Bitmaps are either as long as they must be, or empty and of nodes whose null count is 0.
    """
    at, of, values_at = layout.validity_at, layout.validity_of, layout.values_at
    if not (isinstance(at, slice) and isinstance(of, slice) and isinstance(values_at, slice)):
        return False
    if _TRUE in (sizes[values_at] < plain.values).tobytes():
        return False
    bitmaps = sizes[at]
    wanted = (bitmaps | nulls[of]) != _NOTHING
    return bool((bitmaps >= plain.bitmap).tobytes() == wanted.tobytes())


def _check_children(layout: Layout, lengths: Table64) -> int:
    """Check the lengths of children against their parents' and return a bound on all lengths."""
    longest = int(_union(lengths))
    if longest < 0:
        node = int(np.flatnonzero(lengths < 0)[0])
        raise InvalidMetadata(
            "the length of a node is negative", found=int(lengths[node]), where=node_name(layout, node)
        )
    if layout.bounded_children.size:
        parents = lengths[layout.bounding_parents]
        if longest >= _NARROW:
            needed = np.array(
                [p * f for p, f in zip(parents.tolist(), layout.bounding_factors.tolist(), strict=True)],
                dtype=object,
            )
        else:
            needed = parents * layout.bounding_factors
        short = lengths[layout.bounded_children] < needed
        if _TRUE in short.tobytes():
            position = int(np.flatnonzero(short)[0])
            node = int(layout.bounded_children[position])
            raise InvalidMetadata(
                "a child is shorter than its parent needs",
                expected=f"at least {needed[position]}",
                found=int(lengths[node]),
                where=node_name(layout, node),
            )
    for node in layout.run_ends:
        _check_run_ends(layout, node, lengths)
    return longest


def _check_run_ends(layout: Layout, node: int, lengths: Table64) -> None:
    ends, values = layout.nodes[node].children
    if lengths[values] < lengths[ends] or (lengths[node] and not lengths[ends]):
        raise InvalidMetadata(
            "too few runs or too few values of runs",
            expected=f"{lengths[ends] or 1} of each",
            found=f"{lengths[ends]} ends and {lengths[values]} values",
            where=node_name(layout, node),
        )


def _check_null_counts(layout: Layout, lengths: Table64, nulls: Table64) -> None:
    if _TRUE in (nulls > lengths).tobytes() or _TRUE in (nulls < _UNKNOWN).tobytes():
        node = int(np.flatnonzero((nulls < _UNKNOWN) | (nulls > lengths))[0])
        raise InvalidMetadata(
            "impossible null count",
            expected=f"0 to {lengths[node]}, or -1 for unknown",
            found=int(nulls[node]),
            where=node_name(layout, node),
        )
    if layout.never_null.size and np.count_nonzero(nulls[layout.never_null]):
        node = int(layout.never_null[np.flatnonzero(nulls[layout.never_null])[0]])
        raise InvalidMetadata(
            "unions, runs, and entries and keys of maps cannot be null",
            found=f"null count {nulls[node]}",
            where=node_name(layout, node),
        )


def _check_sizes(header: RecordBatchHeader, layout: Layout, minimum: Table64, nulls: Table64 | None) -> None:
    """Check that every buffer holds what its node's length needs; ``nulls`` is None where nothing is null."""
    sizes = header.buffers[:, 1]
    if header.variadic_counts:
        sizes = sizes[layout.fixed_buffers(header.variadic_counts)]
    short = sizes < minimum
    shorts = short.tobytes().count(_TRUE)
    if not shorts:
        return
    # Mostly these are all bitmaps of columns without nulls, and empty; anything else is looked at closely.
    bitmaps = short[layout.validity_at]
    present = sizes[layout.validity_at]
    if nulls is not None:
        present = present | nulls[layout.validity_of]
    if bitmaps.tobytes().count(_TRUE) == shorts and _TRUE not in (bitmaps & (present != _NOTHING)).tobytes():
        return
    if _TRUE in (short & (sizes != layout.absent_length)).tobytes():
        _refuse_size(header, layout, int(np.flatnonzero(short & (sizes != layout.absent_length))[0]))
    if nulls is not None:
        missing = bitmaps & (nulls[layout.validity_of] > _NOTHING)
        if _TRUE in missing.tobytes():
            node = int(layout.validity_nodes[np.flatnonzero(missing)[0]])
            raise InvalidMetadata(
                "a validity bitmap is missing", found=f"{nulls[node]} nulls", where=node_name(layout, node)
            )


def _check_sizes_exactly(header: RecordBatchHeader, layout: Layout) -> None:
    """The same in Python's integers, for lengths whose bytes would overflow 64 bits."""
    sizes = header.buffers[:, 1][layout.fixed_buffers(header.variadic_counts)].tolist()
    nodes = header.nodes.tolist()
    for position, size in enumerate(sizes):
        kind = layout.buffer_kinds[position]
        length, nulls = nodes[layout.buffer_nodes[position]]
        needed = _needed(layout, position, length)
        if size < needed and (kind != Kind.VALIDITY or size or nulls > 0):
            _refuse_size(header, layout, position)


def _needed(layout: Layout, position: int, length: int) -> int:
    ends = int(layout.buffer_end_bits[position]) if length else 0
    return (length * int(layout.buffer_bits[position]) + ends + 7) >> 3


def _refuse_buffer(
    what: str, header: RecordBatchHeader, layout: Layout, position: int, expected: object = None
) -> NoReturn:
    offset, length = header.buffers[position].tolist()
    found = f"{length} bytes at {offset}"
    raise InvalidMetadata(what, expected=expected, found=found, where=buffer_name(header, layout, position))


def _refuse_spans(header: RecordBatchHeader, layout: Layout, body_length: int) -> None:
    """Name the first buffer that is wrong; the offset of an empty one says nothing."""
    for position, (offset, length) in enumerate(header.buffers.tolist()):
        if length < 0 or (offset < 0 and length):
            _refuse_buffer("the offset or length of a buffer is negative", header, layout, position)
        if length and offset + length > body_length:
            expected = f"an end of at most {body_length}"
            _refuse_buffer("a buffer lies outside the body", header, layout, position, expected)
        if length and offset % 8:
            expected = "an offset that is a multiple of 8"
            _refuse_buffer("a buffer is misaligned", header, layout, position, expected)


def _refuse_length(header: RecordBatchHeader, layout: Layout) -> NoReturn:
    for node in layout.columns:
        length = int(header.nodes[node, 0])
        if length != header.length:
            raise InvalidMetadata(
                "a column has another length than the batch",
                expected=header.length,
                found=length,
                where=node_name(layout, node),
            )
    raise AssertionError("unreachable")


def _refuse_size(header: RecordBatchHeader, layout: Layout, position: int) -> NoReturn:
    actual = int(layout.fixed_buffers(header.variadic_counts)[position])
    node = int(layout.buffer_nodes[position])
    length = int(header.nodes[node, 0])
    raise InvalidMetadata(
        "a buffer is too short for its node",
        expected=f"{_needed(layout, position, length)} bytes for {length} slots",
        found=f"{header.buffers[actual, 1]} bytes",
        where=buffer_name(header, layout, actual),
    )


def node_name(layout: Layout, node: int) -> str:
    """Return how errors call a node."""
    return f"column {'.'.join(layout.nodes[node].path)!r} (node {node})"


def buffer_name(header: RecordBatchHeader, layout: Layout, position: int) -> str:
    """Return how errors call a buffer of a batch; the counts have been checked."""
    first = layout.first_buffers(header.variadic_counts)
    node = int(np.searchsorted(first, position, side="right")) - 1
    kinds = layout.nodes[node].buffer_kinds
    within = position - int(first[node])
    kind = kinds[within] if within < len(kinds) else Kind.VARIADIC
    return f"{kind.name} of {node_name(layout, node)}, buffer {position}"
