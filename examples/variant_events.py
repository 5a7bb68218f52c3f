"""JSON events as a Variant column, asked by path in another process: python examples/variant_events.py.

The column keeps every event as it came, without a schema. Readers ask for values by path and type. In the end the
events are in a Parquet file, shredded, of which a query reads the columns that it needs.
"""

from __future__ import annotations

import json
import tempfile
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

import bowstring as bow


def events(count: int) -> list[str]:
    """Return events of three kinds as JSON texts."""
    kinds = (
        {"kind": "order", "user": {"id": 7}, "items": [{"price": 5}, {"price": 7}]},
        {"kind": "login", "user": {"id": 8, "name": "Ada"}},
        {"kind": "error", "code": "E17"},
    )
    return [json.dumps(kinds[number % 3]) for number in range(count)]


def ask(uri: str) -> None:
    """Read the events in this process, and print what is in them."""
    with bow.connect(uri) as stream:
        batch = next(stream)
    event = batch["event"]
    kind = bow.variant.get(event, "$.kind", "string").to_arrow()
    print("kinds:", sorted((each["values"], each["counts"]) for each in kind.value_counts().to_pylist()))
    price = bow.variant.get(event, "$.items[-1].price", "int64").to_arrow()
    print("sum of the last prices:", pa.compute.sum(price).as_py())
    named = bow.variant.exists(event, "$.user.name").to_arrow()
    print("events with a user's name:", pa.compute.sum(named).as_py())
    print("schema of the first hundred:", bow.variant.schema_of(event, sample=100))


def main() -> None:
    """Publish the events, let another process ask, and write them to a file."""
    column = bow.variant.from_json(events(300_000), name="event")
    with bow.Server() as server:
        uri = str(server.publish("events", {"id": np.arange(len(column)), "event": column}))
        reader = get_context("spawn").Process(target=ask, args=(uri,))
        reader.start()
        reader.join()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        bow.parquet.write({"event": column}, path, shred="infer")
        code = bow.variant.path("event", "$.code", pa.string())
        with bow.parquet.read(path, columns=[code], filters=code == "E17") as stream:
            print("errors in the file:", stream.read_all().num_rows)


if __name__ == "__main__":
    main()
