"""Landing: the batches of a reader that was asked for a device."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from bowstring.columnar.materialize import dictionaries_placed, placed
from bowstring.ipc.arguments import device_meant
from bowstring.ipc.compression.device.decompress import DeviceBodies

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.dictionary import Dictionary
    from bowstring.memory import Device

__all__ = ["Landing"]


class Landing:
    """Brings batches to a device, and their dictionaries once.

    Parameters
    ----------
    device
        Where to.
    trusted
        As of :class:`~bowstring.ipc.compression.device.decompress.DeviceBodies`.

    Attributes
    ----------
    bodies
        What compressed bodies are decompressed by.
    """

    def __init__(self, device: Device, *, trusted: bool) -> None:
        self.bodies = DeviceBodies(device, trusted=trusted)
        self._known: weakref.WeakKeyDictionary[Dictionary, Dictionary] = weakref.WeakKeyDictionary()

    @classmethod
    def on(cls, device: Device | str | None, *, trusted: bool) -> Landing | None:
        """Return what brings batches to the device that a user means; nothing for the host.

        Raises
        ------
        NotOnDevice
            This process has no such device.
        """
        meant = device_meant(device)
        return None if meant is None or meant.is_host else cls(meant, trusted=trusted)

    def landed(self, batch: Batch) -> Batch:
        """Return a batch where it shall be.

        Raises
        ------
        OutOfBudget
            There is no room.
        """
        bodies = self.bodies
        if batch.device is not bodies.device:
            return placed(batch, bodies.allocator, self._known, in_place=False)
        return dictionaries_placed(batch, bodies.allocator, self._known)
