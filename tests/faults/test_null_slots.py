"""What lies under a null never matters: columns with anything there leave as those with zeros do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "null_slots.py"


@pytest.mark.parametrize("where", [(), ("tcp://127.0.0.1:0",)], ids=["here", "sent"])
def test_what_lies_under_nulls_never_matters(where: tuple[str, ...]) -> None:
    """Each type leaves by each exit (pyarrow, pandas, polars, files, HTML) as it does with zeros under nulls."""
    done = subprocess.run(
        # -P: its own folder has something else instead of pandas.
        [sys.executable, "-P", "-X", "faulthandler", PROGRAM, *where],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.splitlines()
    assert said[-1:] == ["survived"], f"ended with {done.returncode} in {said[-1:]}\n{done.stderr[-3000:]}"
