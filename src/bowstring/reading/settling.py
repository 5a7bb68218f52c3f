"""Settling: memory of a device is freed when no work of ours can read it any more."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import BowstringError
from bowstring.memory.cuda.driver import Capturing

if TYPE_CHECKING:
    import queue
    from collections.abc import Iterable, Sequence

    from bowstring.memory import Device
    from bowstring.reading.assembler import Ended

__all__ = ["Settled", "closed", "settle"]

_AGAIN_SECONDS: Final = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """Leases whose memory nothing of ours reads any more."""

    ended: Sequence[Ended]


def settle(ended: Sequence[Ended], streams: Sequence[Any], notes: queue.SimpleQueue[Any]) -> None:
    """Wait until what was queued is done, and say so.

    Parameters
    ----------
    ended
        Leases of memory on devices.
    streams
        What to wait for, each by its ``synchronize()``; without any, for all work of this process on the devices.
    notes
        Where they go, as one :class:`Settled`.
    """
    devices = {note.device for note in ended if note.device is not None}
    try:
        for stream in streams:
            stream.synchronize()
    except Exception:  # noqa: BLE001  a stream that cannot be waited for says nothing about its work
        _wait(devices)
    else:
        if not streams:
            _wait(devices)
    notes.put(Settled(ended))
    # Whoever opens regions leaves this to us, because it may wait.
    for device in devices:
        with contextlib.suppress(Exception):
            device.sweep()


def closed(devices: Iterable[Device], seconds: float) -> bool:
    """Wait until devices have closed what nobody refers to any more; false if they have not, or may not have."""
    deadline = time.monotonic() + seconds
    for device in devices:
        while True:
            try:
                device.settle(max(0.0, deadline - time.monotonic()))
            except Capturing:
                if time.monotonic() > deadline:
                    return False
                time.sleep(_AGAIN_SECONDS)
                continue
            except BowstringError:
                return False
            break
    return True


def _wait(devices: Iterable[Device]) -> None:
    for device in devices:
        while True:
            try:
                device.synchronize()
            except Capturing:
                time.sleep(_AGAIN_SECONDS)
                continue
            except Exception:  # noqa: BLE001, S110  a device that failed does nothing any more, so its memory is free
                pass
            break
