"""Broken bytes: a status, never a read outside of a buffer, and never another row harmed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Batch, Column
from bowstring.errors import BowstringError, Unsupported
from bowstring.kernels import host
from bowstring.kernels.signature import Signature
from bowstring.kernels.types import i64
from bowstring.variant import Status
from bowstring.variant.codec.decode import decode
from bowstring.variant.codec.primitives import Value
from bowstring.variant.equals import same
from tests.variant.encoding import array_bytes, metadata_bytes
from tests.variant.get_columns import Row, column_of
from tests.variant.get_oracle import expected, held
from tests.variant.hostile import (
    GOOD,
    GOOD_NESTED,
    NESTED,
    WANTED,
    Pair,
    corpus_of,
    everything,
    flipped,
    prefixes,
)
from tests.variant.json_write import Rules, json_of

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here


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
    monkeypatch.setattr(host, "interpret", guarded_run)


@pytest.fixture(scope="module")
def corpus(parquet_test_data: Path) -> list[Pair]:
    """Return the golden values, and every primitive at its bounds that is not long."""
    return corpus_of(parquet_test_data)


def judged(rows: list[Pair]) -> None:
    """Check broken rows, each beside a good one, against the decoder."""
    mixed: list[Row] = [each for row in rows for each in (row, GOOD)]
    column = column_of(mixed, "binary")
    statuses = variant.validate(column).values
    assert (statuses[1::2] == Status.OK).all()
    batch = variant.get_many(column, WANTED, with_status=True)
    batch.validate(full=True)
    assert set(batch["field"].to_arrow().to_pylist()[1::2]) == {"good"}
    assert (batch["field.status"].values[1::2] == Status.OK).all()
    nested = variant.get_many(column, NESTED)
    nested.validate(full=True)
    for name, good in GOOD_NESTED.items():
        assert all(each == good for each in nested[name].to_arrow().to_pylist()[1::2])
    trees = [_decoded(*row) for row in rows]
    for tree, status in zip(trees, statuses[::2].tolist(), strict=True):
        assert tree is not None or status not in (Status.OK, Status.VARIANT_NULL)
    valid = [index for index, status in enumerate(statuses[::2].tolist()) if status == Status.OK]
    written([rows[index] for index in valid], [trees[index] for index in valid])
    for name, (path, type_) in WANTED.items():
        if isinstance(type_, variant.VariantType):
            continue
        found, became = held(batch[name], type_)[::2], batch[f"{name}.status"].values[::2]
        for index in valid:
            assert (Status(became[index]), found[index]) == expected(trees[index], path, type_)


def written(rows: list[Pair], trees: list[Any]) -> None:
    """Check the JSON text of rows that are valid all the same, and which of them equal the next."""
    column = column_of([*rows], "binary")
    sets: tuple[Rules, ...] = ("plain", "spark")
    for rules in sets:
        texts = variant.to_json(column, rules=rules).to_arrow().to_pylist()
        assert texts == [json_of(tree, rules) for tree in trees]
    assert all(variant.equals(column, column).to_arrow().to_pylist())
    moved = variant.equals(column, column_of([*rows[1:], *rows[:1]], "binary"))
    assert moved.to_arrow().to_pylist() == list(map(same, trees, [*trees[1:], *trees[:1]]))


def _decoded(metadata: bytes, value: bytes) -> Value | None:
    try:
        return decode(metadata, value)
    except BowstringError:
        return None


def test_every_prefix(corpus: list[Pair]) -> None:
    """Every prefix of every corpus value has a status; what is valid all the same is what the decoder says."""
    judged(list(prefixes(corpus)))


def test_flipped_bytes(corpus: list[Pair]) -> None:
    """Changed bytes give a status, or what the decoder gives, and harm no row beside them."""
    judged(list(flipped(corpus, 4000, 1)))


@pytest.mark.slow
def test_a_million_flipped_bytes(corpus: list[Pair]) -> None:
    """The same for a million values."""
    for seed in range(50):
        judged(list(flipped(corpus, 20_000, 2 + seed)))


def test_nothing_outside_is_read(corpus: list[Pair], guards: None) -> None:
    """Interpreted, with every index checked: prefixes and flips read and write inside their buffers alone."""
    rows = [*list(prefixes(corpus))[::3], *flipped(corpus, 500, 0)]
    everything(column_of(rows, "binary"))


@pytest.mark.slow
def test_nothing_outside_is_read_by_more(corpus: list[Pair], guards: None) -> None:
    """The same for all prefixes, and many flips."""
    everything(column_of([*prefixes(corpus), *flipped(corpus, 5000, 99)], "binary"))


def test_hostile_offsets(corpus: list[Pair], guards: None) -> None:
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


@pytest.mark.parametrize(
    "call", [variant.to_json, variant.explode, lambda column: variant.equals(column, column)]
)
def test_no_long_row_is_copied_for_the_text_of_an_error(call: Callable[[Column], Any]) -> None:
    """A row that is wrong takes memory for what its error says, whatever its length."""
    size = 1 << 25
    long = b"\x3c" + size.to_bytes(4, "little") + bytes(size)
    column = column_of([(metadata_bytes(()), array_bytes([long, b"\xd4"]))])
    with pytest.raises(Unsupported):
        call(column)  # what is loaded once is loaded
    tracemalloc.start()
    try:
        with pytest.raises(Unsupported):
            call(column)
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()
