"""Broken bytes, with kernels that are compiled to check every index: nothing outside of a buffer is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TIMEOUT = 110

pytest.importorskip("numba")


def run_checked(work: str, folder: Path, flips: int, timeout: int = TIMEOUT) -> None:
    """Work on prefixes and flips in a process of its own: how kernels are compiled is chosen once."""
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.variant.programs.hostile",
    ]
    done = subprocess.run(
        [*command, work, str(folder), str(flips)],
        env={**os.environ, "BOWSTRING_KERNELS": "checked"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert (done.returncode, done.stdout) == (0, f"{flips}\n"), done.stderr


def test_nothing_outside_is_read(parquet_test_data: Path) -> None:
    """By the kernels that find, check and cast values, of every prefix of the corpus, and many changed bytes."""
    run_checked("few", parquet_test_data, 40_000)


@pytest.mark.slow
def test_nothing_outside_is_read_by_a_million(parquet_test_data: Path) -> None:
    """By any kernel, of a million values with changed bytes."""
    run_checked("all", parquet_test_data, 1_000_000, 900)
