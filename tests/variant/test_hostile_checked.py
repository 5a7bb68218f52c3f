"""Broken bytes, in a process of its own: nothing outside of a buffer is read or written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def run_hostile(guards: str, folder: Path, flips: int, timeout: int) -> None:
    """Work on prefixes and flips in a process of its own: it may die, and how kernels run is chosen once."""
    command = [sys.executable, "-W", "error", "-m", "tests.variant.programs.hostile"]
    done = subprocess.run(
        [*command, guards, str(folder), str(flips)],
        env={**os.environ, "BOWSTRING_KERNELS": "checked" if guards == "checked" else ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert (done.returncode, done.stdout) == (0, f"{flips}\n"), done.stderr


def test_nothing_beyond_an_array_is_touched(parquet_test_data: Path, forked: None) -> None:
    """By any kernel of the library, its arrays beside pages that must not be touched: every prefix, many flips."""
    run_hostile("pages", parquet_test_data, 20_000, 110)


@pytest.mark.slow
def test_nothing_outside_is_read_by_a_million(parquet_test_data: Path) -> None:
    """By any kernel, compiled to check every index, of a million values with changed bytes."""
    pytest.importorskip("numba")
    run_hostile("checked", parquet_test_data, 1_000_000, 900)
