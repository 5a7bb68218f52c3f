"""What ``fetch`` shows of columns that are bytes to Arrow and mean something: Variants and geometries."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.cli import main

JSON = ['{"a":[1,2]}', "null", None, '"x"']
POINT = struct.pack("<BIdd", 1, 1, 7.5, 47.0)
WKT = ["POINT (7.5 47)", None, "POINT (7.5 47)", "POINT (7.5 47)"]


def marked(kind: str) -> tuple[pa.Array, pa.Field, list[str | None]]:
    """Return a column, its field, and what is shown of it."""
    if kind.startswith("variant"):
        column = bow.variant.from_json(JSON)
        if kind == "variant, shredded":
            column = bow.variant.shred(column, "infer")
        batch = bow.Batch.from_arrow({"v": column}).to_arrow()
        return batch.column(0), batch.schema.field(0), list(JSON)
    field = bow.geo.field("v")
    storage = pa.array([None if each is None else POINT for each in WKT], field.type)
    return storage, field, list(WKT)


KINDS = ["variant", "variant, shredded", "geometry"]
INSIDE = ["alone", "in a struct", "in a list", "in a map", "in a list of structs"]


def inside(
    array: pa.Array, field: pa.Field, values: list[Any], where: str
) -> tuple[pa.Array, Any, list[Any]]:
    """Return a column inside of another type."""
    if where == "alone":
        return array, field, values
    if where == "in a struct":
        made = pa.StructArray.from_arrays([array], fields=[field])
        return made, pa.field("v", made.type), [{"v": each} for each in values]
    if where == "in a map":
        keys = pa.array(["a", "b", "c", "d"])
        type_ = pa.map_(pa.field("key", pa.string(), False), field.with_name("value"))
        made = pa.MapArray.from_arrays(pa.array([0, 3, 4], pa.int32()), keys, array, type_)
        pairs = [list(each) for each in zip("abcd", values, strict=True)]
        return made, pa.field("v", type_), [pairs[:3], pairs[3:]]
    if where == "in a list of structs":
        array, field, values = inside(array, field, values, "in a struct")
    type_ = pa.list_(field)
    made = pa.ListArray.from_arrays(pa.array([0, 3, 4], pa.int32()), array, type_)
    return made, pa.field("v", type_), [values[:3], values[3:]]


@pytest.mark.parametrize("where", INSIDE)
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_shown_as_people_write_them(
    kind: str, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variants are JSON and geometries WKT, as columns and inside of others, in the table and with ``--json``."""
    array, field, values = inside(*marked(kind), where)
    batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([field]))
    with bow.Server() as server:
        uri = str(server.publish("t", batch))
        assert main(["fetch", uri, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["first_rows"] == [[each] for each in values]
        assert main(["fetch", uri]) == 0
        text = capsys.readouterr().out
    assert "POINT (7.5 47)" in text if kind == "geometry" else "[1,2]" in text
    assert "\\x" not in text


def test_what_cannot_be_read_is_shown_as_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """A malformed geometry or Variant is no reason to show nothing: its bytes are."""
    variant = bow.Batch.from_arrow({"v": bow.variant.from_json(["1"])}).to_arrow()
    wrong = pa.StructArray.from_arrays(
        [pa.array([b"\x01\0\0"]), pa.array([b"\xff\xff"])], names=["metadata", "value"]
    )
    field = pa.field("v", wrong.type, metadata=variant.schema.field(0).metadata)
    geometry = bow.geo.field("g")
    batch = pa.RecordBatch.from_arrays(
        [wrong, pa.array([b"\x09"], geometry.type)], schema=pa.schema([field, geometry])
    )
    with bow.Server() as server:
        assert main(["fetch", str(server.publish("t", batch)), "--json"]) == 0
    [[first, second]] = json.loads(capsys.readouterr().out)["first_rows"]
    assert first == {"metadata": "010000", "value": "ffff"}
    assert second == "09"


def test_long_lists_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A short list is shown, null elements included; of a long one the number of its values."""
    with bow.Server() as server:
        uri = str(server.publish("t", pa.table({"a": [[1, None], [None] * 5000]})))
        assert main(["fetch", uri, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["first_rows"] == [[[1, None]], ["5000 values"]]
