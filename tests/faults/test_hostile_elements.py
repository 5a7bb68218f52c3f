"""Bodies with other words than they should have: an error of ours or pyarrow's values, a display, and no crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "tests.faults.programs.hostile_elements"


@pytest.mark.parametrize("examples", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_elements_that_lead_anywhere(examples: int) -> None:
    """What is read in full is what pyarrow finds valid, sent and from files; all else can be displayed."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", PROGRAM, str(examples)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.splitlines()
    assert said[-1:] == ["survived"], f"ended with {done.returncode} in {said[-20:]}\n{done.stderr[-3000:]}"
