"""Example arguments of the kernels of Parquet files: a footer and its dictionary page, whole and cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.kernels.parquet import footer
from bowstring.kernels.signature import Kernel
from bowstring.parquet.footer import decode_footer, footer_bytes

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
        np.zeros(DEPTH * int(footer.LEVEL), np.int64),
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


def pages(rng: np.random.Generator) -> Iterator[Case]:
    for data in (PAGE, PAGE[:-1], b"", b"\xff" * 7, rng.bytes(50)):
        yield 1, (np.frombuffer(data, np.uint8), np.zeros(2, np.int64))


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {
    footer.read_footer: footers,
    footer.longest_value: pages,
}
