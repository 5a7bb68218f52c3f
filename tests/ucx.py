"""An address of ``ucx:`` for tests that run over all transports; skipped where libucx is not installed.

They are slow. The fast tests of UCX are the kit for channels (``transport/ucx``) and the second implementation
(``peer/test_ucx.py``).
"""

from __future__ import annotations

import functools
from importlib.util import find_spec

import pytest

import bowstring as bow

NO_UCX = "" if find_spec("libucx") else "libucx is not installed: pip install 'bowstring[ucx-cu13]'"
needs_ucx = pytest.mark.skipif(bool(NO_UCX), reason=NO_UCX)
UCX = pytest.param("ucx://127.0.0.1:0", id="ucx", marks=[needs_ucx, pytest.mark.slow])


@functools.cache
def open_ucx() -> None:
    """Have what a process keeps once it has used UCX: a context, and a thread."""
    if not NO_UCX:
        bow.Server("ucx://127.0.0.1:0").close()
