"""What is checked of batches that come: every element from elsewhere, structure from processes of the same user."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import bowstring as bow
from bowstring.testing import fake_device
from tests.client_server.conftest import PATIENCE, until

TRUSTED = ("unix:", "inproc:")
GOOD = pa.array(["a", "bc", "def"])


def words(dtype: str, *values: int) -> pa.Buffer:
    """Return a buffer of integers."""
    return pa.py_buffer(np.array(values, dtype).tobytes())


def columns() -> dict[str, pa.Array]:
    """Return columns whose structure is right, and whose second row is wrong."""
    two = pa.array([1, 2])
    return {
        "offsets": pa.StringArray.from_buffers(3, words("i4", 0, 1, 99, 3), pa.py_buffer(b"abc")),
        "text": pa.StringArray.from_buffers(3, words("i4", 0, 1, 2, 3), pa.py_buffer(b"a\xffc")),
        "views": pa.Array.from_buffers(
            pa.string_view(), 3, [None, words("u4", 1, 97, 0, 0, 40, 0, 5, 7, 0, 0, 0, 0), pa.py_buffer(b"x")]
        ),
        "lists": pa.Array.from_buffers(
            pa.list_(pa.int64()), 3, [None, words("i4", 0, 2, -5, 2)], children=[two]
        ),
        "list views": pa.Array.from_buffers(
            pa.list_view(pa.int64()), 3, [None, words("i4", 0, 7, 0), words("i4", 1, 1, 1)], children=[two]
        ),
        "indices": pa.DictionaryArray.from_buffers(
            pa.dictionary(pa.int16(), pa.int64()), 3, [None, words("i2", 0, 600, 1)], two
        ),
        "ids": pa.Array.from_buffers(
            pa.sparse_union([pa.field("0", pa.int64())]),
            3,
            [None, words("i1", 0, 9, 0)],
            children=[pa.array([1, 2, 3])],
        ),
    }


class Flights(flight.FlightServerBase):
    """A Flight server of somebody else's, with one flight."""

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        schema = pa.schema([("offsets", pa.string())])
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint("t", [])], -1, -1)

    def do_get(self, context: Any, ticket: Any) -> Any:
        return flight.RecordBatchStream(pa.table({"offsets": columns()["offsets"]}))


def batch_of(*names: str) -> bow.Batch:
    """Return a batch of a good column and some of the wrong ones."""
    return bow.Batch.from_arrow({"good": GOOD, **{name: columns()[name] for name in names}})


@pytest.mark.parametrize("validate", [None, "full", "structure"])
def test_where_data_come_from_decides_what_is_checked(
    server: bow.Server, address: str, *, validate: Any
) -> None:
    """Elements are checked unless a process of the same user mapped the memory, or the reader says otherwise."""
    endpoint = server.publish("t", batch_of("offsets"))
    full = validate == "full" or (validate is None and address not in TRUSTED)
    with bow.connect(endpoint, options=bow.ConnectOptions(validate=validate), limits=PATIENCE) as stream:
        if not full:
            [batch] = stream
            assert batch.validated == "structure"
            return
        with pytest.raises(bow.InvalidData, match=r"start 1, end 99; at offsets, row 1"):
            stream.read_next_batch()
    with bow.connect(
        endpoint, options=bow.ConnectOptions(validate=validate), columns=["good"], limits=PATIENCE
    ) as stream:
        [batch] = stream
        assert batch.validated == "full"
        assert batch["good"].to_pylist() == GOOD.to_pylist()


@pytest.mark.parametrize("name", columns())
def test_each_kind_of_element_is_checked(serve: Callable[..., bow.Server], name: str) -> None:
    """The error names the column, and where kernels run the row; what is shown of the batch is that error."""
    endpoint = serve("tcp://127.0.0.1:0").publish("t", batch_of(name))
    with bow.connect(endpoint) as stream, pytest.raises(bow.InvalidData) as caught:
        list(stream)
    assert (caught.value.where or "").startswith(name)
    assert "row 1" in (caught.value.where or "") or "slot 1" in (caught.value.where or "")
    with bow.connect(endpoint, options=bow.ConnectOptions(validate="structure")) as stream:
        shown = stream._repr_html_()
        [batch] = stream
    assert caught.value.what in shown or "batches read" in shown
    assert caught.value.what in batch._repr_html_()
    assert "<table>" in batch.slice(0, 1)._repr_html_() or name in ("lists", "list views")
    assert f"'{name}'" in repr(batch[name])


