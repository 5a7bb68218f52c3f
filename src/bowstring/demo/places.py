"""Process B of the second part: has no Spark, opens what Spark published, takes typed columns out of Variants."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

import bowstring as bow
from bowstring import variant
from bowstring.demo.reader import moved


class Fact(NamedTuple):
    """A column that is taken out of a place: by which path, as which types of Arrow and of Spark."""

    path: str
    arrow: Any
    spark: str


FACTS: Final = {
    "id": Fact("$.geonameid", pa.int32(), "int"),
    "name": Fact("$.name", pa.string(), "string"),
    "code": Fact("$.countrycode", pa.string(), "string"),
    "population": Fact("$.population", pa.int64(), "bigint"),
    "latitude": Fact("$.latitude", pa.decimal128(9, 5), "decimal(9,5)"),
    "longitude": Fact("$.longitude", pa.decimal128(9, 5), "decimal(9,5)"),
    "names": Fact("$.alternatenames", pa.list_(pa.string()), "array<string>"),
}
"""By the names of the columns."""


def extract(places: Any) -> pa.RecordBatch:
    """Return typed columns of a Variant column of places, on the host; the Variants stay where they are."""
    wanted = {name: (fact.path, fact.arrow) for name, fact in FACTS.items()}
    return variant.get_many(places, wanted).to_device("cpu").to_arrow()


class Consumer:
    """Process B, call by call; it takes the data on `device`, or where they are."""

    def __init__(self, device: str | None = None) -> None:
        self._device = device
        self._batches: list[bow.Batch] = []
        self._found: list[pa.RecordBatch] = []
        self._server: bow.Server | None = None

    def warm(self) -> None:
        """Load the kernels, which every process does once."""
        extract(variant.from_json(["{}"]))

    def open(self, dataset: str) -> dict[str, Any]:
        """Open a data set, given as JSON; return how long it took to all batches, and how they came.

        What was open before is released.
        """
        self._batches.clear()
        began = time.perf_counter()
        with bow.connect(bow.Dataset.from_json(dataset), device=self._device) as stream:
            self._batches.extend(stream)
            seconds = time.perf_counter() - began
            stats = stream.stats
        return {
            "seconds": seconds,
            **moved(stats),
            "pid": os.getpid(),
            "has_pyspark": "pyspark" in sys.modules,
        }

    def take(self) -> float:
        """Take the typed columns out of all batches; return how many seconds that took."""
        began = time.perf_counter()
        extracted = [extract(batch["place"]) for batch in self._batches]
        seconds = time.perf_counter() - began
        for batch, found in zip(self._batches, extracted, strict=True):
            beside = batch.select(["country", "km"]).to_device("cpu").to_arrow()
            columns = [*found.columns, *beside.columns]
            self._found.append(pa.RecordBatch.from_arrays(columns, [*FACTS, "country", "km"]))
        return seconds

    def report(self) -> list[dict[str, Any]]:
        """Return the lines of :func:`countries`."""
        return countries(pa.Table.from_batches(self._found))

    def offer(self) -> str:
        """Publish the typed columns; return the URI."""
        self._server = bow.Server("unix:")
        return str(self._server.publish("typed", pa.Table.from_batches(self._found).select(list(FACTS))))

    def close(self) -> None:
        """Release the data and end the server."""
        self._batches.clear()
        self._found.clear()
        if self._server is not None:
            self._server.close()


def countries(table: pa.Table) -> list[dict[str, Any]]:
    """Return a line for each country, those with the most people first.

    ``near`` counts the people with an airport near by that has flights from New York.
    """
    people = pc.fill_null(table["population"], 0)
    places = pa.table(
        {
            "country": pc.fill_null(table["country"].cast(pa.string()), "?"),
            "largest": table["name"],
            "people": people,
            "near": pc.if_else(pc.is_valid(table["km"]), people, 0),
            "names": pc.fill_null(pc.list_value_length(table["names"]), 0),
        }
    ).sort_by([("people", "descending"), ("largest", "ascending")])
    by_country = places.group_by("country", use_threads=False)
    heads = {
        "places": ("largest", "count"),
        "people": ("people", "sum"),
        "largest": ("largest", "first"),
        "largest_people": ("people", "max"),
        "names": ("names", "sum"),
        "near": ("near", "sum"),
    }
    summed = by_country.aggregate(list(heads.values())).rename_columns(["country", *heads])
    lines: list[dict[str, Any]] = summed.sort_by(
        [("people", "descending"), ("country", "ascending")]
    ).to_pylist()
    return lines
