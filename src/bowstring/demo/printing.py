"""What the demo found, in words and tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

from bowstring.cli.terminal import duration, number, print_table, shown, size
from bowstring.demo.places import FACTS

_COUNTRIES: Final = 15
_SUMMED: Final = ("places", "people", "names")


def print_flights(found: dict[str, Any]) -> None:
    """Print the first part: the report per carrier, what moved how, and how fast."""
    facts, seconds = found["process_a"], found["seconds"]
    load, publish = (duration(facts.get(f"seconds_to_{name}") or 0) for name in ("load", "publish"))
    print(f"Process A (pid {facts.get('pid', '?')}) loaded {number(found['rows'])} flights in {load}")
    print(f"and published them in {publish}: one copy, into fresh shared memory.")
    whose = "A's memory" if found["regions"] else "what it received"
    print(f"Process B (pid {found['pid']}) reads them as zero-copy views of {whose}:\n")
    ranked = sorted(found["carriers"], key=lambda line: -line["flights"])
    total = {name: sum(line[name] for line in ranked) for name in ("flights", "departed", "delay_minutes")}
    rows = [(line["carrier"], line["airline"] or "?", *_flights(line)) for line in ranked]
    headings = ["Carrier", "Airline", "Flights", "Cancelled", "Mean delay"]
    print_table(headings, [*rows, ("", "all", *_flights(total))], right=[2, 3, 4])
    other = "NOT VERIFIED: pyarrow computes something else in process A"
    print("\nverified: exactly what pyarrow computes in process A" if found["verified"] else f"\n{other}")
    if found["same_as_flight"] is not None:
        same = "verified: every value as Arrow Flight brings it"
        print(same if found["same_as_flight"] else "NOT VERIFIED: Arrow Flight brings other values")
    _print_moved(found)
    series = {
        "Bowstring, connect → views": "views",
        "Bowstring, connect → every byte read once": "bytes_read",
        "Arrow Flight, connect → every byte read once": "flight_bytes_read",
    }
    times = [(what, *_middle(seconds[name])) for what, name in series.items() if name in seconds]
    print_table([f"In turn, {found['rounds']} rounds", "median", "least", "most"], times, right=[1, 2, 3])
    if found["ratio"] is None:
        why = shown(facts.get("no_flight", "process A offers none"))
        print(f"\nnot compared with Arrow Flight: {why}")
    else:
        print(f"\nArrow Flight on localhost takes {found['ratio']:.1f} × as long to every byte read.")


def _flights(line: dict[str, Any]) -> tuple[str, str, str]:
    flights, departed = line["flights"], line["departed"]
    mean = f"{line['delay_minutes'] / departed:.1f} min" if departed else "–"
    return number(flights), f"{1 - departed / flights:.1%}", mean


def _print_moved(read: dict[str, Any]) -> None:
    rows, batches, nbytes = number(read["rows"]), number(read["batches"]), size(read["bytes"])
    print(f"\nmoved   {rows} rows in {batches} batches, {nbytes} in buffers")
    print(f"device  {shown(read['device'])}\npath    {shown(read['path'])}: {shown(read['why'])}\n")


def _middle(seconds: Sequence[float]) -> tuple[str, str, str]:
    return duration(statistics.median(seconds)), duration(min(seconds)), duration(max(seconds))


def print_pipeline(found: dict[str, Any]) -> None:
    """Print the second part: the report per country, what moved how, and whether Spark agrees."""
    spark, read, rows = found["spark"], found["read"], number(found["rows"])
    start, load = duration(spark["seconds_to_start"]), duration(spark["seconds_to_load"])
    print(
        f"Spark {shown(spark['version'])} on {spark['cores']} cores started in {start}. In {load} it parsed"
    )
    print("the places of GeoNames to VARIANT, and joined them with their countries. Its tasks published")
    print(f"{rows} rows, {found['partitions']} partitions, through the depot.")
    print(f"Process B (pid {read['pid']}, without Spark) reports:\n")
    _print_countries(found["countries"])
    _print_moved(read)
    series = {
        "Spark → depot → process B: publish, connect, all batches": found["handed_over"],
        "  of which connect → all batches as views": found["connected"],
        "Spark → this process: toArrow() of the same data frame": found["to_arrow"],
    }
    times = [(what, duration(each[0]), *_middle(each[1:] or each)) for what, each in series.items()]
    rounds = max(len(found["to_arrow"]) - 1, 1)
    print_table([f"In turn, {rounds} rounds", "first", "median", "least", "most"], times, right=[1, 2, 3, 4])
    extracted, back = duration(found["extracted"]), duration(found["read_back"])
    print(f"\nProcess B took {len(FACTS)} typed columns out of the Variants in {extracted};")
    print(f"Spark read them back and summed them up in {back}.")
    if found["verified"]:
        print(f"verified: Spark's own variant_get gives the same {rows} rows, by count, people and hashes")
    else:
        print("NOT VERIFIED: Spark's own variant_get gives something else than it read back")


def _print_countries(lines: Sequence[dict[str, Any]]) -> None:
    shown_lines, rest = [*lines[:_COUNTRIES]], lines[_COUNTRIES:]
    if rest:
        shown_lines.append({"country": f"{len(rest)} others", **_sum(rest)})
    shown_lines.append({"country": "all", **_sum(lines)})
    rows = [(line["country"], *(number(line[name]) for name in _SUMMED)) for line in shown_lines]
    print_table(["Country", "Places", "People", "Names"], rows, right=[1, 2, 3])


def _sum(lines: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(line[name] for line in lines) for name in _SUMMED}
