"""What continuous integration runs: tests and installation, which both count; it ends with the tests' summary."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUMMARY = "======= 3 passed, 1 skipped in 2.50s ======="
# Stands for make: it notes what it is asked for, prints as pytest does, and exits with what the test wants.
MAKE = f"""#!/bin/sh
echo "$1" >>"$ASKED"
case $1 in
test) echo "{SUMMARY}"; echo "what follows"; exit $OF_TEST ;;
*) echo "======= 9 passed in 0.10s ======="; exit $OF_INSTALL ;;
esac
"""


@pytest.mark.parametrize("of_test", [0, 2])
@pytest.mark.parametrize("of_install", [0, 2])
def test_both_must_pass_and_the_summary_is_last(tmp_path: Path, of_test: int, of_install: int) -> None:
    """The tests run, then the installation; either fails the whole; the summary of the tests is the last line."""
    make = tmp_path / "make"
    make.write_text(MAKE)
    make.chmod(0o700)
    asked = tmp_path / "asked"
    done = subprocess.run(
        [ROOT / ".ci" / "run"],
        env=os.environ
        | {
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "ASKED": os.fspath(asked),
            "OF_TEST": str(of_test),
            "OF_INSTALL": str(of_install),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert asked.read_text().split() == ["test", "test-install"]
    assert (done.returncode == 0) == (of_test == of_install == 0)
    assert done.stdout.splitlines()[-1] == SUMMARY
