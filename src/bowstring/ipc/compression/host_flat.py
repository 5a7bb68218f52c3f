"""Compressed bodies of a few buffers in flat columns, on the host: the road of most batches, and a short one.

What was decompressed last has driven all other code from the processor's caches. A batch of a few buffers then
costs what the code costs that is fetched again for it, and plain integers take far less of that than NumPy.
Only what is surely right is taken here; anything else is left to :mod:`bowstring.ipc.compression.host`, which
takes every body and says what is wrong with one.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidBody, LimitExceeded
from bowstring.ipc.body.check_scalar import MOST_FEW, Rule, nodes_are_right, rules_of
from bowstring.ipc.compression.claims import SLACK, most_decompressed
from bowstring.ipc.compression.codec import PREFIX_BYTES, STORED, decompressed
from bowstring.ipc.source import region_around

if TYPE_CHECKING:
    import pyarrow as pa

    from bowstring.columnar.layout import Layout
    from bowstring.ipc.compression.codec import Means
    from bowstring.ipc.flatbuf.message import RecordBatchHeader
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Region

__all__ = ["FewClaims", "claims_of_few", "decompressed_few"]

_MOST: Final = MOST_FEW
_WORD: Final = 8
_INT64: Final = struct.Struct("<q")
_PLACE: Final = struct.Struct("<qq")


class FewClaims(NamedTuple):
    """What :class:`~bowstring.ipc.compression.claims.Claims` says, in plain integers.

    ``buffers`` are those of the header, ``places`` what
    :func:`~bowstring.ipc.compression.codec.decompressed` takes, and ``unused`` the bitmaps that
    :mod:`bowstring.ipc.body.unused_bitmaps` leaves out.
    """

    lengths: list[int]
    framed: list[int]
    stored: list[int]
    total: int
    buffers: list[list[int]]
    places: bytes
    unused: list[int]


def decompressed_few(
    header: RecordBatchHeader, layout: Layout, body: Buffer, limits: Limits, means: Means
) -> tuple[npt.NDArray[np.int64], list[Region]] | None:
    """Return what :func:`bowstring.ipc.compression.host.decompressed_body` does, or None where it must be asked.

    Parameters
    ----------
    header, layout, limits, means
        As there.
    body
        On the host.
    """
    if len(header.buffers) > _MOST or header.compression is None:
        return None
    whole = body.to_arrow()
    claims = claims_of_few(header, layout, memoryview(whole), limits)
    if claims is None:
        return None
    buffers: list[pa.Buffer] = []
    if claims.framed:
        means = means.for_bytes(claims.total)
        try:
            buffers = decompressed(whole, claims.places, header.compression, means)
        except (InvalidBody, LimitExceeded):
            return None
    return _placed(claims, buffers, body, means.memory_pool)


def claims_of_few(
    header: RecordBatchHeader, layout: Layout, body: memoryview, limits: Limits
) -> FewClaims | None:
    """Return what :func:`~bowstring.ipc.compression.claims.check_claims` does of a body that it would surely take.

    Parameters
    ----------
    header, layout, limits
        As there.
    body
        All of the message's body.
    """
    rules = rules_of(layout)
    if rules is None or header.variadic_counts or not len(header.buffers) == len(rules) <= _MOST:
        return None
    nodes = header.nodes.tolist()
    if len(nodes) != layout.num_nodes or not nodes_are_right(nodes, header.length):
        return None
    lengths: list[int] = []
    framed: list[int] = []
    stored: list[int] = []
    places: list[bytes] = []
    unused: list[int] = []
    buffers = header.buffers.tolist()
    for row, ((offset, size), rule) in enumerate(zip(buffers, rules, strict=True)):
        if not 0 <= size <= len(body) or not 0 <= offset <= len(body) - size or offset % _WORD:
            return None
        claimed = 0
        if size:
            if size < PREFIX_BYTES:
                return None
            (claimed,) = _INT64.unpack_from(body, offset)
            if claimed == STORED:
                claimed = size - PREFIX_BYTES
                stored.append(row)
            elif claimed or size > PREFIX_BYTES:
                framed.append(row)
                places.append(_PLACE.pack(offset, size))
        if not _is_right(claimed, rule, *nodes[rule.node]):
            return None
        lengths.append(claimed)
        if claimed and rule.is_bitmap and not nodes[rule.node][1]:
            unused.append(row)
    total = sum(lengths)
    if total > most_decompressed(len(body), limits):
        return None
    return FewClaims(lengths, framed, stored, total, buffers, b"".join(places), unused)


def _is_right(claimed: int, rule: Rule, rows: int, nulls: int) -> bool:
    """Whether a buffer has as many bytes as its node needs, and not many more."""
    needed = rule.needed(rows)
    if claimed < needed:
        return rule.is_bitmap and not claimed and nulls <= 0
    return rule.is_bytes or claimed - SLACK <= 2 * needed


def _placed(
    claims: FewClaims, buffers: list[pa.Buffer], body: Buffer, memory_pool: pa.MemoryPool | None
) -> tuple[npt.NDArray[np.int64], list[Region]]:
    """Return where the buffers are: frames in one region around them all, the others in the body.

    Raises
    ------
    InvalidBody
        A frame is not as long as it was before.
    """
    lengths = claims.lengths
    if [buffer.size for buffer in buffers] != [lengths[row] for row in claims.framed]:
        raise InvalidBody("the body changed while it was read")
    spans = [(0, 0, length) for length in lengths]
    offsets, regions = region_around(buffers, memory_pool)
    for row, offset in zip(claims.framed, offsets, strict=True):
        spans[row] = (0, offset, lengths[row])
    for row in claims.stored:
        spans[row] = (len(regions), claims.buffers[row][0] + body.offset + PREFIX_BYTES, lengths[row])
    if claims.stored:
        regions.append(body.region)
    for row in claims.unused:
        spans[row] = (0, 0, 0)
    return np.array(spans, np.int64).reshape(-1, 3), regions
