"""Time zones as Java has them, in the form that Arrow has: a name of the time zone database, or ``+hh:mm``."""

from __future__ import annotations

import functools
import re
from typing import Final

from bowstring.variant.spark_casts import SHORT_ZONES

# ZoneOffset.of, with a digit less where Spark before 3.0 took one less.
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?|:(\d))?", re.ASCII)
_SHORT: Final = {**SHORT_ZONES, "EST": "-05:00", "HST": "-10:00", "MST": "-07:00", "UT": "UTC", "Z": "UTC"}


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
