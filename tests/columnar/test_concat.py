"""Joining the rows of batches where they are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import Batch
from bowstring.columnar.concat import can_concatenate, concatenate
from bowstring.memory import Device
from bowstring.testing.strategies import arrays

NUMBERS = [pa.int8(), pa.int64(), pa.float32(), pa.timestamp("us"), pa.decimal128(20, 3)]
TYPES = [*NUMBERS, pa.string(), pa.large_binary()]
OTHERS = [pa.bool_(), pa.list_(pa.int8()), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


@given(data=st.data(), kind=st.sampled_from(TYPES))
def test_joined_against_pyarrow(device: Device, data: st.DataObject, kind: pa.DataType) -> None:
    """Rows come one after the other, slices and nulls included, on the device where the parts are."""
    parts = [
        data.draw(arrays(kind)).slice(data.draw(st.integers(0, 3)))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    batches = [Batch.from_arrow(pa.record_batch({"a": part})).to_device(device) for part in parts]
    assert can_concatenate(batches[0])
    whole = concatenate(batches)
    assert whole.device is device
    whole.validate(full=True)
    assert whole["a"].to_arrow().equals(pa.concat_arrays(parts))


@pytest.mark.parametrize("kind", OTHERS)
def test_what_cannot_be_joined_is_known(kind: pa.DataType) -> None:
    """Columns of other shapes are named before anything is done with them."""
    assert not can_concatenate(Batch.from_arrow(pa.record_batch({"a": pa.nulls(1, kind)})))
