"""Pythons that tests start are forked by one that has imported Bowstring already."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.zygote import Zygote


@pytest.fixture
def nothing_measures() -> None:
    """Skip where each Python is asked to begin anew."""
    if os.environ.get("BOWSTRING_TESTS_FRESH") or any(name.startswith("COV") for name in os.environ):
        pytest.skip("Pythons begin anew in this run")


@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
def test_a_library_that_imports_coverage_does_not_end_forking(nothing_measures: None) -> None:
    """Numba imports `coverage`, which measures nothing: Pythons are forked all the same."""
    command = "import numba, sys; import tests.zygote as z; print('coverage' in sys.modules, z.can_fork())"
    answer = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60)
    assert answer.stdout.split()[1] == "True", answer.stderr


def test_a_python_that_a_test_starts_has_imported_bowstring(
    nothing_measures: None, zygote: Zygote | None, forked: None
) -> None:
    """Nothing needs to be imported by a program that does not use it."""
    assert zygote is not None
    command = [sys.executable, "-c", "import sys; print('bowstring.server.server' in sys.modules)"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "True\n"


def test_what_a_forked_python_leaves_behind_is_not_ours(
    nothing_measures: None, zygote: Zygote | None, forked: None
) -> None:
    """A process whose parent ends at once is nobody's child here, as where Pythons begin anew."""
    assert zygote is not None
    leaving = (
        "import os\nif (child := os.fork()):\n os.write(1, b'%d' % child)\nelse:\n os.close(1); os.read(0, 1)"
    )
    hold, end = os.pipe()
    try:
        for _ in range(10):
            command = [sys.executable, "-c", leaving]
            left = subprocess.run(command, stdin=hold, stdout=subprocess.PIPE, text=True, timeout=60).stdout
            parent = Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[1]
            assert int(parent) != os.getpid()
    finally:
        os.close(end)
        os.close(hold)
