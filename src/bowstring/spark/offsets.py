"""Offsets of streams: which version of a data set was read, and how many endpoints of it; without IO."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.position import Position, place_of, position_at, version_made_of
from bowstring.errors import UsageError

if TYPE_CHECKING:
    from bowstring.dissociated.endpoint import Endpoint

_LOG: Final = logging.getLogger("bowstring.spark")
_HOW: Final = (
    'Option onReplace="read" reads a data set that replaced another from its beginning; '
    "so does a query with a new checkpointLocation."
)


START: Final = position_at("0" * 16, 0)
"""Where nothing was read, of any data set."""


def to_offset(position: Position) -> dict[str, Any]:
    """Return the offset that Spark keeps as JSON."""
    return {"position": str(position)}


def of_offset(offset: Any) -> Position:
    """Return the position that an offset of a checkpoint means; its batches are endpoints."""
    try:
        return Position.parse(offset.get("position") if isinstance(offset, dict) else None)
    except UsageError:
        raise UsageError(
            "the checkpoint does not say which data set the stream has read",
            expected="an offset with a position",
            found=repr(offset)[:200],
            hint="An earlier version of Bowstring made it. Start the query with a new checkpointLocation: it reads "
            "the data set from its beginning.",
        ) from None


@dataclasses.dataclass(frozen=True)
class Listing:
    """The endpoints of a data set at one moment."""

    endpoints: tuple[Endpoint, ...]
    # The depot's, behind the last endpoint of a name, of which `endpoints` are those that were asked for, one for
    # many small ones maybe; ``None`` where endpoints were listed: they are all, and their own identity.
    end: Position | None = None
    # The data set, for messages.
    where: str = "the list of endpoints"

    @property
    def count(self) -> int:
        """How many endpoints there are, as positions count them."""
        return len(self.endpoints) if self.end is None else place_of(self.end)[1]

    def position(self, count: int) -> Position:
        """Return the position behind the first endpoints."""
        if not count:
            return START
        if self.end is None:
            read = self.endpoints[:count]
            # Tokens may change.
            known = [(each.ticket, [offer.address for offer in each.offers]) for each in read]
            return position_at(version_made_of(repr(known)), count)
        return position_at(place_of(self.end)[0], count)

    def holds(self, position: Position) -> bool:
        """Whether a position is one in this data set: of what was read, nothing was replaced."""
        _, count = place_of(position)
        return count <= self.count and self.position(count) == position


def latest(listing: Listing, start: Position, most: int | None, *, reread: bool) -> Position:
    """Return up to where a stream can read."""
    begin, there = _begin(listing, start, reread), listing.count
    return listing.position(there if most is None else min(there, begin + most))


def wanted(start: Position, end: Position) -> tuple[int, int]:
    """Return which endpoints of a name are read between two positions: of another version all before `end`."""
    (version, first), (other, last) = place_of(start), place_of(end)
    return (first if version == other else 0), last


def between(listing: Listing, start: Position, end: Position, *, reread: bool) -> tuple[Endpoint, ...]:
    """Return the endpoints from one position to another.

    With `reread` there are none where the data set of `end` was replaced, too: all of the new one is read next.
    A listing of a name was asked for just these (:func:`wanted`).
    """
    if not listing.holds(end):
        if not reread:
            raise _replaced(listing, end, "was replaced before the stream had read it")
        _LOG.warning("%s was replaced before a stream had read it; the new one is read next", listing.where)
        return ()
    begin = _begin(listing, start, reread)
    return listing.endpoints[begin : place_of(end)[1]] if listing.end is None else listing.endpoints


def _begin(listing: Listing, start: Position, reread: bool) -> int:
    if listing.holds(start):
        return place_of(start)[1]
    if not reread:
        raise _replaced(listing, start, "is not the one that the stream has read: it was replaced")
    return 0


def _replaced(listing: Listing, position: Position, what: str) -> UsageError:
    now = listing.position(listing.count)
    return UsageError(
        f"{listing.where} {what}",
        expected=f"position {position}, or one behind it",
        found="no endpoints" if now == START else f"up to {now}",
        hint=_HOW,
    )
