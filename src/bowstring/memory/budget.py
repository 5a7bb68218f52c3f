"""How much memory a pool may hold where nobody says."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

__all__ = ["default_budget"]

_LEAST: Final = 64 << 20


def default_budget() -> int:
    """Return half of the memory that this process may use, in bytes.

    Examples
    --------
    >>> default_budget() > 0
    True
    """
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            bounds.append(int(Path(name).read_text()))
    return max(min(bounds) // 2, _LEAST)
