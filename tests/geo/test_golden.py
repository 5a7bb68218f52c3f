"""The geospatial files of parquet-testing: statistics are those that its text and its footers have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
import yaml

import bowstring as bow
from bowstring import geo

Move = Callable[[Any], bow.Column]


@pytest.fixture(scope="module")
def folder(parquet_test_data: Path) -> Path:
    """Return the folder of geospatial files."""
    return parquet_test_data / "data" / "geospatial"


def storage(column: pa.ChunkedArray) -> pa.Array:
    """Return plain bytes, whether or not another test has imported geoarrow."""
    found = column.combine_chunks()
    return found.storage if isinstance(found.type, pa.ExtensionType) else found


def footer(file: pq.ParquetFile, group: int, column: int) -> tuple[geo.Box | None, tuple[int, ...]]:
    """Return the box and the types that the footer has of a row group."""
    found = file.metadata.row_group(group).column(column).geo_statistics
    if found is None:
        return None, ()
    sides = found.to_dict()
    types = tuple(sorted(sides.pop("geospatial_types") or ()))
    named = {name: sides[name] for name in geo.Box.__slots__}
    return None if named["xmin"] is None else geo.Box(**named), types


def test_every_group_of_the_text_has_its_statistics(folder: Path, on_device: Move) -> None:
    """Each row group of geospatial.parquet holds the geometries of the YAML, and has its footer's statistics."""
    text = yaml.safe_load((folder / "geospatial.yaml").read_text())
    file = pq.ParquetFile(folder / "geospatial.parquet")
    place = file.schema_arrow.get_field_index("geometry")
    assert file.num_row_groups == len(text) == 31
    for group, wkts in zip(range(file.num_row_groups), text.values(), strict=True):
        column = storage(file.read_row_group(group)["geometry"])
        found = geo.statistics(on_device(column))
        assert (found.bbox, found.types) == footer(file, group, place)
        shapes = [None if wkt is None else shapely.from_wkt(wkt) for wkt in wkts]
        assert len(shapes) == len(column)
        for shape, row in zip(shapes, geo.bounds(on_device(column)).to_arrow().to_pylist(), strict=True):
            wanted = None if shape is None or shape.is_empty else shape.bounds
            assert wanted == (None if row is None else tuple(row.values()))


def test_every_group_of_points_has_its_box(folder: Path, on_device: Move) -> None:
    """The 50 groups of points of a GEOGRAPHY have the boxes of their footers, two across the antimeridian.

    The writer of the file went by way of the sphere, and rounded: to a few units in the last place.
    """
    file = pq.ParquetFile(folder / "geography-points.parquet")
    place = next(k for k, name in enumerate(file.schema_arrow.names) if name in ("geography", "geometry"))
    name = file.schema_arrow.names[place]
    across = []
    for group in range(file.num_row_groups):
        table = pa.table(
            [storage(file.read_row_group(group)[name])],
            schema=pa.schema([geo.field(name, edges="spherical")]),
        )
        found = geo.statistics(on_device(table))
        box, types = footer(file, group, place)
        assert box is not None
        assert found.bbox is not None
        assert found.types == types
        assert found.bbox.wraps == box.wraps
        for side in ("xmin", "ymin", "xmax", "ymax"):
            assert getattr(found.bbox, side) == pytest.approx(getattr(box, side), abs=1e-12)
        if found.bbox.wraps:
            across.append(group)
    assert file.num_row_groups == 50
    assert across == [29, 43]


def test_nan_is_skipped(folder: Path) -> None:
    """geospatial-with-nan.parquet has the box that its description wants."""
    path = folder / "geospatial-with-nan.parquet"
    if not path.exists():
        pytest.skip("these golden files do not have geospatial-with-nan.parquet")
    found = geo.statistics(storage(pq.read_table(path)["geometry"]))
    assert found.bbox == geo.Box(10, 20, 130, 140, 30, 150, 40, 160)
