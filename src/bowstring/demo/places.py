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
from bowstring.demo.flights import moved


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
        self._typed: list[pa.RecordBatch] = []
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
        for batch, columns in zip(self._batches, extracted, strict=True):
            country = batch.select(["country"]).to_device("cpu").to_arrow()["country"]
            self._typed.append(columns.append_column("country", country))
        return seconds

    def report(self) -> list[dict[str, Any]]:
        """Return the lines of :func:`countries`."""
        return countries(pa.Table.from_batches(self._typed))

    def offer(self) -> str:
        """Publish the typed columns; return the URI."""
        self._server = bow.Server("unix:")
        return str(self._server.publish("typed", pa.Table.from_batches(self._typed).select(list(FACTS))))

    def close(self) -> None:
        """Release the data and end the server."""
        self._batches.clear()
        self._typed.clear()
        if self._server is not None:
            self._server.close()


def countries(table: pa.Table) -> list[dict[str, Any]]:
    """Return places, people and spellings of their names for each country, those with the most people first."""
    country = table["country"].cast(pa.string())
    names = pc.list_value_length(table["names"])
    places = pa.table({"country": country, "people": table["population"], "names": names})
    sums = [("people", "count", pc.CountOptions(mode="all")), ("people", "sum"), ("names", "sum")]
    summed = (
        places.group_by("country").aggregate(sums).rename_columns(["country", "places", "people", "names"])
    )
    lines: list[dict[str, Any]] = summed.sort_by(
        [("people", "descending"), ("country", "ascending")]
    ).to_pylist()
    return [
        {name: value or 0 if name != "country" else value or "?" for name, value in line.items()}
        for line in lines
    ]
