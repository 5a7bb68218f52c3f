"""What a test waits for whose fake device must have its events back."""

from __future__ import annotations

import gc
import time
from collections.abc import Set as AbstractSet
from typing import Any

_SECONDS = 10.0


def swept_events(device: Any) -> set[int]:
    """Return the events that somebody holds once what is garbage was collected."""
    gc.collect()
    device.sweep()
    held: set[int] = device.driver.held_events
    return held


def wait_for_events(device: Any, others: AbstractSet[int] = frozenset()) -> None:
    """Wait until nobody holds an event of the device but those of `others`.

    Threads that end hold some for a while, and so does the device's own thread while it waits for the streams.
    """
    end = time.monotonic() + _SECONDS
    while not (held := swept_events(device)) <= others:
        assert time.monotonic() < end, f"events are held still: {held - others}"
        time.sleep(0.005)
