"""Geospatial columns: well-known binary (WKB) with its coordinate system; boxes, types and filters in kernels."""

from bowstring.geo.box import Box
from bowstring.geo.column import EDGES, WkbType, field, type_of
from bowstring.geo.frames import to_geopandas
from bowstring.geo.rows import bounds, intersects_box, validate
from bowstring.geo.scan import Status
from bowstring.geo.statistics import Statistics, statistics

__all__ = [
    "EDGES",
    "Box",
    "Statistics",
    "Status",
    "WkbType",
    "bounds",
    "field",
    "intersects_box",
    "statistics",
    "to_geopandas",
    "type_of",
    "validate",
]


def __dir__() -> list[str]:
    return __all__
