"""What is imported with the two doors: whoever opens a stream waits for it."""

from __future__ import annotations

import subprocess
import sys

# Each takes tens of milliseconds, and most streams do without it.
HEAVY = {
    "cupy",
    "numba",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.flight",
    "pyspark",
    "scipy",
}


def test_the_doors_import_nothing_that_takes_long() -> None:
    """A server and a reader are there without a library that only some tables need."""
    code = f"import sys, bowstring; bowstring.Server, bowstring.connect; print({HEAVY} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
