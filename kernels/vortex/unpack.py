"""Bit-packed integers in the order of FastLanes, unpacked; zigzag, frame of reference and ALP in the same launch.

1,024 elements are a chunk: of ``T`` bits packed into ``W``, it has ``T`` rows of ``1024 / T`` lanes, so each row is
16 words of 64 bits, handled whole, and one signature serves all widths. Row order: :func:`row_of`. ``log`` is
log₂ T, ``ones`` has the lowest bit of each element, ``starts`` the first word of each chunk (empty: one width).
Work item: a chunk; with ``parts`` 4 one of its 16 columns of words, with 5 (:func:`unpack_singles`) half a column:
neighbouring threads of a GPU touch neighbouring memory.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import f32, f64, i64, u64

OUTSIDE: Final = 0
"""The place in ``faults`` that becomes 1 where packed data are shorter than their chunks need."""

ROW = i64(16)
ALL = u64(2**64 - 1)
LOG_DOUBLES = i64(6)
LOG_SINGLES = i64(5)
PAIRS = u64(0x100000001)
HALF = u64(32)


def row_of(row, log):
    """Return at which word of its chunk a row begins: groups of eight rows come in the order 0 4 2 6 1 5 3 7."""
    return u64(((row & 7) << (log + 1)) + (reversed_bits(row >> 3) << log >> 2))


def reversed_bits(group):
    """Return three bits in the other order, which is that of the groups of eight rows."""
    return (group & 1) << 2 | (group & 2) | group >> 2


def lies_within(start, width, bits, held, target, room):
    """Return whether the words of a chunk, and the place for its elements, lie in their arrays."""
    fits = 0 <= width <= bits and 0 <= start <= held and width * ROW <= held - start
    return fits and target + bits * ROW <= room


def unpacked(packed, word, shift, width, bits, ones, mask):
    """Return the elements of one word of a row that begins at bit `shift` of the word `word`."""
    value = u64(0)
    if width > 0:
        value = packed[word] >> shift
        if i64(shift) + width > bits:
            up = u64(bits) - shift
            lower = ((1 << up) - 1) * ones
            value = (value & lower) | ((packed[word + 16] << up) & ~lower)
        value &= mask
    return value


def finished(value, ones, top, zigzag, reference):
    """Return the elements of a word without zigzag, and with the reference added to each, which wraps."""
    high = ones << top
    low = ~high
    if zigzag != 0:
        odd = value & ones
        value = ((value >> 1) & low) ^ ((odd << top << 1) - odd)
    return ((value & low) + (reference & low)) ^ ((value ^ reference) & high)


def mask_of(width, ones):
    """Return a word with the lowest `width` bits of each element set."""
    mask = u64(0)
    if width > 0:
        mask = (ALL >> u64(64 - width)) * ones
    return mask


def reference_of(chunk, references, ones):
    """Return the reference of a chunk, once for each element of a word."""
    reference = u64(0)
    count = i64(len(references))
    if count > 0:
        reference = references[min(chunk, count - 1)] * ones
    return reference


def unpack_words(i, packed, starts, references, width, log, ones, zigzag, parts, out, faults):
    """Write the elements of chunks as integers."""
    chunk = i >> parts
    bits = 1 << log
    start = chunk * width * ROW
    found = width
    if i64(len(starts)) > 0:
        start = i64(0)
        found = i64(-1)
        if chunk + 1 < i64(len(starts)):
            start = starts[chunk]
            found = (starts[chunk + 1] - start) >> 4
    target = chunk * bits * ROW
    if not lies_within(start, found, bits, i64(len(packed)), target, i64(len(out))):
        faults[OUTSIDE] = 1
        return
    reference = reference_of(chunk, references, ones)
    mask = mask_of(found, ones)
    if parts == 0:
        unpack_chunk(packed, u64(start), found, log, ones, mask, u64(target), out)
        if zigzag != 0 or reference != 0:
            # A second pass over what the cache still holds: no loop has more than one shape.
            for k in range(bits * ROW):
                at = u64(target) + u64(k)
                out[at] = finished(out[at], ones, u64(bits - 1), zigzag, reference)
    else:
        column = u64(i & 15)
        for row in range(bits):
            bit = row * found
            word = u64(start + (bit >> log) * ROW) + column
            value = unpacked(packed, word, u64(bit & (bits - 1)), found, bits, ones, mask)
            at = u64(target) + row_of(row, log) + column
            out[at] = finished(value, ones, u64(bits - 1), zigzag, reference)


def unpack_chunk(packed, start, width, log, ones, mask, target, out):
    """Write the packed elements of a chunk, in loops over the sixteen words of a row, which have no branch."""
    bits = 1 << log
    for row in range(bits):
        bit = row * width
        word = start + u64((bit >> log) * ROW)
        at = target + row_of(row, log)
        shift = u64(bit & (bits - 1))
        if width == 0:
            for k in range(16):
                out[at + u64(k)] = 0
        elif i64(shift) + width <= bits:
            for k in range(16):
                out[at + u64(k)] = (packed[word + u64(k)] >> shift) & mask
        else:
            up = u64(bits) - shift
            lower = ((1 << up) - 1) * ones
            upper = mask & ~lower
            for k in range(16):
                low = (packed[word + u64(k)] >> shift) & lower
                out[at + u64(k)] = low | ((packed[word + 16 + u64(k)] << up) & upper)


def unpack_doubles(i, packed, references, width, zigzag, scale, inverse, parts, out, faults):
    """Write elements of 64 bits as ``integer * scale * inverse``, rounded after each product."""
    chunk = i >> parts
    start = chunk * width * ROW
    target = chunk << 10
    if not lies_within(start, width, i64(64), i64(len(packed)), target, i64(len(out))):
        faults[OUTSIDE] = 1
        return
    reference = reference_of(chunk, references, u64(1))
    mask = mask_of(width, u64(1))
    first = i & ((1 << parts) - 1)
    for row in range(64):
        bit = row * width
        word = u64(start + (bit >> 6) * ROW + first)
        at = u64(target + first) + row_of(row, LOG_DOUBLES)
        for k in range(ROW >> parts):
            value = unpacked(packed, word + u64(k), u64(bit & 63), width, i64(64), u64(1), mask)
            value = finished(value, u64(1), u64(63), zigzag, reference)
            out[at + u64(k)] = f64(i64(value)) * scale * inverse


def unpack_singles(i, packed, references, width, zigzag, scale, inverse, parts, out, faults):
    """Write elements of 32 bits as ``integer * scale * inverse``, rounded after each product."""
    chunk = i >> parts
    start = chunk * width * ROW
    target = chunk << 10
    if not lies_within(start, width, i64(32), i64(len(packed)), target >> 1, i64(len(out)) >> 1):
        faults[OUTSIDE] = 1
        return
    reference = reference_of(chunk, references, PAIRS)
    mask = mask_of(width, PAIRS)
    lane = u64(i & 31)
    for row in range(32):
        bit = row * width
        word = u64(start + (bit >> 5) * ROW)
        at = u64(target) + (row_of(row, LOG_SINGLES) << 1)
        # The sign of a lower element comes down with a shift.
        if parts == 0:
            for k in range(ROW):
                value = unpacked(packed, word + u64(k), u64(bit & 31), width, i64(32), PAIRS, mask)
                value = finished(value, PAIRS, u64(31), zigzag, reference)
                out[at + u64(2 * k)] = f32(i64(value << HALF) >> 32) * scale * inverse
                out[at + u64(2 * k + 1)] = f32(i64(value) >> 32) * scale * inverse
        else:
            value = unpacked(packed, word + (lane >> 1), u64(bit & 31), width, i64(32), PAIRS, mask)
            value = finished(value, PAIRS, u64(31), zigzag, reference)
            out[at + lane] = f32(i64(value << (HALF - (lane & 1) * HALF)) >> 32) * scale * inverse


SIGNATURES = {
    unpack_words: ("u64[], i64[], u64[], i64, i64, u64, i64, i64, u64[]!, i64[]!",),
    unpack_doubles: ("u64[], u64[], i64, i64, f64, f64, i64, f64[]!, i64[]!",),
    unpack_singles: ("u64[], u64[], i64, i64, f32, f32, i64, f32[]!, i64[]!",),
}
