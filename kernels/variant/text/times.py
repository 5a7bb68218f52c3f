"""Variant's dates, times and timestamps as JSON text.

There is no kernel here.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant.text.put import POWERS, digits_of, put, put_digits

__all__ = ["DAY", "SIGNATURES", "put_date", "put_moment", "put_time"]

DATE = u64(11)
TIMESTAMP = u64(12)
TIME = u64(17)
TIMESTAMP_NS = u64(18)
TIMESTAMP_NTZ_NS = u64(19)
OFFSET = u64(int.from_bytes(b"+00:00", "little"))
MICROSECONDS = u64(6)
NANOSECONDS = u64(9)
DAY = i64(86_400_000_000)
MONTHS = i64(5)
MOST_YEAR = i64(9999)


def put_moment(out: Any, limit: Any, at: Any, number: Any, kind: Any, spark: Any) -> Any:
    """Write a date, a time or a timestamp."""
    fraction_digits = NANOSECONDS if kind >= TIMESTAMP_NS and kind <= TIMESTAMP_NTZ_NS else MICROSECONDS
    days = number
    rest = i64(0)
    end = put(out, limit, at, u64(ord('"')), u64(1))
    if kind != DATE:
        per_day = 86_400 * i64(POWERS[fraction_digits])
        days = number // per_day
        rest = number - days * per_day
    if kind != TIME:
        end = put_date(out, limit, end, days)
    if kind != DATE:
        if kind != TIME:
            end = put(out, limit, end, u64(ord(" ")) if spark != 0 else u64(ord("T")), u64(1))
        end = put_time(out, limit, end, u64(rest), fraction_digits, spark)
    if kind >= TIMESTAMP and (kind - TIMESTAMP) % 6 == 0:  # in nanoseconds, six further on
        end = put(out, limit, end, OFFSET if spark != 0 else u64(ord("Z")), u64(6) if spark != 0 else u64(1))
    return put(out, limit, end, u64(ord('"')), u64(1))


def two_digits(number: Any) -> Any:
    """Return a number below 100 as two digits."""
    tens = number // 10
    return ord("0") + tens | ((ord("0") + number - tens * 10) << 8)


def put_time(out: Any, limit: Any, at: Any, rest: Any, fraction_digits: Any, spark: Any) -> Any:
    """Write a time of day."""
    unit = u64(POWERS[fraction_digits])
    seconds = rest // unit
    fraction = rest - seconds * unit
    hours = seconds // 3600
    minutes = seconds // 60 % 60
    word = two_digits(hours) | (u64(ord(":")) << 16) | (two_digits(minutes) << 24) | (u64(ord(":")) << 40)
    end = put(out, limit, at, word | (two_digits(seconds % 60) << 48), u64(8))
    digits = fraction_digits
    if spark != 0:
        while digits > 0 and fraction % 10 == 0:
            fraction //= 10
            digits -= 1
    if digits > 0:
        end = put(out, limit, end, u64(ord(".")), u64(1))
        end = put_digits(out, limit, end, fraction, digits)
    return end


def put_date(out: Any, limit: Any, at: Any, days: Any) -> Any:
    """Write days since 1970 in ISO 8601, years beyond 9999 and before 0 with a sign."""
    # Eras of 400 years, which begin in March: leap days end a year then.
    day = days + 719_468
    era = day // 146_097
    day -= era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (MONTHS * day + 2) // 153
    day -= (153 * month + 2) // MONTHS
    year += era * 400
    if month < 10:
        month += 3
    else:
        month -= 9
        year += 1
    end = put(out, limit, at, u64(ord("-")) if year < 0 else u64(ord("+")), u64(year < 0 or year > MOST_YEAR))
    size = u64(max(year, -year))
    end = put_digits(out, limit, end, size, max(digits_of(size), u64(4)))
    word = ord("-") | (two_digits(u64(month)) << 8) | (u64(ord("-")) << 24) | (two_digits(u64(day + 1)) << 32)
    return put(out, limit, end, word, u64(6))


SIGNATURES: dict[Any, tuple[str, ...]] = {}
