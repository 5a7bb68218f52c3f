"""Words of 64 bits: eight bytes as one, numbers of two words, and bytes that JSON escapes, eight at a time.

There is no kernel here. A number of two words is given with the higher word first.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u8, u64

EACH: Final = u64(0x0101010101010101)
"""The lowest bit of each byte."""
HIGH: Final = u64(0x8080808080808080)
"""The highest bit of each byte."""
BLANKS: Final = u64(0x2020202020202020)
ZEROS: Final = u64(0x3030303030303030)
"""Eight characters ``0``."""

QUOTES = u64(0x2222222222222222)
BACKSLASHES = u64(0x5C5C5C5C5C5C5C5C)
ODD_BYTES = u64(0x00FF00FF00FF00FF)
ODD_PAIRS = u64(0x0000FFFF0000FFFF)
TIMES_TEN = u64((2**64 - 1) // 10 - 1)


def half_at(data, at):
    """Return 16 bits as a number."""
    return u64(data[at]) | u64(data[at + 1]) << 8


def number_at(data, at):
    """Return 32 bits as a number."""
    return u64(data[at]) | u64(data[at + 1]) << 8 | u64(data[at + 2]) << 16 | u64(data[at + 3]) << 24


def load_word(data, at):
    """Return the eight bytes from `at` on, which lie in `data`; compilers make it one load."""
    return (
        u64(data[at])
        | u64(data[at + 1]) << 8
        | u64(data[at + 2]) << 16
        | u64(data[at + 3]) << 24
        | u64(data[at + 4]) << 32
        | u64(data[at + 5]) << 40
        | u64(data[at + 6]) << 48
        | u64(data[at + 7]) << 56
    )


def bytes_at(data, at, count):
    """Return up to eight bytes from `at` on, which lie in `data`, and zeros behind them."""
    word = u64(0)
    if at + 8 <= u64(len(data)):
        word = load_word(data, at)
        if count < 8:
            word &= (1 << (count << 3)) - 1
    else:
        for k in range(i64(min(count, u64(8)))):
            word |= u64(data[at + u64(k)]) << u64(8 * k)
    return word


def same_bytes(left, at, right, place, size):
    """Return whether so many bytes are the same, eight at a time; both lie in their arrays."""
    different = u64(0)
    k = u64(0)
    while k + 8 <= size and different == 0:
        different = load_word(left, at + k) ^ load_word(right, place + k)
        k += 8
    # Byte by byte: two words of up to eight bytes take a GPU 14 registers more where values are compared.
    while k < size and different == 0:
        different = u64(left[at + k]) ^ u64(right[place + k])
        k += 1
    return different == 0


def swapped(word):
    """Return a word with its bytes in the other order."""
    pairs = (word >> 8 & ODD_BYTES) | (word & ODD_BYTES) << 8
    halves = (pairs >> 16 & ODD_PAIRS) | (pairs & ODD_PAIRS) << 16
    return halves >> 32 | halves << 32


def store_number(out, at, number):
    """Write the lowest 32 bits of a number as four bytes, which `out` has from `at` on."""
    out[at] = u8(number & 0xFF)
    out[at + 1] = u8(number >> 8 & 0xFF)
    out[at + 2] = u8(number >> 16 & 0xFF)
    out[at + 3] = u8(number >> 24 & 0xFF)


def store_word(out, at, word):
    """Write a word as eight bytes, which `out` has from `at` on."""
    store_number(out, at, word)
    out[at + 4] = u8(word >> 32 & 0xFF)
    out[at + 5] = u8(word >> 40 & 0xFF)
    out[at + 6] = u8(word >> 48 & 0xFF)
    out[at + 7] = u8(word >> 56 & 0xFF)


def escaped_bytes(word):
    """Return a word whose lowest bit of all that are set is in the first byte that JSON escapes; 0 without one.

    Such a byte is a quote, a backslash or a control character; behind the first, bits may be wrong.
    """
    quotes = word ^ QUOTES
    backslashes = word ^ BACKSLASHES
    found = (quotes - EACH) & ~quotes
    found |= (backslashes - EACH) & ~backslashes
    found |= (word - BLANKS) & ~word
    return found & HIGH


def leading_zeros(word):
    """Return how many bits lie above the highest that is set; 64 where none is."""
    count = i64(0)
    rest = word
    if rest == 0:
        count = i64(64)
    else:
        step = i64(32)
        while step > 0:
            if rest >> u64(64 - step) == 0:
                rest = rest << u64(step)
                count += step
            step = step >> 1
    return count


def product(left, right):
    """Return the product of two words as two."""
    left_low = left & 0xFFFFFFFF
    left_high = left >> 32
    right_low = right & 0xFFFFFFFF
    right_high = right >> 32
    low = left_low * right_low
    middle = left_high * right_low + (low >> 32)
    other = left_low * right_high + (middle & 0xFFFFFFFF)
    return left_high * right_high + (middle >> 32) + (other >> 32), (other << 32) | (low & 0xFFFFFFFF)


def shifted_up(high, low, count):
    """Return a number of two words times ``2 ** count``, of less than 128."""
    upper = high
    lower = low
    if count >= 64:
        upper = lower << u64(count - 64)
        lower = u64(0)
    elif count > 0:
        upper = (upper << u64(count)) | (lower >> u64(64 - count))
        lower = lower << u64(count)
    return upper, lower


def below(high, low, bound_high, bound_low):
    """Return whether a number of two words is less than another."""
    return high < bound_high or (high == bound_high and low < bound_low)


def negated(high, low):
    """Return a number of two words with the other sign."""
    lower = ~low + 1
    upper = ~high
    if lower == 0:
        upper += 1
    return upper, lower


def times_ten(high, low):
    """Return ten times a number of two words, and whether two words can hold it."""
    lower = (low & 0xFFFFFFFF) * 10
    middle = (low >> 32) * 10 + (lower >> 32)
    return high * 10 + (middle >> 32), (middle << 32) | (lower & 0xFFFFFFFF), high <= TIMES_TEN


def by_ten(high, low):
    """Return a tenth of a number of two words, and what is left over."""
    upper = (high % 10 << 32) | (low >> 32)
    lower = (upper % 10 << 32) | (low & 0xFFFFFFFF)
    return high // 10, ((upper // 10) << 32) | (lower // 10), lower % 10
