"""Process B: reads the flights as views, reports, and measures."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.cli.demo.flight_side import table_through_flight
from bowstring.cli.demo.measure import Timings, measure
from bowstring.cli.demo.report import Carrier, report
from bowstring.cli.tables import print_table
from bowstring.cli.text import duration, number, shown, size
from bowstring.client import connect

if TYPE_CHECKING:
    import argparse

    from bowstring.reading.stream import StreamStatistics

__all__ = ["read"]

_ROUNDS = 15


@dataclasses.dataclass(slots=True)
class Outcome:
    """What process B found out."""

    lines: dict[str, Carrier]
    names: dict[str, str]
    stats: StreamStatistics
    facts: dict[str, Any]
    timings: Timings
    verified: bool
    same_as_flight: bool | None


def read(arguments: argparse.Namespace) -> int:
    """Read what a process A published; 0 where the report is what A computes, and the data what Flight brings."""
    outcome = _find_out(arguments.read, arguments.rounds or _ROUNDS)
    if arguments.json:
        print(json.dumps(_as_json(outcome)))
    else:
        _print_report(outcome)
        _print_road(outcome)
        _print_times(outcome)
    return 0 if outcome.verified and outcome.same_as_flight is not False else 1


def _find_out(uri: str, rounds: int) -> Outcome:
    expected, metadata = _small_table(uri, "expected")
    names, _ = _small_table(uri, "airlines")
    facts = json.loads(metadata.get(b"demo", b"{}"))
    flight = facts.get("flight")
    lines, stats, same = _read_views(uri, flight)
    return Outcome(
        lines,
        {row["carrier"]: row["name"] for row in names},
        stats,
        facts,
        measure(uri, flight, rounds),
        _agrees(lines, expected),
        same,
    )


def _read_views(uri: str, flight: str | None) -> tuple[dict[str, Carrier], StreamStatistics, bool | None]:
    """Return the report, how the views came, and whether Flight brings the same; nothing that holds a view."""
    with connect(uri) as stream:
        batches = list(stream)
        lines = report(batches)
        if flight is None:
            return lines, stream.stats, None
        ours = pa.Table.from_batches([batch.to_arrow() for batch in batches])
        return lines, stream.stats, ours.equals(table_through_flight(flight))


def _small_table(uri: str, name: str) -> tuple[list[dict[str, Any]], dict[bytes, bytes]]:
    """Return the rows of a data set beside the flights, and its metadata."""
    with connect(uri, name) as stream:
        table = stream.read_all()
        return table.to_pylist(), dict(table.schema.metadata or {})


def _agrees(lines: dict[str, Carrier], expected: list[dict[str, Any]]) -> bool:
    found = [{"carrier": name, **dataclasses.asdict(line)} for name, line in lines.items()]
    return found == expected


def _print_report(outcome: Outcome) -> None:
    stats, facts = outcome.stats, outcome.facts
    load, publish = facts.get("seconds_to_load"), facts.get("seconds_to_publish")
    print(
        f"Process A (pid {facts.get('pid', '?')}) loaded {number(stats.rows)} flights in {duration(load or 0)}"
    )
    print(f"and published them in {duration(publish or 0)}: one copy, into fresh shared memory.")
    whose = "A's memory" if stats.regions else "what it received"
    print(f"Process B (pid {os.getpid()}) reads them as zero-copy views of {whose}:\n")
    ranked = sorted(outcome.lines.items(), key=lambda each: -each[1].flights)
    rows = [(name, outcome.names.get(name, "?"), *_numbers(line)) for name, line in ranked]
    total = Carrier(*map(sum, zip(*map(dataclasses.astuple, outcome.lines.values()), strict=True)))
    rows.append(("", "all", *_numbers(total)))
    print_table(["Carrier", "Airline", "Flights", "Cancelled", "Mean delay"], rows, right=[2, 3, 4])
    said = "verified: exactly what pyarrow computes in process A"
    print(f"\n{said}" if outcome.verified else "\nNOT VERIFIED: pyarrow computes something else in process A")
    if outcome.same_as_flight is not None:
        print(
            "verified: every value as Arrow Flight brings it"
            if outcome.same_as_flight
            else "NOT VERIFIED: Arrow Flight brings other values"
        )


def _numbers(line: Carrier) -> tuple[str, str, str]:
    mean = line.mean_delay
    return number(line.flights), f"{line.cancelled:.1%}", "–" if mean is None else f"{mean:.1f} min"


def _print_road(outcome: Outcome) -> None:
    stats = outcome.stats
    moved = f"{number(stats.rows)} rows in {number(stats.batches)} batches, {size(stats.nbytes)} in buffers"
    print(
        f"\nmoved   {moved}\ndevice  {shown(stats.device)}\npath    {shown(stats.path)}: {shown(stats.why)}\n"
    )


def _print_times(outcome: Outcome) -> None:
    timings = outcome.timings
    series = [
        ("Bowstring, connect → views", timings.views),
        ("Bowstring, connect → every byte read once", timings.bytes_read),
        (
            "  … in memory mapped by an earlier stream",
            timings.bytes_read_cached if outcome.stats.regions else [],
        ),
        ("Arrow Flight, connect → every byte read once", timings.flight),
    ]
    rows = [
        (what, duration(statistics.median(seconds)), duration(min(seconds)), duration(max(seconds)))
        for what, seconds in series
        if seconds
    ]
    print_table([f"In turn, {len(timings.views)} rounds", "median", "least", "most"], rows, right=[1, 2, 3])
    if timings.ratio is None:
        print(
            f"\nnot compared with Arrow Flight: {shown(outcome.facts.get('no_flight', 'process A offers none'))}"
        )
    else:
        print(f"\nArrow Flight on localhost takes {timings.ratio:.1f} × as long to every byte read.")


def _as_json(outcome: Outcome) -> dict[str, Any]:
    stats, timings = outcome.stats, outcome.timings
    return {
        "verified": outcome.verified,
        "same_as_flight": outcome.same_as_flight,
        "rows": stats.rows,
        "batches": stats.batches,
        "bytes": stats.nbytes,
        "device": stats.device,
        "path": stats.path,
        "why": stats.why,
        "carriers": [
            {
                "carrier": name,
                "airline": outcome.names.get(name),
                **dataclasses.asdict(line),
                "cancelled_share": line.cancelled,
                "mean_delay": line.mean_delay,
            }
            for name, line in outcome.lines.items()
        ],
        "process_a": outcome.facts,
        "rounds": len(timings.views),
        "bytes_read": timings.nbytes,
        "flight_bytes_read": timings.nbytes_flight,
        "seconds": timings.as_json(),
        "ratio": timings.ratio,
    }
