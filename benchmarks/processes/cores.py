"""How many threads kernels take while a way is timed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_VARIABLE = "BOWSTRING_THREADS"


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let kernels take so many threads within this; None leaves it as it is."""
    before = os.environ.get(_VARIABLE)
    if count is not None:
        os.environ[_VARIABLE] = str(count)
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before
