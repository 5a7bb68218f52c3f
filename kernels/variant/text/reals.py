"""Floating-point numbers as the shortest digits that read back as the same number, by integers alone.

There is no kernel here. The algorithm is Schubfach (Raffaello Giulietti, "The Schubfach way to render doubles"):
a number and both ends of the interval that rounds to it are scaled by a power of ten of 128 bits, and of the one
or two candidates inside the interval the nearer is taken.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant.text.put import POWERS, digits_of, eight_digits, put, put_digits

__all__ = ["SIGNATURES", "product", "put_real", "shortest", "shortest_32"]

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

NONE = u64(0)
ONE = u64(1)
TWO = u64(2)
THREE = u64(3)
FOUR = u64(4)
EIGHT = u64(8)
TEN = u64(10)
HUNDRED = u64(100)
E4 = u64(10**4)
E8 = u64(10**8)
BY_1 = u64(8)
FORTY = u64(40)
HALF = u64(32)
TOP = u64(63)
LOW_HALF = u64(0xFFFFFFFF)

ZERO = i64(0)
UNIT = i64(1)
FIRST_POWER = i64(LEAST_POWER)
LOG_2 = i64(1262611)  # the logarithm of 2 to the base 10, times 2 ** 22
LOG_4_3 = i64(524031)  # that of 4 / 3
LOG_10 = i64(1741647)  # that of 10 to the base 2, times 2 ** 19
SHIFT_22 = i64(22)
SHIFT_19 = i64(19)

# Bits of the fraction, the greatest exponent, and what to take from it, of doubles and of floats.
FRACTION = u64(52)
EXPONENTS = u64(0x7FF)
BIAS = i64(1075)
FRACTION_32 = u64(23)
EXPONENTS_32 = u64(0xFF)
BIAS_32 = i64(150)

FIVE = u64(5)
QUOTE = u64(0x22)
NAN_TEXT = u64(int.from_bytes(b'"NaN"', "little"))
INFINITY = u64(int.from_bytes(b"Infinity", "little"))
MINUS = u64(ord("-"))
POINT = u64(ord("."))
POINT_ZERO = u64(int.from_bytes(b".0", "little"))
ZERO_POINT = u64(int.from_bytes(b"0.000000", "little"))
LONGEST = i64(19)
TWENTY = u64(20)
LONGEST_REAL = u64(17)
FIFTEEN = u64(15)
TWO_BYTES = i64(2)
E14 = u64(10**14)
E15 = u64(10**15)
E16 = u64(10**16)
ZERO_DIGIT = u64(ord("0"))
BY_7 = u64(56)
LARGE_E = u64(ord("E"))
SMALL_E = u64(ord("e"))
PLUS = u64(ord("+"))
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


def product(left: Any, right: Any) -> Any:
    """Return the product of two words as two, the higher first."""
    left_low = left & LOW_HALF
    left_high = left >> HALF
    right_low = right & LOW_HALF
    right_high = right >> HALF
    low = left_low * right_low
    middle = left_high * right_low + (low >> HALF)
    other = left_low * right_high + (middle & LOW_HALF)
    return left_high * right_high + (middle >> HALF) + (other >> HALF), (other << HALF) | (low & LOW_HALF)


def to_odd(high: Any, low: Any) -> Any:
    """Return the higher word, made odd where the lower says that there is more."""
    return high | ONE if low > ONE else high


def carry_of(total: Any, part: Any) -> Any:
    """Return what a sum carries into the next word."""
    return ONE if total < part else NONE


def digits_between(number: Any, power: Any, is_close: Any) -> Any:
    """Return the shortest digits and exponent of ``number * 2 ** power``, which may end in zeros.

    `is_close` is 1 where the next lower number is half as far away as the next higher.
    """
    even = (number & ONE) ^ ONE
    exponent = (power * LOG_2 - i64(is_close) * LOG_4_3) >> SHIFT_22
    shift = u64(power + ((-exponent * LOG_10) >> SHIFT_19) + UNIT)
    entry = max(-exponent - FIRST_POWER, ZERO)
    high = u64(HIGHER[entry])
    low = u64(LOWER[entry])
    # Four times the number, scaled: three words, of which the highest holds the digits and two bits more.
    scaled = (number << TWO) << shift
    carried, first = product(low, scaled)
    third, second = product(high, scaled)
    second += carried
    third += carry_of(second, carried)
    middle = to_odd(third, second)
    # Both ends of the interval are as far away as twice the power of ten, scaled, or once below where close.
    up = shift + ONE
    part = low << up
    total = first + part
    carried = carry_of(total, part)
    part = (high << up) | (low >> (TOP - shift))
    total = second + carried
    carried = carry_of(total, carried)
    total += part
    carried += carry_of(total, part)
    upper = to_odd(third + (high >> (TOP - shift)) + carried, total)
    up -= is_close
    part = low << up
    carried = ONE if first < part else NONE
    part = (high << up) | ((low >> ONE) >> (TOP - up))
    total = second - carried
    carried = ONE if second < carried else NONE
    carried += ONE if total < part else NONE
    total -= part
    lower = to_odd(third - ((high >> ONE) >> (TOP - up)) - carried, total)
    lower += ONE - even
    upper -= ONE - even
    return chosen(lower, middle, upper, exponent)


def chosen(lower: Any, middle: Any, upper: Any, exponent: Any) -> Any:
    """Return digits and exponent of the shortest number in an interval whose ends are counted in quarters."""
    # In words of 0 and 1: a branch would be guessed wrong every other time.
    digits = middle >> TWO
    tenth = digits // TEN
    tenth_above = u64(FORTY * tenth + FORTY <= upper)
    is_short = u64(digits >= TEN) & (u64(lower <= FORTY * tenth) ^ tenth_above)
    shorter = tenth + tenth_above
    quarters = digits << TWO
    above = u64(quarters + FOUR <= upper)
    is_one = u64(lower <= quarters) ^ above
    nearer = u64(middle + (digits & ONE) > quarters + TWO)
    longer = digits + ((above & is_one) | (nearer & (is_one ^ ONE)))
    return longer ^ ((longer ^ shorter) & (NONE - is_short)), exponent + i64(is_short)


def stripped(digits: Any, exponent: Any) -> Any:
    """Return digits that do not end in zeros, and their exponent."""
    left = digits
    power = exponent
    if left % E8 == NONE:
        left //= E8
        power += i64(8)
    if left % E4 == NONE:
        left //= E4
        power += i64(4)
    if left % HUNDRED == NONE:
        left //= HUNDRED
        power += i64(2)
    if left % TEN == NONE:
        left //= TEN
        power += UNIT
    return left, power


def shortest(bits: Any) -> Any:
    """Return the shortest digits and the exponent of ten of a positive double, which is finite; 0 is (0, 0).

    Examples
    --------
    >>> from bowstring.kernels.types import f64
    >>> [int(each) for each in shortest(f64(1500).view(u64))]
    [15, 2]
    """
    fraction = bits & ((ONE << FRACTION) - ONE)
    return decimal_of(fraction, (bits >> FRACTION) & EXPONENTS, ONE << FRACTION, BIAS)


def shortest_32(bits: Any) -> Any:
    """Return the shortest digits and the exponent of ten of a positive float32, which is finite; 0 is (0, 0)."""
    fraction = bits & ((ONE << FRACTION_32) - ONE)
    return decimal_of(fraction, (bits >> FRACTION_32) & EXPONENTS_32, ONE << FRACTION_32, BIAS_32)


def decimal_of(fraction: Any, raised: Any, hidden: Any, bias: Any) -> Any:
    """Return digits and exponent of a number of which the parts are given."""
    digits = NONE
    exponent = ZERO
    number = fraction
    if raised != NONE:
        number |= hidden
    power = max(i64(raised), UNIT) - bias
    is_close = u64(fraction == NONE) & u64(raised > ONE)
    whole = min(u64(max(-power, ZERO)), TOP)
    if power <= ZERO and (number >> whole) << whole == number:
        digits = number >> whole
    else:
        digits, exponent = digits_between(number, power, is_close)
    if digits % TEN == NONE and digits != NONE:
        digits, exponent = stripped(digits, exponent)
    return digits, exponent


def put_real(out: Any, limit: Any, at: Any, bits: Any, single: Any, java: Any) -> Any:
    """Write a number of which the bits are given, those of a float32 where `single` is not 0.

    With `java` not 0 in the notation of Java's ``Double.toString``, else in that of Python's ``repr``; infinities
    and what is no number in quotes.
    """
    size = EXPONENTS
    high = bits
    bias = BIAS
    hidden = FRACTION
    if single != ZERO:
        size = EXPONENTS_32
        high = bits << HALF
        bias = BIAS_32
        hidden = FRACTION_32
    sign = high >> TOP
    fraction = bits & ((ONE << hidden) - ONE)
    raised = (bits >> hidden) & size
    end = at
    if raised == size:
        end = put_no_number(out, limit, at, sign, fraction)
    else:
        digits, exponent = decimal_of(fraction, raised, ONE << hidden, bias)
        if (
            java != ZERO
            and digits != NONE
            and digits < TEN
            and exponent <= (NARROW_32 if single != ZERO else NARROW)
        ):
            digits, exponent = two_digits_of(fraction, single)
        end = put(out, limit, at, MINUS, sign)
        count = digits_of_real(digits)
        behind = i64(count) + exponent  # so many digits are before the point
        least = JAVA_LEAST if java != ZERO else PYTHON_LEAST
        most = JAVA_MOST if java != ZERO else PYTHON_MOST
        if behind < least or behind > most:
            end = put_exponent(out, limit, end, digits, count, behind - UNIT, java)
        elif exponent >= ZERO:
            end = put_digits(out, limit, end, digits * u64(POWERS[min(exponent, LONGEST)]), u64(behind))
            end = put(out, limit, end, POINT_ZERO, TWO)
        elif behind < i64(EIGHT):
            end = put_early_point(out, limit, end, digits, count, behind)
        else:
            end = put_decimal(out, limit, end, digits, count, u64(-exponent))
    return end


def digits_of_real(digits: Any) -> Any:
    """Return how many digits there are: most often 15 to 17."""
    count = FIFTEEN + u64(digits >= E15) + u64(digits >= E16)
    if digits < E14:
        count = digits_of(digits)
    return count


def put_no_number(out: Any, limit: Any, at: Any, sign: Any, fraction: Any) -> Any:
    """Write an infinity, or what is no number."""
    end = at
    if fraction != NONE:
        end = put(out, limit, at, NAN_TEXT, FIVE)
    else:
        end = put(out, limit, at, QUOTE | (MINUS << BY_1), ONE + sign)
        end = put(out, limit, end, INFINITY, EIGHT)
        end = put(out, limit, end, QUOTE, ONE)
    return end


def two_digits_of(fraction: Any, single: Any) -> Any:
    """Return the two digits nearest to one of the least numbers, which Java prefers to a shorter one."""
    number = fraction * LEAST
    power = LEAST_AT
    if single != ZERO:
        number = fraction * LEAST_32
        power = LEAST_AT_32
    count = digits_of(number)
    unit = u64(POWERS[max(count, TWO) - TWO])
    return stripped((number + (unit >> ONE)) // unit, power + i64(count) - i64(TWO))


def put_decimal(out: Any, limit: Any, at: Any, digits: Any, count: Any, scale: Any) -> Any:
    """Write a number of `count` digits, of which `scale`, and not all, are behind the point."""
    unit = u64(POWERS[scale])
    whole = digits // unit
    end = put_digits(out, limit, at, whole, count - scale)
    end = put(out, limit, end, POINT, ONE)
    return put_digits(out, limit, end, digits - whole * unit, scale)


def put_early_point(out: Any, limit: Any, at: Any, digits: Any, count: Any, behind: Any) -> Any:
    """Write a number of at most 17 digits with at most 7, and not all, before the point; there is no branch."""
    padded = digits * u64(POWERS[LONGEST_REAL - min(count, LONGEST_REAL)])
    first = padded // E16
    padded -= first * E16
    middle = padded // E8
    second = eight_digits(middle)
    third = eight_digits(padded - middle * E8)
    # The digits as three words of characters, and the words without those before the point.
    head = (first | ZERO_DIGIT) | (second << BY_1)
    body = (second >> BY_7) | (third << BY_1)
    tail = third >> BY_7
    whole = max(behind, ZERO)
    shift = u64(whole) << THREE
    back = TOP - shift
    end = put(out, limit, at, ZERO_POINT, u64(TWO_BYTES - behind) if behind <= ZERO else NONE)
    end = put(out, limit, end, head, u64(whole))
    end = put(out, limit, end, POINT, u64(min(whole, UNIT)))
    left = count - u64(whole)
    end = put(out, limit, end, (head >> shift) | ((body << back) << ONE), min(left, EIGHT))
    if left > EIGHT:
        left -= EIGHT
        end = put(out, limit, end, (body >> shift) | ((tail << back) << ONE), min(left, EIGHT))
        end = put(out, limit, end, tail, left - min(left, EIGHT))
    return end


def put_exponent(out: Any, limit: Any, at: Any, digits: Any, count: Any, exponent: Any, java: Any) -> Any:
    """Write a number with one digit before the point, and an exponent."""
    unit = u64(POWERS[min(count - ONE, TWENTY - ONE)])
    first = digits // unit
    end = put_digits(out, limit, at, first, ONE)
    if count > ONE:
        end = put(out, limit, end, POINT, ONE)
        end = put_digits(out, limit, end, digits - first * unit, count - ONE)
    elif java != ZERO:
        end = put(out, limit, end, POINT_ZERO, TWO)
    size = u64(max(exponent, -exponent))
    if java != ZERO:
        end = put(out, limit, end, LARGE_E | (MINUS << BY_1), ONE if exponent >= ZERO else TWO)
        end = put_digits(out, limit, end, size, digits_of(size))
    else:
        end = put(out, limit, end, SMALL_E | ((PLUS if exponent >= ZERO else MINUS) << BY_1), TWO)
        end = put_digits(out, limit, end, size, max(digits_of(size), TWO))
    return end


SIGNATURES: dict[Any, tuple[str, ...]] = {}
