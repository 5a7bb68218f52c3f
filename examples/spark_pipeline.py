"""From Parquet files through Spark to N processes that aggregate and train, each on its shard and its own GPU.

python examples/spark_pipeline.py [--scale 0.05] [--processes 2] [--master local[2]]

tpchgen-cli writes tables of TPC-H as Parquet. Spark joins and aggregates them, makes a Variant of each order, and
publishes the rows. N tasks of Spark, which are N Python processes, then read a shard each: as cuDF data frames on
the GPU that Spark gave to the task, or as pandas data frames where there is none. The sums that they find together
must be those that Spark finds by itself.

Where executors have GPUs (spark.executor.resource.gpu.amount in spark-defaults.conf or PYSPARK_SUBMIT_ARGS; see
docker/spark-kubernetes.yaml), the tasks ask for one each by a resource profile.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring as bow

TABLES = ("customer", "orders", "lineitem")
PREPARED = """
    SELECT o_orderkey AS id, c_mktsegment AS segment, items, quantity, discount, cents,
           parse_json(to_json(named_struct('clerk', o_clerk, 'ship',
                                           named_struct('late', late, 'last', last)))) AS event
    FROM orders JOIN customer ON o_custkey = c_custkey
         JOIN (SELECT l_orderkey, CAST(count(*) AS DOUBLE) AS items, CAST(sum(l_quantity) AS DOUBLE) AS quantity,
                      CAST(avg(l_discount) AS DOUBLE) AS discount,
                      CAST(sum(l_extendedprice) * 100 AS BIGINT) AS cents, max(l_shipdate) AS last,
                      count_if(l_receiptdate > l_commitdate) AS late
               FROM lineitem GROUP BY l_orderkey) ON l_orderkey = o_orderkey"""
TOTALS = """
    SELECT segment, count(*) AS orders, sum(cents) AS cents,
           sum(variant_get(event, '$.ship.late', 'bigint')) AS late
    FROM prepared GROUP BY segment"""
FEATURES = ("items", "quantity", "discount")
RESULT = (
    "shard INT, where STRING, segment STRING, orders BIGINT, cents BIGINT, late BIGINT, fit ARRAY<DOUBLE>"
)


@dataclasses.dataclass
class Consume:
    """What each process does with its shard. Spark pickles it to the tasks; a data set travels as text."""

    dataset: str
    processes: int

    def __call__(self, _batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give back a row for each market segment, and this shard's part of the model."""
        from pyspark import TaskContext

        shard = TaskContext.get().partitionId()  # type: ignore[union-attr]  # this is a task
        device, where = device_of_task()
        sums: collections.Counter[tuple[str, str]] = collections.Counter()
        fit = np.zeros((len(FEATURES) + 1, len(FEATURES) + 2))
        columns = ["segment", "cents", "event", *FEATURES]
        dataset = bow.Dataset.from_json(self.dataset)
        with bow.connect(dataset, columns=columns, shard=(shard, self.processes), device=device) as stream:
            for batch in stream:
                sums.update(totals(batch, device))
                fit += normal_equations(batch)
        segments = sorted({segment for segment, _ in sums})
        yield pa.RecordBatch.from_pylist(
            [
                {"shard": shard, "where": where, "segment": segment, "fit": fit.ravel().tolist()}
                | {what: sums[segment, what] for what in ("orders", "cents", "late")}
                for segment in segments
            ],
            schema=pa.schema(
                [("shard", pa.int32()), ("where", pa.string()), ("segment", pa.string())]
                + [(name, pa.int64()) for name in ("orders", "cents", "late")]
                + [("fit", pa.list_(pa.float64()))]
            ),
        )


def device_of_task() -> tuple[bow.Device | None, str]:
    """Return the GPU that Spark gave this task; without one None, which leaves batches where they are."""
    try:
        address = bow.spark.task_address()
    except bow.NotOnDevice:
        return None, "on the CPU"
    try:
        device = bow.spark.task_device()
    except bow.BowstringError as error:
        return None, f"on the CPU; Spark gave it GPU {address}: {error}"
    return device, f"on {device.name}"


