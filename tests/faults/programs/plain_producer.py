"""A producer of 100 batches, each full of its number; ``lazy`` ones, or a ``table``. Prints its endpoint twice."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import bowstring as bow

ROWS = 1000
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def batches() -> Iterator[pa.RecordBatch]:
    for number in range(100):
        yield pa.record_batch([np.full(ROWS, number), pa.array([f"{number:04}"] * ROWS)], schema=SCHEMA)


def slowly() -> Iterator[pa.RecordBatch]:
    for batch in batches():
        time.sleep(0.005)
        yield batch


tls = bow.TlsConfig(cert=os.environ["TESTS_TLS_CERT"]) if sys.argv[1].startswith("tls:") else None
with bow.Server(sys.argv[1], tls=tls, limits=bow.Limits(heartbeat=0.2)) as server:
    lazy = sys.argv[2] == "lazy"
    endpoint = server.publish(
        "t", slowly if lazy else pa.Table.from_batches(batches()), schema=SCHEMA if lazy else None
    )
    print(f"{endpoint}\n{endpoint}", flush=True)
    sys.stdin.read()
