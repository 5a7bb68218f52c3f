"""The mark of a Variant column: ``variant.get`` takes what was made of the column, wherever it has been."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring import variant
from bowstring.columnar import Batch
from bowstring.columnar.batch import Column
from bowstring.testing import fake_device

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

ROWS = [{"a": 1}, None, {"a": [2]}]
NAME, CANONICAL = b"ARROW:extension:name", b"arrow.parquet.variant"


def arrow_file(table: pa.Table) -> pa.Table:
    """Return a table that was written to an Arrow stream by pyarrow and read back."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def bowstring_file(data: Any) -> Batch:
    """Return data that were written to an Arrow stream by Bowstring and read back."""
    sink = io.BytesIO()
    batch = Batch.from_arrow(data)
    with bow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    [found] = bow.ipc.open_stream(sink.getvalue())
    return found


def parquet_file(table: pa.Table) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return pq.read_table(sink)


def from_batches(column: Column) -> pa.Table:
    return pa.Table.from_batches([pa.RecordBatch.from_arrays([column.to_arrow()], names=["event"])])


WAYS: dict[str, Callable[[Column], Any]] = {
    "to_arrow": lambda column: column.to_arrow(),
    "pickled": lambda column: pickle.loads(pickle.dumps(column.to_arrow())),
    "chunked": lambda column: pa.chunked_array([column.to_arrow(), column.to_arrow()[:0]]),
    "take": lambda column: column.to_arrow().take(pa.array([0, 1, 2])),
    "pa.array": pa.array,
    "pa.table": lambda column: pa.table({"event": column}),
    "pa.record_batch": lambda column: pa.record_batch({"event": column}),
    "from_batches": from_batches,
    "concat_tables": lambda column: pa.concat_tables([pa.table({"event": column})] * 2).slice(3),
    "dict": lambda column: Batch.from_arrow({"event": column}),
    "dict of arrays": lambda column: Batch.from_arrow({"event": column.to_arrow()}),
    "dict of chunks": lambda column: Batch.from_arrow({"event": pa.chunked_array([column.to_arrow()])}),
    "table": lambda column: Batch.from_arrow(pa.table({"event": column})),
    "c_array": lambda column: Batch.from_arrow({"event": CArray(column)}),
    "pyarrow's stream": lambda column: arrow_file(pa.table({"event": column})),
    "stream of a dict": lambda column: bowstring_file({"event": column}),
    "stream of a table": lambda column: bowstring_file(pa.table({"event": column})),
    "parquet": lambda column: parquet_file(pa.table({"event": column})),
    "parquet of a batch": lambda column: parquet_file(pa.table(Batch.from_arrow({"event": column}))),
}


class CArray:
    """Another library's array: nothing but the PyCapsule interface."""

    def __init__(self, column: Column) -> None:
        self._column = column

    def __arrow_c_schema__(self) -> Any:
        return self._column.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._column.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("way", WAYS)
def test_a_variant_stays_one(way: str) -> None:
    """A Variant column that went this way is one: ``variant.get`` and its kin take it without ``plain=True``."""
    found = WAYS[way](variant.from_python(ROWS))
    assert variant.to_python(found) == ROWS
    assert variant.get(found, "$.a", pa.int64()).to_arrow().to_pylist() == [1, None, None]


@pytest.mark.parametrize("given", ["column", "array", "table"])
def test_published_variants_are_marked(given: str) -> None:
    """A published Variant reaches the reader marked, by the name of Arrow's specification where it has a field."""
    column = variant.from_python(ROWS)
    data: Any = {"event": column}
    if given == "array":
        data = {"event": column.to_arrow()}
    elif given == "table":
        data = pa.table(data)
    with bow.Server() as server, bow.connect(server.publish("ev", data)) as stream:
        [batch] = stream
        assert variant.to_python(batch["event"]) == ROWS
        if given != "table":
            assert batch["event"].field.metadata[NAME] == CANONICAL
        again = batch["event"].to_arrow()
    assert variant.to_python(again) == ROWS


def test_from_a_device() -> None:
    """A Variant column on a device becomes a marked array of the host."""
    column = variant.from_python(ROWS).as_batch().to_device(fake_device())[0]
    assert variant.to_python(column.to_arrow()) == ROWS


def test_the_fields_of_other_columns_keep_their_metadata() -> None:
    """Whatever the metadata of a column's field are, a dict of that column has them."""
    field = pa.field("shape", pa.binary(), metadata={NAME: b"geoarrow.wkb", b"more": b"here"})
    batch = Batch.from_arrow(pa.record_batch([pa.array([b"x"])], schema=pa.schema([field])))
    found = Batch.from_arrow({"where": batch["shape"]})
    assert found.schema.field("where").metadata == field.metadata
    assert found.schema.field("where").type == pa.binary()


def test_storage() -> None:
    """The struct of a Variant's array is its storage, over the same memory; plain structs stay plain."""
    column = variant.from_python(ROWS)
    array = column.to_arrow()
    assert array.storage.type == column.type
    assert (
        array.storage.field("value").buffers()[2].address
        == column.child("value").to_arrow().buffers()[2].address
    )
    plain = Batch.from_arrow({"event": array.storage})["event"]
    assert plain.to_arrow().type == column.type
    assert not hasattr(plain, "__arrow_array__")


def test_writing_parquet_does_not_end_the_process() -> None:
    """The Parquet writer of pyarrow takes a Variant's array: of one of the two names it would end the process."""
    code = (
        "import io, pyarrow as pa, pyarrow.parquet as pq; from bowstring import variant;"
        "pq.write_table(pa.table({'event': variant.from_python([1])}), io.BytesIO())"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
