"""Takes columns with arbitrary bytes under their nulls through every exit, and says each pair before it is tried.

What comes out must be what comes out of the same columns with zeros there. A crash ends this process.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import flight

import bowstring as bow
from bowstring.cli import main

ROWS = 41
VALID = np.arange(ROWS) % 3 != 1
BITS = pa.py_buffer(np.packbits(VALID, bitorder="little").tobytes())
LONG = b"a text that is longer than twelve bytes"

Under = Callable[[Any], None]  # writes into the null slots of an array, shape (nulls, bytes)


def zeros(slots: Any) -> None:
    """Leave zeros under the nulls."""
    slots[:] = 0


def filled(byte: int, slots: Any) -> None:
    """Fill the null slots with a byte."""
    slots[:] = byte


def drawn(seed: int, slots: Any) -> None:
    """Fill the null slots with random bytes, and the last of each with one of few."""
    rng = np.random.default_rng(seed)
    slots[:] = rng.integers(0, 256, slots.shape, np.uint8)
    slots[:, -1] = rng.choice(np.array([0, 0x3F, 0x7F, 0x80, 0xFF], np.uint8), len(slots))


def huge(slots: Any) -> None:
    """Let views have a size of 2 GiB and more, and indices lead far away."""
    slots[:] = 0
    slots[:, : 4 : max(slots.shape[1] // 4, 1)] = 0xD6
    slots[:, -1] = 0x3F


UNDERS: dict[str, Under] = {
    "ones": functools.partial(filled, 0xFF),
    "huge": huge,
    **{f"drawn {seed}": functools.partial(drawn, seed) for seed in range(2)},
}


def slotted(slots: Any, under: Under) -> pa.Buffer:
    """Return slots as a buffer, with something else under the nulls."""
    raw = np.ascontiguousarray(slots).view(np.uint8).reshape(ROWS, -1).copy()
    null = raw[~VALID]
    under(null)
    raw[~VALID] = null
    return pa.py_buffer(raw.tobytes())


def views(type_: pa.DataType, under: Under) -> pa.Array:
    """Return views, of which some lie outside."""
    slots = np.zeros((ROWS, 4), np.uint32)
    slots[:] = [len(LONG), int.from_bytes(LONG[:4], "little"), 0, 0]
    slots[::2] = [3, int.from_bytes(b"xyz", "little"), 0, 0]
    return pa.Array.from_buffers(type_, ROWS, [BITS, slotted(slots, under), pa.py_buffer(LONG)])


def numbers(type_: pa.DataType, dtype: str, under: Under, unit: int = 1) -> pa.Array:
    """Return a column of a fixed width."""
    return pa.Array.from_buffers(
        type_, ROWS, [BITS, slotted(np.arange(ROWS).astype(dtype) % 5 * unit, under)]
    )


def wide(type_: pa.DataType, width: int, under: Under) -> pa.Array:
    """Return a column of wide slots."""
    slots = np.zeros((ROWS, width), np.uint8)
    slots[:, 0] = np.arange(ROWS) % 7
    return pa.Array.from_buffers(type_, ROWS, [BITS, slotted(slots, under)])


def encoded(type_: pa.DataType, dtype: str, under: Under, values: pa.Array) -> pa.Array:
    """Return a dictionary-encoded column."""
    indices = pa.Array.from_buffers(type_, ROWS, [BITS, slotted((np.arange(ROWS) % 2).astype(dtype), under)])
    return pa.DictionaryArray.from_buffers(pa.dictionary(type_, values.type), ROWS, indices.buffers(), values)


def segments(type_: pa.DataType, *, empty: bool) -> pa.Array:
    """Return text or lists whose null slots have bytes or elements, or none."""
    sizes = np.where(VALID | (not empty), 2, 0)
    offsets = pa.py_buffer(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32).tobytes())
    total = int(sizes.sum())
    if pa.types.is_list(type_):
        children = [pa.array([7] * total, type_.value_type)]
        return pa.Array.from_buffers(type_, ROWS, [BITS, offsets], children=children)
    return pa.Array.from_buffers(type_, ROWS, [BITS, offsets, pa.py_buffer("é".encode() * (total // 2))])


def list_views(type_: pa.DataType, *, empty: bool) -> pa.Array:
    """Return list views, whose null slots are views of elements or of none."""
    sizes = np.where(VALID | (not empty), 2, 0).astype(np.int32)
    # They rise: of those that do not, pyarrow's casts drop elements.
    starts = np.arange(0, 2 * ROWS, 2).astype(np.int32)
    buffers = [BITS, pa.py_buffer(starts.tobytes()), pa.py_buffer(sizes.tobytes())]
    return pa.Array.from_buffers(type_, ROWS, buffers, children=[pa.array(range(2 * ROWS), type_.value_type)])


def union_under(*, first: bool) -> pa.Array:
    """Return a struct of a union, whose ids under null structs are of one child or of another."""
    ids = np.where(VALID, np.arange(ROWS) % 2, 0 if first else 1).astype(np.int8)
    union = pa.UnionArray.from_sparse(
        pa.array(ids), [pa.array(range(ROWS), pa.int32()), pa.array(["t"] * ROWS)]
    )
    return pa.StructArray.from_arrays([union], ["u"], mask=pa.array(~VALID))


def columns(under: Under) -> Iterator[tuple[str, pa.Array]]:
    """Yield a column of each type."""
    clean = under is zeros
    text, binary = views(pa.string_view(), under), views(pa.binary_view(), under)
    words = pa.array(["one", "two"])
    yield "string_view", text
    yield "binary_view", binary
    yield "list of views", pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), text)
    yield "struct of views", pa.StructArray.from_arrays([text, binary], ["t", "b"])
    yield "views as dictionary", encoded(pa.int16(), "i2", zeros, text)
    for width in (1, 2, 4, 8):
        yield f"dictionary i{width}", encoded(getattr(pa, f"int{8 * width}")(), f"i{width}", under, words)
        yield f"dictionary u{width}", encoded(getattr(pa, f"uint{8 * width}")(), f"u{width}", under, words)
    yield (
        "list of dictionary",
        pa.ListArray.from_arrays(
            pa.array(range(ROWS + 1), pa.int32()), encoded(pa.int32(), "i4", under, words)
        ),
    )
    for type_ in (pa.string(), pa.binary(), pa.list_(pa.int32())):
        yield f"offsets of {type_}", segments(type_, empty=clean)
    yield "list_view", list_views(pa.list_view(pa.int64()), empty=clean)
    yield "union under a struct", union_under(first=clean)
    yield "int64", numbers(pa.int64(), "i8", under)
    yield "float64", numbers(pa.float64(), "f8", under)
    yield "float16", numbers(pa.float16(), "f2", under)
    yield "date32", numbers(pa.date32(), "i4", under)
    yield "date64", numbers(pa.date64(), "i8", under, 86_400_000)
    yield "time32", numbers(pa.time32("ms"), "i4", under)
    yield "time64", numbers(pa.time64("us"), "i8", under)
    yield "timestamp", numbers(pa.timestamp("us", "UTC"), "i8", under)
    yield "duration", numbers(pa.duration("s"), "i8", under)
    yield "decimal32", numbers(pa.decimal32(5, 2), "i4", under)
    yield "decimal64", numbers(pa.decimal64(9, 2), "i8", under)
    yield "decimal128", wide(pa.decimal128(5, 2), 16, under)
    yield "decimal256", wide(pa.decimal256(5, 2), 32, under)
    yield "interval", wide(pa.month_day_nano_interval(), 16, under)
    yield "fixed_size_binary", wide(pa.binary(5), 5, under)
    yield "uuid", pa.ExtensionArray.from_storage(pa.uuid(), wide(pa.binary(16), 16, under))


_NO_POLARS = {"union under a struct", "decimal256", "interval"}  # it panics, whatever these hold
CASTS = (
    *(pa.string(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view(), pa.int64()),
    *(pa.list_(pa.large_string()), pa.struct([("t", pa.string()), ("b", pa.binary())]), pa.date64()),
    *(pa.dictionary(pa.int32(), pa.string()), pa.decimal128(30, 2), pa.timestamp("ms", "UTC")),
)


def computed(array: pa.Array) -> list[Any]:
    """Return what pyarrow's functions make of an array."""
    other = array.take(pa.array([0, 3], pa.int32()))
    if isinstance(array, pa.DictionaryArray):
        other = pa.DictionaryArray.from_arrays(
            pa.array([0, 1], array.type.index_type), pa.array(["two", "new"], array.type.value_type)
        )
    chunks = pa.chunked_array([other, array], array.type)
    calls: list[Callable[[], Any]] = [
        *(functools.partial(array.cast, type_) for type_ in CASTS),
        lambda: chunks.unify_dictionaries().combine_chunks(),
        lambda: pa.table({"c": chunks}).to_pandas(),
        lambda: pa.concat_arrays([array, array]),
        lambda: array.take(pa.array([1, 2, ROWS - 1])),
        lambda: array.filter(pa.array([True, True] + [False] * (ROWS - 2))),
        array.drop_null,
        array.unique,
        array.dictionary_encode,
        array.sort,
    ]
    if "union" in str(array.type):  # most of these end the process for unions, whatever these hold
        calls = calls[: len(CASTS) + 4]
    return [outcome(each) for each in calls]


