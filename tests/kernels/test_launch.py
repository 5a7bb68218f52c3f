"""`launch` takes what a signature says and nothing else, from any thread, after a fork, on the fake device too."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bowstring.errors import MissingDependency, NotOnDevice, Unsupported, UsageError
from bowstring.kernels.launch import launch
from bowstring.kernels.signature import Kernel, parse, signatures_of
from bowstring.kernels.types import i64, u64
from bowstring.testing import FakeArray, fake_device

ROOT = Path(__file__).parent.parent.parent
TIMEOUT = 250

pytest.importorskip("numba")

ZERO = u64(0)


def add(i: Any, left: Any, right: Any, more: Any, out: Any) -> None:
    """Write sums."""
    out[i] = left[i] + right[i] + more


def divide(i: Any, left: Any, right: Any, out: Any) -> None:
    """Write quotients."""
    out[i] = left[i] // right[i]


def unlisted(i: Any, out: Any) -> None:
    """Do nothing: no table lists it."""


SIGNATURES = {
    add: ("i64[], i64[], i64, i64[]!", "u64[], u64[], u64, u64[]!"),
    divide: ("i64[], i64[], i64[]!",),
}


def numbers(count: int = 4, dtype: Any = np.int64) -> np.ndarray:
    return np.arange(count, dtype=dtype)


def test_signatures_are_chosen_by_the_arrays() -> None:
    """The types of the arrays choose the signature, and numbers are converted to it."""
    for dtype in (np.int64, np.uint64):
        out = np.zeros(4, dtype)
        launch(add, 4, numbers(dtype=dtype), numbers(dtype=dtype), 10, out)
        assert out.tolist() == [10, 12, 14, 16]


def test_only_the_items_asked_for_are_worked_on() -> None:
    """Items are those below the number given; with none, nothing happens."""
    out = np.zeros(4, np.int64)
    launch(add, 0, numbers(), numbers(), 10, out)
    assert out.tolist() == [0, 0, 0, 0]
    launch(add, 2, numbers(), numbers(), 10, out)
    assert out.tolist() == [10, 12, 0, 0]


def test_inputs_may_be_read_only() -> None:
    """A read-only input takes the same signature as a writable one, and stays as it was."""
    left, right, out = numbers(), numbers(), np.zeros(4, np.int64)
    left.flags.writeable = False
    launch(add, 4, left, right, 0, out)
    assert out.tolist() == [0, 2, 4, 6]
    assert right.flags.writeable


def test_integers_wrap_and_never_raise() -> None:
    """Overflow wraps, and a division by zero gives 0."""
    least = np.array([np.iinfo(np.int64).min, 5, 7])
    out = np.ones(3, np.int64)
    launch(add, 3, least, least, 0, out)
    assert out.tolist() == [0, 10, 14]
    launch(divide, 3, least, np.array([1, 0, 2]), out)
    assert out.tolist() == [np.iinfo(np.int64).min, 0, 3]


def unaligned() -> np.ndarray:
    return np.zeros(33, np.uint8)[1:].view(np.int64)


def frozen() -> np.ndarray:
    array = np.zeros(4, np.int64)
    array.flags.writeable = False
    return array


class OnGpu:
    """What a launch asks an array of a GPU, which lies at an odd address."""

    __module__ = "cupy"
    dtype, ndim, size, itemsize = np.dtype(np.int64), 1, 4, 8
    flags = types.SimpleNamespace(c_contiguous=True)
    data = types.SimpleNamespace(ptr=4097)


WRONG: dict[str, tuple[Kernel, tuple[Any, ...], str]] = {
    "another number": (divide, (numbers(), numbers()), "number of arguments"),
    "dtype": (divide, (numbers(), numbers(dtype=np.int32), numbers()), "'right' of divide is no such array"),
    "byte order": (
        divide,
        (numbers(), numbers(dtype=">i8"), numbers()),
        "'right' of divide is no such array",
    ),
    "no signature": (add, (numbers(), numbers(dtype=np.uint64), 0, numbers()), "takes no such arguments"),
    "number for array": (divide, (numbers(), 3, numbers()), "'right' of divide is no such array"),
    "array for number": (add, (numbers(), numbers(), numbers(), numbers()), "takes no such arguments"),
    "list": (divide, (numbers(), [1, 2], numbers()), "'right' of divide is no such array"),
    "dimensions": (
        divide,
        (numbers().reshape(2, 2), numbers(), numbers()),
        "'left' of divide is no such array",
    ),
    "strides": (divide, (numbers(8)[::2], numbers(), numbers()), "'left' of divide is not contiguous"),
    "alignment": (divide, (unaligned(), numbers(), numbers()), "'left' of divide is not aligned"),
    "alignment on a GPU": (divide, (OnGpu(), OnGpu(), OnGpu()), "'left' of divide is not aligned"),
    "read-only": (divide, (numbers(), numbers(), frozen()), "'out' of divide is read-only"),
    "range": (add, (numbers(), numbers(), 2**63, numbers()), "'more' of add is out of range"),
    "sign": (
        add,
        (numbers(dtype=np.uint64), numbers(dtype=np.uint64), i64(-1), numbers(dtype=np.uint64)),
        "'more' of add is out of range",
    ),
    "float": (add, (numbers(), numbers(), 1.0, numbers()), "'more' of add is no such number"),
    "unlisted": (unlisted, (numbers(),), "no kernel"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(case: str) -> None:
    """An argument that no signature takes is refused, and named."""
    kernel, arguments, message = WRONG[case]
    with pytest.raises(UsageError, match=message):
        launch(kernel, 1, *arguments)


def test_a_negative_number_of_items_is_refused() -> None:
    """There are no fewer than no items."""
    with pytest.raises(UsageError, match="negative"):
        launch(divide, -1, numbers(), numbers(), numbers())


@pytest.mark.parametrize("spelling", ["i64[]", "i64[], i64[], i65[]!", "i64[], i64[], i64!", "i64[],,i64[]!"])
def test_wrong_spellings_are_refused(spelling: str) -> None:
    """A signature names a type for each parameter, and types that there are."""
    with pytest.raises(UsageError):
        parse(divide, spelling)


def test_signatures_that_arrays_cannot_tell_apart_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two signatures of a kernel differ in their arrays."""
    monkeypatch.setitem(SIGNATURES, unlisted, ("i64[]", "i64[]!"))
    with pytest.raises(UsageError, match="must differ"):
        signatures_of(unlisted)


