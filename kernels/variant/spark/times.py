# ruff: noqa: PLR1714, SIM109  a kernel has no "in"
"""Text as Spark's ``try_variant_get`` casts it to dates and timestamps, in UTC.

Work item: one row, of those that `variant_spark_numbers` left because they are text. Where a zone is a name that
only a database knows, the row gets the time there, the place of the name, and a status that says so.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant.format import OK, OVERFLOW, TYPE_MISMATCH
from bowstring.kernels.variant.numbers import DATE, TIMESTAMP
from bowstring.kernels.variant.spark.numbers import IS_TEXT
from bowstring.kernels.variant.spark.parse import text_at, trimmed
from bowstring.kernels.variant.spark.zones import IS_REGION, zone_of

__all__ = ["IS_TODAY_IN_REGION", "SIGNATURES", "days_of", "spark_text_times"]

IS_TODAY_IN_REGION: Final = u8(252)
"""The status of a time of today in a zone whose name only a database knows."""

ZERO = i64(0)
UNIT = i64(1)
TWO_OF = i64(2)
THREE_OF = i64(3)
FOUR_OF = i64(4)
FIVE_OF = i64(5)
SIX_OF = i64(6)
SEVEN_OF = i64(7)
TEN = i64(10)
TWELVE = i64(12)
ONE = u64(1)
CONTROLS = i64(1)
ZERO_DIGIT = u64(48)
DIGITS = u64(10)
PLUS = u64(43)
MINUS = u64(45)
POINT = u64(46)
COLON = u64(58)
BLANK = u64(32)
LETTER_T = u64(84)
LONGEST_YEAR = i64(7)
LONGEST_YEAR_OF_TIMES = i64(6)
MOST_MONTHS = i64(12)
FEBRUARY = i64(2)
LONG_MONTH = i64(31)
SHORT_MONTH = i64(30)
TWENTY_EIGHT = i64(28)
HUNDRED = i64(100)
FOUR_HUNDRED = i64(400)
CYCLE = i64(146_097)
EPOCH = i64(719_468)
YEAR = i64(365)
MONTHS_OF_FIVE = i64(153)
FIVE = i64(5)
SHIFT_MONTH = i64(9)
MOST_DAYS = i64(2**31 - 1)
LEAST_DAYS = i64(-(2**31))
HOURS = i64(24)
SIXTY = i64(60)
AN_HOUR = i64(3600)
A_DAY = i64(86_400)
MILLION = i64(1_000_000)
MOST_SECONDS = i64((2**63 - 1) // 1_000_000)
LEAST_SECONDS = i64(-(2**63 - 1) // 1_000_000)
MOST_REST = i64((2**63 - 1) % 1_000_000)
LEAST_REST = i64(1_000_000 - (2**63 % 1_000_000))
MANY = i64(1 << 40)


def days_of(year: Any, month: Any, day: Any) -> Any:
    """Return the days since 1970 of a date of the proleptic Gregorian calendar."""
    # Years begin in March, so that the leap day is the last.
    shifted = year
    if month <= FEBRUARY:
        shifted -= UNIT
    era = shifted // FOUR_HUNDRED
    inside = shifted - era * FOUR_HUNDRED
    counted = (month + SHIFT_MONTH) % TWELVE
    of_year = (MONTHS_OF_FIVE * counted + TWO_OF) // FIVE + day - UNIT
    of_era = inside * YEAR + inside // FOUR_OF - inside // HUNDRED + of_year
    return era * CYCLE + of_era - EPOCH


def is_date(year: Any, month: Any, day: Any) -> Any:
    """Return whether there is such a day."""
    longest = LONG_MONTH
    if month == FOUR_OF or month == SIX_OF or month == SHIFT_MONTH or month == SHIFT_MONTH + TWO_OF:
        longest = SHORT_MONTH
    elif month == FEBRUARY:
        longest = TWENTY_EIGHT
        if year % FOUR_OF == ZERO and (year % HUNDRED != ZERO or year % FOUR_HUNDRED == ZERO):
            longest += UNIT
    return month >= UNIT and month <= MOST_MONTHS and day >= UNIT and day <= longest


def is_length(segment: Any, digits: Any, longest_year: Any) -> Any:
    """Return whether a part of a date or time may have so many digits."""
    found = digits > ZERO and digits <= TWO_OF
    if segment == ZERO:
        found = digits >= FOUR_OF and digits <= longest_year
    elif segment == SIX_OF:
        found = True
    elif segment == SEVEN_OF:
        found = digits <= TWO_OF
    return found


def date_of(data: Any, start: Any, stop: Any) -> Any:
    """Return a status, and the days since 1970 of text that may go on behind a blank or a T."""
    at = start
    sign = UNIT
    year = ZERO
    month = UNIT
    day = UNIT
    value = ZERO
    digits = ZERO
    segment = ZERO
    status = OK
    going = True
    if at < stop and (u64(data[at]) == MINUS or u64(data[at]) == PLUS):
        if u64(data[at]) == MINUS:
            sign = -UNIT
        at += ONE
    while going and at < stop:
        byte = u64(data[at])
        if byte == BLANK or byte == LETTER_T:
            going = False
        elif segment < TWO_OF and byte == MINUS:
            if not is_length(segment, digits, LONGEST_YEAR):
                status = TYPE_MISMATCH
            if segment == ZERO:
                year = value
            else:
                month = value
            segment += UNIT
            value = ZERO
            digits = ZERO
        elif byte - ZERO_DIGIT < DIGITS:
            value = min(value * TEN + i64(byte - ZERO_DIGIT), MANY)
            digits += UNIT
        else:
            status = TYPE_MISMATCH
        if going:
            at += ONE
    if not is_length(segment, digits, LONGEST_YEAR) or (segment < TWO_OF and at < stop):
        status = TYPE_MISMATCH
    if segment == ZERO:
        year = value
    elif segment == UNIT:
        month = value
    else:
        day = value
    days = ZERO
    if status == OK:
        if is_date(sign * year, month, day):
            days = days_of(sign * year, month, day)
            if days < LEAST_DAYS or days > MOST_DAYS:
                status = OVERFLOW
        else:
            status = TYPE_MISMATCH
    return status, days


def time_of(data: Any, start: Any, stop: Any, begin: Any, with_zone: Any, now: Any) -> Any:
    """Return a status, the microseconds since 1970 of text that began at `begin`, and its zone as `zone_of` does.

    They are those of UTC with `with_zone`, but where the zone is a region; else the zone does not matter.
    """
    at = start
    sign = UNIT
    signed = False
    year = ZERO
    month = UNIT
    day = UNIT
    hour = ZERO
    minute = ZERO
    second = ZERO
    micros = ZERO
    value = ZERO
    digits = ZERO
    segment = ZERO
    shift = ZERO
    status = OK
    today = False
    if at < stop and (u64(data[at]) == MINUS or u64(data[at]) == PLUS):
        signed = True
        if u64(data[at]) == MINUS:
            sign = -UNIT
        at += ONE
    while status == OK and at < stop:
        byte = u64(data[at])
        if byte - ZERO_DIGIT < DIGITS:
            if segment != SIX_OF or digits < SIX_OF:
                value = min(value * TEN + i64(byte - ZERO_DIGIT), MANY)
            digits += UNIT
            at += ONE
        else:
            ended = segment
            if at == begin and byte == LETTER_T:
                today = True
                ended = -UNIT
                segment = THREE_OF
            elif segment == ZERO and byte == COLON and not signed:
                today = True
                ended = THREE_OF
                segment = FOUR_OF
            elif (
                (segment < TWO_OF and byte == MINUS)
                or (segment == TWO_OF and (byte == BLANK or byte == LETTER_T))
                or ((segment == THREE_OF or segment == FOUR_OF) and byte == COLON)
            ):
                segment += UNIT
            elif segment == FIVE_OF and byte == POINT:
                segment = SIX_OF
            elif segment == FIVE_OF or segment == SIX_OF:
                segment = SEVEN_OF
            else:
                status = TYPE_MISMATCH
            if ended >= ZERO and not is_length(ended, digits, LONGEST_YEAR_OF_TIMES):
                status = TYPE_MISMATCH
            if ended == ZERO:
                year = value
            elif ended == UNIT:
                month = value
            elif ended == TWO_OF:
                day = value
            elif ended == THREE_OF:
                hour = value
            elif ended == FOUR_OF:
                minute = value
            elif ended == FIVE_OF:
                second = value
            elif ended == SIX_OF:
                while digits < SIX_OF:
                    value = value * TEN
                    digits += UNIT
                micros = value
            if status == OK and segment == SEVEN_OF:
                status, shift = zone_of(data, at, stop)
                at = stop
            if ended >= ZERO:
                value = ZERO
                digits = ZERO
            at += ONE
    if status == OK and not is_length(segment, digits, LONGEST_YEAR_OF_TIMES):
        status = TYPE_MISMATCH
    if segment == ZERO:
        year = value
    elif segment == UNIT:
        month = value
    elif segment == TWO_OF:
        day = value
    elif segment == THREE_OF:
        hour = value
    elif segment == FOUR_OF:
        minute = value
    elif segment == FIVE_OF:
        second = value
    elif segment == SIX_OF:
        while digits < SIX_OF:
            value = value * TEN
            digits += UNIT
        micros = value
    found = ZERO
    named = status == IS_REGION
    if status == OK or named:
        seconds = hour * AN_HOUR + minute * SIXTY + second
        status = OK
        if hour >= HOURS or minute >= SIXTY or second >= SIXTY:
            status = TYPE_MISMATCH
        elif today:
            if not with_zone:
                status = TYPE_MISMATCH
            elif not named:
                seconds += (now + shift) // A_DAY * A_DAY
        elif is_date(sign * year, month, day):
            seconds += days_of(sign * year, month, day) * A_DAY
        else:
            status = TYPE_MISMATCH
        if with_zone and not named:
            seconds -= shift
        if status == OK:
            status, found = micros_of(seconds, micros)
        if status == OK and named:
            status = IS_REGION
            if today:
                status = IS_TODAY_IN_REGION
    return status, found, shift


def micros_of(seconds: Any, micros: Any) -> Any:
    """Return a status, and seconds and microseconds as one number."""
    status = OK
    found = ZERO
    if (
        seconds > MOST_SECONDS
        or seconds < LEAST_SECONDS
        or (seconds == MOST_SECONDS and micros > MOST_REST)
        or (seconds == LEAST_SECONDS and micros < LEAST_REST)
    ):
        status = OVERFLOW
    else:
        # The least number of seconds does not fit alone.
        found = (seconds + UNIT) * MILLION + (micros - MILLION)
        if seconds >= ZERO:
            found = seconds * MILLION + micros
    return status, found


def spark_text_times(
    i: Any, data: Any, places: Any, family: Any, now: Any, statuses: Any, out: Any, zones: Any
) -> None:
    """Write the days or microseconds since 1970 that the text of a row is, where `now` are the seconds since then.

    `zones` are written where a status is :data:`IS_REGION` or :data:`IS_TODAY_IN_REGION`: what `zone_of` gives.
    """
    if statuses[i] == IS_TEXT:
        start, stop = text_at(data, u64(places[i]))
        first, last = trimmed(data, start, stop, CONTROLS)
        status = TYPE_MISMATCH
        found = ZERO
        zone = ZERO
        if first < last:
            if family == DATE:
                status, found = date_of(data, first, last)
            else:
                status, found, zone = time_of(data, first, last, start, family == TIMESTAMP, now)
        if status != OK and status != IS_REGION and status != IS_TODAY_IN_REGION:
            found = ZERO
        statuses[i] = status
        out[i] = found
        zones[i] = zone


SIGNATURES = {spark_text_times: ("u8[], u64[], i64, i64, u8[]!, i64[]!, i64[]!",)}
