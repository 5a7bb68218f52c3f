"""The thread pool of work on the host: one for the process, made when first used and anew after a fork.

The calling thread works like the others, so nobody waits for a pool that is busy with something else, and small
work never touches it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from bowstring.errors import UsageError

VARIABLE = "BOWSTRING_THREADS"

# Less than this takes about as long as waking a thread.
SMALL_BYTES: Final = 1 << 18
# More ranges than threads, so that uneven work evens out.
_RANGES_PER_THREAD: Final = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call a function for each item, in this thread and in those of the pool, and return the results in order."""
    # When one raises, no further one is begun, those under way are waited for, and the error is raised here.
    todo = list(items)
    threads = min(thread_count(), len(todo))
    if threads <= 1:
        return [function(each) for each in todo]
    results: list[Any] = [None] * len(todo)
    errors: list[BaseException] = []
    waiting = iter(range(len(todo)))  # of which each thread takes the next
    done = threading.Semaphore(0)

    def work() -> None:
        for index in waiting:
            try:
                if not errors:
                    results[index] = function(todo[index])
            except BaseException as error:  # noqa: BLE001  raised by the caller
                errors.append(error)
            finally:
                done.release()

    for _ in range(threads - 1):
        with contextlib.suppress(RuntimeError):  # no new threads, as when the interpreter ends: fewer do it
            _pool(threads).submit(work)
    work()
    for _ in todo:
        done.acquire()  # the others only compute
    if errors:
        try:
            raise errors[0]
        finally:
            errors.clear()  # its traceback holds this frame, and with it the arrays
    return results


def run_ranges(work: Callable[[int, int], None], items: int, nbytes: int) -> None:
    """Call ``work(start, stop)`` for ranges that together are ``range(items)``, in several threads if it pays."""
    # work: must release the interpreter lock; nbytes: of all that it looks at, a measure of the work
    threads = 1 if nbytes < SMALL_BYTES or items < 2 else thread_count()
    if threads == 1:
        work(0, items)
        return
    count = min(items, threads * _RANGES_PER_THREAD)
    bounds = [items * each // count for each in range(count + 1)]
    in_threads(lambda bound: work(*bound), itertools.pairwise(bounds))


def thread_count() -> int:
    """Return how many threads work on the host may use: ``BOWSTRING_THREADS``, else the processors of this process.
    Inside a Spark task the default is 1: Spark runs one task per core.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        if not chosen.isdecimal() or int(chosen) < 1:
            raise UsageError("no number of threads", expected="1 or more", found=chosen, where=VARIABLE)
        return int(chosen)
    spark = sys.modules.get("pyspark.taskcontext")
    in_task = spark is not None and spark.TaskContext.get() is not None
    return 1 if in_task else len(os.sched_getaffinity(0))


@functools.cache
def _pool(threads: int) -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(threads - 1, thread_name_prefix="bowstring.kernels")


# A child inherits the pool without its threads.
os.register_at_fork(after_in_child=_pool.cache_clear)
