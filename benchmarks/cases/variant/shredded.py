"""Shredded Variants: a typed field by path, from a file and in memory; columns put together and taken apart."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import bowstring as bow
from bowstring import variant
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Target, Way
from bowstring.benchmarks.data.payload import read_every_byte
from bowstring.benchmarks.processes import cores
from bowstring.columnar.batch import Column

_ROWS: Final = 1_000_000
_QUICK_ROWS: Final = 50_000
_COLUMN_ROWS: Final = 200_000
_GROUP_ROWS: Final = 250_000
_SEED: Final = 22
_LEAF: Final = "v.typed_value.price.typed_value"
# Times of copying the values, at most.
_UNSHRED: Final = 25
_SHRED: Final = 25
_BESIDE: Final = "values copied by pyarrow"


def _documents(rows: int) -> pa.StructArray:
    """Objects of nine fields and an array, as records of events have them."""
    rng = np.random.default_rng(_SEED)
    words = pa.array([f"word {number}" for number in range(5000)])
    text = words.take(pa.array(rng.integers(0, len(words), rows)))
    fields = {
        "id": pa.array(np.arange(rows)),
        "price": pa.array(rng.integers(0, 1 << 40, rows)),
        "weight": pa.array(rng.random(rows)),
        "name": text,
        "city": text.take(pa.array(rng.permutation(rows))),
        "at": pa.array(rng.integers(0, 1 << 50, rows), pa.timestamp("us", "UTC")),
        "open": pa.array(rng.random(rows) < 1 / 2),
        "count": pa.array(rng.integers(0, 100, rows)),
        "note": pa.array(np.where(rng.random(rows) < 1 / 2, "short", "a somewhat longer text")),
        "tags": pa.ListArray.from_arrays(
            pa.array(np.arange(0, 2 * rows + 1, 2, dtype=np.int32)), pa.array(rng.integers(0, 50, 2 * rows))
        ),
    }
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))


def _timed(function: Callable[[], Any], expected: Any, shown: Callable[[Any], Any]) -> Measured:
    with cores.threads(1):
        begin = time.perf_counter()
        found = function()
        seconds = time.perf_counter() - begin
    return Measured(seconds, "equal: True", f"equal: {shown(found).equals(expected)}")


def _from_file(folder: str, documents: pa.StructArray, scale: Scale) -> LineUp:
    path = os.path.join(folder, "shredded.parquet")
    column = variant.from_arrow(documents)
    bow.parquet.write({"v": column}, path, shred={"v": documents.type}, row_group_size=_GROUP_ROWS)
    prices = documents.field("price")
    where = variant.path("v", "$.price", pa.int64())

    def ours() -> Measured:
        begin = time.perf_counter()
        with bow.parquet.read(path, columns=[where]) as stream:
            found = stream.read_all()
        seconds = time.perf_counter() - begin
        return Measured(seconds, "equal: True", f"equal: {found.column(0).combine_chunks().equals(prices)}")

    def theirs() -> Measured:
        begin = time.perf_counter()
        found = pq.ParquetFile(path).read(columns=[_LEAF])
        seconds = time.perf_counter() - begin
        leaf = pc.struct_field(found.column(0).combine_chunks(), ["typed_value", "price", "typed_value"])
        return Measured(seconds, "equal: True", f"equal: {leaf.equals(prices)}")

    name, baseline = "bowstring, get of a path", "pyarrow, the leaf alone"
    ways = (
        Way(name, "subject", ours, prices.nbytes, baseline),
        Way(baseline, "baseline", theirs, prices.nbytes),
    )
    target = Target(name, "at most", 1.5, baseline)
    return LineUp(
        f"a shredded field from a file of {len(prices):,} rows", ways, scale.rounds(15, 3), (target,)
    )


def _in_memory(documents: pa.StructArray, column: Column, shredded: Column, scale: Scale) -> LineUp:
    prices = documents.field("price")

    def get(of: Column) -> Measured:
        return _timed(lambda: variant.get(of, "$.price", pa.int64()), prices, lambda found: found.to_arrow())

    name, baseline = "bowstring, shredded", "bowstring, the same column unshredded"
    ways = (
        Way(name, "subject", lambda: get(shredded), prices.nbytes, baseline),
        Way(baseline, "baseline", lambda: get(column), prices.nbytes),
    )
    return LineUp(
        f"a field of {len(prices):,} rows in memory",
        ways,
        scale.rounds(15, 3),
        (Target(name, "at least", 5, baseline),),
    )


def _whole(documents: pa.StructArray, column: Column, shredded: Column, scale: Scale) -> LineUp:
    data = column.child("value").to_arrow()
    size = int(pc.sum(pc.binary_length(data)).as_py())
    schema = documents.type
    prices = documents.field("price")

    def price_of(found: Column) -> Any:
        return variant.get(found, "$.price", pa.int64()).to_arrow()

    def copied() -> Measured:
        return _timed(lambda: data.take(pa.array(np.arange(len(data)))), data, lambda found: found)

    def read() -> Measured:
        bytes_of = np.frombuffer(data.buffers()[2], np.uint8)[:size]
        begin = time.perf_counter()
        read_every_byte([bytes_of])
        return Measured(time.perf_counter() - begin, "", "")

    floor = "every byte of the values read"
    made: dict[str, Callable[[], Column]] = {
        "unshred": lambda: variant.unshred(shredded),
        "shred by a schema": lambda: variant.shred(column, schema),
        "shred, schema inferred": lambda: variant.shred(column),
    }
    ways = (
        *(
            Way(name, "subject", functools.partial(_timed, function, prices, price_of), size, _BESIDE)
            for name, function in made.items()
        ),
        Way(_BESIDE, "baseline", copied, size),
        Way(floor, "floor", read, size),
    )
    targets = (
        Target("unshred", "at most", _UNSHRED, _BESIDE),
        Target("shred by a schema", "at most", _SHRED, _BESIDE),
        Target("shred, schema inferred", "at most", _SHRED, _BESIDE),
    )
    return LineUp(
        f"{len(column):,} documents, {size / 1e6:.0f} MB of values", ways, scale.rounds(9, 3), targets
    )


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    rows = _QUICK_ROWS if scale.quick else _ROWS
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bowstring-benchmark-"))
        documents = _documents(rows)
        yield _from_file(folder, documents, scale)
        some = documents.slice(0, min(rows, _COLUMN_ROWS))
        column = variant.from_arrow(some)
        shredded = variant.shred(column, some.type)
        yield _in_memory(some, column, shredded, scale)
        yield _whole(some, column, shredded, scale)


CASE: Final = Case(
    "variant_shredded",
    "Shredded Variants: a field by path, unshred and shred",
    _line_ups,
    Explanation(
        measured=(
            "A typed field of shredded Variants by path, from a file and in memory; unshred() and shred() of"
            " a column. On one core."
        ),
        baseline=(
            "pyarrow's read of that leaf alone; get() of the same column unshredded; the values copied by "
            "pyarrow."
        ),
        floor="Every byte of the values read.",
        reading=(
            "A shredded field should cost what a plain column costs. Shredding and putting together look at "
            "every value once."
        ),
    ),
)
