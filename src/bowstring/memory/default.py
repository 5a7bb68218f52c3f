"""The pools that a process uses where none is named."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from bowstring.memory.device import cpu
from bowstring.memory.pool import Pool

if TYPE_CHECKING:
    from bowstring.memory.device import Device

__all__ = ["default_pool"]

_default_pools: dict[bytes, Pool] = {}
_default_lock = threading.RLock()


def default_pool(device: Device | None = None) -> Pool:
    """Return the pool of a device, the host's by default, that this process uses where none is named.

    Examples
    --------
    >>> default_pool() is default_pool()
    True
    """
    device = device or cpu()
    with _default_lock:
        pool = _default_pools.get(device.uuid)
        if pool is None:
            pool = _default_pools[device.uuid] = Pool(device)
        return pool


def _forget_in_child() -> None:
    global _default_lock  # noqa: PLW0603  a fork leaves locks as they happened to be
    _default_pools.clear()
    _default_lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_in_child)
