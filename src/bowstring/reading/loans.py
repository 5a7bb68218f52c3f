"""Loans: the regions that a stream looks at are let go; what was lent by handles is closed before it hangs up."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

from bowstring.dissociated.messages import Outgoing
from bowstring.dissociated.tags import Control
from bowstring.errors import BowstringError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import mappings
from bowstring.reading.settling import closed

if TYPE_CHECKING:
    from bowstring.reading.assembler import Assembler
    from bowstring.reading.wire import Wire

__all__ = ["Loans"]

_SAY_SECONDS: Final = 0.5


class Loans:
    """What one stream has open of its producer's memory.

    Parameters
    ----------
    assembler
        Has the regions.
    changed
        The stream's condition, under which the assembler changes.
    wire
        Where bodies come from; ``None`` for a producer that knows only the specification.
    limits
        How long a device is waited for.
    """

    def __init__(
        self, assembler: Assembler, changed: threading.Condition, wire: Wire | None, limits: Limits
    ) -> None:
        self._assembler = assembler
        self._changed = changed
        self._wire = wire
        self._limits = limits
        self._once = threading.Lock()
        self._gave_back = False

    @property
    def by_handles(self) -> bool:
        """Whether memory was lent by handles, which must be closed before the stream hangs up."""
        return self._assembler.borrows

    def give_back(self, *, all_freed: bool) -> None:
        """Close what was lent by handles, and only then say so: the producer's process may free it from then on.

        What is still open after ``Limits.device_timeout``, because a device is busy all that time, or because the
        user holds it and the connection is gone, is not said to be closed: then the producer keeps it for good.
        """
        with self._once:
            if self._gave_back:
                return
            self._gave_back = True
            with contextlib.suppress(BowstringError):
                self.forget(0.0)
            if all_freed and closed(self._assembler.lenders, self._limits.device_timeout):
                self._say_unused()

    def say_never_used(self) -> None:
        """Let go of all, and say that nothing of it was ever used: the producer would have to think the worst."""
        with contextlib.suppress(BowstringError):
            self.forget()
        self._say_unused()

    def _say_unused(self) -> None:
        if self._wire is not None and not self._wire.channel.closed:
            with contextlib.suppress(BowstringError):
                self._wire.send([Outgoing(Control.UNUSED, [])], _SAY_SECONDS)

    def forget(self, seconds: float = DEFAULT_LIMITS.close_timeout) -> None:
        """Let go of the regions, and wait so long for devices to be done with them."""
        with self._changed:
            self._assembler.finish()
            self._assembler.forget_regions()
        mappings().trim(seconds)
