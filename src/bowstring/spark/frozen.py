"""What a worker of Spark has imported, kept out of its collections of garbage."""

from __future__ import annotations

import functools
import gc
import os
from typing import Final

__all__ = ["freeze_imports"]

# Spark sets it for workers that get more than one task.
_USED_AGAIN: Final = "SPARK_REUSE_WORKER"


@functools.cache
def freeze_imports() -> bool:
    """Leave what this process has imported out of all later collections; return whether it does.

    Spark's workers look for cycles in all of their memory after each task, and nearly all that is there are
    modules: pyarrow, pandas and ours, which never become garbage. So this is done once in a process, when the work
    of its first task is done and all is imported, and only in a worker that gets another task; nowhere else does
    Bowstring touch the collector. What is garbage already is collected before, for it would stay for good. So do
    cycles that the first task still needs, those of no other task: what it costs is bounded, and never grows.

    Examples
    --------
    >>> freeze_imports()  # this process is no worker of Spark's
    False
    """
    if not os.environ.get(_USED_AGAIN):
        return False
    gc.collect()
    gc.freeze()
    return True