def written(batch: bow.Batch) -> list[Any]:
    """Return what pyarrow and Bowstring read of the Parquet and Arrow files of a batch."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.parquet")

        def parquet(write: Callable[[Any, Path], Any], data: Any) -> Any:
            write(data, path)
            return pq.read_table(path)

        found = [
            outcome(lambda: parquet(bow.parquet.write, batch)),
            outcome(lambda: parquet(pq.write_table, pa.table(batch))),
        ]
    sink = io.BytesIO()
    with bow.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    found.append(outcome(lambda: bow.ipc.open_stream(sink.getvalue()).read_all().to_pylist()))
    return found


def as_vortex(batch: bow.Batch, *, compress: bool) -> Any:
    """Return what comes of a Vortex stream."""
    sink = io.BytesIO()
    with bow.vortex.new_stream(sink, batch.schema, compress=compress) as writer:
        writer.write_batch(batch)
    table = bow.vortex.open_stream(sink.getvalue()).read_all()
    return [table.to_pylist(), *(outcome(functools.partial(table.column(0).cast, each)) for each in CASTS)]


EXITS: dict[str, Callable[[bow.Batch], Any]] = {
    "to_pandas": lambda batch: batch.to_pandas(),
    "Column.to_pandas": lambda batch: batch[0].to_pandas(),
    "to_polars": lambda batch: None if _NO_POLARS & set(batch.column_names) else batch.to_polars().rows(),
    "to_pylist": lambda batch: batch.to_pylist(),
    "to_numpy": lambda batch: batch[0].to_numpy(zero_copy_only=False).tolist(),
    "html": lambda batch: batch._repr_html_().partition("<table>")[2],
    "iteration": lambda batch: [each.as_py() for each in batch[0]],
    "equals": lambda batch: batch.equals(batch),
    "to_arrow": lambda batch: computed(batch.to_arrow().column(0)),
    "Column.to_arrow": lambda batch: computed(batch[0].to_arrow()),
    "capsule": lambda batch: computed(pa.record_batch(batch).column(0)),
    "slice": lambda batch: computed(batch.slice(3, 30).to_arrow().column(0)),
    "files": written,
    "vortex": functools.partial(as_vortex, compress=False),
    "vortex compressed": functools.partial(as_vortex, compress=True),
    "validate": lambda batch: batch.validate(full=True),
}


def outcome(call: Callable[[], Any]) -> str:
    """Return what a call gives as text, or the kind of its error."""
    try:
        found = call()
    except Exception as error:  # noqa: BLE001  the same error is the same outcome
        return type(error).__name__
    if isinstance(found, pa.Array | pa.ChunkedArray | pa.Table):
        return repr([outcome(found.to_pylist), str(getattr(found, "type", ""))])
    return found.to_string() if hasattr(found, "to_string") else repr(found)


class Flights(flight.FlightServerBase):
    """A Flight server of somebody else's, with one flight."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.table = table

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        return flight.FlightInfo(self.table.schema, descriptor, [flight.FlightEndpoint("t", [])], -1, -1)

    def do_get(self, context: Any, ticket: Any) -> Any:
        return flight.RecordBatchStream(self.table)


