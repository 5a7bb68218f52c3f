"""The loop: one thread of a process that waits for descriptors, bells and times, and does what there is to do then.

Clients and servers give it jobs. What may wait for anything (a peer, memory, a device, code of the user) is done by
a few workers, and not by the loop, which would keep all others waiting. It begins with the first job and ends with
the last one; a forked child makes its own.
"""

from __future__ import annotations

import collections
import contextlib
import heapq
import itertools
import math
import os
import queue
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.memory.slab import Descriptor, needing_descriptor, opened
from bowstring.transport.threads import NO_THREAD, report_uncaught, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# So many workers at a time; one more is added each time that none of them has ended for a while, because each
# may wait for a peer that is stopped, or for memory that another one will let go.
_WORKERS: Final = 8
_WHILE: Final = 0.05
# How long the thread sleeps at most: `epoll` takes no more than 24 days.
_LONGEST: Final = 3600.0
_READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT
_WRITABLE: Final = select.EPOLLOUT | select.EPOLLONESHOT


class Job:
    """Something to do whenever its bell rings, never by two threads at the same time.

    `turn` returns after how many seconds to do it again unprompted, `math.inf` for never, ``None`` if it is over.
    One that `waits` for nothing is done by the thread of the loop. One that is `prompt` waits for no peer, and has
    workers that those which do cannot take: its turn may be what they wait for.
    """

    __slots__ = ("again", "due", "fds", "loop", "name", "prompt", "running", "timed", "turn", "waits")

    def __init__(
        self, turn: Callable[[], float | None], name: str, *, waits: bool = True, prompt: bool = False
    ) -> None:
        self.turn = turn
        self.name = name
        self.waits = waits
        self.prompt = prompt
        self.loop: Loop | None = None  # which does it
        # Of the thread of the loop alone:
        self.running = self.again = False
        self.due = self.timed = math.inf  # when to do it again, and the first time that is kept for that
        self.fds: set[int] = set()

    def ring(self) -> None:
        """Have it done, if a loop has it; nothing happens if it is over."""
        if self.loop is not None:
            self.loop._tell(self, None, done=False)


class _Workers:
    """The jobs that wait for a worker, and how many have one."""

    def __init__(self) -> None:
        self.ready: collections.deque[Job] = collections.deque()
        self.running = 0
        self.moved = 0.0  # when one of them began or ended last


class RingingQueue(queue.SimpleQueue[Any]):
    """A queue whose job is rung for when something is put in, by finalizers too."""

    ring: Callable[[], None] | None = None

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        ring = self.ring  # once: another thread may take it away
        if ring is not None:
            ring()


