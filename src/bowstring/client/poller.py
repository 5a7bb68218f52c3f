"""One thread that waits for the connections of many streams, and a few that do what there is to do for them.

The streams of `connect_async` use it: thousands of them may wait, and no thread waits for each. One is taken for as
long as messages of a stream come, or something is sent. Synchronous streams have threads of their own, which wake
their reader sooner.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import heapq
import itertools
import math
import os
import queue
import select
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.transport.threads import NO_THREAD, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.transport import Channel

# So many threads work at a time; one more is added each time that none of them has ended for a while, because each
# may wait for a peer that is stopped, or for memory that another one will let go.
_THREADS: Final = 8
_WHILE: Final = 0.05
_WATCHED: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLONESHOT


class Readiness(enum.Enum):
    """What asking a stream for its next batch would do."""

    NOT_YET = "wait for the producer"
    READY = "return it, or raise what is wrong, at once"
    SLOW = "return it after work that takes a while, such as a copy"
    ENDED = "say that there are no more"


class WakingCondition(threading.Condition):
    """A condition that calls functions, once, when its waiters are notified."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Callable[[], object]] = []

    def call_once(self, call: Callable[[], object]) -> None:
        """Have `call` called at the next `notify_all`; the lock is held, here and there."""
        if call not in self._calls:
            self._calls.append(call)

    def notify_all(self) -> None:
        super().notify_all()
        if self._calls:
            calls, self._calls = self._calls, []
            for call in calls:
                call()


class Job:
    """Something to do whenever its bell rings, never by two threads at the same time."""

    __slots__ = ("again", "due", "fds", "name", "running", "timed", "turn")

    def __init__(self, turn: Callable[[], float | None], name: str) -> None:
        # Returns after how many seconds to run again unprompted, `math.inf` for never, `None` if the job is over.
        self.turn = turn
        self.name = name
        # Of the thread of the poller alone:
        self.running = self.again = self.timed = False
        self.due = 0.0
        self.fds: Sequence[int] = ()


def _nothing() -> None:
    return None


class RingingQueue(queue.SimpleQueue[Any]):
    """A queue whose job is rung for when something is put in, by finalizers too."""

    ring: Callable[[], None] | None = None

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if self.ring is not None:
            self.ring()


