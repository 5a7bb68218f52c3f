"""Record what Spark's and DuckDB's readers make of our Variants, and what Spark makes of the same JSON.

Run it with a Python that has `pyspark`, `duckdb`, `pytest`, `hypothesis` and Bowstring's own dependencies::

    PYTHONPATH=src:. python scripts/record_variant_peers.py tests/data/variant-peers.json

Spark speaks by its pure-Python `VariantUtils`, DuckDB by its import of `arrow.parquet.variant` and by
`variant_extract`. The script stops where one of them reads another document than the one that was written.
"""

from __future__ import annotations

import decimal
import json
import random
import sys
from typing import Any

import duckdb
import pyspark
from pyspark.sql.variant_utils import VariantUtils

from bowstring import variant
from tests.variant.documents import document, extraction, path_into, plain_table

DOCUMENTS = 60
PATHS = 60
TYPES = ("BOOLEAN", "BIGINT", "DOUBLE", "DECIMAL(38,8)", "VARCHAR")


def extracts(connection: Any, drawn: random.Random, documents: list[Any]) -> list[dict[str, Any]]:
    """Return what DuckDB extracts, by row: Decimals are text, what is NULL is left out."""
    found = []
    containers = [each for each in documents if each and isinstance(each, (dict, list))]
    for _ in range(PATHS):
        path, type_ = path_into(drawn, drawn.choice(containers)), drawn.choice(TYPES)
        query = f"SELECT TRY_CAST({extraction(path)} AS {type_}) FROM ours"  # noqa: S608  our own names
        values = [row[0] for row in connection.sql(query).fetchall()]
        plain = {
            row: str(each) if isinstance(each, decimal.Decimal) else each
            for row, each in enumerate(values)
            if each is not None
        }
        found.append({"path": path, "type": type_, "values": plain})
    return found


def main(path: str) -> None:
    """Write the recorded file."""
    # Spark's reader multiplies decimals in the current context, which rounds beyond 28 digits.
    decimal.getcontext().prec = 64
    drawn = random.Random(4)  # noqa: S311  documents, no secrets
    documents = [{}, [], None, "", *(document(drawn) for _ in range(DOCUMENTS))]
    texts = [json.dumps(each) for each in documents]
    column = variant.from_json(texts, rules="spark")
    table = plain_table(column)
    connection = duckdb.connect().register("ours", table)
    read = connection.sql("SELECT CAST(v AS JSON)::VARCHAR FROM ours").fetchall()
    expected = variant.to_python(column)
    metadata, values = (table["v"].combine_chunks().field(name) for name in ("metadata", "value"))
    recorded = []
    for row, text in enumerate(texts):
        ours = metadata[row].as_py(), values[row].as_py()
        if json.loads(read[row][0]) != json.loads(text):
            raise SystemExit(f"DuckDB reads row {row} as {read[row][0]}, not {text}")
        if VariantUtils.to_python(ours[1], ours[0]) != expected[row]:
            raise SystemExit(f"Spark reads row {row} otherwise: {text}")
        value, names = VariantUtils.parse_json(text)
        recorded.append({"json": text, "value": ours[1].hex(), "spark": [names.hex(), value.hex()]})
    written = {
        "pyspark": pyspark.__version__,
        "duckdb": duckdb.__version__,
        "metadata": metadata[0].as_py().hex(),
        "documents": recorded,
        "extracts": extracts(connection, drawn, documents),
    }
    with open(path, "w", encoding="ascii") as file:
        json.dump(written, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
