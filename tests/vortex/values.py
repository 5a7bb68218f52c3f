"""When two columns hold the same values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["same_values"]


def same_values(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> bool:
    """Whether two columns hold the same values: bits of floats, and values of anything else."""
    if pa.types.is_floating(found.type) and pa.types.is_floating(expected.type):
        bits = {16: np.uint16, 32: np.uint32, 64: np.uint64}[found.type.bit_width]
        left, right = (
            each.combine_chunks().fill_null(0).to_numpy(zero_copy_only=False).view(bits)
            for each in (found, expected)
        )
        return bool((left == right).all()) and found.is_null().equals(expected.is_null())
    return bool(found.to_pylist() == expected.to_pylist())
