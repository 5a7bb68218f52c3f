# ruff: noqa: PLR1714, SIM109  a kernel has no "in"
"""The zones that Spark finds behind a time in text: offsets, and names, which are looked up elsewhere.

Work item: the name of a zone, which is copied to where the host finds it.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant.format import OK, TYPE_MISMATCH
from bowstring.kernels.variant.spark.parse import trimmed, word_of

__all__ = ["IS_REGION", "LONGEST_NAME", "SIGNATURES", "copy_zone_names", "zone_of"]

IS_REGION: Final = u8(253)
"""The status of a time whose zone is a name that only a database knows."""
LONGEST_NAME: Final = u64(40)
"""Bytes of the longest name that is looked up; there is none in the database that is as long."""

ZERO = i64(0)
UNIT = i64(1)
TWO_OF = i64(2)
FOUR_OF = i64(4)
SIX_OF = i64(6)
TEN = i64(10)
ONE = u64(1)
TWO = u64(2)
THREE = u64(3)
ONLY_LOW = i64(0)
ZERO_DIGIT = u64(48)
DIGITS = u64(10)
PLUS = u64(43)
MINUS = u64(45)
COLON = u64(58)
LETTER_Z = u64(90)
LOWER = u64(32)
LETTER_A = u64(97)
LETTERS = u64(26)
UTC_WORD = u64(int.from_bytes(b"utc", "little"))
GMT_WORD = u64(int.from_bytes(b"gmt", "little"))
UT_WORD = u64(int.from_bytes(b"ut", "little"))
HOURS = i64(24)
SIXTY = i64(60)
AN_HOUR = i64(3600)
FARTHEST = i64(18 * 3600)
MANY = i64(1 << 40)
LENGTH_BITS = u64(6)
LENGTH = u64(63)


def two_digits(data: Any, at: Any, stop: Any) -> Any:
    """Return the number of the two digits at `at`, and one that is too large where there are none."""
    found = MANY
    if at + ONE < stop:
        tens = u64(data[at]) - ZERO_DIGIT
        ones = u64(data[at + ONE]) - ZERO_DIGIT
        if tens < DIGITS and ones < DIGITS:
            found = i64(tens) * TEN + i64(ones)
    return found


def offset_of(data: Any, start: Any, stop: Any) -> Any:
    """Return a status, and the seconds of an offset such as ``+1``, ``-0130`` or ``+01:30:00``."""
    at = start + ONE
    minutes = ZERO
    seconds = ZERO
    count = ZERO
    while at < stop and u64(data[at]) - ZERO_DIGIT < DIGITS:
        count += UNIT
        at += ONE
    rest = stop - at
    begin = start + ONE
    hours = two_digits(data, begin, stop)
    if count == UNIT:
        hours = i64(u64(data[begin]) - ZERO_DIGIT)
    if count == FOUR_OF or count == SIX_OF:
        minutes = two_digits(data, begin + TWO, stop)
        if count == SIX_OF:
            seconds = two_digits(data, begin + TWO + TWO, stop)
        if rest > u64(ZERO):
            hours = MANY
    elif count == UNIT or count == TWO_OF:
        if rest == TWO and u64(data[at]) == COLON and u64(data[at + ONE]) - ZERO_DIGIT < DIGITS:
            # One digit of minutes.
            minutes = i64(u64(data[at + ONE]) - ZERO_DIGIT)
        elif rest == THREE and u64(data[at]) == COLON:
            minutes = two_digits(data, at + ONE, stop)
        elif rest == THREE + THREE and u64(data[at]) == COLON and u64(data[at + THREE]) == COLON:
            minutes = two_digits(data, at + ONE, stop)
            seconds = two_digits(data, at + ONE + THREE, stop)
        elif rest > u64(ZERO):
            hours = MANY
    else:
        hours = MANY
    status = OK
    total = ZERO
    if hours >= HOURS or minutes >= SIXTY or seconds >= SIXTY:
        status = TYPE_MISMATCH
    else:
        total = hours * AN_HOUR + minutes * SIXTY + seconds
        if total > FARTHEST:
            status = TYPE_MISMATCH
        if u64(data[start]) == MINUS:
            total = -total
    return status, total


def zone_of(data: Any, start: Any, stop: Any) -> Any:
    """Return a status, and the seconds that a zone is before UTC.

    With :data:`IS_REGION` it is not seconds but the place of the name, times 64, and its length.
    """
    first, last = trimmed(data, start, stop, ONLY_LOW)
    status = TYPE_MISMATCH
    seconds = ZERO
    prefix = u64(ZERO)
    while (
        first + prefix < last and prefix < THREE and (u64(data[first + prefix]) | LOWER) - LETTER_A < LETTERS
    ):
        prefix += ONE
    if prefix > u64(ZERO):
        if last - first <= LONGEST_NAME:
            status = IS_REGION
            seconds = i64((first << LENGTH_BITS) | (last - first))
        highest = u64(ZERO)
        for k in range(ZERO, i64(prefix)):
            highest = max(highest, u64(data[first + u64(k)]))
        word = word_of(data, first, first + prefix)
        known = highest <= LETTER_Z and (word == UTC_WORD or word == GMT_WORD or word == UT_WORD)
        if last - first == ONE:
            status = TYPE_MISMATCH
            if u64(data[first]) == LETTER_Z:
                status = OK
                seconds = ZERO
        elif known and first + prefix == last:
            status = OK
            seconds = ZERO
        elif known and (u64(data[first + prefix]) == PLUS or u64(data[first + prefix]) == MINUS):
            status, seconds = offset_of(data, first + prefix, last)
    elif first < last and (u64(data[first]) == PLUS or u64(data[first]) == MINUS):
        status, seconds = offset_of(data, first, last)
    return status, seconds


def copy_zone_names(i: Any, data: Any, zones: Any, names: Any) -> None:
    """Write a name, of which the place and length are given as `zone_of` does, to its ``LONGEST_NAME`` bytes."""
    zone = u64(zones[i])
    first = zone >> LENGTH_BITS
    size = min(zone & LENGTH, LONGEST_NAME)
    begin = u64(i) * LONGEST_NAME
    for k in range(ZERO, i64(LONGEST_NAME)):
        byte = u8(0)
        if u64(k) < size and first + u64(k) < u64(len(data)):
            byte = data[first + u64(k)]
        names[begin + u64(k)] = byte


SIGNATURES = {copy_zone_names: ("u8[], i64[], u8[]!",)}
