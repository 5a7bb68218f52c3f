"""Geospatial columns keep coordinate systems and edges, footers have their boxes, and boxes skip row groups."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import geo
from bowstring.errors import (
    BowstringError,
    InvalidBody,
    InvalidMetadata,
    UnknownColumn,
    Unsupported,
    UsageError,
)
from bowstring.parquet.annotations import annotation_of, wkb_of
from bowstring.parquet.footer import decode_footer, footer_bytes, framed
from bowstring.parquet.logical import LogicalType
from bowstring.parquet.thrift import BINARY, I32, Field
from bowstring.parquet.types import LOGICAL_TYPES
from tests.parquet.elements import elements_of
from tests.parquet.footers import annotated

EDGES = ("spherical", "vincenty", "thomas", "andoyer", "karney")
PROJECTED = {"type": "ProjectedCRS", "name": "x"}
GEOGRAPHIC = {"type": "GeographicCRS", "name": "y"}


@pytest.fixture(scope="module")
def folder(parquet_test_data: Path) -> Path:
    """Return the folder of geospatial files."""
    return parquet_test_data / "data" / "geospatial"


def read(file: Any, **options: Any) -> pa.Table:
    """Return all of a file."""
    with bow.parquet.read(file, **options) as stream:
        return stream.read_all()


def file_of(*columns: tuple[pa.Field, Sequence[bytes | None]], **options: Any) -> bytes:
    """Return a file of geospatial columns."""
    table = pa.table(
        [pa.array(values, field.type) for field, values in columns],
        schema=pa.schema([field for field, _ in columns]),
    )
    file = io.BytesIO()
    bow.parquet.write(table, file, **options)
    return file.getvalue()


def statistics_of(file: bytes | Path, name: str) -> list[tuple[geo.Box | None, tuple[int, ...]] | None]:
    """Return the box and the types that the footer has of each row group, as pyarrow reads them."""
    footer = pq.read_metadata(io.BytesIO(file) if isinstance(file, bytes) else file)
    found: list[tuple[geo.Box | None, tuple[int, ...]] | None] = []
    for group in range(footer.num_row_groups):
        columns = [footer.row_group(group).column(index) for index in range(footer.num_columns)]
        [chunk] = [each for each in columns if each.path_in_schema == name]
        if chunk.geo_statistics is None:
            found.append(None)
            continue
        sides = chunk.geo_statistics.to_dict()
        types = tuple(sorted(sides.pop("geospatial_types") or ()))
        box = None if sides["xmin"] is None else geo.Box(**{each: sides[each] for each in geo.Box.__slots__})
        found.append((box, types))
    return found


def point(x: float, y: float) -> bytes:
    """Return a point."""
    return struct.pack("<bIdd", 1, 1, x, y)


def test_every_coordinate_system_of_parquet_testing(folder: Path) -> None:
    """Each spelling becomes GeoArrow's metadata; keys are looked up in the file."""
    types = {path.stem: geo.type_of(read(path).schema.field("geometry")) for path in folder.glob("*.parquet")}
    assert types["crs-default"] == geo.WkbType("OGC:CRS84", "authority_code")
    assert types["crs-srid"] == geo.WkbType("5070", "srid")
    stored = pq.read_metadata(folder / "crs-projjson.parquet").metadata[b"projjson_epsg_5070"]
    assert types["crs-projjson"] == geo.WkbType(json.loads(stored), "projjson")
    assert types["geography-points"] == geo.WkbType("OGC:CRS84", "authority_code", "spherical")
    if "crs-arbitrary-value" in types:
        assert types["crs-arbitrary-value"] is not None
        assert types["crs-arbitrary-value"].crs_type is None


