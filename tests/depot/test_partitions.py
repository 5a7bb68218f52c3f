"""The partitions of a data set of a depot, read over one stream."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.errors import without_frames
from tests.depot.conftest import MIB, Connect, commit, held, read, until, until_free

COUNT = 70  # more than are under way at once


def part(number: int, rows: int = 3) -> pa.Table:
    """Return a partition that says which it is, in numbers and in a dictionary of its own."""
    words = pa.array([f"word {number}", f"other {number}"]).dictionary_encode()
    return pa.table({"part": np.full(rows, number), "word": words.take(pa.array([0, 1, 0] * (rows // 3)))})


def published(
    depot: bow.depot.Depot, count: int = COUNT, rows: int = 3, readers: int | None = None
) -> bow.Dataset:
    """Return a data set of so many partitions."""
    endpoints = tuple(
        commit(depot, part(number, rows), partition=number, readers=readers).endpoint
        for number in range(count)
    )
    return bow.Dataset(endpoints, part(0).schema, count * rows)


def whole(*numbers: int) -> list[dict[str, object]]:
    """Return the rows of some partitions."""
    return [row for number in numbers for row in part(number).to_pylist()]


def test_one_connection_for_all_partitions(depot: bow.depot.Depot) -> None:
    """All partitions of a depot are kept over one connection, and a few threads."""
    dataset = published(depot)
    before = threading.active_count()
    with bow.connect(dataset) as stream:
        kept = list(stream)
        assert depot.status().readers <= 1
        assert threading.active_count() <= before + 4
        assert stream.stats.path == "unix: mapped"
        assert stream.stats.copied == ""
    table = pa.Table.from_batches([batch.to_arrow() for batch in kept])
    assert table.to_pylist() == whole(*range(COUNT))
    del kept, table
    until(lambda: depot.status().readers == 0, "the connection ends")


def test_readers_of_other_hosts(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of another host has all partitions over one connection of ``tcp:``, or over as many as it wants."""
    depot = connect(tcp="tcp://127.0.0.1:0")
    dataset = published(depot)
    monkeypatch.setenv("BOWSTRING_HOST", "another")
    for connections in (1, 3):
        with bow.connect(dataset, options=bow.ConnectOptions(connections=connections)) as stream:
            assert stream.read_all().to_pylist() == whole(*range(COUNT))
            assert stream.stats.path == "tcp: packed"
            assert depot.status().readers <= connections


def test_memory_of_a_partition_goes_before_the_stream_ends(depot: bow.depot.Depot) -> None:
    """With ``readers=1`` the depot has the memory of a partition back when its batches were taken and let go."""
    dataset = published(depot, 8, rows=300_000, readers=1)
    before = held(depot)
    with bow.connect(dataset) as stream:
        kept = [next(stream) for _ in range(4)]
        until(lambda: len(depot.offered("data")) == 8, "those that are kept are offered still", 0.2)
        del kept[1:]
        until(lambda: held(depot) <= before - 3 * 2 * MIB, "the memory of three partitions is free")
        until(lambda: len(depot.offered("data")) == 5, "three partitions are released")
        assert kept[0]["part"].values[-1] == 0
        kept.extend(stream)
    del kept
    depot.wait_released("data", 10.0)
    until_free(depot)


def test_an_attempt_that_lost_is_never_seen(depot: bow.depot.Depot) -> None:
    """A reader has the attempts that its data set names, whatever else was committed for the same partitions."""
    right = [commit(depot, part(number), partition=number, attempt=1).endpoint for number in range(5)]
    for number in range(5):
        commit(depot, part(100 + number), partition=number, attempt=0)
    dataset = bow.Dataset(tuple(right), part(0).schema)
    assert read(dataset).to_pylist() == whole(*range(5))
    assert depot.settle("data", right) == 5
    assert read(dataset).to_pylist() == whole(*range(5))
    some = dataclasses.replace(dataset, endpoints=dataset.endpoints[1:4])
    assert read(some).to_pylist() == whole(1, 2, 3)


def test_a_partition_that_is_gone(depot: bow.depot.Depot) -> None:
    """A partition that the depot does not have is an error with its number, and nothing is counted as read."""
    dataset = published(depot, 5, readers=1)
    depot.settle("data", [each for index, each in enumerate(dataset) if index != 3])
    with bow.connect(dataset) as stream, pytest.raises(bow.UnknownTicket, match="partition 3"):
        stream.read_all()
    rest = dataclasses.replace(dataset, endpoints=dataset.endpoints[:3] + dataset.endpoints[4:])
    assert read(rest).to_pylist() == whole(0, 1, 2, 4)
    until_free(depot)


def test_several_data_sets_of_one_depot(depot: bow.depot.Depot) -> None:
    """What was appended, as micro-batches are, comes over the same stream."""
    endpoints = tuple(commit(depot, part(number), f"batch {number}").endpoint for number in range(20))
    with bow.connect(bow.Dataset(endpoints, part(0).schema)) as stream:
        kept = list(stream)
        assert depot.status().readers <= 1
    assert [int(batch["part"].values[0]) for batch in kept] == list(range(20))


def test_dictionaries_that_are_numbered_otherwise(depot: bow.depot.Depot) -> None:
    """Partitions whose schema messages differ, such as in metadata of pandas, come with their dictionaries."""
    tables = [part(number).replace_schema_metadata({"of": str(number)}) for number in range(4)]
    endpoints = tuple(commit(depot, table, partition=number).endpoint for number, table in enumerate(tables))
    with bow.connect(bow.Dataset(endpoints, part(0).schema)) as stream:
        kept = list(stream)
    assert [row for batch in kept for row in batch.to_arrow().to_pylist()] == whole(*range(4))


def test_a_depot_that_is_killed_in_the_middle(connect: Connect) -> None:
    """The error says how far it came, and what was read stays true."""
    depot = connect()
    dataset = published(depot, 3 * COUNT)
    kept: list[bow.Batch] = []
    error: bow.BowstringError | None = None
    with bow.connect(dataset) as stream:
        kept += [next(stream) for _ in range(5)]
        pid = depot.status().pid
        os.kill(pid, signal.SIGKILL)
        try:
            kept.extend(stream)
        except bow.BowstringError as raised:
            error = without_frames(raised)
    assert isinstance(error, bow.BrokenError)
    assert (error.where or "").partition(",")[0] == f"partition {len(kept)}"
    assert 5 <= len(kept) < 3 * COUNT
    rows = [row for batch in kept for row in batch.to_arrow().to_pylist()]
    assert rows == whole(*range(len(kept)))
