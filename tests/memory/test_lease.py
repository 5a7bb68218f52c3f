"""Leases end once, when the last view is gone; finalizers run anywhere and disturb nothing."""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
from typing import Any

import numpy as np
import pytest

from bowstring.errors import ClosedError, ViewsAlive
from bowstring.memory import Lease, Pool, cpu

DEADLINE = 30.0


class Cycle:
    """Garbage that only the collector finds."""

    def __init__(self, held: object) -> None:
        self.itself = self
        self.held = held


def test_a_lease_ends_once() -> None:
    """By release or by collection, the note is put once."""
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    lease = Lease((), ended, "released")
    lease.release()
    lease.release()
    del lease
    Lease((), ended, "collected")
    gc.collect()
    assert [ended.get_nowait(), ended.get_nowait()] == ["released", "collected"]
    assert ended.empty()


def test_exports_hold_a_lease() -> None:
    """While a token lives the lease cannot end, by release or by collection; afterwards no token is given."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    lease = Lease((), ended, 1)
    first, second = lease.export(), lease.export()
    assert first is second
    for _ in range(2):
        with pytest.raises(ViewsAlive):
            lease.release()
        assert not lease.released
        second = first
    kept: Any = first
    del first, second, lease
    gc.collect()
    assert ended.empty()
    lease = kept.lease
    del kept
    lease.release()
    assert ended.get_nowait() == 1
    with pytest.raises(ClosedError):
        lease.export()
    assert not lease.exported


def test_a_lease_keeps_what_it_is_over(pool: Pool) -> None:
    """Regions and leases under a lease live as long as it does, and no longer."""
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    below = Lease([pool.region(1)], ended, "below")
    above = Lease([below.export()], ended, "above")
    with pytest.raises(ViewsAlive):
        below.release()
    del below
    gc.collect()
    assert pool.stats.in_use
    assert ended.empty()
    above.release()
    gc.collect()
    assert {ended.get_nowait(), ended.get_nowait()} == {"above", "below"}
    assert pool.stats.in_use == 0


def test_a_lease_in_a_cycle_ends_after_its_views() -> None:
    """A dead cycle that holds a lease and an array over its memory ends the lease only when both are torn down."""
    alive_at_end: list[bool] = []

    class Notes:
        def put(self, array: Any) -> None:
            alive_at_end.append(bool(array))

    numbers = np.arange(4)
    state = ["alive"]

    class Watcher:
        def __del__(self) -> None:
            # Comes back to life: the collector must not have ended the lease under us.
            kept.append(self)

    kept: list[Any] = []
    lease = Lease((), Notes(), state)
    cycle = Cycle([lease, Watcher(), numbers])
    watcher = cycle.held[1]  # type: ignore[index]
    watcher.lease = lease
    del lease, cycle, watcher
    gc.collect()
    assert kept
    assert kept[0].lease is not None
    assert alive_at_end == []
    assert not kept[0].lease.released
    kept[0].lease.export()
    kept.clear()
    gc.collect()


def test_releasing_and_exporting_race() -> None:
    """Of a thread that releases and one that exports, one is refused; the note is put once all the same."""
    for _ in range(200):
        ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        lease = Lease((), ended, 1)
        tokens: list[object] = []
        barrier = threading.Barrier(2, timeout=DEADLINE)
        thread = threading.Thread(target=_export, args=(lease, tokens, barrier))
        thread.start()
        barrier.wait()
        with contextlib.suppress(ViewsAlive):
            lease.release()
        thread.join(DEADLINE)
        assert not (lease.released and tokens)
        assert ended.qsize() == int(lease.released)


def _export(lease: Lease, tokens: list[object], barrier: threading.Barrier) -> None:
    barrier.wait()
    with contextlib.suppress(ClosedError):
        tokens.append(lease.export())


def test_finalizers_in_many_threads(pool: Pool) -> None:
    """Leases and regions that end in many threads while others allocate are all counted home."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def work(number: int) -> None:
        for _ in range(50):
            region = pool.region(1)
            lease = Lease([region], ended, number)
            view = region.array(0, 8)
            del region, lease
            assert len(view) == 8

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    gc.collect()
    assert ended.qsize() == 200
    assert pool.stats.in_use == 0
    assert cpu().is_host
