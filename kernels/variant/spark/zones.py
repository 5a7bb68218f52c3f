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

ONLY_LOW = i64(0)
UTC_WORD = u64(int.from_bytes(b"utc", "little"))
GMT_WORD = u64(int.from_bytes(b"gmt", "little"))
UT_WORD = u64(int.from_bytes(b"ut", "little"))
FARTHEST = i64(18 * 3600)
MANY = i64(1 << 40)
LENGTH = u64(63)


def two_digits(data: Any, at: Any, stop: Any) -> Any:
    """Return the number of the two digits at `at`, and one that is too large where there are none."""
    found = MANY
    if at + 1 < stop:
        tens = u64(data[at]) - ord("0")
        ones = u64(data[at + 1]) - ord("0")
        if tens < 10 and ones < 10:
            found = i64(tens) * 10 + i64(ones)
    return found


def offset_of(data: Any, start: Any, stop: Any) -> Any:
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


def zone_of(data: Any, start: Any, stop: Any) -> Any:
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


def copy_zone_names(i: Any, data: Any, zones: Any, names: Any) -> None:
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


SIGNATURES = {copy_zone_names: ("u8[], i64[], u8[]!",)}
