"""Example arguments of the kernels of Parquet files: a footer, pages and a dictionary, whole and cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.kernels.parquet import bodies, footer, pages
from bowstring.kernels.parquet.thrift import LEVEL
from bowstring.kernels.signature import Kernel
from bowstring.parquet.footer import decode_footer, footer_bytes
from bowstring.parquet.thrift import Reader

Case = tuple[int, tuple[Any, ...]]

COLUMNS, GROUPS, DEPTH = 2, 2, 8
PAGE = b"".join(len(each).to_bytes(4, "little") + each for each in (b"", b"abc", b"x" * 300))


def rest() -> bytes:
    """Return what comes after the schema in a footer of two columns and row groups."""
    sink = pa.BufferOutputStream()
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "y"]}, metadata={"k": "v" * 200})
    pq.write_table(table, sink, row_group_size=2)
    return decode_footer(footer_bytes(pa.BufferReader(sink.getvalue()))).rest


REST = rest()


def arguments(
    data: bytes, columns: int = COLUMNS, most: int = 1 << 20, depth: int = DEPTH
) -> tuple[Any, ...]:
    return (
        np.frombuffer(data, np.uint8),
        columns,
        most,
        depth,
        np.zeros(DEPTH * int(LEVEL), np.int64),
        np.zeros(COLUMNS * GROUPS * int(footer.FACTS), np.int64),
        np.zeros(int(footer.COUNTS), np.int64),
    )


def footers(rng: np.random.Generator) -> Iterator[Case]:
    yield 1, arguments(REST)
    yield 1, arguments(REST, columns=3)
    yield 1, arguments(REST, most=100)
    yield 1, arguments(REST, depth=2)
    yield 1, arguments(b"")
    # A map of integers, a list of booleans, a double, a UUID and a field with a long number.
    yield (
        1,
        arguments(
            bytes.fromhex("1b0155020419210102a7")
            + bytes(8)
            + b"\x1d"
            + bytes(16)
            + bytes.fromhex("05e80702 00")
        ),
    )
    for _ in range(20):
        data = bytearray(REST[: rng.integers(1, len(REST))])
        data[rng.integers(len(data))] = rng.integers(256)
        yield 1, arguments(bytes(data))


def dictionaries(rng: np.random.Generator) -> Iterator[Case]:
    for data in (PAGE, PAGE[:-1], b"", b"\xff" * 7, rng.bytes(50)):
        for most in (0, 2, 5):
            yield 1, (np.frombuffer(data, np.uint8), np.zeros(most, np.int64), np.zeros(2, np.int64))


def chunks() -> tuple[bytes, list[tuple[int, int]]]:
    """Return a file with pages of both versions, and where its column chunks are."""
    data, places = b"", []
    for version in ("1.0", "2.0"):
        sink = pa.BufferOutputStream()
        table = pa.table({"a": [1, 2, 3] * 50, "b": ["x", None, "y"] * 50})
        pq.write_table(table, sink, data_page_version=version, data_page_size=64, write_batch_size=40)
        file = sink.getvalue()
        group = pq.read_metadata(pa.BufferReader(file)).row_group(0)
        for column in map(group.column, range(2)):
            begin = len(data) + column.dictionary_page_offset
            places.append((begin, begin + column.total_compressed_size))
        data += file.to_pybytes()
    return data, places


def headers(rng: np.random.Generator) -> Iterator[Case]:
    data, places = chunks()

    def case(data: bytes, base: int, values: int, floor: int = 1 << 20) -> Case:
        facts = np.zeros((len(places), int(pages.FACTS)), np.int64)
        facts[:, [int(pages.AT), int(pages.END)]] = places
        facts[:, int(pages.WANTED)] = values
        room = np.zeros(len(places) * int(pages.ROOM), np.int64)
        return len(places), (np.frombuffer(data, np.uint8), base, floor, 2, 0, facts.reshape(-1), room)

    def listed(begin: int, end: int, rows: int) -> Case:
        facts = np.zeros(int(pages.FACTS) + rows * int(pages.PAGE), np.int64)
        facts[[int(pages.AT), int(pages.END), int(pages.WANTED)]] = begin, end, 150
        room = np.zeros(int(pages.ROOM), np.int64)
        return 1, (np.frombuffer(data, np.uint8), 0, 1 << 20, 2, rows, facts, room)

    for begin, end in places:
        yield listed(begin, end, 100)
        yield listed(begin, end, 1)
    yield case(data, 0, 150)
    yield case(data, 0, 149)
    yield case(data, 0, 150, 4)
    yield case(data, 0, 1000)
    yield case(data[:60], 0, 150)
    yield case(data[places[1][0] :], places[1][0], 150)
    # A map, a list of booleans, a double and a UUID.
    yield case(
        b"PAR1" + bytes.fromhex("15001502150219210102a71b01550204") + bytes(8) + b"\x1d" + bytes(40), 0, 1
    )
    for _ in range(20):
        damaged = bytearray(data)
        for begin, end in places:
            damaged[rng.integers(begin, min(begin + 30, end))] = rng.integers(256)
        yield case(bytes(damaged), 0, 150)


def runs(rng: np.random.Generator) -> Iterator[Case]:
    for width in (1, 2, 9):
        for data in (
            b"\x14\x00\x00",
            b"\x15\x00\x00\x06\x01\x00\x05\xaa\x55\x0f",
            b"\x03\xf0",
            b"",
            b"\xff" * 3,
            rng.bytes(60),
        ):
            for values, weights in ((0, [1]), (7, [1]), (100, [3, 1, 4])):
                yield (
                    1,
                    (
                        np.frombuffer(data, np.uint8),
                        width,
                        values,
                        np.array(weights, np.int64),
                        np.zeros(1, np.int64),
                    ),
                )


def deltas(rng: np.random.Generator) -> Iterator[Case]:
    words = [f"{'prefix' * (number % 3)}{number}" for number in range(300)]
    for encoding, type_, values in (
        (5, pa.int64(), rng.integers(-(1 << 40), 1 << 40, 300)),
        (6, pa.string(), words),
        (7, pa.string(), words),
    ):
        body = delta_page(pa.array(values, type_), encoding)
        damaged = bytearray(body)
        damaged[rng.integers(0, 40)] = rng.integers(256)
        for data in (body, body[:200], body[:3], b"", bytes(damaged), rng.bytes(60)):
            for most in (300, 299, 0):
                lengths = np.zeros(2 * most, np.int32)
                counts = np.zeros(int(bodies.COUNTS), np.int64)
                yield 1, (np.frombuffer(data, np.uint8), encoding, most, lengths, counts)


def delta_page(values: pa.Array, encoding: int) -> bytes:
    """Return the body of a page of values without nulls that pyarrow writes."""
    name = {5: "DELTA_BINARY_PACKED", 6: "DELTA_LENGTH_BYTE_ARRAY", 7: "DELTA_BYTE_ARRAY"}[encoding]
    sink = pa.BufferOutputStream()
    schema = pa.schema([pa.field("a", values.type, nullable=False)])
    with pq.ParquetWriter(
        sink, schema, compression="none", use_dictionary=False, column_encoding={"a": name}
    ) as writer:
        writer.write_table(pa.table([values], schema))
    file = sink.getvalue()
    column = pq.read_metadata(pa.BufferReader(file)).row_group(0).column(0)
    chunk = file.to_pybytes()[
        column.data_page_offset : column.data_page_offset + column.total_compressed_size
    ]
    reader = Reader(chunk, int(pages.DEPTH))
    reader.struct()
    return chunk[reader.position :]


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {
    footer.read_footer: footers,
    bodies.value_lengths: dictionaries,
    bodies.weigh_runs: runs,
    bodies.check_deltas: deltas,
    pages.read_pages: headers,
}
