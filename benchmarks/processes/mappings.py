"""The state of this process's mapping cache, which decides what a connection costs."""

from __future__ import annotations

import gc
import time
from typing import Final

from bowstring.memory import mappings

_SECONDS: Final = 10.0


def forget_mappings() -> None:
    """Unmap all regions of peers, waiting for the streams that still hold them."""
    end = time.monotonic() + _SECONDS
    while mappings().stats.in_use:
        if time.monotonic() > end:
            raise TimeoutError("a view of a mapped region is alive")
        gc.collect()
        time.sleep(0.001)
    mappings().clear()
