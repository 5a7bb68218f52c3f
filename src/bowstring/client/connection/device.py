"""Devices: whether a producer's memory can be used here, and when memory that it lent is given back."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from typing import TYPE_CHECKING, Any, Final, cast

from bowstring.dissociated.reader import in_words
from bowstring.errors import BowstringError, InvalidRegion, NotOnDevice, without_frames
from bowstring.ipc.body.check import check_offsets
from bowstring.memory import OpenedEvent, find_device
from bowstring.memory.cuda.driver import Capturing, no_such_stream, nothing_runs

if TYPE_CHECKING:
    import queue
    from collections.abc import Iterable, Mapping, Sequence

    from bowstring.client.connection.assembler import Assembled, Assembler
    from bowstring.dissociated.events import Announced
    from bowstring.dissociated.reader import Lent, ReaderProtocol
    from bowstring.dissociated.wire import DeviceId, Outgoing
    from bowstring.memory import Device, EventHandle, NamedStream
    from bowstring.memory.cuda.driver_device import DriverDevice


def announce(assembler: Assembler, protocol: ReaderProtocol, event: Announced) -> bool:
    """Add a region to a stream; return whether this process had it mapped already."""
    try:
        return assembler.announce(event)
    except (InvalidRegion, NotOnDevice) as error:
        protocol.could_not_map(without_frames(error))
        return False


class DeviceHandshake:
    """Which memory of its producer one stream can reach, and which work on it the stream must wait for."""

    def __init__(
        self, assembler: Assembler, protocol: ReaderProtocol, streams: Sequence[NamedStream], seconds: float
    ) -> None:
        self._assembler = assembler
        self._protocol = protocol
        self._streams = streams
        self._seconds = seconds
        self._held_back: set[int] = set()
        self._waited = False

    def await_event(self, handle: EventHandle) -> None:
        """Open what the streams shall wait for; where that fails the producer is to wait."""
        assembler = self._assembler
        try:
            assembler.awaited = OpenedEvent(handle)
        except BowstringError as error:
            self._protocol.could_not_wait(in_words(error))
        else:  # which is closed before we hang up, also where no memory can be opened
            assembler.borrows = True
            assembler.lenders.add(assembler.awaited.device)

    def answer(self, devices: Iterable[DeviceId]) -> list[Outgoing]:
        """Return the answer to the question whether memory of some devices can be used here."""
        maps, outgoing = self._protocol.answer(why_not_here(devices))
        if not maps:
            self._assembler.forget_regions()
        return outgoing

    def order(self, assembled: Assembled) -> BowstringError | None:
        """Make the streams wait for the producer's work, and check what could not be read before that."""
        awaited, unchecked = assembled.awaited, assembled.unchecked
        if awaited is None:
            return None
        try:
            # The current one, too: what batches are handed on with, such as an event, is recorded there.
            current = awaited.device.current_stream()
            for stream in {*(each.address for each in self._streams), current} - self._held_back:
                awaited.device.wait_event(awaited.opened.address, stream)
                self._held_back.add(stream)
            with awaited.device.aside():
                if not self._waited and any(
                    each.layout.offsets or each.layout.run_ends for each in unchecked
                ):
                    awaited.wait(self._seconds)
                    self._waited = True
                for batch in unchecked:
                    check_offsets(batch)
        except BowstringError as error:
            return without_frames(error)  # to be raised where no frame holds the batch
        return None


def why_not_here(devices: Iterable[DeviceId]) -> str:
    """Return why memory of one of these devices cannot be used here; empty if all of it can."""
    for device in devices:
        try:
            find_device(device.arrow_device_type, device.uuid).xp  # noqa: B018  raises where CuPy is broken
        except BowstringError as error:
            return in_words(error)
    return ""


_AGAIN_SECONDS: Final = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """Leases whose memory nothing of ours reads any more."""

    ended: Sequence[Lent]


def settle(ended: Sequence[Lent], streams: Mapping[int, object], notes: queue.SimpleQueue[Any]) -> None:
    """Wait until the work queued on memory of ended leases is done, then put one `Settled` into `notes`."""
    devices = {note.device for note in ended if note.device is not None}
    for device in devices:
        _wait(cast("DriverDevice", device), streams)
    notes.put(Settled(ended))
    # Whoever opens regions leaves this to us, because it may wait.
    for device in devices:
        with contextlib.suppress(Exception):
            device.sweep()


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


def _wait(device: DriverDevice, streams: Mapping[int, object]) -> None:
    """Wait until nothing reads; a stream that cannot be waited for now is asked again, as it may work on."""
    while True:
        try:
            if streams:
                device.wait_streams(streams, math.inf)
            else:  # all work that may read the memory of the device
                device.rest(math.inf)
        except Exception as error:  # noqa: BLE001  whatever it is, it is no end of the work
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
