"""Settling: memory of a device is freed when no work of ours can read it any more."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import queue
    from collections.abc import Sequence

    from bowstring.reading.assembler import Ended

__all__ = ["settle"]


def settle(ended: Sequence[Ended], streams: Sequence[Any], notes: queue.SimpleQueue[Any]) -> None:
    """Wait until what was queued is done, then put the notes back as ones that nothing waits for.

    Parameters
    ----------
    ended
        Leases of memory on devices.
    streams
        What to wait for, each by its ``synchronize()``; without any, for all work of this process on the devices.
    notes
        Where the notes go.
    """
    for each in streams or {note.device for note in ended if note.device is not None}:
        # A stream or device that fails does nothing any more, so its memory is free.
        with contextlib.suppress(Exception):
            each.synchronize()
    for note in ended:
        notes.put(dataclasses.replace(note, device=None))
