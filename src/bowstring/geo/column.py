"""Which columns are WKB columns, what their coordinates mean, and their buffers as kernels take them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Column
from bowstring.columnar.marks import NAME_KEY, SERIALIZED_KEY
from bowstring.columnar.nodes import storage_type
from bowstring.columnar.one_column import one_column
from bowstring.columnar.slots import MOST_READ, are_bounded, check_order, distinct_slots, slots_of
from bowstring.errors import InvalidBody, InvalidMetadata, UsageError

EXTENSION_NAME: Final = "geoarrow.wkb"
EDGES: Final = ("planar", "spherical", "vincenty", "thomas", "andoyer", "karney")
"""How vertices are joined: by straight lines of the plane (a GEOMETRY), or across an ellipsoid (a GEOGRAPHY)."""

_NAMES: Final = (EXTENSION_NAME, "ogc.wkb")
_CRS_TYPES: Final = ("projjson", "wkt2:2019", "authority_code", "srid")
_STORAGE: Final = (
    *(pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW),
    *(pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW),
)


@dataclasses.dataclass(frozen=True, slots=True)
class WkbType:
    """What the coordinates of a WKB column mean: the metadata of the extension type ``geoarrow.wkb``.

    Attributes
    ----------
    crs : dict or str or None
        The coordinate system: PROJJSON as a dict, or text such as ``"EPSG:5070"``. ``None`` where it is not known;
        in Parquet that is OGC:CRS84, longitudes and latitudes.
    crs_type : str or None
        What `crs` is: ``"projjson"``, ``"wkt2:2019"``, ``"authority_code"``, ``"srid"``, or ``None``.
    edges : str
        One of :data:`EDGES`.

    Raises
    ------
    UsageError
        One of them is something else; or the column is a GEOGRAPHY, and its PROJJSON is that of a projection.

    Examples
    --------
    >>> WkbType("EPSG:5070", "authority_code").serialized()
    b'{"crs": "EPSG:5070", "crs_type": "authority_code"}'
    """

    crs: Any = None
    crs_type: str | None = None
    edges: str = "planar"

    def __post_init__(self) -> None:
        if self.edges not in EDGES:
            raise UsageError(
                "edges of no known kind", expected=f"one of {EDGES}", found=repr(self.edges)[:80]
            )
        if self.crs_type not in (None, *_CRS_TYPES):
            raise UsageError(
                "crs_type is none", expected=f"one of {_CRS_TYPES}", found=repr(self.crs_type)[:80]
            )
        if not isinstance(self.crs, dict | str | None):
            raise UsageError("a crs is a dict or text", found=type(self.crs).__name__)
        if self.is_geography and isinstance(self.crs, dict) and self.crs.get("type") == "ProjectedCRS":
            raise UsageError(
                "the coordinate system of a GEOGRAPHY is geographic",
                expected="PROJJSON of longitudes and latitudes",
                found=f"a ProjectedCRS, {str(self.crs.get('name'))[:80]!r}",
                hint="Give edges='planar' for projected coordinates.",
            )

    @property
    def is_geography(self) -> bool:
        """Whether edges lead across an ellipsoid, which Parquet calls GEOGRAPHY."""
        return self.edges != "planar"

    def serialized(self) -> bytes:
        """Return the metadata as GeoArrow spells them."""
        edges = self.edges if self.is_geography else None
        pairs = {"crs": self.crs, "crs_type": self.crs_type, "edges": edges}
        return json.dumps({name: each for name, each in pairs.items() if each is not None}).encode()

    @classmethod
    def parse(cls, serialized: bytes) -> WkbType:
        """Read the metadata of an extension type; empty bytes say nothing.

        Raises
        ------
        InvalidMetadata
            They are no JSON object, or say what GeoArrow does not have.
        """
        try:
            pairs = json.loads(serialized) if serialized else {}
        except (ValueError, RecursionError) as error:
            raise InvalidMetadata("metadata of geoarrow.wkb are no JSON", found=str(error)[:200]) from error
        if not isinstance(pairs, dict):
            raise InvalidMetadata("metadata of geoarrow.wkb are no object", found=type(pairs).__name__)
        try:
            edges = pairs.get("edges")
            return cls(pairs.get("crs"), pairs.get("crs_type"), "planar" if edges is None else edges)
        except (UsageError, TypeError) as error:
            raise InvalidMetadata("metadata of geoarrow.wkb are wrong", found=str(error)[:300]) from error


def field(
    name: str,
    *,
    crs: Any = None,
    crs_type: str | None = None,
    edges: str = "planar",
    storage: pa.DataType | None = None,
    nullable: bool = True,
) -> pa.Field:
    """Return the field of a WKB column, for the schema of a table that holds its bytes.

    Parameters
    ----------
    name
        Of the column.
    crs, crs_type, edges
        As for :class:`WkbType`.
    storage
        ``binary`` by default; also its large and view forms.
    nullable
        Whether rows may be null.

    Raises
    ------
    UsageError
        One of them is nothing that GeoArrow has.

    Examples
    --------
    >>> schema = pa.schema([field("where", crs="EPSG:4326", crs_type="authority_code", edges="spherical")])
    >>> type_of(schema.field("where")).is_geography
    True
    """
    storage = pa.binary() if storage is None else storage
    if storage.id not in _STORAGE[:3]:
        raise UsageError(
            "WKB is stored as bytes", expected="binary, large_binary or binary_view", found=storage
        )
    return marked(pa.field(name, storage, nullable), WkbType(crs, crs_type, edges))


def marked(given: pa.Field, wkb: WkbType) -> pa.Field:
    """Return a field marked as ``geoarrow.wkb``."""
    mark = {NAME_KEY: EXTENSION_NAME.encode(), SERIALIZED_KEY: wkb.serialized()}
    return given.with_metadata({**(given.metadata or {}), **mark})


def type_of(given: pa.Field | Column) -> WkbType | None:
    """Return what the coordinates of a column mean, or of a field; ``None`` where it is not marked as WKB.

    Raises
    ------
    InvalidMetadata
        It is marked, and its metadata are wrong.

    Examples
    --------
    >>> type_of(pa.field("id", pa.int64())) is None
    True
    """
    field = given.field if isinstance(given, Column) else given
    name, serialized = _mark_of(field)
    return WkbType.parse(serialized) if name in _NAMES else None


def _mark_of(found: pa.Field) -> tuple[str, bytes]:
    """Return the name and the metadata of an extension type: of the field's metadata, or of its type."""
    if isinstance(found.type, pa.ExtensionType):
        return found.type.extension_name, found.type.__arrow_ext_serialize__()
    metadata = found.metadata or {}
    return metadata.get(NAME_KEY, b"").decode(errors="replace"), metadata.get(SERIALIZED_KEY, b"")


