"""What a compressed body claims to hold, read and bounded before anything is allocated for it.

A frame of 2 kB can claim gigabytes, and ZSTD makes them true. Three bounds hold: the claims of a message together,
absolutely and in proportion to its body (:class:`~bowstring.limits.Limits`); and each claim by what its node needs,
where the layout says that: only text, binary and the data of views may be of any length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.columnar.nodes import Kind
from bowstring.errors import InvalidBody, LimitExceeded
from bowstring.ipc.body.check import buffer_name, check_counts, check_nodes, check_spans
from bowstring.ipc.compression.codec import PREFIX_BYTES, STORED

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.flatbuf.message import RecordBatchHeader
    from bowstring.limits import Limits

__all__ = ["SLACK", "Claims", "check_claims", "most_decompressed"]

SLACK = 1 << 16
"""Bytes that a buffer may be longer than twice what its node needs: some writers send all that they allocated."""

# As in `check`: on arrays this small, looking for a byte is ten times as fast as any reduction of NumPy's.
_TRUE = 1
_NOTHING = np.array(0)
_BYTES = np.array(Kind.BYTES, np.uint8)

Table = npt.NDArray[np.int64]


class Claims(NamedTuple):
    """The lengths of the buffers of a batch, decompressed.

    Attributes
    ----------
    lengths : ndarray of int64, shape (buffers,)
        Bytes.
    framed, stored : ndarray of int64
        Which buffers are frames, and which are there as they are, behind their prefix.
    total : int
        Bytes of all.
    """

    lengths: Table
    framed: Table
    stored: Table
    total: int


def check_claims(
    header: RecordBatchHeader, layout: Layout, body: npt.NDArray[np.uint8], limits: Limits
) -> Claims:
    """Check the header of a batch against its layout and its compressed body.

    Parameters
    ----------
    header, layout
        As for :func:`bowstring.ipc.body.check.check`.
    body : ndarray of uint8
        All of the message's body, on the host.
    limits
        ``decompressed_bytes``, ``decompression_ratio`` and ``decompression_floor`` apply.

    Raises
    ------
    InvalidMetadata
        The header does not fit the layout, or its buffers do not lie in the body or are too short for their nodes.
    InvalidBody
        The length before a buffer makes no sense.
    LimitExceeded
        Decompressed, the body would be larger than the limits.
    """
    check_counts(header, layout)
    check_spans(header, layout, len(body))
    claims = _read(header, layout, body)
    _check_total(claims.total, len(body), limits)
    # Places no longer matter; what counts from here on is what each buffer will be.
    plain = header.buffers.copy()
    plain[:, 1] = claims.lengths
    plain_header = header._replace(buffers=plain)
    check_nodes(plain_header, layout)
    _check_each(plain_header, layout)
    return claims


def _read(header: RecordBatchHeader, layout: Layout, body: npt.NDArray[np.uint8]) -> Claims:
    offsets, lengths = header.buffers[:, 0], header.buffers[:, 1]
    present = lengths.nonzero()[0]
    sizes = lengths[present]
    if _TRUE in (sizes < PREFIX_BYTES).tobytes():
        position = int(present[np.flatnonzero(sizes < PREFIX_BYTES)[0]])
        raise InvalidBody(
            "a compressed buffer is too short for its length",
            expected=f"at least {PREFIX_BYTES} bytes, or none",
            found=f"{lengths[position]} bytes",
            where=buffer_name(header, layout, position),
        )
    # Buffers begin at multiples of 8, and so do their lengths.
    words = body[: len(body) & -PREFIX_BYTES].view("<i8")
    found = words[offsets[present] >> 3]
    is_stored = found == STORED
    # No frame is that short, but some writers put a length of 0 before nothing.
    is_nothing = (sizes == PREFIX_BYTES) & (found == _NOTHING)
    if _TRUE in is_stored.tobytes():
        found[is_stored] = sizes[is_stored] - PREFIX_BYTES
    if _TRUE in (found < _NOTHING).tobytes():
        position = int(np.flatnonzero(found < 0)[0])
        raise InvalidBody(
            "the length of a compressed buffer is negative",
            expected=f"0 or more, or {STORED} for one that is not compressed",
            found=int(found[position]),
            where=buffer_name(header, layout, int(present[position])),
        )
    claimed = np.zeros(len(lengths), np.int64)
    claimed[present] = found
    framed = present[~(is_stored | is_nothing)]
    return Claims(claimed, framed, present[is_stored], sum(found.tolist()))


def most_decompressed(body_length: int, limits: Limits) -> int:
    """Return how many bytes a body may become.

    Examples
    --------
    >>> from bowstring.limits import Limits
    >>> most_decompressed(10, Limits(decompression_floor=1, decompression_ratio=3.0))
    30
    """
    in_proportion = max(limits.decompression_floor, int(limits.decompression_ratio * body_length))
    return min(limits.decompressed_bytes, in_proportion)


def _check_total(total: int, body_length: int, limits: Limits) -> None:
    most = most_decompressed(body_length, limits)
    if total <= most:
        return
    name = "decompressed_bytes" if total > limits.decompressed_bytes else "decompression_ratio"
    raise LimitExceeded(
        "a body would be too large when it is decompressed",
        expected=f"at most {most} bytes of a body of {body_length}",
        found=f"{total} bytes",
        hint=f"Limits.{name} sets the bound.",
    )


def _check_each(header: RecordBatchHeader, layout: Layout) -> None:
    """Refuse buffers that are longer than their nodes can need; that they are no shorter has been checked."""
    needed = (
        layout.plain_rows(header.length).minimum
        if layout.is_flat
        else layout.minimum_lengths(header.nodes[:, 0])
    )
    found = header.buffers[:, 1]
    if header.variadic_counts:
        found = found[layout.fixed_buffers(header.variadic_counts)]
    # Where a node has more slots than can be counted in bytes, `needed` means nothing, and its buffers are absent.
    long = (found - SLACK > needed + needed) & (found > _NOTHING) & (layout.buffer_kinds != _BYTES)
    if _TRUE in long.tobytes():
        position = int(np.flatnonzero(long)[0])
        at = int(layout.fixed_buffers(header.variadic_counts)[position])
        raise InvalidBody(
            "a compressed buffer claims to be longer than its node needs",
            expected=f"{needed[position]} bytes",
            found=f"{found[position]} bytes",
            where=buffer_name(header, layout, at),
        )
