"""Threads that wait for work."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from typing import Any

import pytest

from bowstring.transport import threads
from bowstring.transport.threads import run_in_thread

WAIT = 10.0


def until_idle(count: int) -> None:
    end = time.monotonic() + WAIT
    while len(threads._idle) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_work_is_done_in_another_thread() -> None:
    """The call runs in a daemon thread of the name given, and joining waits for it."""
    seen: list[tuple[int, str, bool]] = []

    def look() -> None:
        time.sleep(0.02)
        thread = threading.current_thread()
        seen.append((threading.get_ident(), thread.name, thread.daemon))

    run_in_thread(look, name="bowstring-test").join(WAIT)
    assert [each[1:] for each in seen] == [("bowstring-test", True)]
    assert seen[0][0] != threading.get_ident()


def test_a_thread_that_is_done_does_the_next_work() -> None:
    """Work that comes after other work finds a thread that waits, and starts none."""
    seen: list[int] = []
    for _ in range(5):
        run_in_thread(lambda: seen.append(threading.get_ident()), name="bowstring-test").join(WAIT)
        until_idle(1)
    assert len(set(seen)) == 1


def test_works_run_at_once() -> None:
    """No work waits for another one, however many there are; few threads stay."""
    barrier = threading.Barrier(33)
    works = [run_in_thread(barrier.wait, WAIT, name="bowstring-test") for _ in range(32)]
    barrier.wait(WAIT)
    for work in works:
        work.join(WAIT)
    end = time.monotonic() + WAIT
    while any(thread.name == "bowstring-test" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.001)
    assert len(threads._idle) <= threads._MOST_IDLE


def test_joining_gives_up_in_time() -> None:
    """Joining waits no longer than it is told, and not at all for the work that this thread does."""
    event, joined = threading.Event(), threading.Event()
    work = run_in_thread(event.wait, WAIT, name="bowstring-test")
    begin = time.monotonic()
    work.join(0.05)
    assert time.monotonic() - begin < WAIT / 2
    event.set()
    work.join(WAIT)
    own: list[threads.Work] = []
    ready = threading.Event()

    def join_itself() -> None:
        ready.wait(WAIT)
        own[0].join(WAIT)
        joined.set()

    own.append(run_in_thread(join_itself, name="bowstring-test"))
    ready.set()
    assert joined.wait(WAIT / 2)


def test_what_nobody_caught_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the work goes to `threading.excepthook`, as any thread's, and the thread goes on."""
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: reported.append(arguments.exc_type))

    def fail() -> None:
        raise KeyError("work")

    run_in_thread(fail, name="bowstring-test").join(WAIT)
    assert reported == [KeyError]
    until_idle(1)
    seen: list[int] = []
    run_in_thread(seen.append, 1, name="bowstring-test").join(WAIT)
    assert seen == [1]


def test_nothing_of_the_work_stays_alive() -> None:
    """A thread that waits keeps neither the call nor its arguments, nor does whoever may still join."""

    class Thing:
        pass

    thing = Thing()
    alive = weakref.ref(thing)
    work = run_in_thread(lambda _: None, thing, name="bowstring-test")
    del thing
    work.join(WAIT)
    until_idle(1)
    gc.collect()
    assert alive() is None


def test_threads_that_wait_long_enough_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that nobody needs ends, and is not given work while it does."""
    monkeypatch.setattr(threads, "_idle", {})
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.001)
    counted: list[int] = []
    works = []
    for number in range(300):
        works.append(run_in_thread(counted.append, number, name="bowstring-test"))
        time.sleep(0.0011 if number % 3 else 0)
    for work in works:
        work.join(WAIT)
    assert sorted(counted) == list(range(300))
    end = time.monotonic() + WAIT
    while threads._idle:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_child_of_a_fork_starts_its_own() -> None:
    """The child of a fork knows nothing of the parent's threads, and works."""
    run_in_thread(lambda: None, name="bowstring-test").join(WAIT)
    until_idle(1)
    child = os.fork()
    if not child:
        done: list[int] = []
        run_in_thread(done.append, 1, name="bowstring-test").join(WAIT)
        os._exit(0 if done == [1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
