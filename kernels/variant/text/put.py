"""Writing text: up to eight characters at a time, digits, strings as JSON quotes them, and floating-point numbers.

There is no kernel here. Text is written at `at`, which only grows, as far as `limit`, and the functions return
where it ends or would end: with no room at all they measure what they would write.

A float becomes the shortest digits that read back as the same number, by integers alone. The algorithm is Schubfach
(Raffaello Giulietti, "The Schubfach way to render doubles"): a number and both ends of the interval that rounds to
it are scaled by a power of ten of 128 bits, and the nearer of the one or two candidates inside it is taken.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bowstring.kernels.floats import SINGLE, format_of, powers_of_ten
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validation.text import faults
from bowstring.kernels.variant.encoding import BROKEN
from bowstring.kernels.words import (
    BLANKS,
    HIGH,
    ZEROS,
    bytes_at,
    escaped_bytes,
    load_word,
    product,
    store_number,
    store_word,
)

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
            store_number(out, place, rest)
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
        word = bytes_at(data, place, count)
        if count < 8:
            word |= BLANKS << (count << 3)
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


LEAST_POWER: Final = -292
GREATEST_POWER: Final = 324


# Rounded up.
POWERS_OF_TEN = powers_of_ten(LEAST_POWER, GREATEST_POWER, up_from=LEAST_POWER, up_to=GREATEST_POWER + 1)

FIRST_POWER = i64(LEAST_POWER)
LOG_2 = i64(1262611)  # the logarithm of 2 to the base 10, times 2 ** 22
LOG_4_3 = i64(524031)  # that of 4 / 3
LOG_10 = i64(1741647)  # that of 10 to the base 2, times 2 ** 19

NAN_TEXT = u64(int.from_bytes(b'"NaN"', "little"))
INFINITY = u64(int.from_bytes(b"Infinity", "little"))
POINT_ZERO = u64(int.from_bytes(b".0", "little"))
ZERO_POINT = u64(int.from_bytes(b"0.000000", "little"))
LONGEST = i64(19)
LONGEST_REAL = u64(17)
# Where the point may be without an exponent: behind so many digits, from the first on.
PYTHON_LEAST = i64(-3)
PYTHON_MOST = i64(16)
JAVA_LEAST = i64(-2)
JAVA_MOST = i64(7)
# Up to here numbers are so far apart that one digit tells them, and the nearest two are not that one and a zero.
NARROW = i64(-322)
NARROW_32 = i64(-43)
# The least numbers, and their powers of ten.
LEAST = u64(494066)
LEAST_AT = i64(-329)
LEAST_32 = u64(1401298)
LEAST_AT_32 = i64(-51)


def digits_between(number, power, is_close):
    """Return the shortest digits and exponent of ``number * 2 ** power``, which may end in zeros.

    `is_close` is 1 where the next lower number is half as far away as the next higher.
    """
    even = (number & 1) ^ 1
    exponent = (power * LOG_2 - i64(is_close) * LOG_4_3) >> 22
    shift = u64(power + ((-exponent * LOG_10) >> 19) + 1)
    entry = max(-exponent - FIRST_POWER, i64(0))
    high = u64(POWERS_OF_TEN[2 * entry])
    low = u64(POWERS_OF_TEN[2 * entry + 1])
    # Four times the number, scaled: three words, of which the highest holds the digits and two bits more.
    scaled = (number << 2) << shift
    carried, first = product(low, scaled)
    third, second = product(high, scaled)
    second += carried
    third += u64(second < carried)
    middle = third | 1 if second > 1 else third
    # Both ends of the interval are as far away as twice the power of ten, scaled, or once below where close.
    up = shift + 1
    part = low << up
    total = first + part
    carried = u64(total < part)
    part = (high << up) | (low >> (63 - shift))
    total = second + carried
    carried = u64(total < carried)
    total += part
    carried += u64(total < part)
    upper = (
        (third + (high >> (63 - shift)) + carried) | 1
        if total > 1
        else (third + (high >> (63 - shift)) + carried)
    )
    up -= is_close
    part = low << up
    carried = u64(first < part)
    part = (high << up) | ((low >> 1) >> (63 - up))
    total = second - carried
    carried = u64(second < carried)
    carried += u64(total < part)
    total -= part
    lower = (
        (third - ((high >> 1) >> (63 - up)) - carried) | 1
        if total > 1
        else (third - ((high >> 1) >> (63 - up)) - carried)
    )
    lower += 1 - even
    upper -= 1 - even
    # The shortest number in the interval, whose ends are counted in quarters.
    # In words of 0 and 1: a branch would be guessed wrong every other time.
    digits = middle >> 2
    tenth = digits // 10
    tenth_above = u64(40 * tenth + 40 <= upper)
    is_short = u64(digits >= 10) & (u64(lower <= 40 * tenth) ^ tenth_above)
    shorter = tenth + tenth_above
    quarters = digits << 2
    above = u64(quarters + 4 <= upper)
    is_one = u64(lower <= quarters) ^ above
    nearer = u64(middle + (digits & 1) > quarters + 2)
    longer = digits + ((above & is_one) | (nearer & (is_one ^ 1)))
    return longer ^ ((longer ^ shorter) & (0 - is_short)), exponent + i64(is_short)


def stripped(digits, exponent):
    """Return digits that do not end in zeros, and their exponent."""
    left = digits
    power = exponent
    if left % 10**8 == 0:
        left //= 10**8
        power += i64(8)
    if left % 10**4 == 0:
        left //= 10**4
        power += i64(4)
    if left % 100 == 0:
        left //= 100
        power += i64(2)
    if left % 10 == 0:
        left //= 10
        power += 1
    return left, power


def shortest(bits, size):
    """Return the shortest digits and the exponent of ten of a positive finite float of some bytes; 0 is (0, 0)."""
    width, most, _ = format_of(size)
    number = bits & ((u64(1) << u64(width - 1)) - 1)
    raised = bits >> u64(width - 1)
    is_close = u64(number == 0) & u64(raised > 1)
    if raised != 0:
        number |= u64(1) << u64(width - 1)
    power = max(i64(raised), i64(1)) - most - width + 1
    whole = min(u64(max(-power, i64(0))), u64(63))
    digits = u64(0)
    exponent = i64(0)
    if power <= 0 and (number >> whole) << whole == number:
        digits = number >> whole
    else:
        digits, exponent = digits_between(number, power, is_close)
    if digits % 10 == 0 and digits != 0:
        digits, exponent = stripped(digits, exponent)
    return digits, exponent


def put_real(out, limit, at, bits, size, java):
    """Write a float of some bytes from its bits: in the notation of Java's ``Double.toString`` if `java`, else in
    that of Python's ``repr``; infinities and NaN in quotes.
    """
    width, most_exponent, place = format_of(size)
    infinity = u64(2 * most_exponent + 1) << u64(width - 1)
    sign = bits >> place
    magnitude = bits & ((u64(1) << place) - 1)
    end = at
    if magnitude > infinity:
        end = put(out, limit, at, NAN_TEXT, u64(5))
    elif magnitude == infinity:
        end = put(out, limit, at, u64(ord('"')) | (u64(ord("-")) << 8), 1 + sign)
        end = put(out, limit, end, INFINITY, u64(8))
        end = put(out, limit, end, u64(ord('"')), u64(1))
    else:
        digits, exponent = shortest(magnitude, size)
        if (
            java != 0
            and digits != 0
            and digits < 10
            and exponent <= (NARROW_32 if size == SINGLE else NARROW)
        ):
            digits, exponent = two_digits_of(magnitude, size)
        end = put(out, limit, at, u64(ord("-")), sign)
        count = 15 + u64(digits >= 10**15) + u64(digits >= 10**16)  # most often
        if digits < 10**14:
            count = digits_of(digits)
        behind = i64(count) + exponent  # so many digits are before the point
        least = JAVA_LEAST if java != 0 else PYTHON_LEAST
        most = JAVA_MOST if java != 0 else PYTHON_MOST
        if behind < least or behind > most:
            end = put_exponent(out, limit, end, digits, count, behind - 1, java)
        elif exponent >= 0:
            end = put_digits(out, limit, end, digits * u64(POWERS[min(exponent, LONGEST)]), u64(behind))
            end = put(out, limit, end, POINT_ZERO, u64(2))
        elif behind < 8:
            end = put_early_point(out, limit, end, digits, count, behind)
        else:
            scale = u64(-exponent)
            unit = u64(POWERS[scale])
            whole = digits // unit
            end = put_digits(out, limit, end, whole, count - scale)
            end = put(out, limit, end, u64(ord(".")), u64(1))
            end = put_digits(out, limit, end, digits - whole * unit, scale)
    return end


def two_digits_of(fraction, size):
    """Return the two digits nearest to one of the least numbers, which Java prefers to a shorter one."""
    number = fraction * LEAST
    power = LEAST_AT
    if size == SINGLE:
        number = fraction * LEAST_32
        power = LEAST_AT_32
    count = digits_of(number)
    unit = u64(POWERS[max(count, u64(2)) - 2])
    return stripped((number + (unit >> 1)) // unit, power + i64(count) - 2)


def put_early_point(out, limit, at, digits, count, behind):
    """Write a number of at most 17 digits with at most 7, and not all, before the point; there is no branch."""
    padded = digits * u64(POWERS[LONGEST_REAL - min(count, LONGEST_REAL)])
    first = padded // 10**16
    padded -= first * 10**16
    middle = padded // 10**8
    second = eight_digits(middle)
    third = eight_digits(padded - middle * 10**8)
    # The digits as three words of characters, and the words without those before the point.
    head = (first | ord("0")) | (second << 8)
    body = (second >> 56) | (third << 8)
    tail = third >> 56
    whole = max(behind, i64(0))
    shift = u64(whole) << 3
    back = 63 - shift
    end = put(out, limit, at, ZERO_POINT, u64(2 - behind) if behind <= 0 else u64(0))
    end = put(out, limit, end, head, u64(whole))
    end = put(out, limit, end, u64(ord(".")), u64(min(whole, i64(1))))
    left = count - u64(whole)
    end = put(out, limit, end, (head >> shift) | ((body << back) << 1), min(left, u64(8)))
    if left > 8:
        left -= 8
        end = put(out, limit, end, (body >> shift) | ((tail << back) << 1), min(left, u64(8)))
        end = put(out, limit, end, tail, left - min(left, u64(8)))
    return end


def put_exponent(out, limit, at, digits, count, exponent, java):
    """Write a number with one digit before the point, and an exponent."""
    unit = u64(POWERS[min(count - 1, u64(19))])
    first = digits // unit
    end = put_digits(out, limit, at, first, u64(1))
    if count > 1:
        end = put(out, limit, end, u64(ord(".")), u64(1))
        end = put_digits(out, limit, end, digits - first * unit, count - 1)
    elif java != 0:
        end = put(out, limit, end, POINT_ZERO, u64(2))
    size = u64(max(exponent, -exponent))
    if java != 0:
        end = put(out, limit, end, u64(ord("E")) | (u64(ord("-")) << 8), u64(1) if exponent >= 0 else u64(2))
        end = put_digits(out, limit, end, size, digits_of(size))
    else:
        sign = u64(ord("+")) if exponent >= 0 else u64(ord("-"))
        end = put(out, limit, end, u64(ord("e")) | sign << 8, u64(2))
        end = put_digits(out, limit, end, size, max(digits_of(size), u64(2)))
    return end
