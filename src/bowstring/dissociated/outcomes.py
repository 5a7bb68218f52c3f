"""Outcomes: what became of one connection of a reader, as its server counts it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from bowstring.dissociated.producer import Role
from bowstring.errors import BrokenError, ClosedError, DeadlineExceeded, UsageError

if TYPE_CHECKING:
    from bowstring.dissociated.producer import ProducerProtocol

__all__ = ["Outcome", "outcome_of"]

_QUIET = (BrokenError, ClosedError, DeadlineExceeded)


class Outcome(enum.Enum):
    """How a connection ended."""

    COMPLETED = "the reader read the stream to its end"
    STOPPED = "the stream ended early, and nothing of it is missing"
    LOST = "the reader went away in the middle of the stream, or with memory that it did not free"
    REFUSED = "the reader was not served"
    IDLE = "nobody asked for a data set"
    METADATA = "the connection of bodies of the same stream counts"


def outcome_of(
    protocol: ProducerProtocol,
    error: BaseException | None,
    *,
    admitted: bool,
    gone: bool = False,
    closing: bool = False,
    reported: type[BaseException] | None = None,
) -> Outcome:
    """Return what became of a connection.

    Parameters
    ----------
    protocol
        The stream.
    error
        What ended the connection: `BrokenError` itself when the reader disconnected, `ClosedError` when this side
        did.
    admitted
        Whether the reader was let in, to a data set that is offered.
    gone
        Whether the reader's process is known to have ended.
    closing
        Whether the server itself ended the connection because it closes.
    reported
        The class of the error that the producer reported to the reader.

    Examples
    --------
    >>> from bowstring.dissociated.producer import ProducerProtocol
    >>> from bowstring.limits import DEFAULT_LIMITS
    >>> outcome_of(ProducerProtocol(DEFAULT_LIMITS), BrokenError("it is gone"), admitted=False).name
    'IDLE'
    """
    if not admitted:
        # Of the errors, only those of the connection itself: a subclass says what the peer did wrong.
        asked = protocol.role is not None
        return Outcome.REFUSED if asked or not (error is None or type(error) in _QUIET) else Outcome.IDLE
    if protocol.role is Role.METADATA:
        return Outcome.METADATA
    if protocol.read_all:
        return Outcome.COMPLETED
    if reported is not None and issubclass(reported, UsageError):
        return Outcome.REFUSED
    if closing:
        return Outcome.STOPPED
    disconnected = error is None or type(error) in (BrokenError, ClosedError)
    if not disconnected or not (protocol.returned or (gone and protocol.stopped)):
        return Outcome.LOST
    # A reader without a hello has no word for stopping: disconnecting is all it can do.
    in_order = protocol.stopped or protocol.ended or protocol.hello is None or _is_own_failure(reported)
    return Outcome.STOPPED if in_order else Outcome.LOST


def _is_own_failure(reported: type[BaseException] | None) -> bool:
    """Whether the producer could not go on for reasons of its own, and not for want of an answer."""
    return reported is not None and not issubclass(reported, (BrokenError, DeadlineExceeded))
