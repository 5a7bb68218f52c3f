"""Small appends to a name: they share slabs, are looked up as one, and stay what they were."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar.parts import batch_parts
from tests.depot.conftest import APP, MIB, Connect, Task, commit, held, read, until, until_free

WORDS = pa.array(["one", "two", "three"])


def rows(first: int, count: int, *, coded: bool = False, width: int = 1) -> pa.Table:
    """Return rows that say which they are, with a dictionary of their own where that is wanted."""
    numbers = np.arange(first, first + count)
    text = pa.array([f"text {each}" * width if each % 3 else None for each in numbers.tolist()], pa.string())
    if coded:
        text = WORDS.take(pa.array(numbers % 3)).dictionary_encode()
    return pa.table({"n": numbers, "text": text})


def append(
    depot: bow.depot.Depot, name: str, table: Any, part: str, batch: int | None = None, **given: Any
) -> tuple[bool, bow.depot.Committed]:
    """Write a data set of one partition, as a micro-batch is one, and append it."""
    written = commit(depot, table, part, **given)
    depot.settle(part, [written.endpoint], name=name if batch and batch % 2 else None)
    dataset = bow.Dataset((written.endpoint,), table.schema, written.num_rows, written.nbytes)
    return depot.announce(name, dataset, application=APP, append=True, batch=batch, part=part), written


def descriptors(depot: bow.depot.Depot) -> int:
    """Return how many descriptors the depot has open."""
    return len(os.listdir(f"/proc/{depot.pid}/fd"))


def as_list(dataset: bow.Dataset) -> list[dict[str, Any]]:
    """Return the rows of a data set; none of one without endpoints."""
    found: list[dict[str, Any]] = read(dataset).to_pylist() if len(dataset) else []
    return found


def at(end: bow.Position, count: int) -> bow.Position:
    """Return the position behind so many appends of the same name."""
    return bow.Position.parse(f"{str(end).partition(':')[0]}:{count}")


def flat(parts: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of several appends."""
    return [row for part in parts for row in part]


class Story:
    """Random appends to three names of one depot, each beside the plain list of the same rows."""

    def __init__(self, depot: bow.depot.Depot, seed: int) -> None:
        self.depot, self.random = depot, random.Random(seed)
        self.expected: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in ("a", "b", "coded")}
        self.tables: dict[str, int] = {}
        self.written = 0
        self.kept: list[tuple[pa.Table, list[dict[str, Any]]]] = []
        self.appended: list[tuple[str, str, bow.Endpoint, list[dict[str, Any]]]] = []

    def table(self, name: str) -> pa.Table:
        """Return rows that were never there, few or many, or so wide that they have a slab of their own."""
        count, width = self.random.choices(
            [(0, 1), (1, 1), (5, 1), (300, 1), (3, 40_000)], [2, 10, 10, 2, 1]
        )[0]
        self.written += count
        return rows(self.written - count, count, coded=name == "coded", width=width)

    def step(self, number: int) -> None:
        name = self.random.choice(list(self.expected))
        kind = self.random.choices(["append", "retry", "fail", "drop", "read"], [20, 4, 4, 1, 4])[0]
        getattr(self, kind)(name, number)

    def append(self, name: str, number: int) -> None:
        table = self.table(name)
        part, batch = f"{name}#{number}", len(self.expected[name])
        changed, written = append(self.depot, name, table, part, 1000 * self.drops(name) + batch)
        assert changed
        self.expected[name].append(table.to_pylist())
        self.appended.append((name, part, written.endpoint, self.expected[name][-1]))

    def drops(self, name: str) -> int:
        return self.tables.get(name, 0)

    def retry(self, name: str, number: int) -> None:
        """Append a micro-batch again, as another run of a query does: the first one stands."""
        if self.expected[name]:
            batch = 1000 * self.drops(name) + self.random.randrange(len(self.expected[name]))
            part = f"{name}#{number} again"
            changed, _ = append(self.depot, name, rows(0, 9, coded=name == "coded"), part, batch)
            assert not changed
            assert self.depot.settle(part, self.depot.lookup(name)) == 0

    def fail(self, name: str, number: int) -> None:
        """Begin what is not committed, or is committed and settled without."""
        part = f"{name}#{number} failed"
        with (
            contextlib.suppress(ZeroDivisionError),
            self.depot.begin(application=APP, dataset=part) as attempt,
        ):
            attempt.write(self.table(name))
            if number % 2:
                attempt.commit()
                self.depot.settle(part, [])
            _ = 1 // 0

    def drop(self, name: str, _: int) -> None:
        if self.expected[name]:
            self.depot.drop(name)
            self.tables[name] = self.drops(name) + 1
            self.expected[name] = []
            self.appended = [each for each in self.appended if each[0] != name]

    def read(self, name: str, _: int) -> None:
        """Read the whole, a range, and one append by the endpoint that its writer has."""
        expected = self.expected[name]
        if not expected:
            return
        first, last = sorted(self.random.randrange(len(expected) + 1) for _ in range(2))
        end, each = self.depot.lookup_version(name)
        assert len(each) == len(expected)
        position, some = self.depot.lookup_range(name, at(end, first), at(end, last))
        assert position == end == at(end, len(expected))
        assert as_list(some) == flat(expected[first:last])
        with bow.connect(self.depot.lookup(name)) as stream:
            self.kept.append((stream.read_all(), flat(expected)))
        name, part, endpoint, found = self.random.choice(self.appended)
        assert self.depot.settle(part, self.depot.lookup(name)) == 1
        assert read(endpoint).to_pylist() == found


