"""Writing text: up to eight characters at a time, digits, and strings as JSON quotes them.

There is no kernel here. Text is written at `at`, which only grows, as far as `limit`, and the functions return
where it ends or would end: with no room at all they measure what they would write.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validation.text import faults
from bowstring.kernels.variant.format import BROKEN

__all__ = [
    "POWERS",
    "SIGNATURES",
    "copy",
    "digits_of",
    "eight_digits",
    "put",
    "put_digits",
    "put_number",
    "put_text",
    "same_bytes",
    "word_at",
]

POWERS: Final = np.array([10**each for each in range(20)], np.uint64)
"""The powers of ten that 64 bits hold."""

START = i64(0)
NONE = u64(0)
ONE = u64(1)
TWO = u64(2)
THREE = u64(3)
FOUR = u64(4)
FIVE = u64(5)
SIX = u64(6)
SEVEN = u64(7)
EIGHT = u64(8)
SIXTEEN = u64(16)
TWENTY_FOUR = u64(24)
BY_1 = u64(8)
BY_2 = u64(16)
BY_3 = u64(24)
BY_4 = u64(32)
BY_5 = u64(40)
BY_6 = u64(48)
BY_7 = u64(56)
LAST = u64(0xFF)
HIGH = u64(0x8080808080808080)
EACH = u64(0x0101010101010101)
BLANKS = u64(0x2020202020202020)
QUOTES = u64(0x2222222222222222)
SLASHES = u64(0x5C5C5C5C5C5C5C5C)
ZEROS = u64(0x3030303030303030)

BLANK = u64(0x20)
QUOTE = u64(0x22)
BACKSLASH = u64(0x5C)
TEN = u64(10)
LETTER = u64(ord("a") - 10)
CAPITAL = u64(ord("A") - 10)
ZERO_DIGIT = u64(ord("0"))
ESCAPED = u64(int.from_bytes(b"\\u00", "little"))
# What stands behind a backslash, where there is one; "u" for control characters without a letter.
LETTERS = np.zeros(256, np.uint8)
LETTERS[:32] = ord("u")
LETTERS[[8, 9, 10, 12, 13, 34, 92]] = list(b'btnfr"\\')
U = u64(ord("u"))
POWERS.flags.writeable = LETTERS.flags.writeable = False

E3 = u64(10**3)
E4 = u64(10**4)
E5 = u64(10**5)
E6 = u64(10**6)
E7 = u64(10**7)
E8 = u64(10**8)
E9 = u64(10**9)
E10 = u64(10**10)
E11 = u64(10**11)
E12 = u64(10**12)
E13 = u64(10**13)
E14 = u64(10**14)
E15 = u64(10**15)
E16 = u64(10**16)
E17 = u64(10**17)
E18 = u64(10**18)
E19 = u64(10**19)
HUNDRED = u64(100)
# Dividing by shifts: exact for what four and two digits can be.
BY_HUNDRED = u64(10486)
BY_TEN = u64(103)
SHIFT_20 = u64(20)
SHIFT_10 = u64(10)
PAIRS = u64(0x0000007F0000007F)
ONES = u64(0x000F000F000F000F)


def put(out: Any, limit: Any, at: Any, word: Any, count: Any) -> Any:
    """Write the first `count` bytes of a word, the lowest first.

    Where there is room for eight bytes, eight are written: what follows is written later.
    """
    if at + EIGHT <= limit:
        out[at] = u8(word & LAST)
        out[at + ONE] = u8((word >> BY_1) & LAST)
        out[at + TWO] = u8((word >> BY_2) & LAST)
        out[at + THREE] = u8((word >> BY_3) & LAST)
        out[at + FOUR] = u8((word >> BY_4) & LAST)
        out[at + FIVE] = u8((word >> BY_5) & LAST)
        out[at + SIX] = u8((word >> BY_6) & LAST)
        out[at + SEVEN] = u8((word >> BY_7) & LAST)
    elif at < limit:
        # No loop: it would be in every place that writes.
        size = min(count, limit - at)
        place = at
        rest = word
        if size & FOUR != NONE:
            out[place] = u8(rest & LAST)
            out[place + ONE] = u8((rest >> BY_1) & LAST)
            out[place + TWO] = u8((rest >> BY_2) & LAST)
            out[place + THREE] = u8((rest >> BY_3) & LAST)
            place += FOUR
            rest >>= BY_4
        if size & TWO != NONE:
            out[place] = u8(rest & LAST)
            out[place + ONE] = u8((rest >> BY_1) & LAST)
            place += TWO
            rest >>= BY_2
        if size & ONE != NONE:
            out[place] = u8(rest & LAST)
    return at + count


def word_at(data: Any, at: Any) -> Any:
    """Return the eight bytes from `at` on, which lie in `data`."""
    return (
        u64(data[at])
        | (u64(data[at + ONE]) << BY_1)
        | (u64(data[at + TWO]) << BY_2)
        | (u64(data[at + THREE]) << BY_3)
        | (u64(data[at + FOUR]) << BY_4)
        | (u64(data[at + FIVE]) << BY_5)
        | (u64(data[at + SIX]) << BY_6)
        | (u64(data[at + SEVEN]) << BY_7)
    )


def same_bytes(left: Any, at: Any, right: Any, place: Any, size: Any) -> Any:
    """Return whether so many bytes are the same, eight at a time; both lie in their arrays."""
    different = NONE
    k = NONE
    while k + EIGHT <= size and different == NONE:
        different = word_at(left, at + k) ^ word_at(right, place + k)
        k += EIGHT
    while k < size and different == NONE:
        different = u64(left[at + k]) ^ u64(right[place + k])
        k += ONE
    return different == NONE


def some_bytes(data: Any, at: Any, count: Any) -> Any:
    """Return up to eight bytes, and blanks behind them."""
    word = BLANKS
    if count >= EIGHT:
        word = word_at(data, at)
    elif count > NONE and at + EIGHT <= u64(len(data)):
        spare = (EIGHT - count) << THREE
        word = ((word_at(data, at) << spare) >> spare) | ((BLANKS >> (count << THREE)) << (count << THREE))
    else:
        k = NONE
        while k < count:
            word = word ^ ((u64(data[at + k]) ^ BLANK) << (k << THREE))
            k += ONE
    return word


def copy(out: Any, limit: Any, at: Any, data: Any, start: Any, stop: Any) -> Any:
    """Write the bytes ``[start, stop)`` of `data`, which has eight more behind them."""
    if at < limit:
        place = start
        while place < stop:
            end = put(out, limit, at + (place - start), word_at(data, place), min(stop - place, EIGHT))
            place = start + (end - at)
    return at + (stop - start)


def put_text(out: Any, limit: Any, at: Any, data: Any, start: Any, stop: Any, capital: Any) -> Any:
    """Write the text ``[start, stop)`` as JSON quotes it; return BROKEN where it is not UTF-8.

    `capital` is not 0 where the digits of control characters are capitals.
    """
    end = put(out, limit, at, QUOTE, ONE)
    fault = NONE
    previous = NONE
    place = start
    while place < stop:
        count = min(stop - place, EIGHT)
        word = some_bytes(data, place, count)
        if is_plain(word):
            end = put(out, limit, end, word, count)
        else:
            end = put_escaped(out, limit, end, word, count, capital)
        if (word | previous) & HIGH != NONE:
            fault |= faults(word, previous)
        previous = word
        place += EIGHT
    if previous & HIGH != NONE:
        fault |= faults(BLANKS, previous)
    end = put(out, limit, end, QUOTE, ONE)
    if fault != NONE:
        end = BROKEN
    return end


def is_plain(word: Any) -> Any:
    """Return whether eight characters all stand for themselves: no control character, quote or backslash."""
    quotes = word ^ QUOTES
    slashes = word ^ SLASHES
    found = (word - BLANKS) & ~word
    found |= (quotes - EACH) & ~quotes
    found |= (slashes - EACH) & ~slashes
    return found & HIGH == NONE


def put_escaped(out: Any, limit: Any, at: Any, word: Any, count: Any, capital: Any) -> Any:
    """Write up to eight characters, with a backslash where JSON wants one."""
    end = at
    k = NONE
    while k < count:
        byte = (word >> (k << THREE)) & LAST
        written = byte
        size = ONE
        letter = u64(LETTERS[byte])
        if letter != NONE:
            written = BACKSLASH | (letter << BY_1)
            size = TWO
        if letter == U:
            low = byte & u64(15)
            last = low + ZERO_DIGIT
            if low >= TEN:
                last = low + (LETTER if capital == START else CAPITAL)
            written = ESCAPED | ((ZERO_DIGIT + (byte >> FOUR)) << BY_4) | (last << BY_5)
            size = SIX
        end = put(out, limit, end, written, size)
        k += ONE
    return end


def eight_digits(number: Any) -> Any:
    """Return a number below 10 ** 8 as eight digits."""
    high = number // E4
    word = high | ((number - high * E4) << BY_4)
    pairs = ((word * BY_HUNDRED) >> SHIFT_20) & PAIRS
    word = pairs | ((word - pairs * HUNDRED) << BY_2)
    tens = ((word * BY_TEN) >> SHIFT_10) & ONES
    return (tens | ((word - tens * TEN) << BY_1)) | ZEROS


def digits_of(number: Any) -> Any:
    """Return how many digits a number has; 0 has one."""
    # Without branches that the processor would have to guess.
    count = ONE
    if number < E8:
        count += u64(number >= TEN) + u64(number >= HUNDRED) + u64(number >= E3) + u64(number >= E4)
        count += u64(number >= E5) + u64(number >= E6) + u64(number >= E7)
    elif number < E16:
        count = u64(9)
        count += u64(number >= E9) + u64(number >= E10) + u64(number >= E11) + u64(number >= E12)
        count += u64(number >= E13) + u64(number >= E14) + u64(number >= E15)
    else:
        count = u64(17)
        count += u64(number >= E17) + u64(number >= E18) + u64(number >= E19)
    return count


def put_digits(out: Any, limit: Any, at: Any, number: Any, count: Any) -> Any:
    """Write `count` digits of a number that has no more: 1 to 20, zeros in front."""
    end = at
    rest = number
    left = count
    if left > SIXTEEN:
        high = rest // E16
        rest -= high * E16
        end = put(out, limit, end, eight_digits(high) >> ((TWENTY_FOUR - left) << THREE), left - SIXTEEN)
        left = SIXTEEN
    if left > EIGHT:
        high = rest // E8
        rest -= high * E8
        end = put(out, limit, end, eight_digits(high) >> ((SIXTEEN - left) << THREE), left - EIGHT)
        left = EIGHT
    return put(out, limit, end, eight_digits(rest) >> ((EIGHT - left) << THREE), left)


def put_number(out: Any, limit: Any, at: Any, number: Any) -> Any:
    """Write a number without zeros in front."""
    return put_digits(out, limit, at, number, digits_of(number))


SIGNATURES: dict[Any, tuple[str, ...]] = {}
