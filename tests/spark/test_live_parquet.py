"""Variant columns go from files of Bowstring to a live Spark, and from Spark's files to Bowstring."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

import bowstring as bow
from bowstring import variant
from tests.spark.live import MARKS, live_session

pytestmark = MARKS

VALUES = [
    None if row % 9 == 0 else {"a": row, "b": f"x{row}", "é": [row, None, {"c": True}]} for row in range(300)
]
COMPACT = [
    None if each is None else json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in VALUES
]


def test_spark_reads_variants_of_ours(tmp_path: Path) -> None:
    """To Spark a Variant column of ours is of type variant, also inside other types, with equal values."""
    rows = variant.from_json(COMPACT).to_arrow().storage
    field = pa.field("v", rows.type, metadata={"ARROW:extension:name": "arrow.parquet.variant"})
    offsets = pa.array(range(len(rows) + 1), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, rows, type=pa.list_(field.with_name("element")))
    struct = pa.StructArray.from_arrays([rows], fields=[field.with_name("inner")])
    table = pa.table({"id": range(len(rows)), "l": lists, "s": struct}).append_column(field, rows)
    path = tmp_path / "v.parquet"
    bow.parquet.write((table.slice(row, 50) for row in range(0, 300, 50)), path, row_group_size=100)
    frame = live_session().read.parquet(str(path))
    assert [f"{each.name}: {each.dataType.simpleString()}" for each in frame.schema] == [
        "id: bigint",
        "l: array<variant>",
        "s: struct<inner:variant>",
        "v: variant",
    ]
    found = frame.selectExpr("id", "to_json(v)", "to_json(l[0])", "to_json(s.inner)").orderBy("id").collect()
    assert [row[1] for row in found] == [row[2] for row in found] == [row[3] for row in found] == COMPACT


def test_variants_of_spark_are_read(tmp_path: Path) -> None:
    """Unshredded Variants that Spark writes are Variant columns of equal values."""
    live_session().conf.set("spark.sql.variant.writeShredding.enabled", "false")
    live_session().createDataFrame(list(enumerate(COMPACT)), "id long, t string").selectExpr(
        "id", "parse_json(t) AS v", "array(parse_json(t)) AS l"
    ).coalesce(1).write.parquet(str(tmp_path / "t"))
    [path] = (tmp_path / "t").glob("*.parquet")
    with bow.parquet.read(path) as stream:
        batch = stream.read_next_batch()
    assert batch["id"].to_arrow().to_pylist() == list(range(300))
    assert variant.to_json(batch["v"]).to_arrow().to_pylist() == COMPACT
    inner = batch["l"].children[0]
    assert variant.to_json(inner).to_arrow().to_pylist() == COMPACT
