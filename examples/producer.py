"""Publish a table and wait until one process has read it: python examples/producer.py."""

import numpy as np
import pyarrow as pa

import bowstring as bow

trips = pa.table({"trip": np.arange(10_000_000), "fare": np.arange(10_000_000) % 100 / 2})

with bow.Server("unix:tables.sock") as server:  # or bow.Server(): a private socket; "tcp://host:port"
    server.publish("trips", trips, readers=1)
    print(f"published {trips.num_rows:,} rows, {trips.nbytes:,} bytes", flush=True)
    server.wait_released()
    print("read and released by the consumer")
