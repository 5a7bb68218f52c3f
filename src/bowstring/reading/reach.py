"""Reach: whether what a producer would hand over can be used in this process, before the stream begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bowstring.dissociated.devices import pack_answer
from bowstring.dissociated.messages import Outgoing
from bowstring.dissociated.tags import Control
from bowstring.errors import BowstringError, InvalidRegion, NotOnDevice, ProtocolError, without_frames
from bowstring.ipc.body.check_scalar import check_offsets
from bowstring.memory import OpenedEvent, find_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bowstring.dissociated.devices import DeviceId
    from bowstring.dissociated.events import Announced
    from bowstring.memory import EventHandle
    from bowstring.reading.assembler import Assembled, Assembler

__all__ = ["Reach", "why_not_here"]


class Reach:
    """What one stream can reach of its producer's memory, and what it must wait for.

    Parameters
    ----------
    assembler
        Has the regions, and the event.
    streams
        Addresses of the streams that read the batches.
    seconds
        How long a device is waited for.
    """

    def __init__(self, assembler: Assembler, streams: Sequence[int], seconds: float) -> None:
        self._assembler = assembler
        self._streams = streams
        self._seconds = seconds
        self._failed: BowstringError | None = None
        self._why_wait = ""
        self._settled = False
        self._held_back = self._waited = False

    def announce(self, event: Announced) -> bool:
        """Enter a region; return whether this process had it mapped already.

        One that comes before the stream begins, and cannot be mapped, is a reason to take the bytes instead.
        """
        try:
            return self._assembler.announce(event)
        except (InvalidRegion, NotOnDevice) as error:
            if self._settled:
                raise
            self._failed = self._failed or without_frames(error)
            return False

    def await_event(self, handle: EventHandle) -> None:
        """Open what the streams shall wait for; where that fails the producer is to wait.

        Raises
        ------
        ProtocolError
            We did not say that any can wait.
        """
        if not self._streams:
            raise ProtocolError("a server names an event to a reader that takes none")
        assembler = self._assembler
        try:
            assembler.awaited = OpenedEvent(handle)
        except BowstringError as error:
            self._why_wait = _words(error)
        else:  # which is closed before we hang up, also where no memory can be opened
            assembler.borrows = True
            assembler.lenders.add(assembler.awaited.device)

    def answer(self, devices: Iterable[DeviceId]) -> list[Outgoing]:
        """Return what the producer is told, who asks whether memory of some devices can be used here.

        It is told by whoever hears the question: he who opens a stream waits for what comes next, and may read it
        himself.
        """
        why = why_not_here(devices) or (_words(self._failed) if self._failed is not None else "")
        self._failed, self._settled = None, True
        if why:
            self._assembler.forget_regions()
            return [Outgoing(Control.ANSWER, [pack_answer(why)])]
        waits = [Outgoing(Control.WAIT, [pack_answer(self._why_wait)])] if self._why_wait else []
        return [*waits, Outgoing(Control.ANSWER, [pack_answer("")])]

    def begin(self) -> None:
        """Take it that the stream begins, whether anything was asked or not.

        Raises
        ------
        InvalidRegion, NotOnDevice
            A region could not be mapped, and nobody asked.
        """
        self._settled = True
        if self._failed is not None:
            raise self._failed

    def order(self, assembled: Assembled) -> BowstringError | None:
        """Let the streams come after the producer's work, and check what could not be looked at before that.

        Returns
        -------
        What failed, to be raised where no frame holds the batch: the work is not done in time although there is
        something to check, the driver refuses, or offsets are wrong.
        """
        try:
            self._order(assembled)
        except BowstringError as error:
            return without_frames(error)
        return None

    def _order(self, assembled: Assembled) -> None:
        awaited, unchecked = assembled.awaited, assembled.unchecked
        if awaited is None:
            return
        if not self._held_back:
            for stream in self._streams:
                awaited.hold_back(stream)
            self._held_back = True
        with awaited.device.aside():
            if not self._waited and any(each.layout.offsets or each.layout.run_ends for each in unchecked):
                awaited.wait(self._seconds)
                self._waited = True
            for batch in unchecked:
                check_offsets(batch)


def why_not_here(devices: Iterable[DeviceId]) -> str:
    """Return why memory of one of these devices cannot be used here, in words; empty if all of it can.

    Examples
    --------
    >>> from bowstring.dissociated.devices import DeviceId
    >>> why_not_here([DeviceId(1, bytes(16))])
    ''
    >>> why_not_here([DeviceId(8, bytes(16))]).split(";")[0]
    'the memory is on a device that this process cannot reach'
    """
    for device in devices:
        try:
            find_device(device.arrow_device_type, device.uuid).xp  # noqa: B018  a GPU is of no use without CuPy
        except BowstringError as error:
            return _words(error)
    return ""


def _words(error: BowstringError) -> str:
    return "; ".join(
        str(part) for part in (error.what, error.found and f"found {error.found}", error.hint) if part
    )
