"""Devices: which ones a data set lies on, and whether its reader can map memory there.

Only the producer knows where its data are, and only the reader what it can reach. So the producer says where before
anything else, and the reader looks for just these devices: one that gets data of the host never asks a driver.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from bowstring.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DeviceId", "pack_answer", "pack_devices", "unpack_answer", "unpack_devices"]

_DEVICE: Final = struct.Struct("<I16s")
_MOST_DEVICES: Final = 256
_MOST_TEXT: Final = 500


class DeviceId(NamedTuple):
    """What a device is called in every process: its ``ArrowDeviceType``, and 16 bytes."""

    arrow_device_type: int
    uuid: bytes


def pack_devices(devices: Iterable[DeviceId]) -> bytes:
    """Return the question whether the reader can map memory of some devices.

    Examples
    --------
    >>> pack_devices([DeviceId(2, b"sixteen bytes ..")])[:4].hex()
    '02000000'
    """
    return b"".join(_DEVICE.pack(*device) for device in devices)


def unpack_devices(body: bytes | memoryview) -> tuple[DeviceId, ...]:
    """Return the devices that a question names.

    Raises
    ------
    ProtocolError
        There are none, too many, or half a one.
    """
    count, rest = divmod(len(body), _DEVICE.size)
    if rest or not 0 < count <= _MOST_DEVICES:
        raise ProtocolError(
            "a list of devices has the wrong length",
            expected=f"1 to {_MOST_DEVICES} times {_DEVICE.size} bytes",
            found=len(body),
        )
    return tuple(DeviceId(*fields) for fields in _DEVICE.iter_unpack(body))


def pack_answer(why_not: str) -> bytes:
    """Return the reader's answer: nothing if it can map memory of all these devices, else why not.

    Examples
    --------
    >>> pack_answer(""), unpack_answer(pack_answer("no GPU here"))
    (b'', 'no GPU here')
    """
    return why_not[:_MOST_TEXT].encode(errors="replace")


def unpack_answer(body: bytes | memoryview) -> str:
    """Return why a reader cannot map memory of a device; empty if it can."""
    return bytes(body).decode(errors="replace")[:_MOST_TEXT]
