"""Four workers of a FastAPI application that share one table: python examples/fastapi_workers.py.

The parent loads the table and starts uvicorn. Each worker maps the table when it starts, so none has a copy.
A number behind the command is how many rows there are: 125,000,000 are 2 GB.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from fastapi import FastAPI

import bowstring as bow

WORKERS = 4


def private_bytes() -> int:
    """Return how much memory this process has for itself alone."""
    rollup = Path("/proc/self/smaps_rollup").read_text("utf-8")
    return sum(int(kilobytes) << 10 for kilobytes in re.findall(r"Private_\w+: +(\d+) kB", rollup))


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Map the table when a worker starts."""
    app.state.before = private_bytes()
    app.state.trips = bow.get(os.environ["TRIPS"])
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/fares/{trip}")
def fare(trip: int) -> dict[str, float]:
    """Return the fare of a trip, and what this worker's memory grew by since it started."""
    return {"fare": app.state.trips["fare"][trip].as_py(), "grown": private_bytes() - app.state.before}


def ask(address: str, deadline: float) -> dict[str, float]:
    """Return an answer, as soon as there is a worker that gives one."""
    while True:
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310  our own
                return dict(json.load(answer))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> None:
    """Publish a table, start the application, and ask it."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000_000
    trips = pa.table({"trip": np.arange(rows), "fare": np.arange(rows) % 50 / 2})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with bow.Server() as server:
        uri = str(server.publish("trips", trips))
        command = [sys.executable, "-m", "uvicorn", "fastapi_workers:app", "--workers", str(WORKERS)]
        options = ["--port", port, "--log-level", "error", "--app-dir", str(Path(__file__).parent)]
        with subprocess.Popen([*command, *options], env={**os.environ, "TRIPS": uri}) as workers:  # noqa: S603  our own
            asked = range(0, rows, rows // 40)
            deadline = time.monotonic() + 60
            answers = [ask(f"http://127.0.0.1:{port}/fares/{trip}", deadline) for trip in asked]
            workers.send_signal(signal.SIGINT)
    right = all(each["fare"] == trip % 50 / 2 for each, trip in zip(answers, asked, strict=True))
    little = max(each["grown"] for each in answers) < trips.nbytes / 5
    print(f"{len(answers)} answers, all right: {right}")
    print(f"a table of {trips.nbytes:,} bytes; no worker grew by a fifth of it: {little}")


if __name__ == "__main__":
    main()
