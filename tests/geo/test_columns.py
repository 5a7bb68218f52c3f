"""WKB columns keep their coordinate system and edges through Bowstring, geoarrow-pyarrow and GeoPandas."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import geopandas
import pyarrow as pa
import pyproj
import pytest
import shapely

import bowstring as bow
from bowstring import geo
from bowstring.testing import fake_device

PLACES = [shapely.Point(30, 10), None, shapely.LineString([(0, 0), (1, 1)])]
ROWS = [None if each is None else shapely.to_wkb(each) for each in PLACES]
PROJJSON = pyproj.CRS.from_epsg(5070).to_json_dict()


def table(**options: Any) -> pa.Table:
    field = geo.field("where", **options)
    schema = pa.schema([pa.field("id", pa.int64()), field])
    return pa.table([pa.array([1, 2, 3]), pa.array(ROWS, field.type)], schema=schema)


@pytest.mark.parametrize(
    "found",
    [
        geo.WkbType(),
        geo.WkbType("EPSG:5070", "authority_code"),
        geo.WkbType("4326", "srid", "vincenty"),
        geo.WkbType(PROJJSON, "projjson"),
        geo.WkbType("anything", None, "spherical"),
    ],
)
def test_the_mark_says_what_was_given(found: geo.WkbType) -> None:
    """A field says the coordinate system and the edges that it was made with, also as GeoArrow's text."""
    field = geo.field("where", crs=found.crs, crs_type=found.crs_type, edges=found.edges)
    assert geo.type_of(field) == found == geo.WkbType.parse(found.serialized())
    assert field.metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"
    batch = bow.Batch.from_arrow(pa.table([pa.array(ROWS)], schema=pa.schema([field])))
    for each in (batch, batch.to_device(fake_device()), batch.slice(1, 1), batch["where"].as_batch()):
        assert geo.type_of(each["where"]) == found
    assert geo.type_of(batch.to_arrow().schema.field("where")) == found


def test_the_mark_goes_through_a_server() -> None:
    """What a reader gets of a published table has the coordinate system, and the same statistics."""
    given = table(crs="EPSG:4326", crs_type="authority_code", edges="spherical")
    with bow.Server() as server, bow.connect(server.publish("places", given, readers=1)) as stream:
        column = next(iter(stream))["where"]
        assert geo.type_of(column) == geo.WkbType("EPSG:4326", "authority_code", "spherical")
        assert geo.statistics(column).types == (1, 2)


@pytest.mark.parametrize(
    "serialized",
    [
        b"{",
        b"[]",
        b'{"edges": "round"}',
        b'{"crs": 7}',
        b'{"crs_type": "wkt1"}',
        b"[" * 100_000,
        b'{"edges": {}}',
        b"\xff",
    ],
)
def test_wrong_metadata_are_refused(serialized: bytes) -> None:
    """Metadata that are no JSON object, or say what GeoArrow does not have, are named as wrong."""
    field = pa.field(
        "where",
        pa.binary(),
        metadata={"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": serialized},
    )
    batch = bow.Batch.from_arrow(pa.table([pa.array(ROWS)], schema=pa.schema([field])))
    for call in (geo.type_of, geo.statistics, geo.bounds):
        with pytest.raises(bow.InvalidMetadata, match=r"geoarrow\.wkb"):
            call(batch["where"])


@pytest.mark.parametrize(
    "options",
    [
        {"edges": "round"},
        {"crs": 4326},
        {"crs_type": "epsg"},
        {"storage": pa.string()},
        {"crs": PROJJSON, "edges": "spherical"},
    ],
)
def test_wrong_fields_are_refused(options: dict[str, Any]) -> None:
    """A field has known edges, a kind of coordinate system, bytes; a GEOGRAPHY has no projection."""
    with pytest.raises(bow.UsageError):
        geo.field("where", **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.array([[1.0, 2.0]]),
        lambda: pa.array(ROWS).dictionary_encode(),
        lambda: pa.array([bytes(21)], pa.binary(21)),
        lambda: pa.table(
            [pa.array(["POINT (1 2)"])],
            schema=pa.schema([pa.field("g", pa.string(), metadata={"ARROW:extension:name": "geoarrow.wkt"})]),
        ),
        table,
    ],
)
def test_other_columns_are_refused(make: Callable[[], Any]) -> None:
    """Lists, dictionaries, fixed sizes, other encodings, and tables of two columns are no WKB column."""
    with pytest.raises(bow.UsageError):
        geo.statistics(make())


