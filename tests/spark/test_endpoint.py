"""Reading an endpoint as a task of Spark does, without Spark; and what the options mean."""

from __future__ import annotations

import dataclasses
import os
import sys
import types
from collections.abc import Iterator
from typing import Any, Self

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.dissociated.position import Position
from bowstring.errors import BrokenError, ProducerFailed, UnknownTicket, UsageError
from bowstring.spark.batches import Normaliser
from bowstring.spark.offsets import Listing
from bowstring.spark.options import ReadOptions, read_endpoint
from tests.client_server.conftest import until

TABLE = pa.table(
    {"a": pa.array([1, None, 3], pa.uint8()), "s": pa.array(["x", "y", "x"]).dictionary_encode()}
)
TARGET = pa.schema([("a", pa.int16()), ("s", pa.string())])
URI = "tcp://127.0.0.1:9?want_data=1"


@pytest.fixture
def server(tidy: None) -> Iterator[bow.Server]:
    """Return a server, which leaves nothing behind."""
    with bow.Server() as server:
        yield server


def test_batches_are_in_spark_s_types(server: bow.Server) -> None:
    """What comes of an endpoint has the schema that Spark compares."""
    endpoint = server.publish("t", TABLE)
    whole = pa.Table.from_batches(read_endpoint(endpoint, TARGET))
    assert whole.schema == TARGET
    assert whole.to_pydict() == {"a": [1, None, 3], "s": ["x", "y", "x"]}


@given(st.lists(st.integers(0, 2), max_size=60), st.sampled_from([None, 0, 1000, 1 << 27]))
def test_tasks_read_each_endpoint_once(processes: list[int], nbytes: int | None) -> None:
    """Parts hold all endpoints once, in order, whichever process has them; few, and large ones, stay alone."""
    endpoints = [
        bow.Endpoint(f"tcp://192.0.2.{process}:7?want_data=1", str(number).encode())
        for number, process in enumerate(processes)
    ]
    dataset = Dataset(tuple(endpoints), TARGET, None, nbytes)
    parts = ReadOptions(dataset=dataset.to_json()).parts()
    split = [part.endpoints if isinstance(part, Dataset) else (part,) for part in parts]
    assert [each for part in split for each in part] == endpoints
    least = min(len(endpoints), 2 * len(os.sched_getaffinity(0)) * len(set(processes)))
    assert len(split) >= (len(endpoints) if nbytes is None else least)
    assert nbytes or nbytes is None or len(split) == least


def test_one_task_reads_many_endpoints(server: bow.Server) -> None:
    """Endpoints that are read by one task give their rows in order, and those of columns asked for."""
    endpoints = [server.publish(f"part {number}", TABLE) for number in range(100)]
    dataset = Dataset(tuple(endpoints), TABLE.schema, 300, 3000)
    options = ReadOptions(dataset=dataset.to_json(), columns=("s",))
    parts = options.parts()
    assert len(parts) == min(100, 2 * len(os.sched_getaffinity(0)))
    target = pa.schema([TARGET.field("s")])
    whole = pa.Table.from_batches(batch for part in parts for batch in options.read(part, target))
    assert whole.to_pydict() == {"s": ["x", "y", "x"] * 100}


def test_columns_are_chosen_by_the_producer(server: bow.Server) -> None:
    """Only the columns asked for travel, in the order asked for."""
    endpoint = server.publish("t", TABLE)
    target = pa.schema([TARGET.field("s"), TARGET.field("a")])
    [batch] = read_endpoint(endpoint, target, columns=("s", "a"))
    assert batch.schema == target
    with pytest.raises(bow.BowstringError, match="nope"):
        list(read_endpoint(endpoint, target, columns=("nope",)))


def test_a_data_frame_may_allow_more_nulls(server: bow.Server) -> None:
    """A column without nulls goes into a data frame that allows them, and not the other way round."""
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    endpoint = server.publish("t", pa.table({"a": [1]}, schema=schema))
    wide = pa.schema([("a", pa.int64())])
    [batch] = read_endpoint(endpoint, wide)
    assert batch.schema == wide
    other = server.publish("u", pa.table({"a": [1]}))
    with pytest.raises(UsageError, match="another schema"):
        list(read_endpoint(other, schema))


