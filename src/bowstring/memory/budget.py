"""How much memory a pool may hold where nobody says."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bowstring.memory.device import Device

__all__ = ["default_budget"]

_LEAST: Final = 64 << 20


def default_budget(device: Device | None = None) -> int:
    """Return half of the memory that this process may use on the host, or half of a device's, in bytes.

    Of a device it is half of all, free or not: what is free now says little about later, since pools of arrays keep
    what they once had. A device that has no room says so when it is asked for memory.

    Examples
    --------
    >>> default_budget() > 0
    True
    """
    if device is not None and not device.is_host:
        _, total = device.memory_info()
        return max(total // 2, _LEAST)
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            bounds.append(int(Path(name).read_text()))
    return max(min(bounds) // 2, _LEAST)
