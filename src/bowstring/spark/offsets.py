"""Offsets of streams: which version of a data set was read, and how many endpoints of it; without IO."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bowstring.errors import UsageError

if TYPE_CHECKING:
    from bowstring.dissociated.endpoint import Endpoint

_LOG: Final = logging.getLogger("bowstring.spark")
_HOW: Final = (
    'Option onReplace="read" reads a data set that replaced another from its beginning; '
    "so does a query with a new checkpointLocation."
)


class Position(NamedTuple):
    """How far a stream has read."""

    # Which data set; empty where nothing was read.
    version: str
    # How many of its endpoints.
    endpoints: int

    def to_offset(self) -> dict[str, Any]:
        """Return the offset that Spark keeps as JSON."""
        return self._asdict()

    @classmethod
    def of_offset(cls, offset: Any) -> Position:
        """Return the position that an offset of a checkpoint means."""
        fields = offset if isinstance(offset, dict) else {}
        version, endpoints = fields.get("version"), fields.get("endpoints")
        if not isinstance(version, str) or type(endpoints) is not int or endpoints < 0:
            raise UsageError(
                "the checkpoint does not say which data set the stream has read",
                expected="an offset with version and endpoints",
                found=repr(offset)[:200],
                hint="Earlier versions of Bowstring only counted endpoints. Start the query with a new"
                " checkpointLocation: it reads the data set from its beginning.",
            )
        return cls(version, endpoints) if endpoints else START


START: Final = Position("", 0)


@dataclasses.dataclass(frozen=True)
class Listing:
    """The endpoints of a data set at one moment."""

    endpoints: tuple[Endpoint, ...]
    # What the depot calls the data set that a name means; ``None`` where endpoints were listed, and are their own
    # identity.
    version: str | None = None
    # The data set, for messages.
    where: str = "the list of endpoints"
    # How many endpoints the name has, of which `endpoints` are those that were asked for, one for many small ones
    # maybe; ``None`` where they are all.
    named: int | None = None

    @property
    def count(self) -> int:
        """How many endpoints there are, as positions count them."""
        return len(self.endpoints) if self.named is None else self.named

    def position(self, count: int) -> Position:
        """Return the position behind the first endpoints."""
        if not count:
            return START
        return Position(self.version or _digest(self.endpoints[:count]), count)

    def holds(self, position: Position) -> bool:
        """Whether a position is one in this data set: of what was read, nothing was replaced."""
        count = position.endpoints
        return count <= self.count and self.position(count) == position


def latest(listing: Listing, start: Position, most: int | None, *, reread: bool) -> Position:
    """Return up to where a stream can read."""
    begin, there = _begin(listing, start, reread), listing.count
    return listing.position(there if most is None else min(there, begin + most))


def wanted(start: Position, end: Position) -> tuple[int, int]:
    """Return which endpoints of a name are read between two positions: of another version all before `end`."""
    return (start.endpoints if start.version == end.version else 0), end.endpoints


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
    return listing.endpoints[begin : end.endpoints] if listing.named is None else listing.endpoints


def _begin(listing: Listing, start: Position, reread: bool) -> int:
    if listing.holds(start):
        return start.endpoints
    if not reread:
        raise _replaced(listing, start, "is not the one that the stream has read: it was replaced")
    return 0


def _replaced(listing: Listing, position: Position, what: str) -> UsageError:
    now = listing.position(listing.count)
    return UsageError(
        f"{listing.where} {what}",
        expected=f"version {position.version}, at least {position.endpoints} endpoints",
        found=f"version {now.version}, {now.endpoints} endpoints" if now.version else "no endpoints",
        hint=_HOW,
    )


def _digest(endpoints: tuple[Endpoint, ...]) -> str:
    """Return an identity of endpoints; tokens may change."""
    digest = hashlib.sha256()
    for each in endpoints:
        addresses = [offer.address for offer in each.offers]
        digest.update(repr((each.ticket, addresses)).encode())
    return digest.hexdigest()[:32]
