"""Whatever stands in the arrays, a kernel reads and writes inside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.kernels import rearrange, validity
from bowstring.kernels.signature import kernels
from bowstring.kernels.types import i64, u64
from bowstring.kernels.validation import nested, text, values
from tests.kernels import (
    geo_bounds,
    ipc_bounds,
    json_bounds,
    parquet_bounds,
    schema_bounds,
    shredded_bounds,
    variant_bounds,
    variant_cast_bounds,
    variant_text_bounds,
    vortex_bounds,
)

Rng = np.random.Generator


class Guarded:
    """An array that refuses what NumPy would count from its end."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def _checked(self, index: Any) -> int:
        at = int(index)
        if not 0 <= at < len(self.array):
            raise AssertionError(f"{at} of {len(self.array)}")
        return at

    def __getitem__(self, index: Any) -> Any:
        return self.array[self._checked(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[self._checked(index)] = value

    def __len__(self) -> int:
        return len(self.array)


def wild(rng: Rng, dtype: Any, size: int) -> Guarded:
    """Return numbers of all magnitudes, small ones and the ends of the type often."""
    info = np.iinfo(dtype)
    found = rng.integers(info.min, info.max, size, dtype, endpoint=True)
    small = rng.integers(0, 40, size).astype(dtype)
    ends = np.where(rng.random(size) < 0.5, dtype(info.min), dtype(info.max))
    chosen = np.where(rng.random(size) < 0.1, ends, found)
    return Guarded(np.where(rng.random(size) < rng.random(), small, chosen))


def some(rng: Rng, dtype: Any = np.uint8) -> Guarded:
    return wild(rng, dtype, int(rng.integers(0, 60)))


def out(items: int = 2) -> Guarded:
    return Guarded(np.zeros(items, np.int64))


def wide_bounds(rng: Rng, limbs: int) -> Guarded:
    return wild(rng, np.uint64, 2 * limbs)


def number(rng: Rng) -> Any:
    return i64(rng.choice([0, 1, 5, 40, 300, 2**31, 2**62]))


def bit(rng: Rng) -> Any:
    return i64(rng.integers(0, 500))


def words() -> Guarded:
    return Guarded(np.zeros(2, np.uint64))


def word(rng: Rng) -> Any:
    return u64(rng.integers(0, 2**64 - 1, dtype=np.uint64))


def some_bits(rng: Rng) -> tuple[Any, ...]:
    return some(rng), some(rng, np.uint64), i64(rng.integers(0, 8))


def text_arguments(rng: Rng) -> tuple[Any, ...]:
    data = some(rng)
    lead = int(rng.integers(0, min(7, len(data)) + 1))
    words = data.array[lead : lead + (len(data) - lead) // 8 * 8].copy().view(np.uint64)
    start = int(rng.integers(0, len(data) + 1))
    stop = int(rng.integers(start, len(data) + 1))
    return data, Guarded(words), i64(lead), i64(start), i64(stop), out()


def dense_arguments(rng: Rng) -> tuple[Any, ...]:
    children = int(rng.integers(1, 5))
    seen = [Guarded(np.zeros(2 * children, np.int64)) for _ in range(2)]
    lengths = wild(rng, np.int64, children)
    return some(rng), some(rng, np.int32), wild(rng, np.int64, 256), lengths, number(rng), *seen, out()


def order_arguments(rng: Rng) -> tuple[Any, ...]:
    firsts, lasts = wild(rng, np.int64, 4), wild(rng, np.int64, 4)
    return some(rng), wild(rng, np.int64, 256), firsts, lasts, i64(2), number(rng), out()


# What the caller promises and a kernel need not check: pieces of text lie in it, tables have their size.
ARGUMENTS: dict[Callable[..., None], Callable[[Rng], tuple[Any, ...]]] = {
    nested.check_offsets: lambda rng: (some(rng, np.int32), number(rng), number(rng), out()),
    nested.check_list_views: lambda rng: (
        some(rng, np.int64),
        some(rng, np.int64),
        number(rng),
        number(rng),
        out(),
    ),
    nested.check_run_ends: lambda rng: (some(rng, np.int16), number(rng), out()),
    values.check_range: lambda rng: (
        *(some(rng, np.uint16), some(rng), number(rng)),
        *(word(rng), word(rng), word(rng), out()),
    ),
    values.check_days: lambda rng: (some(rng, np.int64), some(rng), number(rng), out()),
    values.check_wide_range: lambda rng: (
        *(some(rng, np.uint64), i64(limbs := int(rng.choice([2, 4]))), wide_bounds(rng, limbs)),
        *(some(rng), number(rng), out()),
    ),
    nested.check_type_ids: lambda rng: (some(rng), wild(rng, np.int64, 256), number(rng), out()),
    nested.check_dense: dense_arguments,
    nested.check_dense_order: order_arguments,
    text.check_text: text_arguments,
    text.check_starts: lambda rng: (
        *(some(rng, np.int32), some(rng), number(rng), number(rng), wild(rng, np.int64, 1), out()),
    ),
    text.check_text_rows: lambda rng: (some(rng, np.int64), some(rng), some(rng), number(rng), out()),
    values.check_views: lambda rng: (
        *(some(rng, np.uint32), some(rng), some(rng), some(rng, np.int64), some(rng, np.int64)),
        *(number(rng), i64(rng.integers(0, 2)), some(rng, np.int64), i64(rng.integers(0, 8)), out()),
    ),
    rearrange.swap_elements: lambda rng: (wild(rng, np.uint8, 96), i64(7), Guarded(np.zeros(96, np.uint8))),
    rearrange.swap_intervals: lambda rng: (wild(rng, np.uint8, 32), Guarded(np.zeros(32, np.uint8))),
    rearrange.swap_views: lambda rng: (wild(rng, np.uint8, 32), Guarded(np.zeros(32, np.uint8))),
    validity.shift_bits: lambda rng: (*some_bits(rng), bit(rng), i64(600), words()),
    validity.and_bits: lambda rng: (*some_bits(rng), bit(rng), *some_bits(rng), bit(rng), i64(600), words()),
    validity.or_bits: lambda rng: (*some_bits(rng), bit(rng), *some_bits(rng), bit(rng), i64(600), words()),
    validity.count_bits: lambda rng: (*some_bits(rng), bit(rng), number(rng), out()),
    validity.expand_bits: lambda rng: (some(rng), bit(rng), words()),
    validity.pack_flags: lambda rng: (*some_bits(rng), Guarded(np.zeros(2, np.uint32))),
    rearrange.gather_pieces: lambda rng: (some(rng, np.uint64), some(rng, np.int64), number(rng), words()),
    **geo_bounds.wild_arguments(wild, Guarded),
    **ipc_bounds.wild_arguments(wild, Guarded),
    **json_bounds.arguments(wild, Guarded),
    **parquet_bounds.wild_arguments(wild, Guarded),
    **schema_bounds.wild_arguments(Guarded),
    **shredded_bounds.arguments(wild, Guarded),
    **variant_bounds.arguments(wild, Guarded),
    **variant_cast_bounds.arguments(wild, Guarded),
    **variant_text_bounds.arguments(wild, Guarded),
    **vortex_bounds.arguments(wild, Guarded),
}


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.__name__)
def test_every_kernel_is_tried(kernel: Callable[..., None]) -> None:
    """No kernel is left out of what follows."""
    assert kernel in ARGUMENTS


@pytest.mark.parametrize("kernel", ARGUMENTS, ids=lambda kernel: kernel.__name__)
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_is_touched_outside(kernel: Callable[..., None], seed: int) -> None:
    """With wild numbers in every array, and fewer elements than it was told, a kernel stays inside them."""
    arguments = ARGUMENTS[kernel](np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        for item in range(2):
            kernel(i64(item), *arguments)
