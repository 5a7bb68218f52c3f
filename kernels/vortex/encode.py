"""Encoding arrays for Vortex on any device: bit-packing, and text by the symbols of FSST."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.errors import UsageError
from bowstring.kernels.launch import launch, run_arrays
from bowstring.kernels.vortex.arrays import empty, words_of
from bowstring.kernels.vortex.decode_numbers import CHUNK, ONES
from bowstring.kernels.vortex.decode_text import offsets_of
from bowstring.kernels.vortex.pack import ESCAPE, SLOTS, measure_fsst, pack_words, slot_of, write_fsst

_ROUNDS: Final = 5
_MOST_SYMBOLS: Final = 255
_LONGEST: Final = 8
_BYTES: Final = 256
_SINGLES: Final = 8  # what a symbol of one byte counts: without it the byte takes two
_ESCAPED: Final = 255 | 1 << 8


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


def train_fsst(sample: Sequence[bytes]) -> SymbolTable:
    """Return the symbols that shorten some texts most: grown from pairs of symbols that follow each other."""
    text = np.frombuffer(b"".join(sample), np.uint8)
    offsets = np.cumsum([0, *map(len, sample)], dtype=np.int64)
    table = _table([])
    for _ in range(_ROUNDS):
        places = places_of_codes(text, offsets, table)
        codes = encode_fsst(text, offsets, table, places, int(places[-1]))
        gains = _gains(codes, places, table)
        table = _table(heapq.nlargest(_MOST_SYMBOLS, gains, key=gains.__getitem__))
    return table


def _gains(codes: Any, places: Any, table: SymbolTable) -> dict[bytes, int]:
    """Return how many bytes each symbol of encoded texts stands for, and each two in a row, as one symbol."""
    ids, rows = _ids(codes, places)
    names = [
        int(word).to_bytes(_LONGEST, "little")[:size]
        for word, size in zip(table.symbols, table.lengths, strict=True)
    ]
    names += [b""] * (_BYTES - len(names)) + [bytes([each]) for each in range(256)]
    sizes = np.array([len(each) for each in names])
    gains: dict[bytes, int] = {}
    counts = np.bincount(ids, minlength=len(names)) * np.where(sizes == 1, _SINGLES, sizes)
    for each in np.flatnonzero(counts).tolist():
        gains[names[each]] = gains.get(names[each], 0) + int(counts[each])
    follow = (rows[1:] == rows[:-1]) & (sizes[ids[1:]] + sizes[ids[:-1]] <= _LONGEST)
    pairs = np.bincount(ids[:-1][follow] * len(names) + ids[1:][follow])
    found = np.flatnonzero(pairs)
    for pair, count in zip(found.tolist(), pairs[found].tolist(), strict=True):
        name = names[pair // len(names)] + names[pair % len(names)]
        gains[name] = gains.get(name, 0) + count * len(name)
    return gains


def _ids(codes: Any, places: Any) -> tuple[Any, Any]:
    """Return the symbols of encoded texts, bytes without one from 256 on, and the row of each."""
    at = np.arange(len(codes))
    marks = codes == ESCAPE
    # Of several 255 in a row every other one is a byte that stands as it is.
    first = np.maximum.accumulate(np.where(marks, -1, at)) if len(codes) else at
    escapes = marks & ((at - first) % 2 == 1)
    literal = np.concatenate([[False], escapes[:-1]]) if len(codes) else escapes
    starts = np.flatnonzero(~literal)
    following = codes[np.minimum(starts + 1, len(codes) - 1)].astype(np.int64)
    ids = np.where(escapes[starts], _BYTES + following, codes[starts].astype(np.int64))
    return ids, np.searchsorted(places, starts, "right")


def _table(found: list[bytes]) -> SymbolTable:
    """Return the table of some symbols, of which those that shorten most come first."""
    # Other readers expect codes in this order: symbols of two bytes, longer ones by length, those of one byte.
    slots: dict[int, bytes] = {}
    for each in found:
        if len(each) > 2:
            word = np.array([int.from_bytes(each, "little")], np.uint64)
            slots.setdefault(int(slot_of(word)[0]), each)  # one that shortens more stays
    kept = sorted((*(each for each in found if len(each) < 3), *slots.values()), key=_by_length)
    entries = {each: code | len(each) << 8 for code, each in enumerate(kept)}
    singles = np.full(256, _ESCAPED, np.uint16)
    for each in kept:
        if len(each) == 1:
            singles[each[0]] = entries[each]
    pairs = np.tile(singles, 256)
    for each in kept:
        if len(each) == 2:
            pairs[int.from_bytes(each, "little")] = entries[each]
    words, masks = np.zeros((2, SLOTS), np.uint64)
    codes = np.zeros(SLOTS, np.uint16)
    for slot, each in slots.items():
        words[slot], masks[slot] = int.from_bytes(each, "little"), (1 << 8 * len(each)) - 1
        codes[slot] = entries[each]
    table = np.frombuffer(b"".join(each.ljust(_LONGEST, b"\0") for each in kept), np.uint64)
    lengths = np.array([len(each) for each in kept], np.uint8)
    return SymbolTable(table, lengths, singles, pairs, words, masks, codes)


def _by_length(symbol: bytes) -> int:
    return len(symbol) if len(symbol) > 1 else _LONGEST + 1


def places_of_codes(text: Any, offsets: Any, table: SymbolTable) -> Any:
    """Return where the codes of each text would begin, and the last end: an array of int64, shape (rows + 1,)."""
    # text: array of uint8
    # offsets: array of int64, shape (rows + 1,); where each text begins in `text`, and where the last ends
    sizes = empty(text, len(offsets) - 1, np.int64)
    launch(measure_fsst, len(sizes), text, offsets, *_finders(text, table), sizes)
    return offsets_of(sizes)


def encode_fsst(text: Any, offsets: Any, table: SymbolTable, places: Any, size: int) -> Any:
    """Return the codes of texts, one after the other: an array of uint8."""
    codes = empty(text, size, np.uint8)
    launch(write_fsst, len(offsets) - 1, text, offsets, *_finders(text, table), places, codes)
    return codes


def _finders(beside: Any, table: SymbolTable) -> list[Any]:
    """Return what finds the symbols of a table, on the device of an array."""
    return [run_arrays(lambda xp, _, each=each: xp.asarray(each), beside) for each in table[2:]]