def test_fake_arrays_are_unwrapped_by_launch_alone() -> None:
    """A kernel runs on the fake device: the launch is counted, and nothing is read on the host."""
    fake = fake_device()
    out = fake.xp.zeros(4, np.int64)
    number = fake.xp.arange(4)
    fake.stats.reset()
    launch(add, 4, number, number, 1, out)
    assert isinstance(out, FakeArray)
    assert (fake.stats.launches, fake.stats.host_reads) == (1, 0)
    assert fake.to_host(out).tolist() == [1, 3, 5, 7]


def test_arrays_of_two_places_are_refused() -> None:
    """A kernel over arrays of two devices, of a device and the host, or of no known place does not run."""
    one, other = fake_device(0).xp.arange(4), fake_device(1).xp.arange(4)
    for mixed in ((one, other), (one, numbers()), (numbers(), one)):
        with pytest.raises(NotOnDevice):
            launch(divide, 4, *mixed, one)
    with pytest.raises(Unsupported, match="list"):
        launch(divide, 4, [1], [2], [3])


def test_the_way_to_run_is_one_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """``BOWSTRING_KERNELS`` is ``library``, ``jit``, ``checked`` or ``interpret``."""
    monkeypatch.setenv("BOWSTRING_KERNELS", "guess")
    with pytest.raises(UsageError, match="BOWSTRING_KERNELS"):
        launch(divide, 1, numbers(), numbers(), numbers())


def not_compiled(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Return a kernel of the same code that this process has not used yet."""
    made: Any = types.FunctionType(kernel.__code__, globals(), kernel.__name__)
    monkeypatch.setitem(SIGNATURES, made, SIGNATURES[kernel])
    return made


def test_without_numba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is not compiled yet says which extra is missing; interpreted, it runs."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "numba"]:
        monkeypatch.setitem(sys.modules, name, None)
    kernel, out = not_compiled(divide, monkeypatch), numbers()
    with pytest.raises(MissingDependency, match=r'pip install "bowstring\[kernels\]"'):
        launch(kernel, 4, numbers(), numbers() + 1, out)
    monkeypatch.setenv("BOWSTRING_KERNELS", "interpret")
    launch(kernel, 4, numbers(), numbers() + 1, out)
    assert out.tolist() == [0, 0, 0, 0]


def test_two_threads_launch_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Threads that compile the same kernels, and then launch them over the pool, all get their own results."""
    monkeypatch.setenv("BOWSTRING_THREADS", "3")
    monkeypatch.setenv("BOWSTRING_CACHE_DIR", str(tmp_path))
    kernel = not_compiled(add, monkeypatch)
    size, start, wrong = 200_000, threading.Barrier(4), []

    def work(number: int) -> None:
        dtype = np.int64 if number % 2 else np.uint64
        left, out = numbers(size, dtype), np.zeros(size, dtype)
        start.wait(TIMEOUT)
        for more in range(20):
            launch(kernel, size, left, left, more, out)
            if not np.array_equal(out, left * 2 + dtype(more)):
                wrong.append((number, more))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    ("program", "way", "forks"),
    [
        ("forking", "", 5),
        pytest.param("forking", "jit", 5, marks=pytest.mark.slow),
        ("fork_while_compiling", "jit", 2),
        pytest.param("fork_while_compiling", "jit", 5, marks=pytest.mark.slow),
    ],
)
def test_children_of_a_fork_launch(program: str, way: str, forks: int, tmp_path: Path) -> None:
    """Forked after a launch, with the pool busy or while another thread compiles, a child launches as before."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.programs.{program}", str(forks)],
        cwd=ROOT,
        env={
            **os.environ,
            "BOWSTRING_THREADS": "3",
            "BOWSTRING_CACHE_DIR": str(tmp_path),
            "BOWSTRING_KERNELS": way,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["child"] * forks + ["parent"]), done.stderr


def test_nothing_slow_is_imported_before_the_first_launch() -> None:
    """Importing what launches kernels imports neither numba nor a thread pool's threads."""
    names = "bowstring.kernels.launch, bowstring.kernels.validity, bowstring.kernels.bitmap"
    code = f"import {names}, sys, threading; print('numba' in sys.modules, threading.active_count())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    assert done.stdout.split() == ["False", "1"]