@pytest.mark.parametrize(("seed", "memory"), [(0, 64 * MIB), (1, 1 * MIB), (2, 0)])
def test_appends_are_the_rows_of_a_plain_list(connect: Connect, seed: int, memory: int) -> None:
    """Appends of any sizes to several names, retried, failed, dropped, read anywhere: the rows of plain lists."""
    depot = connect(options={"memory_budget": memory})
    story = Story(depot, seed)
    for number in range(70):
        story.step(number)
    for name, parts in story.expected.items():
        if parts:
            assert as_list(depot.lookup(name)) == flat(parts)
    # What was read stays, whatever was appended and dropped since.
    assert all(table.to_pylist() == expected for table, expected in story.kept)
    story.kept.clear()
    depot.end(APP)
    until_free(depot)


COUNT = 70


@pytest.mark.parametrize("memory", [64 * MIB, 0], ids=["memory", "disk"])
def test_appends_cost_no_descriptors_and_a_lookup_does_not_grow(connect: Connect, memory: int) -> None:
    """Descriptors, a look-up and a list are those of a few slabs, however many appends there are."""
    depot = connect(options={"memory_budget": memory})
    for number in range(100, 100 + COUNT):
        append(depot, "small", rows(number, 1), f"part {number}", number)
        if number == 120:
            before, first = descriptors(depot), len(depot.lookup("small").to_json())
    assert descriptors(depot) <= before + 4
    found = depot.lookup("small")
    assert (len(found), found.num_rows) == (1, COUNT)
    assert len(found.to_json()) <= first + 4  # longer numbers
    assert len(depot.list_datasets()[0].ticket) < 200
    with bow.connect(found) as stream:
        batches = list(stream)
        assert [int(batch["n"].values[0]) for batch in batches] == list(range(100, 100 + COUNT))
        assert depot.status().datasets[COUNT // 2].readers == depot.list_datasets()[0].readers // COUNT == 1
        del batches
    assert all(each.held for each in depot.status().datasets)
    assert held(depot) <= (4 * MIB if memory == 0 else COUNT * 256)
    depot.drop("small")
    until_free(depot)
    assert descriptors(depot) <= before
    with pytest.raises(bow.UnknownTicket):
        read(found)


@pytest.mark.parametrize("every", [1, 7])
def test_whoever_takes_the_endpoints_behind_those_that_it_knows_reads_each_row_once(
    depot: bow.depot.Depot, every: int
) -> None:
    """A reader that asks again and again, and takes what is new, has all rows in order, each as it was appended."""
    ways: list[Callable[[], bow.Dataset]] = [
        lambda: bow.spark.dataset("small", address=depot.address),
        lambda: depot.lookup_version("small")[1],
    ]
    come: list[list[bow.Endpoint]] = [[] for _ in ways]
    for number in range(30):
        append(depot, "small", rows(number, 1), f"part {number}", number)
        for way, known in zip(ways, come, strict=True):
            if number % every == 0:
                known.extend(way().endpoints[len(known) :])
    for known in come:
        assert [read(each)["n"].to_pylist() for each in known] == [
            [n] for n in range(1 + 29 // every * every)
        ]


@pytest.mark.parametrize("moved", [False, True], ids=["appended", "followed before"])
def test_streams_of_a_depot_are_whole(depot: bow.depot.Depot, moved: bool) -> None:
    """Each endpoint is read from any position, and followed to its end; a name is not, and says how else."""
    tables = [pa.Table.from_batches(rows(10 * number, 4).to_batches(2)) for number in range(12)]
    for number, table in enumerate(tables):
        written = commit(depot, table, f"part {number}")
        if moved:  # before it is copied into a slab that many share
            assert read(written.endpoint, follow=True).equals(table)
        dataset = bow.Dataset((written.endpoint,), table.schema, table.num_rows, table.nbytes)
        depot.announce("t", dataset, application=APP, append=True, part=f"part {number}")
    found = depot.lookup("t")
    assert len(found) == 1
    for endpoint, expected in (
        (found.endpoints[0], pa.concat_tables(tables)),
        (written.endpoint, tables[-1]),
    ):
        assert read(endpoint, follow=True).equals(expected)
        with bow.connect(endpoint) as stream:
            assert stream.read_next_batch().num_rows == 2
            place, again = stream.position, stream.endpoint
            assert isinstance(again, bow.Endpoint)
        # What stands for several streams has no positions.
        assert (place is None) == (endpoint is not written.endpoint)
        for follow in (False, True):
            assert read(again, since=place, follow=follow).equals(expected.slice(2 if place else 0))
        with pytest.raises(bow.DatasetReplaced):
            bow.connect(endpoint, since="0123456789abcdef:0")
    for given in ({"follow": True}, {"since": place}):
        for source in (found, bow.Dataset((written.endpoint,), tables[0].schema)):
            with pytest.raises(bow.UsageError, match="lookup_range"):
                bow.connect(source, **given)


def test_slabs_that_are_full_are_followed_by_others(depot: bow.depot.Depot) -> None:
    """Appends that fill slabs are looked up as one endpoint for each slab, and read as what they are."""
    tables = [rows(3 * number + 1, 1, width=25_000) for number in range(60)]  # 9 MB and more
    for number, table in enumerate(tables):
        append(depot, "small", table, f"part {number}", number)
    found = depot.lookup("small")
    assert 2 < len(found) <= 2 + len(tables) * tables[-1].nbytes // (4 * MIB)
    assert read(found).equals(pa.concat_tables(tables))
    end, _ = depot.lookup_range("small")
    assert read(depot.lookup_range("small", at(end, 15), str(at(end, 45)))[1]).equals(
        pa.concat_tables(tables[15:45])
    )


@pytest.mark.slow
def test_a_hundred_thousand_appends(connect: Connect) -> None:
    """The same of 100,000: descriptors and a look-up as of the 25 MB that they are."""
    depot = connect()
    dataset = bow.Dataset((), rows(0, 1).schema)
    for number in range(100_000):
        endpoint = commit(depot, rows(number, 1), f"part {number}").endpoint
        depot.announce(
            "small",
            bow.Dataset((endpoint,), dataset.schema, 1),
            application=APP,
            append=True,
            batch=number,
            part=f"part {number}",
        )
    found = depot.lookup("small")
    assert (len(found) < 20, found.num_rows, descriptors(depot) < 100) == (True, 100_000, True)
    with bow.connect(found) as stream:
        assert stream.read_all()["n"].to_pylist() == list(range(100_000))


def test_a_reader_stays_through_all_that_comes_after(depot: bow.depot.Depot) -> None:
    """What was let in reads its range to the end and no further, though more is appended and all is dropped."""
    for number in range(20):
        append(depot, "small", rows(number, 1), f"part {number}", number)
    with bow.connect(depot.lookup("small")) as stream:
        kept = [next(stream)]
        append(depot, "small", rows(20, 1), "part 20", 20)
        depot.release("part 3")  # of the middle: no reader that comes now has all
        with pytest.raises(bow.UnknownTicket):
            read(depot.lookup("small"))
        depot.drop("small")
        kept += list(stream)
    assert [int(batch["n"].values[0]) for batch in kept] == list(range(20))
    for number in range(20, 40):  # into whatever memory is free
        append(depot, "small", rows(number, 1), f"part {number}", number)
    assert [int(batch["n"].values[0]) for batch in kept] == list(range(20))
    del kept
    depot.drop("small")
    until_free(depot)


def test_appends_of_several_writers_are_read_while_they_come(connect: Connect) -> None:
    """What is read while several writers append is the beginning of what is read later, with each append once."""
    depot = connect()

    def write(writer: int) -> None:
        with connect() as own:
            for number in range(writer * 100, writer * 100 + 15):
                append(own, "small", rows(number, 1), f"part {number}", number)

    append(depot, "small", rows(900, 1), "part 900", 900)
    seen: list[int] = [900]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(write, writer) for writer in range(4)]
        while not all(each.done() for each in writers):
            found = read(depot.lookup("small"))["n"].to_pylist()
            assert found[: len(seen)] == seen
            seen = found
        assert [each.result() for each in writers] == [None] * 4
    last = read(depot.lookup("small"))["n"].to_pylist()
    assert last[: len(seen)] == seen
    assert sorted(last) == [*(100 * writer + each for writer in range(4) for each in range(15)), 900]


def test_what_ends_by_itself_shares_nothing(depot: bow.depot.Depot) -> None:
    """Appends with readers= or a time end one by one, and are looked up one by one."""
    for number in range(12):
        append(depot, "counted", rows(number, 1), f"counted {number}", readers=1)
        written = commit(depot, rows(number, 1), f"timed {number}")
        timed = bow.Dataset((written.endpoint,), rows(0, 1).schema, 1)
        depot.announce("timed", timed, application=APP, append=True, part=f"timed {number}", ttl=60.0)
    assert len(depot.lookup("counted")) == len(depot.lookup("timed")) == 12
    assert read(depot.lookup("counted")).num_rows == 12
    until(lambda: len(depot.status().datasets) == 12, "what was read is freed")


def test_a_writer_that_is_killed_leaves_the_others(depot: bow.depot.Depot, task: Callable[..., Task]) -> None:
    """A task that dies while it writes one append takes nothing from those before it, nor from those after."""
    for number in range(10):
        append(depot, "small", rows(number, 1), f"part {number}", number)
    writer = task(
        'attempt = bow.depot.connect(folder=folder, start=False).begin(application="app", dataset="lost")\n'
        'attempt.write(pa.table({"n": [7]}))\nsay("written")\n'
    )
    assert writer.hear() == "written"
    writer.kill()
    for number in range(10, 20):
        append(depot, "small", rows(number, 1), f"part {number}", number)
    found = depot.lookup("small")
    assert (len(found), read(found)["n"].to_pylist()) == (1, list(range(20)))


def slabs_of(source: bow.Endpoint | bow.Dataset) -> set[bytes]:
    """Return which slabs a data set lies in."""
    with bow.connect(source) as stream:
        return {region.uuid for batch in stream for region in batch_parts(batch).spans.regions}


def test_nobody_can_write_what_appends_share(depot: bow.depot.Depot) -> None:
    """A slab that appends share was never lent to a writer, and is lent to none later: only the depot writes it."""
    lent: set[bytes] = set()
    shared: set[bytes] = set()
    wide = pa.table({"n": np.arange(4 * MIB // 8)})  # as large as such a slab
    for number in range(28):
        with depot.begin(application=APP, dataset=f"part {number}") as attempt:
            attempt.write(rows(number, 1) if number < 12 else wide)
            endpoint = attempt.commit().endpoint
        lent |= slabs_of(endpoint)
        named = bow.Dataset((endpoint,), rows(0, 1).schema, 1)
        depot.announce("small", named, application=APP, append=True, part=f"part {number}")
        if number == 11:
            shared |= slabs_of(depot.lookup("small"))
            depot.drop("small")
            until_free(depot)
    assert (len(shared), len(lent) > 1, lent & shared) == (1, True, set())
