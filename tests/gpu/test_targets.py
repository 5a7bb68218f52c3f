"""What ``make`` does for a GPU: without one it says so and stops, and its environment has what a GPU needs."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = ("test-gpu", "bench-gpu", "test-gpu-sanitized")


def has_cuda() -> bool:
    """Return whether there is a driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return shutil.which("nvidia-smi") is not None
    return True


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.skipif(has_cuda(), reason="there is a GPU")
@pytest.mark.parametrize("target", TARGETS)
def test_without_a_gpu_nothing_is_installed(target: str) -> None:
    """Each target says that there is no driver, or no sanitizer, and ends well, before it makes an environment."""
    command = ["make", "--no-print-directory", target, "GPU=build/never-made"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    assert re.search(r"^no (CUDA driver|compute-sanitizer) here", done.stdout)
    assert not (ROOT / "build/never-made").exists()


def test_the_environment_has_what_a_gpu_needs() -> None:
    """Arrays, bindings, the compiler of kernels and NVML are asked for, and pinned together."""
    found = re.search(
        r"^GPU_ENV := scripts/env\.sh \S+ (\S+) (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert found is not None
    pinned = (ROOT / found[1]).read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {re.split(r"[\[<>=]", each)[0] for extra in found[2].split(",") for each in extras[extra]}
    for name in ("cupy-cuda13x", "numba-cuda", "nvidia-ml-py", "pytest"):
        assert name in wanted
        assert re.search(rf"^{name}==", pinned, re.MULTILINE)
    assert re.search(r"^cuda-bindings==13\.", pinned, re.MULTILINE)