def totals(batch: bow.Batch, device: bow.Device | None) -> dict[tuple[str, str], int]:
    """Return sums by segment: as cuDF where the batch is on a GPU and cuDF is installed, else as pandas."""
    plain = batch.select(["segment", "cents"])
    late = bow.variant.get_many(batch["event"], {"late": ("$.ship.late", pa.int64())})
    if device is not None and find_spec("cudf") is not None:
        frame, from_event = plain.to_cudf(), late.to_cudf()
    else:
        frame, from_event = (each.to_device("cpu").to_pandas() for each in (plain, late))
    frame["late"] = from_event["late"]
    groups = frame.groupby("segment", observed=True)
    found = groups.agg({"cents": ["count", "sum"], "late": "sum"})
    found = found.to_pandas() if hasattr(found, "to_pandas") else found
    return {
        (str(segment), name): int(value)
        for segment, row in zip(found.index, found.to_numpy(), strict=True)
        for name, value in zip(("orders", "cents", "late"), row, strict=True)
    }


def normal_equations(batch: bow.Batch) -> Any:
    """Return this batch's part of a least-squares fit of the price: NumPy on the host, CuPy on a GPU."""
    columns = [batch[name].values for name in FEATURES]
    xp = np if isinstance(columns[0], np.ndarray) else __import__("cupy")
    features = xp.stack([*columns, xp.ones_like(columns[0])], axis=1)
    price = batch["cents"].values / 100.0
    both = features.T @ xp.concatenate([features, price[:, None]], axis=1)
    return both if xp is np else both.get()


def profile_with_gpus(spark: Any) -> Any:
    """Return a resource profile whose tasks have a GPU each, None where executors have none."""
    if int(spark.conf.get("spark.executor.resource.gpu.amount", "0")) == 0:
        return None
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    return ResourceProfileBuilder().require(TaskResourceRequests().cpus(1).resource("gpu", 1)).build


def generate(folder: str, scale: float) -> None:
    """Write tables of TPC-H as Parquet files."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise SystemExit("This example needs tpchgen-cli: pip install 'bowstring[demo]'")
    subprocess.run(  # noqa: S603  the program just found
        [program, "parquet", "-s", f"{scale:g}", "-T", ",".join(TABLES), "-o", folder],
        check=True,
        capture_output=True,
    )


def consume(spark: Any, published: bow.Dataset, processes: int) -> list[Any]:
    """Run the processes all at once; return the rows that they gave back."""
    tasks = spark.range(0, processes, 1, processes)
    task = Consume(published.to_json(), processes)
    return tasks.mapInArrow(task, RESULT, barrier=True, profile=profile_with_gpus(spark)).collect()


def report(rows: list[Any], expected: dict[str, tuple[int, int, int]]) -> bool:
    """Print what the processes found; return whether it is what Spark finds."""
    shards = {row.shard: row for row in rows}
    for shard, row in sorted(shards.items()):
        print(
            f"process {shard}: {sum(each.orders for each in rows if each.shard == shard):,} orders, {row['where']}"
        )
    found = {
        segment: tuple(
            sum(row[name] for row in rows if row.segment == segment) for name in ("orders", "cents", "late")
        )
        for segment in expected
    }
    for segment, (orders, cents, late) in sorted(found.items()):
        print(f"{segment:10}  {orders:8,} orders  {cents / 100:18,.2f}  {late:8,} late items")
    sums = sum(np.reshape(row.fit, (len(FEATURES) + 1, -1)) for row in shards.values())
    weights = np.linalg.solve(sums[:, :-1], sums[:, -1])
    print(
        "price of an order ≈",
        " + ".join(f"{w:,.0f} {n}" for w, n in zip(weights, (*FEATURES, ""), strict=True)),
    )
    return found == expected


def main() -> int:
    """Generate, prepare, publish, consume, and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--scale", type=float, default=0.05, help="scale factor of TPC-H; 1 has 6 million items"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--master", help="Spark's master; by default as spark-defaults.conf says, or local[N]"
    )
    arguments = parser.parse_args()
    began = time.perf_counter()
    master = arguments.master or f"local[{arguments.processes}]"
    config = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(2 * arguments.processes)}
    spark = bow.spark.session("spark_pipeline", master, config)
    with tempfile.TemporaryDirectory(prefix="tpch-") as folder:
        generate(folder, arguments.scale)
        for table in TABLES:
            spark.read.parquet(f"{folder}/{table}.parquet").createOrReplaceTempView(table)
        spark.sql(PREPARED).createOrReplaceTempView("prepared")
        published = bow.spark.publish(spark.table("prepared"), "orders", progress=False)
        print(f"published {published.num_rows:,} orders, {published.nbytes:,} bytes")
        rows = consume(spark, published, arguments.processes)
        expected = {row.segment: (row.orders, row.cents, row.late) for row in spark.sql(TOTALS).collect()}
    same = report(rows, expected)
    print(f"the totals are {'those' if same else 'NOT those'} of Spark; {time.perf_counter() - began:.0f} s")
    published.release()
    spark.stop()
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
