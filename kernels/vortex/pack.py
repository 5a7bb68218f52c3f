"""Bit-packing in the order of FastLanes, and text encoded by FSST: the writer's side of the other kernels here.

Work item: of :func:`pack_words` one chunk of 1,024 elements, of :func:`train_symbols` a text, of others one row.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u8, u16, u64
from bowstring.kernels.vortex.unpack import ALL, ROW, finished, mask_of, row_of
from bowstring.kernels.words import bytes_at

SLOTS: Final = 4096
"""Places for symbols of three bytes and more, found by a hash of the first three."""

ESCAPE: Final = 255
SIZE_SHIFT: Final = 8
MIX = u64(2971215073)
PREFIX = u64(0xFFFFFF)
LAST_SLOT = u64(SLOTS - 1)
MOST_SYMBOLS: Final = i64(255)
LONGEST = i64(8)
ROUNDS = i64(5)
SINGLE_GAIN = i64(8)
"""What a symbol of one byte counts: without it the byte takes two."""
GAIN_SHIFT = i64(4)
GAIN_SIZE = i64(15)
NAME_MIX = u64(0x9E3779B97F4A7C15)
ESCAPED = u64(ESCAPE | 1 << SIZE_SHIFT)


def pack_words(i, values, width, log, ones, zigzag, reference, out):
    """Write the lowest bits of the elements of a chunk, less a reference, or zigzag-coded."""
    # Words as in `bowstring.kernels.vortex.unpack`; reference: what is added, once for each element of a word.
    bits = 1 << log
    source = i * bits * ROW
    target = i * width * ROW
    room = i64(len(out))
    if width < 1 or width > bits or source + bits * ROW > i64(len(values)) or target + width * ROW > room:
        return
    top = u64(bits - 1)
    lane = ALL >> u64(64 - bits)
    mask = mask_of(width, ones)
    for row in range(bits):
        bit = row * width
        shift = u64(bit & (bits - 1))
        up = (lane & (lane << shift)) * ones
        word = u64(target + (bit >> log) * ROW)
        at = u64(source) + row_of(row, log)
        spills = i64(shift) + width > bits
        for k in range(16):
            value = values[at + u64(k)]
            if zigzag != 0:
                sign = (value >> top) & ones
                value = ((value << 1) & ~ones) ^ ((sign << top << 1) - sign)
            value = finished(value, ones, top, i64(0), reference) & mask
            if shift == 0:
                out[word + u64(k)] = value
            else:
                out[word + u64(k)] = out[word + u64(k)] | ((value << shift) & up)
                if spills:
                    rest = u64(bits) - shift
                    out[word + 16 + u64(k)] = (value >> rest) & (((1 << (u64(width) - rest)) - 1) * ones)


def slot_of(word):
    """Return the slot of symbols that begin with the lowest three bytes of a word."""
    mixed = (word & PREFIX) * MIX
    return (mixed >> 17 ^ mixed) & LAST_SLOT


def code_at(text, at, stop, singles, pairs, symbols, masks, codes):
    """Return the code of the symbol that the text goes on with, or 255, and how many bytes that stands for."""
    word = bytes_at(text, u64(at), u64(stop - at))
    slot = slot_of(word)
    found = u64(codes[slot])
    size = i64(found >> SIZE_SHIFT)
    if size == 0 or size > stop - at or (word & masks[slot]) != symbols[slot]:
        found = u64(singles[word & 0xFF])
        if stop - at > 1:
            found = u64(pairs[word & 0xFFFF])
        size = i64(found >> SIZE_SHIFT)
    return found & 0xFF, size


def tables_fit(singles, pairs, symbols, masks, codes):
    """Return whether the tables of symbols have their sizes."""
    small = i64(len(singles)) == 256 and i64(len(pairs)) == 65536
    return small and i64(len(symbols)) == SLOTS and i64(len(masks)) == SLOTS and i64(len(codes)) == SLOTS


def write_fsst(i, text, offsets, singles, pairs, symbols, masks, codes, sizes, out):
    """Write the codes of a row, and how many bytes they take; what has no symbol is 255 and its byte.

    They begin at twice the place of the row: codes take two bytes for one at most.
    """
    at = offsets[u64(i)]
    stop = offsets[u64(i + 1)]
    first = 2 * max(at, i64(0))
    to = first
    end = min(2 * stop, i64(len(out)))
    if tables_fit(singles, pairs, symbols, masks, codes) and 0 <= at <= stop <= i64(len(text)):
        while at < stop and to < end:
            code, size = code_at(text, at, stop, singles, pairs, symbols, masks, codes)
            out[u64(to)] = u8(code)
            to += 1
            if code == ESCAPE and to < end:
                out[u64(to)] = text[u64(at)]
                to += 1
            at += max(size, i64(1))
    sizes[u64(i)] = to - first


def join_rows(i, codes, offsets, places, out):
    """Copy the codes of a row to their place behind those of the row before."""
    at = 2 * offsets[u64(i)]
    to = places[u64(i)]
    size = min(places[u64(i + 1)], i64(len(out))) - to
    if at >= 0 and to >= 0 and size <= i64(len(codes)) - at:
        for k in range(size):
            out[u64(to + k)] = codes[u64(at + k)]


def count_symbol(word, size, gain, base, names, gains, slots, held):
    """Count what a symbol would save; return how many there are. It is found by a slot, which earlier rounds used.

    A gain has the length of its symbol in its lowest four bits; `slots` have a power of two, more than are used.
    """
    last = i64(len(slots)) - 1
    slot = i64(((word ^ u64(size)) * NAME_MIX) >> 32) & last
    at = slots[u64(slot)] - base
    while at > 0 and (names[u64(at - 1)] != word or gains[u64(at - 1)] & GAIN_SIZE != size):
        slot = (slot + 1) & last
        at = slots[u64(slot)] - base
    count = held
    if at <= 0:
        at = held + 1
        slots[u64(slot)] = base + at
        names[u64(held)] = word
        gains[u64(held)] = size
        count = at
    gains[u64(at - 1)] += gain << GAIN_SHIFT
    return count


def take_best(held, gains, best):
    """Note which symbols save most, those first, of equal ones in the order that they came; return how many."""
    taken = i64(0)
    for k in range(held):
        gain = gains[u64(k)] >> GAIN_SHIFT
        if taken < MOST_SYMBOLS or gain > gains[u64(best[u64(taken - 1)])] >> GAIN_SHIFT:
            to = min(taken, MOST_SYMBOLS - 1)
            while to > 0 and gain > gains[u64(best[u64(to - 1)])] >> GAIN_SHIFT:
                best[u64(to)] = best[u64(to - 1)]
                to -= 1
            best[u64(to)] = k
            taken = min(taken + 1, MOST_SYMBOLS)
    return taken


def order_symbols(taken, names, gains, best, symbols, lengths, masks):
    """Write symbols in the order that other readers expect: of two bytes, longer ones by length, of one byte.

    Of those that have one slot the first one stays. Returns how many are left.
    """
    for k in range(SLOTS):
        masks[u64(k)] = 0
    for k in range(taken):
        at = best[u64(k)]
        if gains[u64(at)] & GAIN_SIZE > 2:
            slot = slot_of(names[u64(at)])
            if masks[slot] != 0:
                best[u64(k)] = -1
            masks[slot] = 1
    count = i64(0)
    for step in range(LONGEST):
        size = (step + 1) % LONGEST + 1
        for k in range(taken):
            at = best[u64(k)]
            if at >= 0 and gains[u64(at)] & GAIN_SIZE == size:
                symbols[u64(count)] = names[u64(at)]
                lengths[u64(count)] = u8(size)
                count += 1
    return count


def find_symbols(count, symbols, lengths, singles, pairs, words, masks, codes):
    """Write the tables that find symbols: for each byte, each two, and each hash of three."""
    for k in range(256):
        singles[u64(k)] = u16(ESCAPED)
    for k in range(SLOTS):
        words[u64(k)] = 0
        masks[u64(k)] = 0
        codes[u64(k)] = u16(0)
    for k in range(count):
        if lengths[u64(k)] == 1:
            singles[symbols[u64(k)] & 0xFF] = u16(u64(k) | u64(1 << SIZE_SHIFT))
    for k in range(65536):
        pairs[u64(k)] = singles[u64(k & 0xFF)]
    for k in range(count):
        word = symbols[u64(k)]
        size = u64(lengths[u64(k)])
        entry = u16(u64(k) | size << SIZE_SHIFT)
        if size == 2:
            pairs[word & 0xFFFF] = entry
        elif size > 2:
            slot = slot_of(word)
            words[slot] = word
            masks[slot] = ALL >> ((8 - size) << 3)
            codes[slot] = entry


def train_symbols(
    _item,
    text,
    offsets,
    names,
    gains,
    slots,
    best,
    symbols,
    lengths,
    singles,
    pairs,
    words,
    masks,
    codes,
    state,
):
    """Write the symbols that shorten some rows of a text most, and how many: grown from two that follow each other.

    `names` and `gains` have room for two symbols a byte, `slots` for more than twice as many, `best` for 255.
    """
    room = 2 * i64(len(text))
    num_slots = i64(len(slots))
    fits = tables_fit(singles, pairs, words, masks, codes) and min(i64(len(names)), i64(len(gains))) >= room
    fits = fits and num_slots > 2 * room and num_slots & (num_slots - 1) == 0
    if min(i64(len(best)), i64(len(symbols)), i64(len(lengths))) < MOST_SYMBOLS or not fits:
        return
    for k in range(num_slots):
        slots[u64(k)] = 0
    count = i64(0)
    base = i64(0)
    find_symbols(count, symbols, lengths, singles, pairs, words, masks, codes)
    for _ in range(ROUNDS):
        held = i64(0)
        for row in range(i64(len(offsets)) - 1):
            at = offsets[u64(row)]
            stop = offsets[u64(row + 1)]
            if at < 0 or stop > i64(len(text)) or (row > 0 and at < offsets[u64(row - 1)]):
                return
            before = i64(0)
            earlier = u64(0)
            while at < stop:
                code, size = code_at(text, at, stop, singles, pairs, words, masks, codes)
                word = u64(text[u64(at)])
                if code != ESCAPE:
                    word = symbols[code]
                gain = size
                if size == 1:
                    gain = SINGLE_GAIN
                held = count_symbol(word, size, gain, base, names, gains, slots, held)
                if before > 0 and before + size <= LONGEST:
                    both = earlier | word << u64(before << 3)
                    held = count_symbol(both, before + size, before + size, base, names, gains, slots, held)
                before = size
                earlier = word
                at += size
        base += held
        taken = take_best(held, gains, best)
        count = order_symbols(taken, names, gains, best, symbols, lengths, masks)
        find_symbols(count, symbols, lengths, singles, pairs, words, masks, codes)
    state[0] = count


TABLES = "u16[], u16[], u64[], u64[], u16[]"

SIGNATURES = {
    pack_words: ("u64[], i64, i64, u64, i64, u64, u64[]!",),
    train_symbols: (
        f"u8[], i64[], u64[]!, i64[]!, i64[]!, i64[]!, u64[]!, u8[]!, {TABLES.replace('[]', '[]!')}, i64[]!",
    ),
    write_fsst: (f"u8[], i64[], {TABLES}, i64[]!, u8[]!",),
    join_rows: ("u8[], i64[], i64[], u8[]!",),
}
