"""Metadata in views, which may share their bytes: the work on them is bounded by the bytes that there are."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Batch, Column
from bowstring.errors import InvalidBody
from bowstring.variant import Status
from tests.variant.conftest import Move
from tests.variant.encoding import encode_with, metadata_bytes

NAMES = [f"a long name, number {k:05d}" for k in range(400)]
BLOB = metadata_bytes(NAMES)
VALUE = encode_with({NAMES[7]: 7}, variant.Value("object", {NAMES[7]: variant.Value("int8", 42)}))


def views(slots: list[tuple[int, int]], data: bytes) -> pa.Array:
    """Return views of an offset and a length each, which are longer than a view."""
    table = np.array([(length, 0, 0, offset) for offset, length in slots], np.int32)
    buffers = [None, pa.py_buffer(table.tobytes()), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(slots), buffers)


def column_of(metadata: pa.Array, indices: list[int] | None = None) -> Column:
    """Return the same value under each of the metadata; under those that the indices say, if there are any."""
    if indices is not None:
        metadata = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), metadata)
    values = pa.array([VALUE] * len(metadata), pa.binary())
    array = pa.StructArray.from_arrays([metadata, values], names=["metadata", "value"])
    return Batch.from_arrow(pa.record_batch({"v": array}))["v"]


@pytest.mark.parametrize("form", ["rows", "dictionary"])
def test_views_of_the_same_bytes(form: str, on_device: Move) -> None:
    """Metadata that many views name mean what they mean once."""
    other = metadata_bytes(["another long name"])
    places = [(0, len(BLOB)), (len(BLOB), len(other)), (len(BLOB), len(other) + 3)]
    slots = [places[0 if k % 2 else k % 3] for k in range(2000)]
    indices = [*range(1999, -1, -1), -1] if form == "dictionary" else None
    if indices:
        indices[-1] = 0
    column = on_device(column_of(views(slots, BLOB + other + b"..."), indices))
    got = variant.get(column, [NAMES[7]], pa.int8(), plain=True, with_status=True).to_device("cpu")
    of_rows = [slots[k] for k in indices] if indices else slots
    # A value of metadata that lack its names has an id that is none of theirs: the field is not there.
    wanted = [42 if slot == places[0] else None for slot in of_rows]
    assert got.columns[0].to_arrow().to_pylist() == wanted
    assert set(got["status"].values[[each is None for each in wanted]].tolist()) == {Status.MISSING}


@pytest.mark.parametrize("form", ["rows", "dictionary"])
def test_views_that_overlap_are_refused(form: str, on_device: Move) -> None:
    """Thousands of views that each begin a byte further could ask for any amount of work: refused, and at once."""
    data = BLOB * 40
    slots = [(k, len(data) - 4000) for k in range(4000)]
    column = on_device(column_of(views(slots, data), list(range(4000)) if form == "dictionary" else None))
    begin = time.monotonic()
    with pytest.raises(InvalidBody, match="overlap"):
        variant.get(column, "$.a", pa.int8(), plain=True)
    assert time.monotonic() - begin < 30


def test_views_that_overlap_a_little(on_device: Move) -> None:
    """A few views that share bytes are metadata like any others."""
    column = on_device(column_of(views([(0, len(BLOB)), (0, len(BLOB) + 2), (0, len(BLOB))], BLOB + b"..")))
    got = variant.get(column, [NAMES[7]], pa.int8(), plain=True)
    assert got.to_arrow().to_pylist() == [42] * 3
