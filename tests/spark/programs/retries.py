"""Read a data set with tasks that fail at first: each row comes once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import bowstring as bow


def main(folder: Path) -> None:
    """Run."""
    spark = bow.spark.session(master="local[2,4]", config={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    seen = str(folder / "seen")

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            first = batch.column("n")[0].as_py()
            if not os.path.exists(f"{seen}-{first}"):
                Path(f"{seen}-{first}").touch()
                if first % 200:
                    raise ValueError("this attempt fails")
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    with bow.Server() as server:
        parts = [pa.table({"n": range(100 * part, 100 * part + 100)}) for part in range(4)]
        uris = "\n".join(str(server.publish(f"t{part}", table)) for part, table in enumerate(parts))
        frame = spark.read.format("bowstring").load(uris).mapInArrow(fails_once, "n bigint")
        assert sorted(row["n"] for row in frame.collect()) == list(range(400))
        assert len(list(folder.glob("seen-*"))) >= 4
    spark.stop()
    print("as it should be")


main(Path(sys.argv[1]))
