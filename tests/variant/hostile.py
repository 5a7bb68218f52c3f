"""Broken Variant columns: prefixes and changed bytes of a corpus, and everything that is done with a column."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError
from bowstring.variant import Status
from bowstring.variant.codec.primitives import Value
from tests.variant.documents import document
from tests.variant.encoding import encode
from tests.variant.typed_values import GOLDEN, PRIMITIVE_VALUES

Pair = tuple[bytes, bytes]
WANTED: dict[str, tuple[list[str | int], Any]] = {
    "text": ([], pa.string()),
    "number": ([], pa.int64()),
    "decimal": ([], pa.decimal128(38, 3)),
    "binary": ([], pa.binary()),
    "uuid": ([], pa.uuid()),
    "time": ([], pa.timestamp("ns")),
    "whole": ([], variant.type()),
    "field": (["species", "name"], pa.string()),
    "element": ([1], pa.int8()),
    "below": ([2, "names", 1], variant.type()),
}
GOOD = encode(Value("object", {"species": Value("object", {"name": Value("string", "good")})}))
NESTED: dict[str, tuple[list[str | int], Any]] = {
    "map": (["species"], pa.map_(pa.string(), pa.string())),
    "struct": ([], pa.struct({"species": pa.struct({"name": pa.string()}), "id": pa.int64()})),
    "list": ([], pa.list_(pa.int8())),
    "lists": ([], pa.list_(pa.struct({"id": pa.int32(), "names": pa.list_(pa.string())}))),
    "variants": ([], pa.list_(variant.type())),
}
GOOD_NESTED: dict[str, Any] = {
    "map": [("name", "good")],
    "struct": {"species": {"name": "good"}, "id": None},
    "list": None,
    "lists": None,
}
_OTHERS = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.date32(),
    pa.decimal32(9, 1),
    pa.decimal64(9, 1),
    pa.binary(3),
)
_OF_SPARK = (
    pa.bool_(),
    pa.int8(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(38, 4),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.list_(pa.int16()),
    pa.struct({"species": pa.int32()}),
    pa.map_(pa.string(), pa.string()),
)


def corpus_of(parquet_testing: Path) -> list[Pair]:
    """Return the golden values, and every primitive at its bounds that is not long."""
    where = parquet_testing / "variant"
    golden = [
        ((where / f"{name}.metadata").read_bytes(), (where / f"{name}.value").read_bytes()) for name in GOLDEN
    ]
    return [*golden, *(pair for pair in map(encode, PRIMITIVE_VALUES) if len(pair[1]) < 70)]


def prefixes(pairs: list[Pair]) -> Iterator[Pair]:
    """Yield every prefix of every value beside its metadata, and of every metadata beside its value."""
    for metadata, value in pairs:
        yield from ((metadata, value[:size]) for size in range(len(value)))
        yield from ((metadata[:size], value) for size in range(len(metadata)))


def flipped(pairs: list[Pair], count: int, seed: int) -> Iterator[Pair]:
    """Yield values with one to three bytes changed, in the metadata or in the value."""
    rng = np.random.default_rng(seed)
    for choice in rng.integers(0, len(pairs), count).tolist():
        parts = [bytearray(part) for part in pairs[choice]]
        for _ in range(int(rng.integers(1, 4))):
            part = parts[int(rng.random() < 0.7)]
            part[int(rng.integers(0, len(part)))] = int(rng.integers(0, 256))
        yield bytes(parts[0]), bytes(parts[1])


def broken_texts(count: int, seed: int) -> list[bytes]:
    """Return JSON texts cut off anywhere, with a byte or two changed, or as they were."""
    drawn = random.Random(seed)
    found = []
    for _ in range(count):
        text = bytearray(json.dumps(document(drawn), ensure_ascii=drawn.random() < 0.5).encode())
        if drawn.random() < 0.3:
            del text[drawn.randrange(len(text)) :]
        for _ in range(drawn.randrange(3)):
            if text:
                text[drawn.randrange(len(text))] = drawn.choice(b'{}[]",:\\0123456789.eE+-tfnu \x00\x80\xff')
        found.append(bytes(text))
    return found


def everything(column: Column) -> None:
    """Run every kernel that reads the bytes of a column."""
    variant.validate(column)
    variant.type_of(column)
    batch = variant.get_many(column, WANTED, with_status=True)
    for name in WANTED:
        assert batch[f"{name}.status"].values.max() <= Status.TOO_DEEP
    variant.get_many(column, {str(type_): ("$", type_) for type_ in _OTHERS})
    variant.get_many(column, NESTED).validate(full=True)
    variant.get_many(column, {str(type_): ("$", type_) for type_ in _OF_SPARK}, cast="spark")
    # A row that is wrong is an error of these, but not before all rows are done.
    with contextlib.suppress(BowstringError):
        variant.to_json(column)
    with contextlib.suppress(BowstringError):
        variant.to_json(column, rules="spark")
    with contextlib.suppress(BowstringError):
        variant.equals(column, column)
