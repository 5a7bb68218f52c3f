"""Each row comes once in each epoch over all readers, in batches of the size asked for; no PyTorch is needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.torch.batching import Arrays, rebatched, shuffled
from bowstring.torch.reading import Reading
from bowstring.torch.shares import known_rows, parts_of

ROWS = st.lists(st.integers(0, 40), max_size=8)


def batches(sizes: list[int]) -> Iterator[Arrays]:
    """Yield batches of so many rows, numbered through, in two columns that say the same."""
    begin = 0
    for size in sizes:
        numbers = np.arange(begin, begin + size)
        yield {"n": numbers, "twice": np.stack([numbers, numbers], axis=1)}
        begin += size


def numbers_of(found: list[Arrays]) -> list[int]:
    """Return the numbers of all rows, whose columns must have stayed together."""
    for batch in found:
        assert (batch["twice"] == batch["n"][:, None]).all()
    return [int(number) for batch in found for number in batch["n"]]


@given(ROWS, st.integers(1, 9), st.booleans())
def test_shares(rows: list[int], count: int, even: bool) -> None:
    """The shares of all readers are the rows in their order; even ones are equally many, and leave out few."""
    begins = np.cumsum([0, *rows])
    found, sizes = [], []
    for index in range(count):
        share = [
            int(begins[part.endpoint]) + row
            for part in parts_of(rows, index, count, even=even)
            for row in range(part.first, part.last)
        ]
        found += share
        sizes.append(len(share))
    left = sum(rows) % count if even else 0
    assert found == list(range(sum(rows) - left))
    assert max(sizes) - min(sizes) <= (0 if even else 1)


@given(ROWS.filter(bool), st.integers(1, 30), st.integers(0, 3))
def test_a_shuffle_keeps_all_rows(sizes: list[int], size: int, seed: int) -> None:
    """Each row comes out once, whole, whatever the buffer holds; the same seed gives the same order."""
    sizes = [each for each in sizes if each] or [1]
    orders = [numbers_of(list(shuffled(batches(sizes), size, np.random.default_rng(seed)))) for _ in range(2)]
    assert sorted(orders[0]) == list(range(sum(sizes)))
    assert orders[0] == orders[1]


def test_a_large_buffer_shuffles_perfectly() -> None:
    """Where all rows fit, all orders are equally likely: of 2,000 shuffles of four rows each of 24 comes often."""
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(2000):
        order = tuple(numbers_of(list(shuffled(batches([3, 1]), 4, np.random.default_rng(seed)))))
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 24
    assert min(seen.values()) > 40


def test_a_small_buffer_takes_chance_too() -> None:
    """Rows that come when the buffer is full go out by chance: any row may be anywhere in the first batch out."""
    firsts = [
        numbers_of(list(shuffled(batches([8, 8]), 8, np.random.default_rng(seed))))[:8] for seed in range(300)
    ]
    assert all(len({order[place] for order in firsts}) == 16 for place in range(8))


@given(ROWS, st.integers(1, 30), st.booleans())
def test_batches_have_the_size(sizes: list[int], size: int, drop_last: bool) -> None:
    """All rows come in their order, in batches of one size; the last one may be smaller, or is left out."""
    found = list(rebatched(batches(sizes), size, drop_last=drop_last))
    lengths = [len(batch["n"]) for batch in found]
    total = sum(sizes)
    kept = total - total % size if drop_last else total
    assert numbers_of(found) == list(range(kept))
    assert lengths == [size] * (kept // size) + ([kept % size] if kept % size else [])


def test_batches_within_one_are_views() -> None:
    """A batch that lies within one of the producer's is a view of it."""
    [batch] = batches([10])
    found = list(rebatched(iter([batch]), 5, drop_last=False))
    assert all(np.shares_memory(each["n"], batch["n"]) for each in found)