@pytest.mark.parametrize(
    "target",
    [pa.schema([*TARGET, ("b", pa.int16())]), pa.schema([("b", pa.int16()), ("s", pa.string())]),
     pa.schema([("a", pa.int32()), ("s", pa.string())]), pa.schema([("a", pa.int32())]), pa.schema([]),
     pa.schema([("a", pa.int16()), ("A", pa.int16())])],
    ids=["more", "name", "type", "type of some", "none", "twice"],
)  # fmt: skip
def test_a_schema_that_changed_is_refused(server: bow.Server, target: pa.Schema) -> None:
    """A data frame made of another schema gets an error, never other columns."""
    endpoint = server.publish("t", TABLE)
    with pytest.raises(UsageError, match="another schema"):
        list(read_endpoint(endpoint, target))


def test_a_data_set_without_columns(server: bow.Server) -> None:
    """Rows without columns are rows."""
    batch = Normaliser(pa.schema([]))(pa.table({"a": [1, 2]}).select([]).to_batches()[0])
    assert batch.num_rows == 2


def test_a_producer_that_is_gone() -> None:
    """An endpoint whose producer has ended is an error at once, which says what to do."""
    with bow.Server() as server:
        endpoint = server.publish("t", TABLE)
    with pytest.raises(BrokenError):
        list(read_endpoint(endpoint, TARGET))


def test_a_producer_that_fails_in_between(server: bow.Server) -> None:
    """Batches before a failure are no whole partition: the error comes after them, and no end does."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise ValueError("no more of this")

    endpoint = server.publish("t", batches())
    reading = read_endpoint(endpoint, TARGET)
    assert next(reading).num_rows == 3
    with pytest.raises(ProducerFailed, match="no more of this"):
        next(reading)
    with pytest.raises(UnknownTicket):  # a second attempt gets none of it, rather than the rest
        list(read_endpoint(endpoint, TARGET))


def test_a_task_that_stops_early_lets_go(server: bow.Server) -> None:
    """A partition that is not read to its end (LIMIT) leaves nothing with the producer."""
    table = pa.concat_tables([TABLE] * 50)
    endpoint = server.publish("t", table, readers=1)
    reading = read_endpoint(endpoint, TARGET)
    next(reading)
    reading.close()
    rows: list[int] = []

    def again() -> bool:
        try:
            rows.extend(batch.num_rows for batch in read_endpoint(endpoint, TARGET))
        except UnknownTicket:  # the reader that stopped is on its way out
            return False
        return True

    until(again)
    assert sum(rows) == table.num_rows
    server.wait_released(timeout=10)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "which data set"),
        ({"path": URI, "uri": URI}, "which data set"),
        ({"path": URI, "colums": "a"}, "colums"),
        ({"path": f"{URI} {URI}", "ticket": "t"}, "one URI"),
        ({"path": URI, "truncate": "yes"}, "true or false"),
        ({"path": URI, "columns": "[1]"}, "no list of names"),
        ({"path": URI, "columns": "[a"}, "no list"),
        ({"path": URI, "maxEndpointsPerTrigger": "0"}, "above 0"),
    ],
)
def test_wrong_options(options: dict[str, str], says: str) -> None:
    """An option that is wrong or misspelt is named."""
    with pytest.raises(UsageError, match=says):
        ReadOptions.of(options)


@given(st.data())
def test_a_schema_of_some_columns(data: st.DataObject) -> None:
    """Columns are found by name, in any case and order, and come under the names that were asked for."""
    names = data.draw(st.lists(st.sampled_from(["id", "Trip", "TRIP", "fare", "é"]), unique=True, min_size=1))
    table = pa.table({name: [position] for position, name in enumerate(names)})
    wanted = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    asked = [
        name if len({n for n in names if n.lower() == name.lower()}) > 1 else name.swapcase()
        for name in wanted
    ]
    with bow.Server() as server:
        [batch] = read_endpoint(server.publish("t", table), pa.schema([(name, pa.int64()) for name in asked]))
    assert batch.to_pydict() == {name: [names.index(each)] for name, each in zip(asked, wanted, strict=True)}


@pytest.mark.parametrize("source", ["table", "generator", "callable"])
@pytest.mark.parametrize("names", [["s"], ["s", "a"], ["A"]], ids=["some", "other order", "other case"])
def test_a_schema_that_chooses_columns_is_one_reader(
    server: bow.Server, source: str, names: list[str]
) -> None:
    """Columns are chosen over one connection: it takes one reader's place, and reads what is made as it is read."""
    made: list[bool] = []

    def batches() -> Iterator[pa.RecordBatch]:
        made.append(True)
        yield from TABLE.to_batches()

    if source == "callable":
        endpoint = server.publish("t", batches, schema=TABLE.schema)
    else:
        endpoint = server.publish("t", TABLE if source == "table" else batches(), readers=1)
    target = pa.schema([TARGET.field(name.lower()).with_name(name) for name in names])
    [batch] = read_endpoint(endpoint, target)
    assert batch.to_pydict() == {name: TABLE[name.lower()].to_pylist() for name in names}
    assert len(made) == (source != "table")