def test_values_that_lead_nowhere_are_delivered(serve: Callable[..., bow.Server]) -> None:
    """Times beyond a day, days with a rest and too many digits come as they are; `validate` refuses them."""
    odd = {
        "time": pa.Array.from_buffers(pa.time32("s"), 3, [None, words("i4", 0, 86_400, 1)]),
        "date": pa.Array.from_buffers(pa.date64(), 3, [None, words("i8", 0, 5, 86_400_000)]),
        "decimal": pa.Array.from_buffers(pa.decimal64(3, 0), 3, [None, words("i8", 1, 5_000, 2)]),
    }
    server = serve("tcp://127.0.0.1:0")
    for name, array in odd.items():
        for columns in ({name: array}, {name: array, "text": GOOD}):
            with bow.connect(server.publish("t", columns, replace=True)) as stream:
                [batch] = stream
            assert batch.validated == "full"
            assert batch.to_arrow().column(0).equals(array)
            with pytest.raises(bow.InvalidData, match=f"{name}, row 1"):
                batch.validate(full=True)


def test_rows_that_are_not_shown_are_not_checked() -> None:
    """A display looks at its rows alone, also inside of lists, and says what is wrong with them."""
    offsets = words("i4", *range(20), 400, 21)
    text = pa.StringArray.from_buffers(21, offsets, pa.py_buffer(b"x" * 21))
    lists = pa.ListArray.from_arrays(pa.array(range(22), pa.int32()), text)
    batch = bow.Batch.from_arrow({"t": text, "l": lists})
    assert "<table>" in batch._repr_html_()
    assert "<table>" not in batch.slice(15)._repr_html_()
    assert batch.validated == "structure"


def test_what_comes_of_a_batch_is_as_valid(serve: Callable[..., bow.Server]) -> None:
    """Slices, selections and copies keep what was checked; a batch of one's own begins with its structure."""
    batch = bow.Batch.from_arrow({"a": GOOD, "d": GOOD.dictionary_encode()})
    assert batch.validated == "structure"
    batch.validate()
    assert batch.validated == "structure"
    with bow.connect(serve("tcp://127.0.0.1:0").publish("t", batch)) as stream:
        [came] = stream
    batch.validate(full=True)
    for each in (batch, came):
        moved = each.to_device(fake_device())
        parts = (each.slice(1, 1), each.select(["d"]), each["a"].as_batch(), moved)
        assert {part.validated for part in (each, *parts, moved.to_device("cpu"))} == {"full"}


def test_a_stream_ends_with_what_is_wrong(serve: Callable[..., bow.Server], address: str) -> None:
    """Batches before it are delivered and stay true, it is raised again, and holds none of its memory."""
    good, bad = batch_of(), bow.Batch.from_arrow({"good": columns()["offsets"]})
    server = serve(address)
    endpoint = server.publish("t", [good, bad, good])
    stream = bow.connect(endpoint, options=bow.ConnectOptions(validate="full"), limits=PATIENCE)
    first = next(stream)
    with pytest.raises(bow.InvalidData) as caught:
        next(stream)
    with pytest.raises(bow.InvalidData, match="row 1"):
        next(stream)
    stream.close()
    with pytest.raises(bow.ClosedError):
        next(stream)
    assert caught.value.where == "good, row 1"
    assert first["good"].to_pylist() == GOOD.to_pylist()
    del first
    server.withdraw("t")
    until(lambda: server.pool.stats.in_use == 0)  # though the error is kept


