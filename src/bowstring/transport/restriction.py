"""What a peer may send before it is let in: a few kilobytes in all, within one deadline."""

from __future__ import annotations

import dataclasses
import time
from typing import Final, Self

from bowstring.errors import DeadlineExceeded, LimitExceeded

__all__ = ["UNAUTHENTICATED_BYTES", "Restriction"]

UNAUTHENTICATED_BYTES: Final = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Restriction:
    """Bounds for what a channel receives, beside its ``limits``, until they are taken away.

    A deadline for each wait is none for a peer that sends a byte now and then, and bounds for each message are none
    for one that sends many. These hold for the connection as a whole.

    Parameters
    ----------
    until
        When the peer must be let in at the latest, on the monotonic clock.
    nbytes
        Most bytes of the connection, framing included; ``None`` for any number.

    Examples
    --------
    >>> Restriction.within(10.0).check(100)
    >>> Restriction.within(10.0).check(5000)
    Traceback (most recent call last):
    bowstring.errors.LimitExceeded: the peer sends too much before it is let in; ...
    """

    until: float
    nbytes: int | None = UNAUTHENTICATED_BYTES

    @classmethod
    def within(cls, seconds: float) -> Self:
        """Return the restriction of a peer that must be let in within so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left, 0 where there are none."""
        return max(0.0, self.until - time.monotonic())

    def check(self, end: int) -> None:
        """Refuse a message that ends behind so many bytes of the connection.

        Raises
        ------
        LimitExceeded
            These are too many.
        """
        if self.nbytes is not None and end > self.nbytes:
            raise LimitExceeded(
                "the peer sends too much before it is let in",
                expected=f"at most {self.nbytes} bytes in all",
                found=f"{end} bytes",
            )

    def check_time(self) -> None:
        """Refuse to wait any longer.

        Raises
        ------
        DeadlineExceeded
            The time is over.
        """
        if time.monotonic() >= self.until:
            raise DeadlineExceeded(
                "the peer was not let in in time", hint="Limits.connect_timeout bounds it."
            )
