"""The thread pool: results in order, the first error raised, as many threads as allowed, no wait for others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types

import pytest

from bowstring.errors import UsageError
from bowstring.kernels.threads import in_threads, run_ranges, thread_count

TIMEOUT = 20
LARGE = 1 << 20


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test use three threads."""
    monkeypatch.setenv("BOWSTRING_THREADS", "3")


def test_results_come_in_order() -> None:
    """Each item is worked on once, and its result stands at its place."""
    assert in_threads(lambda number: number * 2, range(100)) == list(range(0, 200, 2))
    assert in_threads(str, []) == []


def test_the_threads_work_at_once() -> None:
    """As many items as there are threads are under way together, one of them in the calling thread."""
    together = threading.Barrier(3)

    def meet(_item: int) -> int:
        together.wait(TIMEOUT)
        return threading.get_ident()

    used = in_threads(meet, range(3))
    assert len(set(used)) == 3
    assert threading.get_ident() in used


def test_an_error_is_raised_once_the_others_are_done() -> None:
    """After an error nothing new is begun, what is under way ends first, and the error is raised."""
    begun, ended = [], []

    def work(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ValueError(number)
        ended.append(number)

    with pytest.raises(ValueError, match="1"):
        in_threads(work, range(1000))
    assert len(begun) < 1000
    assert sorted(begun) == sorted([*ended, 1])
    assert in_threads(abs, [-1, -2, -3]) == [1, 2, 3]


def test_a_busy_pool_is_not_waited_for() -> None:
    """While all threads of the pool are held up, another caller does its work alone."""
    hold, held = threading.Event(), threading.Barrier(4)

    def wait(_item: int) -> None:
        held.wait(TIMEOUT)
        hold.wait(TIMEOUT)

    caller = threading.Thread(target=lambda: in_threads(wait, range(3)))
    caller.start()
    held.wait(TIMEOUT)  # two threads of the pool and the caller are in it
    try:
        assert in_threads(lambda _item: threading.get_ident(), range(5)) == [threading.get_ident()] * 5
    finally:
        hold.set()
        caller.join(TIMEOUT)


def test_a_call_within_a_call_ends() -> None:
    """What runs in the pool may use it, too."""
    assert in_threads(lambda n: sum(in_threads(abs, range(n))), range(6)) == [0, 0, 1, 3, 6, 10]


@pytest.mark.parametrize("items", [1, 2, 7, 1000])
@pytest.mark.parametrize("nbytes", [0, LARGE])
def test_ranges_cover_each_item_once(items: int, nbytes: int) -> None:
    """The ranges are the items, whole and without overlap; little work is one range, in the calling thread."""
    found: list[tuple[int, int, int]] = []
    run_ranges(lambda start, stop: found.append((start, stop, threading.get_ident())), items, nbytes)
    assert [each for start, stop, _ in sorted(found) for each in range(start, stop)] == list(range(items))
    if nbytes < LARGE:
        assert found == [(0, items, threading.get_ident())]
    else:
        assert len(found) == min(items, 12)


def test_how_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says how many; else a Spark task has one, and others all processors of this process."""
    assert thread_count() == 3
    monkeypatch.delenv("BOWSTRING_THREADS")
    assert thread_count() == len(os.sched_getaffinity(0))
    for task, expected in ((object(), 1), (None, len(os.sched_getaffinity(0)))):
        context = types.SimpleNamespace(get=lambda task=task: task)
        monkeypatch.setitem(sys.modules, "pyspark.taskcontext", types.SimpleNamespace(TaskContext=context))
        assert thread_count() == expected


@pytest.mark.parametrize("wrong", ["0", "-1", "many", "1.5"])
def test_no_number_of_threads(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no positive number is refused by name."""
    monkeypatch.setenv("BOWSTRING_THREADS", wrong)
    with pytest.raises(UsageError, match="BOWSTRING_THREADS"):
        thread_count()


ENDING = """
import atexit, threading
from bowstring.kernels.threads import in_threads
def work():
    print(sum(in_threads(abs, range(100))), flush=True)
def late():
    threading.main_thread().join()
    work()
atexit.register(work)
work()
threading.Thread(target=late).start()
"""


def test_work_goes_on_while_the_interpreter_ends() -> None:
    """Threads that outlive the main one, and what runs at exit, get their results without new threads."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.stdout.split(), done.stderr) == (["4950"] * 3, "")
