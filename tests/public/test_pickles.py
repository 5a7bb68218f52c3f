"""What earlier builds pickled or printed means the same today."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import bowstring as bow
from tests.public.picklable import objects, texts

KEPT = Path(__file__).parents[1] / "data" / "pickles"
OBJECTS = objects()
TEXTS: dict[str, str] = json.loads((KEPT / "texts.json").read_text(encoding="utf-8"))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bow.BowstringError):
        # Errors compare by identity.
        return type(one) is type(other) and one.args == other.args and vars(one) == vars(other)
    return type(one) is type(other) and bool(one == other) and repr(one) == repr(other)


@pytest.mark.parametrize("name", OBJECTS)
def test_old_pickles_load(name: str) -> None:
    """An object that was pickled by an earlier build loads, equal to one that is made today."""
    assert _same(pickle.loads((KEPT / f"{name}.pickle").read_bytes()), OBJECTS[name])


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("protocol", [2, 4, pickle.HIGHEST_PROTOCOL])
def test_objects_pickle(name: str, protocol: int) -> None:
    """A public value pickles, and loads equal."""
    assert _same(pickle.loads(pickle.dumps(OBJECTS[name], protocol)), OBJECTS[name])


def test_each_old_pickle_is_loaded() -> None:
    """No pickle lies there that nothing looks at."""
    assert {path.stem for path in KEPT.glob("*.pickle")} == set(OBJECTS)


@pytest.mark.parametrize("name", TEXTS)
def test_old_texts_are_read(name: str) -> None:
    """The URI of an endpoint and the JSON of a data set that an earlier build wrote are read as the same object."""
    kind = type(OBJECTS[name])
    read = kind.from_json(TEXTS[name]) if kind is bow.Dataset else kind.parse(TEXTS[name])
    assert read == OBJECTS[name]


@pytest.mark.parametrize("name", [name for name in TEXTS if isinstance(OBJECTS[name], bow.Endpoint)])
def test_uris_are_printed_as_before(name: str) -> None:
    """The URI of an endpoint is the text that an earlier build prints, which old readers parse."""
    assert texts()[name] == TEXTS[name]


@pytest.mark.parametrize("name", [name for name in TEXTS if isinstance(OBJECTS[name], bow.Dataset)])
def test_data_sets_are_written_as_before(name: str) -> None:
    """The JSON of a data set has all that an earlier build wrote, which old readers look for."""
    before, now = json.loads(TEXTS[name]), json.loads(texts()[name])
    assert {key: now[key] for key in before} == before
