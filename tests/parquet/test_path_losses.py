"""Paths of ``columns=`` warn once for a read of values that are there and became null."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.limits import Limits

ITEMS: st.SearchStrategy[Any] = st.sampled_from([1, 2.5, 7, "x", None, ..., [1]])


def _written(path: Path, items: list[Any], shred: Any) -> None:
    events = bow.variant.from_python([{} if each is ... else {"p": each} for each in items], name="v")
    array = events.to_arrow()
    table = pa.table(
        [pa.array(range(len(items)), pa.int64()), array],
        schema=pa.schema([pa.field("id", pa.int64()), pa.field("v", array.type)]),
    )
    options = {} if shred is None else {"shred": {"v": pa.struct({"p": shred})}}
    bow.parquet.write(table, path, row_group_size=3, **options)


def _losses(stream: Any) -> list[tuple[int, int, int]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with stream:
            stream.read_all()
    found = [
        re.search(r"(\d+) of (\d+) values .* became null, for example row (\d+) of ", str(each.message))
        for each in caught
    ]
    assert all(found)
    return [tuple(map(int, each.groups())) for each in found if each]  # type: ignore[misc]  # three groups


@pytest.mark.parametrize("window", [256 << 20, 1], ids=["threads", "pieces"])
@given(
    items=st.lists(ITEMS, min_size=1, max_size=14),
    first=st.integers(0, 14),
    shred=st.sampled_from([None, pa.float64(), pa.int64(), pa.string()]),
)
@settings(max_examples=25)
def test_one_warning_for_a_read(
    window: int, items: list[Any], first: int, shred: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Values of all row groups are counted together, of the rows that a filter leaves, shredded or not."""
    path = tmp_path_factory.mktemp("losses") / "events.parquet"
    _written(path, items, shred)
    price = bow.variant.path("v", "$.p", "float64")
    limits = Limits(window_bytes=window)
    for start, filters in ((0, None), (first, [("id", ">=", first)])):
        there = [
            row for row, each in enumerate(items) if row >= start and each is not ... and each is not None
        ]
        lost = [row for row in there if not isinstance(items[row], int | float)]
        stream = bow.parquet.read(path, columns=["id", price], filters=filters, limits=limits)
        found = _losses(stream)
        assert [each[:2] for each in found] == ([(len(lost), len(there))] if lost else [])
        assert all(row in lost for *_, row in found)


def test_the_rows_are_numbers(tmp_path: Path) -> None:
    """JSON's prices, whole or not, are floats by path, and a filter finds them."""
    events = bow.variant.from_json([f'{{"p": {each / 4}}}' for each in range(100)], name="v").to_arrow()
    table = pa.table([events], schema=pa.schema([pa.field("v", events.type)]))
    price = bow.variant.path("v", "$.p", pa.float64())
    for shred in (None, "infer"):
        bow.parquet.write(table, tmp_path / "p.parquet", **({} if shred is None else {"shred": shred}))  # type: ignore[arg-type]
        with bow.parquet.read(tmp_path / "p.parquet", columns=[price], filters=price > 12.5) as stream:
            assert stream.read_all().column(0).to_pylist() == [each / 4 for each in range(51, 100)]
