"""Batches and columns of every Arrow type become frames of the same values, or errors that name the column."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import bowstring as bow
from bowstring import Batch
from bowstring.errors import BowstringError, Unsupported, UsageError
from tests.strategies import LEAF_TYPES, arrays, data_types

ZONES = ("UTC", "+05:30", "-03:00", "+00:00", "+0545", "Z", "Europe/Zurich", "GMT+8", "Nowhere/At_All")
LEAVES = (
    *LEAF_TYPES,
    *(pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in ZONES),
    *(pa.duration(unit) for unit in ("s", "us", "ns")),
    *(
        pa.decimal128(5, -2),
        pa.decimal128(38, -2),
        pa.decimal256(30, 4),
        pa.decimal256(38, -3),
        pa.decimal32(4, 6),
    ),
    *(pa.bool8(), pa.json_(), pa.opaque(pa.list_view(pa.int8()), "a", "b")),
)
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


def rows(array: Any) -> list[Any]:
    """Return the values of an array, whatever its layout: temporal ones as nanoseconds."""
    type_, types = array.type, pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return rows(array.storage)
    if types.is_run_end_encoded(type_):
        values = rows(array.values)
        places = np.arange(array.offset, array.offset + len(array))
        return [values[at] for at in np.searchsorted(array.run_ends.to_numpy(), places, side="right")]
    if types.is_dictionary(type_):
        values = rows(array.dictionary)
        return [None if at is None else values[at] for at in array.indices.to_pylist()]
    if types.is_struct(type_):
        fields = [rows(array.field(at)) for at in range(type_.num_fields)]
        valid = array.is_valid().to_pylist()
        return [tuple(field[at] for field in fields) if valid[at] else None for at in range(len(array))]
    if type_.num_fields:
        return [rows(scalar.values) if scalar.is_valid else None for scalar in array]
    if types.is_temporal(type_):
        unit = getattr(type_, "unit", "s" if types.is_date32(type_) else "ms")
        scale = NANOSECONDS[unit] * (86_400 if types.is_date32(type_) else 1)
        numbers = array.cast(pa.int32() if type_.bit_width == 32 else pa.int64()).to_pylist()
        return [None if number is None else number * scale for number in numbers]
    found: list[Any] = array.to_pylist()
    return found


def frame_rows(frame: Any) -> list[Any]:
    """Return the values of the only column of a frame."""
    return [*itertools.chain.from_iterable(map(rows, frame.to_arrow().column(0).chunks))]


@given(st.data(), data_types(leaves=LEAVES))
def test_every_type_keeps_its_values_or_is_refused_by_name(data: st.DataObject, type_: pa.DataType) -> None:
    """A frame has the values of the batch, with and without rows, whole and sliced; what polars lacks is named."""
    array = data.draw(arrays(type_))
    column = Batch.from_arrow(pa.record_batch([array], names=["the column"]))[0]
    try:
        frame = column.as_batch().to_polars()
    except BowstringError:
        for take in (column.as_batch().to_polars, column.to_polars):
            with pytest.raises(BowstringError, match="'the column'"):
                take()
        return
    assert frame.columns == ["the column"]
    assert frame_rows(frame) == rows(array)
    assert column.to_polars().name == "the column"
    assert frame_rows(column.to_polars().to_frame()) == rows(array)


@pytest.mark.parametrize("zone", ZONES)
def test_zones_that_polars_lacks(zone: str) -> None:
    """Fixed offsets keep the instant; a name that polars does not know is an error with the name of the column."""
    batch = Batch.from_arrow({"when": pa.array([0, None], pa.timestamp("us", zone))})
    if zone in ("GMT+8", "Nowhere/At_All"):
        with pytest.raises(Unsupported, match=r"'when'"):
            batch.to_polars()
    else:
        assert batch.to_polars()["when"].dt.timestamp("us").to_list() == [0, None]


@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.duration("s"), pa.decimal256(38, -2)], ids=str)
def test_values_that_the_type_of_polars_cannot_hold(type_: pa.DataType) -> None:
    """What polars would make another value of without an error is one, naming the column."""
    storage = pa.array([1 << 62], pa.int64())
    array = storage.cast(type_) if type_.id != pa.lib.Type_DECIMAL256 else pa.array([10**39], type_)
    with pytest.raises(Unsupported, match="'long'"):
        Batch.from_arrow({"ok": [1], "long": array}).to_polars()


def test_streams_decode_too() -> None:
    """A stream of several batches with runs and views of lists becomes one frame."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 0], pa.int32()), pa.array([1, 3, 0], pa.int32()), [1, 2, 3]
    )
    table = pa.table({"runs": runs, "views": views})
    with bow.connect(bow.put(pa.concat_tables([table, table.slice(1)]))) as stream:
        frame = stream.to_polars()
    assert frame.to_dict(as_series=False) == {
        "runs": ["a", "a", None, "a", None],
        "views": [[3], [1, 2, 3], [], [1, 2, 3], []],
    }


@pytest.mark.parametrize("dtype", [pl.Int128, pl.UInt128, pl.List(pl.Struct({"x": pl.Int128}))], ids=str)
def test_types_of_polars_that_arrow_lacks_name_their_column(dtype: Any) -> None:
    """A frame with a column that is not Arrow data is refused with the name of the column."""
    frame = pl.DataFrame({"small": [1], "wide": pl.Series([None], dtype=dtype)})
    for take in (bow.put, Batch.from_arrow):
        with pytest.raises(UsageError, match="'wide'"):
            take(frame)


def test_enumerations_and_rows_without_columns_stay() -> None:
    """What a column's metadata say to polars reaches it, beside columns that are given in another type, too."""
    frame = pl.DataFrame({"size": pl.Series(["S", "L"], dtype=pl.Enum(["S", "M", "L"]))})
    table = frame.to_arrow()
    assert_frame_equal(Batch.from_arrow(table).to_polars(), frame)
    seconds = table.append_column("seconds", pa.array([1, 2], pa.duration("s")))
    assert Batch.from_arrow(seconds).to_polars().schema["size"] == frame.schema["size"]
    bare = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    assert Batch.from_arrow(bare).to_polars().height == len(pl.from_arrow(pa.Table.from_batches([bare])))
