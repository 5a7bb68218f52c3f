"""Items: the messages of a stream as its producer has them, and what each lends."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from bowstring.dissociated.tags import PACKED, SEQUENCE_MASK, body_tag
from bowstring.dissociated.wire import METADATA, Outgoing, pack_pairs, pack_prefix
from bowstring.memory.arrays import distinct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from bowstring.memory import Region

__all__ = [
    "IpcMessage",
    "IpcMessageRun",
    "Lending",
    "OutgoingRun",
    "Said",
    "in_runs",
    "regions_of",
    "used_regions",
]

# The first batches go before the others are looked at. More bytes in one call of the kernel gain nothing.
_FEWEST: Final = 4
_GROWTH: Final = 4
_MOST: Final = 64
_MOST_BYTES: Final = 2 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class IpcMessage:
    """One message of a stream, as its producer has it.

    Attributes
    ----------
    metadata
        The raw flatbuffer.
    spans
        (region index, offset, length) of each buffer, shape ``(n, 3)``, or ``None`` for a schema.
    regions
        What the spans index.
    pieces
        The packed body, for type 0.
    nbytes
        Sum of the lengths of the buffers.
    charged
        Whether the memory was made for this reader and so costs credit as long as the reader has it.
    lent
        How it was lent the last time.
    """

    metadata: bytes
    spans: npt.NDArray[np.int64] | None = None
    regions: Sequence[Region] = ()
    pieces: Sequence[Any] = ()
    nbytes: int = 0
    charged: bool = False
    lent: list[Lending] = dataclasses.field(default_factory=list, compare=False)

    def said(self, sequence: int) -> Outgoing:
        """Return the message of the metadata."""
        return Outgoing(None, [pack_prefix(METADATA, sequence), self.metadata])

    def packed(self, sequence: int) -> Outgoing:
        """Return the message of the packed body."""
        return Outgoing(body_tag(sequence, PACKED), self.pieces)


@dataclasses.dataclass(slots=True)
class OutgoingRun:
    """The messages of a run of items, the same for each reader.

    Attributes
    ----------
    first
        The number of the first one.
    items
        The items, whose bodies are packed.
    made
        What a transport made of the messages, to send them again.
    """

    first: int
    items: Sequence[IpcMessage]
    made: Any = dataclasses.field(default=None, compare=False, repr=False)

    def messages(self) -> list[Outgoing]:
        """Return the messages one by one."""
        return [
            message
            for number, item in enumerate(self.items, self.first)
            for message in (item.said(number & SEQUENCE_MASK), item.packed(number & SEQUENCE_MASK))
        ]


Said = Outgoing | OutgoingRun


@dataclasses.dataclass(frozen=True, slots=True)
class IpcMessageRun:
    """Items of a resident data set, each with a body, that go together to every reader who takes packed bodies.

    Attributes
    ----------
    items
        One behind the other.
    nbytes
        Sum of theirs: the credit that all of them cost.
    """

    items: Sequence[IpcMessage]
    nbytes: int
    _said: list[OutgoingRun] = dataclasses.field(default_factory=list, compare=False, repr=False)

    def said(self, first: int) -> OutgoingRun:
        """Return the messages, where the first one has the number `first`, as it mostly has for every reader."""
        last = self._said[-1] if self._said else None
        if last is None or last.first != first:
            last = OutgoingRun(first, self.items)
            self._said[:] = [last]
        return last


def in_runs(items: Iterable[IpcMessage]) -> Iterator[IpcMessage | IpcMessageRun]:
    """Yield items in the same order, as many together as are worth it; alone, those without a body or too large.

    Examples
    --------
    >>> spans = np.zeros((1, 3), np.int64)
    >>> small, large = IpcMessage(b"", spans, nbytes=1 << 10), IpcMessage(b"", spans, nbytes=1 << 30)
    >>> [type(each).__name__ for each in in_runs([IpcMessage(b""), small, small, large, small])]
    ['IpcMessage', 'IpcMessageRun', 'IpcMessage', 'IpcMessage']
    """
    held: list[IpcMessage] = []
    nbytes, most = 0, _FEWEST
    for item in items:
        alone = item.spans is None or item.nbytes > _MOST_BYTES
        if held and (alone or len(held) >= most or nbytes + item.nbytes > _MOST_BYTES):
            yield _as_run(held, nbytes)
            most = min(_GROWTH * most, _MOST)
            held, nbytes = [], 0
        if alone:
            yield item
        else:
            held.append(item)
            nbytes += item.nbytes
    if held:
        yield _as_run(held, nbytes)


def _as_run(items: list[IpcMessage], nbytes: int) -> IpcMessage | IpcMessageRun:
    return IpcMessageRun(tuple(items), nbytes) if len(items) > 1 else items[0]


class Lending(NamedTuple):
    """What one body lends, as the reader is told it.

    Attributes
    ----------
    indices
        The regions that the body points into, of all that its item has.
    bases
        Where each of them lies in the stream.
    counts
        How many addresses lie in each of them.
    addresses
        All of them, of buffers that are not empty.
    message
        The body.
    """

    indices: list[int]
    bases: list[int]
    counts: list[int]
    addresses: list[int]
    message: bytes

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
    found = {
        item.regions[index].uuid: item.regions[index]
        for item in items
        if item.spans is not None
        for index in (item.lent[-1].indices if item.lent else used_regions(item.spans))
    }
    return list(found.values())