def over(address: str, tables: dict[str, pa.Table]) -> Iterator[tuple[str, str]]:
    """Yield what comes out of tables that a server sends."""
    token = None if address == "unix:" else "t" * 16
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(bow.Server(address, token=token))
        for name, table in tables.items():
            endpoint = server.publish(name, table)
            for shape in ("to_pandas", "to_pylist", "to_polars"):
                say(f"{address} {name} {shape}")

                def read(endpoint: bow.Endpoint = endpoint, shape: str = shape) -> Any:
                    with bow.connect(endpoint) as stream:
                        return getattr(stream, shape)()

                yield f"{name} {shape}", outcome(read)
            say(f"{address} {name} flight")

            def flown(table: pa.Table = table) -> Any:
                with Flights(table) as flights, bow.connect(f"grpc://127.0.0.1:{flights.port}/t") as stream:
                    return computed(stream.read_all().column(0).combine_chunks())

            yield f"{name} flight", outcome(flown)
            for ending in ("parquet", "csv", "arrow", "vortex"):
                say(f"{address} {name} fetch --to .{ending}")
                path = Path(folder, f"out.{ending}")
                code = main(
                    ["fetch", str(endpoint), "--to", str(path), *["--compress"] * (ending == "vortex")]
                )
                yield (
                    f"{name} {ending}",
                    f"{code} {path.read_bytes() if ending == 'csv' and not code else ''!r}",
                )


