"""What a page of the documentation takes for granted before its first block of Python code.

``PREPARED`` is code for each page; the names that it makes are those of the page's blocks.
"""

from __future__ import annotations

from typing import Final

_TRIPS: Final = """\
import pyarrow as pa
import bowstring as bow

table = pa.table({"city": ["Lima", "Bern"] * 500, "fare": [7.5, 12.0] * 500})
"""

_SIMULATED_GPU: Final = """
import pytest
from bowstring.testing import fake_device
from tests.columnar import fake_rapids

fake_rapids.install(pytest.MonkeyPatch())
device = fake_device(0)
server = bow.Server()

import types
cupy, rmm = device.xp, types.SimpleNamespace(mr=types.SimpleNamespace(set_current_device_resource=device.lend))
torch = types.SimpleNamespace(from_dlpack=device.to_host)
"""

_CUDF: Final = """
with bow.connect(server.publish("on the host", table.drop(["city"])), device=device) as stream:
    frame = next(stream).to_cudf()
"""

_THIS_PYTHON: Final = """
import os, sys

os.environ["PYSPARK_PYTHON"] = sys.executable  # as in an environment that was activated
"""
_SPARK_ENDS: Final = """
def finish():
    from pyspark.sql import SparkSession
    import bowstring as bow

    spark = SparkSession.getActiveSession()
    for query in spark.streams.active:
        query.stop()
    spark.stop()
    bow.depot.connect(start=False).stop()
"""

PREPARED: Final[dict[str, str]] = {
    "README.md": _TRIPS + "trips = table",
    "docs/guides/gpu.md": _TRIPS + _SIMULATED_GPU + _CUDF,
    **{
        f"docs/spark/{page}.md": _THIS_PYTHON + _SPARK_ENDS
        for page in ("clusters", "index", "notebooks", "publishing", "reading", "training")
    },
}
