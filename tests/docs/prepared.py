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
"""

_CUDF: Final = """
with bow.connect(server.publish("on the host", table.drop(["city"])), device=device) as stream:
    frame = next(stream).to_cudf()
"""

_SPARK: Final = """
import bowstring as bow

spark = bow.spark.session(master="local[2]", config={"spark.ui.enabled": "false"})
df = spark.range(1000)
"""
_FLIGHTS: Final = """
flights = bow.spark.publish(df, "flights")
"""
_STREAM: Final = """
import tempfile

arriving, folder = spark.readStream.format("rate").load(), tempfile.mkdtemp(dir=".")
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
    "docs/spark/clusters.md": _SPARK + _SPARK_ENDS,
    "docs/spark/index.md": _THIS_PYTHON + _SPARK_ENDS,
    "docs/spark/notebooks.md": _SPARK + _SPARK_ENDS,
    "docs/spark/publishing.md": _SPARK + _STREAM + _SPARK_ENDS,
    "docs/spark/reading.md": _SPARK + _SPARK_ENDS,
    "docs/spark/training.md": _SPARK + _FLIGHTS + _SPARK_ENDS,
}
