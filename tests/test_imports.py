"""What is imported with the two doors: whoever opens a stream waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bowstring.kernels.library import Library, load

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


@pytest.mark.skipif(not isinstance(load(), Library), reason="kernels are compiled on first use here")
def test_the_first_json_imports_nothing_that_takes_long() -> None:
    """JSON becomes a Variant column, and a value of it an array, without a library that only some columns need.

    Where pandas is installed, pyarrow itself imports it, and pandas pyarrow.compute.
    """
    code = (
        "import sys, importlib.abc\n"
        "class NoPandas(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pandas': raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoPandas())\n"
        "import bowstring as bow, pyarrow as pa\n"
        'column = bow.variant.from_json([\'{"a": 1}\', "2"])\n'
        'bow.variant.get(column, "$.a", pa.int64()).to_numpy(zero_copy_only=False)\n'
        f"print({HEAVY} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
