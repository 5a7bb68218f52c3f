"""Example arguments of the kernel of schemas: messages of many types, and changed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.ipc.flatbuf.message import decode_message
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.kernels.ipc import schema as kernel
from bowstring.kernels.signature import Kernel

Case = tuple[int, tuple[Any, ...]]

SCHEMAS = [
    pa.schema([]),
    pa.schema(
        {"a": pa.int64(), "s": pa.string(), "t": pa.struct({"u": pa.large_list(pa.int16())})},
        {"key": "value"},
    ),
    pa.schema(
        [
            pa.field("größe", pa.timestamp("us", "Europe/Berlin"), metadata={"unit": "m"}),
            pa.field("d", pa.dictionary(pa.int8(), pa.list_(pa.dictionary(pa.int32(), pa.string())))),
            pa.field("u", pa.dense_union([pa.field("x", pa.binary(3)), pa.field("y", pa.int8())])),
            pa.field("l", pa.list_(pa.list_(pa.int8(), 2))),
        ]
    ),
]


def to_walk(schema: pa.Schema, levels: int = 8) -> tuple[Any, ...]:
    """Return the arguments that walk the message of a schema."""
    ids = tuple(range(5, 5 + len(Layout.of(schema).dictionary_ids)))
    data = encode_schema(schema, ids)
    room, numbers = np.zeros(levels * int(kernel.FRAME), np.int64), np.zeros(8, np.int64)
    state = np.zeros(int(kernel.STATE), np.int64)
    table = decode_message(data).header
    return np.frombuffer(data, np.uint8), table, 1 << 16, 64, room, numbers, state


def walked(rng: np.random.Generator) -> Iterator[Case]:
    for schema in SCHEMAS:
        yield 1, to_walk(schema)
        yield 1, to_walk(schema, levels=2)
        for _ in range(8):
            data, *rest = to_walk(schema)
            data = data.copy()
            data[rng.integers(rest[0], len(data))] = rng.choice([0, 1, 4, 127, 255])
            yield 1, (data, *rest)


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {kernel.walk_schema: walked}
