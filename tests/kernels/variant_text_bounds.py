"""Wild arguments for the kernels that write Variants as JSON and compare them; the quoted names are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.types import i64
from bowstring.kernels.variant import equals as equality
from bowstring.kernels.variant.text import writer as text
from tests.kernels.variant_text_cases import quoted

Make = Callable[[np.random.Generator], tuple[Any, ...]]


def arguments(wild: Callable[..., Any], guarded: Callable[..., Any]) -> dict[Callable[..., None], Make]:
    def data(rng: np.random.Generator) -> Any:
        return wild(rng, np.uint8, int(rng.integers(0, 60)))

    def slots(rng: np.random.Generator) -> tuple[Any, ...]:
        return wild(rng, np.int64, 2), wild(rng, np.int64, 2), data(rng)

    def out(dtype: Any, size: int = 2) -> Any:
        return guarded(np.zeros(size, dtype))

    def quoting(rng: np.random.Generator) -> tuple[Any, ...]:
        rooms = [wild(rng, np.int64, 2) for _ in range(3)]
        return *slots(rng), i64(1), *rooms, out(np.int64), out(np.int64), out(np.int64, 3), out(np.uint8, 40)

    def written(rng: np.random.Generator) -> tuple[Any, ...]:
        marks = guarded(rng.integers(0, 16, 5).astype(np.uint8))
        names = [guarded(each) for each in quoted()]
        rooms = wild(rng, np.int64, 2), wild(rng, np.int64, 2), out(np.uint64, 2 * 4 * int(text.WORDS))
        rows = i64(1), data(rng), *slots(rng), wild(rng, np.int32, 2), marks
        return *rows, *names, i64(3), i64(0), *rooms, out(np.uint8), out(np.int64), out(np.uint8, 40)

    def compared(rng: np.random.Generator) -> tuple[Any, ...]:
        sides: list[Any] = []
        bases, _, ends, names = (guarded(each) for each in quoted())
        for _ in range(2):
            sides += (*slots(rng), wild(rng, np.int32, 2), bases, ends, names, out(np.uint8))
        return i64(1), *sides, i64(3), out(np.uint64, 2 * 3 * int(equality.WORDS)), out(np.uint8)

    return {text.quote_names: quoting, text.write_text: written, equality.compare_values: compared}
