"""Memory that few small batches hold: a batch that is kept keeps the whole region that it landed in."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from bowstring.columnar.parts import batch_parts

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.memory import Lease, Region

# So much may be held for nothing.
_SLACK: Final = 4 << 20
# Counting looks at every batch that is kept: it is done when so much more is held than the last time.
_GROWTH: Final = 1.25
# What may be held for each byte that is used.
_MOST: Final = 2


class Pinned:
    """Tells when batches of packed bodies should be copied out of the regions that they landed in."""

    def __init__(self) -> None:
        self.wasteful = False  # whether kept batches hold more than twice what they use, and 4 MiB
        self._regions: list[tuple[weakref.ref[Region], list[tuple[weakref.ref[Lease], int]]]] = []
        self._landing: weakref.ref[Region] | None = None
        self._batches: list[tuple[weakref.ref[Lease], int]] = []
        self._next = _SLACK

    def add(self, batch: Batch) -> None:
        """Take note of a batch, as it came."""
        parts = batch_parts(batch)
        if len(parts.spans.regions) != 1 or batch.lease is None:
            return
        region = parts.spans.regions[0]
        if self._landing is None or self._landing() is not region:
            self._count()
            self._landing = weakref.ref(region)
            self._batches = []
            self._regions.append((self._landing, self._batches))
        self._batches.append((weakref.ref(batch.lease), batch.nbytes))

    def _count(self) -> None:
        """Look again at what is held, but in the last region: the batch before this one may be in use yet."""
        self._regions = [each for each in self._regions if each[0]() is not None]
        if (
            not self.wasteful
            and sum(region.nbytes for each in self._regions[:-1] if (region := each[0]())) < self._next
        ):
            return
        held = used = 0
        for reference, batches in self._regions[:-1]:
            kept = sum(nbytes for lease, nbytes in batches if lease() is not None)
            region = reference()
            if kept and region is not None:
                held, used = held + region.nbytes, used + kept
        self._next = max(_SLACK, int(held * _GROWTH))
        self.wasteful = held > _SLACK + _MOST * used