def say(what: str) -> None:
    """Say what is tried next."""
    print(what, flush=True)


def compare(what: str, found: str, expected: str) -> None:
    """Say that an outcome depends on what lies under nulls, and end."""
    if found != expected:
        say(f"differs: {what}: {json.dumps([found[:500], expected[:500]])}")
        sys.exit(1)


def run() -> None:
    """Try all types with all that may lie under nulls."""
    clean = dict(columns(zeros))
    expected = {
        (name, exit_): outcome(functools.partial(leave, bow.Batch.from_arrow({name: array})))
        for name, array in clean.items()
        for exit_, leave in EXITS.items()
    }
    for under, write in UNDERS.items():
        for name, array in columns(write):
            array.validate(full=True)
            batch = bow.Batch.from_arrow({name: array})
            for exit_, leave in EXITS.items():
                say(f"{name}, {under}: {exit_}")
                found = outcome(functools.partial(leave, batch))
                compare(f"{name}, {under}: {exit_}", found, expected[name, exit_])


def run_over(address: str) -> None:
    """Try the types that pyarrow follows, as they come from a server."""
    names = ("string_view", "binary_view", "struct of views", "dictionary i4")
    sets = [
        {name: pa.table({"c": array}) for name, array in columns(write) if name in names}
        for write in (zeros, huge, UNDERS["drawn 0"])
    ]
    expected = dict(over(address, sets[0]))
    for tables in sets[1:]:
        for what, found in over(address, tables):
            compare(f"{address} {what}", found, expected[what])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_over(sys.argv[1])
    else:
        run()
    say("survived")
