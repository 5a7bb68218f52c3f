"""Paths of ``columns=`` warn once for a read of values that are there and became null."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import ClosedError
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


def _integer(number: int) -> bytes:
    """Return a number that is not negative as Thrift's compact protocol does: twice as large, 7 bits a byte."""
    number *= 2
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


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


def _left(stream: Any) -> None:
    with stream:
        stream.read_next_batch()


ENDINGS: dict[str, Callable[[Any], object]] = {
    "for": lambda stream: [batch.num_rows for batch in stream],
    "read_all": lambda stream: stream.read_all(),
    "read_pandas": lambda stream: stream.read_pandas(),
    "to_reader": lambda stream: stream.to_reader().read_all(),
    "capsule": pa.table,
    "close": lambda stream: (stream.read_next_batch(), stream.close()),
    "with": _left,
}


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose reads warn of a filter and of a column."""
    path = tmp_path_factory.mktemp("lossy") / "events.parquet"
    _written(path, [1, "x", 2], None)
    return path


def _lossy_stream(path: Path) -> Any:
    price = bow.variant.path("v", "$.p", "int64")
    either = (price > 0) | (pc.field("id") >= 0)
    return bow.parquet.read(path, columns=["id", price], filters=either)


@pytest.mark.parametrize("ending", ENDINGS)
def test_warnings_are_of_the_line_that_reads(ending: str, lossy: Path) -> None:
    """Both warnings of a read name this file, however the stream is read or left."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ENDINGS[ending](_lossy_stream(lossy))
    assert [each.filename for each in caught] == [__file__] * 2
    assert "are not numbers" in str(caught[0].message)
    assert "became null" in str(caught[1].message)


@pytest.mark.parametrize("ending", ENDINGS)
def test_warnings_that_are_errors_are_all_given(ending: str, lossy: Path) -> None:
    """The second is raised, the first is its context, and the stream is closed after it."""
    stream = _lossy_stream(lossy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((UserWarning, pa.ArrowException)) as caught:
            ENDINGS[ending](stream)
    if isinstance(caught.value, UserWarning):
        assert "became null" in str(caught.value)
        assert "are not numbers" in str(caught.value.__context__)
    stream.close()
    with pytest.raises(ClosedError):
        stream.read_next_batch()


def test_warnings_of_get_are_of_the_line_that_calls() -> None:
    """`get` and `get_many` name this file."""
    events = bow.variant.from_json(['{"p": "x"}', '{"p": 1}'])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bow.variant.get(events, "$.p", pa.int64())
        bow.variant.get_many(events, {"p": ("$.p", pa.int64())})
    assert [each.filename for each in caught] == [__file__] * 2


@pytest.mark.parametrize("window", [8 << 20, 1 << 30])
def test_rows_that_are_read_again_in_pieces_are_counted_once(tmp_path: Path, window: int) -> None:
    """A row group that is larger than was likely has the losses that it has when it is read whole."""
    rows = 20_000
    items = ["x" if row % 10 == 0 else 1 for row in range(rows)]
    events = bow.variant.from_python([{"p": item} for item in items], name="v").to_arrow()
    # Short values in most of the dictionary, a long one in most rows.
    indices = pa.array([min(3000, row) for row in range(rows)], pa.int32())
    text = pa.DictionaryArray.from_arrays(indices, pa.array([*map(str, range(3000)), "x" * 4096]))
    schema = pa.schema([pa.field("t", pa.string()), pa.field("v", events.type)])
    table = pa.table([text.cast(pa.string()), events], schema=schema)
    path = tmp_path / "events.parquet"
    options = {"write_statistics": False, "store_schema": False}
    bow.parquet.write(table, path, row_group_size=rows, **options)
    # The footer says how large the text is; that it has no bytes is what makes it unlikely.
    claimed = _integer(pc.sum(pc.binary_length(table["t"])).as_py())
    path.write_bytes(path.read_bytes().replace(claimed, b"\x80" * (len(claimed) - 1) + b"\0"))
    price = bow.variant.path("v", "$.p", "int64")
    limits = Limits(window_bytes=window)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with bow.parquet.read(path, columns=["t", price], filters=price > 0, limits=limits) as stream:
            sizes = [batch.num_rows for batch in stream]
    assert sum(sizes) == rows * 9 // 10
    assert (len(sizes) > 1) == (window < 1 << 30)
    assert [str(each.message).partition(" values")[0] for each in caught] == [f"{rows // 10} of {rows}"]
