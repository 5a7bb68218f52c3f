"""Rows from other places, on any device: patches, dictionaries, runs.

Each function allocates its result and launches a kernel. Arrays have one dimension and are contiguous. What points
outside of an array is noted: :mod:`bowstring.kernels.vortex.faults`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.kernels.launch import launch
from bowstring.kernels.vortex import gather
from bowstring.kernels.vortex.arrays import as_int64, codes_of, empty, step_of, unsigned


def patch(out: Any, indices: Any, values: Any, *, offset: int = 0, words: int = 1, faults: Any) -> None:
    """Write patches into an array: ``out[indices - offset] = values``."""
    # out, values: numbers of 1, 2, 4 or 8 bytes; or uint64, `words` of them for each element
    at = indices.astype(np.uint64)
    if words > 1:
        launch(gather.scatter_words, at.size, at, offset, values, words, out, faults)
    else:
        launch(gather.scatter, at.size, at, offset, unsigned(values), unsigned(out), faults)


def take(
    codes: Any, values: Any, *, validity: Any = None, first: int = 0, words: int = 1, faults: Any
) -> Any:
    """Return the values that codes stand for."""
    # codes: integers, of null rows any; values: numbers of 1, 2, 4 or 8 bytes, or uint64, `words` for each value
    # validity: uint8, optional; the bitmap of the rows, `first` being the bit of the first row
    codes = codes_of(codes)
    bitmap = empty(codes, 0, np.uint8) if validity is None else validity
    out = empty(codes, codes.size * words, values.dtype)
    if words > 1:
        launch(gather.gather_words, codes.size, codes, values, words, bitmap, first, out, faults)
    else:
        plain = unsigned(values), bitmap, first, unsigned(out)
        launch(gather.gather, codes.size, codes, *plain, faults)
    return out


def take_bits(codes: Any, bitmap: Any, start: int, count: int) -> Any:
    """Return, as a bitmap, the bits of a bitmap that codes stand for: of `count` from `start` on; 0 beyond them."""
    codes = codes_of(codes)
    packed = empty(codes, -(-codes.size // 32), np.uint32)
    launch(gather.gather_bits, packed.size, codes, bitmap, start, count, packed)
    return packed.view(np.uint8)[: (codes.size + 7) >> 3]


def expand_runs(ends: Any, values: Any, rows: int, *, offset: int = 0, faults: Any) -> Any:
    """Return the values of rows that are encoded as runs."""
    # ends: unsigned, rising: behind which row each run ends; offset: rows of the first runs before the first row
    # values: numbers of 1, 2, 4 or 8 bytes, one for each run; for others, pass an arange, and take by the result
    if ends.dtype.itemsize < 4:
        ends = unsigned(ends).astype(np.uint32)
    out = empty(values, rows, values.dtype)
    step = step_of(values)
    ends = unsigned(ends)
    if ends.size > 1:  # a work item of the other looks at the ends of its own rows only
        launch(gather.note_order, ends.size - 1, ends, faults)
    arguments = ends, unsigned(values), offset, rows, step, unsigned(out), faults
    launch(gather.expand_runs, -(-rows // step), *arguments)
    return out


def expand_rle(
    indices: Any,
    values: Any,
    starts: Any,
    rows: int,
    *,
    offset: int = 0,
    validity: Any = None,
    first: int = 0,
    faults: Any,
) -> Any:
    """Return the values of rows in blocks of 1,024, each with values of its own that indices choose from."""
    # indices: array of uint8 or uint16; one for each row of whole blocks
    # values: array; numbers of 1, 2, 4 or 8 bytes
    # starts: array of integers; with which value each block begins, and more by the first of them
    # validity: array of uint8, optional; the bitmap of these rows, `first` being the bit of the first
    if indices.dtype.itemsize < 2:
        indices = unsigned(indices).astype(np.uint16)
    bitmap = empty(values, 0, np.uint8) if validity is None else validity
    out = empty(values, rows, values.dtype)
    arguments = unsigned(indices), unsigned(values), as_int64(starts), offset, bitmap, first
    launch(gather.expand_blocks, rows, *arguments, unsigned(out), faults)
    return out
