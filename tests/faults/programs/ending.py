"""A script that ends in the middle of everything, one way for each name; prints ``end`` as its last act.

Called with the case and an address. Nothing is closed, on purpose.
"""

from __future__ import annotations

import faulthandler
import gc
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import bowstring as bow

case, address = sys.argv[1:]
faulthandler.dump_traceback_later(55.0, exit=True)
SCHEMA = pa.schema([("n", pa.int64())])
# A thread that nobody wakes would cost the close_timeout, which no busy machine takes.
LIMITS = bow.Limits(window_bytes=20_000, close_timeout=50.0)
keep: list[object] = []
# The modules are torn down last: what hangs on one of them is released after finalization has begun.
sys.modules["late"] = keep  # type: ignore[assignment]


def endless() -> Iterator[pa.RecordBatch]:
    number = 0
    while True:
        yield pa.record_batch({"n": np.full(1000, number)})
        number += 1


def slow() -> Iterator[pa.RecordBatch]:
    for batch in endless():
        yield batch
        time.sleep(60.0)


def read_on(stream: bow.Stream) -> None:
    try:
        for batch in stream:
            keep[:] = [batch["n"].values]
    except bow.BowstringError:
        return


def publish_on(server: bow.Server) -> None:
    try:
        while True:
            server.publish("again", {"n": np.zeros(100_000)})
            server.withdraw("again")
    except bow.BowstringError:
        return


server = bow.Server(address, limits=LIMITS)
data = {"resident": lambda: [pa.record_batch({"n": np.full(1000, n)}) for n in range(300)], "slow": slow}
kind = case.partition(" ")[2]
what = case.partition(" ")[0]
endpoint = server.publish("t", data.get(kind, endless)(), schema=None if kind == "resident" else SCHEMA)
stream = bow.connect(endpoint, limits=LIMITS)
batch = stream.read_next_batch()
view = batch["n"].values
match what:
    case "views":
        keep += [view, batch.to_arrow(), batch["n"].to_arrow()]
    case "capsules":
        keep += [batch.__arrow_c_array__(), stream.__arrow_c_stream__(), pa.table(batch).__arrow_c_stream__()]
    case "reader":
        keep += [stream.to_reader()]
    case "objects":
        keep += [stream, server, batch]
    case "cycle":
        gc.disable()
        cycle: list[object] = [view, batch, stream, server]
        cycle.append(cycle)
        del cycle
    case "reading":
        threading.Thread(target=read_on, args=(stream,), daemon=True).start()
        time.sleep(0.05)
    case "publishing":
        threading.Thread(target=publish_on, args=(server,), daemon=True).start()
        time.sleep(0.05)
    case "dataset":
        uris = tuple(server.publish(f"u{n}", slow(), schema=SCHEMA) for n in range(6))
        many = bow.connect(
            bow.Dataset(uris, SCHEMA), options=bow.ConnectOptions(ordered=False), limits=LIMITS
        )
        keep += [many.read_next_batch(), many]
    case "starving":
        keep += [stream.read_next_batch() for _ in range(2)]
    case "alone":
        server.close()
        del server
    case "exit":
        print("end", flush=True)
        sys.exit(0)
print("end", flush=True)
