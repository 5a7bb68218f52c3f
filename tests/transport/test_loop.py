"""One loop for a process: descriptors, bells and times of many jobs, and workers for those that wait."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Final

import pytest

from bowstring.transport.loop import Job, RingingQueue, do_in_loop
from tests.faults.interrupting import interrupted

WAIT: Final = 20.0
NAME: Final = "bowstring-test"


class Turns:
    """A job that says when it is done, and what it shall return."""

    def __init__(self, *answers: float | None, waits: bool = False) -> None:
        self.done = threading.Semaphore(0)
        self.threads: list[int] = []
        self._answers = list(answers)
        self.job = Job(self._turn, NAME, waits=waits)

    def _turn(self) -> float | None:
        self.threads.append(threading.get_ident())
        answer = self._answers.pop(0) if self._answers else None
        self.done.release()
        return answer

    def wait(self) -> None:
        """Wait until it is done once more."""
        assert self.done.acquire(timeout=WAIT)


@pytest.mark.parametrize("waits", [False, True])
def test_a_bell_a_time_and_a_descriptor_do_a_job(waits: bool) -> None:
    """A job is done at first, when it is rung for, when its time has come, and when its descriptor is ready."""
    turns = Turns(math.inf, 0.001, math.inf, math.inf, None, waits=waits)
    loop = do_in_loop(turns.job)
    turns.wait()
    turns.job.ring()
    turns.wait()
    turns.wait()
    here, there = socket.socketpair()
    with here, there:
        loop.wait_for(turns.job, [here.fileno()])
        there.send(b"x")
        turns.wait()
        loop.wait_for(turns.job, [here.fileno()], writable=True)
        turns.wait()
    turns.job.ring()
    assert len(turns.threads) == 5


def test_an_interrupted_bell_silences_no_other() -> None:
    """Who is interrupted before any line of ringing may have rung for nothing; the next bell is heard."""
    turns = Turns(*[math.inf] * 100)
    do_in_loop(turns.job)
    turns.wait()
    asleep = threading.Event()
    lines = interrupted(turns.job.ring, sys.maxsize)[1]
    turns.wait()
    for line in range(lines):
        asleep.wait(0.02)
        interrupted(turns.job.ring, line)
        asleep.wait(0.02)
        while turns.done.acquire(blocking=False):
            pass
        turns.job.ring()
        turns.wait()


def test_an_earlier_time_counts() -> None:
    """A job that wanted to be done late and is rung for may want to be done soon."""
    turns = Turns(WAIT, 0.001, None)
    do_in_loop(turns.job)
    turns.wait()
    turns.job.ring()
    turns.wait()
    turns.wait()


def test_a_time_may_be_far_away() -> None:
    """A job that wants to be done in a hundred years is rung for in the meantime, as are others."""
    turns, others = Turns(3.2e9, 3.2e9, None), Turns(0.001, math.inf, None)
    do_in_loop(turns.job)
    turns.wait()
    do_in_loop(others.job)
    others.wait()
    others.wait()
    turns.job.ring()
    turns.wait()
    turns.job.ring()
    turns.wait()
    others.job.ring()
    others.wait()


def test_jobs_that_wait_for_nothing_share_the_thread() -> None:
    """What waits is done by workers, and all else in one thread while they do."""
    opened = threading.Event()
    slow = [Job(lambda: opened.wait(WAIT) and None, NAME) for _ in range(20)]
    quick = [Turns(None) for _ in range(20)]
    for job in slow:
        do_in_loop(job)
    for turns in quick:
        do_in_loop(turns.job)
    for turns in quick:
        turns.wait()
    opened.set()
    assert len({ident for turns in quick for ident in turns.threads}) == 1


def test_more_workers_come_where_all_wait() -> None:
    """Jobs of which each waits for the next ones all end, however many they are."""
    barrier = threading.Barrier(24)

    def wait() -> None:
        barrier.wait(WAIT)  # whose result, for one of them 0, is no time to be done again

    for _ in range(23):
        do_in_loop(Job(wait, NAME))
    barrier.wait(WAIT)


def test_a_job_that_fails_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a job raises goes to `threading.excepthook`, and the others are done."""
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))

    def fail() -> float:
        raise LookupError

    after = Turns(math.inf, None)
    do_in_loop(Job(fail, NAME, waits=False))
    do_in_loop(after.job)
    after.wait()
    after.job.ring()
    after.wait()
    assert seen == [LookupError]


def test_a_queue_rings() -> None:
    """What is put in a ringing queue is found by its job, whoever puts it in."""
    found = threading.Event()
    notes = RingingQueue()
    job = Job(lambda: math.inf if notes.empty() else found.set(), NAME, waits=False)
    do_in_loop(job)
    notes.ring = job.ring
    notes.put(1)
    assert found.wait(WAIT)


def test_a_child_has_a_loop_of_its_own(forked: Callable[[Callable[[], None]], None]) -> None:
    """After a fork the jobs of the parent are not done in the child, which can give jobs of its own."""
    parents = Turns(math.inf, math.inf, None)
    loop = do_in_loop(parents.job)
    parents.wait()
    here, there = socket.socketpair()
    loop.wait_for(parents.job, [here.fileno()])

    def child() -> None:
        own = Turns(None)
        do_in_loop(own.job)
        own.wait()
        parents.job.ring()
        there.send(b"x")

    with here, there:
        forked(child)
        parents.wait()
    assert len(parents.threads) == 2
    parents.job.ring()


@pytest.fixture
def forked() -> Callable[[Callable[[], None]], None]:
    """Return what runs a function in a forked child, which must end well."""

    def run(function: Callable[[], None]) -> None:
        pid = os.fork()
        if not pid:
            failed = 1
            try:
                function()
                failed = 0
            finally:
                os._exit(failed)
        assert os.waitpid(pid, 0)[1] == 0

    return run


def test_prompt_jobs_have_workers_of_their_own() -> None:
    """However many jobs wait for a peer, a prompt one is done at once: it may be what they wait for."""
    held, served = threading.Event(), threading.Event()

    def wait() -> float | None:
        assert held.wait(WAIT)
        return None

    def serve() -> float | None:
        served.set()
        return None

    for _ in range(400):  # some of them have a worker only after 20 s
        do_in_loop(Job(wait, NAME))
    try:
        do_in_loop(Job(serve, NAME, prompt=True))
        assert served.wait(WAIT / 2)
    finally:
        held.set()