def test_readers_of_every_kind(serve: Callable[..., bow.Server]) -> None:
    """get, connect_async, a data set of many endpoints and Arrow Flight check, and take the same choice."""
    server = serve("tcp://127.0.0.1:0")
    good, bad = (
        server.publish("good", batch_of()),
        server.publish("bad", batch_of("offsets").select(["offsets"])),
    )

    async def rows(validate: Any) -> int:
        async with bow.connect_async(bad, options=bow.ConnectOptions(validate=validate)) as stream:
            return sum([len(batch) async for batch in stream])

    def flown(validate: Any) -> int:
        with Flights("grpc://127.0.0.1:0") as flights:
            uri = f"grpc://127.0.0.1:{flights.port}/t"
            with bow.connect(uri, options=bow.ConnectOptions(validate=validate)) as stream:
                assert stream.stats.path == "flight: packed"
                return stream.read_all().num_rows

    def of_many(validate: Any) -> int:
        several = bow.Dataset((bad, bad), batch_of("offsets").select(["offsets"]).schema)
        with bow.connect(several, options=bow.ConnectOptions(validate=validate)) as stream:
            return sum(len(batch) for batch in stream)

    readers: list[Callable[[Any], int]] = [
        lambda validate: bow.get(bad, validate=validate).num_rows,
        lambda validate: asyncio.run(rows(validate)),
        flown,
        of_many,
    ]
    for reader in readers:
        assert reader("structure") in (3, 6)
        for validate in (None, "full"):
            with pytest.raises(bow.InvalidData, match="row 1"):
                reader(validate)
    with (
        pytest.raises(bow.InvalidData, match="partition 1, good"),
        bow.connect(
            bow.Dataset((good, server.publish("worse", {"good": columns()["offsets"]})), batch_of().schema)
        ) as stream,
    ):
        list(stream)


def test_dictionaries_are_checked_once(serve: Callable[..., bow.Server]) -> None:
    """A dictionary that batches share is checked with the first of them, and every index with its batch."""
    shared = pa.array(["x", "y"])
    batches = [
        pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int8()), shared)})
        for _ in range(3)
    ]
    wrong = pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int8(), pa.string()), 3, [None, words("i1", 0, 2, 1)], shared
    )
    server = serve("tcp://127.0.0.1:0")
    endpoint = server.publish("t", pa.Table.from_batches([*batches, pa.record_batch({"d": wrong})]))
    with bow.connect(endpoint) as stream:
        first = next(stream)
        assert first.dictionaries[0].values.validated == "full"
        later = next(stream)
        assert later.dictionaries[0] is first.dictionaries[0]
        next(stream)
        with pytest.raises(bow.InvalidData, match=r"outside the dictionary.*row 1"):
            next(stream)


def test_decoded_batches_are_checked(serve: Callable[..., bow.Server]) -> None:
    """Columns that are decoded after they came are checked as what they came in."""
    data = pa.record_batch({"t": columns()["text"], "v": GOOD.cast(pa.string_view())})
    sink = io.BytesIO()
    with bow.vortex.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    messages = bow.vortex.to_messages(bow.vortex.open_stream(sink.getvalue())).read_all()
    endpoint = serve("tcp://127.0.0.1:0").publish("t", messages)
    with bow.connect(endpoint, options=bow.ConnectOptions(decode="device"), columns=["v"]) as stream:
        [batch] = stream
    assert (batch.validated, batch["v"].to_pylist()) == ("full", GOOD.to_pylist())
    with bow.connect(endpoint, options=bow.ConnectOptions(decode="device", validate="structure")) as stream:
        [batch] = stream
    assert batch.validated == "structure"
    with (
        bow.connect(endpoint, options=bow.ConnectOptions(decode="device")) as stream,
        pytest.raises(bow.InvalidData, match="t, row 1"),
    ):
        list(stream)


def test_a_device_checks_what_is_on_it() -> None:
    """Batches that lie on a device are checked there, or on the host where no kernels run."""
    for name in columns():
        batch = batch_of(name).to_device(fake_device())
        with pytest.raises(bow.InvalidData) as caught:
            batch.validate(full=True)
        assert (caught.value.where or "").startswith(name)


@pytest.mark.parametrize("validate", ["none", "FULL", True, 1], ids=repr)
def test_there_are_two_choices(validate: Any) -> None:
    """Anything else is refused before anybody is asked."""
    with pytest.raises(bow.UsageError, match="'full' or 'structure'"):
        bow.connect("unix:/nowhere.sock?want_data=1&ticket=dA", options=bow.ConnectOptions(validate=validate))