def test_a_depot_s_name_is_an_address() -> None:
    """What connect takes, and lists of data sets show, is what load takes."""
    for options in (
        {"path": "depot:events"},
        {"uri": "depot:events"},
        {"url": "depot:events"},
        {"path": "events"},
    ):
        assert ReadOptions.of(options) == ReadOptions.of({"name": "events"})
    with pytest.raises(UsageError, match="which data set"):
        ReadOptions.of({"path": "depot:"})


def test_tables_of_the_catalog_are_refused() -> None:
    """Spark's catalog gives options that are no option of ours, or none: the error says what works."""
    for options in ({"provider": "bowstring", "owner": "me", "option.name": "events"}, {}):
        with pytest.raises(bow.BowstringError, match="CREATE TEMPORARY VIEW"):
            ReadOptions.of(options)


def test_structure_is_checked_unless_more_is_asked_for() -> None:
    """Between hosts, too, Spark's readers check structure; the option ``validate`` has them check all."""
    text = pa.StringArray.from_buffers(
        1, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pa.py_buffer(b"\xff")
    )
    target = pa.schema([("s", pa.string())])
    with bow.Server("tcp://127.0.0.1:0") as server:
        endpoint = server.publish("t", {"s": text})
        for options in ({}, {"validate": "structure"}):
            chosen = ReadOptions.of({"uri": URI, **options}).validate
            assert sum(batch.num_rows for batch in read_endpoint(endpoint, target, validate=chosen)) == 1
        chosen = ReadOptions.of({"uri": URI, "Validate": "full"}).validate
        with pytest.raises(bow.InvalidData, match="s, row 0"):
            list(read_endpoint(endpoint, target, validate=chosen))
    with pytest.raises(UsageError, match="'full' or 'structure'"):
        ReadOptions.of({"uri": URI, "validate": "all"})


def test_options_are_read_whatever_their_case() -> None:
    """Spark's options know no case."""
    found = ReadOptions.of(
        {"URI": f"{URI}&ticket=dA\n{URI}&ticket=dQ\n", "Columns": '["a, b"]', "TRUNCATE": "True"}
    )
    assert [endpoint.ticket for endpoint in found.endpoints()] == [b"t", b"u"]
    assert (found.columns, found.truncate) == (("a, b",), True)


def test_a_data_set_as_text(server: bow.Server) -> None:
    """A data set says its schema itself, so that nobody need connect to plan; it may have no endpoints."""
    dataset = Dataset((Endpoint(URI, b"t"),), TABLE.schema)
    options = ReadOptions.of({"dataset": dataset.to_json(), "columns": "s"})
    assert options.endpoints() == dataset.endpoints
    assert options.schema().names == ["s"]
    with pytest.raises(UsageError, match="no such column"):
        ReadOptions.of({"dataset": dataset.to_json(), "columns": "z"}).schema()
    empty = ReadOptions.of({"dataset": Dataset((), TABLE.schema).to_json()})
    assert empty.endpoints() == ()