@dataclasses.dataclass(frozen=True, slots=True)
class WkbColumn:
    """A WKB column as kernels take it."""

    column: Column
    type: WkbType  # what its coordinates mean; those of a column that is not marked are planar
    starts: Any  # int32 or int64: where each value begins and ends
    stops: Any
    data: Any  # uint8
    validity: Any  # a bitmap of the values, empty where none is null
    # Which of the values is that of each row (int32), where views share their bytes so often that each is looked
    # at once, or None.
    numbers: Any | None


def open_column(source: Any) -> WkbColumn:
    """Return a WKB column, marked or not, as kernels take it; only views are copied."""
    column = one_column(source, "geometry")
    name, _ = _mark_of(column.field)
    is_binary = column.dictionary is None and storage_type(column.type).id in _STORAGE
    if not is_binary or name not in ("", *_NAMES):
        hint = "Convert other geometries to WKB, for example with geoarrow.pyarrow.as_wkb()."
        raise UsageError(
            "the column is no WKB",
            expected="binary, large_binary or binary_view, marked geoarrow.wkb or not marked",
            found=f"{column.type}, marked {name}" if name else str(column.type),
            where=column.name,
            hint=hint if name else "",
        )
    type_ = type_of(column) or WkbType()
    device = column.device
    with device.use():
        slots = slots_of(column)
        check_order(slots, device, column.name)
        starts, stops, data = slots.starts, slots.stops, slots.data
        if not slots.shared or are_bounded(device, starts, stops, len(data)):
            return WkbColumn(column, type_, starts, stops, data, slots.validity, None)
        distinct = distinct_slots(device, starts, stops, len(data))
        if distinct is None:
            raise InvalidBody(
                "the values of a WKB column overlap",
                expected=f"views of at most {MOST_READ} times the bytes that there are",
                where=column.name,
            )
        numbers, starts, stops = distinct
        return WkbColumn(column, type_, starts, stops, data, device.xp.empty(0, np.uint8), numbers)
