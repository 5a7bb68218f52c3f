"""A process that serves a data set by Flight: many batches, made as they are read, or a table.

Called with ``lazy`` or ``table``, and with ``open`` to exit without closing. Prints the server's URI and, for each
line that it reads, how many batches were made and how many readers there are; exits at the line ``exit``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import bowstring as bow

ROWS = 1 << 17  # a megabyte
BATCHES = 1000
made = 0


def batch_of(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.full(ROWS, number)})


def batches() -> Iterator[pa.RecordBatch]:
    global made  # noqa: PLW0603  the number that is asked for
    for number in range(BATCHES):
        made += 1
        yield batch_of(number)


logging.getLogger("bowstring").setLevel("ERROR")  # a client that stopped reading is warned of
# `inproc:`, so that nothing but Flight is left.
server = bow.Server("inproc:", limits=bow.Limits(close_timeout=0.5))
flights = bow.flight.serve(server)
if sys.argv[1] == "lazy":
    server.publish("t", batches)
else:
    server.publish("t", pa.Table.from_batches([batch_of(number) for number in range(100)]))
print(flights.uri, flush=True)
for line in sys.stdin:
    if line.strip() == "exit":
        break
    print(made, bow.list_datasets(server.address)[0].readers, flush=True)
if "open" not in sys.argv:
    flights.close()
    server.close()
