"""A moment at which processes start together."""

from __future__ import annotations

import time
from typing import Final

_SECONDS: Final = 0.02


def starting_time(readers: int) -> float:
    """Return when readers that are asked now shall begin: at once where there is one, soon where there are more."""
    return time.perf_counter() + (_SECONDS if readers > 1 else 0)


def wait_until(at: float) -> None:
    """Wait for a moment of `time.perf_counter`, whose clock all processes of a machine share."""
    time.sleep(max(0.0, at - time.perf_counter()))
