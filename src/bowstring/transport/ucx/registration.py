"""Memory of this process that peers may read, each piece registered once for each context of UCX."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.errors import UsageError
from bowstring.memory import KeyedHandle
from bowstring.transport.ucx.attendant import AtOnce, leave
from bowstring.transport.ucx.context import HOST, Context, Failure, Mapped

if TYPE_CHECKING:
    from bowstring.memory import Region
    from bowstring.memory.slab import Slab

__all__ = ["keyed_handle"]

_lock: Final = threading.Lock()
_registered: Final[weakref.WeakKeyDictionary[Context, weakref.WeakKeyDictionary[Slab, Mapped]]] = (
    weakref.WeakKeyDictionary()
)


def keyed_handle(context: Context, region: Region) -> KeyedHandle:
    """Return what a peer reads a region of the host with; it is registered at its first use, and until it goes.

    Raises
    ------
    UsageError
        It is not memory of ours, or UCX cannot register it.
    """
    slab = region.slab
    if slab is None:
        raise UsageError("only memory of Bowstring's own is read by peers", found=repr(region))
    with _lock:
        known = _registered.setdefault(context, weakref.WeakKeyDictionary())
        mapped = known.get(slab)
        if mapped is None:
            try:
                mapped = known[slab] = context.map(slab.address, slab.nbytes, HOST)
            except Failure as failure:
                raise UsageError("UCX cannot register memory", found=str(failure)) from failure
            weakref.finalize(slab, leave, AtOnce(mapped.close)).atexit = False
    device = region.device
    return KeyedHandle(
        slab.uuid, device.uuid, region.nbytes, device.arrow_device_type, region.address, mapped.key
    )
