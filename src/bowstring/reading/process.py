"""The end of the process: what its streams still have to say."""

from __future__ import annotations

import atexit
import time
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bowstring.reading.receiver import Receiver

__all__ = ["watch_end"]

_GOODBYE_SECONDS: Final = 1.0

_receivers: weakref.WeakSet[Receiver] = weakref.WeakSet()


def watch_end(receiver: Receiver) -> None:
    """Let a receiver take part in the end of the process."""
    _receivers.add(receiver)


@atexit.register
def _say_goodbye() -> None:
    # A reader that ends right after its last batch must still say that it read everything.
    receivers = list(_receivers)
    for receiver in receivers:
        receiver.close()
    end = time.monotonic() + _GOODBYE_SECONDS
    for receiver in receivers:
        receiver.flush(max(0.0, end - time.monotonic()))
