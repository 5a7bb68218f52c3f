"""Shards of a data set together are the data set, each row once, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from tests.client_server.conftest import read
from tests.strategies import record_batches

TOKEN = "0123456789abcdef"
ROWS = 2_003
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS)),
        "flag": pa.array([n % 3 == 0 for n in range(ROWS)]),
        "nulls": pa.array([None if n % 7 == 0 else n for n in range(ROWS)], pa.int16()),
        "text": [str(n) * (n % 5) for n in range(ROWS)],
        "lists": [[n] * (n % 4) for n in range(ROWS)],
        "nested": [{"a": n, "b": [str(n)]} for n in range(ROWS)],
        "category": pa.array([str(n % 11) for n in range(ROWS)]).dictionary_encode(),
    }
)
LAYOUTS = {
    "one batch": TABLE.to_batches(),
    "many batches": TABLE.to_batches(max_chunksize=137),
    "uneven batches": [
        batch for rows in ((0, 5), (5, 1800), (1805, 198)) for batch in TABLE.slice(*rows).to_batches()
    ],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shards_of_a_table_are_its_rows(serve: Callable[..., bow.Server], address: str, layout: str) -> None:
    """In 1 to 16 parts, in order, shards are contiguous ranges of rows that together are the table."""
    server = serve(address)
    endpoint = server.publish("t", pa.Table.from_batches(LAYOUTS[layout]))
    for count in (1, 2, 3, 5, 16):
        parts = [read(endpoint, shard=(index, count)) for index in range(count)]
        assert [row for part in parts for row in part.to_pylist()] == TABLE.to_pylist()
        assert max(part.num_rows for part in parts) <= ROWS // count + 1 + 64 + 137


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record_batches(), st.integers(1, 16))
def test_shards_of_any_type(batch: pa.RecordBatch, count: int) -> None:
    """Batches of every type and nesting are cut into shards, which have each row once and as it is."""
    with bow.Server("inproc:") as server:
        endpoint = server.publish("t", batch)
        parts = []
        for index in range(count):
            with bow.connect(endpoint, shard=(index, count)) as stream:
                parts += [each.to_arrow() for each in stream]
        for number, column in enumerate(batch.columns):
            begin = 0
            for part in parts:
                expected = column.slice(begin, part.num_rows)
                found = zip(part.column(number), expected, strict=True)
                # NaN equals nothing, and some values have no text.
                assert all(each.equals(other) or str(each) == str(other) for each, other in found)
                begin += part.num_rows
            assert begin == batch.num_rows


def test_columns_and_shards_together(server: bow.Server) -> None:
    """A shard may be of some columns, and is cut once for all who ask for it."""
    endpoint = server.publish("t", TABLE)
    for _ in range(2):
        part = read(endpoint, shard=(1, 4), columns=["text", "n"])
        assert part.equals(TABLE.select(["text", "n"]).slice(part["n"][0].as_py(), part.num_rows))
        assert 0 < part.num_rows < ROWS


def test_shards_are_views(serve: Callable[..., bow.Server]) -> None:
    """The numbers of a shard lie in the memory of the table that was published."""
    server = serve("unix:")
    endpoint = server.publish("t", TABLE)
    before = server.stats.bytes_offered
    with bow.connect(endpoint, shard=(1, 2)) as stream:
        batch = stream.read_next_batch()
        assert stream.stats.path == "unix: mapped"
        assert not stream.stats.copied
    assert batch["n"].values[0] > 0
    assert server.stats.bytes_offered == before


def test_shards_of_a_callable_are_its_batches(serve: Callable[..., bow.Server], address: str) -> None:
    """A callable is called for each shard, which gets every n-th batch."""
    calls: list[int] = []

    def produce() -> Iterator[pa.RecordBatch]:
        calls.append(1)
        return (pa.record_batch({"n": [number]}) for number in range(10))

    endpoint = serve(address).publish("t", produce)
    found = [read(endpoint, shard=(index, 3))["n"].to_pylist() for index in range(3)]
    assert found == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert len(calls) <= 4


def test_a_generator_has_no_shards(server: bow.Server) -> None:
    """What can be read only once is refused to readers of shards, with what to do."""
    endpoint = server.publish("t", iter([pa.record_batch({"n": [1]})]), schema=pa.schema({"n": pa.int64()}))
    with pytest.raises(bow.UsageError, match="callable"):
        bow.connect(endpoint, shard=(0, 2))


def test_shards_count_as_one_reader(server: bow.Server) -> None:
    """A data set for two readers is released when all shards of one, and another whole reader, have read it."""
    endpoint = server.publish("t", TABLE, readers=2)
    for index in range(3):
        read(endpoint, shard=(index, 3))
    read(endpoint)
    server.wait_released("t")
    with pytest.raises(bow.UnknownTicket, match="no longer offered"):
        bow.connect(endpoint)


def test_a_shard_that_breaks_off_is_read_again(server: bow.Server) -> None:
    """A shard whose reader ends early does not count, and its place is free again."""
    endpoint = server.publish("t", TABLE, readers=1)
    read(endpoint, shard=(0, 2))
    with bow.connect(endpoint, shard=(1, 2)):
        pass
    while True:
        try:
            read(endpoint, shard=(1, 2))
            break
        except bow.UnknownTicket:  # the server has not noticed yet
            continue
    server.wait_released("t")


@pytest.mark.parametrize("shard", [(0, 0), (2, 2), (-1, 2), (0,), "ab", 3, (0.5, 2)])
def test_wrong_shards_are_refused(server: bow.Server, shard: Any) -> None:
    """A shard is a pair (i, n) with 0 <= i < n."""
    with pytest.raises(bow.UsageError, match="shard"):
        bow.connect(server.publish("t", TABLE), shard=shard)


def test_more_shards_than_rows(server: bow.Server) -> None:
    """Shards that no row falls to are empty streams of the same schema."""
    endpoint = server.publish("t", pa.table({"n": np.arange(3)}))
    parts = [read(endpoint, shard=(index, 8)) for index in range(8)]
    assert pa.concat_tables(parts)["n"].to_pylist() == [0, 1, 2]
    assert {str(part.schema) for part in parts} == {"n: int64"}