class Loop:
    """Waits for descriptors, bells and times of jobs, and does the jobs; ends with the last job."""

    def __init__(self, first: Job, after: float = 0.0) -> None:
        self._pid = os.getpid()
        with needing_descriptor("the loop of this process"):
            self._epoll = select.epoll()
            self._bell: Descriptor | None = opened(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, select.EPOLLIN)
        # Re-entrant, and nothing else is locked within: the collector may run a finalizer that rings right there.
        self._lock = threading.RLock()
        self._over = False
        # What happened, for the thread: a job, and whether its turn is over, with what that returned. If it is not:
        # after how many seconds to begin one, None for a bell.
        self._news: queue.SimpleQueue[tuple[Job, float | None, bool]] = queue.SimpleQueue()
        self._until = -math.inf  # when the thread wakes by itself; while it is awake, always
        self._watched: dict[int, Job] = {}
        self._jobs: set[Job] = set()
        self._workers = _Workers(), _Workers()  # for jobs that may wait for peers, and for prompt ones
        self._quick: collections.deque[Job] = collections.deque()
        self._times: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()
        self.add(first, after)
        try:
            run_in_thread(self._run, name="bowstring-loop")
        except BaseException:
            self._close()
            raise

    # From any thread.

    def add(self, job: Job, after: float = 0.0) -> bool:
        """Do a job from now on, for the first time after so many seconds; false if this loop has ended."""
        with self._lock:
            if self._over or self._pid != os.getpid():
                return False
            job.loop = self
            self._jobs.add(job)
        self._tell(job, after or None, done=False)
        return True

    def wait_for(self, job: Job, fds: Iterable[int], *, writable: bool = False) -> None:
        """Ring for a job, once, when one of some descriptors can be read, or written.

        They are open until this returns; one that is closed later rings for nothing. For one descriptor only the
        last call holds.
        """
        with self._lock:
            if self._over or self._pid != os.getpid() or job not in self._jobs:
                return
            events = _WRITABLE if writable else _READABLE
            for fd in fds:
                job.fds.add(fd)
                self._watched[fd] = job
                try:
                    self._epoll.modify(fd, events)
                except FileNotFoundError:
                    self._epoll.register(fd, events)

    def _tell(self, job: Job, due: float | None, *, done: bool) -> None:
        if self._pid != os.getpid():  # the lock may be held by a thread that is not here
            return
        self._news.put((job, due, done))
        # What is in time when the thread wakes for something else need not wake it; one that is awake looks anyhow.
        until = self._until
        waits = (
            due is not None
            and time.monotonic() + due >= until
            and not (job.again or self._workers[job.prompt].ready)
        )
        bell = self._bell
        if not (waits or until == -math.inf or bell is None):
            # Without a lock: at the end of the interpreter a thread that is not there any more may hold it. Nor is
            # it noted that it was rung: a thread that is interrupted right here would have silenced all others.
            os.eventfd_write(bell, 1)

    def abandon(self) -> None:
        """Close the copies of a forked child; its parent's are not touched."""
        if not self._over:
            self._close()

    # The thread.

    def _run(self) -> None:
        while True:
            with self._lock:
                if not (self._jobs or self._workers[0].running or self._workers[1].running):
                    self._close()
                if self._over:
                    return
            if self._workers[0].ready or self._workers[1].ready:
                seconds: float | None = _WHILE
            else:
                seconds = (
                    min(max(0.0, self._times[0][0] - time.monotonic()), _LONGEST) if self._times else None
                )
            self._until = math.inf if seconds is None else time.monotonic() + seconds
            # Looked at after that was set, since who puts something in looks in the other order.
            events = self._epoll.poll(seconds if self._news.empty() else 0.0)
            self._until = -math.inf
            for fd, _ in events:
                if fd == self._bell:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(fd)
                elif (job := self._watched.get(fd)) is not None:
                    self._want(job)
            self._hear()
            now = time.monotonic()
            while self._times and self._times[0][0] <= now:
                at, _, job = heapq.heappop(self._times)
                if at == job.timed:
                    job.timed = math.inf
                    if job.due <= now:
                        self._want(job)
                    else:
                        self._time(job, job.due)
            self._start(now)

    def _close(self) -> None:
        self._over, self._bell = True, None
        self._epoll.close()

    def _want(self, job: Job) -> None:
        if job not in self._jobs or job.again:
            return
        job.again = True  # until it begins
        if not job.running:
            (self._workers[job.prompt].ready if job.waits else self._quick).append(job)

    def _hear(self) -> None:
        while True:
            try:
                job, due, done = self._news.get_nowait()
            except queue.Empty:
                return
            if done:
                workers = self._workers[job.prompt]
                workers.running -= 1
                workers.moved = time.monotonic()
                self._end_turn(job, due)
            elif due is None:
                self._want(job)
            else:
                self._time(job, time.monotonic() + due)

    def _end_turn(self, job: Job, due: float | None) -> None:
        job.running = False
        if due is None:
            with self._lock:
                self._jobs.discard(job)
                job.turn = lambda: None  # whatever it is for shall go, though a time may be kept
                for fd in job.fds:
                    if self._watched.get(fd) is job:
                        del self._watched[fd]
            return
        self._time(job, time.monotonic() + due)
        if job.again:
            (self._workers[job.prompt].ready if job.waits else self._quick).append(job)

    def _time(self, job: Job, due: float) -> None:
        job.due = due
        if job in self._jobs and due < job.timed:
            job.timed = due
            heapq.heappush(self._times, (due, next(self._numbers), job))

    def _start(self, now: float) -> None:
        while self._quick:
            job = self._quick.popleft()
            job.again, job.running = False, True
            self._end_turn(job, _turn_of(job))
        for workers in self._workers:
            while workers.ready and (workers.running < _WORKERS or now - workers.moved >= _WHILE):
                job = workers.ready.popleft()
                job.again, job.running = False, True
                workers.running += 1
                workers.moved = now
                try:
                    run_in_thread(self._do, job, name=job.name)
                except NO_THREAD:  # the process ends, or has too many
                    self._do(job)

    def _do(self, job: Job) -> None:
        due = None
        try:
            due = _turn_of(job)
        finally:
            self._tell(job, due, done=True)


def _turn_of(job: Job) -> float | None:
    try:
        return job.turn()
    except Exception:  # noqa: BLE001  as of any thread
        report_uncaught()
        return None


_loop: Loop | None = None
_creating = threading.Lock()


def do_in_loop(job: Job, after: float = 0.0) -> Loop:
    """Have the loop of this process do a job, first after so many seconds; start a loop if there is none.

    Raises
    ------
    LimitExceeded
        No thread or descriptor is left for it.
    """
    global _loop  # noqa: PLW0603  one for the process
    with _creating:
        if _loop is None or not _loop.add(job, after):
            _loop = Loop(job, after)
        return _loop


# What a child has of its parents' jobs stays, as what the threads of its parents had: it frees nothing of theirs.
_parents: list[Loop] = []


def _after_fork() -> None:
    global _loop, _creating
    if _loop is not None:
        _loop.abandon()
        _parents.append(_loop)
    _loop, _creating = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
