"""Forks that nobody announced are noticed before memory is used again."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bowstring.memory import Pool, fork_sentinel, forks
from bowstring.memory.forks import ForkSentinel

# Unlike `CDLL`, it keeps the interpreter's lock, which a child without other threads could not take again.
libc = ctypes.PyDLL(None)


@contextlib.contextmanager
def c_child() -> Iterator[None]:
    """Fork without Python's hooks; the child does nothing until it is killed at the end of the block."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    time.sleep(4 * interval)  # until the threads that wait for the lock have it behind them
    pid = libc.fork()
    if not pid:
        libc.alarm(60)
        while True:
            libc.pause()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.fixture
def sentinel() -> Iterator[ForkSentinel]:
    """Return a sentinel of the test's own."""
    sentinel = ForkSentinel()
    sentinel.noticed()
    yield sentinel
    sentinel.inherited()


def test_a_fork_by_c_code_is_noticed_once(sentinel: ForkSentinel) -> None:
    """The number grows by one for a child that lives, whenever it is asked for, and again for the next child."""
    before = sentinel.noticed()
    with c_child():
        assert [sentinel.noticed() for _ in range(3)] == [before + 1] * 3
        with c_child():
            assert [sentinel.noticed() for _ in range(3)] == [before + 2] * 3
    assert sentinel.noticed() == before + 2


def test_a_child_that_can_look_at_nothing_is_not_counted(sentinel: ForkSentinel) -> None:
    """Neither a child that has ended, nor one that runs another program."""
    before = sentinel.noticed()
    with c_child():
        pass
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert sentinel.noticed() == before
        other.communicate(b"\n", timeout=60)
    assert sentinel.noticed() == before


def test_an_announced_fork_is_not_counted() -> None:
    """Python's own forks, which have been dealt with, do not count, while their children live or later."""
    before = fork_sentinel().noticed()
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        while True:
            signal.pause()
    try:
        assert fork_sentinel().noticed() == before
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert fork_sentinel().noticed() == before


def test_the_child_of_an_announced_fork_watches_for_itself() -> None:
    """A child notices forks of its own, and its parent does not notice those."""
    before = fork_sentinel().noticed()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            own = fork_sentinel().noticed()
            with c_child():
                status = fork_sentinel().noticed() != own + 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert fork_sentinel().noticed() == before


class _Refusing:
    """A C library of a system without System V shared memory, or with none to spare."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.refuses = True

    def shmget(self, *arguments: Any) -> int:
        return -1 if self.refuses else int(self.real.shmget(*arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def test_a_system_that_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without System V shared memory the sentinel says so; once there is some, what was not watched counts."""
    library = _Refusing(forks.libc())
    monkeypatch.setattr(forks, "libc", lambda: library)
    sentinel = ForkSentinel()
    before = sentinel.noticed()
    assert (sentinel.noticed(), sentinel.works) == (before, False)
    library.refuses = False
    assert (sentinel.noticed(), sentinel.works, sentinel.noticed()) == (before + 1, True, before + 1)
    library.refuses = True
    with c_child():
        # No other segment can be had: until then every answer says that somebody may look.
        assert [sentinel.noticed() for _ in range(2)] == [before + 2, before + 3]
    sentinel.inherited()


def test_a_pool_gives_up_what_was_in_use_at_a_fork_by_c_code() -> None:
    """Memory in use at the fork is never used again; memory taken later is."""
    pool = Pool(budget=64 << 20)
    region = pool.region(1 << 20)
    with c_child():
        uuid = region.uuid
        del region
        again = pool.region(1 << 20)
        assert (again.uuid != uuid, pool.stats.retired) == (True, 1)
        del again
        pool.region(1 << 20)
        assert (pool.stats.retired, pool.stats.reused) == (1, 1)
    pool.close()
