"""Where CUDA's own header is."""

from __future__ import annotations

import itertools
import site
from pathlib import Path

__all__ = ["find_header"]

_FOLDERS = [Path("/usr/local"), *(Path(each) / "nvidia" for each in site.getsitepackages())]


def find_header() -> Path | None:
    """Return the path of ``cuda.h``, of the system or of NVIDIA's wheels."""
    return next(itertools.chain.from_iterable(each.glob("**/include/cuda.h") for each in _FOLDERS), None)
