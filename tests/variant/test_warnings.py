"""Values that are there and became null: one warning for a call says how many of how many."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from tests.variant.conftest import Move
from tests.variant.encoding import encode
from tests.variant.get_columns import column_of


def _messages(column: Column, path: str, type_: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        variant.get(column, path, type_, **options)
    assert all(each.filename == __file__ for each in caught)
    return [str(each.message) for each in caught]


def _counts(messages: list[str]) -> list[tuple[int, int, int]]:
    """Return of each loss how many values, of how many, and an example row."""
    found = [
        re.findall(r"(\d+) of (\d+) values at [^;]* became null, for example (?:in )?row (\d+)", each)
        for each in messages
    ]
    return [(int(lost), int(there), int(row)) for each in found for lost, there, row in each]


ITEMS: st.SearchStrategy[Any] = st.sampled_from([1, 2.5, "x", None, [], {}, True])


@given(st.lists(ITEMS | st.just(...), max_size=9))
def test_values_and_fields_are_counted(items: list[Any]) -> None:
    """Rows whose value, or whose field, is no number are counted, among those that have one."""
    rows = [{} if each is ... else {"a": each} for each in items]
    there = [(row, each) for row, each in enumerate(items) if each is not ... and each is not None]
    lost = [row for row, each in there if isinstance(each, bool | str | list | dict)]
    wanted = [(len(lost), len(there), lost[0])] if lost else []
    column = variant.from_python(rows)
    assert _counts(_messages(column, "$.a", pa.float64())) == wanted
    assert _counts(_messages(column, "$", pa.struct({"a": pa.float64(), "b": pa.int8()}))) == wanted
    assert (
        _counts(_messages(variant.shred(column, pa.struct({"a": pa.float64()})), "$.a", pa.float64()))
        == wanted
    )


@given(st.lists(st.lists(ITEMS, max_size=4) | st.just("text"), max_size=5))
def test_elements_are_counted(lists: list[Any]) -> None:
    """So are the elements of arrays and the entries of maps, and what is no array or object."""
    values = [(row, each) for row, each_list in enumerate(lists) if each_list != "text" for each in each_list]
    there = [(row, each) for row, each in values if each is not None]
    lost = [row for row, each in there if isinstance(each, bool | str | list | dict)]
    lost += [row for row, each in enumerate(lists) if each == "text"]
    texts = sum(each == "text" for each in lists)
    wanted = [(len(lost), len(there) + texts, min(lost))] if lost else []
    column = variant.from_python(lists)
    assert _counts(_messages(column, "$", pa.list_(pa.float64()))) == wanted
    inside = variant.from_python(
        [each if each == "text" else [{"p": item} for item in each] for each in lists]
    )
    by_path = _counts(_messages(inside, "$[*].p", pa.float64()))
    assert by_path == wanted
    maps = variant.from_python(
        [each if each == "text" else {f"k{k}": item for k, item in enumerate(each)} for each in lists]
    )
    assert _counts(_messages(maps, "$", pa.map_(pa.string(), pa.float64()))) == wanted


def test_one_warning_for_all_columns(on_device: Move) -> None:
    """`get_many` warns once, of each column that lost something; the row is described."""
    column = on_device(variant.from_python([{"a": 1, "b": "x"}, {"a": 1.5}, {"a": 300, "b": 2}]))
    wanted = {"one": ("$.a", "int8"), "two": ("$.b", "string"), "three": ("$.a", "float32")}
    with pytest.warns(UserWarning, match="became null") as caught:
        variant.get_many(column, wanted)
    [message] = [str(each.message) for each in caught]
    assert _counts([message]) == [(2, 3, 1), (1, 2, 2)]
    assert "row 1, which holds a double" in message
    assert "row 2, which holds an int8" in message
    assert 'cast="lenient"' in message
    assert caught[0].filename == __file__


def test_what_is_malformed_is_counted(on_device: Move) -> None:
    """Bytes that are no value are lost, too."""
    column = on_device(column_of([encode(variant.Value("int8", 1)), (b"\x01\x00\x00", b"\x0c")]))
    assert _counts(_messages(column, "$", pa.int64())) == [(1, 2, 1)]


@pytest.mark.parametrize(
    ("type_", "options"),
    [("int64", {"with_status": True}), ("variant", {}), ("string", {"cast": "lenient"})],
)
def test_no_warning(type_: str, options: dict[str, Any], on_device: Move) -> None:
    """With statuses, and where every value fits, there is none; nor where there are no values."""
    column = on_device(variant.from_python(["x", 1, 2.5, [1], None]))
    assert _messages(column, "$", type_, **options) == []
    for texts in ([], ["null", "{}"]):
        assert _messages(on_device(variant.from_json(texts)), "$.a", "int64") == []
