"""Positions: where a reader is in a version of a data set."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import Any, Final, Self

from bowstring.errors import DatasetReplaced, UsageError

_TEXT: Final = re.compile(r"([0-9a-f]{16}):(0|[1-9][0-9]{0,17})")


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Position:
    """A place in one version of a data set: in front of one of its batches.

    `Stream.position` and `Server.append` return positions, ``connect(since=…)`` and `wait_for` take them. What one
    consists of is Bowstring's own: keep it by pickle, or as text (``str(position)``, `parse`), which is one line.

    Examples
    --------
    >>> import bowstring as bow
    >>> with bow.Server() as server:
    ...     position = server.append("ticks", {"price": [1.0, 2.0]})
    >>> bow.Position.parse(str(position)) == position
    True
    """

    _version: str
    _batch: int

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Return the position that was printed as a text.

        Parameters
        ----------
        text
            What ``str()`` of a position gave.

        Raises
        ------
        UsageError
            It is not the text of a position.
        """
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UsageError(
                "not a position",
                expected="what stream.position or Server.append() returned, or str() of it",
                found=ascii(text)[:80],
            )
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self._version}:{self._batch}"

    def __repr__(self) -> str:
        return f"<Position {self}>"


def version_of(ticket: bytes | str | None) -> str | None:
    """Return the id of the version that a ticket stands for, as ``name#id``; ``None`` where that is a name."""
    text = ticket.decode(errors="replace") if isinstance(ticket, bytes) else ticket or ""
    version = text.rpartition("#")[2] if "#" in text else ""
    return version if _TEXT.fullmatch(f"{version}:0") else None


def version_made_of(what: str) -> str:
    """Return the id of the version that is made of something: always the same of the same text."""
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def position_at(version: str, batch: int) -> Position:
    """Return the position in front of a batch of a version."""
    return Position(version, batch)


def place_of(position: Position) -> tuple[str, int]:
    """Return version and batch of a position."""
    return position._version, position._batch


def another_version(since: Position, version: str) -> DatasetReplaced:
    """Return what says that a position is not one in a version."""
    return DatasetReplaced(
        "the position belongs to another version of the data set",
        expected=f"a position of version {version}",
        found=str(since),
        hint="It was replaced, or its server began anew: connect() without since= begins at its beginning.",
    )


def check_reached(since: Position, end: Position) -> int:
    """Return the batch of a position; refuse one that is not in the version of another, up to that."""
    if since._version != end._version or since._batch > end._batch:
        raise another_version(since, end._version)
    return since._batch


def checked_position(since: Any) -> Position:
    """Return a position that a user gives, as itself or as text."""
    return since if isinstance(since, Position) else Position.parse(since)
