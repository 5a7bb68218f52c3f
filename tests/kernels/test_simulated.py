"""A kernel does on the CUDA simulator what it does compiled, for the cases of `cases.py`."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.cases import CASES

ROOT = Path(__file__).parent.parent.parent
SIMULATION_TIMEOUT = 280

pytest.importorskip("numba")


# It makes a thread of each work item.
@pytest.mark.parametrize("items", [300, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_simulated_as_compiled(items: int) -> None:
    """The CUDA simulator, in a process of its own, writes what the compiled kernels write."""
    try:
        importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("numba-cuda is not installed: the simulator is part of it")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.kernels.programs.simulate", str(items)],
        cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=SIMULATION_TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [kernel.__name__ for kernel in CASES]
