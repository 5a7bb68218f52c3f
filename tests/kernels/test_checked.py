"""``BOWSTRING_KERNELS=checked``: a kernel that reads or writes outside of its arrays does not go unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TIMEOUT = 180

pytest.importorskip("numba")


@pytest.mark.parametrize(("way", "became"), [("checked", "refused"), ("jit", "done")])
def test_what_is_outside_is_refused(way: str, became: str) -> None:
    """Compiled with checks, a step outside raises, whatever function takes it; without, nobody sees it.

    Both in one cache: neither meets the code of the other.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.kernels.programs.outside"],
        env={**os.environ, "BOWSTRING_KERNELS": way},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.stdout.split() == ["done", became] * 2, done.stderr
