"""The garbage collector runs inside every lock, and what it finds are batches, streams and servers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest

import bowstring as bow
from tests.faults.conftest import LIMITS
from tests.faults.program import Program
from tests.faults.tables import number_of, table_of


@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0", "inproc:"], ids=["unix", "tcp", "inproc"])
@pytest.mark.parametrize("case", ["locks", "threshold", "servers"])
def test_collected_at_any_moment(run: Callable[..., Program], case: str, address: str) -> None:
    """Leases, views, streams and regions may end inside any lock, by reference count or by the collector."""
    program = run("collecting", case, address)
    assert program.hear(60.0) == "ok"
    program.end()


def test_finalizers_only_leave_notes(serve: Callable[..., bow.Server]) -> None:
    """The end of a lease runs no code but a put into a queue: not even a lock that is free is taken."""
    server = serve("unix:")
    with bow.connect(server.publish("t", table_of()), limits=LIMITS) as stream:
        batch = stream.read_next_batch()
        assert number_of(batch) == 0
        called: set[str] = set()
        sys.setprofile(lambda frame, event, _: called.add(frame.f_code.co_name) if event == "call" else None)
        try:
            del batch
            gc.collect()
        finally:
            sys.setprofile(None)
        assert not called & {"release", "export"}
        list(stream)
