"""Encoding arrays for Vortex on any device: bit-packing, and text by the symbols of FSST."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bowstring.errors import UsageError
from bowstring.kernels.launch import launch, run_arrays
from bowstring.kernels.vortex import pack as packing
from bowstring.kernels.vortex.arrays import empty, words_of
from bowstring.kernels.vortex.decode_numbers import CHUNK, ONES
from bowstring.kernels.vortex.decode_text import offsets_of
from bowstring.kernels.vortex.pack import join_rows, pack_words, train_symbols, write_fsst


def pack(values: Any, width: int, *, reference: int = 0, zigzag: bool = False) -> Any:
    """Return integers bit-packed: uint8, shape (128 * width * chunks,); the reference fills the last chunk."""
    # values: integers; bits above `width` are left out, they belong into patches; reference: subtracted, wrapping
    # zigzag: elements are zigzag-coded, before the reference is subtracted
    bits = 8 * values.dtype.itemsize
    if not 0 <= width <= bits:
        raise UsageError("a bit width is out of range", expected=f"0 to {bits}", found=width)
    chunks = -(-len(values) // CHUNK)
    kind = f"u{bits // 8}"
    plain, filling = values.view(kind), np.array(reference & (1 << bits) - 1, np.uint64).astype(kind)

    def padded(xp: Any, plain: Any) -> Any:
        out = xp.full(chunks * CHUNK, filling, kind)
        out[: len(plain)] = plain
        return out

    whole = plain if len(plain) == chunks * CHUNK else run_arrays(padded, plain)
    words = words_of(whole.view(np.uint8))
    out = empty(words, chunks * width * 16, np.uint64)
    added = (-reference & (1 << bits) - 1) * ONES[bits]
    launch(pack_words, chunks, words, width, bits.bit_length() - 1, ONES[bits], zigzag, added, out)
    return out.view(np.uint8)


class SymbolTable(NamedTuple):
    """Symbols of FSST: up to 255 of 1 to 8 bytes, and what finds the longest that a text goes on with."""

    symbols: Any  # array of uint64; the bytes of each symbol, and zeros
    lengths: Any  # array of uint8
    # singles, pairs: array of uint16; for each byte, and each two, the code and the length of a symbol, or
    # 255
    singles: Any
    pairs: Any
    # words, masks, codes: array; for each hash of three bytes, a longer symbol, which of its bits count,
    # and its code and length
    words: Any
    masks: Any
    codes: Any


def train_fsst(text: Any, offsets: Any) -> SymbolTable:
    """Return the symbols that shorten some texts most: grown from pairs of symbols that follow each other."""
    # text, offsets: of the host, as those of `encode_fsst`
    room = 2 * len(text)
    names, gains = np.empty(room, np.uint64), np.empty(room, np.int64)
    slots = np.empty(2 << (2 * room).bit_length(), np.int64)
    symbols, lengths = np.zeros(packing.MOST_SYMBOLS, np.uint64), np.zeros(packing.MOST_SYMBOLS, np.uint8)
    singles, pairs = np.empty(256, np.uint16), np.empty(1 << 16, np.uint16)
    words, masks = np.empty((2, packing.SLOTS), np.uint64)
    tables = singles, pairs, words, masks, np.empty(packing.SLOTS, np.uint16)
    best, count = np.empty(packing.MOST_SYMBOLS, np.int64), np.zeros(1, np.int64)
    launch(train_symbols, 1, text, offsets, names, gains, slots, best, symbols, lengths, *tables, count)
    return SymbolTable(symbols[: count[0]], lengths[: count[0]], *tables)


def encode_fsst(text: Any, offsets: Any, table: SymbolTable) -> tuple[Any, Any]:
    """Return the codes of texts, one after the other, and where each begins, and the last end.

    They are arrays of uint8, and of int64, shape (rows + 1,).
    """
    # text: array of uint8
    # offsets: array of int64, shape (rows + 1,); where each text begins in `text`, and where the last ends
    rows = len(offsets) - 1
    apart, sizes = empty(text, 2 * len(text), np.uint8), empty(text, rows, np.int64)
    finders = [run_arrays(lambda xp, _, each=each: xp.asarray(each), text) for each in table[2:]]
    launch(write_fsst, rows, text, offsets, *finders, sizes, apart)
    places = offsets_of(sizes)
    codes = run_arrays(lambda xp, ends: xp.empty(int(ends[-1]), np.uint8), places)
    launch(join_rows, rows, apart, offsets, places, codes)
    return codes, places
