"""Paths that count from the end of arrays, and those that go to each element."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import UsageError

LEAVES = st.none() | st.integers(-300, 300) | st.text(max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=12,
)
PATHS = st.lists(st.sampled_from(["a", "b", 0, 1, -1, -2, ...]), max_size=4)


def at(value: Any, path: list[Any]) -> Any:
    """Return what a path leads to, as lists of strings: the reference."""
    for place, step in enumerate(path):
        if step is ...:
            return [at(each, path[place + 1 :]) for each in value] if isinstance(value, list) else None
        wanted = dict if isinstance(step, str) else list
        if not isinstance(value, wanted):
            return None
        try:
            value = value[step]
        except (KeyError, IndexError):
            return None
    return value if isinstance(value, str) else None


@pytest.mark.parametrize("shredded", [False, True])
@given(rows=st.lists(VALUES, max_size=6), path=PATHS)
def test_paths_lead_where_python_goes(shredded: bool, rows: list[Any], path: list[Any]) -> None:
    """Indices from either end, and each element of arrays, in plain columns and in shredded ones."""
    column = bow.variant.from_json([json.dumps(row) for row in rows])
    if shredded:
        column = bow.variant.shred(column, pa.list_(pa.struct({"a": pa.list_(pa.string())})))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bow.variant.get(column, path, "string")
    depth = path.count(...)
    expected = pa.string()
    for _ in range(depth):
        expected = pa.list_(expected)
    assert found.type == expected
    assert found.to_pylist() == [at(row, path) for row in rows]


def test_elements_beside_other_paths() -> None:
    """One call gets lists and numbers; Variants in lists stay Variants."""
    rows = ['{"a": [{"b": 1}, {"b": "x"}, {}, 5, null], "c": 2}', '{"a": 3}', "null"]
    events = bow.variant.from_json(rows)
    batch = bow.variant.get_many(
        events, {"b": ("$.a[*].b", "variant"), "c": ("$.c", "int8")}, with_status=True
    )
    [first, *rest] = batch["b"].to_arrow().to_pylist()
    assert [each and each["value"] for each in first] == [b"\x0c\x01", b"\x05x", None, None, None]
    assert rest == [None, None]
    assert batch["c"].to_pylist() == [2, None, None]
    # As for any list: what is no array does not match.
    assert batch["b.status"].to_pylist() == [0, 4, 2]


def test_one_value_is_asked_for() -> None:
    """Types of values have no lists."""
    with pytest.raises(UsageError, match="one value"):
        bow.variant.type_of(bow.variant.from_json(["[]"]), "$[*]")


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("int64", pa.int64()),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("timestamp[us, UTC]", pa.timestamp("us", "UTC")),
        ("timestamp[ns]", pa.timestamp("ns")),
        ("list<list<uuid>>", pa.list_(pa.list_(pa.uuid()))),
    ],
)
def test_names_of_types(name: str, type_: pa.DataType) -> None:
    """A type is asked for by its name as by itself."""
    column = bow.variant.from_json(["null"])
    assert bow.variant.get(column, "$", name).type == bow.variant.get(column, "$", type_).type


@pytest.mark.parametrize("name", ["int46", "decimal(99, 0)", "list<" * 3000, "timestamp[us, ?]", ""])
def test_no_such_type(name: str) -> None:
    """A name that stands for no type is refused, with the nearest that does."""
    with pytest.raises(UsageError, match="no such type"):
        bow.variant.get(bow.variant.from_json(["1"]), "$", name)


def test_a_near_name_is_suggested() -> None:
    """A slip of the keyboard is answered."""
    with pytest.raises(UsageError, match="Did you mean 'int64'"):
        bow.variant.get(bow.variant.from_json(["1"]), "$", "int46")


@pytest.mark.filterwarnings("ignore:.* became null")
def test_lenient_is_as_spark() -> None:
    """The two names of the casts that convert are one."""
    column = bow.variant.from_json(['"7"', "1.5", "[]"])
    for type_ in ("int32", "string"):
        one, other = (bow.variant.get(column, "$", type_, cast=each) for each in ("lenient", "spark"))
        assert one.to_pylist() == other.to_pylist()
    assert bow.variant.get(column, "$", "int32", cast="lenient").to_pylist() == [7, 1, None]
