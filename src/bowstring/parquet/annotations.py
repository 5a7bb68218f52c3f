"""Logical types as Arrow fields have them: by their type, an extension type, or a mark in their metadata.

Reading gives fields the marks for what Arrow has no type for; writing makes annotations of a footer out of them.
Of geospatial columns (``Geospatial.md``) a footer also has statistics of each column chunk: pyarrow writes none for
GEOGRAPHY, and for GEOMETRY only with geoarrow.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import itertools
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY, is_variant
from bowstring.errors import InvalidData, InvalidMetadata, LimitExceeded, Unsupported, UsageError
from bowstring.geo.column import EDGES, WkbType, marked, open_column, type_of
from bowstring.geo.column import EXTENSION_NAME as WKB_NAME
from bowstring.geo.column import field as wkb_column
from bowstring.geo.statistics import Statistics, statistics
from bowstring.parquet import thrift
from bowstring.parquet.chunks import group_reader
from bowstring.parquet.columns import children_of, count_leaves
from bowstring.parquet.logical import LogicalType
from bowstring.parquet.thrift import Field, Reader, encode_integer, encode_list, encode_struct
from bowstring.parquet.types import (
    INTERVAL,
    LOGICAL_KEY,
    PHYSICAL_KEY,
    converted_of,
    decimal_type,
    simple_type,
    time_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bowstring.parquet.footer import Footer
    from bowstring.parquet.types import Meaning

_GEOMETRY: Final = 17
_GEOGRAPHY: Final = 18
_DEFAULT: Final = "OGC:CRS84"
_AUTHORITY: Final = re.compile(r"[A-Z][A-Za-z]*:[A-Za-z0-9]+")
# Numbers of fields in parquet.thrift.
_COLUMNS, _META_DATA, _GEOSPATIAL, _BBOX = 1, 3, 17, 1
_SIDES: Final = ("xmin", "xmax", "ymin", "ymax", "zmin", "zmax", "mmin", "mmax")
_DEPTH: Final = 64
# A geometry begins with its byte order, and a code of 4 bytes; EWKB has flags in the highest byte of it.
_CODE: Final = 4
_EWKB: Final = np.uint8(0xE0)


def annotation_of(wkb: WkbType) -> LogicalType:
    """Return the logical type of a WKB column."""
    crs, text = wkb.crs, None  # without text, a footer means the default one
    if isinstance(crs, dict) and crs.get("id") != {"authority": "OGC", "code": "CRS84"}:
        text = json.dumps(crs)
    elif isinstance(crs, str) and crs != _DEFAULT:
        text = f"srid:{crs}" if wkb.crs_type == "srid" else str(crs)
    fields = () if text is None else (Field(1, thrift.BINARY, text.encode()),)
    if not wkb.is_geography:
        return LogicalType(_GEOMETRY, fields)
    return LogicalType(_GEOGRAPHY, (*fields, Field(2, thrift.I32, EDGES.index(wkb.edges) - 1)))


def wkb_of(logical: LogicalType, key_values: Mapping[bytes, bytes]) -> WkbType:
    """Return what the coordinates of a GEOMETRY or GEOGRAPHY mean."""
    # key_values: the metadata of the file, in which ``projjson:NAME`` is a coordinate system
    given = logical.parameter(1)
    text = given.decode(errors="replace") if isinstance(given, bytes) else ""
    edges = "planar"
    if logical.id == _GEOGRAPHY:
        number = logical.parameter(2)
        edges = EDGES[1 + (number if isinstance(number, int) else 0)]
    try:
        return WkbType(*_crs(text, key_values), edges)
    except UsageError as error:
        raise InvalidMetadata(
            "the coordinate system of a GEOGRAPHY is none", found=str(error)[:300]
        ) from error


def _crs(text: str, key_values: Mapping[bytes, bytes]) -> tuple[Any, str | None]:
    """Return a coordinate system and what it is, as GeoArrow has them."""
    kind, _, rest = text.partition(":")
    if not text:
        return _DEFAULT, "authority_code"
    if kind == "srid":
        return rest, "srid"
    stored = key_values.get(rest.encode(), b"").decode(errors="replace") if kind == "projjson" else text
    if stored.lstrip().startswith("{"):
        try:
            return json.loads(stored), "projjson"
        except (ValueError, RecursionError):
            return text, None
    return text, "authority_code" if _AUTHORITY.fullmatch(text) else None


class GeospatialStatistics:
    """Collects the statistics of geospatial columns, row group by row group."""

    def __init__(self, schema: pa.Schema, wkb: Mapping[int, WkbType]) -> None:
        # Of each row group; ``None`` where a row is nothing that `bowstring.geo.statistics` reads.
        self.by_leaf: dict[int, list[Statistics | None]] = {leaf: [] for leaf in wkb}
        self._fields = {leaf: wkb_column("geometry", edges=each.edges) for leaf, each in wkb.items()}
        self._firsts = list(itertools.accumulate((count_leaves(each.type) for each in schema), initial=0))

    def add(self, table: pa.Table, rows: int) -> None:
        """Look at what is written next, in row groups of so many rows."""
        for leaf, groups in self.by_leaf.items():
            top = bisect.bisect_right(self._firsts, leaf) - 1
            column = table.column(top)
            for begin in range(0, len(table), rows):
                values = [
                    next(itertools.islice(_leaves(chunk), leaf - self._firsts[top], None))
                    for chunk in column.slice(begin, rows).chunks
                ]
                groups.append(_statistics(values, self._fields[leaf]))


def _leaves(array: Any) -> Iterator[Any]:
    type_ = array.type
    if pa.types.is_struct(type_):
        for child in array.flatten():
            yield from _leaves(child)
    elif pa.types.is_nested(type_):
        if pa.types.is_map(type_):
            array = array.view(pa.list_(pa.struct([type_.key_field, type_.item_field])))
        yield from _leaves(array.flatten())
    else:
        yield array


def _statistics(values: list[Any], field: pa.Field) -> Statistics | None:
    # pyarrow does not drop nulls of views.
    arrays = [
        (each.cast(pa.large_binary()) if each.type == pa.binary_view() else each).drop_null()
        for each in values
    ]
    if not arrays:
        return None
    column = pa.table([pa.chunked_array(arrays)], schema=pa.schema([field.with_type(arrays[0].type)]))
    for batch in column.to_batches():
        opened = open_column(batch)
        starts = opened.starts[opened.stops - opened.starts > _CODE]
        little = opened.data[starts] == 1
        highest = opened.data[starts + np.where(little, _CODE, 1).astype(starts.dtype)]
        if (highest & _EWKB).any():
            raise Unsupported(
                "EWKB cannot be written as GEOMETRY or GEOGRAPHY",
                expected="WKB with the codes of ISO",
                hint="shapely.to_wkb(shapes, flavor='iso') makes it.",
            )
    try:
        return statistics(column)
    except (InvalidData, Unsupported, LimitExceeded):
        return None


def with_statistics(footer: Footer, statistics: Mapping[int, list[Statistics | None]]) -> Footer:
    """Return a footer that has the statistics of geospatial columns."""
    reader = group_reader(footer)
    if reader is None:
        return footer
    begin = reader.position
    size, _ = reader.list_header()
    groups = []
    for group in range(size):
        of_leaves = {leaf: each[group] for leaf, each in statistics.items()}
        groups.append(_changed(reader.struct(), _COLUMNS, functools.partial(_chunks, of_leaves)))
    rest = footer.rest[:begin] + encode_list(thrift.STRUCT, groups) + footer.rest[reader.position :]
    return dataclasses.replace(footer, rest=rest)


def _changed(fields: list[Field], number: int, change: Callable[[Any], bytes]) -> bytes:
    """Return a struct in which the list or struct of one field is changed."""
    return encode_struct(
        field._replace(value=change(field.value)) if field.id == number else field for field in fields
    )


def _chunks(statistics: Mapping[int, Statistics | None], chunks: bytes) -> bytes:
    reader = Reader(chunks, _DEPTH)
    size, _ = reader.list_header()
    changed = [
        _changed(reader.struct(), _META_DATA, functools.partial(_facts, statistics.get(leaf)))
        for leaf in range(size)
    ]
    return encode_list(thrift.STRUCT, changed)


def _facts(statistics: Statistics | None, metadata: bytes) -> bytes:
    if statistics is None:
        return metadata
    facts = [each for each in Reader(metadata, _DEPTH).struct() if each.id != _GEOSPATIAL]
    facts.append(Field(_GEOSPATIAL, thrift.STRUCT, _encoded(statistics)))
    return encode_struct(sorted(facts, key=lambda each: each.id))


def _encoded(statistics: Statistics) -> bytes:
    """Return a ``GeospatialStatistics``: a box, and the codes of the types."""
    fields = []
    box = statistics.bbox
    if box is not None:
        doubles = [
            Field(number, thrift.DOUBLE, struct.pack("<d", side))
            for number, name in enumerate(_SIDES, 1)
            if (side := getattr(box, name)) is not None
        ]
        fields.append(Field(_BBOX, thrift.STRUCT, encode_struct(doubles)))
    codes = [encode_integer(code) for code in statistics.types or ()]
    fields.append(Field(2, thrift.LIST, encode_list(thrift.I32, codes)))
    return encode_struct(fields)


_UNITS: Final = {"s": "MILLIS", "ms": "MILLIS", "us": "MICROS", "ns": "NANOS"}
_TEXT: Final = (pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW)
_BYTES: Final = (pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW)
_EXTENSIONS: Final = {"arrow.json": "JSON", "arrow.uuid": "UUID"}


class Annotation(NamedTuple):
    """What the footer says about a column of values that pyarrow does not write there."""

    stored: pa.DataType  # the type that pyarrow is given
    logical: LogicalType | None
    converted: int | None
    # precision, scale: of a decimal
    precision: int | None = None
    scale: int | None = None
    # Whether statistics of pyarrow bound the values; it would write wrong ones otherwise.
    is_ordered: bool = True
    wkb: WkbType | None = None  # what the coordinates of a geospatial column mean


def meant_fields(
    meanings: Mapping[int, Meaning], int96: str, key_values: Mapping[bytes, bytes]
) -> dict[int, Callable[[pa.Field], pa.Field]]:
    """Return what the fields of some leaves become, by their numbers."""
    # int96: the unit of timestamps that are INT96; key_values: of the file, may hold coordinate systems
    return {
        leaf: functools.partial(_meant, meaning, int96, key_values)
        for leaf, meaning in meanings.items()
        if meaning.arrow is not None or meaning.mark or meaning.geospatial is not None
    }


def _meant(meaning: Meaning, int96: str, key_values: Mapping[bytes, bytes], field: pa.Field) -> pa.Field:
    if meaning.geospatial is not None:
        wkb = wkb_of(meaning.geospatial, key_values)
        # An Arrow schema in the file is kept where it says the same in its words.
        with contextlib.suppress(InvalidMetadata):
            stored = type_of(field)
            if stored is not None and wkb_of(annotation_of(stored), {}) == wkb:
                wkb = stored
        if isinstance(field.type, pa.BaseExtensionType):
            field = field.with_type(field.type.storage_type)
        return marked(field, wkb)
    if meaning.mark:
        return field.with_metadata({**(field.metadata or {}), LOGICAL_KEY: meaning.mark.encode()})
    return field.with_type(pa.timestamp(int96) if pa.types.is_timestamp(meaning.arrow) else meaning.arrow)


def annotation(field: pa.Field) -> Annotation | None:
    """Return what the footer must say about a field beyond what pyarrow writes, ``None`` for nothing.

    Marks that do not fit the type of their field say nothing.
    """
    type_ = field.type
    if type_.id == pa.lib.Type_INTERVAL_MONTH_DAY_NANO:
        return Annotation(pa.binary(12), None, INTERVAL, is_ordered=False)
    metadata = field.metadata or {}
    if pa.types.is_time(type_):
        utc = metadata.get(LOGICAL_KEY, b"").endswith(b", UTC)")
        return _annotated(type_, time_type("TIME", _UNITS[type_.unit], utc=utc))
    if isinstance(type_, pa.BaseExtensionType):
        return _geospatial(field, type_.storage_type) if type_.extension_name == WKB_NAME else None
    if pa.types.is_decimal(type_) and metadata.get(PHYSICAL_KEY) == b"BYTE_ARRAY":
        decimal = _annotated(pa.binary(), decimal_type(type_.precision, type_.scale))
        return decimal._replace(precision=type_.precision, scale=type_.scale, is_ordered=False)
    name = metadata.get(NAME_KEY, b"").decode(errors="replace")
    mark = metadata.get(LOGICAL_KEY, b"").decode(errors="replace")
    values = type_.value_type if pa.types.is_dictionary(type_) else type_
    if name == WKB_NAME and values.id in _BYTES:
        return _geospatial(field, type_)
    wanted = _EXTENSIONS.get(name, mark)
    fits = {
        "ENUM": values.id in (*_TEXT, *_BYTES),
        "JSON": values.id in _TEXT,
        "BSON": values.id in _BYTES,
        "UUID": values == pa.binary(16),
    }
    return _annotated(type_, simple_type(wanted)) if fits.get(wanted) else None


def _geospatial(field: pa.Field, stored: pa.DataType) -> Annotation:
    wkb = type_of(field)
    assert wkb is not None
    return _annotated(stored, annotation_of(wkb))._replace(is_ordered=False, wkb=wkb)


def _annotated(stored: pa.DataType, logical: LogicalType) -> Annotation:
    return Annotation(stored, logical, converted_of(logical))


def annotated_leaves(
    fields: Iterable[pa.Field], stored: Iterable[pa.Field], leaf: int = 0
) -> Iterator[tuple[int, Annotation]]:
    """Return the annotations of columns of values, by the number that each has in a file of the stored schema."""
    for field, written in zip(fields, stored, strict=True):
        children = children_of(written.type)
        if not children:
            found = annotation(field)
            if found is not None:
                yield leaf, found
        elif not is_variant(written):
            yield from annotated_leaves(children_of(field.type), children, leaf)
        leaf += count_leaves(written.type)
