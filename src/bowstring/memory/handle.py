"""A handle: how a region is named to another process, and how that process gets at it."""

from __future__ import annotations

import dataclasses
import struct
from typing import Final

from bowstring.errors import ProtocolError, UsageError
from bowstring.memory.region import Region

__all__ = ["Handle"]

# uuid of the memory, uuid of its device, size, Arrow device type, reserved
_HANDLE: Final = struct.Struct("<16s16sQII")


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """The name of a region; the memory itself travels beside it as a file descriptor.

    Attributes
    ----------
    uuid
        16 bytes naming the memory.
    device_uuid
        16 bytes naming the device.
    nbytes
        Size in bytes.
    arrow_device_type
        As in the Arrow C Device interface.
    """

    uuid: bytes
    device_uuid: bytes
    nbytes: int
    arrow_device_type: int

    @classmethod
    def of(cls, region: Region) -> Handle:
        """Return the handle of a shareable region.

        Raises
        ------
        UsageError
            Nobody else can map the region.
        """
        if region.slab is None or not region.shareable:
            raise UsageError("the region cannot be shared with another process", found=repr(region))
        return cls(region.uuid, region.device.uuid, region.slab.nbytes, region.device.arrow_device_type)

    def pack(self) -> bytes:
        """Return the 48 bytes of the handle."""
        return _HANDLE.pack(self.uuid, self.device_uuid, self.nbytes, self.arrow_device_type, 0)

    @classmethod
    def unpack(cls, data: bytes) -> Handle:
        """Read a handle.

        Raises
        ------
        ProtocolError
            The bytes are not a handle.
        """
        if len(data) != _HANDLE.size:
            raise ProtocolError(
                "a region handle has the wrong length", expected=_HANDLE.size, found=len(data)
            )
        uuid, device_uuid, nbytes, kind, reserved = _HANDLE.unpack(data)
        if reserved:
            raise ProtocolError("reserved bits of a region handle are set", expected=0, found=reserved)
        return cls(uuid, device_uuid, nbytes, kind)
