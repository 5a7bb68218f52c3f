"""Packed bodies: the pieces that a body is sent in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.materialize import placed
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.ipc.body.pack import pack
from bowstring.memory import Pool, wrap


def in_one_region(columns: dict[str, pa.Array]) -> Batch:
    pool = Pool(budget=8 << 20)
    return placed(Batch.from_arrow(pa.record_batch(columns)), pool.allocator(1 << 20))


def test_neighbours_are_one_piece() -> None:
    """Buffers that lie one behind the other without a gap go out as one piece."""
    batch = in_one_region({f"f{index}": pa.array(np.arange(64.0) + index) for index in range(8)})
    (piece,) = pack(batch).pieces
    assert bytes(piece) == b"".join((np.arange(64.0) + index).tobytes() for index in range(8))


@pytest.mark.parametrize("chosen", [[0, 2], [2, 1, 0], [1, 2, 0]])
def test_what_lies_between_does_not_go_out(chosen: list[int]) -> None:
    """Buffers of one region that do not follow each other are pieces of their own, in the order of the columns."""
    batch = in_one_region({f"f{index}": pa.array(np.arange(64.0) + index) for index in range(3)})
    body = b"".join(bytes(piece) for piece in pack(batch.select([f"f{each}" for each in chosen])).pieces)
    assert body == b"".join((np.arange(64.0) + index).tobytes() for index in chosen)


def test_neighbours_without_room_for_zeros() -> None:
    """Buffers that touch each other, though zeros belong between them, are pieces of their own."""
    values = np.arange(6)
    memory = wrap(values)
    layout = Layout.of(pa.schema({"a": pa.int64(), "b": pa.int64()}))
    spans = np.array([[0, 0, 0], [0, 0, 24], [0, 0, 0], [0, 24, 24]], np.int64)
    nodes = np.array([[3, 0], [3, 0]], np.int64)
    batch = make_batch(Batch, layout, 3, nodes, spans=spans, regions=(memory.region,))
    body = b"".join(bytes(piece) for piece in pack(batch).pieces)
    assert body == values[:3].tobytes() + bytes(40) + values[3:].tobytes() + bytes(40)


@given(
    st.lists(st.tuples(st.sampled_from(["u1", "i4", "f8"]), st.booleans()), min_size=1, max_size=6), st.data()
)
def test_a_body_is_its_buffers_and_zeros(kinds: list[tuple[str, bool]], data: st.DataObject) -> None:
    """Whatever lies beside what, a body holds the buffers at their places, and zeros between them."""
    rows = data.draw(st.sampled_from([0, 1, 8, 16, 63, 64, 100, 512]))
    columns = {}
    for index, (kind, has_nulls) in enumerate(kinds):
        mask = np.arange(rows) % 3 == 0 if has_nulls else None
        columns[f"c{index}"] = pa.array(np.full(rows, index + 1, kind), mask=mask)
    batch = in_one_region(columns)
    # What lies in the gaps of the region must not be seen.
    for region in batch_parts(batch).spans.regions:
        whole = region.array(0, region.nbytes, writable=True)
        hidden = np.ones(region.nbytes, np.bool_)
        for _, offset, length in batch_parts(batch).spans.table.tolist():
            hidden[offset : offset + length] = False
        whole[hidden] = 255
    packed = pack(batch)
    body = b"".join(bytes(piece) for piece in packed.pieces)
    assert len(body) == packed.body_length
    expected = bytearray(packed.body_length)
    for (offset, length), buffer in zip(packed.buffers.tolist(), batch.buffers, strict=True):
        if buffer is not None:
            expected[offset : offset + length] = buffer.to_host().tobytes()
    assert body == bytes(expected)
