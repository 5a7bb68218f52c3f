"""Openings: memory that other processes allocated and lend, as far as this process has it open."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from bowstring.errors import InvalidRegion

if TYPE_CHECKING:
    from bowstring.memory.cuda.driver import Driver
    from bowstring.memory.handle import LentHandle

__all__ = ["Openings"]


class Openings:
    """What is open on one device, by address; the driver counts how often, and so do we.

    Parameters
    ----------
    driver
        Opens and closes.
    ordinal
        The device.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self._open: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def open(self, handle: LentHandle) -> int:
        """Open all of an allocation; return its address.

        Raises
        ------
        InvalidRegion
            It is smaller than announced; nothing stays open.
        DeviceError
            The driver refuses; nothing stays open.
        """
        driver = self._driver
        with contextlib.ExitStack() as undo:
            address = driver.open_ipc_handle(self._ordinal, handle.token)
            undo.callback(driver.close_ipc_handle, self._ordinal, address)
            start, nbytes = driver.address_range(self._ordinal, address)
            if start > address or address + handle.nbytes > start + nbytes:
                raise InvalidRegion(
                    "lent memory is smaller than announced", expected=handle.nbytes, found=nbytes
                )
            undo.pop_all()
        with self._lock:
            size, count = self._open.get(address, (0, 0))
            self._open[address] = max(size, handle.nbytes), count + 1
        return address

    def close(self, address: int) -> None:
        """Close what was opened, once for each time.

        Raises
        ------
        DeviceError
            The driver refuses.
        """
        with self._lock:
            size, count = self._open.pop(address)
            if count > 1:
                self._open[address] = size, count - 1
        self._driver.close_ipc_handle(self._ordinal, address)

    def hold(self, address: int) -> bool:
        """Return whether an address lies in what is open."""
        with self._lock:
            return any(start <= address < start + size for start, (size, _) in self._open.items())

    def __len__(self) -> int:
        with self._lock:
            return sum(count for _, count in self._open.values())
