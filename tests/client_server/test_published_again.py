"""What was read of a server in this process is published again where it lies: mapped, and in no other memory."""

from __future__ import annotations

import contextlib
import gc
import random
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
from tests import strategies
from tests.client_server.conftest import read, until

SHARED = ("unix:", "inproc:")
ROWS = 1 << 17
FORMS: dict[str, Callable[[list[bow.Batch]], Any]] = {
    "batches": lambda batches: batches,
    "a batch": lambda batches: batches[0],
    "columns": lambda batches: [batch.select(["s", "n"]) for batch in batches],
    "rows": lambda batches: [batch["n"].as_batch().slice(64, 128) for batch in batches],
    "a table": lambda batches: pa.Table.from_batches([batch.to_arrow() for batch in batches]),
    "with a column more": lambda batches: pa.Table.from_batches(
        [each.to_arrow() for each in batches]
    ).append_column("m", pa.array(np.zeros(batches[0].num_rows * len(batches), np.int8))),
}


def table_of(number: int, rows: int = ROWS) -> pa.Table:
    """Return a table that is like no other."""
    numbers = np.arange(rows) + 1000 * number
    return pa.table({"n": numbers, "s": pa.array(numbers % 7).cast(pa.string()).dictionary_encode()})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("address", SHARED)
def test_it_takes_no_memory(serve: Callable[..., bow.Server], address: str, form: str) -> None:
    """In whatever form, what lies in shared memory already stays there, whatever becomes of the first name."""
    server = serve(address)
    with bow.connect(server.publish("first", table_of(1))) as stream:
        data = FORMS[form](list(stream))
    parts = data if isinstance(data, list) else [data]
    tables = [pa.table(each) for each in parts]
    expected = pa.concat_tables(tables).combine_chunks()
    expected = pa.Table.from_pydict(expected.to_pydict(), schema=expected.schema)
    before = server.pool.stats.in_use
    endpoint = server.publish("again", data)
    assert server.pool.stats.in_use - before <= (1 << 20 if "more" in form else 0)
    del data, parts, tables
    server.withdraw("first")
    for number in range(3):  # which would lie where the first did, were that free
        server.publish("other", table_of(2 + number), replace=True)
    assert read(endpoint).equals(expected)
    server.withdraw("again")
    server.withdraw("other")
    until(lambda: gc.collect() >= 0 and server.pool.stats.in_use == 0)


@given(batch=strategies.record_batches(), address=st.sampled_from(SHARED))
def test_any_data_stay_where_they_are(batch: pa.RecordBatch, address: str) -> None:
    """Batches of any types are the same behind their second name, and behind their third."""
    with bow.Server(address, pool=Pool(budget=64 << 20)) as server:
        endpoint = server.publish("0", batch)
        with bow.connect(endpoint) as stream:
            expected = stream.to_arrow()
        before = server.pool.stats.in_use
        for number in ("1", "2"):
            with bow.connect(endpoint) as stream:
                endpoint = server.publish(number, list(stream), schema=batch.schema)
        assert server.pool.stats.in_use == before
        server.withdraw("0")
        server.withdraw("1")
        with bow.connect(endpoint) as stream:
            assert stream.to_arrow().equals(expected)
        del expected


@pytest.mark.parametrize("address", [*SHARED, "tcp://127.0.0.1:0"])
@pytest.mark.parametrize("seed", range(3))
def test_any_order(serve: Callable[..., bow.Server], address: str, seed: int) -> None:
    """Whatever is read, published again, appended, withdrawn and dropped: all that is there is what it was."""
    server, chosen = serve(address, token="0123456789abcdef"), random.Random(seed)
    offered: dict[str, list[int]] = {}
    kept: list[tuple[int, bow.Batch]] = []
    for step in range(80):
        action = chosen.random()
        name = f"t{chosen.randrange(6)}"
        if action < 0.15:
            server.publish(name, table_of(step, 5000), replace=True)
            offered[name] = [step]
        elif action < 0.55 and offered:
            source = chosen.choice(list(offered))
            with bow.connect(server, source) as stream:
                kept += zip(offered[source], stream, strict=True)
        elif action < 0.75 and kept:
            number, batch = chosen.choice(kept)
            if name in offered and chosen.random() < 0.5:
                server.append(name, batch)
                offered[name] = [*offered[name], number]
            else:
                server.publish(name, batch, replace=True)
                offered[name] = [number]
            del batch
        elif action < 0.85 and offered:
            gone = chosen.choice(list(offered))
            server.withdraw(gone)
            del offered[gone]
        elif kept:
            del kept[chosen.randrange(len(kept))]
        for number, batch in kept[-3:]:
            assert batch["n"].to_numpy()[[0, -1]].tolist() == [1000 * number, 1000 * number + 4999]
            del batch
    for source, numbers in offered.items():
        assert read(server.endpoints[source]).equals(
            pa.concat_tables([table_of(each, 5000) for each in numbers])
        )
    kept.clear()
    for source in offered:
        server.withdraw(source)
    until(lambda: gc.collect() >= 0 and server.pool.stats.in_use == 0)


def test_on_a_device(serve: Callable[..., bow.Server]) -> None:
    """Mapped memory of a device is published where it lies."""
    server = serve(pool=Pool(fake_device(), budget=64 << 20))
    with bow.connect(server.publish("first", table_of(1)), mode="map") as stream:
        [batch] = stream
    before = server.pool.stats.in_use
    endpoint = server.publish("again", batch)
    assert server.pool.stats.in_use == before
    del batch
    server.withdraw("first")
    with bow.connect(endpoint) as stream:
        assert next(stream).to_device("cpu")["n"].to_numpy()[-1] == 1000 + ROWS - 1


def test_what_a_reader_may_write_is_copied(serve: Callable[..., bow.Server]) -> None:
    """Pages that a reader made its own are published as they are, and not as the server's are."""
    server = serve()
    with bow.connect(server.publish("first", {"n": [1, 2, 3]}), writable=True) as stream:
        [batch] = stream
    batch["n"].to_numpy()[0] = 9
    assert read(server.publish("again", batch))["n"].to_pylist() == [9, 2, 3]
    assert read(server.endpoints["first"])["n"].to_pylist() == [1, 2, 3]


def test_another_server_s_memory_is_shared_too(serve: Callable[..., bow.Server]) -> None:
    """Of two servers of a process, one publishes what the other made; it outlives that one."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(bow.Server(pool=Pool(budget=64 << 20)))
        second = serve()
        with bow.connect(first.publish("first", table_of(1))) as stream:
            endpoint = second.publish("again", list(stream))
        assert second.pool.stats.in_use == 0
        stack.close()
        assert read(endpoint).equals(table_of(1))
