"""An address of ``ucx:`` for tests that run over all transports; skipped where libucp is not installed."""

from __future__ import annotations

import pytest

from bowstring.errors import MissingDependency
from bowstring.transport.ucx.library import library
from bowstring.transport.ucx.listening import shared_context


def _why_not() -> str:
    try:
        library()
    except MissingDependency as error:
        return str(error)
    return ""


NO_UCX = _why_not()
needs_ucx = pytest.mark.skipif(bool(NO_UCX), reason=NO_UCX)
UCX = pytest.param("ucx://127.0.0.1:0", id="ucx", marks=needs_ucx)


def open_ucx() -> None:
    """Have what a process keeps once it has used UCX: a context, and a thread."""
    if not NO_UCX:
        shared_context(loopback=True)
