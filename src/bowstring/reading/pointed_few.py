"""One record batch of a few buffers over a producer's memory: the road of most batches, and a short one.

A stream's first batch meets cold caches: the last one was long ago, and its data were looked at in between. Only
what is surely right is taken here; :class:`bowstring.reading.assembler.Assembler` takes anything else by itself,
and says what is wrong with it.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.ipc.body.check_scalar import MOST_FEW, Rule, nodes_are_right, rules_of

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout
    from bowstring.dissociated.leases import AnnouncedRegions
    from bowstring.ipc.flatbuf.message import RecordBatchHeader
    from bowstring.memory import Region

__all__ = ["FoundFew", "pointed_few"]

_NOWHERE = (0, 0, 0)


class FoundFew(NamedTuple):
    """Where the buffers of a batch lie, in which region, and the addresses that it borrows."""

    spans: npt.NDArray[np.int64]
    region: Region
    addresses: npt.NDArray[np.uint64]


def pointed_few(
    header: RecordBatchHeader,
    layout: Layout,
    pairs: npt.NDArray[np.uint64],
    announced: AnnouncedRegions,
) -> FoundFew | None:
    """Return where a batch lies that is surely right, its first and last offsets included; else None.

    Parameters
    ----------
    header
        Of a plain batch: not compressed, of metadata version V5.
    layout
        Of the stream's schema.
    pairs
        Address and length of each buffer.
    announced
        What they may point into; the batch is taken here if that is one region of the host.
    """
    if len(pairs) > MOST_FEW or len(announced.regions) != 1 or header.variadic_counts:
        return None
    rules = rules_of(layout)
    if rules is None or not len(rules) == len(pairs) == len(header.buffers):
        return None
    region, base = announced.alone
    nodes = header.nodes.tolist()
    if (
        not region.device.is_host
        or len(nodes) != layout.num_nodes
        or not nodes_are_right(nodes, header.length)
    ):
        return None
    spans: list[tuple[int, int, int]] = []
    addresses: list[int] = []
    for (address, length), (_, said), rule in zip(
        pairs.tolist(), header.buffers.tolist(), rules, strict=True
    ):
        rows, nulls = nodes[rule.node]
        if length != said or (length < rule.needed(rows) and (length or nulls > 0 or not rule.is_bitmap)):
            return None
        offset = address - base
        if length and not 0 <= offset <= region.nbytes - length:
            return None
        spans.append((0, offset, length) if length else _NOWHERE)
        if address:
            addresses.append(address)
    if not _offsets_are_right(rules, nodes, spans, region.address):
        return None
    return FoundFew(np.array(spans, np.int64).reshape(-1, 3), region, np.array(addresses, np.uint64))


def _offsets_are_right(
    rules: tuple[Rule, ...], nodes: list[list[int]], spans: list[tuple[int, int, int]], address: int
) -> bool:
    """Whether first and last offsets lie in the bytes behind them; the sizes have been checked."""
    for row, rule in enumerate(rules):
        width, rows = rule.offset_width, nodes[rule.node][0]
        if width and rows:
            begin = address + spans[row][1]
            first, last = _integer(begin, width), _integer(begin + rows * width, width)
            if not 0 <= first <= last <= spans[row + 1][2]:
                return False
    return True


def _integer(address: int, width: int) -> int:
    return int.from_bytes(ctypes.string_at(address, width), "little", signed=True)
