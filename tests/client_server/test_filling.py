"""Tables whose columns are filled in place: it arrives, nothing is copied, and nobody writes it afterwards."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.memory import Pool
from bowstring.testing import fake_device
from tests.client_server.conftest import ADDRESSES, read

NUMBERS = [
    *(pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.duration("s"), pa.bool_()),
    *(pa.decimal128(9, 2), pa.decimal256(40, 2), pa.binary(5), pa.uuid()),
]
TYPES = [
    *NUMBERS,
    *(pa.list_(each, 3) for each in NUMBERS),
    pa.list_(pa.list_(pa.int16(), 2), 2),
    pa.list_(pa.int8(), 0),
]
VIEWS: dict[str, Callable[[Any], object]] = {
    "array": lambda array: array,
    "slice": lambda array: array[1:],
    "reshaped": lambda array: array.reshape(-1, 1),
    "memoryview": memoryview,
    "of Arrow": pa.py_buffer,
    "of a view": lambda array: memoryview(array[::2]),
}


@pytest.fixture(params=ADDRESSES)
def server(request: pytest.FixtureRequest, serve: Callable[..., bow.Server]) -> bow.Server:
    """Return a server with little memory on each transport."""
    return serve(request.param, pool=Pool(budget=16 << 20))


def bits_of(array: Any) -> bytes:
    """Return the bytes of a column as it was filled, or as it was read, through Arrow."""
    return bytes(np.ascontiguousarray(array).view(np.uint8).reshape(-1))


@given(data=st.data())
def test_what_is_filled_arrives(data: st.DataObject) -> None:
    """Columns of any fixed width, at any number of rows, hold what was written to them, and zeros elsewhere."""
    types = data.draw(st.lists(st.sampled_from(TYPES), max_size=4))
    rows = data.draw(st.integers(0, 70))
    seed = np.random.default_rng(data.draw(st.integers(0, 99)))
    schema = pa.schema([(str(number), each) for number, each in enumerate(types)], metadata={"a": "b"})
    pool = Pool(budget=16 << 20)
    with bow.Server(pool=pool) as server:
        buffer = pool.allocate(1 << 20)
        with buffer.writable() as dirty:
            dirty[:] = 255
        del dirty, buffer
        table = server.empty("t", schema, rows)
        written = []
        for name in schema.names:
            if seed.random() < 0.8:
                array = table[name]
                raw = seed.integers(0, 256, array.nbytes, np.uint8)
                if array.size:
                    array[...] = raw.view(array.dtype).reshape(array.shape)
                del array
            written.append(bits_of(table[name]))
        taken = pool.stats
        endpoint = table.publish()
        assert (pool.stats.in_use, pool.stats.made) == (taken.in_use, taken.made)
        with bow.connect(endpoint) as stream:
            assert stream.schema.equals(schema, check_metadata=True)
            [batch] = stream
            assert batch.num_rows == rows
            for column, expected in zip(batch.columns, written, strict=True):
                assert column.null_count == 0
                while column.children:
                    [column] = column.children  # noqa: PLW2901  the values of a list
                is_bits = pa.types.is_boolean(column.type)
                found = np.packbits(column.raw_values, bitorder="little") if is_bits else column.raw_values
                spare = -len(column) % 8 if is_bits else 0  # bits behind the last value mean nothing
                assert found.nbytes == len(expected)
                if spare and expected:
                    expected = expected[:-1] + bytes([expected[-1] & (255 >> spare)])  # noqa: PLW2901
                assert bits_of(found) == expected
                del column, found
            del batch
        assert all(not table[name].flags.writeable for name in schema.names if table[name].size)


@pytest.mark.parametrize("kind", VIEWS)
def test_nobody_writes_what_is_published(server: bow.Server, kind: str) -> None:
    """While anything is alive by which a column can be written, it is named, and nothing is published."""
    table = server.empty("t", pa.schema({"a": pa.int64(), "b": pa.float32(), "c": pa.uint8()}), 8)
    for name in table.schema.names:
        held = VIEWS[kind](table[name])
        with pytest.raises(bow.ViewsAlive, match=f"found '{name}';"):
            table.publish()
        assert not server.endpoints
        del held
        table[name][:] = 7  # as before
    endpoint = table.publish()
    assert read(endpoint).to_pylist() == [{"a": 7, "b": 7.0, "c": 7}] * 8
    for name in table.schema.names:
        with pytest.raises(ValueError, match="read-only"):
            table[name][0] = 8
    before = server.pool.stats.in_use
    with pytest.raises(bow.UsageError, match="taken"):
        table.publish()
    endpoint = table.publish(replace=True, readers=1)  # the same memory
    assert server.pool.stats.in_use == before
    assert read(endpoint).num_rows == 8
    view = table["a"]
    del table
    server.wait_released()
    assert view.tolist() == [7] * 8
    del view
    assert server.pool.stats.in_use == 0


def test_it_grows_and_is_replaced_like_any_other(server: bow.Server) -> None:
    """What was filled is a data set like others: rows are appended, and shards are read."""
    table = server.empty("t", pa.schema({"n": pa.int64()}), 100)
    table["n"][:] = np.arange(100)
    endpoint = table.publish()
    shards = [read(endpoint, shard=(part, 3))["n"].to_pylist() for part in range(3)]
    assert sorted(value for shard in shards for value in shard) == [*range(100)]
    server.append("t", {"n": [100]})
    server.finish("t")
    with bow.connect(server.endpoints["t"], follow=True) as stream:
        assert [value for batch in stream for value in batch["n"].to_pylist()] == [*range(101)]


def test_on_a_device(address: str, serve: Callable[..., bow.Server]) -> None:
    """Memory of a device is filled by its own arrays."""
    server = serve(address, pool=Pool(fake_device(), budget=64 << 20))
    table = server.empty("t", pa.schema({"n": pa.int64(), "v": pa.list_(pa.float32(), 2)}), 4)
    with fake_device().use():
        table["v"][:, 1] = 2.5
        held = table["n"]
        held[:] = 7
    with pytest.raises(bow.ViewsAlive, match="'n'"):
        table.publish()
    del held
    endpoint = table.publish()
    with pytest.raises(ValueError, match="read-only"), fake_device().use():
        table["n"][:] = 8
    with bow.connect(endpoint) as stream:
        assert next(stream).to_device("cpu").to_pylist() == [{"n": 7, "v": [0.0, 2.5]}] * 4
    del table


def test_what_cannot_be_filled(server: bow.Server) -> None:
    """Other columns, other numbers of rows and more than there is room for are refused; nothing is taken."""
    good = pa.schema({"n": pa.int64()})
    for type_ in (pa.string(), pa.list_(pa.int8()), pa.dictionary(pa.int8(), pa.string()), pa.null()):
        with pytest.raises(bow.Unsupported, match=r"fixed width.*at odd"):
            server.empty("t", good.append(pa.field("odd", type_)), 3)
    for rows in (-1, 1.0, "3", None, True, 1 << 70):
        with pytest.raises(bow.UsageError, match="number of rows"):
            server.empty("t", good, rows)  # type: ignore[arg-type]
    for name, schema in (("", good), ("t", None), ("t", {"n": "int64"})):
        with pytest.raises(bow.UsageError):
            server.empty(name, schema, 1)
    for rows in (16 << 20, 1 << 40):
        with pytest.raises(bow.OutOfBudget):
            server.empty("t", good, rows)
    assert server.pool.stats.in_use == 0
    table = server.empty("t", good, 3)
    with pytest.raises(bow.UnknownColumn):
        table["m"]
    with pytest.raises(bow.NotPicklable):
        pickle.dumps(table)
    assert repr(table) == "<EmptyTable 't': 3 rows of n on cpu>"
    server.close()
    with pytest.raises(bow.ClosedError):
        table.publish()
    with pytest.raises(bow.ClosedError):
        server.empty("t", good, 3)
