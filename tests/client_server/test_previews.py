"""What streams, endpoints, data sets and listings show of themselves, in consoles and notebooks."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given

import bowstring as bow
from bowstring.memory import Pool
from tests.client_server.conftest import come_home
from tests.strategies import schemas

TABLE = pa.table({"fare": [1.5, 2.5], "city": ["<b>Bern", None]})


@pytest.fixture
def server() -> Iterator[bow.Server]:
    """Return a server of one small table."""
    pool = Pool(budget=64 << 20)
    with bow.Server(pool=pool) as server:
        server.publish("trips", TABLE)
        yield server
    come_home(pool)


def endpoint_of(server: bow.Server) -> bow.Endpoint:
    """Return the endpoint of the table."""
    return bow.Endpoint(server.publish("fares", TABLE).uri, b"fares")


def sources(server: bow.Server) -> dict[str, Any]:
    """Return everything that a notebook may show of the table."""
    endpoint = endpoint_of(server)
    return {
        "endpoint": endpoint,
        "dataset": bow.Dataset((endpoint, endpoint), TABLE.schema, 4, 2 * TABLE.nbytes),
        "stream": bow.connect(endpoint),
    }


@pytest.mark.parametrize("kind", ["endpoint", "dataset", "stream"])
def test_notebooks_show_schema_rows_size_and_path(server: bow.Server, kind: str) -> None:
    """The columns with their types, the first rows with markup escaped, rows, bytes, and how they come."""
    shown = sources(server)[kind]
    html = shown._repr_html_()
    for part in ("fare", "double", "city", "string", "1.5", "&lt;b&gt;Bern", "rows", "bytes", "unix: mapped"):
        assert part in html
    assert "<b>" not in html


def test_values_are_shown_as_people_write_them() -> None:
    """Text without quotes, times by ISO 8601, nulls as such, nested values by their names; markup is escaped."""
    moment = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
    rows = [
        {
            "text": "<i>Chur",
            "moment": moment,
            "day": moment.date(),
            "bytes": b"\x01\xff",
            "nested": {"a": [1, None]},
        },
        {"text": None, "moment": None, "day": None, "bytes": bytes(100), "nested": None},
    ]
    batch = bow.Batch.from_arrow(pa.RecordBatch.from_pylist(rows))
    cells = re.findall("<td>(.*?)</td>", batch._repr_html_())
    written = ["&lt;i&gt;Chur", "2026-01-02 03:04:00+00:00", "2026-01-02", "01 ff", "{a: [1, null]}"]
    assert cells == [*written, *(["<i>null</i>"] * 3), "00 " * 15 + "00…", "<i>null</i>"]
    assert re.findall("<td>(.*?)</td>", batch["nested"]._repr_html_()) == [cells[4], cells[9]]
    assert re.findall("<td>(.*?)</td>", batch["nested"].child("a").children[0]._repr_html_()) == [
        "1",
        "<i>null</i>",
    ]


def test_of_a_long_value_only_the_beginning_is_made_to_objects() -> None:
    """A list of a million values takes no more memory to be shown than a short one, however it is nested."""
    lists = pa.LargeListArray.from_arrays(pa.array([0, 1_000_000]), pa.nulls(1_000_000))
    nested = pa.LargeListArray.from_arrays(pa.array([0, 1]), lists)
    within = pa.StructArray.from_arrays([lists, lists], names=["a", "a"])
    batch = bow.Batch.from_arrow(pa.record_batch({"lists": lists, "nested": nested, "within": within}))
    batch.slice(0, 1)._repr_html_()  # which imports what it needs
    tracemalloc.start()
    try:
        cells = re.findall("<td>(.*?)</td>", batch._repr_html_())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [cell[:9] for cell in cells] == ["[null, nu", "[[null, n", "{a: [null"]
    assert peak < 1 << 20


def test_how_many_rows_are_not_shown_is_said() -> None:
    """Below ten rows of more stands how many there are in all; below a whole table nothing."""
    with bow.Server() as server:
        endpoint = server.publish("numbers", [{"n": range(2000)}, {"n": range(1000)}])
        with bow.connect(endpoint) as stream:
            batch = stream.read_next_batch()
        assert "10 of 3,000 rows" in endpoint._repr_html_()
    assert "10 of 2,000 rows" in batch._repr_html_()
    assert "10 of 2,000 rows" in batch["n"]._repr_html_()
    assert "rows</p>" not in batch.slice(0, 10)._repr_html_()


def test_listings_and_statistics_are_tables(server: bow.Server) -> None:
    """What a server offers has a line for each data set, what was counted one for each count."""
    server.publish("<zones>", {"id": range(3000)})
    infos: Any = bow.list_datasets(server.address)
    assert infos == list(infos)
    assert [re.findall("<td>(.*?)</td>", line)[:2] for line in infos._repr_html_().split("<tr>")[2:]] == [
        ["&lt;zones&gt;", "3,000"],
        ["trips", "2"],
    ]
    with bow.connect(server.address, "<zones>") as stream:
        stream.read_all()
        assert "<td>rows</td><td>3,000</td>" in stream.stats._repr_html_()
    assert "<td>connections</td>" in server.stats._repr_html_()


@pytest.mark.parametrize("kind", ["endpoint", "dataset", "stream"])
def test_reprs_are_one_short_line(server: bow.Server, kind: str) -> None:
    """They name the data, and neither tickets of the protocol nor whole schemas."""
    text = repr(sources(server)[kind])
    assert "\n" not in text
    assert len(text) < 160
    assert "want_data" not in text


def test_listings_are_short(server: bow.Server) -> None:
    """What a server offers prints as one line for each data set."""
    [info] = bow.list_datasets(server.address)
    assert repr(info) == f"<DatasetInfo 'trips' 2 rows × 2 columns, {info.nbytes} bytes, 0 readers>"


def test_what_is_shown_is_still_to_be_read(server: bow.Server) -> None:
    """A stream that was shown has all its batches, also one that is awaited, and a generator was not begun."""
    begun = threading.Event()

    def generate() -> Iterator[pa.RecordBatch]:
        begun.set()
        yield from TABLE.to_batches()

    with bow.connect(endpoint_of(server)) as stream:
        stream._repr_html_()
        assert stream.to_arrow().equals(TABLE)
        assert "2 rows" in stream._repr_html_()

    async def work() -> pa.Table:
        async with bow.connect_async(endpoint_of(server)) as stream:
            assert "1.5" in stream._repr_html_()
            return await stream.to_arrow()

    server.withdraw("fares")
    assert asyncio.run(work()).equals(TABLE)
    lazy = server.publish("lazy", generate(), schema=TABLE.schema)
    html = lazy._repr_html_()
    assert "fare" in html
    assert "1.5" not in html
    assert not begun.is_set()
    assert bow.get(lazy).equals(TABLE)


def test_a_server_that_is_gone() -> None:
    """An endpoint whose server ended says so, and raises nothing."""
    with bow.Server() as server:
        endpoint = server.publish("trips", TABLE)
    html = endpoint._repr_html_()
    assert "trips" in html
    assert "nobody listens" in html


def test_conversions_of_a_data_set(server: bow.Server) -> None:
    """A data set of endpoints is read to its end, and converted as pyarrow converts it."""
    endpoint = endpoint_of(server)
    dataset = bow.Dataset((endpoint, endpoint), TABLE.schema)
    whole = pa.concat_tables([TABLE, TABLE])
    assert dataset.to_arrow().equals(whole)
    pd.testing.assert_frame_equal(dataset.to_pandas(), whole.to_pandas())
    assert dataset.to_polars().equals(pl.from_arrow(whole))
    assert dataset.to_pylist() == whole.to_pylist()


def test_a_table_without_rows_is_shown(server: bow.Server) -> None:
    """Of a table without rows its columns are shown, whatever types are inside of them."""
    inner = pa.struct([("j", pa.json_()), ("i", pa.month_day_nano_interval())])
    shown = server.publish("none", pa.table({"column": pa.nulls(0, inner)}))._repr_html_()
    assert "column" in shown
    assert "0 rows" in shown


@example(schema=pa.schema({"c": pa.list_(pa.run_end_encoded(pa.int16(), pa.int32()))}))
@given(schema=schemas())
def test_data_without_batches_are_shown(schema: pa.Schema) -> None:
    """A data set that has no batches is shown, whatever its types."""
    with bow.Server("inproc:") as own:
        endpoint = own.publish("nothing", lambda: iter(()), schema=schema)
        assert endpoint._repr_html_().startswith("<p>")
        with bow.connect(endpoint) as stream:
            assert stream._repr_html_().startswith("<p>")


def test_variants_are_shown_as_json(server: bow.Server) -> None:
    """In the console a Variant column shows its first rows as JSON, in a notebook a batch shows them so."""
    column = bow.variant.from_json(['{"a": [1, 2]}', "null", None, "3", "4"])
    assert repr(column) == "<Column 'variant' 5 × variant on cpu: {\"a\":[1,2]}, null, None, …>"
    endpoint = server.publish("events", {"event": column})
    with bow.connect(endpoint) as stream:
        html = next(stream)._repr_html_()
    assert "variant" in html
    assert "{&quot;a&quot;:[1,2]}" in html


def test_variants_that_are_not_shown_are_not_checked() -> None:
    """A row that is wrong, behind those that the console shows, hides nothing of them."""
    text = pa.array(["x0", "x1", "x2", "x3", "é"])
    wrong = pa.py_buffer(text.buffers()[2].to_pybytes().replace("é".encode(), b"\xff\xff"))
    texts = pa.Array.from_buffers(pa.string(), 5, [None, text.buffers()[1], wrong])
    nothing = pa.nulls(5, pa.binary())
    elements = pa.StructArray.from_arrays([nothing, texts], names=["value", "typed_value"])
    metadata = pa.array([b"\x01\0\0"] * 5)
    for typed, shown in ((texts, '"x0", "x1", "x2", …'), (_lists(elements), '["x0"], ["x1"], ["x2"], …')):
        array = pa.StructArray.from_arrays(
            [metadata, nothing, typed], names=["metadata", "value", "typed_value"]
        )
        field = pa.field("v", array.type, metadata={"ARROW:extension:name": "arrow.parquet.variant"})
        batch = bow.Batch.from_arrow(pa.record_batch([array], schema=pa.schema([field])))
        assert repr(batch["v"]) == f"<Column 'v' 5 × variant on cpu: {shown}>"


def _lists(elements: pa.Array) -> pa.Array:
    """Return lists of one element each."""
    return pa.ListArray.from_arrays(pa.array(range(len(elements) + 1), pa.int32()), elements)


def test_names_that_are_not_offered(server: bow.Server) -> None:
    """Whoever names a data set that is not there is told which is the nearest, in each call that takes a name."""
    for call in (
        lambda: bow.connect(server.address, "trip"),
        lambda: server.withdraw("trip"),
        lambda: server.wait_released("trip", timeout=1.0),
    ):
        with pytest.raises(bow.UnknownTicket, match="Did you mean 'trips'"):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda endpoint, limits: bow.connect(endpoint, limits=limits).close(),
        lambda endpoint, limits: bow.list_datasets(str(endpoint), limits=limits),
        lambda endpoint, limits: bow.Server(limits=limits).close(),
        lambda endpoint, limits: bow.variant.from_json(["1"], limits=limits),
    ],
)
def test_limits_by_default(server: bow.Server, call: Any) -> None:
    """`limits` is None by default, and anything but `Limits` is an error of the caller's."""
    endpoint = endpoint_of(server)
    call(endpoint, None)
    call(endpoint, bow.DEFAULT_LIMITS)
    with pytest.raises(bow.UsageError, match="limits"):
        call(endpoint, 3)
