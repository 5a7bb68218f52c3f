"""Broken bytes: a status, never a read outside of a buffer, and never another row harmed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.errors import BowstringError
from bowstring.kernels import interpret
from bowstring.kernels.signature import Signature
from bowstring.kernels.types import i64
from bowstring.variant import Status
from bowstring.variant.decode import Value, decode
from bowstring.variant.encode import encode
from tests.variant.get_columns import Row, column_of
from tests.variant.get_oracle import expected, held
from tests.variant.typed_values import GOLDEN, PRIMITIVE_VALUES

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


class Guarded:
    """An array that refuses what NumPy would count from its end."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> Any:
        assert 0 <= int(index) < len(self.array), (index, len(self.array))
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        assert 0 <= int(index) < len(self.array), (index, len(self.array))
        self.array[index] = value

    def __len__(self) -> int:
        return len(self.array)


def guarded_run(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
    guarded = [Guarded(each) if isinstance(each, np.ndarray) else each for each in arguments]
    with np.errstate(all="ignore"):
        for item in range(items):
            signature.kernel(i64(item), *guarded)


@pytest.fixture
def guards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpret kernels, with every index checked."""
    monkeypatch.setenv("BOWSTRING_KERNELS", "interpret")
    monkeypatch.setattr(interpret, "run", guarded_run)


@pytest.fixture
def corpus(parquet_test_data: Path) -> list[tuple[bytes, bytes]]:
    """Return the golden values, and every primitive at its bounds that is not long."""
    where = parquet_test_data / "variant"
    golden = [
        ((where / f"{name}.metadata").read_bytes(), (where / f"{name}.value").read_bytes()) for name in GOLDEN
    ]
    return [*golden, *(pair for pair in map(encode, PRIMITIVE_VALUES) if len(pair[1]) < 70)]


def prefixes(pairs: list[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for metadata, value in pairs:
        yield from ((metadata, value[:size]) for size in range(len(value)))
        yield from ((metadata[:size], value) for size in range(len(metadata)))


def flipped(pairs: list[tuple[bytes, bytes]], count: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield values with one to three bytes changed, in the metadata or in the value."""
    rng = np.random.default_rng(seed)
    for choice in rng.integers(0, len(pairs), count).tolist():
        parts = [bytearray(part) for part in pairs[choice]]
        for _ in range(int(rng.integers(1, 4))):
            part = parts[int(rng.random() < 0.7)]
            part[int(rng.integers(0, len(part)))] = int(rng.integers(0, 256))
        yield bytes(parts[0]), bytes(parts[1])


def judged(rows: list[tuple[bytes, bytes]]) -> None:
    """Check broken rows, each beside a good one, against the decoder."""
    mixed: list[Row] = [each for row in rows for each in (row, GOOD)]
    column = column_of(mixed, "binary")
    statuses = variant.validate(column).values
    assert (statuses[1::2] == Status.OK).all()
    batch = variant.get_many(column, WANTED, with_status=True)
    batch.validate(full=True)
    assert set(batch["field"].to_arrow().to_pylist()[1::2]) == {"good"}
    assert (batch["field.status"].values[1::2] == Status.OK).all()
    trees = [_decoded(*row) for row in rows]
    for tree, status in zip(trees, statuses[::2].tolist(), strict=True):
        assert tree is not None or status not in (Status.OK, Status.VARIANT_NULL)
    valid = [index for index, status in enumerate(statuses[::2].tolist()) if status == Status.OK]
    for name, (path, type_) in WANTED.items():
        if isinstance(type_, variant.VariantType):
            continue
        found, became = held(batch[name], type_)[::2], batch[f"{name}.status"].values[::2]
        for index in valid:
            assert (Status(became[index]), found[index]) == expected(trees[index], path, type_)


def _decoded(metadata: bytes, value: bytes) -> Value | None:
    try:
        return decode(metadata, value)
    except BowstringError:
        return None


def test_every_prefix(corpus: list[tuple[bytes, bytes]]) -> None:
    """Every prefix of every corpus value has a status; what is valid all the same is what the decoder says."""
    judged(list(prefixes(corpus)))


def test_flipped_bytes(corpus: list[tuple[bytes, bytes]]) -> None:
    """Changed bytes give a status, or what the decoder gives, and harm no row beside them."""
    judged(list(flipped(corpus, 4000, 1)))


@pytest.mark.slow
def test_a_million_flipped_bytes(corpus: list[tuple[bytes, bytes]]) -> None:
    """The same for a million values."""
    for seed in range(50):
        judged(list(flipped(corpus, 20_000, 2 + seed)))


def test_nothing_outside_is_read(corpus: list[tuple[bytes, bytes]], guards: None) -> None:
    """Interpreted, with every index checked: prefixes and flips read and write inside their buffers alone."""
    rows = [*prefixes(corpus), *flipped(corpus, 1000, 0)]
    everything(column_of(rows, "binary"))


@pytest.mark.slow
def test_nothing_outside_is_read_by_more(corpus: list[tuple[bytes, bytes]], guards: None) -> None:
    """The same for all prefixes, and many flips."""
    everything(column_of([*prefixes(corpus), *flipped(corpus, 5000, 99)], "binary"))


def test_hostile_offsets(corpus: list[tuple[bytes, bytes]], guards: None) -> None:
    """Offsets and indices of the column itself that lie give malformed rows, and no read outside."""
    value = np.frombuffer(b"".join(each for _, each in corpus[:8]), np.uint8)
    offsets = np.array([0, 5, -1, 7, 2**31 - 1, -(2**31), 3, 9, 9], np.int32)
    values = pa.Array.from_buffers(pa.binary(), 8, [None, pa.py_buffer(offsets), pa.py_buffer(value)])
    indices = pa.Array.from_buffers(
        pa.int32(), 8, [None, pa.py_buffer(np.array([0, 1, 9, -1, 2**31 - 1, 0, 0, 0], np.int32))]
    )
    blobs = pa.array([corpus[0][0], corpus[1][0]], pa.binary())
    metadata = pa.DictionaryArray.from_arrays(indices, blobs, safe=False)
    array = pa.StructArray.from_arrays([metadata, values], names=["metadata", "value"])
    column = Batch.from_arrow(pa.record_batch({"v": array}))["v"]
    batch = variant.get_many(column, WANTED, with_status=True, plain=True)
    statuses = batch["whole.status"].values
    assert (statuses[[2, 3, 4, 5]] == Status.MALFORMED).all()


def everything(column: Column) -> None:
    """Run every kernel of a column."""
    variant.validate(column)
    variant.type_of(column)
    batch = variant.get_many(column, WANTED, with_status=True)
    for name in WANTED:
        assert batch[f"{name}.status"].values.max() <= Status.TOO_DEEP
    types = (
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.date32(),
        pa.decimal32(9, 1),
        pa.decimal64(9, 1),
        pa.binary(3),
    )
    variant.get_many(column, {str(type_): ("$", type_) for type_ in types})
