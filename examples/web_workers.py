"""Four workers of a web service that answer from one table in shared memory: python examples/web_workers.py.

The parent loads the table once. Each worker maps it when it starts; with gunicorn or uvicorn that is a line of the
application's start, ``app.state.trips = bow.get(uri)``. No worker has a copy, and the parent may publish anew.
"""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

import bowstring as bow

ROWS = 8_000_000


def private_bytes() -> int:
    """Return how much memory this process has for itself alone."""
    rollup = Path("/proc/self/smaps_rollup").read_text("utf-8")
    return sum(int(kilobytes) << 10 for kilobytes in re.findall(r"Private_\w+: +(\d+) kB", rollup))


class Worker(HTTPServer):
    """Answers requests that arrive at a socket which all workers share."""

    def __init__(self, listener: socket.socket, uri: str) -> None:
        super().__init__(("", 0), Answer, bind_and_activate=False)
        self.socket = listener
        self.before = private_bytes()
        self.trips = bow.get(uri)


class Answer(BaseHTTPRequestHandler):
    """Answers ``/NUMBER`` with the fare of a trip, and with what this worker's memory grew by."""

    server: Worker

    def do_GET(self) -> None:
        """Look the trip up."""
        fare = self.server.trips["fare"][int(self.path[1:])].as_py()
        body = json.dumps({"fare": fare, "grown": private_bytes() - self.server.before}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


def work(listener: socket.socket, uri: str) -> None:
    """Serve until the parent ends this process."""
    Worker(listener, uri).serve_forever()


def main() -> None:
    """Publish a table, start workers, and ask them."""
    trips = pa.table({"trip": np.arange(ROWS), "fare": np.arange(ROWS) % 50 / 2})
    with bow.Server() as server, socket.create_server(("127.0.0.1", 0)) as listener:
        uri = str(server.publish("trips", trips))
        spawn = get_context("spawn")
        workers = [spawn.Process(target=work, args=(listener, uri), daemon=True) for _ in range(4)]
        for worker in workers:
            worker.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        asked = range(0, ROWS, ROWS // 40)
        answers = [json.load(urllib.request.urlopen(f"{address}/{trip}")) for trip in asked]  # noqa: S310  our own
        for worker in workers:
            worker.terminate()
            worker.join()
    right = all(each["fare"] == trip % 50 / 2 for each, trip in zip(answers, asked, strict=True))
    little = max(each["grown"] for each in answers) < trips.nbytes / 5
    print(f"{len(answers)} answers, all right: {right}")
    print(
        f"a table of {trips.nbytes:,} bytes; each worker, modules included, grew by less than a fifth: {little}"
    )


if __name__ == "__main__":
    main()
