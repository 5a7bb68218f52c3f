"""Reach: whether memory of the devices that a producer names can be used in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bowstring.errors import BowstringError
from bowstring.memory import find_device

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.dissociated.devices import DeviceId

__all__ = ["why_not_here"]


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
            return "; ".join(
                str(part) for part in (error.what, error.found and f"found {error.found}", error.hint) if part
            )
    return ""
