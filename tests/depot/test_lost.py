"""Lost slabs: what becomes of those that cannot be watched."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from bowstring.depot.slab_pool import SlabPool
from tests.depot.conftest import MIB


@pytest.mark.parametrize("why", [errno.EMFILE, errno.ENOENT], ids=["no descriptor", "no /proc"])
def test_what_cannot_be_watched_is_forgotten(why: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost slab that there is no descriptor to watch by is no error to whoever asks the depot next."""
    stock = SlabPool(2 * MIB, 0)
    lent, region = stock.borrow(MIB, "lost", "/tmp", 0.0, lambda: None)
    region.retire()
    opened = os.open

    def refused(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith("/proc/self/fd/"):
            raise OSError(why, os.strerror(why), path)
        return opened(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        del lent, region
        found = stock.figures()
    assert [found[name] for name in ("memory_in_use", "lost_slabs", "warm_slabs")] == [0, 0, 0]
    stock.close()
