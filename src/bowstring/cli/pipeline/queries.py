"""What Spark computes: places with the nearest airport that one could fly to from New York, and checksums."""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING, Any, Final

from bowstring.cli.pipeline.facts import FACTS

if TYPE_CHECKING:
    from bowstring.cli.pipeline.inputs import Inputs

__all__ = ["NEAR_KM", "checksum", "places_near_airports", "typed"]

NEAR_KM: Final = 100
"""How far an airport may be from a place to count as near, in kilometres."""
_BETWEEN_PLACES: Final = "]}, "


# The file is one object of objects: `{"1": {…, "names": […]}, "2": {…]}}`. Spark reads it in parts when it is told
# what stands between two places; the key in front goes, and what the cut took is put back.
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
# On a sphere as large as the earth. A degree of latitude is 111 km: nearer places are in the airport's band of one
# degree, or in one beside it.
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


def places_near_airports(spark: Any, inputs: Inputs, folder: str) -> Any:
    """Return a data frame: a Variant for each place, its country, and the nearest airport flown to, if any is near.

    Parameters
    ----------
    spark
        A session.
    inputs
        The files.
    folder
        Where the archive of flights is unpacked.
    """
    with zipfile.ZipFile(inputs.flights) as archive:
        archive.extract("flights.csv", folder)
    csv = spark.read.option("header", True)
    flights = csv.csv(os.path.join(folder, "flights.csv"))
    airports = csv.schema("faa STRING, name STRING, lat DOUBLE, lon DOUBLE").option("enforceSchema", True)
    sources = {
        "place_lines": spark.read.text(inputs.places, lineSep=_BETWEEN_PLACES),
        "country_file": spark.read.text(inputs.countries, wholetext=True),
        "flights_csv": flights,
        "airports_csv": airports.csv(inputs.airports),
    }
    for name, frame in sources.items():
        frame.createOrReplaceTempView(name)
    for name, query in (
        ("places", _PLACES),
        ("countries", _COUNTRIES),
        ("served", _SERVED),
        ("near", _NEAR),
    ):
        spark.sql(query).createOrReplaceTempView(name)
    return spark.sql(_JOINED)


def typed(frame: Any) -> Any:
    """Return what Spark itself takes out of the Variants of :func:`places_near_airports`."""
    return frame.selectExpr(
        *(f"variant_get(place, '{fact.path}', '{fact.spark}') AS {name}" for name, fact in FACTS.items())
    )


def checksum(frame: Any) -> dict[str, Any]:
    """Return Spark's answer over typed columns, in any order: how many rows, how many people, a sum of hashes."""
    facts = ", ".join(FACTS)
    row = frame.selectExpr(
        "count(*) AS rows",
        "sum(population) AS people",
        f"sum(CAST(xxhash64({facts}) AS DECIMAL(38, 0))) AS hashes",
    ).collect()[0]
    return {"rows": row.rows, "people": row.people, "hashes": str(row.hashes)}
