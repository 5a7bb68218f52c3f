"""Placing costs one copy, or none where the data lie in a region already, and leaks nobody else's bytes."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring.columnar import Batch, Layout, batches, placed
from bowstring.columnar.copy_pieces import _PIECE, _SEVERAL
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.columnar.spans import buffer_of
from bowstring.errors import OutOfBudget, ViewsAlive
from bowstring.memory import Buffer, Device, Pool, cpu
from bowstring.testing import FakeDriverError, fake_device


def addresses(batch: Batch) -> list[int]:
    """Return where the buffers are."""
    return [buffer.address for buffer in batch.buffers if buffer is not None]


def test_data_in_a_region_of_ours_stay_there(pool: Pool) -> None:
    """Arrays over a buffer of a pool, taken in through NumPy or pyarrow, are placed where they are."""
    if not pool.device.is_host:
        pytest.skip("pyarrow and NumPy see the host only")
    buffer = pool.allocator(8000).allocate(8000)
    with buffer.writable("<f8") as array:
        array[:] = np.arange(1000)
    del array
    buffer.freeze()
    column = pa.Array.from_buffers(pa.float64(), 1000, [None, buffer.to_arrow()])
    for source in (
        {"a": buffer.array("<f8")},
        pa.table({"a": column}),
        pa.table({"a": column}).slice(8, 100),
    ):
        batch = Batch.from_arrow(source)
        result = placed(batch, pool.allocator())
        assert addresses(result) == addresses(batch)
        assert buffer.address <= addresses(result)[0] < buffer.address + 8000


def test_only_what_lies_elsewhere_is_copied(pool: Pool) -> None:
    """A batch with buffers in a region and elsewhere keeps the former in place, and all values are right."""
    first = placed(Batch.from_arrow({"a": np.arange(100)}), pool.allocator(1))
    second = Batch.from_arrow({"b": np.arange(100.0)}).to_device(pool.device)
    layout = Layout.of(pa.schema({"a": pa.int64(), "b": pa.float64()}))
    foreign = pool.device.xp.asarray(np.arange(100.0))
    mixed = make_batch(
        Batch,
        layout,
        100,
        np.concatenate([batch_parts(first).nodes, batch_parts(second).nodes]),
        [None, first.buffers[1], None, buffer_of(foreign, pool.device)],
    )
    result = placed(mixed, pool.allocator(1))
    assert addresses(result)[0] == addresses(first)[0]
    assert addresses(result)[1] != addresses(mixed)[1]
    assert result.to_arrow().to_pydict() == {
        "a": list(range(100)),
        "b": [float(number) for number in range(100)],
    }


def test_old_bytes_do_not_leak(device: Device) -> None:
    """Between the buffers of a placed batch lie zeros, whatever the region held before."""
    pool = Pool(device, budget=2 << 20)
    dirty = pool.region(1)
    dirty.array(0, dirty.nbytes, writable=True)[:] = 0xEE
    del dirty
    source = Batch.from_arrow({"a": pa.array([1, None, 3], pa.int8()), "s": ["x", "yy", "z"]})
    batch = placed(source, pool.allocator(1))
    assert pool.stats.reused == 1
    spans = batch_parts(batch).spans
    end = int((spans.table[:, 1] + spans.table[:, 2]).max())
    taken = np.zeros(end // device.alignment * device.alignment, np.bool_)
    content = device.to_host(spans.regions[0].array(0, len(taken)))
    for _, offset, nbytes in spans.table.tolist():
        taken[offset : offset + nbytes] = True
    assert not content[~taken].any()


@pytest.mark.parametrize("nbytes", [1, _PIECE, _SEVERAL * _PIECE - 1, _SEVERAL * _PIECE, 5 * _PIECE + 17])
def test_columns_of_any_length_are_copied_whole(nbytes: int) -> None:
    """Each byte of a column arrives, and none beside it is touched, where it is copied in pieces and where not."""
    pool = Pool(budget=16 << 20)
    dirty = pool.region(4 << 20)
    dirty.array(0, dirty.nbytes, writable=True)[:] = 0xEE
    del dirty
    values = np.random.default_rng(nbytes).integers(0, 256, 2 * nbytes + 3, np.uint8)
    first, second = values[3 : nbytes + 3], values[nbytes + 3 :]
    batch = placed(Batch.from_arrow({"a": first, "b": second}), pool.allocator(4 << 20))
    assert pool.stats.reused == 1
    np.testing.assert_array_equal(batch["a"].raw_values, first)
    np.testing.assert_array_equal(batch["b"].raw_values, second)
    (start, end), content = (
        batch_parts(batch).spans.table[[1, 3], 1],
        batch_parts(batch).spans.regions[0].array(0, 4 << 20),
    )
    assert not content[start + nbytes : end].any()
    assert (content[-(-(end + nbytes) // 64) * 64 :] == 0xEE).all()


def test_published_memory_is_frozen(pool: Pool) -> None:
    """A placed batch cannot be written any more, and one with a writable view alive is refused."""
    layout = Batch.from_arrow({"a": np.arange(4)}).layout
    buffer = pool.allocate(32)
    with buffer.writable("<i8") as array:
        array[:] = 5
        kept: Any = array[1:]
    del array
    batch = make_batch(Batch, layout, 4, np.array([[4, 0]]), [None, buffer])
    with pytest.raises(ViewsAlive):
        placed(batch, pool.allocator())
    del kept
    result = placed(batch, pool.allocator())
    assert buffer.frozen
    assert addresses(result) == [buffer.address]
    fresh = placed(Batch.from_arrow({"a": np.arange(4)}), pool.allocator()).buffers[1]
    assert isinstance(fresh, Buffer)
    assert fresh.frozen


def test_dictionaries_are_placed_once(pool: Pool) -> None:
    """Batches that share a dictionary share the placed one, nested dictionaries too."""
    words = pa.array(["x", "y"]).dictionary_encode()
    nested = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 1, 0]), pa.ListArray.from_arrays([0, 1, 2], words)
    )
    other = pa.array(["u", "v", "u", "u"] * 2).dictionary_encode()
    table = pa.table({"n": pa.chunked_array([nested, nested]), "d": other})
    done: dict[Any, Any] = {}
    results = [placed(batch, pool.allocator(), done) for batch in batches(table)[1]]
    first, second = results
    assert set(first.dictionaries) == set(first.layout.dictionary_ids) == {0, 1, 2}
    assert first.dictionaries[2] is second.dictionaries[2]
    assert first.dictionaries[0].values.dictionaries[1] is first.dictionaries[1]
    assert pa.Table.from_batches([each.to_arrow() for each in results]).to_pydict() == table.to_pydict()


def test_no_room_and_failed_copies(device: Device) -> None:
    """Without room nothing is allocated; a copy that fails leaves nothing in use."""
    pool = Pool(device, budget=2 << 20)
    with pytest.raises(OutOfBudget):
        placed(Batch.from_arrow({"a": np.arange(1 << 20)}), pool.allocator())
    assert pool.stats.made == 0
    if device is fake_device():
        fake_device().fail_next("copy")
        with pytest.raises(FakeDriverError):
            placed(Batch.from_arrow({"a": np.arange(4)}), pool.allocator(1))
        gc.collect()  # the error holds what was on the stack
        assert pool.stats.in_use == 0


def test_between_two_devices() -> None:
    """A batch goes from one device to another, and home again."""
    batch = Batch.from_arrow({"a": np.arange(4), "d": pa.array(["x", "y", "x", "x"]).dictionary_encode()})
    there = batch.to_device(fake_device(0)).to_device(fake_device(1))
    assert there.device is fake_device(1)
    assert there.dictionaries[0].values.device is fake_device(1)
    assert there.to_device(cpu()).equals(batch)


def test_types_that_pyarrow_takes_for_equal_have_layouts_of_their_own() -> None:
    """Pyarrow (26) ignores list sizes and index types over extension types; batches come through all the same."""
    storage = pa.array([bytes([each] * 16) for each in range(6)], pa.binary(16))
    values = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    for size in (1, 2, 3):
        array = pa.FixedSizeListArray.from_arrays(values, type=pa.list_(pa.uuid(), size))
        assert Batch.from_arrow({"a": array})["a"].to_arrow().to_pylist() == array.to_pylist()
    for index in (pa.int8(), pa.int32()):
        encoded = pa.DictionaryArray.from_arrays(pa.array([1, 0], index), values)
        assert Batch.from_arrow({"a": encoded})["a"].raw_values.itemsize == index.bit_width // 8
