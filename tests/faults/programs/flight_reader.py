"""A process that reads a flight by pyarrow's client: one batch, and then it says so and waits.

Called with the URI of a server that has the data set ``t``.
"""

from __future__ import annotations

import sys

from pyarrow import flight

client = flight.connect(sys.argv[1])
info = client.get_flight_info(flight.FlightDescriptor.for_path("t"))
reader = client.do_get(info.endpoints[0].ticket)
print(reader.read_chunk().data.num_rows, flush=True)
sys.stdin.read()
