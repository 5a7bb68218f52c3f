"""Tables of TPC-H, made by tpchgen-cli where it is installed (extra ``bench``)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

_GENERATOR: Final = "tpchgen-cli"


def _program() -> str | None:
    beside = os.path.join(os.path.dirname(sys.executable), _GENERATOR)
    return shutil.which(_GENERATOR) or (beside if os.access(beside, os.X_OK) else None)


def missing() -> str | None:
    """Return why tables cannot be made here, or None."""
    return None if _program() else f"not installed: {_GENERATOR}"


def written(folder: str, table: str, factor: float) -> str:
    """Write one table of a scale factor into a Parquet file in a folder; return its path."""
    program = _program()
    assert program is not None
    command = [program, "parquet", "-s", f"{factor:g}", "-T", table, "-o", folder]
    subprocess.run(command, check=True, capture_output=True)
    return os.path.join(folder, f"{table}.parquet")
