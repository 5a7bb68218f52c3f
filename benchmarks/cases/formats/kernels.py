"""One kernel of each family on the CPU, on one core and on all, beside what NumPy, pyarrow and json do."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring import geo, variant
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Target, Way
from bowstring.benchmarks.data.payload import read_every_byte
from bowstring.benchmarks.data.tables import table
from bowstring.benchmarks.data.variant_rows import documents, objects
from bowstring.benchmarks.processes.cores import threads
from bowstring.kernels import bitmap

_SEED: Final = 19
_FULL: Final = 64 << 20
_QUICK: Final = 4 << 20
_SUBJECT: Final = "bowstring"


class Family(NamedTuple):
    """One kernel: what it does, what else would do it, and how both are checked."""

    # name, nbytes: what it is, and the bytes that it reads
    name: str
    nbytes: int
    work: Callable[[], Any]
    baseline: str  # what the other one is
    other: Callable[[], Any]
    shown: Callable[[Any], str]  # returns what came of either, in few words


def _summed(array: Any) -> str:
    return f"{len(array)} values, sum {np.asarray(array).sum(dtype=np.int64)}"


def _bitmaps(size: int, rng: np.random.Generator) -> Iterator[Family]:
    bits = rng.integers(0, 256, size // 8, np.uint8)
    flags = np.unpackbits(bits, bitorder="little").view(np.bool_)
    yield Family(
        "bitmap expanded to bytes",
        bits.nbytes,
        lambda: bitmap.expanded(bits, 0, len(flags)),
        "numpy.unpackbits",
        lambda: np.unpackbits(bits, bitorder="little"),
        _summed,
    )
    yield Family(
        "bytes packed to a bitmap",
        flags.nbytes,
        lambda: bitmap.packed(flags),
        "numpy.packbits",
        lambda: np.packbits(flags, bitorder="little"),
        lambda found: _summed(np.asarray(found)[: len(bits)]),
    )
    yield Family(
        "bits counted, from the third on",
        bits.nbytes,
        lambda: np.asarray(bitmap.count_set(bits, 3, len(flags) - 3)).item(),
        "numpy.bitwise_count",
        lambda: int(np.bitwise_count(bits[1:]).sum(dtype=np.int64)) + int(flags[3:8].sum()),
        str,
    )


def _validation(size: int) -> Iterator[Family]:
    [batch] = table("mixed", size, _SEED).to_batches()
    mine = bow.Batch.from_arrow(batch)
    yield Family(
        "validation of text, offsets and indices",
        batch.nbytes,
        lambda: mine.validate(full=True),
        "pyarrow's validate(full=True)",
        lambda: batch.validate(full=True),
        str,
    )


def _variants(size: int) -> Iterator[Family]:
    made = objects(size // 100, 10)
    name, values = next(iter(made.values.items()))
    total = _summed(values)
    raw = made.shared.to_arrow()
    encoded = np.frombuffer(raw.field("value").buffers()[2], np.uint8)
    yield Family(
        "a number by path out of Variants",
        encoded.nbytes,
        lambda: variant.get(made.shared, f"$.{name}", pa.int32()).values,
        "every byte read, by NumPy",
        lambda: (read_every_byte([encoded]), values)[1],
        lambda found: _summed(found) if len(found) else total,
    )
    docs = documents(size // 4)
    yield Family(
        "JSON text to Variants",
        docs.nbytes,
        lambda: variant.from_json(docs.array),
        "json.loads",
        lambda: [json.loads(text) for text in docs.texts],
        lambda found: f"{len(found)} documents",
    )


def _shapes(size: int, rng: np.random.Generator) -> Iterator[Family]:
    rows = np.zeros(size // 21, [("order", "u1"), ("code", "<u4"), ("place", "<f8", 2)])
    rows["order"], rows["code"], rows["place"] = 1, 1, rng.uniform(-180, 180, (len(rows), 2))
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(21)
    column = bow.Batch.from_arrow(
        {
            "where": pa.Array.from_buffers(
                pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())]
            )
        }
    )[0]

    def others() -> tuple[float, ...]:
        dense = np.ascontiguousarray(rows["place"])
        return (*dense.min(axis=0).tolist(), *dense.max(axis=0).tolist())

    def box() -> tuple[float, ...]:
        found = geo.statistics(column).bbox
        return () if found is None else (found.xmin, found.ymin, found.xmax, found.ymax)

    yield Family(
        "box of points in WKB",
        rows.nbytes,
        box,
        "NumPy, records of known layout",
        others,
        str,
    )


def _families(size: int) -> Iterator[Family]:
    rng = np.random.default_rng(_SEED)
    yield from _bitmaps(size, rng)
    yield from _validation(size)
    yield from _variants(size)
    yield from _shapes(size, rng)


def _timed(
    work: Callable[[], Any], shown: Callable[[Any], str], expected: str, count: int | None
) -> Measured:
    with threads(count):
        begin = time.perf_counter()
        found = work()
        seconds = time.perf_counter() - begin
    return Measured(seconds, expected, shown(found))


def _line_up(scale: Scale, family: Family, cores: int) -> LineUp:
    expected = family.shown(family.other())
    ours = f"{_SUBJECT}, {cores} cores" if cores > 1 else f"{_SUBJECT}, 1 core"
    ways = (
        Way(
            ours,
            "subject",
            lambda: _timed(family.work, family.shown, expected, cores),
            family.nbytes,
            family.baseline,
            series=_SUBJECT,
        ),
        Way(
            family.baseline,
            "baseline",
            lambda: _timed(family.other, family.shown, expected, None),
            family.nbytes,
        ),
    )
    targets = (Target(ours, "at least", 1, family.baseline),)
    name = f"{family.name}, {cores} core{'s' * (cores > 1)}"
    return LineUp(name, ways, scale.rounds(15, 5), targets, panel=family.name, at={"cores": cores})


def _counts() -> list[int]:
    """Return 1, 2, 4 … and all cores."""
    most = len(os.sched_getaffinity(0))
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    for family in _families(_QUICK if scale.quick else _FULL):
        for cores in _counts():
            yield _line_up(scale, family, cores)


CASE: Final = Case(
    "kernels",
    "one kernel of each family on the CPU, by the number of cores",
    _line_ups,
    Explanation(
        measured=(
            "One call on data in memory: a bitmap expanded, packed, counted; a batch validated; a number by "
            "path, and documents parsed; the box of points. Kernels may take one core, two, four … and all."
        ),
        baseline=(
            "What NumPy, pyarrow or Python's json do with the same data, on as many cores as they take. For "
            "the path out of Variants, and for the box, NumPy gets what only a reader of the format knows: "
            "reading every byte, and records whose layout is known."
        ),
        floor="",
        reading=(
            "The dotted line is what cores would do if they added up. Kernels that memory bounds gain little"
            " from a second core; cores that are two threads of one gain less."
        ),
    ),
)
