"""Credits: how many bytes a producer may have under way before its reader gives some back.

The producer's account is a :class:`Window`, the reader's an :class:`Account`. Only packed bodies and batches
produced for this reader are charged; resident data and dictionaries cost nothing new. One message may always go
when nothing is outstanding, so no batch is too large for a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bowstring.errors import ProtocolError, Starved

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLLOWED: Final = 4096
"""What each batch and dictionary costs a reader that follows, beside its bytes."""
# Buffers of a packed body are padded to this at most, and only bytes of buffers cost credit.
_ALIGNMENT: Final = 64
# Of bodies that come before their metadata nobody knows how much is padding. So much surely is not, beyond as much
# again as the credit.
_PADDING: Final = 64 << 20
_PARTS: Final = 4


class Window:
    """The producer's account of one reader's credit, in bytes; ``None`` for a peer that knows no credits."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.outstanding = 0

    def allows(self, nbytes: int) -> bool:
        return self.size is None or not self.outstanding or self.outstanding + nbytes <= self.size

    def charge(self, nbytes: int) -> None:
        if self.size is not None:
            self.outstanding += nbytes

    def give_back(self, nbytes: int) -> None:
        """Count bytes that the reader is done with, which are not more than it has."""
        if nbytes > self.outstanding:
            raise ProtocolError(
                "a reader gives back credit that it does not have", expected=self.outstanding, found=nbytes
            )
        self.outstanding -= nbytes

    def enlarge(self, nbytes: int) -> None:
        if self.size is not None:
            self.size += nbytes


class Account:
    """The reader's account of the credit that packed bodies take, which refuses what exceeds it.

    Credit counts as given back at once, so it never exceeds the producer's own account.
    """

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.outstanding = 0
        # Of bodies whose metadata is to come, with all their padding, which is not charged.
        self.early = 0
        # What is to be given back of batches that were delivered, and what leases hold.
        self.owed = self.held = 0
        # What the producer lacks for its next batch: credit, or room in its pool.
        self.blocked = self.no_room = 0

    @staticmethod
    def cost(buffers: int, count: int, nbytes: int) -> int:
        """Return what a body costs: the bytes of its `count` `buffers`, and what it has beyond their padding."""
        return max(buffers, nbytes - _ALIGNMENT * count)

    def allows(self, nbytes: int) -> bool:
        """Whether a body of that length, of unknown cost, is surely within the credit."""
        if self.size is None:
            return True
        taken = self.outstanding + self.early
        return not taken or taken + nbytes <= self.size

    def check(self, nbytes: int, cost: int | None = None) -> None:
        """Refuse a body that the producer had no credit for; `cost` is known once its metadata is there."""
        if self.size is None or self.allows(nbytes):
            return
        known = cost is not None and not self.early
        most = self.size if known else 2 * self.size + _PADDING
        taken = self.outstanding + self.early + (nbytes if cost is None else cost)
        if taken > most:
            raise ProtocolError(
                "a packed body is beyond the credit that was given",
                expected=f"at most {self.size} bytes outstanding, or one body alone",
                found=f"{nbytes} bytes more, and {self.outstanding + self.early} outstanding",
            )

    def charge(self, costs: Sequence[int]) -> None:
        is_within = self.allows(sum(costs))
        for cost in costs:
            if not is_within:
                self.check(cost, cost)
            self.outstanding += cost

    def deliver(self, credit: int) -> int:
        """Count the credit of a packed batch that the user has now; return how much to give back."""
        # In parts of the window, unless the producer waits: a message may cost more than a batch.
        self.owed += credit
        if not self.blocked and self.owed < (self.size or 0) // _PARTS:
            return 0
        owed, self.owed = self.owed, 0
        return owed

    def grow(self, most: int, where: str) -> int:
        """Enlarge the window by what the producer lacks; return by how many bytes."""
        if self.no_room and self.held:
            raise self._starved(self.no_room, "the producer's pool has no room for more", where)
        window = self.held + self.blocked
        growth = window - (self.size or 0) if self.blocked and self.held else 0
        if growth <= 0:
            return 0
        if window > most:
            raise self._starved(self.blocked, f"Limits.outstanding_bytes is {most}", where)
        self.size = window
        return growth

    def _starved(self, nbytes: int, why: str, where: str) -> Starved:
        return Starved(
            "the batches that you keep hold all the credit of the stream",
            expected=why,
            found=f"{self.held} bytes kept, {nbytes} more needed for the next batch",
            where=where,
            hint='Let batches go before asking for more, connect with mode="copy", or allow for more.',
        )
