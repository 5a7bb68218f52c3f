"""Lazy frames of polars over data sets: the same rows as polars has of the table, and no column too many."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from tests.client_server.conftest import until

COLUMNS = ["number", "text", "flag", "word"]


@pytest.fixture(scope="module", autouse=True)
def polars_threads() -> None:
    """Have polars start its threads, which it keeps: they are nothing that a test leaves behind."""
    with bow.Server() as server:
        frame = bow.scan_polars(server.publish("first", {"a": [1]}))
        frame.join(frame, on="a").filter(pl.col("a") > 0).collect()


@pytest.fixture
def server() -> Iterator[bow.Server]:
    """Return a server."""
    with bow.Server() as server:
        yield server


SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "text": pa.string(),
        "flag": pa.bool_(),
        "word": pa.dictionary(pa.int32(), pa.string()),
    }
)
ROWS = st.tuples(
    st.none() | st.integers(-9, 9),
    st.none() | st.text(max_size=3),
    st.none() | st.booleans(),
    st.sampled_from("ab"),
)


def table_of(batches: list[list[tuple[int | None, str | None, bool | None, str]]]) -> pa.Table:
    """Return a table with these batches, some of which may be empty."""
    rows = [[dict(zip(COLUMNS, row, strict=True)) for row in batch] for batch in batches]
    return pa.Table.from_batches([pa.RecordBatch.from_pylist(each, SCHEMA) for each in rows], SCHEMA)


def tables() -> st.SearchStrategy[pa.Table]:
    """Make a table of a few batches."""
    return st.lists(st.lists(ROWS, max_size=5), max_size=4).map(table_of)


PREDICATES = [pl.col("number") > -2, pl.col("flag"), pl.col("text") >= "a"]
Step = Callable[[pl.LazyFrame], pl.LazyFrame]


def join_itself(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Join a frame with itself, which reads it twice."""
    return frame.join(frame, on="number", maintain_order="left_right").select(COLUMNS)


def steps() -> st.SearchStrategy[Step]:
    """Make a step of a query that keeps the columns."""
    return st.one_of(
        st.sampled_from(PREDICATES).map(lambda chosen: operator.methodcaller("filter", chosen)),
        st.integers(0, 7).map(lambda rows: operator.methodcaller("head", rows)),
        st.integers(0, 7).map(lambda first: operator.methodcaller("slice", first, 3)),
        st.just(join_itself),
    )


def last_steps() -> st.SearchStrategy[Step]:
    """Make the end of a query: some columns, a count, a sum, or nothing."""
    chosen = st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)
    ends = st.sampled_from([pl.len(), pl.col("number").sum(), pl.all()])
    return (chosen | ends).map(lambda end: operator.methodcaller("select", end))


@settings(max_examples=60, deadline=None)
@given(table=tables(), query=st.lists(steps(), max_size=3), last=last_steps())
def test_queries_give_what_polars_has_of_the_table(table: pa.Table, query: list[Step], last: Step) -> None:
    """Whatever of the query polars hands down, the answer is that of the same query on the table."""

    def asked_of(frame: pl.LazyFrame) -> pl.DataFrame:
        return last(functools.reduce(lambda each, step: step(each), query, frame)).collect()

    with bow.Server() as server:
        answer = asked_of(bow.scan_polars(server.publish("table", table)))
    wanted = asked_of(pl.DataFrame(table).lazy())
    assert answer.equals(wanted), (answer, wanted)
    assert answer.schema == wanted.schema


def test_columns_that_are_not_needed_are_not_read(server: bow.Server) -> None:
    """A column that polars has no type for stands in no way where `columns` leave it out."""
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    endpoint = server.publish("odd", pa.table({"a": [1, 2], "union": union}), replace=True)
    with pytest.raises(bow.Unsupported, match="union"):
        bow.scan_polars(endpoint)
    frame = bow.scan_polars(endpoint, columns=["a"])
    assert frame.collect()["a"].to_list() == [1, 2]


