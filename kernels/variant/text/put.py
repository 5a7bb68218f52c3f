"""Writing text: up to eight characters at a time, digits, and strings as JSON quotes them.

There is no kernel here. Text is written at `at`, which only grows, as far as `limit`, and the functions return
where it ends or would end: with no room at all they measure what they would write.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validation.text import faults
from bowstring.kernels.variant.encoding import BROKEN
from bowstring.kernels.words import BLANKS, HIGH, ZEROS, escaped_bytes, load_word, store_word

POWERS: Final = np.array([10**each for each in range(20)], np.uint64)
"""The powers of ten that 64 bits hold."""

START = i64(0)
LAST = u64(0xFF)

LETTER = u64(ord("a") - 10)
CAPITAL = u64(ord("A") - 10)
ESCAPED = u64(int.from_bytes(b"\\u00", "little"))
# What stands behind a backslash, where there is one; "u" for control characters without a letter.
LETTERS = np.zeros(256, np.uint8)
LETTERS[:32] = ord("u")
LETTERS[[8, 9, 10, 12, 13, 34, 92]] = list(b'btnfr"\\')
POWERS.flags.writeable = LETTERS.flags.writeable = False

# Dividing by shifts: exact for what four and two digits can be.
BY_HUNDRED = u64(10486)
BY_TEN = u64(103)
PAIRS = u64(0x0000007F0000007F)
ONES = u64(0x000F000F000F000F)


def put(out, limit, at, word, count):
    """Write the first `count` bytes of a word, the lowest first.

    Where there is room for eight bytes, eight are written: what follows is written later.
    """
    if at + 8 <= limit:
        store_word(out, at, word)
    elif at < limit:
        # No loop: it would be in every place that writes.
        size = min(count, limit - at)
        place = at
        rest = word
        if size & 4 != 0:
            out[place] = u8(rest & LAST)
            out[place + 1] = u8((rest >> 8) & LAST)
            out[place + 2] = u8((rest >> 16) & LAST)
            out[place + 3] = u8((rest >> 24) & LAST)
            place += 4
            rest >>= 32
        if size & 2 != 0:
            out[place] = u8(rest & LAST)
            out[place + 1] = u8((rest >> 8) & LAST)
            place += 2
            rest >>= 16
        if size & 1 != 0:
            out[place] = u8(rest & LAST)
    return at + count


def same_bytes(left, at, right, place, size):
    """Return whether so many bytes are the same, eight at a time; both lie in their arrays."""
    different = u64(0)
    k = u64(0)
    while k + 8 <= size and different == 0:
        different = load_word(left, at + k) ^ load_word(right, place + k)
        k += 8
    while k < size and different == 0:
        different = u64(left[at + k]) ^ u64(right[place + k])
        k += 1
    return different == 0


def some_bytes(data, at, count):
    """Return up to eight bytes, and blanks behind them."""
    word = BLANKS
    if count >= 8:
        word = load_word(data, at)
    elif count > 0 and at + 8 <= u64(len(data)):
        spare = (8 - count) << 3
        word = ((load_word(data, at) << spare) >> spare) | ((BLANKS >> (count << 3)) << (count << 3))
    else:
        k = u64(0)
        while k < count:
            word = word ^ ((u64(data[at + k]) ^ ord(" ")) << (k << 3))
            k += 1
    return word


def copy(out, limit, at, data, start, stop):
    """Write the bytes ``[start, stop)`` of `data`, which has eight more behind them."""
    if at < limit:
        place = start
        while place < stop:
            end = put(out, limit, at + (place - start), load_word(data, place), min(stop - place, u64(8)))
            place = start + (end - at)
    return at + (stop - start)


def put_text(out, limit, at, data, start, stop, capital):
    """Write the text ``[start, stop)`` as JSON quotes it; return BROKEN where it is not UTF-8.

    `capital` is not 0 where the digits of control characters are capitals.
    """
    end = put(out, limit, at, u64(ord('"')), u64(1))
    fault = u64(0)
    previous = u64(0)
    place = start
    while place < stop:
        count = min(stop - place, u64(8))
        word = some_bytes(data, place, count)
        if escaped_bytes(word) == 0:
            end = put(out, limit, end, word, count)
        else:
            end = put_escaped(out, limit, end, word, count, capital)
        if (word | previous) & HIGH != 0:
            fault |= faults(word, previous)
        previous = word
        place += 8
    if previous & HIGH != 0:
        fault |= faults(BLANKS, previous)
    end = put(out, limit, end, u64(ord('"')), u64(1))
    if fault != 0:
        end = BROKEN
    return end


def put_escaped(out, limit, at, word, count, capital):
    """Write up to eight characters, with a backslash where JSON wants one."""
    end = at
    k = u64(0)
    while k < count:
        byte = (word >> (k << 3)) & LAST
        written = byte
        size = u64(1)
        letter = u64(LETTERS[byte])
        if letter != 0:
            written = ord("\\") | (letter << 8)
            size = u64(2)
        if letter == ord("u"):
            low = byte & u64(15)
            last = low + ord("0")
            if low >= 10:
                last = low + (LETTER if capital == START else CAPITAL)
            written = ESCAPED | ((ord("0") + (byte >> 4)) << 32) | (last << 40)
            size = u64(6)
        end = put(out, limit, end, written, size)
        k += 1
    return end


def eight_digits(number):
    """Return a number below 10 ** 8 as eight digits."""
    high = number // 10**4
    word = high | ((number - high * 10**4) << 32)
    pairs = ((word * BY_HUNDRED) >> 20) & PAIRS
    word = pairs | ((word - pairs * 100) << 16)
    tens = ((word * BY_TEN) >> 10) & ONES
    return (tens | ((word - tens * 10) << 8)) | ZEROS


def digits_of(number):
    """Return how many digits a number has; 0 has one."""
    # Without branches that the processor would have to guess.
    count = u64(1)
    if number < 10**8:
        count += u64(number >= 10) + u64(number >= 100) + u64(number >= 10**3) + u64(number >= 10**4)
        count += u64(number >= 10**5) + u64(number >= 10**6) + u64(number >= 10**7)
    elif number < 10**16:
        count = u64(9)
        count += u64(number >= 10**9) + u64(number >= 10**10) + u64(number >= 10**11) + u64(number >= 10**12)
        count += u64(number >= 10**13) + u64(number >= 10**14) + u64(number >= 10**15)
    else:
        count = u64(17)
        count += u64(number >= 10**17) + u64(number >= 10**18) + u64(number >= 10**19)
    return count


def put_digits(out, limit, at, number, count):
    """Write `count` digits of a number that has no more: 1 to 20, zeros in front."""
    end = at
    rest = number
    left = count
    if left > 16:
        high = rest // 10**16
        rest -= high * 10**16
        end = put(out, limit, end, eight_digits(high) >> ((24 - left) << 3), left - 16)
        left = u64(16)
    if left > 8:
        high = rest // 10**8
        rest -= high * 10**8
        end = put(out, limit, end, eight_digits(high) >> ((16 - left) << 3), left - 8)
        left = u64(8)
    return put(out, limit, end, eight_digits(rest) >> ((8 - left) << 3), left)