def test_what_is_written_of_parquet_testing_has_its_statistics(folder: Path) -> None:
    """Files written again have the values, the text, and the statistics of their footers in every row group."""
    text = yaml.safe_load((folder / "geospatial.yaml").read_text())
    for path in sorted(folder.glob("*.parquet")):
        with bow.parquet.read(path) as stream:
            batches = [batch.to_arrow() for batch in stream]
        file = io.BytesIO()
        with bow.parquet.ParquetWriter(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                writer._flush()
        ours, theirs = statistics_of(file.getvalue(), "geometry"), statistics_of(path, "geometry")
        found = read(file.getvalue())
        assert found.schema.equals(batches[0].schema, check_metadata=True)
        assert found == pa.Table.from_batches(batches)
        if path.stem == "geospatial":
            assert len(text) == len(ours)
        for one, other in zip(ours, theirs, strict=True):
            assert one is not None
            assert one[1] == (other or (None, ()))[1]
            if path.stem.startswith("geography") and not path.stem.endswith("points"):
                assert one[0] is None
            elif path.stem == "geography-points":
                assert one[0] is not None
                assert other is not None
                assert one[0].wraps == other[0].wraps  # type: ignore[union-attr]
                assert all(
                    math.isclose(getattr(one[0], side), getattr(other[0], side), abs_tol=1e-12)
                    for side in ("xmin", "xmax", "ymin", "ymax")
                )
            else:
                assert one[0] == (other or (None, ()))[0]


CRS: list[tuple[Any, str | None, str]] = [
    (None, None, "OGC:CRS84"),
    ("OGC:CRS84", "authority_code", "OGC:CRS84"),
    ("EPSG:5070", "authority_code", "EPSG:5070"),
    ("5070", "srid", "srid:5070"),
    (PROJECTED, "projjson", json.dumps(PROJECTED)),
    ("PROJCS[…]", "wkt2:2019", "PROJCS[…]"),
    ("anything: at all", None, "anything: at all"),
    ("projjson:nothing", None, "projjson:nothing"),
    ("{no JSON", None, "{no JSON"),
]


@pytest.mark.parametrize(("crs", "crs_type", "stored"), CRS, ids=[stored[:12] for *_, stored in CRS])
def test_coordinate_systems_both_ways(crs: Any, crs_type: str | None, stored: str) -> None:
    """A coordinate system is in the footer in the words of the specification, and comes back as it was."""
    field = geo.field("g", crs=crs, crs_type=crs_type)
    file = file_of((field, [point(1, 2)]))
    assert elements_of(file)["g",].logical_type == f"GEOMETRY({stored})"
    assert read(file).schema.field("g").equals(field, check_metadata=True)
    # Without an Arrow schema in the file, the footer alone says it.
    found = wkb_of(annotation_of(geo.WkbType(crs, crs_type)), {})
    assert found.crs == (crs or "OGC:CRS84")
    assert found.crs_type == (
        "authority_code" if crs is None else None if crs_type == "wkt2:2019" else crs_type
    )


@pytest.mark.parametrize("edges", EDGES)
def test_edges_both_ways(edges: str) -> None:
    """Each algorithm of GEOGRAPHY is written and read; where a footer has none, edges are spherical."""
    field = geo.field("g", crs=GEOGRAPHIC, crs_type="projjson", edges=edges)
    file = file_of((field, [point(1, 2)]))
    assert elements_of(file)["g",].logical_type == f"GEOGRAPHY({json.dumps(GEOGRAPHIC)}, {edges.upper()})"
    assert read(file).schema.field("g").equals(field, check_metadata=True)
    plain = annotated([b""], pa.binary(), logical=LogicalType(18))
    assert geo.type_of(read(plain).schema.field("a")) == geo.WkbType(
        "OGC:CRS84", "authority_code", "spherical"
    )
    projected = LogicalType(18, (Field(1, BINARY, json.dumps(PROJECTED).encode()), Field(2, I32, 4)))
    with pytest.raises(InvalidMetadata, match="GEOGRAPHY"):
        bow.parquet.read(annotated([b""], pa.binary(), logical=projected))
    assert {"GEOMETRY", "GEOGRAPHY"} <= {row.logical for row in LOGICAL_TYPES}


def test_the_footer_is_believed_and_not_an_arrow_schema_that_contradicts_it(tmp_path: Path) -> None:
    """Where the Arrow schema of a file has another coordinate system than the footer, the footer counts."""
    file = file_of((geo.field("g", crs="EPSG:1234", crs_type="authority_code"), [point(1, 2)]))
    footer = footer_bytes(pa.BufferReader(file))
    other = footer.replace(b"\x18\x09EPSG:1234", b"\x18\x09EPSG:4321", 1)
    assert other != footer
    damaged = file[: len(file) - len(framed(footer))] + framed(other)
    found = geo.type_of(read(damaged).schema.field("g"))
    assert found == geo.WkbType("EPSG:4321", "authority_code")


def test_statistics_are_of_each_row_group_and_of_what_is_inside_lists() -> None:
    """Boxes are of the rows of a row group; nulls, NaN and what lists do not hold count for nothing."""
    inside = pa.list_(geo.field("element"))
    field = pa.field("l", pa.list_(pa.field("element", pa.struct([pa.field("deep", inside)]))))
    rows = [[{"deep": [point(1, 2), None]}, None], None, [], [{"deep": [point(-5, 7)]}, {"deep": None}]]
    columns = (geo.field("g"), [point(1, math.nan), point(math.nan, 3), None, point(9, 9)])
    table = pa.table(
        [pa.array(columns[1]), pa.array(rows, field.type)], schema=pa.schema([columns[0], field])
    )
    file = io.BytesIO()
    bow.parquet.write(table, file, row_group_size=2)
    assert statistics_of(file.getvalue(), "g") == [
        (geo.Box(1, 3, 1, 3), (1,)),
        (geo.Box(9, 9, 9, 9), (1,)),
    ]
    path = "l.list.element.deep.list.element"
    assert statistics_of(file.getvalue(), path) == [
        (geo.Box(1, 2, 1, 2), (1,)),
        (geo.Box(-5, 7, -5, 7), (1,)),
    ]
    assert read(file.getvalue()) == table


def test_geometries_inside_maps_have_statistics() -> None:
    """A map of lists of geometries has the box of all of them, without what is hidden by nulls."""
    type_ = pa.map_(pa.string(), pa.list_(geo.field("element")))
    points = [point(1, 1), point(5, 5)]
    column = pa.array([[("a", points[:1])], None, [("b", points[1:2])], [("c", None)]], type_)
    file = io.BytesIO()
    bow.parquet.write(pa.table({"m": column}), file)
    assert statistics_of(file.getvalue(), "m.key_value.value.list.element") == [(geo.Box(1, 1, 5, 5), (1,))]


def test_bytes_that_are_no_geometry_are_written_without_statistics() -> None:
    """They come back as they were; a row group that has them says nothing of its geometries."""
    values = [point(1, 2), b"\x01\x02", point(3, 4), b"\x01\x08\0\0\0"]
    file = file_of((geo.field("g"), values), row_group_size=1)
    assert read(file)["g"].to_pylist() == values
    box = geo.Box(3, 4, 3, 4)
    assert statistics_of(file, "g") == [(geo.Box(1, 2, 1, 2), (1,)), None, (box, (1,)), None]
    with bow.parquet.read(file, bbox=box) as stream, pytest.raises(InvalidBody, match="row"):
        stream.read_all()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("storage", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_ewkb_is_not_written(order: str, storage: pa.DataType) -> None:
    """EWKB with a flag is refused, in either byte order; what is the same in both forms is written."""
    srid = struct.pack(f"{order}bIIdd", order == "<", 0x20000001, 4326, 1, 2)
    with pytest.raises(Unsupported, match="EWKB"):
        file_of((geo.field("g", storage=storage), [None, srid]))
    plain = struct.pack(f"{order}bIdd", order == "<", 1, 1, 2)
    assert statistics_of(file_of((geo.field("g", storage=storage), [None, plain, b""])), "g") == [None]
    assert statistics_of(file_of((geo.field("g", storage=storage), [None, plain])), "g")[0] is not None


coordinates = st.integers(-180, 180).map(float)
boxes = st.builds(
    lambda x, y, other, height: geo.Box(x, y, other, min(y + height, 90.0)),
    coordinates,
    st.integers(-90, 89).map(float),
    coordinates,
    st.integers(0, 180),
)
geometries = st.none() | st.lists(
    st.tuples(coordinates, st.integers(-90, 90).map(float)), min_size=0, max_size=3
).map(lambda places: point(*places[0]) if len(places) == 1 else shapely.to_wkb(shapely.LineString(places)))


@given(
    st.lists(geometries, max_size=12),
    boxes,
    st.integers(1, 4),
    st.sampled_from(["planar", "spherical"]),
    st.sampled_from([["id"], ["g"], ["g", "id"], None]),
    st.booleans(),
)
def test_a_box_gives_the_rows_that_are_in_it(
    values: list[bytes | None], box: geo.Box, rows: int, edges: str, columns: Any, filtered: bool
) -> None:
    """The rows are those of `intersects_box`, whatever row groups are skipped, with or without other filters."""
    field = geo.field("g", edges=edges)
    table = pa.table(
        [pa.array(range(len(values)), pa.int64()), pa.array(values, pa.binary())],
        schema=pa.schema([pa.field("id", pa.int64()), field]),
    )
    file = io.BytesIO()
    bow.parquet.write(table, file, row_group_size=rows)
    kept = (
        geo.intersects_box(table.select(["g"]).combine_chunks(), box).to_arrow()
        if values
        else pa.array([], pa.bool_())
    )
    expected = table.filter(kept).select(columns or table.schema.names)
    filters = None
    if filtered:
        filters = [("id", ">=", 2)]
        expected = (
            table.filter(kept).filter(pa.compute.field("id") >= 2).select(columns or table.schema.names)
        )
    found = read(file.getvalue(), bbox=box, columns=columns, filters=filters)
    assert found == expected
    assert read(file.getvalue(), bbox={"g": box}, columns=columns, filters=filters) == expected


def test_row_groups_outside_of_a_box_are_not_read() -> None:
    """Pages of row groups whose statistics rule the box out may be damaged, across the antimeridian, too."""
    places = [(0, 0), (170, 10), (-170, -10), (90, 80)]
    file = bytearray(
        file_of((geo.field("g", edges="spherical"), [point(*each) for each in places]), row_group_size=1)
    )
    footer = pq.read_metadata(io.BytesIO(bytes(file)))
    for group in (0, 3):
        chunk = footer.row_group(group).column(0)
        begin = chunk.dictionary_page_offset or chunk.data_page_offset
        file[begin : begin + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    with pytest.raises(BowstringError):
        read(bytes(file))
    found = read(bytes(file), bbox=(165, -20, -165, 20))
    assert found["g"].to_pylist() == [point(170, 10), point(-170, -10)]


def test_boxes_of_several_columns() -> None:
    """A box without a name is for the only geospatial column; names choose others, and all of them must hold."""
    one, two = geo.field("one"), geo.field("two")
    file = file_of((one, [point(0, 0), point(5, 5)]), (two, [point(1, 1), point(9, 9)]))
    with pytest.raises(UsageError, match=r"one geospatial column.*'one', 'two'"):
        bow.parquet.read(file, bbox=(0, 0, 1, 1))
    around = {"one": (0, 0, 10, 10), "two": (8, 8, 9, 9)}
    assert read(file, bbox=around)["one"].to_pylist() == [point(5, 5)]
    with pytest.raises(UnknownColumn, match="three"):
        bow.parquet.read(file, bbox={"three": (0, 0, 1, 1)})
    plain = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), plain)
    for bbox, match in (
        ((0, 0, 1, 1), "none in"),
        ({"a": (0, 0, 1, 1)}, "not geospatial"),
        ({}, "empty"),
        ("box", "no box"),
    ):
        with pytest.raises(UsageError, match=match):
            bow.parquet.read(plain.getvalue(), bbox=bbox)


def test_statistics_that_are_no_box_skip_nothing() -> None:
    """A footer with NaN, or a minimum above its maximum, is a footer without a box."""
    file = file_of((geo.field("g"), [point(1, 2), point(3, 4)]))
    stored = b"\x17" + b"\x17".join(struct.pack("<d", each) for each in (1, 3, 2, 4))
    footer = footer_bytes(pa.BufferReader(file))
    assert stored in footer
    for sides in ((math.nan, 3, 2, 4), (1, 3, 4, 2), (1, 3, math.nan, math.nan)):
        other = footer.replace(stored, b"\x17" + b"\x17".join(struct.pack("<d", each) for each in sides))
        damaged = file[: len(file) - len(framed(footer))] + framed(other)
        assert len(read(damaged, bbox=(1, 2, 1, 2))) == 1


def test_geoarrow_types_of_pyarrow_go_both_ways() -> None:
    """With geoarrow imported, its extension type is written and read as without it, and reads what is written."""
    program = """
import io, struct, warnings
import pyarrow as pa, pyarrow.parquet as pq
import geoarrow.pyarrow as ga
import bowstring as bow
from bowstring import geo
rows = [struct.pack("<bIdd", 1, 1, 30, 10), None]
type_ = ga.wkb().with_crs("EPSG:5070").with_edge_type(ga.EdgeType.PLANAR)
table = pa.table({"g": pa.ExtensionArray.from_storage(type_, pa.array(rows, pa.binary()))})
file = io.BytesIO()
bow.parquet.write(table, file)
theirs = pq.read_table(io.BytesIO(file.getvalue()))
assert theirs["g"].type == type_, theirs.schema
assert theirs["g"].combine_chunks().storage.to_pylist() == rows
with bow.parquet.read(file.getvalue()) as stream:
    ours = stream.read_all()
assert ours.schema.field("g").type == pa.binary(), ours.schema
assert geo.type_of(ours.schema.field("g")).crs == geo.type_of(table.schema.field("g")).crs
assert ours["g"].to_pylist() == rows
other = io.BytesIO()
pq.write_table(table, other)
with bow.parquet.read(other.getvalue()) as stream:
    again = stream.read_all()
assert again["g"].to_pylist() == rows and geo.type_of(again.schema.field("g")) is not None
assert pq.read_metadata(io.BytesIO(file.getvalue())).row_group(0).column(0).geo_statistics.to_dict()["xmin"] == 30
with bow.parquet.read(other.getvalue(), bbox=(0, 0, 40, 40)) as stream:
    assert stream.read_all()["g"].to_pylist() == rows[:1]
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_duckdb_knows_the_coordinate_system(tmp_path: Path, duck: Any) -> None:
    """DuckDB reads a GEOMETRY as one, skips by its statistics, and what it writes comes back."""
    path = tmp_path / "g.parquet"
    path.write_bytes(file_of((geo.field("g"), [point(1, 2), None, point(3, 4)])))
    rows = duck.execute(f"SELECT g::VARCHAR FROM '{path}'").fetchall()
    assert rows == [("POINT (1 2)",), (None,), ("POINT (3 4)",)]
    out = tmp_path / "duck.parquet"
    duck.execute(f"COPY (SELECT * FROM '{path}') TO '{out}' (FORMAT parquet, GEOPARQUET_VERSION 'V2')")
    found = read(out)
    assert geo.type_of(found.schema.field("g")) is not None
    assert found["g"].to_pylist() == [point(1, 2), None, point(3, 4)]
    assert read(out, bbox=(0, 0, 2, 2))["g"].to_pylist() == [point(1, 2)]


@functools.cache
def geometry_file() -> bytes:
    """Return a file of two geometries."""
    return file_of((geo.field("g"), [point(1, 2), point(3, 4)]), row_group_size=1)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=3))
@pytest.mark.filterwarnings("ignore:.*unknown:UserWarning")
def test_damaged_geospatial_footers(changes: list[tuple[int, int]]) -> None:
    """A footer with other bytes gives rows, or one of our errors; its statistics never more."""
    file = geometry_file()
    footer = bytearray(footer_bytes(pa.BufferReader(file)))
    for place, value in changes:
        footer[place % len(footer)] = value
    damaged = file[: len(file) - len(framed(bytes(footer)))] + framed(bytes(footer))
    with contextlib.suppress(BowstringError):
        read(damaged, bbox=(0, 0, 9, 9))


@settings(max_examples=200)
@given(st.lists(st.none() | st.binary(max_size=60), max_size=6))
def test_any_bytes_are_written_and_read(values: list[bytes | None]) -> None:
    """Random bytes as WKB come back as they were, or are refused as EWKB."""
    try:
        file = file_of((geo.field("g"), values), row_group_size=2)
    except Unsupported:
        return
    assert read(file)["g"].to_pylist() == values
    assert len(decode_footer(footer_bytes(pa.BufferReader(file))).schema) == 2
