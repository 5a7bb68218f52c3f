"""The session on a lent GPU, rehearsed on the fake device: what runs there first must not be a first time."""

from __future__ import annotations

import _ctypes
import contextlib
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bowstring.benchmarks.processes.child import ChildFailed
from tests.gpu.session import pair

ROOT = Path(__file__).parents[3]
STEPS = ("facts", "views", "pair", "bandwidth", "kernels", "handovers", "growth", "memcheck")
# What a reply holds, and how many files come back.
MOST_SHOWN, MOST_FILES = 12_000, 8


def session(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script, with what it keeps for a second call in the folder too."""
    given = {"DEVICE": "fake:0", "OUT": f"{folder}/out", "KEPT": f"{folder}/kept", "PYTHON": sys.executable}
    return subprocess.run(
        ["sh", "scripts/gpu_session.sh", *arguments],
        cwd=ROOT,
        env={**os.environ, "BOWSTRING_KERNELS": "", **given, **environment},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def summary(folder: Path) -> dict[str, str]:
    """Return what the last table says of each step."""
    lines = (folder / "out" / "summary.txt").read_text().splitlines()
    return {name: said for name, _, said in (line.partition(": ") for line in lines)}


@pytest.mark.slow
def test_the_whole_session_runs_on_the_fake_device(tmp_path: Path) -> None:
    """Every step holds within what a reply shows and brings back, and a second call has nothing to repeat."""
    done = session(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout) < MOST_SHOWN
    assert len(list((tmp_path / "out").iterdir())) <= MOST_FILES
    assert tuple(summary(tmp_path)) == STEPS
    assert all(said.startswith("rc 0") for said in summary(tmp_path).values())
    for name in ("pair", "bandwidth"):
        found = json.loads((tmp_path / "out" / f"{name}.json").read_text())["checks"]
        assert len(found) == 7
        assert all(each["holds"] for each in found.values())
    again = session(tmp_path, "failures")
    assert again.returncode == 0, again.stdout + again.stderr
    assert all("0 of 0" in summary(tmp_path)[name] for name in ("pair", "bandwidth"))


def test_what_no_time_is_left_for_is_named(tmp_path: Path) -> None:
    """Where the time is over no step begins, each is in the table, and the status says that not all is known."""
    done = session(tmp_path, ALL="1")
    assert done.returncode == 1
    assert summary(tmp_path) == dict.fromkeys(STEPS, "no time was left")


@pytest.mark.parametrize("first", ["0", "1", "2", "124", "never began", "an earlier session"])
def test_only_what_a_whole_run_left_failing_is_repeated_alone(tmp_path: Path, first: str) -> None:
    """A second call repeats the failures of steps that ran to their end; steps that did not, it runs whole."""
    (tmp_path / "kept").mkdir()
    called, python = tmp_path / "called", tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase " $* " in *" -m pytest "*) echo "$*" >>{called}; exit "$ENDS" ;; esac\nexit 0\n'
    )
    python.chmod(0o755)
    runs = first.isdecimal()
    if first == "an earlier session":
        assert session(tmp_path, PYTHON=str(python), ENDS="0").returncode == 0
    session(tmp_path, PYTHON=str(python), ENDS=first if runs else "0", **({} if runs else {"ALL": "1"}))
    called.unlink(missing_ok=True)
    again = session(tmp_path, "failures", PYTHON=str(python), ENDS="5")
    whole = first not in ("0", "1")
    steps = called.read_text().splitlines()
    assert len(steps) == 4
    assert ["--last-failed" in step for step in steps] == [not whole] * 4
    assert again.returncode == whole
    assert [summary(tmp_path)[name].split(" after")[0] for name in STEPS[-4:]] == [f"rc {5 * whole}"] * 4


def test_all_checks_of_the_pair_hold_in_their_order() -> None:
    """On one pair of processes, what a check takes of it is there again for the next one."""
    with contextlib.closing(pair.checks("fake:0")) as checks:
        assert [name for name, check in checks if not check()[0]] == []


@pytest.mark.parametrize(
    "name", ["mapped", "reused", "handle", "two_small", "event", "survives", "read_only"]
)
def test_each_check_of_the_pair_holds_by_itself(name: str) -> None:
    """On a pair of fresh processes each check holds, as behind another that did not."""
    with contextlib.closing(pair.checks("fake:0")) as checks:
        assert next(check for each, check in checks if each == name)()[0]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("Reader raised CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access", True),
        ("Reader raised DeviceError: cuEventQuery failed", True),
        ("Reader ended without an answer: ", True),
        ("Reader raised AssertionError: ", False),
        ("Reader raised NotOnDevice: no such GPU", False),
        ("Reader did not answer within 120 s: ", False),
        (None, False),
    ],
)
def test_a_write_is_refused_by_the_driver_alone(said: str | None, refused: bool) -> None:
    """Whatever else keeps a reader from writing does not show that it cannot."""

    def call(what: str) -> list[int]:
        if what == "write" and said is not None:
            raise ChildFailed(said)
        return [9, 9]

    ends = types.SimpleNamespace(hand_over=lambda _: None, reader=types.SimpleNamespace(call=call))
    assert pair.read_only(ends)[0] is refused  # type: ignore[arg-type]


CUPY = """
import ctypes
import types

ctypes.CDLL = lambda name: None  # a driver, as far as it is asked for
broken = False
allocators = []


def synchronize():
    if broken:
        raise RuntimeError("an illegal memory access was encountered")


cuda = types.SimpleNamespace(set_allocator=allocators.append)
cuda.runtime = types.SimpleNamespace(deviceSynchronize=synchronize)
"""
TESTS = """
import cupy
import pytest

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("number", range(4))
def test_a_kernel(number):
    assert cupy.allocators == [None] * len(cupy.allocators) != []
    assert not cupy.broken
    cupy.broken = number == 1
"""


def test_a_worker_with_a_broken_context_is_replaced(tmp_path: Path) -> None:
    """Errors of CUDA stick: the worker ends with the test that broke its context, and the others go on."""
    (tmp_path / "cupy.py").write_text(CUPY)
    (tmp_path / "test_kernels.py").write_text(TESTS)
    (tmp_path / "libcuda.so.1").symlink_to(
        _ctypes.__file__
    )  # any library: that one is there is all that is asked
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: a GPU\n    slow: much\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.gpu.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-n", "1", "--max-worker-restart=9", "test_kernels.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "BOWSTRING_TESTS_POOL": "none",
            "LD_LIBRARY_PATH": os.pathsep.join([str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]),
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "src")]),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # It passed, and crashed behind that.
    assert "1 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "crashed while running 'test_kernels.py::test_a_kernel[1]'" in done.stdout