class Poller:
    """Waits for descriptors, bells and times of jobs, and has threads do the jobs; ends with the last job."""

    def __init__(self, first: Job) -> None:
        self._pid = os.getpid()
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, select.EPOLLIN)
        # Re-entrant, and nothing else is locked within: the collector may run a finalizer that rings right there.
        self._lock = threading.RLock()
        self._over = self._rung = False
        # What happened, for the thread: a job and None for a bell, or what its turn returned.
        self._news: queue.SimpleQueue[tuple[Job, float | None, bool]] = queue.SimpleQueue()
        self._watched: dict[int, Job] = {}
        self._jobs: set[Job] = set()
        self._ready: collections.deque[Job] = collections.deque()
        self._times: list[tuple[float, int, Job]] = []
        self._numbers = itertools.count()
        self._running = 0
        self._moved = 0.0
        self.add(first)
        try:
            run_in_thread(self._run, name="bowstring-client-poller")
        except BaseException:
            self._close()
            raise

    # From any thread.

    def add(self, job: Job) -> bool:
        """Do a job from now on, and at once for the first time; false if this poller has ended."""
        with self._lock:
            if self._over or self._pid != os.getpid():
                return False
            self._jobs.add(job)
        self.ring(job)
        return True

    def ring(self, job: Job) -> None:
        """Have a job done; nothing happens if it is over."""
        self._tell(job, None, done=False)

    def watch(self, job: Job, channel: Channel) -> bool:
        """Ring for a job once something can be received; false where the channel cannot be waited for."""
        return channel.watch(lambda fds: self._watch(job, fds))

    def _watch(self, job: Job, fds: Sequence[int]) -> None:
        with self._lock:
            if self._over or self._pid != os.getpid():
                return
            job.fds = fds
            for fd in fds:
                self._watched[fd] = job
                try:
                    self._epoll.modify(fd, _WATCHED)
                except FileNotFoundError:
                    self._epoll.register(fd, _WATCHED)

    def _tell(self, job: Job, due: float | None, *, done: bool) -> None:
        if self._pid != os.getpid():  # the lock may be held by a thread that is not here
            return
        self._news.put((job, due, done))
        if not self._rung:
            with self._lock:
                if not self._over:
                    self._rung = True
                    os.eventfd_write(self._bell, 1)

    def abandon(self) -> None:
        """Close the copies of a forked child; its parent's are not touched."""
        if not self._over:
            self._close()

    # The thread.

    def _run(self) -> None:
        while not self._ended():
            for fd, _ in self._epoll.poll(self._seconds()):
                if fd == self._bell:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._bell)
                    self._rung = False
                elif (job := self._watched.get(fd)) is not None:
                    self._want(job)
            self._hear()
            now = time.monotonic()
            while self._times and self._times[0][0] <= now:
                _, _, job = heapq.heappop(self._times)
                job.timed = False
                if job.due <= now:
                    self._want(job)
                else:
                    self._time(job)
            self._start(now)

    def _ended(self) -> bool:
        with self._lock:
            if not self._jobs and not self._running:
                self._close()
            return self._over

    def _close(self) -> None:
        self._over = True
        self._epoll.close()
        os.close(self._bell)

    def _seconds(self) -> float | None:
        if self._ready:
            return _WHILE
        return max(0.0, self._times[0][0] - time.monotonic()) if self._times else None

    def _want(self, job: Job) -> None:
        if job not in self._jobs or job.again:
            return
        job.again = True  # until it begins
        if not job.running:
            self._ready.append(job)

    def _hear(self) -> None:
        while True:
            try:
                job, due, done = self._news.get_nowait()
            except queue.Empty:
                return
            if not done:
                self._want(job)
                continue
            job.running = False
            self._running -= 1
            self._moved = time.monotonic()
            if due is None:
                self._forget(job)
                continue
            job.due = self._moved + due
            self._time(job)
            if job.again:
                self._ready.append(job)

    def _time(self, job: Job) -> None:
        if job in self._jobs and not job.timed and job.due < math.inf:
            job.timed = True
            heapq.heappush(self._times, (job.due, next(self._numbers), job))

    def _forget(self, job: Job) -> None:
        with self._lock:
            self._jobs.discard(job)
            job.turn = _nothing  # whatever it is for shall go, though a time may be kept
            for fd in job.fds:
                if self._watched.get(fd) is job:
                    del self._watched[fd]

    def _start(self, now: float) -> None:
        while self._ready and (self._running < _THREADS or now - self._moved >= _WHILE):
            job = self._ready.popleft()
            job.again, job.running = False, True
            self._running += 1
            self._moved = now
            try:
                run_in_thread(self._do, job, name=job.name)
            except NO_THREAD:  # the process ends, or has too many
                self._do(job)

    def _do(self, job: Job) -> None:
        due = None
        try:
            due = job.turn()
        except Exception:  # noqa: BLE001  as of any thread, whoever watches those hears of it
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        finally:
            self._tell(job, due, done=True)


_poller: Poller | None = None
_creating = threading.Lock()


def poller(job: Job) -> Poller:
    """Have the poller of this process do a job; start one if there is none."""
    global _poller  # noqa: PLW0603  one for the process
    with _creating:
        if _poller is None or not _poller.add(job):
            _poller = Poller(job)
        return _poller


# What a child has of its parents' jobs stays, as what the threads of its parents had: it frees nothing of theirs.
_parents: list[Poller] = []


def _after_fork() -> None:
    global _poller, _creating
    if _poller is not None:
        _poller.abandon()
        _parents.append(_poller)
    _poller, _creating = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
