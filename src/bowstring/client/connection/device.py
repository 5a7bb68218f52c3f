"""Devices: whether a producer's memory can be used here, and when memory that it lent is given back."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any, Final, cast

from bowstring.dissociated.reader import in_words
from bowstring.errors import BowstringError, without_frames
from bowstring.ipc.body.check import check_offsets
from bowstring.memory import find_device
from bowstring.memory.cuda.driver import Capturing, no_such_stream, nothing_runs

if TYPE_CHECKING:
    import queue
    from collections.abc import Iterable, Mapping, Sequence

    from bowstring.client.connection.assembler import Assembled
    from bowstring.dissociated.reader import Lent
    from bowstring.dissociated.wire import DeviceId
    from bowstring.memory import Device, NamedStream
    from bowstring.memory.cuda.driver_device import DriverDevice

_AGAIN_SECONDS: Final = 0.05


def why_not_here(devices: Iterable[DeviceId]) -> str:
    """Return why memory of one of these devices cannot be used here; empty if all of it can."""
    for device in devices:
        try:
            find_device(device.arrow_device_type, device.uuid).xp  # noqa: B018  raises where CuPy is broken
        except BowstringError as error:
            return in_words(error)
    return ""


def order(
    assembled: Assembled, streams: Iterable[NamedStream], held_back: set[int], seconds: float
) -> BowstringError | None:
    """Make streams wait for the producer's work, and check what could not be read before; return what is wrong.

    `held_back` are streams that wait for it already.
    """
    awaited, unchecked = assembled.awaited, assembled.unchecked
    if awaited is None:
        return None
    try:
        # The current one, too: what batches are handed on with, such as an event, is recorded there.
        for stream in {*(each.address for each in streams), awaited.device.current_stream()} - held_back:
            awaited.device.wait_event(awaited.opened.address, stream)
            held_back.add(stream)
        with awaited.device.aside():
            if any(batch.layout.offsets or batch.layout.run_ends for batch in unchecked):
                awaited.wait(seconds)
            for batch in unchecked:
                check_offsets(batch)
    except BowstringError as error:
        return without_frames(error)  # to be raised where no frame holds the batch
    return None


def settle(ended: Sequence[Lent], streams: Mapping[int, object], notes: queue.SimpleQueue[Any]) -> None:
    """Wait until the work queued on memory of ended leases is done, then put them into `notes`."""
    devices = {cast("DriverDevice", note.device) for note in ended if note.device is not None}
    for device in devices:
        _wait(device, streams)
    notes.put(ended)
    # The thread that opens regions leaves this to us, because it may wait.
    for device in devices:
        with contextlib.suppress(Exception):
            device.sweep()


def _wait(device: DriverDevice, streams: Mapping[int, object]) -> None:
    """Wait until nothing reads; a stream that cannot be waited for now is asked again, as it may work on."""
    while True:
        try:
            if streams:
                device.wait_streams(streams, math.inf)
            else:  # all work that may read the memory of the device
                device.rest(math.inf)
        except Exception as error:  # noqa: BLE001  no error ends the work
            if nothing_runs(error):
                return
            if no_such_stream(error) and streams:  # one of them: all others, then
                for stream in streams.items():
                    device.note_stream(*stream)
                streams = {}
            else:
                time.sleep(_AGAIN_SECONDS)
        else:
            return


def closed(devices: Iterable[Device], seconds: float) -> bool:
    """Wait until devices have closed what is no longer referenced; false if they have not, or may not have."""
    deadline = time.monotonic() + seconds
    for device in devices:
        while True:
            try:
                cast("DriverDevice", device).drain(max(0.0, deadline - time.monotonic()))
            except Capturing:
                if time.monotonic() > deadline:
                    return False
                time.sleep(_AGAIN_SECONDS)
                continue
            except BowstringError:
                return False
            break
    return True
