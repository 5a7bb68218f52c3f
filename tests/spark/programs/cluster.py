"""Read a data set with two executors, on a Java that pip brought; end with nothing of ours left."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pyarrow as pa

import bowstring as bow
from bowstring.dissociated.endpoint import Dataset

TOOLS = ("bash", "sh", "basename", "dirname", "env", "ps", "readlink", "uname", "rm", "grep", "sed")


def main(folder: Path) -> None:
    """Run."""
    tools = folder / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    os.environ["PATH"] = str(tools)
    os.environ.pop("JAVA_HOME", None)
    os.environ["BOWSTRING_CACHE_DIR"] = str(folder / "cache")
    spark = bow.spark.session(
        master="local-cluster[2,1,1024]",
        config={
            "spark.ui.enabled": "false",
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    assert spark._jvm.System.getProperty("java.version").startswith("21.")
    with bow.Server() as server:
        parts = [
            pa.table({"n": pa.array(range(100 * part, 100 * part + 100), pa.uint16())}) for part in range(6)
        ]
        endpoints = [server.publish(f"t{part}", table) for part, table in enumerate(parts)]
        dataset = Dataset(tuple(endpoints), parts[0].schema)
        frame = spark.read.format("bowstring").option("dataset", dataset.to_json()).load()
        assert sorted(row["n"] for row in frame.collect()) == list(range(600))
        assert frame.filter("n >= 590").count() == 10
    spark.stop()
    assert "JAVA_HOME" not in os.environ
    print("as it should be")


main(Path(sys.argv[1]))
