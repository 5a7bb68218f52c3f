"""Filters of rows by a box, and with the other filters of rows: what all of them can be asked."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bowstring import geo
from bowstring.errors import UnknownColumn, UsageError
from bowstring.geo.box import as_box
from bowstring.parquet.columns import leaves_of

if TYPE_CHECKING:
    from bowstring.parquet.file import OpenFile
    from bowstring.parquet.shredded import Chosen


class Filter(Protocol):
    """Which rows of a file are wanted."""

    def columns(self, schema: pa.Schema) -> list[Chosen]:
        """Return the columns that are compared, each by the name that it has in a batch for :meth:`mask`."""

    def row_groups(self, file: OpenFile) -> list[int]:
        """Return the numbers of the row groups that the statistics do not rule out."""

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return a boolean for each row."""

    def losses(self) -> list[str]:
        """Return the texts of warnings of what could not be compared, each once."""


def filter_of(filters: Any, bbox: Any, on_error: Literal["null", "raise"]) -> Filter | None:
    """Return the filter of a reader that is given filters, a box, both, or none."""
    found: list[Filter] = []
    if filters is not None:
        # It needs pyarrow.dataset, which takes long to import.
        from bowstring.parquet.filters import RowFilter

        found.append(RowFilter(filters, on_error))
    if bbox is not None:
        found.append(BoxFilter(bbox))
    return found[0] if len(found) == 1 else _All(found) if found else None


class BoxFilter:
    """Rows whose geometries have a point of their bounds in a box."""

    def __init__(self, bbox: Any) -> None:
        # bbox: a box for the only geospatial column; or boxes by the names of columns, all of which must hold
        if isinstance(bbox, Mapping) and not bbox:
            raise UsageError("bbox names no column", expected="{'a column': box}", found="an empty mapping")
        self._named = {name: as_box(box) for name, box in bbox.items()} if isinstance(bbox, Mapping) else None
        self._only = None if self._named is not None else as_box(bbox)

    def columns(self, schema: pa.Schema) -> list[Chosen]:
        return [(name, name) for name in self._boxes(schema)]

    def row_groups(self, file: OpenFile) -> list[int]:
        wanted = {leaves_of(file.leaf_paths, name)[0]: box for name, box in self._boxes(file.schema).items()}
        return [
            group
            for group in range(file.num_row_groups)
            if all(
                (there := _box_of(file, group, leaf)) is None or there.intersects(box)
                for leaf, box in wanted.items()
            )
        ]

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        masks = [
            pc.fill_null(geo.intersects_box(batch.select([name]), box).to_arrow(), fill_value=False)
            for name, box in self._boxes(batch.schema, compared=True).items()
        ]
        return functools.reduce(pc.and_, masks)

    def losses(self) -> list[str]:
        return []  # what is not a geometry is an error

    def _boxes(self, schema: pa.Schema, *, compared: bool = False) -> dict[str, geo.Box]:
        """Return the boxes by the names of the columns of a file, or of those that are compared."""
        geospatial = [field.name for field in schema if geo.type_of(field) is not None]
        if self._named is None:
            assert self._only is not None
            if len(geospatial) != 1:
                raise UsageError(
                    "a box is for one geospatial column",
                    expected="bbox={'a column': box}"
                    if geospatial
                    else "a column that is GEOMETRY or GEOGRAPHY",
                    found=f"the columns {geospatial}"[:200]
                    if geospatial
                    else f"none in {schema.names}"[:200],
                )
            return {geospatial[0]: self._only}
        for name in () if compared else self._named:
            if schema.names.count(name) != 1:
                raise UnknownColumn(
                    "bbox names no column, or several", found=name, expected=f"one of {geospatial}"[:200]
                )
            if name not in geospatial:
                raise UsageError(
                    "bbox names a column that is not geospatial",
                    found=name,
                    expected=f"one of {geospatial}"[:200],
                )
        return self._named


def _box_of(file: OpenFile, group: int, leaf: int) -> geo.Box | None:
    """Return the box of a column chunk by its statistics, if any."""
    # Geometries without a box have no coordinates, or their writer did not know it; a box of NaN says nothing.
    found = file.column_chunk(group, leaf).geo_statistics
    try:
        return None if found is None else geo.Box(*(getattr(found, side) for side in geo.Box.__slots__))
    except UsageError:
        return None


class _All:
    """Rows that several filters want."""

    def __init__(self, filters: list[Filter]) -> None:
        self._filters = filters

    def columns(self, schema: pa.Schema) -> list[Chosen]:
        every = [each for filter_ in self._filters for each in filter_.columns(schema)]
        return list({name or column: (name, column) for name, column in every}.values())

    def row_groups(self, file: OpenFile) -> list[int]:
        found = [set(filter_.row_groups(file)) for filter_ in self._filters]
        return sorted(set.intersection(*found))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        return functools.reduce(pc.and_, [filter_.mask(batch) for filter_ in self._filters])

    def losses(self) -> list[str]:
        return [text for filter_ in self._filters for text in filter_.losses()]
