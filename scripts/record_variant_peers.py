"""Record what Spark's and DuckDB's readers make of our Variants, and what Spark makes of the same JSON.

Run it with a Python that has `pyspark` (or `pyspark-client`), `duckdb` and Bowstring's own dependencies::

    PYTHONPATH=src python scripts/record_variant_peers.py tests/data/variant-peers.json

Spark speaks by its pure-Python `VariantUtils`, DuckDB by its import of `arrow.parquet.variant`. The script stops
where one of them reads another document than the one that was written.
"""

from __future__ import annotations

import decimal
import json
import random
import sys
from typing import Any

import duckdb
import pyarrow as pa
import pyspark
from pyspark.sql.variant_utils import VariantUtils

from bowstring import variant

KEYS = ("a", "b", "é", "x.y", "long key name", "", "\uffe5", "'")
DOCUMENTS = 60


def document(drawn: random.Random, depth: int = 0) -> Any:
    """Return a random document."""
    kind = drawn.random() if depth < 4 else 1.0
    if kind < 0.35:
        return {drawn.choice(KEYS): document(drawn, depth + 1) for _ in range(drawn.randrange(6))}
    if kind < 0.6:
        return [document(drawn, depth + 1) for _ in range(drawn.randrange(5))]
    leaves = (
        None,
        drawn.random() < 0.5,
        drawn.randrange(-(1 << drawn.randrange(1, 120)), 1 << 20),
        round(drawn.uniform(-1000, 1000), drawn.randrange(8)),
        drawn.uniform(-1, 1) * 10.0 ** drawn.randrange(-30, 30),
        "text " * drawn.randrange(20),
        "ü€😀"[: drawn.randrange(4)],
    )
    return drawn.choice(leaves)


def main(path: str) -> None:
    """Write the recorded file."""
    # Spark's reader multiplies decimals in the current context, which rounds beyond 28 digits.
    decimal.getcontext().prec = 64
    drawn = random.Random(4)  # noqa: S311  documents, no secrets
    documents = [{}, [], None, "", *(document(drawn) for _ in range(DOCUMENTS))]
    texts = [json.dumps(each) for each in documents]
    column = variant.from_json(texts, rules="spark")
    rows = column.to_arrow()
    metadata, values = rows.field("metadata").cast(pa.binary()), rows.field("value")
    plain = pa.StructArray.from_arrays([metadata, values], ["metadata", "value"])
    field = pa.field("v", plain.type, metadata=column.field.metadata)
    table = pa.Table.from_arrays([plain], schema=pa.schema([field]))
    connection = duckdb.connect().register("ours", table)
    read = connection.sql("SELECT CAST(v AS JSON)::VARCHAR FROM ours").fetchall()
    expected = variant.to_python(column)
    recorded = []
    for row, text in enumerate(texts):
        ours = metadata[row].as_py(), values[row].as_py()
        if json.loads(read[row][0]) != json.loads(text):
            raise SystemExit(f"DuckDB reads row {row} as {read[row][0]}, not {text}")
        if VariantUtils.to_python(ours[1], ours[0]) != expected[row]:
            raise SystemExit(f"Spark reads row {row} otherwise: {text}")
        value, names = VariantUtils.parse_json(text)
        recorded.append(
            {"json": text, "value": values[row].as_py().hex(), "spark": [names.hex(), value.hex()]}
        )
    written = {
        "pyspark": pyspark.__version__,
        "duckdb": duckdb.__version__,
        "metadata": metadata[0].as_py().hex(),
        "documents": recorded,
    }
    with open(path, "w", encoding="ascii") as file:
        json.dump(written, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