def test_a_name_is_looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set that grows under its name has more endpoints the next time."""
    grown = [Dataset((Endpoint(URI, b"a"),), TABLE.schema)]

    class Found:
        def __init__(self, **options: Any) -> None:
            assert options == {"address": "unix:/depot", "start": False}

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None: ...

        def lookup(self, name: str) -> Dataset:
            assert name == "events"
            return grown[0]

        def _lookup(self, name: str, first: int, last: int) -> tuple[Position, Dataset, None]:
            found = self.lookup(name)
            some = dataclasses.replace(found, endpoints=found.endpoints[first:last])
            return Position.parse(f"{1:016x}:{len(found)}"), some, None

    monkeypatch.setitem(sys.modules, "bowstring.depot", types.SimpleNamespace(connect=Found))
    options = ReadOptions.of({"name": "events", "depot": "unix:/depot"})
    assert len(options.endpoints()) == 1
    grown[0] = Dataset((*grown[0], Endpoint(URI, b"b")), TABLE.schema)
    assert len(options.endpoints()) == 2
    end = Position.parse(f"{1:016x}:2")
    assert options.listing() == Listing((), end, "the data set 'events'")
    assert options.listing(1, 2) == Listing(grown[0].endpoints[1:], end, "the data set 'events'")


@pytest.mark.parametrize("kind", ["uri", "dataset"])
def test_streams_see_that_a_server_replaced_a_name(server: bow.Server, kind: str) -> None:
    """A URI with a name stands for another version once that is replaced; tasks read no other one."""
    by_name, other = (server.publish(name, TABLE) for name in ("t", "u"))
    with bow.connect(other) as stream:
        of_version = stream.endpoint
    assert isinstance(of_version, Endpoint)
    dataset = Dataset((by_name, of_version), TABLE.schema)
    text = "\n".join(map(str, dataset)) if kind == "uri" else dataset.to_json()
    options = ReadOptions.of({kind: text})
    before = options.listing()
    ends = [before.position(count) for count in range(3)]
    assert options.listing() == before
    assert all(map(before.holds, ends))
    server.publish("u", TABLE.slice(1), replace=True)
    assert all(
        map(options.listing().holds, ends)
    )  # that URI is of one version, which is gone: its task says so
    server.publish("t", TABLE.slice(2), replace=True)
    after = options.listing()
    assert list(map(after.holds, ends)) == [True, False, False]
    assert pa.Table.from_batches(read_endpoint(after.endpoints[0], TARGET)).num_rows == 1
    for gone in before.endpoints:
        with pytest.raises(UnknownTicket):
            list(read_endpoint(gone, TARGET))
    server.close()
    with pytest.raises(BrokenError):
        options.listing()


@pytest.mark.parametrize("others", [0, 1], ids=["none left", "another left"])
@pytest.mark.parametrize("reread", ["read", "error"])
def test_streams_see_that_a_server_s_name_has_ended(server: bow.Server, others: int, reread: str) -> None:
    """A name that has ended is unknown, also where the server offers nothing else: it was not replaced."""
    endpoint = server.publish("t", TABLE)
    for number in range(others):
        server.publish(f"u{number}", TABLE)
    options = ReadOptions.of({"uri": str(endpoint), "onReplace": reread})
    before = options.listing()
    assert before == options.listing()
    server.withdraw("t")
    with pytest.raises(UnknownTicket, match="'t'"):
        options.listing()
    server.publish("t", TABLE)
    assert not options.listing().holds(before.position(1))


def test_secrets_stay_out_of_what_is_printed() -> None:
    """What prints in a log shows no token."""
    dataset = Dataset((Endpoint(f"{URI}&token=secret", b"t"),), TABLE.schema)
    for options in ({"dataset": dataset.to_json()}, {"path": str(dataset.endpoints[0])}):
        assert "secret" not in repr(ReadOptions.of(options))


def test_extension_types_and_variants_of_a_server(server: bow.Server) -> None:
    """Extension types come through a server as what they are stored as, and Variants as Spark has them."""
    texts = bow.variant.from_json(['{"a": 1}', None, "[]"])
    table = pa.table(
        {
            "uuid": pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([bytes(16), None, bytes(16)], pa.binary(16))
            ),
            "json": pa.array(["{}", None, "1"], pa.json_()),
            "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 2, None], pa.int8())),
            "nested": pa.array([[{"u": bytes(16)}], None, []], pa.list_(pa.struct([("u", pa.binary(16))]))),
        }
    )
    schema = pa.schema([*table.schema, texts.field.with_name("v")])
    batch = pa.RecordBatch.from_arrays(
        [*table.combine_chunks().to_batches()[0].columns, texts.to_arrow()], schema=schema
    )
    normaliser = Normaliser(schema)
    endpoint = server.publish("t", batch)
    [found] = read_endpoint(endpoint, normaliser.schema)
    assert found.schema.types[:3] == [pa.binary(), pa.string(), pa.bool_()]
    assert found.column("bool8").to_pylist() == [False, True, None]
    assert found.column("v").type.names == ["value", "metadata"]
    assert found.equals(normaliser(batch))
