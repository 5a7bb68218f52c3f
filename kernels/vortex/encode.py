"""Encoding arrays for Vortex on any device: bit-packing, and text by the symbols of FSST."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.errors import UsageError
from bowstring.kernels.launch import launch, run_arrays
from bowstring.kernels.vortex.decode import CHUNK, ONES, empty, offsets_of, words_of
from bowstring.kernels.vortex.pack import SLOTS, measure_fsst, pack_words, slot_of, write_fsst
from bowstring.memory.arrays import last_of

__all__ = ["SymbolTable", "encode_fsst", "pack", "train_fsst"]

_ROUNDS: Final = 4
_MOST_SYMBOLS: Final = 255
_LONGEST: Final = 8
_ESCAPED: Final = 255 | 1 << 8


def pack(values: Any, width: int, *, reference: int = 0, zigzag: bool = False) -> Any:
    """Return integers bit-packed, in whole chunks of 1,024 of which the last is filled with the reference.

    Parameters
    ----------
    values : array of integers
        Bits above `width` are left out: they belong into patches.
    width
        Bits of a packed element, from 0 to those of `values`.
    reference
        What is subtracted from each, wrapping.
    zigzag
        Whether elements are zigzag-coded, before the reference is subtracted.

    Returns
    -------
    array of uint8, shape (128 * width * chunks,)
        On the same device.

    Raises
    ------
    UsageError
        The width is out of range.

    Examples
    --------
    >>> len(pack(np.arange(5), 3))
    384
    """
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
    """Symbols of FSST: up to 255 of 1 to 8 bytes, and what finds the longest that a text goes on with.

    Attributes
    ----------
    symbols : numpy.ndarray of uint64
        The bytes of each symbol, and zeros.
    lengths : numpy.ndarray of uint8
    singles, pairs : numpy.ndarray of uint16
        For each byte, and each two, the code and the length of a symbol, or 255.
    words, masks, codes : numpy.ndarray
        For each hash of three bytes, a longer symbol, which of its bits count, and its code and length.
    """

    symbols: Any
    lengths: Any
    singles: Any
    pairs: Any
    words: Any
    masks: Any
    codes: Any


def train_fsst(sample: Sequence[bytes]) -> SymbolTable:
    """Return the symbols that shorten some texts most: grown from pairs of symbols that follow each other.

    Examples
    --------
    >>> table = train_fsst([b"tumcwitumvldb"] * 10)
    >>> len(table.symbols) == len(table.lengths) > 0
    True
    """
    chosen: dict[bytes, None] = {}
    for _ in range(_ROUNDS):
        gains: Counter[bytes] = Counter()
        for text in sample:
            _count(text, chosen, gains)
        for each in list(gains):
            gains[each] *= len(each)
        chosen = dict.fromkeys(each for each, _ in gains.most_common(_MOST_SYMBOLS))
    return _table(list(chosen))


def _count(text: bytes, chosen: dict[bytes, None], gains: Counter[bytes]) -> None:
    """Count the symbols of a text, and each two that follow each other, as one."""
    at, last = 0, b""
    while at < len(text):
        found = text[at : at + 1]
        for size in range(_LONGEST, 1, -1):
            if text[at : at + size] in chosen:
                found = text[at : at + size]
                break
        gains[found] += 1
        if last and len(last) + len(found) <= _LONGEST:
            gains[last + found] += 1
        last = found
        at += len(found)


def _table(symbols: list[bytes]) -> SymbolTable:
    singles = np.full(256, _ESCAPED, np.uint16)
    words, masks = np.zeros((2, SLOTS), np.uint64)
    codes = np.zeros(SLOTS, np.uint16)
    kept: list[bytes] = []
    two: list[tuple[bytes, int]] = []
    for each in symbols:
        entry = len(kept) | len(each) << 8
        if len(each) == 1:
            singles[each[0]] = entry
        elif len(each) == 2:
            two.append((each, entry))
        else:
            word = int.from_bytes(each, "little")
            slot = int(slot_of(np.array([word], np.uint64))[0])
            if codes[slot]:  # a symbol that shortens more is there
                continue
            words[slot], masks[slot], codes[slot] = word, (1 << 8 * len(each)) - 1, entry
        kept.append(each)
    pairs = np.tile(singles, 256)
    for each, entry in two:
        pairs[int.from_bytes(each, "little")] = entry
    table = np.frombuffer(b"".join(each.ljust(_LONGEST, b"\0") for each in kept), np.uint64)
    lengths = np.array([len(each) for each in kept], np.uint8)
    return SymbolTable(table, lengths, singles, pairs, words, masks, codes)


def encode_fsst(text: Any, offsets: Any, table: SymbolTable) -> tuple[Any, Any]:
    """Return the codes of texts, one after the other, and where those of each begin and the last end.

    Parameters
    ----------
    text : array of uint8
    offsets : array of int64, shape (rows + 1,)
        Where each text begins in `text`, and where the last ends.

    Returns
    -------
    codes : array of uint8
    places : array of int64, shape (rows + 1,)

    Examples
    --------
    >>> text, offsets = np.frombuffer(b"bowbow!", np.uint8), np.array([0, 6, 7])
    >>> codes, places = encode_fsst(text, offsets, train_fsst([b"bowbow"] * 9))
    >>> places.tolist()[-1] < 7
    True
    """
    rows = len(offsets) - 1
    tables = [run_arrays(lambda xp, _, each=each: xp.asarray(each), text) for each in table[2:]]
    sizes = empty(text, rows, np.int64)
    launch(measure_fsst, rows, text, offsets, *tables, sizes)
    places = offsets_of(sizes)
    codes = empty(text, last_of(places), np.uint8)
    launch(write_fsst, rows, text, offsets, *tables, places, codes)
    return codes, places
