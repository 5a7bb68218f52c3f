"""Wild arguments for the kernels that cast Variants as Spark does, or into lists, structs and maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant import decimals, numbers, slots
from bowstring.kernels.variant.spark import decimals as spark_decimals
from bowstring.kernels.variant.spark import numbers as spark_numbers
from bowstring.kernels.variant.spark import parse as spark_texts
from bowstring.kernels.variant.spark import strings as spark_strings
from bowstring.kernels.variant.spark import times as spark_times

Make = Callable[[np.random.Generator], tuple[Any, ...]]


def arguments(wild: Callable[..., Any], guarded: Callable[..., Any]) -> dict[Callable[..., None], Make]:
    def out(dtype: Any, size: int = 2, value: int = 0) -> Any:
        return guarded(np.full(size, value, dtype))

    def places(rng: np.random.Generator) -> tuple[Any, ...]:
        return wild(rng, np.uint8, int(rng.integers(0, 60))), wild(rng, np.uint64, 2)

    def some_slots(rng: np.random.Generator) -> tuple[Any, ...]:
        return wild(rng, np.int64, 2), wild(rng, np.int64, 2), wild(rng, np.uint8, int(rng.integers(0, 60)))

    def number(status: int, *families: int) -> Make:
        return lambda rng: (
            *(*places(rng), i64(rng.choice(families)), i64(-5), i64(2**63 - 1)),
            *(out(np.uint8, value=status), out(np.int64)),
        )

    def text(*families: int) -> Make:
        return lambda rng: (*places(rng), i64(rng.choice(families)), out(np.uint8, value=255), out(np.int64))

    def classes(rng: np.random.Generator) -> tuple[Any, ...]:
        return wild(rng, np.int32, 2), *some_slots(rng)

    def decimal(status: int) -> Make:
        return lambda rng: (
            *(*places(rng), u64(rng.integers(0, 39)), u64(5), u64(7)),
            *(out(np.uint8, value=status), out(np.uint64, 4)),
        )

    return {
        spark_decimals.spark_decimals: decimal(0),
        spark_decimals.spark_text_decimals: decimal(255),
        spark_strings.measure_spark_strings: lambda rng: (
            *(*places(rng), out(np.uint8), out(np.uint8, 1), out(np.int64)),
        ),
        spark_strings.write_spark_strings: lambda rng: (
            *(*places(rng), out(np.uint8), wild(rng, np.int64, 3), out(np.uint8, 20)),
        ),
        decimals.cast_decimals_256: lambda rng: (
            *(
                *places(rng),
                u64(rng.integers(0, 77)),
                i64(rng.integers(0, 2)),
                wild(rng, np.uint64, 4),
                out(np.uint8),
                out(np.uint64, 8),
            ),
        ),
        numbers.read_located: lambda rng: (
            *(wild(rng, np.uint8, int(rng.integers(0, 60))), i64(rng.integers(0, 15))),
            *(i64(-5), i64(2**63 - 1), i64(1000), i64(0), i64(1)),
            *(out(np.uint8, value=255), guarded(rng.integers(-(2**62), 2**62, 2))),
        ),
        slots.write_views: lambda rng: (
            *(wild(rng, np.int64, 3), wild(rng, np.uint8, int(rng.integers(0, 60))), out(np.uint32, 8)),
        ),
        spark_numbers.spark_numbers: number(0, 0, 1, 2, 3, 4, 6, 7),
        spark_texts.spark_text_numbers: number(255, 0, 1),
        spark_texts.spark_text_reals: text(2, 3),
        spark_times.spark_text_times: lambda rng: (
            *(*places(rng), i64(rng.choice((4, 6, 7))), i64(rng.integers(-(2**40), 2**40))),
            *(out(np.uint8, value=255), out(np.int64), out(np.int64)),
        ),
        spark_times.copy_zone_names: lambda rng: (
            *(wild(rng, np.uint8, int(rng.integers(0, 60))), wild(rng, np.int64, 2), out(np.uint8, 80)),
        ),
        slots.count_children: lambda rng: (
            *(*places(rng), u64(rng.integers(2, 4)), i64(rng.integers(-2, 2)), out(np.uint8), out(np.int64)),
        ),
        slots.place_children: lambda rng: (
            *(
                *places(rng),
                out(np.uint8),
                wild(rng, np.int32, int(rng.integers(0, 3))),
                wild(rng, np.int64, 3),
            ),
            *(out(np.uint64, 5), out(np.uint8, 5), out(np.int32, int(rng.integers(0, 6)))),
        ),
        slots.measure_keys: lambda rng: (
            *(*places(rng), *classes(rng), wild(rng, np.uint8, int(rng.integers(0, 4)))),
            *(out(np.uint8), out(np.int64, value=1)),
        ),
        slots.place_keys: lambda rng: (
            *(*places(rng), *classes(rng), out(np.uint8), wild(rng, np.int64, 3)),
            *(out(np.int64, 5), out(np.int64, 5)),
        ),
        slots.note_disorder: lambda rng: (wild(rng, np.int64, 3), *some_slots(rng), out(np.uint8)),
        slots.copy_slots: lambda rng: (
            i64(rng.integers(0, 3)),
            *some_slots(rng),
            wild(rng, np.int64, 3),
            out(np.uint8, 20),
        ),
        slots.worst_of: lambda rng: (wild(rng, np.int64, 3), out(np.uint8, 5, 6), out(np.uint8)),
    }
