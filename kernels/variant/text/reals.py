"""Floating-point numbers as the shortest digits that read back as the same number, by integers alone.

There is no kernel here. The algorithm is Schubfach (Raffaello Giulietti, "The Schubfach way to render doubles"):
a number and both ends of the interval that rounds to it are scaled by a power of ten of 128 bits, and of the one
or two candidates inside the interval the nearer is taken.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.floats import DOUBLE_EXPONENTS, DOUBLE_SHIFT, SINGLE_EXPONENTS, SINGLE_SHIFT
from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant.text.put import POWERS, digits_of, eight_digits, put, put_digits
from bowstring.kernels.words import product

LEAST_POWER: Final = -292
GREATEST_POWER: Final = 324


def powers_of_ten() -> np.ndarray[Any, Any]:
    """Return powers of ten scaled to 128 bits, rounded up: shape (617, 2), the higher word first."""
    words = np.empty((GREATEST_POWER - LEAST_POWER + 1, 2), np.uint64)
    for row, power in enumerate(range(LEAST_POWER, GREATEST_POWER + 1)):
        # The negative one of a negative rounds up.
        exact = 10 ** abs(power)
        size = exact.bit_length()
        if power >= 0:
            scaled = exact << (128 - size) if size <= 128 else -(-exact >> (size - 128))
        else:
            scaled = -(-(1 << (127 + size)) // exact)
        words[row] = scaled >> 64, scaled & (2**64 - 1)
    return words


HIGHER, LOWER = (np.ascontiguousarray(each) for each in powers_of_ten().T)
HIGHER.flags.writeable = LOWER.flags.writeable = False


FIRST_POWER = i64(LEAST_POWER)
LOG_2 = i64(1262611)  # the logarithm of 2 to the base 10, times 2 ** 22
LOG_4_3 = i64(524031)  # that of 4 / 3
LOG_10 = i64(1741647)  # that of 10 to the base 2, times 2 ** 19

# What to take from the exponents of doubles and of floats.
BIAS = i64(1075)
BIAS_32 = i64(150)

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


def to_odd(high, low):
    """Return the higher word, made odd where the lower says that there is more."""
    return high | 1 if low > 1 else high


def carry_of(total, part):
    """Return what a sum carries into the next word."""
    return u64(total < part)


def digits_between(number, power, is_close):
    """Return the shortest digits and exponent of ``number * 2 ** power``, which may end in zeros.

    `is_close` is 1 where the next lower number is half as far away as the next higher.
    """
    even = (number & 1) ^ 1
    exponent = (power * LOG_2 - i64(is_close) * LOG_4_3) >> 22
    shift = u64(power + ((-exponent * LOG_10) >> 19) + 1)
    entry = max(-exponent - FIRST_POWER, i64(0))
    high = u64(HIGHER[entry])
    low = u64(LOWER[entry])
    # Four times the number, scaled: three words, of which the highest holds the digits and two bits more.
    scaled = (number << 2) << shift
    carried, first = product(low, scaled)
    third, second = product(high, scaled)
    second += carried
    third += carry_of(second, carried)
    middle = to_odd(third, second)
    # Both ends of the interval are as far away as twice the power of ten, scaled, or once below where close.
    up = shift + 1
    part = low << up
    total = first + part
    carried = carry_of(total, part)
    part = (high << up) | (low >> (63 - shift))
    total = second + carried
    carried = carry_of(total, carried)
    total += part
    carried += carry_of(total, part)
    upper = to_odd(third + (high >> (63 - shift)) + carried, total)
    up -= is_close
    part = low << up
    carried = u64(first < part)
    part = (high << up) | ((low >> 1) >> (63 - up))
    total = second - carried
    carried = u64(second < carried)
    carried += u64(total < part)
    total -= part
    lower = to_odd(third - ((high >> 1) >> (63 - up)) - carried, total)
    lower += 1 - even
    upper -= 1 - even
    return chosen(lower, middle, upper, exponent)


def chosen(lower, middle, upper, exponent):
    """Return digits and exponent of the shortest number in an interval whose ends are counted in quarters."""
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


def shortest(bits):
    """Return the shortest digits and the exponent of ten of a positive finite double; 0 is (0, 0)."""
    fraction = bits & ((1 << DOUBLE_SHIFT) - 1)
    return decimal_of(fraction, (bits >> DOUBLE_SHIFT) & DOUBLE_EXPONENTS, 1 << DOUBLE_SHIFT, BIAS)


def shortest_single(bits):
    """Return what :func:`shortest` does, of a positive float of four bytes."""
    fraction = bits & ((1 << SINGLE_SHIFT) - 1)
    return decimal_of(fraction, (bits >> SINGLE_SHIFT) & SINGLE_EXPONENTS, 1 << SINGLE_SHIFT, BIAS_32)


def decimal_of(fraction, raised, hidden, bias):
    """Return digits and exponent of a number of which the parts are given."""
    digits = u64(0)
    exponent = i64(0)
    number = fraction
    if raised != 0:
        number |= hidden
    power = max(i64(raised), i64(1)) - bias
    is_close = u64(fraction == 0) & u64(raised > 1)
    whole = min(u64(max(-power, i64(0))), u64(63))
    if power <= 0 and (number >> whole) << whole == number:
        digits = number >> whole
    else:
        digits, exponent = digits_between(number, power, is_close)
    if digits % 10 == 0 and digits != 0:
        digits, exponent = stripped(digits, exponent)
    return digits, exponent


def put_real(out, limit, at, bits, single, java):
    """Write a number from its bits, those of a float32 if `single`: in the notation of Java's
    ``Double.toString`` if `java`, else in that of Python's ``repr``; infinities and NaN in quotes.
    """
    size = DOUBLE_EXPONENTS
    high = bits
    bias = BIAS
    hidden = DOUBLE_SHIFT
    if single != 0:
        size = SINGLE_EXPONENTS
        high = bits << 32
        bias = BIAS_32
        hidden = SINGLE_SHIFT
    sign = high >> 63
    fraction = bits & ((1 << hidden) - 1)
    raised = (bits >> hidden) & size
    end = at
    if raised == size:
        end = put_no_number(out, limit, at, sign, fraction)
    else:
        digits, exponent = decimal_of(fraction, raised, 1 << hidden, bias)
        if java != 0 and digits != 0 and digits < 10 and exponent <= (NARROW_32 if single != 0 else NARROW):
            digits, exponent = two_digits_of(fraction, single)
        end = put(out, limit, at, u64(ord("-")), sign)
        count = digits_of_real(digits)
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
            end = put_decimal(out, limit, end, digits, count, u64(-exponent))
    return end


def digits_of_real(digits):
    """Return how many digits there are: most often 15 to 17."""
    count = 15 + u64(digits >= 10**15) + u64(digits >= 10**16)
    if digits < 10**14:
        count = digits_of(digits)
    return count


def put_no_number(out, limit, at, sign, fraction):
    """Write an infinity, or what is no number."""
    end = at
    if fraction != 0:
        end = put(out, limit, at, NAN_TEXT, u64(5))
    else:
        end = put(out, limit, at, u64(ord('"')) | (u64(ord("-")) << 8), 1 + sign)
        end = put(out, limit, end, INFINITY, u64(8))
        end = put(out, limit, end, u64(ord('"')), u64(1))
    return end


def two_digits_of(fraction, single):
    """Return the two digits nearest to one of the least numbers, which Java prefers to a shorter one."""
    number = fraction * LEAST
    power = LEAST_AT
    if single != 0:
        number = fraction * LEAST_32
        power = LEAST_AT_32
    count = digits_of(number)
    unit = u64(POWERS[max(count, u64(2)) - 2])
    return stripped((number + (unit >> 1)) // unit, power + i64(count) - 2)


def put_decimal(out, limit, at, digits, count, scale):
    """Write a number of `count` digits, of which `scale`, and not all, are behind the point."""
    unit = u64(POWERS[scale])
    whole = digits // unit
    end = put_digits(out, limit, at, whole, count - scale)
    end = put(out, limit, end, u64(ord(".")), u64(1))
    return put_digits(out, limit, end, digits - whole * unit, scale)


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
        end = put(
            out,
            limit,
            end,
            u64(ord("e")) | ((u64(ord("+")) if exponent >= 0 else u64(ord("-"))) << 8),
            u64(2),
        )
        end = put_digits(out, limit, end, size, max(digits_of(size), u64(2)))
    return end