@pytest.fixture(scope="module")
def published() -> Iterator[tuple[bow.Dataset, bow.Endpoint]]:
    """Return 1,000 rows as a data set of three endpoints, and as one endpoint."""
    table = pa.table({"n": pa.array(range(1000)), "x": pa.array([each / 2 for each in range(1000)])})
    parts = [table.slice(0, 150), table.slice(150, 1), table.slice(151)]
    with bow.Server() as server:
        endpoints = [
            server.publish(f"part {index}", pa.Table.from_batches(part.to_batches(max_chunksize=64)))
            for index, part in enumerate(parts)
        ]
        dataset = bow.Dataset(
            tuple(endpoints), table.schema, 1000, metadata={"rows": [part.num_rows for part in parts]}
        )
        yield dataset, server.publish("whole", table)


@pytest.mark.parametrize("source", ["dataset", "no counts", "endpoint"])
@pytest.mark.parametrize("shuffle", [0, 100])
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("readers", [1, 3, 8])
def test_each_row_once(
    published: tuple[bow.Dataset, bow.Endpoint], source: str, shuffle: int, even: bool, readers: int
) -> None:
    """Over all readers each row comes once, of a data set that says its rows or does not, and of one endpoint."""
    dataset, endpoint = published
    if source == "no counts":
        dataset = bow.Dataset(dataset.endpoints, dataset.schema)
        assert known_rows(dataset) is None
    elif source == "endpoint":
        dataset = bow.Dataset((endpoint,), dataset.schema)
    reading = Reading(dataset, ("x", "n"), 16, shuffle, seed=7, even=even)
    orders = []
    for epoch in range(2):
        found = [list(reading.batches(index, readers, epoch)) for index in range(readers)]
        rows = [int(n) for share in found for batch in share for n in batch["n"]]
        left = 1000 % readers if even else 0
        assert sorted(rows) == list(range(1000 - left))
        assert all((batch["x"] == batch["n"] / 2).all() for share in found for batch in share)
        if even:
            assert len({len(share) for share in found}) == 1
        orders.append(rows)
    assert (orders[0] == orders[1]) is not bool(shuffle)
    if not shuffle and source != "no counts":
        assert orders[0] == list(range(len(orders[0])))


def test_more_readers_than_rows() -> None:
    """Readers for whom nothing is left get no batches, and a data set without endpoints is one of no rows."""
    with bow.Server() as server:
        endpoint = server.publish("t", pa.table({"n": [1, 2]}))
        for even in (False, True):
            reading = Reading(bow.Dataset((endpoint,), pa.schema([])), ("n",), 4, even=even)
            found = [[batch["n"].tolist() for batch in reading.batches(index, 5, 0)] for index in range(5)]
            assert sorted(batch for share in found for batch in share) == ([] if even else [[1], [2]])
    assert list(Reading(bow.Dataset((), pa.schema([])), ("n",)).batches(0, 2, 0)) == []


def test_what_the_data_set_says_is_checked() -> None:
    """A part with another number of rows than the data set says is an error, not a shorter epoch."""
    with bow.Server() as server:
        endpoint = server.publish("t", pa.table({"n": [1, 2, 3]}))
        for says in (2, 4):
            dataset = bow.Dataset((endpoint,), pa.schema([]), says, metadata={"rows": [says]})
            with pytest.raises(bow.InvalidData, match="another number of rows"):
                list(Reading(dataset, ("n",)).batches(0, 1, 0))


def test_even_needs_counts() -> None:
    """Rows that are made while they are read cannot be dealt out evenly."""
    with bow.Server() as server:
        schema = pa.schema([("n", pa.int64())])
        endpoint = server.publish("t", lambda: iter([pa.record_batch({"n": [1]})]), schema=schema)
        reading = Reading(bow.Dataset((endpoint,), schema), ("n",), 1, even=True)
        with pytest.raises(bow.UsageError, match="even=True needs to know"):
            list(reading.batches(0, 2, 0))
