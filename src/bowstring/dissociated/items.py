"""Items: the messages of a stream as its producer has them, and what each lends."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from bowstring.dissociated.wire import pack_pairs
from bowstring.memory.arrays import distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from bowstring.memory import Region


@dataclasses.dataclass(frozen=True, slots=True)
class IpcMessage:
    """One message of a stream, as its producer has it."""

    metadata: bytes  # the flatbuffer
    # shape (n, 3): region index, offset, length of each buffer; None for a schema
    spans: npt.NDArray[np.int64] | None = None
    regions: Sequence[Region] = ()
    pieces: Sequence[Any] = ()  # the packed body, for type 0
    nbytes: int = 0  # sum of the lengths of the buffers
    charged: bool = False  # memory made for this reader: costs credit while it has it
    lent: list[LentBody] = dataclasses.field(default_factory=list, compare=False)  # the last lending


class LentBody(NamedTuple):
    """What a body of pointers lends, as it is sent to the reader."""

    indices: list[int]  # into the item's regions: those that the body points into
    bases: list[int]  # where each of them lies in the stream
    counts: list[int]  # addresses in each of them
    addresses: list[int]  # of all buffers that are not empty
    message: bytes  # the body

    @classmethod
    def of(cls, spans: npt.NDArray[np.int64], indices: list[int], bases: list[int]) -> Self:
        """Lay the buffers of `spans` out over regions that lie at `bases`."""
        used = spans[:, 2] > 0
        kept = spans[used]
        base_of = np.zeros(max(indices, default=0) + 1, np.uint64)
        base_of[indices] = bases
        pairs = np.zeros((len(spans), 2), np.uint64)
        pairs[used, 0] = base_of[kept[:, 0]] + kept[:, 1].astype(np.uint64)
        pairs[used, 1] = kept[:, 2]
        counts = np.bincount(kept[:, 0], minlength=len(base_of))[indices].tolist()
        message = pack_pairs(pairs, int(kept[:, 2].sum()))
        return cls(indices, bases, counts, pairs[used, 0].tolist(), message)


def used_regions(spans: npt.NDArray[np.int64]) -> list[int]:
    """Return which regions a body points into: others may be nobody's to map, or hold unwanted columns."""
    return distinct(spans[spans[:, 2] > 0, 0])


def regions_of(items: Iterable[IpcMessage]) -> list[Region]:
    """Return the regions that the bodies of some items point into, each once, in the order of their first use."""
    regions = {
        item.regions[index].uuid: item.regions[index]
        for item in items
        if item.spans is not None
        for index in (item.lent[-1].indices if item.lent else used_regions(item.spans))
    }
    return list(regions.values())
