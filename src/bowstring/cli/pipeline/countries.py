"""What process B computes of typed columns: places, people, names and writing systems of each country."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bowstring.cli.pipeline.writing import systems_of

__all__ = ["Country", "countries"]


@dataclasses.dataclass(slots=True)
class Country:
    """One line of the report.

    Attributes
    ----------
    country
        Its name.
    places, people
        How many, and how many in all of them.
    largest, largest_people
        The place with the most people.
    names, systems
        How many names its places have, and in which writing systems, the most frequent first.
    near
        How many people have an airport near by that one could fly to from New York.
    """

    country: str
    places: int
    people: int
    largest: str
    largest_people: int
    names: int
    systems: list[str]
    near: int


def countries(table: pa.Table) -> list[Country]:
    """Return a line for each country, those with the most people first.

    Parameters
    ----------
    table
        A row for each place: ``country``, ``name``, ``population``, ``names``, a list, and ``km``, null where no
        airport is near.

    Examples
    --------
    >>> found = countries(
    ...     pa.table(
    ...         {
    ...             "country": ["Austria", "Austria"],
    ...             "name": ["Graz", "Wien"],
    ...             "population": [222_326, 1_691_468],
    ...             "names": [["Graz"], ["Bécs", "Вена", "Vienna"]],
    ...             "km": pa.array([None, 12.0]),
    ...         }
    ...     )
    ... )[0]
    >>> found.largest, found.names, found.systems, found.near
    ('Wien', 4, ['Latin', 'Cyrillic'], 1691468)
    """
    people = pc.fill_null(table["population"], 0)
    facts = pa.table(
        {
            "country": pc.fill_null(table["country"].cast(pa.string()), "?"),
            "name": table["name"],
            "people": people,
            "near": pc.if_else(pc.is_valid(table["km"]), people, 0),
            "names": pc.fill_null(pc.list_value_length(table["names"]), 0),
        }
    )
    systems = _systems(facts["country"], table["names"])
    summed = facts.group_by("country").aggregate(
        [("name", "count"), ("people", "sum"), ("people", "max"), ("near", "sum"), ("names", "sum")]
    )
    largest = _largest(facts)
    lines = [
        Country(
            row["country"],
            row["name_count"],
            row["people_sum"],
            largest[row["country"]],
            row["people_max"],
            row["names_sum"],
            systems.get(row["country"], []),
            row["near_sum"],
        )
        for row in summed.to_pylist()
    ]
    return sorted(lines, key=lambda line: (-line.people, line.country))


def _largest(facts: pa.Table) -> dict[str, str]:
    """Return the name of the place with the most people, for each country."""
    ordered = facts.select(["country", "name", "people"]).sort_by(
        [("people", "ascending"), ("name", "descending")]
    )
    # The last one of a country stays.
    return dict(zip(ordered["country"].to_pylist(), ordered["name"].to_pylist(), strict=True))


def _systems(country: Any, names: Any) -> dict[str, list[str]]:
    names = names.combine_chunks()
    pairs = pa.table(
        {
            "country": country.combine_chunks().take(pc.list_parent_indices(names)),
            "system": systems_of(pc.list_flatten(names)),
        }
    )
    counted = pairs.group_by(["country", "system"]).aggregate([([], "count_all")])
    found: dict[str, list[str]] = {}
    for row in sorted(counted.to_pylist(), key=lambda row: (-row["count_all"], row["system"] or "")):
        if row["system"] is not None:
            found.setdefault(row["country"], []).append(row["system"])
    return found