def test_the_older_name_is_read() -> None:
    """Columns that are marked ``ogc.wkb`` are WKB columns."""
    field = pa.field(
        "where",
        pa.binary(),
        metadata={"ARROW:extension:name": "ogc.wkb", "ARROW:extension:metadata": '{"crs": "EPSG:3857"}'},
    )
    data = pa.table([pa.array(ROWS)], schema=pa.schema([field]))
    assert geo.type_of(field) == geo.WkbType("EPSG:3857")
    assert geo.statistics(data).bbox == geo.Box(0, 0, 30, 10)
    assert geo.to_geopandas(data).crs == "EPSG:3857"


def test_geopandas_gets_geometries_and_their_system() -> None:
    """Every marked column becomes geometries with its coordinate system; the others are what pandas has of them."""
    for storage in (pa.binary(), pa.large_binary(), pa.binary_view()):
        given = table(crs=PROJJSON, crs_type="projjson", storage=storage)
        frame = geo.to_geopandas(given)
        assert frame["id"].tolist() == [1, 2, 3]
        assert frame["where"].tolist() == PLACES
        assert frame.crs == pyproj.CRS.from_epsg(5070)
        batch = bow.Batch.from_arrow(given)
        for each in (
            batch,
            batch.to_device(fake_device()),
            batch["where"],
            [batch.slice(0, 1), batch.slice(1, 2)],
        ):
            assert geo.to_geopandas(each)["where"].tolist() == PLACES


def test_what_geopandas_gives_comes_back() -> None:
    """The Arrow form of a data frame of GeoPandas is a WKB column with its coordinate system."""
    frame = geopandas.GeoDataFrame(geometry=PLACES, crs="EPSG:5070")
    batch = bow.Batch.from_arrow(pa.table(frame.to_arrow(index=False, geometry_encoding="WKB")))
    found = geo.type_of(batch["geometry"])
    assert found is not None
    assert pyproj.CRS(found.crs) == frame.crs
    assert geo.statistics(batch["geometry"]).bbox == geo.Box(*frame.total_bounds.tolist())


def test_geopandas_refuses_what_is_no_geometry() -> None:
    """There is no data frame without a marked column, with the name of another one, or of bytes that are no WKB."""
    with pytest.raises(bow.UsageError, match=r"geoarrow\.wkb"):
        geo.to_geopandas(pa.table({"where": ROWS}))
    with pytest.raises(bow.UsageError, match="'id'"):
        geo.to_geopandas(table(), geometry="id")
    wrong = table().set_column(1, geo.field("where"), pa.array([b"\x01", None, None]))
    with pytest.raises(bow.InvalidBody, match="cannot read a geometry"):
        geo.to_geopandas(wrong)


GEOARROW = """
import json, pyarrow as pa, geoarrow.pyarrow as ga, bowstring as bow, sys
rows = [bytes.fromhex(each) for each in sys.argv[1].split()]
type_ = ga.wkb().with_crs(ga.OGC_CRS84).with_edge_type(ga.EdgeType.SPHERICAL)
array = type_.wrap_array(pa.array(rows))
batch = bow.Batch.from_arrow(pa.table({"where": array}))
found = bow.geo.type_of(batch["where"])
assert found.edges == "spherical" and found.crs["id"] == {"authority": "OGC", "code": "CRS84"}, found
wanted = bow.geo.Statistics(None, (1, 2), is_bounded=False, geography=True)
for each in (batch["where"], array, pa.chunked_array([array, array])):
    assert bow.geo.statistics(each) == wanted
back = batch.to_arrow().column(0)
assert back.type.extension_name == "geoarrow.wkb" and back.type.edge_type == ga.EdgeType.SPHERICAL
assert back.type.crs.to_json_dict() == array.type.crs.to_json_dict() and back.storage.equals(array.storage)
planar = ga.wkb().wrap_array(pa.array(rows))
theirs, ours = ga.box_agg(planar), bow.geo.statistics(planar).bbox
assert ours == bow.geo.Box(theirs.xmin, theirs.ymin, theirs.xmax, theirs.ymax), (theirs, ours)
assert bow.geo.to_geopandas({"where": array}).geometry.notna().all()
print("same")
"""


def test_geoarrow_pyarrow_and_back() -> None:
    """With geoarrow's types registered, columns come and go with coordinate system, edges and the same boxes.

    In a process of its own: the types stay registered, and pyarrow reads files otherwise from then on.
    """
    rows = " ".join(each.hex() for each in ROWS if each is not None)
    done = subprocess.run([sys.executable, "-c", GEOARROW, rows], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "same", done.stderr


def test_shapely_takes_the_bytes() -> None:
    """The line of the guide: ``shapely.from_wkb(column.to_arrow().to_numpy(zero_copy_only=False))``."""
    column = bow.Batch.from_arrow(table())["where"]
    assert shapely.from_wkb(column.to_arrow().to_numpy(zero_copy_only=False)).tolist() == PLACES
    assert json.loads(geo.WkbType("EPSG:4326").serialized()) == {"crs": "EPSG:4326"}
