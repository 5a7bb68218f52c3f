"""Hand-over to GeoPandas."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bowstring.columnar.batch import Column, batches
from bowstring.errors import InvalidBody, MissingDependency, UsageError
from bowstring.geo.column import marked, type_of


def to_geopandas(data: Any, *, geometry: str | None = None) -> Any:
    """Return a ``geopandas.GeoDataFrame`` of all columns; those that are marked as WKB become geometries.

    GeoPandas copies all columns, and has no edges: those of a GEOGRAPHY are planar in it.

    Parameters
    ----------
    data
        A Column, a Batch, a stream, a table, or whatever else ``Server.publish`` takes. Batches of a device are
        copied to the host.
    geometry
        The name of the active geometry column; by default the first one.

    Returns
    -------
    geopandas.GeoDataFrame
        With the coordinate system of each column, where it is known.

    Raises
    ------
    MissingDependency
        GeoPandas is not installed: ``pip install "bowstring[geo]"``.
    UsageError
        No column is marked as WKB (see :func:`bowstring.geo.field`), or none has that name.
    InvalidBody
        A row is no geometry that GeoPandas reads.

    Examples
    --------
    >>> import struct
    >>> from bowstring.geo import field
    >>> point = pa.array([struct.pack("<bIdd", 1, 1, 30, 10)], pa.binary())
    >>> table = pa.table([point], schema=pa.schema([field("where", crs="EPSG:4326")]))
    >>> to_geopandas(table)["where"].x.tolist()
    [30.0]
    """
    try:
        import geopandas
        import shapely
    except ImportError as error:
        raise MissingDependency(
            "GeoPandas is not installed", found=str(error), hint='Run pip install "bowstring[geo]".'
        ) from error
    schema, taken = batches(data.as_batch() if isinstance(data, Column) else data, None)
    table = pa.Table.from_batches((each.to_device("cpu").to_arrow() for each in taken), schema)
    marked_names = [each.name for each in table.schema if type_of(each) is not None]
    if not marked_names or geometry not in (None, *marked_names):
        raise UsageError(
            "no such geometry column",
            expected=f"one of {marked_names}" if marked_names else "a column marked geoarrow.wkb",
            found=repr(geometry) if marked_names else str(schema.names)[:200],
            hint="" if marked_names else "geo.field() makes the field of a column of WKB.",
        )
    # GeoPandas knows one name of the extension type.
    fields = [
        each if type_ is None or isinstance(each.type, pa.ExtensionType) else marked(each, type_)
        for each in table.schema
        for type_ in (type_of(each),)
    ]
    table = table.cast(pa.schema(fields, table.schema.metadata))
    try:
        return geopandas.GeoDataFrame.from_arrow(table, geometry=geometry)
    except shapely.errors.ShapelyError as error:
        raise InvalidBody(
            "GeoPandas cannot read a geometry",
            found=str(error)[:200],
            hint="geo.validate() has the status of every row.",
        ) from error
