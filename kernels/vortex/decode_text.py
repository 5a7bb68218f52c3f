"""Text and bytes decoded on any device: FSST, OnPair, and views of values that lie one after the other.

Each function allocates its result and launches a kernel. What does not fit the lengths of values is noted:
:mod:`bowstring.kernels.vortex.faults`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.launch import find_place, launch, run_arrays
from bowstring.kernels.vortex import strings
from bowstring.kernels.vortex.arrays import as_int64, codes_of, empty, step_of, unsigned

_SYMBOLS: Final = 256


def offsets_of(lengths: Any) -> Any:
    """Return where values of some lengths begin, and where the last ends: their sums, from 0 on, as int64.
    A length of 2 GiB or more counts as 2 GiB, which no value has.
    """
    lengths = unsigned(lengths)
    if find_place((lengths,)) == "host":
        out = empty(lengths, lengths.size + 1, np.int64)
        launch(strings.add_lengths, 1, lengths, out)
        return out

    def summed(xp: Any, sizes: Any) -> Any:
        out = xp.zeros(sizes.size + 1, np.int64)
        if sizes.dtype.itemsize > 2:
            sizes = xp.minimum(sizes, sizes.dtype.type(2**31 - 1))
        xp.cumsum(sizes, dtype=np.int64, out=out[1:])
        return out

    return run_arrays(summed, lengths)


def decode_fsst(
    codes: Any, code_offsets: Any, symbols: Any, lengths: Any, offsets: Any, size: int, *, faults: Any
) -> Any:
    """Return the bytes of texts that are encoded by FSST, one after the other."""
    # codes: uint8; code_offsets: integers, shape (rows + 1,), bounds of the codes of each text
    # symbols, lengths: uint8; eight bytes for each symbol, and how many of them count
    # offsets: int64, shape (rows + 1,), where each text goes (see `offsets_of`); size: the last of them
    words, sizes = empty(codes, _SYMBOLS, np.uint64), empty(codes, _SYMBOLS, np.uint8)
    launch(strings.fill_symbol, _SYMBOLS, symbols, lengths, words, sizes)
    out, step = empty(codes, size, np.uint8), step_of(codes)
    items = -(-(offsets.size - 1) // step)
    launch(
        strings.decode_fsst, items, codes, as_int64(code_offsets), words, sizes, offsets, step, out, faults
    )
    return out


def decode_onpair(
    codes: Any, code_offsets: Any, tokens: Any, token_offsets: Any, offsets: Any, size: int, *, faults: Any
) -> Any:
    """Return the bytes of texts that are encoded by OnPair, one after the other."""
    # codes: unsigned, tokens of each text; tokens: uint8; offsets, size: as for `decode_fsst`
    # code_offsets, token_offsets: integers, bounds of the codes of each text and of the bytes of each token
    codes = codes_of(codes)
    if codes.dtype.itemsize < 2:
        codes = codes.astype(np.uint16)
    out, step = empty(codes, size, np.uint8), step_of(codes)
    arguments = codes, as_int64(code_offsets), tokens, as_int64(token_offsets), offsets, step, out, faults
    launch(strings.decode_onpair, -(-(offsets.size - 1) // step), *arguments)
    return out


def make_views(
    offsets: Any, data: Any, *, buffer: int = 0, validity: Any = None, first: int = 0, faults: Any
) -> Any:
    """Return the views of values that lie one after the other: uint64, shape (2 * rows,), as Arrow has them."""
    # offsets: int32 or int64, shape (rows + 1,), of null rows any; data: uint8, shorter than 2 GiB
    # validity: uint8, optional; the bitmap of the rows, `first` being the bit of the first row
    rows = offsets.size - 1
    bitmap = empty(data, 0, np.uint8) if validity is None else validity
    out = empty(data, 2 * rows, np.uint64)
    launch(strings.make_views, rows, offsets, data, buffer, bitmap, first, out, faults)
    return out


def make_views_of_prefixed(data: Any, rows: int, *, validity: Any = None, faults: Any) -> Any:
    """Return the views, uint64, shape (2 * rows,), of values that each have their length as ``u32`` before them."""
    # data: uint8, shorter than 2 GiB: lengths and values of the rows that are not null; validity: their bitmap
    bitmap = empty(data, 0, np.uint8) if validity is None else validity
    out = empty(data, 2 * rows, np.uint64)
    launch(strings.make_views_of_prefixed, 1, data, bitmap, rows, out, faults)
    return out
