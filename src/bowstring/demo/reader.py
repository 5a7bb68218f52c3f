"""Process B of the first part: reads the flights as views, reports, and measures beside Arrow Flight."""

from __future__ import annotations

import collections
import json
import os
import statistics
import time
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.data.payload import nbytes, payload, read_every_byte
from bowstring.benchmarks.processes.mappings import forget_mappings
from bowstring.errors import BrokenError

_FLIGHT_SECONDS: Final = 60.0


class Reader:
    """Process B."""

    def read(self, uri: str, rounds: int) -> dict[str, Any]:
        """Call :func:`read` in this process."""
        return read(uri, rounds)


def read(uri: str, rounds: int) -> dict[str, Any]:
    """Read what a process A published: the report, whether it is A's, how the data came, and how fast.

    It measures so many rounds, after a first one that does not count.
    """
    (expected, metadata), (airlines, _) = _table(uri, "expected"), _table(uri, "airlines")
    facts = json.loads(metadata.get(b"demo", b"{}"))
    flight = facts.get("flight")
    lines, same, stats = _read_once(uri, flight)
    timings, read = _measure(uri, flight, rounds)
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
        **read,
        "seconds": timings,
        "ratio": flight and timings["flight_bytes_read"]["median"] / timings["bytes_read"]["median"],
    }


def moved(stats: Any) -> dict[str, Any]:
    """Return the statistics of a stream: how much it moved, and how."""
    return {
        "rows": stats.rows,
        "batches": stats.batches,
        "bytes": stats.nbytes,
        "device": stats.device,
        "path": stats.path,
        "why": stats.why,
    }


def _read_once(uri: str, flight: str | None) -> tuple[list[dict[str, Any]], bool | None, Any]:
    """Return the report, whether Flight brings the same, and the statistics; nothing that holds a view."""
    with bow.connect(uri) as stream:
        batches = list(stream)
        if flight is None:
            return report(batches), None, stream.stats
        same = pa.Table.from_batches([each.to_arrow() for each in batches]).equals(_fetch(flight))
        return report(batches), same, stream.stats


def _table(uri: str, name: str) -> tuple[list[dict[str, Any]], dict[bytes, bytes]]:
    """Return the rows of a data set beside the flights, and its metadata, without a view."""
    with bow.connect(uri, name) as stream:
        table = stream.read_all()
        return table.to_pylist(), dict(table.schema.metadata or {})


def report(batches: Iterable[bow.Batch]) -> list[dict[str, Any]]:
    """Return flights, departures and minutes of delay per carrier, sorted; the columns stay where they are."""
    found: dict[str, list[int]] = {}
    for batch in batches:
        dictionary = batch["carrier"].dictionary
        assert dictionary is not None
        for name, *sums in zip(dictionary.to_arrow().to_pylist(), *_sums(batch), strict=False):
            line = found.setdefault(name, [0, 0, 0])
            line[:] = [before + more for before, more in zip(line, sums, strict=True)]
    heads = ("flights", "departed", "delay_minutes")
    return [
        {"carrier": name, **dict(zip(heads, line, strict=True))}
        for name, line in sorted(found.items())
        if line[0]
    ]


def _sums(batch: bow.Batch) -> list[list[int]]:
    """Return, for each code of a carrier, the number of flights, that of departures, the sum of delays."""
    xp = batch.device.xp
    present, departed, delayed = (_valid(batch[name], xp) for name in ("carrier", "dep_time", "dep_delay"))
    # A null slot may hold anything: it counts as carrier 0, with weight 0.
    codes = xp.where(present, batch["carrier"].raw_values, 0)
    delays = xp.where(present & delayed, batch["dep_delay"].raw_values, 0)
    dictionary = batch["carrier"].dictionary
    assert dictionary is not None
    # Sums of whole minutes are exact in float64 far beyond 2013.
    return [
        batch.device.to_host(xp.bincount(codes, weights=weights, minlength=len(dictionary)))
        .astype("int64")
        .tolist()
        for weights in (present, present & departed, delays)
    ]


def _valid(column: bow.Column, xp: Any) -> Any:
    bits = column.validity
    if bits is None:
        return xp.ones(len(column), bool)
    return xp.unpackbits(bits, bitorder="little")[: len(column)].astype(bool)


def _measure(uri: str, flight: str | None, rounds: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Read the flights through Bowstring and Arrow Flight in turn; return seconds, and the bytes read."""
    series: dict[str, list[float]] = collections.defaultdict(list)
    read = {"bytes_read": 0, "flight_bytes_read": 0}
    for turn in range(rounds + 1):
        found = {}
        forget_mappings()  # the next stream starts as in a new process
        found["views"], found["bytes_read"], read["bytes_read"] = _read_views(uri)
        if flight is not None:
            found["flight_bytes_read"], read["flight_bytes_read"] = _read_flight(flight)
        _, found["bytes_read_cached"], _ = _read_views(uri)
        for name, seconds in found.items() if turn else ():
            series[name].append(seconds)
    median = statistics.median
    timings = {
        name: {"median": median(each), "least": min(each), "most": max(each), "all": each}
        for name, each in series.items()
    }
    return timings, read


def _read_views(uri: str) -> tuple[float, float, int]:
    """Return the seconds to the views, the seconds to every byte read, and the bytes."""
    began = time.perf_counter()
    with bow.connect(uri) as stream:
        batches = list(stream)
        views = time.perf_counter() - began
        buffers = payload(batch.to_arrow() for batch in batches)
        read_every_byte(buffers)
        return views, time.perf_counter() - began, nbytes(buffers)


def _read_flight(location: str) -> tuple[float, int]:
    began = time.perf_counter()
    buffers = payload(_fetch(location).to_batches())
    read_every_byte(buffers)
    return time.perf_counter() - began, nbytes(buffers)


def _fetch(location: str) -> pa.Table:
    """Return the flights as Arrow Flight brings them."""
    from pyarrow import flight

    options = flight.FlightCallOptions(timeout=_FLIGHT_SECONDS)
    try:
        with flight.connect(location) as client:
            return client.do_get(flight.Ticket(b"flights"), options).read_all()
    except pa.ArrowException as error:
        raise BrokenError("Arrow Flight failed", found=str(error).partition("\n")[0]) from error
