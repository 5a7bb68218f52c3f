"""What copies between devices keep: tests have it made anew."""

from __future__ import annotations

import os

from bowstring.memory import copying
from bowstring.memory.cuda.bindings import CudaDriver


def forget_paths() -> None:
    """Have the drivers asked again which device reaches which."""
    copying._paths.clear()


def unpin(driver: CudaDriver) -> None:
    """Give a driver's pinned buffers back; the next copy pins anew."""
    stage = copying._stages.get(driver)
    if stage is not None and stage.pid == os.getpid():
        with stage.lock:
            buffers, stage.buffers = stage.buffers, []
            stage.unpin(buffers)
