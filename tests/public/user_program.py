"""What a user's project does with Bowstring, under the strictest settings of its type checker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import bowstring as bow
from bowstring import geo, ipc, parquet, variant, vortex
from bowstring.errors import BowstringError, UnknownName


def batches() -> Iterator[dict[str, npt.NDArray[np.float64]]]:
    """Make a table piece by piece."""
    yield {"fare": np.arange(3, dtype=np.float64)}


def publish(server: bow.Server, table: pa.Table) -> str:
    """Publish a table, look at it, and return where it is."""
    endpoint = server.publish("trips", table, readers=2, replace=True)
    server.publish("parts", batches())
    for dataset in bow.list_datasets(server.address):
        rows: int | None = dataset.num_rows
        print(dataset.name.upper(), rows, dataset.schema)
    return str(endpoint)


def read(uri: str) -> float:
    """Read some columns without a copy."""
    total = 0.0
    try:
        with bow.connect(
            uri, columns=["fare"], timeout=10, options=bow.ConnectOptions(validate="full")
        ) as stream:
            for batch in stream:
                fares: npt.NDArray[np.float64] = batch["fare"].to_numpy()
                total += float(fares.sum())
                print(batch.num_rows, batch.schema, batch.nbytes)
            path: str = stream.stats.path
            print(path)
    except UnknownName as error:
        print(error.hint)
    except BowstringError:
        return 0.0
    return total


async def read_along(uri: str) -> int:
    """Read in asyncio."""
    rows = 0
    async with bow.connect_async(uri) as stream:
        async for batch in stream:
            rows += batch.num_rows
    return rows


def documents(lines: list[str]) -> list[int | None]:
    """Take a value out of each document."""
    events = variant.from_json(lines)
    numbers: list[int | None] = variant.get(events, "$.user.id", pa.int64()).to_arrow().to_pylist()
    texts: list[str | None] = variant.to_json(events).to_arrow().to_pylist()
    print(texts)
    return numbers


def files(folder: str, table: pa.Table) -> int:
    """Write and read a file of each format."""
    path = os.path.join(folder, "trips.parquet")
    parquet.write(table, path)
    rows = 0
    with parquet.read(path, columns=["fare"]) as stream:
        for batch in stream:
            rows += batch.num_rows
    with ipc.new_file(os.path.join(folder, "trips.arrow"), table.schema) as writer:
        writer.write_table(table)
    with ipc.open_file(os.path.join(folder, "trips.arrow")) as reader:
        rows += reader.num_record_batches
    return rows


if __name__ == "__main__":
    with bow.Server() as here:
        where = publish(here, pa.table({"fare": [1.0]}))
        print(read(where), asyncio.run(read_along(where)))
    print(documents(['{"user": {"id": 7}}']), geo.__name__, vortex.__name__)
