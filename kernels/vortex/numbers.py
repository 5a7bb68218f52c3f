"""Numbers of Vortex that are made of others: by references, zigzag, ALP, ALP-RD, sequences, deltas and parts.

Work item: one element; of :func:`add_deltas`, one lane of a chunk of 1,024 elements. Integers are taken as signed
ones of their width, and wrap: ``up`` is 64 less the bits of an element, so that two shifts bring its sign into all
of a word.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import f32, f64, i64, u32, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.vortex.unpack import OUTSIDE, reversed_bits

LEFT: Final = 4
"""The place in ``faults`` that becomes 1 where a left part of ALP-RD has a code that its dictionary lacks."""


def adjust(i, values, up, zigzag, references, out):
    """Write a number without zigzag, and with a reference added: the only one, or that of its 1,024 elements."""
    at = u64(i)
    value = u64(values[at])
    if zigzag != 0:
        value = (value << up >> up >> 1) ^ (u64(0) - (value & 1))
    count = i64(len(references))
    if count > 0:
        value += references[u64(min(i >> 10, count - 1))]
    out[at] = i64(value << up) >> i64(up)


def scale_doubles(i, values, scale, inverse, out):
    """Write ``integer * scale * inverse``, rounded after each product."""
    out[u64(i)] = f64(values[u64(i)]) * scale * inverse


def scale_singles(i, values, scale, inverse, out):
    """Write ``integer * scale * inverse``, rounded after each product."""
    out[u64(i)] = f32(values[u64(i)]) * scale * inverse


def join_doubles(i, codes, rights, lefts, right_bits, validity, out, faults):
    """Write the bits of a double: those on the left, which a code stands for, and those on the right."""
    out[u64(i)] = left_part(i, codes, lefts, validity, faults) << right_bits | u64(rights[u64(i)])


def join_singles(i, codes, rights, lefts, right_bits, validity, out, faults):
    """Write the bits of a single: those on the left, which a code stands for, and those on the right."""
    left = left_part(i, codes, lefts, validity, faults) << right_bits
    out[u64(i)] = u32((left | u64(rights[u64(i)])) & 0xFFFFFFFF)


def left_part(i, codes, lefts, validity, faults):
    """Return what a code stands for, 0 where it stands for nothing."""
    left = u64(0)
    code = u64(codes[u64(i)])
    if code < u64(len(lefts)):
        left = lefts[code]
    elif bit_is_set(validity, i):
        faults[LEFT] = 1
    return left


def patch_doubles(i, indices, offset, lefts, right_bits, out, faults):
    """Replace the left bits of a double."""
    at = u64(indices[u64(i)]) - offset
    if at < u64(len(out)) and i < i64(len(lefts)):
        out[at] = (lefts[u64(i)] << right_bits) | (out[at] & ((1 << right_bits) - 1))
    else:
        faults[OUTSIDE] = 1


def patch_singles(i, indices, offset, lefts, right_bits, out, faults):
    """Replace the left bits of a single."""
    at = u64(indices[u64(i)]) - offset
    if at < u64(len(out)) and i < i64(len(lefts)):
        right = u64(out[at]) & ((1 << right_bits) - 1)
        out[at] = u32(((lefts[u64(i)] << right_bits) | right) & 0xFFFFFFFF)
    else:
        faults[OUTSIDE] = 1


def count_up(i, base, step, up, out):
    """Write an element of a sequence, ``base + i * step``."""
    out[u64(i)] = i64((base + u64(i) * step) << up) >> i64(up)


def add_deltas(i, bases, deltas, log, up, out, faults):
    """Write the elements of a lane: its base, and the differences from each to the next.

    A chunk of 1,024 elements of `T` bits has ``1024 / T`` lanes of `T` elements; ``log`` is the logarithm of `T`.
    """
    lanes = i64(1024) >> log
    chunk = i >> (10 - log)
    lane = i & (lanes - 1)
    first = chunk << 10
    if first + 1024 > i64(len(deltas)) or first + 1024 > i64(len(out)) or i >= i64(len(bases)):
        faults[OUTSIDE] = 1
        return
    value = u64(bases[u64(i)])
    for row in range(1 << log):
        place = reversed_bits(row >> 3) * 16 + (row & 7) * 128 + lane
        value += u64(deltas[u64(first + place)])
        natural = (place & 15) * 64 + reversed_bits((place >> 4) & 7) * 8 + (place >> 7)
        out[u64(first + natural)] = i64(value << up) >> i64(up)


def add_part(i, part, factor, total):
    """Add a part, times a factor, to a total."""
    total[u64(i)] = total[u64(i)] + i64(part[u64(i)]) * factor


def convert(i, values, out):
    """Write a number as a wider one."""
    out[u64(i)] = i64(values[u64(i)])


def widen(i, values, words, out):
    """Write a signed number as one of several words."""
    value = i64(values[u64(i)])
    if words == 2:
        out[u64(2 * i)] = u64(value)
        out[u64(2 * i + 1)] = u64(value >> 63)
    else:
        out[u64(i * words)] = u64(value)
        for k in range(1, words):
            out[u64(i * words + k)] = u64(value >> 63)


SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32")

SIGNATURES = {
    adjust: tuple(f"{each}[], u64, i64, u64[], {each}[]!" for each in SIGNED),
    scale_doubles: ("i64[], f64, f64, f64[]!",),
    scale_singles: ("i32[], f32, f32, f32[]!",),
    join_doubles: ("u16[], u64[], u64[], u64, u8[], u64[]!, i64[]!",),
    join_singles: ("u16[], u32[], u64[], u64, u8[], u32[]!, i64[]!",),
    patch_doubles: ("u64[], u64, u64[], u64, u64[]!, i64[]!",),
    patch_singles: ("u64[], u64, u64[], u64, u32[]!, i64[]!",),
    count_up: tuple(f"u64, u64, u64, {each}[]!" for each in SIGNED),
    add_deltas: tuple(f"{each}[], {each}[], i64, u64, {each}[]!, i64[]!" for each in SIGNED),
    add_part: tuple(f"{each}[], i64, i64[]!" for each in (*SIGNED, *UNSIGNED)),
    convert: (
        "u8[], i16[]!",
        *(f"{each}[], i32[]!" for each in UNSIGNED[:2]),
        *(f"{each}[], i64[]!" for each in (*SIGNED[:3], *UNSIGNED)),
    ),
    widen: tuple(f"{each}[], i64, u64[]!" for each in SIGNED),
}
