"""The same table through Arrow Flight: what a user would take instead."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from bowstring.cli.demo.reading import arrays_of_arrow, read_every_byte
from bowstring.errors import BrokenError, MissingDependency

__all__ = ["read_through_flight", "serve_flight", "table_through_flight"]

_SECONDS = 60.0


def _flight() -> Any:
    try:
        import pyarrow.flight
    except ImportError as error:
        raise MissingDependency("this pyarrow came without Arrow Flight", found=str(error)) from error
    return pyarrow.flight


def serve_flight(table: pa.Table) -> tuple[Any, str]:
    """Offer a table on the loopback interface; return (server, location). ``server.shutdown()`` ends it.

    Raises
    ------
    MissingDependency
        pyarrow was built without Flight.
    """
    flight = _flight()

    class FlightServer(flight.FlightServerBase):  # type: ignore[misc,name-defined]  # pyarrow has no types
        def do_get(self, _context: Any, _ticket: Any) -> Any:
            return flight.RecordBatchStream(table)

    server = FlightServer("grpc+tcp://127.0.0.1:0")
    return server, f"grpc+tcp://127.0.0.1:{server.port}"


def read_through_flight(location: str) -> tuple[float, int]:
    """Connect, read all batches and every byte of them once.

    Returns
    -------
    seconds, nbytes
        How long it took, and how much was read.

    Raises
    ------
    BrokenError
        Flight failed.
    """
    began = time.perf_counter()
    with _reader(location) as reader:
        batches = [chunk.data for chunk in reader]
        nbytes, _ = read_every_byte(array for batch in batches for array in arrays_of_arrow(batch))
        return time.perf_counter() - began, nbytes


def table_through_flight(location: str) -> pa.Table:
    """Return the whole table.

    Raises
    ------
    BrokenError
        Flight failed.
    """
    with _reader(location) as reader:
        return reader.read_all()


@contextlib.contextmanager
def _reader(location: str) -> Iterator[Any]:
    flight = _flight()
    try:
        with flight.connect(location) as client:
            yield client.do_get(flight.Ticket(b"flights"), flight.FlightCallOptions(timeout=_SECONDS))
    except pa.ArrowException as error:
        raise BrokenError("Arrow Flight failed", found=str(error).partition("\n")[0]) from error
