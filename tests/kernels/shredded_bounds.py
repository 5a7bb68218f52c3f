"""Wild arguments for the kernels of shredded Variants: what comes from a column is wild, what we made is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from bowstring.kernels.signature import Kernel
from bowstring.kernels.variant import metadata, shred, shredded, shredded_objects
from tests.kernels.shredded_cases import CASES

FOREIGN: Final[dict[Kernel, tuple[int, ...]]] = {
    shred.map_fields: (),
    shred.split_objects: (0, 1),
    shred.write_residuals: (0, 1),
    shred.name_shapes: (0, 1),
    shred.hash_names: (0, 1, 2),
    shred.list_fields: (0, 1),
    shredded.measure_values: (0, 1, 2),
    shredded.copy_values: (1, 2, 3),
    shredded.measure_texts: (0, 1, 2),
    shredded.write_texts: (1, 2, 3),
    shredded.measure_decimals: (),
    shredded.write_fixed: (),
    shredded.measure_arrays: (0, 1),
    shredded.write_arrays: (),
    shredded.place_groups: (0, 1),
    metadata.count_names: (0, 1, 2),
    metadata.rank_names: (2,),
    metadata.find_fields: (0, 1, 2),
    shredded_objects.count_fields: (0, 1, 2),
    shredded_objects.measure_objects: (0, 1, 2),
    shredded_objects.write_objects: (0, 1, 2),
    shredded_objects.measure_maps: (0, 1),
    shredded_objects.write_maps: (),
}
"""The arguments that are memory of a column, by their place: bytes, and where slots begin and end."""


def arguments(
    wild: Callable[..., Any], guarded: Callable[..., Any]
) -> dict[Kernel, Callable[[np.random.Generator], tuple[Any, ...]]]:
    def of(kernel: Kernel) -> Callable[[np.random.Generator], tuple[Any, ...]]:
        def make(rng: np.random.Generator) -> tuple[Any, ...]:
            found = [case for case in CASES[kernel](rng) if case[0] > 1]  # two items are tried
            _, given = found[int(rng.integers(len(found)))]
            return tuple(one(rng, place, each) for place, each in enumerate(given))

        def one(rng: np.random.Generator, place: int, each: Any) -> Any:
            if not isinstance(each, np.ndarray):
                return np.int64(each)
            if place not in FOREIGN[kernel]:
                return guarded(each)
            bytes_ = each.dtype == np.uint8
            return wild(rng, each.dtype.type, int(rng.integers(0, 60)) if bytes_ else len(each))

        return make

    return {kernel: of(kernel) for kernel in FOREIGN}
