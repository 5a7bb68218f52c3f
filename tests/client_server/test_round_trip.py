"""The whole way: what is published is what is read, on every transport."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.memory import Pool
from bowstring.testing import fake_device
from tests.strategies import LEAF_TYPES, data_types, record_batches
from tests.ucx import UCX

# Arrow's format has no place for the extension type of a dictionary's values: pyarrow cannot read what it wrote.
PLAIN = tuple(each for each in LEAF_TYPES if not isinstance(each, pa.BaseExtensionType))
TYPES = data_types(leaves=PLAIN) | st.just(pa.uuid())


@st.composite
def schemas(draw: st.DrawFn, min_columns: int = 0) -> pa.Schema:
    """Draw a schema."""
    types = draw(st.lists(TYPES, min_size=min_columns, max_size=5))
    fields = [pa.field(f"c{index}", type_) for index, type_ in enumerate(types)]
    return pa.schema(fields, metadata=draw(st.sampled_from((None, {"made": "by hand"}))))


BATCHES = schemas().flatmap(record_batches)
CHOOSABLE = schemas(min_columns=1).flatmap(record_batches)
TABLES = schemas().flatmap(
    lambda schema: st.lists(record_batches(schema, max_rows=20), min_size=1, max_size=4)
)
LOCAL = ("unix:", "tcp://127.0.0.1:0", "inproc:")
EACH_ADDRESS = pytest.mark.parametrize("address", [*LOCAL, UCX])
# What does not depend on the transport is tried on one of them at a time.
ANY_ADDRESS = pytest.mark.parametrize(
    "addresses", [pytest.param(LOCAL, id="local"), pytest.param(UCX.values, id="ucx", marks=UCX.marks)]
)
TURNS = st.integers(0, 5)


def storage(table: pa.Table) -> pa.Table:
    """Return a table with the storage of its extension columns, which Bowstring leaves in storage."""
    columns = [
        pa.chunked_array(
            [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in column.chunks],
            getattr(column.type, "storage_type", column.type),
        )
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=table.schema.names) if columns else table


def same(found: pa.Table, sent: pa.Table) -> bool:
    """Whether two tables hold the same values, whatever names of extension types they show."""
    return found.num_rows == sent.num_rows and storage(found).equals(storage(sent))


def carry(address: str, data: Any, schema: pa.Schema, *, separate: bool = False, **options: Any) -> pa.Table:
    """Send data through a server of their own, and check what came."""
    with bow.Server(address, pool=Pool(budget=256 << 20)) as server:
        endpoint = server.publish("data", data, schema=schema, readers=1, separate=separate)
        with bow.connect(
            endpoint, options=bow.ConnectOptions(pool=Pool(budget=64 << 20)), **options
        ) as stream:
            batches = list(stream)
        for batch in batches:
            batch.validate(full=True)
        return pa.Table.from_batches([batch.to_arrow() for batch in batches], schema=stream.schema)


@EACH_ADDRESS
@given(batches=TABLES)
def test_any_table(address: str, batches: list[pa.RecordBatch]) -> None:
    """Any batches of any schema, sliced, null, empty or without columns, arrive as pyarrow has them."""
    sent = pa.Table.from_batches(batches)
    found = carry(address, batches, sent.schema)
    assert same(found, sent)
    assert found.schema.names == sent.schema.names
    assert (found.schema.metadata or None) == (sent.schema.metadata or None)


@ANY_ADDRESS
@given(turn=TURNS, batches=TABLES)
def test_any_table_over_two_connections(
    addresses: tuple[str, ...], turn: int, batches: list[pa.RecordBatch]
) -> None:
    """With metadata and bodies on a connection each, the same table arrives."""
    sent = pa.Table.from_batches(batches)
    assert same(carry(addresses[turn % len(addresses)], batches, sent.schema, separate=True), sent)


@ANY_ADDRESS
@given(turn=TURNS, batches=TABLES)
def test_any_table_copied(addresses: tuple[str, ...], turn: int, batches: list[pa.RecordBatch]) -> None:
    """Copied batch by batch when they are delivered, the same table arrives, its dictionaries with it."""
    sent = pa.Table.from_batches(batches)
    assert same(carry(addresses[turn % len(addresses)], batches, sent.schema, mode="copy"), sent)


@ANY_ADDRESS
@given(turn=TURNS, batches=TABLES)
def test_any_table_lazily(addresses: tuple[str, ...], turn: int, batches: list[pa.RecordBatch]) -> None:
    """Batches that are made one by one arrive as they were made, each as a batch of its own."""
    sent = pa.Table.from_batches(batches)
    assert same(carry(addresses[turn % len(addresses)], (batch for batch in batches), sent.schema), sent)


@ANY_ADDRESS
@given(turn=TURNS, batch=CHOOSABLE)
def test_any_selection(addresses: tuple[str, ...], turn: int, batch: pa.RecordBatch) -> None:
    """Columns chosen by name arrive in the order in which they were asked for, alone."""
    names = batch.schema.names[::-2]
    found = carry(addresses[turn % len(addresses)], batch, batch.schema, columns=names)
    assert found.schema.names == names
    assert same(found, pa.Table.from_batches([batch]).select(names))


@ANY_ADDRESS
@given(turn=TURNS, schema=schemas())
def test_no_batches(addresses: tuple[str, ...], turn: int, schema: pa.Schema) -> None:
    """A data set without a batch has its schema."""
    found = carry(addresses[turn % len(addresses)], iter(()), schema)
    assert found.num_rows == 0
    assert found.schema.names == schema.names


def test_rows_without_columns(server: bow.Server) -> None:
    """A batch without columns keeps its number of rows."""
    batch = pa.record_batch({"a": [1, 2, 3]}).select([])
    with bow.connect(server.publish("none", batch)) as stream:
        assert [got.num_rows for got in stream] == [3]


def test_columns_of_one_name(server: bow.Server) -> None:
    """Columns may share a name, as long as nobody asks for them by it."""
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["x", "y"])], names=["same", "same"])
    endpoint = server.publish("twice", table)
    with bow.connect(endpoint) as stream:
        assert stream.read_all().equals(table)
    with pytest.raises(bow.UsageError, match="same"):
        bow.connect(endpoint, columns=["same"])


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"n": [1, 2, None], "s": ["a", None, "c"]}),
        pa.table({"n": [1, 2, None], "s": ["a", None, "c"]}).to_batches()[0],
        pl.DataFrame({"n": [1, 2, None], "s": ["a", None, "c"]}),
        {"n": pa.array([1, 2, None]), "s": ["a", None, "c"]},
        bow.Batch.from_arrow({"n": [1, 2, None], "s": ["a", None, "c"]}),
        [bow.Batch.from_arrow({"n": [1], "s": ["a"]}), pa.record_batch({"n": [2, None], "s": [None, "c"]})],
    ],
    ids=["table", "record batch", "polars", "dict", "batch", "list"],
)
def test_whatever_is_arrow(server: bow.Server, data: Any) -> None:
    """Anything that speaks the Arrow PyCapsule interface can be published, and dicts and lists of it."""
    with bow.connect(server.publish("any", data)) as stream:
        assert stream.read_all().to_pydict() == {"n": [1, 2, None], "s": ["a", None, "c"]}


def test_numpy_arrays(server: bow.Server) -> None:
    """A dict of NumPy arrays is a table, and comes out as NumPy views."""
    numbers = np.arange(10_000).reshape(2, -1)
    endpoint = server.publish("arrays", {"a": numbers[0], "b": numbers[1, ::-1]})
    with bow.connect(endpoint) as stream:
        (batch,) = stream
    assert np.array_equal(batch["a"].values, numbers[0])
    assert np.array_equal(batch["b"].values, numbers[1, ::-1])


def test_metadata_of_schema_fields_and_batches(server: bow.Server) -> None:
    """What is written beside the schema, its fields and its batches travels with them."""
    field = pa.field("v", pa.binary(), metadata={"ARROW:extension:name": "some.variant"})
    schema = pa.schema([field], metadata={"owner": "ü"})
    with bow.connect(server.publish("labelled", pa.table([[b"x"]], schema=schema))) as stream:
        (batch,) = stream
        assert stream.schema.equals(schema, check_metadata=True)
    assert batch["v"].field.metadata == field.metadata
    assert batch.schema.equals(schema, check_metadata=True)


@ANY_ADDRESS
@given(turn=TURNS, batch=BATCHES)
def test_fake_device(addresses: tuple[str, ...], turn: int, batch: pa.RecordBatch) -> None:
    """Data of a device arrive as they are, by way of a server whose memory is on the host."""
    on_device = bow.Batch.from_arrow(batch).to_device(fake_device(0))
    assert same(
        carry(addresses[turn % len(addresses)], [on_device], batch.schema), pa.Table.from_batches([batch])
    )


@given(batch=BATCHES)
def test_server_on_a_fake_device(batch: pa.RecordBatch) -> None:
    """A server whose pool is on a device gives views of that device, or its bytes where it cannot."""
    with bow.Server("unix:", pool=Pool(fake_device(0), budget=64 << 20)) as server:
        endpoint = server.publish("data", batch)
        with bow.connect(endpoint) as stream:
            (there,) = stream
        assert there.device is fake_device(0) or not there.nbytes
        assert same(pa.Table.from_batches([there.to_arrow()]), pa.Table.from_batches([batch]))
        with bow.connect(endpoint, device="cpu") as stream:
            (here,) = stream
        assert here.device is bow.cpu()
        assert same(pa.Table.from_batches([here.to_arrow()]), pa.Table.from_batches([batch]))
        del here, there
