"""Elements at other places: patches, dictionaries, runs and run lengths of Vortex.

Work item: one row, of :func:`gather_bits` 32; of :func:`expand_runs` ``step`` rows.
Elements are unsigned integers by width; wider ones are several words of 64 bits. Numbers that point outside of an
array are not followed: the row becomes 0, and ``faults`` says so, unless the row is null, where any number may
stand.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u32, u64
from bowstring.kernels.validity import bit_is_set

PATCH: Final = 1
"""The place in ``faults`` that becomes 1 where a patch lies outside of its array."""
CODE: Final = 2
"""The place in ``faults`` that becomes 1 where a code of a dictionary points at no value."""
RUN: Final = 3
"""The place in ``faults`` that becomes 1 where ends of runs do not rise, or end before the rows do."""


def scatter(i, indices, offset, values, out, faults):
    """Write a patch: the value at its index less an offset."""
    at = u64(indices[u64(i)]) - offset
    if at < u64(len(out)) and i < i64(len(values)):
        out[at] = values[u64(i)]
    else:
        faults[PATCH] = 1


def scatter_words(i, indices, offset, values, words, out, faults):
    """Write a patch of several words."""
    at = u64(indices[u64(i)]) - offset
    rows = i64(len(out)) // words
    if at < u64(rows) and i < i64(len(values)) // words:
        for k in range(words):
            out[at * u64(words) + u64(k)] = values[u64(i * words + k)]
    else:
        faults[PATCH] = 1


def gather(i, codes, values, validity, first, out, faults):
    """Write the value that a code stands for; `first` is the bit of the first row in the bitmap."""
    row = u64(i)
    code = u64(codes[row])
    if code < u64(len(values)):
        out[row] = values[code]
    else:
        out[row] = 0
        if bit_is_set(validity, first + i):
            faults[CODE] = 1


def gather_words(i, codes, values, words, validity, first, out, faults):
    """Write the words of the value that a code stands for."""
    # A division for each row would take longer than all else; codes have 32 bits at most.
    at = u64(codes[u64(i)]) * u64(words)
    if at + u64(words) <= u64(len(values)):
        if words == 2:
            out[u64(2 * i)] = values[at]
            out[u64(2 * i + 1)] = values[at + 1]
        else:
            for k in range(words):
                out[u64(i * words + k)] = values[at + u64(k)]
    else:
        for k in range(words):
            out[u64(i * words + k)] = 0
        if bit_is_set(validity, first + i):
            faults[CODE] = 1


def gather_bits(i, codes, bits, start, count, out):
    """Write, for 32 rows, the bits that codes stand for: of `count` bits from `start` on; 0 beyond them."""
    word = u64(0)
    first = i * 32
    for k in range(min(i64(32), i64(len(codes)) - first)):
        code = u64(codes[u64(first + k)])
        if code < count and bit_is_set(bits, start + i64(code)):
            word |= 1 << u64(k)
    out[u64(i)] = u32(word)


def expand_runs(i, ends, values, offset, rows, step, out, faults):
    """Write the values of some rows: of each the first run that ends behind it."""
    row = i * step
    stop = min(row + step, rows, i64(len(out)))
    low = i64(0)
    high = min(i64(len(ends)), i64(len(values)))
    runs = high
    while low < high:
        middle = (low + high) >> 1
        if u64(ends[u64(middle)]) > u64(row) + offset:
            high = middle
        else:
            low = middle + 1
    run = low
    while row < stop:
        end = u64(0)
        if run < runs:
            end = u64(ends[u64(run)])
        if end <= u64(row) + offset:
            faults[RUN] = 1
            return
        until = i64(min(end - offset, u64(stop)))
        value = values[u64(run)]
        for at in range(row, until):
            out[u64(at)] = value
        row = until
        run += 1


def note_order(i, ends, faults):
    """Note a fault where the end of a run is not behind the one before."""
    if ends[u64(i + 1)] <= ends[u64(i)]:
        faults[RUN] = 1


def copy_bytes(i, source, out):
    """Copy 4,096 bytes, or those that are left."""
    first = i << 12
    for k in range(min(i64(4096), min(i64(len(source)), i64(len(out))) - first)):
        out[u64(first + k)] = source[u64(first + k)]


def expand_blocks(i, indices, values, starts, offset, validity, first, out, faults):
    """Write a row of run-length blocks: 1,024 rows have values of their own, from ``starts - starts[0]`` on.

    An index behind the values of its block is the last of them; a block without values can have null rows only.
    """
    row = i + offset
    block = row >> 10
    held = i64(len(values))
    begin = held
    end = held
    if block < i64(len(starts)) and row < i64(len(indices)):
        begin = starts[u64(block)] - starts[0]
        if block + 1 < i64(len(starts)):
            end = starts[u64(block + 1)] - starts[0]
    if 0 <= begin < end <= held:
        at = u64(begin) + min(u64(indices[u64(row)]), u64(end - begin - 1))
        out[u64(i)] = values[at]
    else:
        out[u64(i)] = 0
        if bit_is_set(validity, first + i):
            faults[RUN] = 1


WIDTHS = ("u8", "u16", "u32", "u64")

SIGNATURES = {
    scatter: tuple(f"u64[], u64, {each}[], {each}[]!, i64[]!" for each in WIDTHS),
    scatter_words: ("u64[], u64, u64[], i64, u64[]!, i64[]!",),
    gather: tuple(
        f"{code}[], {each}[], u8[], i64, {each}[]!, i64[]!" for code in WIDTHS[:3] for each in WIDTHS
    ),
    gather_words: tuple(f"{code}[], u64[], i64, u8[], i64, u64[]!, i64[]!" for code in WIDTHS[:3]),
    gather_bits: tuple(f"{code}[], u8[], i64, u64, u32[]!" for code in WIDTHS[:3]),
    expand_runs: tuple(
        f"{end}[], {each}[], u64, i64, i64, {each}[]!, i64[]!" for end in WIDTHS[2:] for each in WIDTHS
    ),
    note_order: tuple(f"{end}[], i64[]!" for end in WIDTHS[2:]),
    copy_bytes: ("u8[], u8[]!",),
    expand_blocks: tuple(f"u16[], {each}[], i64[], i64, u8[], i64, {each}[]!, i64[]!" for each in WIDTHS),
}
