"""Variant's dates, times and timestamps as JSON text.

There is no kernel here.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant.text.put import POWERS, digits_of, put, put_digits

__all__ = ["DAY", "SIGNATURES", "put_date", "put_moment", "put_time"]

ZERO = i64(0)
UNIT = i64(1)
NONE = u64(0)
ONE = u64(1)
FOUR = u64(4)
SIX = u64(6)
EIGHT = u64(8)
TEN = u64(10)
BY_1 = u64(8)
BY_2 = u64(16)
BY_3 = u64(24)
BY_4 = u64(32)
BY_5 = u64(40)
DATE = u64(11)
TIMESTAMP = u64(12)
TIME = u64(17)
TIMESTAMP_NS = u64(18)
TIMESTAMP_NTZ_NS = u64(19)
QUOTE = u64(0x22)
MINUS = u64(ord("-"))
PLUS = u64(ord("+"))
POINT = u64(ord("."))
COLON = u64(ord(":"))
BLANK = u64(ord(" "))
LETTER_T = u64(ord("T"))
LETTER_Z = u64(ord("Z"))
OFFSET = u64(int.from_bytes(b"+00:00", "little"))
ZERO_DIGIT = u64(0x30)
MICROSECONDS = u64(6)
NANOSECONDS = u64(9)
BY_6 = u64(48)
SECONDS_PER_DAY = i64(86_400)
SECONDS_PER_HOUR = u64(3_600)
SIXTY = u64(60)
DAY = i64(86_400_000_000)
TO_MARCH = i64(719_468)  # days from the March that begins the year 0 to 1970
DAYS_400 = i64(146_097)
DAYS_4 = i64(1_460)
DAYS_100 = i64(36_524)
LAST_DAY = i64(146_096)
YEAR = i64(365)
YEARS_4 = i64(4)
YEARS_100 = i64(100)
YEARS_400 = i64(400)
DAYS_OF_MONTHS = i64(153)  # of five months from March on
MONTHS = i64(5)
TWO_DAYS = i64(2)
AFTER_FEBRUARY = i64(10)
TO_SAME_YEAR = i64(3)
TO_NEXT_YEAR = i64(9)
MOST_YEAR = i64(9999)


def put_moment(out: Any, limit: Any, at: Any, number: Any, kind: Any, spark: Any) -> Any:
    """Write a date, a time or a timestamp."""
    fraction_digits = NANOSECONDS if kind >= TIMESTAMP_NS and kind <= TIMESTAMP_NTZ_NS else MICROSECONDS
    days = number
    rest = ZERO
    end = put(out, limit, at, QUOTE, ONE)
    if kind != DATE:
        per_day = SECONDS_PER_DAY * i64(POWERS[fraction_digits])
        days = number // per_day
        rest = number - days * per_day
    if kind != TIME:
        end = put_date(out, limit, end, days)
    if kind != DATE:
        if kind != TIME:
            end = put(out, limit, end, BLANK if spark != ZERO else LETTER_T, ONE)
        end = put_time(out, limit, end, u64(rest), fraction_digits, spark)
    if kind >= TIMESTAMP and (kind - TIMESTAMP) % SIX == NONE:  # in nanoseconds, six further on
        end = put(out, limit, end, OFFSET if spark != ZERO else LETTER_Z, SIX if spark != ZERO else ONE)
    return put(out, limit, end, QUOTE, ONE)


def two_digits(number: Any) -> Any:
    """Return a number below 100 as two digits."""
    tens = number // TEN
    return ZERO_DIGIT + tens | ((ZERO_DIGIT + number - tens * TEN) << BY_1)


def put_time(out: Any, limit: Any, at: Any, rest: Any, fraction_digits: Any, spark: Any) -> Any:
    """Write a time of day."""
    unit = u64(POWERS[fraction_digits])
    seconds = rest // unit
    fraction = rest - seconds * unit
    hours = seconds // SECONDS_PER_HOUR
    minutes = seconds // SIXTY % SIXTY
    word = two_digits(hours) | (COLON << BY_2) | (two_digits(minutes) << BY_3) | (COLON << BY_5)
    end = put(out, limit, at, word | (two_digits(seconds % SIXTY) << BY_6), EIGHT)
    digits = fraction_digits
    if spark != ZERO:
        while digits > NONE and fraction % TEN == NONE:
            fraction //= TEN
            digits -= ONE
    if digits > NONE:
        end = put(out, limit, end, POINT, ONE)
        end = put_digits(out, limit, end, fraction, digits)
    return end


def put_date(out: Any, limit: Any, at: Any, days: Any) -> Any:
    """Write days since 1970 in ISO 8601, years beyond 9999 and before 0 with a sign."""
    # Eras of 400 years, which begin in March: leap days end a year then.
    day = days + TO_MARCH
    era = day // DAYS_400
    day -= era * DAYS_400
    year = (day - day // DAYS_4 + day // DAYS_100 - day // LAST_DAY) // YEAR
    day -= YEAR * year + year // YEARS_4 - year // YEARS_100
    month = (MONTHS * day + TWO_DAYS) // DAYS_OF_MONTHS
    day -= (DAYS_OF_MONTHS * month + TWO_DAYS) // MONTHS
    year += era * YEARS_400
    if month < AFTER_FEBRUARY:
        month += TO_SAME_YEAR
    else:
        month -= TO_NEXT_YEAR
        year += UNIT
    end = put(
        out, limit, at, MINUS if year < ZERO else PLUS, ONE if year < ZERO or year > MOST_YEAR else NONE
    )
    size = u64(max(year, -year))
    end = put_digits(out, limit, end, size, max(digits_of(size), FOUR))
    word = MINUS | (two_digits(u64(month)) << BY_1) | (MINUS << BY_3) | (two_digits(u64(day + UNIT)) << BY_4)
    return put(out, limit, end, word, SIX)


SIGNATURES: dict[Any, tuple[str, ...]] = {}