def test_nobody_is_counted_and_places_are_not_taken(server: bow.Server) -> None:
    """A data set that is freed after so many readers is refused, and can still be read by as many."""
    endpoint = server.publish("once", {"a": [1]}, readers=1)
    assert [each.readers_left for each in bow.list_datasets(server.address) if each.name == "once"] == [1]
    with pytest.raises(bow.Unsupported, match="readers="):
        bow.scan_polars(endpoint)
    with bow.connect(endpoint) as stream:
        assert stream.to_pylist() == [{"a": 1}]


def test_a_frame_stands_for_one_version(server: bow.Server) -> None:
    """After its data set was replaced it reads nothing else in its place: it is an error."""
    server.publish("versions", {"a": [1]}, replace=True)
    frame = bow.scan_polars(server.address, "versions")
    assert frame.collect()["a"].to_list() == [1]
    # A version that is replaced is there for as long as it is read, and the server may not have heard the end.
    until(lambda: bow.list_datasets(server.address)[0].readers == 0)
    server.publish("versions", {"a": [2]}, replace=True)
    with pytest.raises(bow.UnknownTicket):
        frame.collect()
    assert bow.scan_polars(server.address, "versions").collect()["a"].to_list() == [2]


@settings(max_examples=20, deadline=None)
@given(
    before=st.lists(st.lists(st.integers(-9, 9), max_size=3), min_size=1, max_size=3),
    after=st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3),
    head=st.none() | st.integers(0, 9),
)
def test_a_frame_does_not_grow(before: list[list[int]], after: list[list[int]], head: int | None) -> None:
    """What is appended to a data set after it was scanned is no part of the frame, but of one made later."""
    wanted = [number for numbers in before for number in numbers]
    with bow.Server() as server:
        for numbers in before:
            server.append("grows", pa.table({"a": pa.array(numbers, pa.int64())}))
        frame = bow.scan_polars(server.address, "grows")
        for numbers in after:
            server.append("grows", pa.table({"a": pa.array(numbers, pa.int64())}))
        asked = frame if head is None else frame.head(head)
        assert asked.collect()["a"].to_list() == wanted[:head]
        later = bow.scan_polars(server.address, "grows").select(pl.len()).collect().item()
        assert later == sum(map(len, before + after))


def test_names_that_nothing_has_are_refused_at_once(server: bow.Server) -> None:
    """The error says which name may have been meant."""
    server.publish("flights", {"a": [1]}, replace=True)
    with pytest.raises(bow.UnknownTicket, match="flights"):
        bow.scan_polars(server.address, "flight")


def test_all_sources_of_connect_can_be_scanned(server: bow.Server) -> None:
    """A data set of many endpoints, and a server of Arrow Flight."""
    first = server.publish("first", {"a": [1, 2]}, replace=True)
    second = server.publish("second", {"a": [3]}, replace=True)
    dataset = bow.Dataset((first, second), pa.schema({"a": pa.int64()}), 3)
    assert bow.scan_polars(dataset).select(pl.col("a").sum()).collect().item() == 6
    with bow.flight.serve(server) as flights:
        assert bow.scan_polars(flights.uri, "first").filter(pl.col("a") > 1).collect()["a"].to_list() == [2]


def test_a_query_that_stops_early_closes_its_stream(server: bow.Server) -> None:
    """Nothing of a data set that was withdrawn is held by a scan that took its first rows."""
    endpoint = server.publish("long", pa.table({"a": range(1000)}).to_reader(10).read_all())
    frame = bow.scan_polars(endpoint)
    assert frame.head(3).collect()["a"].to_list() == [0, 1, 2]
    server.withdraw("long")
    server.wait_released("long", timeout=10)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(
    ("address", "token"), [("unix:", None), ("tcp://127.0.0.1:0", None), ("tcp://127.0.0.1:0", "t" * 16)]
)
def test_what_connect_takes_is_scanned(address: str, token: str | None, as_text: bool) -> None:
    """Endpoints that ``connect`` reads are scanned, also where a server lists nothing; no reader is counted."""
    with bow.Server(address, token=token) as server:
        endpoint = server.publish("t", {"a": [1, 2, 3]})
        frame = bow.scan_polars(str(endpoint) if as_text else endpoint)
        assert server.stats.readers == 0
        assert frame.filter(pl.col("a") > 1).collect()["a"].to_list() == [2, 3]
