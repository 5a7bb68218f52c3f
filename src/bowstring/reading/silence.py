"""Silence: how long a reader waits for a producer that says nothing at all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bowstring.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.reading.wire import Wire

__all__ = ["check_silence"]


def check_silence(
    wires: Sequence[Wire], began: float, seconds: float, *, answers: bool, missing: str
) -> None:
    """Give up on a producer that has said nothing for too long; a slow one that lives is waited for.

    Parameters
    ----------
    wires
        The connections of the stream.
    began
        When the wait began, on the monotonic clock.
    seconds
        The most that the silence may last.
    answers
        Whether the producer answers questions, so that it must be heard on each connection.
    missing
        What the stream waits for, in words.

    Raises
    ------
    DeadlineExceeded
        It was silent that long.
    """
    heard = [wire.heard for wire in wires]
    silent_since = max(began, min(heard) if answers else max(heard))
    if time.monotonic() - silent_since > seconds and not any(wire.busy for wire in wires):
        raise DeadlineExceeded(
            "the producer said nothing in time",
            expected=f"something within {seconds} s (Limits.connect_timeout, reply_timeout)",
            found=missing,
            where=str(wires[-1].channel),
        )
