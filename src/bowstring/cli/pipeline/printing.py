"""The pipeline's outcome in words."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final

from bowstring.cli.pipeline.facts import FACTS
from bowstring.cli.pipeline.queries import NEAR_KM
from bowstring.cli.tables import print_table
from bowstring.cli.text import clipped, duration, number, shown, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.cli.pipeline.outcome import Outcome

__all__ = ["print_outcome"]

_COUNTRIES: Final = 15
_SYSTEMS: Final = 3
_NAME: Final = 24


def print_outcome(outcome: Outcome) -> None:
    """Print the report per country, what moved how, and whether Spark agrees."""
    spark, read = outcome.spark, outcome.read
    started, loaded = duration(spark["seconds_to_start"]), duration(spark["seconds_to_load"])
    print(
        f"Spark {shown(spark['version'])} on {spark['cores']} cores started in {started}. In {loaded} it parsed"
    )
    print(
        "the places of GeoNames to VARIANT, and joined them with the nearest airport that one could fly to from"
    )
    print(
        f"New York in 2013. Its tasks published {number(outcome.rows)} rows, {outcome.partitions} partitions,"
    )
    print(f"through the depot. Process B (pid {read['pid']}, without Spark) reports:\n")
    _print_countries(outcome.countries)
    _print_moved(outcome)
    _print_verdict(outcome)


def _print_countries(lines: Sequence[dict[str, Any]]) -> None:
    rows = [_row(line["country"], line) for line in lines[:_COUNTRIES]]
    rest = lines[_COUNTRIES:]
    if rest:
        rows.append(_row(f"{len(rest)} others", _sum(rest)))
    rows.append(_row("all", _sum(lines)))
    headings = [
        "Country",
        "Places",
        "People",
        "Largest place",
        "Names",
        "Written in",
        f"Airport ≤ {NEAR_KM} km",
    ]
    print_table(headings, rows, right=[1, 2, 4, 6])


def _row(name: str, line: dict[str, Any]) -> tuple[str, ...]:
    systems = line["systems"]
    more = f" + {len(systems) - _SYSTEMS}" if len(systems) > _SYSTEMS else ""
    return (
        clipped(name, _NAME),
        number(line["places"]),
        number(line["people"]),
        clipped(line["largest"], _NAME),
        number(line["names"]),
        f"{', '.join(systems[:_SYSTEMS])}{more}",
        number(line["near"]) if line["near"] else "–",
    )


def _sum(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    largest = max(lines, key=lambda line: line["largest_people"])
    counted: dict[str, int] = {}
    for line in lines:
        for system in line["systems"]:
            counted[system] = counted.get(system, 0) + 1
    return {
        **{name: sum(line[name] for line in lines) for name in ("places", "people", "names", "near")},
        "largest": largest["largest"],
        "systems": sorted(counted, key=lambda system: -counted[system]),
    }


def _print_moved(outcome: Outcome) -> None:
    read = outcome.read
    moved = (
        f"{number(read['rows'])} rows in {number(read['batches'])} batches, {size(read['bytes'])} in buffers"
    )
    print(f"\nmoved   {moved}")
    print(f"device  {shown(read['device'])}\npath    {shown(read['path'])}: {shown(read['why'])}\n")
    series = [
        ("Spark → depot → process B: publish, connect, all batches", outcome.handed_over),
        ("  of which connect → all batches as views", outcome.connected),
        ("Spark → this process: toArrow() of the same data frame", outcome.to_arrow),
    ]
    rows = [
        (what, duration(seconds[0]), *map(duration, _middle(seconds[1:] or seconds)))
        for what, seconds in series
    ]
    rounds = max(len(outcome.to_arrow) - 1, 1)
    print_table([f"In turn, {rounds} rounds", "first", "median", "least", "most"], rows, right=[1, 2, 3, 4])
    extracted, back = duration(outcome.extracted), duration(outcome.read_back)
    print(f"\nProcess B took {len(FACTS)} typed columns out of the Variants in {extracted};")
    print(f"Spark read them back and summed them up in {back}.")


def _middle(seconds: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(seconds), min(seconds), max(seconds)


def _print_verdict(outcome: Outcome) -> None:
    rows = number(outcome.rows)
    if outcome.verified:
        print(f"verified: Spark's own variant_get gives the same {rows} rows, by count, people and hashes")
    else:
        print("NOT VERIFIED: Spark's own variant_get gives something else than it read back")
