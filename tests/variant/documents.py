"""Random documents, paths into them, and Variant columns as peers import them."""

from __future__ import annotations

import decimal
import random
from typing import Any

import pyarrow as pa

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.variant import Status

DUCKDB_TYPES = {
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "DECIMAL(38,8)": pa.decimal128(38, 8),
    "VARCHAR": pa.string(),
}
KEYS = ("a", "b", "é", "x.y", "long key name", "", "\uffe5", "'")


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


def path_into(drawn: random.Random, whole: Any) -> list[str | int]:
    """Return the way to something in a document, now and then to nothing."""
    path: list[str | int] = []
    while isinstance(whole, (dict, list)) and whole and drawn.random() < 0.9:
        steps: dict[str | int, Any] = dict(whole if isinstance(whole, dict) else enumerate(whole))
        path.append(drawn.choice(list(steps)))
        whole = steps[path[-1]]
    return [*path, drawn.choice((*KEYS, 0, 1))] if drawn.random() < 0.1 else path


def written(path: list[str | int]) -> str:
    """Return a path as Spark and we read it."""

    def step(each: str | int) -> str:
        if isinstance(each, int):
            return f"[{each}]"
        return f'["{each}"]' if "'" in each else f"['{each}']"

    return "$" + "".join(map(step, path))


def plain_table(column: Column) -> pa.Table:
    """Return a Variant column as a table whose metadata stands in every row."""
    rows = column.to_arrow()
    metadata = rows.field("metadata").cast(pa.binary()).fill_null(b"")
    values = rows.field("value").cast(pa.binary()).fill_null(b"")
    plain = pa.StructArray.from_arrays([metadata, values], ["metadata", "value"], mask=rows.is_null())
    field = pa.field("v", plain.type, metadata=column.field.metadata)
    return pa.Table.from_arrays([plain], schema=pa.schema([field]))


def extraction(path: list[str | int]) -> str:
    """Return the path as DuckDB takes it: step by step, elements counted from 1."""
    found = "v"
    for step in path:
        place = str(step + 1) if isinstance(step, int) else "'" + step.replace("'", "''") + "'"
        found = f"variant_extract({found}, {place})"
    return found


def agree_with_duckdb(column: Column, path: list[str | int], type_: str, theirs: list[Any]) -> None:
    """Check that what we cast without loss is DuckDB's value, and that what is missing is NULL there too."""
    # DuckDB rounds floats to decimals of other digits than their shortest text has.
    batch = variant.get(column, path, DUCKDB_TYPES[type_], cast="exact", with_status=True)
    ours, statuses = batch.columns[0].to_arrow().to_pylist(), batch["status"].values.tolist()
    for row, (mine, value, status) in enumerate(zip(ours, theirs, statuses, strict=True)):
        if status == Status.OK:
            wanted = decimal.Decimal(value) if isinstance(mine, decimal.Decimal) else value
            assert (type(mine), mine) == (type(wanted), wanted), (row, path)
        elif status <= Status.VARIANT_NULL:
            assert value is None, (row, path)
