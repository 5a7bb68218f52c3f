"""What the tests of Flight share: a server and its Flight server, plain Flight servers, the watch for leaks."""

from __future__ import annotations

import collections
import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import bowstring as bow
from bowstring.memory import default_pool, mappings
from tests.ucx import open_ucx

TOKEN = "a secret of 20 marks"
TABLE = pa.table({"n": np.arange(10_000), "s": pa.array(["x", None] * 5_000).dictionary_encode()})
LIMITS = bow.Limits(
    connect_timeout=10.0, reply_timeout=10.0, stall_timeout=10.0, heartbeat=0.2, close_timeout=1.0
)


def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
        gc.collect()


# What gRPC, pyarrow and the Go of ADBC keep for the process, more of it where more threads wait.
_KEPT_BY_GRPC = ("pipe:", "anon_inode:[eventfd]", "anon_inode:[eventpoll]", "/sys/")


def _left() -> tuple[list[str], list[str]]:
    """Return what descriptors stand for that may be ours, and the names of our threads."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(entry.readlink()))
    threads = [each.name for each in threading.enumerate() if each.name.startswith("bowstring-")]
    return sorted(each for each in found if not each.startswith(_KEPT_BY_GRPC)), sorted(threads)


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test here leaves nothing behind: no socket, no memory, no thread, nothing mapped."""
    if "ucx" in request.node.name:
        open_ucx()
    gc.collect()
    before = _left()
    yield

    def clean() -> bool:
        mappings().clear()
        default_pool().trim()
        files, threads = _left()
        return not (collections.Counter(files) - collections.Counter(before[0])) and len(threads) <= len(
            before[1]
        )

    try:
        until(clean)
    except AssertionError:
        pytest.fail(f"left behind: {_left()}, before: {before}")


Serve = Callable[..., tuple[bow.Server, bow.flight.FlightServer]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that makes a server and its Flight server; options of the latter begin with ``flight_``."""
    with contextlib.ExitStack() as stack:

        def make(address: str = "unix:", **options: Any) -> tuple[bow.Server, bow.flight.FlightServer]:
            chosen = {
                name.removeprefix("flight_"): options.pop(name) for name in list(options) if "flight_" in name
            }
            options.setdefault("limits", LIMITS)
            server = stack.enter_context(bow.Server(address, **options))
            at = chosen.pop("address", "grpc://127.0.0.1:0")
            return server, stack.enter_context(bow.flight.serve(server, at, **chosen))

        yield make


@pytest.fixture
def plain() -> Iterator[Callable[[flight.FlightServerBase], str]]:
    """Return a function that gives the address of somebody else's Flight server, which ends with the test."""
    with contextlib.ExitStack() as stack:

        def keep(server: Any) -> str:
            stack.callback(server.shutdown)
            return f"grpc://127.0.0.1:{server.port}"

        yield keep


@contextlib.contextmanager
def client_of(flights: bow.flight.FlightServer, token: str | None = None, **options: Any) -> Iterator[Any]:
    """Give a client of pyarrow's, and the options of its calls."""
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    with flight.connect(flights.uri, **options) as client:
        yield client, flight.FlightCallOptions(headers=headers, timeout=20.0)


def path(name: str) -> flight.FlightDescriptor:
    """Return what asks for a data set by name."""
    return flight.FlightDescriptor.for_path(name)


def read(source: Any, *arguments: Any, **options: Any) -> pa.Table:
    """Read all of a data set, and keep none of its memory."""
    options.setdefault("limits", LIMITS)
    with bow.connect(source, *arguments, **options) as stream:
        return pa.Table.from_pydict(stream.read_all().to_pydict(), schema=stream.schema)
