"""Wild arguments for the kernels of Variant; tables have a slot for each of two rows, names and trees are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant import decimals, metadata, numbers, slots, write_objects
from bowstring.kernels.variant import validate as validation
from bowstring.kernels.variant import walk as locating
from tests.kernels.variant_cases import (
    DICTIONARIES,
    FAMILIES,
    KINDS,
    OPERANDS,
    columns_of,
    laid_out,
    meanings_of,
    rows_of,
    texts,
    written_by,
)

Make = Callable[[np.random.Generator], tuple[Any, ...]]


def arguments(wild: Callable[..., Any], guarded: Callable[..., Any]) -> dict[Callable[..., None], Make]:
    def data(rng: np.random.Generator) -> Any:
        return wild(rng, np.uint8, int(rng.integers(0, 60)))

    def some_slots(rng: np.random.Generator) -> tuple[Any, ...]:
        return wild(rng, np.int64, 2), wild(rng, np.int64, 2), data(rng)

    def out(dtype: Any, size: int = 2) -> Any:
        return guarded(np.zeros(size, dtype))

    def names() -> tuple[Any, ...]:
        return tuple(guarded(each) for each in texts())

    def rows(rng: np.random.Generator) -> tuple[Any, ...]:
        marks = guarded(rng.integers(0, 16, 2).astype(np.uint8))
        return data(rng), data(rng), *some_slots(rng), wild(rng, np.int32, 2), *some_slots(rng), marks

    def tree() -> tuple[Any, ...]:
        return tuple(
            guarded(each)
            for each in (np.array(FAMILIES), np.array(OPERANDS), np.array(KINDS, np.uint8), columns_of(2))
        )

    def walked(rng: np.random.Generator) -> tuple[Any, ...]:
        return guarded(meanings_of()), i64(1), i64(2), i64(2)

    def results() -> tuple[Any, ...]:
        return tuple(guarded(each) for each in written_by(2))

    def located(rng: np.random.Generator) -> tuple[Any, ...]:
        some = guarded(np.zeros(0, np.int64))
        ids = wild(rng, np.int64, 2 * len(KINDS))
        return *rows(rng), *names(), ids, *tree(), *walked(rng), some, *results()

    def read(rng: np.random.Generator) -> tuple[Any, ...]:
        *values, _, _, _, marks = rows(rng)
        families, _, *others = tree()
        ids = wild(rng, np.int64, 2 * len(KINDS))
        left = out(np.uint8)
        return *values, marks, ids, families, *others, *walked(rng), left, *results()

    def validated(rng: np.random.Generator) -> tuple[Any, ...]:
        return i64(1), *rows(rng), i64(1), i64(3), out(np.uint64, 18), out(np.uint8)

    def number(rng: np.random.Generator) -> tuple[Any, ...]:
        dtype = (np.int8, np.int16, np.int32, np.int64)[rng.integers(0, 4)]
        info, unit = np.iinfo(dtype), i64(rng.choice([1, 1000, 10**9]))
        asked = i64(rng.integers(0, 15)), i64(info.min), i64(info.max), unit, i64(64 - info.bits), i64(1)
        return data(rng), wild(rng, np.uint64, 2), *asked, out(np.uint8), out(dtype)

    def decimal(rng: np.random.Generator) -> tuple[Any, ...]:
        what = u64(rng.integers(0, 39)), u64(5), u64(7), i64(rng.integers(0, 2))
        return data(rng), wild(rng, np.uint64, 2), *what, out(np.uint8), out(np.uint64, 4)

    def family(rng: np.random.Generator) -> Any:
        return i64(rng.integers(0, 4))

    def places(rng: np.random.Generator) -> tuple[Any, ...]:
        return data(rng), wild(rng, np.uint64, 2)

    def objects(rng: np.random.Generator) -> tuple[Any, ...]:
        starts, stops, values, which = rows_of()
        row = int(rng.integers(0, len(starts) - 1))
        values = values.copy()
        values[rng.integers(0, len(values))] = rng.integers(0, 256)
        class_starts, class_stops, blobs = laid_out(DICTIONARIES, np.int64)
        room, named, odd = (out(np.uint64, size) for size in (3 * int(write_objects.LEVEL), 4, 9))
        some = (each[row : row + 2].copy() for each in (starts, stops))
        return (
            *(out(np.uint8), *map(guarded, some), guarded(values), guarded(which[row : row + 2].copy())),
            *(guarded(class_starts), guarded(class_stops), guarded(blobs), i64(3), room, named, odd),
            *(out(np.uint8, int(rng.integers(0, 200))), out(np.uint64, int(write_objects.STATES))),
        )

    return {
        metadata.mark_changes: lambda rng: (*some_slots(rng), out(np.uint8)),
        metadata.inspect_metadata: lambda rng: (*some_slots(rng), i64(rng.integers(1, 3)), out(np.uint8)),
        metadata.find_names: lambda rng: (
            *(
                *some_slots(rng),
                out(np.uint8),
                *names(),
                guarded(np.array([0, 5, 0])),
                guarded(np.array([metadata.NAMED, metadata.NAMED, -4])),
            ),
            out(np.int64, 6),
        ),
        locating.read_plain: read,
        locating.locate: located,
        numbers.cast_numbers: number,
        decimals.cast_decimals: decimal,
        slots.measure_bytes: lambda rng: (
            *places(rng),
            family(rng),
            i64(-1),
            out(np.uint8),
            out(np.int64),
        ),
        slots.copy_bytes: lambda rng: (
            *(
                i64(rng.integers(0, 3)),
                *places(rng),
                family(rng),
                out(np.uint8),
                wild(rng, np.int64, 3),
                out(np.uint8, 40),
            ),
        ),
        slots.copy_fixed: lambda rng: (
            i64(rng.integers(0, 3)),
            *places(rng),
            i64(16),
            out(np.uint8),
            out(np.uint8, 32),
        ),
        slots.name_kinds: lambda rng: (*places(rng), out(np.uint8), out(np.int8)),
        validation.validate_values: validated,
        write_objects.write_objects: objects,
    }
