"""Time zones as Java has them, in the form that Arrow has: a name of the time zone database, or ``+hh:mm``."""

from __future__ import annotations

import functools
import re
from typing import Final

# ZoneOffset.of, with a digit less where Spark before 3.0 took one less.
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?|:(\d))?", re.ASCII)
# java.time.ZoneId.SHORT_IDS, by which Spark finds zones.
_SHORT: Final = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "UT": "UTC",
    "VST": "Asia/Ho_Chi_Minh",
    "Z": "UTC",
}


@functools.cache
def arrow_zone(zone: str) -> str:
    """Return a time zone of a session as readers of Arrow know it.

    Arrow has no offsets with seconds; such a zone becomes UTC, as instants stay the same in any zone.

    Examples
    --------
    >>> [arrow_zone(zone) for zone in ("GMT+8", "UTC-03:30", "+5:30", "Z", "PST", "Asia/Tokyo")]
    ['+08:00', '-03:30', '+05:30', 'UTC', 'America/Los_Angeles', 'Asia/Tokyo']
    """
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return _SHORT.get(zone, zone)
    sign, hours, minutes, seconds, minute = match.groups()
    hours, minutes = int(hours), int(minutes or minute or 0)
    if int(seconds or 0) or not (hours or minutes):
        return "UTC"
    return f"{sign}{hours:02}:{minutes:02}"
