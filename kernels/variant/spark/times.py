"""Text as Spark's ``try_variant_get`` casts it to dates and timestamps, in UTC.

Work item: one row, of those that :mod:`~bowstring.kernels.variant.spark.numbers` left because they are text; of
:func:`copy_zone_names`, one name. Where a zone is a name that only a database knows, the row gets the time there,
the place of the name, and a status that says so; names are copied to where the host finds them.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant.encoding import OK, OVERFLOW, TYPE_MISMATCH, payload
from bowstring.kernels.variant.numbers import DATE, TIMESTAMP
from bowstring.kernels.variant.spark.numbers import IS_TEXT
from bowstring.kernels.variant.spark.parse import CONTROLS, ONLY_LOW, sign_at, trimmed, word_of

IS_REGION: Final = u8(253)
"""The status of a time whose zone is a name that only a database knows."""
LONGEST_NAME: Final = u64(40)
"""Bytes of the longest name that is looked up; there is none in the database that is as long."""

UTC_WORD = u64(int.from_bytes(b"utc", "little"))
GMT_WORD = u64(int.from_bytes(b"gmt", "little"))
UT_WORD = u64(int.from_bytes(b"ut", "little"))
FARTHEST = i64(18 * 3600)
LENGTH = u64(63)


def two_digits(data, at, stop):
    """Return the number of the two digits at `at`, and one that is too large where there are none."""
    found = MANY
    if at + 1 < stop:
        tens = u64(data[at]) - ord("0")
        ones = u64(data[at + 1]) - ord("0")
        if tens < 10 and ones < 10:
            found = i64(tens) * 10 + i64(ones)
    return found


def offset_of(data, start, stop):
    """Return a status, and the seconds of an offset such as ``+1``, ``-0130`` or ``+01:30:00``."""
    at = start + 1
    minutes = i64(0)
    seconds = i64(0)
    count = i64(0)
    while at < stop and u64(data[at]) - ord("0") < 10:
        count += 1
        at += 1
    rest = stop - at
    begin = start + 1
    hours = two_digits(data, begin, stop)
    if count == 1:
        hours = i64(u64(data[begin]) - ord("0"))
    if count == 4 or count == 6:
        minutes = two_digits(data, begin + 2, stop)
        if count == 6:
            seconds = two_digits(data, begin + 2 + 2, stop)
        if rest > 0:
            hours = MANY
    elif count == 1 or count == 2:
        if rest == 2 and u64(data[at]) == ord(":") and u64(data[at + 1]) - ord("0") < 10:
            # One digit of minutes.
            minutes = i64(u64(data[at + 1]) - ord("0"))
        elif rest == 3 and u64(data[at]) == ord(":"):
            minutes = two_digits(data, at + 1, stop)
        elif rest == 6 and u64(data[at]) == ord(":") and u64(data[at + 3]) == ord(":"):
            minutes = two_digits(data, at + 1, stop)
            seconds = two_digits(data, at + 1 + 3, stop)
        elif rest > 0:
            hours = MANY
    else:
        hours = MANY
    status = OK
    total = i64(0)
    if hours >= 24 or minutes >= 60 or seconds >= 60:
        status = TYPE_MISMATCH
    else:
        total = hours * 3600 + minutes * 60 + seconds
        if total > FARTHEST:
            status = TYPE_MISMATCH
        if u64(data[start]) == ord("-"):
            total = -total
    return status, total


def zone_of(data, start, stop):
    """Return a status, and the seconds that a zone is before UTC.

    With :data:`IS_REGION` it is not seconds but the place of the name, times 64, and its length.
    """
    first, last = trimmed(data, start, stop, ONLY_LOW)
    status = TYPE_MISMATCH
    seconds = i64(0)
    prefix = u64(0)
    while first + prefix < last and prefix < 3 and (u64(data[first + prefix]) | 0x20) - ord("a") < 26:
        prefix += 1
    if prefix > 0:
        if last - first <= LONGEST_NAME:
            status = IS_REGION
            seconds = i64((first << 6) | (last - first))
        highest = u64(0)
        for k in range(i64(prefix)):
            highest = max(highest, u64(data[first + u64(k)]))
        word = word_of(data, first, first + prefix)
        known = highest <= ord("Z") and (word == UTC_WORD or word == GMT_WORD or word == UT_WORD)
        if last - first == 1:
            status = TYPE_MISMATCH
            if u64(data[first]) == ord("Z"):
                status = OK
                seconds = i64(0)
        elif known and first + prefix == last:
            status = OK
            seconds = i64(0)
        elif known and (u64(data[first + prefix]) == ord("+") or u64(data[first + prefix]) == ord("-")):
            status, seconds = offset_of(data, first + prefix, last)
    elif first < last and (u64(data[first]) == ord("+") or u64(data[first]) == ord("-")):
        status, seconds = offset_of(data, first, last)
    return status, seconds


def copy_zone_names(i, data, zones, names):
    """Write a name, of which the place and length are given as `zone_of` does, to its ``LONGEST_NAME`` bytes."""
    zone = u64(zones[i])
    first = zone >> 6
    size = min(zone & LENGTH, LONGEST_NAME)
    begin = u64(i) * LONGEST_NAME
    for k in range(i64(LONGEST_NAME)):
        byte = u8(0)
        if u64(k) < size and first + u64(k) < u64(len(data)):
            byte = data[first + u64(k)]
        names[begin + u64(k)] = byte


IS_TODAY_IN_REGION: Final = u8(252)
"""The status of a time of today in a zone whose name only a database knows."""

LONGEST_YEAR = i64(7)
LONGEST_YEAR_OF_TIMES = i64(6)
MOST_DAYS = i64(2**31 - 1)
LEAST_DAYS = i64(-(2**31))
MOST_SECONDS = i64((2**63 - 1) // 1_000_000)
LEAST_SECONDS = i64(-(2**63 - 1) // 1_000_000)
MOST_REST = i64((2**63 - 1) % 1_000_000)
LEAST_REST = i64(1_000_000 - (2**63 % 1_000_000))
MANY = i64(1 << 40)


def days_of(year, month, day):
    """Return the days since 1970 of a date of the proleptic Gregorian calendar."""
    # Years begin in March, so that the leap day is the last.
    shifted = year
    if month <= 2:
        shifted -= 1
    era = shifted // 400
    inside = shifted - era * 400
    counted = (month + 9) % 12
    of_year = (153 * counted + 2) // 5 + day - 1
    of_era = inside * 365 + inside // 4 - inside // 100 + of_year
    return era * 146_097 + of_era - 719_468


def is_date(year, month, day):
    """Return whether there is such a day."""
    longest = i64(31)
    if month == 4 or month == 6 or month == 9 or month == 11:
        longest = i64(30)
    elif month == 2:
        longest = i64(28)
        if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
            longest += 1
    return month >= 1 and month <= 12 and day >= 1 and day <= longest


def is_length(segment, digits, longest_year):
    """Return whether a part of a date or time may have so many digits."""
    found = digits > 0 and digits <= 2
    if segment == 0:
        found = digits >= 4 and digits <= longest_year
    elif segment == 6:
        found = True
    elif segment == 7:
        found = digits <= 2
    return found


def date_of(data, start, stop):
    """Return a status, and the days since 1970 of text that may go on behind a blank or a T."""
    negative, at = sign_at(data, start, stop)
    sign = i64(-1) if negative else i64(1)
    year = i64(0)
    month = i64(1)
    day = i64(1)
    value = i64(0)
    digits = i64(0)
    segment = i64(0)
    status = OK
    going = True
    while going and at < stop:
        byte = u64(data[at])
        if byte == ord(" ") or byte == ord("T"):
            going = False
        elif segment < 2 and byte == ord("-"):
            if not is_length(segment, digits, LONGEST_YEAR):
                status = TYPE_MISMATCH
            if segment == 0:
                year = value
            else:
                month = value
            segment += 1
            value = i64(0)
            digits = i64(0)
        elif byte - ord("0") < 10:
            value = min(value * 10 + i64(byte - ord("0")), MANY)
            digits += 1
        else:
            status = TYPE_MISMATCH
        if going:
            at += 1
    if not is_length(segment, digits, LONGEST_YEAR) or (segment < 2 and at < stop):
        status = TYPE_MISMATCH
    year = value if segment == 0 else year
    month = value if segment == 1 else month
    day = value if segment == 2 else day
    days = i64(0)
    if status == OK:
        if is_date(sign * year, month, day):
            days = days_of(sign * year, month, day)
            if days < LEAST_DAYS or days > MOST_DAYS:
                status = OVERFLOW
        else:
            status = TYPE_MISMATCH
    return status, days


def time_of(data, start, stop, begin, with_zone, now):
    """Return a status, the microseconds since 1970 of text that began at `begin`, and its zone as `zone_of` does.

    They are those of UTC with `with_zone`, but where the zone is a region; else the zone does not matter.
    """
    negative, at = sign_at(data, start, stop)
    sign = i64(-1) if negative else i64(1)
    signed = at > start
    year = i64(0)
    month = i64(1)
    day = i64(1)
    hour = i64(0)
    minute = i64(0)
    second = i64(0)
    micros = i64(0)
    value = i64(0)
    digits = i64(0)
    segment = i64(0)
    shift = i64(0)
    status = OK
    today = False
    while status == OK and at < stop:
        byte = u64(data[at])
        if byte - ord("0") < 10:
            if segment != 6 or digits < 6:
                value = min(value * 10 + i64(byte - ord("0")), MANY)
            digits += 1
            at += 1
        else:
            ended = segment
            if at == begin and byte == ord("T"):
                today = True
                ended = i64(-1)
                segment = i64(3)
            elif segment == 0 and byte == ord(":") and not signed:
                today = True
                ended = i64(3)
                segment = i64(4)
            elif (
                (segment < 2 and byte == ord("-"))
                or (segment == 2 and (byte == ord(" ") or byte == ord("T")))
                or ((segment == 3 or segment == 4) and byte == ord(":"))
            ):
                segment += 1
            elif segment == 5 and byte == ord("."):
                segment = i64(6)
            elif segment == 5 or segment == 6:
                segment = i64(7)
            else:
                status = TYPE_MISMATCH
            if ended >= 0 and not is_length(ended, digits, LONGEST_YEAR_OF_TIMES):
                status = TYPE_MISMATCH
            year = value if ended == 0 else year
            month = value if ended == 1 else month
            day = value if ended == 2 else day
            hour = value if ended == 3 else hour
            minute = value if ended == 4 else minute
            second = value if ended == 5 else second
            micros = padded(value, digits) if ended == 6 else micros
            if status == OK and segment == 7:
                status, shift = zone_of(data, at, stop)
                at = stop
            if ended >= 0:
                value = i64(0)
                digits = i64(0)
            at += 1
    if status == OK and not is_length(segment, digits, LONGEST_YEAR_OF_TIMES):
        status = TYPE_MISMATCH
    year = value if segment == 0 else year
    month = value if segment == 1 else month
    day = value if segment == 2 else day
    hour = value if segment == 3 else hour
    minute = value if segment == 4 else minute
    second = value if segment == 5 else second
    micros = padded(value, digits) if segment == 6 else micros
    found = i64(0)
    named = status == IS_REGION
    if status == OK or named:
        seconds = hour * 3600 + minute * 60 + second
        status = OK
        if hour >= 24 or minute >= 60 or second >= 60:
            status = TYPE_MISMATCH
        elif today:
            if not with_zone:
                status = TYPE_MISMATCH
            elif not named:
                seconds += (now + shift) // 86_400 * 86_400
        elif is_date(sign * year, month, day):
            seconds += days_of(sign * year, month, day) * 86_400
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


def padded(value, digits):
    """Return a fraction of a second of some digits in microseconds."""
    micros = value
    for _ in range(digits, 6):
        micros = micros * 10
    return micros


def micros_of(seconds, micros):
    """Return a status, and seconds and microseconds as one number."""
    status = OK
    found = i64(0)
    if (
        seconds > MOST_SECONDS
        or seconds < LEAST_SECONDS
        or (seconds == MOST_SECONDS and micros > MOST_REST)
        or (seconds == LEAST_SECONDS and micros < LEAST_REST)
    ):
        status = OVERFLOW
    else:
        # The least number of seconds does not fit alone.
        found = (seconds + 1) * 1_000_000 + (micros - 1_000_000)
        if seconds >= 0:
            found = seconds * 1_000_000 + micros
    return status, found


def spark_text_times(i, data, places, family, now, statuses, out, zones):
    """Write the days or microseconds since 1970 that the text of a row is, where `now` are the seconds since then.

    `zones` are written where a status is :data:`IS_REGION` or :data:`IS_TODAY_IN_REGION`: what `zone_of` gives.
    """
    if statuses[i] == IS_TEXT:
        start, stop = payload(data, u64(places[i]), u64(len(data)))
        first, last = trimmed(data, start, stop, CONTROLS)
        status = TYPE_MISMATCH
        found = i64(0)
        zone = i64(0)
        if first < last:
            if family == DATE:
                status, found = date_of(data, first, last)
            else:
                status, found, zone = time_of(data, first, last, start, family == TIMESTAMP, now)
        if status != OK and status != IS_REGION and status != IS_TODAY_IN_REGION:
            found = i64(0)
        statuses[i] = status
        out[i] = found
        zones[i] = zone


SIGNATURES = {
    copy_zone_names: ("u8[], i64[], u8[]!",),
    spark_text_times: ("u8[], u64[], i64, i64, u8[]!, i64[]!, i64[]!",),
}
