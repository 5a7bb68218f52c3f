"""Logical types as Arrow fields have them: by their type, an extension type, or a mark in their metadata.

Reading gives fields the marks for what Arrow has no type for; writing makes annotations of a footer out of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from bowstring.columnar.marks import NAME_KEY, is_variant
from bowstring.geo.column import EXTENSION_NAME as WKB_NAME
from bowstring.geo.column import WkbType, type_of
from bowstring.parquet.columns import children_of, count_leaves
from bowstring.parquet.geospatial import annotation_of, wkb_field
from bowstring.parquet.logical import LogicalType
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

    from bowstring.parquet.types import Meaning

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
        return wkb_field(field, meaning.geospatial, key_values)
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
        found = _annotated(pa.binary(), decimal_type(type_.precision, type_.scale))
        return found._replace(precision=type_.precision, scale=type_.scale, is_ordered=False)
    return _marked(field, metadata)


def _marked(field: pa.Field, metadata: Mapping[bytes, bytes]) -> Annotation | None:
    name = metadata.get(NAME_KEY, b"").decode(errors="replace")
    mark = metadata.get(LOGICAL_KEY, b"").decode(errors="replace")
    values = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if name == WKB_NAME and values.id in _BYTES:
        return _geospatial(field, field.type)
    wanted = _EXTENSIONS.get(name, mark)
    fits = {
        "ENUM": values.id in (*_TEXT, *_BYTES),
        "JSON": values.id in _TEXT,
        "BSON": values.id in _BYTES,
        "UUID": values == pa.binary(16),
    }
    return _annotated(field.type, simple_type(wanted)) if fits.get(wanted) else None


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
