"""The data of the fault tests: tables whose bytes tell what they are, and memory that is used again."""

from __future__ import annotations

import gc
from typing import Final

import numpy as np
import pyarrow as pa

import bowstring as bow

ROWS: Final = 20_000
SCHEMA: Final = pa.schema([("n", pa.int64()), ("s", pa.string())])


def batch_of(number: int, rows: int = ROWS) -> pa.RecordBatch:
    """Return a batch that is full of one number."""
    return pa.record_batch([np.full(rows, number), pa.array([f"{number:04}"] * rows)], schema=SCHEMA)


def table_of(batches: int = 3, first: int = 0, rows: int = ROWS) -> pa.Table:
    """Return a table of some batches, numbered from `first`."""
    return pa.Table.from_batches([batch_of(first + number, rows) for number in range(batches)], SCHEMA)


def number_of(batch: bow.Batch) -> int:
    """Return the number that a batch is full of; fail if it is full of several."""
    values = batch["n"].values
    assert (values == values[0]).all()
    assert batch["s"].to_arrow()[-1].as_py() == f"{values[0]:04}"
    return int(values[0])


def publish_again(server: bow.Server, times: int = 100, rows: int = ROWS) -> None:
    """Publish and withdraw other data of the same size, over and over."""
    for number in range(times):
        server.publish("again", table_of(3, 1000 + number, rows))
        server.withdraw("again")
    gc.collect()
