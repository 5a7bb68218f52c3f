"""Times in zones that only a database knows, as Java's ``ZonedDateTime`` has them.

Names are looked up once for each distinct one, and offsets once for some days.
"""

from __future__ import annotations

import datetime as dt
import functools
import zoneinfo
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.kernels.launch import launch
from bowstring.kernels.variant.numbers import TIMESTAMP
from bowstring.kernels.variant.spark.times import IS_REGION, IS_TODAY_IN_REGION, LONGEST_NAME, copy_zone_names
from bowstring.memory.arrays import distinct
from bowstring.variant.status import Status

if TYPE_CHECKING:
    from bowstring.variant.nested import Source
    from bowstring.variant.walk import Located

__all__ = ["settle_regions"]

_MICROS: Final = 1_000_000
_DAY: Final = 86_400
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  the time of a place
# The calendar, and with it the rules of zones for years to come, repeat themselves after so many seconds.
_CYCLE: Final = 146_097 * _DAY
_FIRST: Final = -719_150 * _DAY  # in the first January of the year 1
_LAST: Final = 2_932_880 * _DAY  # in December 9999
# No zone has ever changed twice within so long so as to be as it was; it took Freetown four days, in 1939.
_STEP: Final = 3 * _DAY
_FACTORS: Final = np.array([3, 5, 7, 11, 13], np.uint64) ** np.uint64(27)  # odd, and of many bits
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# Of these, the Java that Spark runs on knows no rules, and the names below by other ones.
_UNKNOWN: Final = frozenset(("Factory", "ROC", "localtime", "posixrules"))
_OFFSETS: Final = {"EST": -5, "MST": -7, "HST": -10}
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
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}


def settle_regions(source: Source, located: Located, out: Any, zones: Any, family: int, now: int) -> None:
    """Make instants of the times in regions, and settle their statuses; `family` and `now` as for the kernel."""
    device, xp = source.device, source.device.xp
    statuses = located.statuses
    rows = xp.flatnonzero((statuses == np.uint8(IS_REGION)) | (statuses == np.uint8(IS_TODAY_IN_REGION)))
    if not len(rows):
        return
    names = xp.empty(len(rows) * int(LONGEST_NAME), np.uint8)
    launch(copy_zone_names, len(rows), source.data, zones[rows], names)
    named, inverse = _distinct_names(device.to_host(names))
    times, today = device.to_host(out[rows]), device.to_host(statuses[rows]) == IS_TODAY_IN_REGION
    settled = np.full(len(rows), int(Status.OK), np.uint8)
    known = _database()
    for number, name in enumerate(named.tolist()):
        chosen = np.flatnonzero(inverse == number)
        zone = _zone(name.decode("ascii", "replace")) if known else None
        if zone is None:
            settled[chosen] = Status.TYPE_MISMATCH if known else Status.UNSUPPORTED
            times[chosen] = 0
        elif family == int(TIMESTAMP):
            day = dt.datetime.fromtimestamp(now, zone).date().toordinal() - _EPOCH.toordinal()
            seconds = times[chosen] // _MICROS + today[chosen] * (day * _DAY)
            micros = times[chosen] % _MICROS
            times[chosen], fits = _instants(seconds, micros, zone)
            settled[chosen[~fits]] = Status.OVERFLOW
    out[rows] = xp.asarray(times)
    statuses[rows] = xp.asarray(settled)


def _distinct_names(names: Any) -> tuple[Any, Any]:
    """Return the distinct names among some of :data:`LONGEST_NAME` bytes each, and which is whose."""
    words = names.view(np.uint64).reshape(-1, int(LONGEST_NAME) // 8)
    # Numbers are sorted much faster than texts; where two names should have one, it is seen.
    _, first, inverse = np.unique((words * _FACTORS).sum(axis=1), return_index=True, return_inverse=True)
    if (words[first[inverse]] == words).all():
        return words[first].reshape(-1).view(f"S{LONGEST_NAME}"), inverse
    found: tuple[Any, Any] = np.unique(names.view(f"S{LONGEST_NAME}"), return_inverse=True)
    return found


def _instants(seconds: Any, micros: Any, zone: dt.tzinfo) -> tuple[Any, Any]:
    """Return the microseconds since 1970 of seconds of the time of a zone, and which of them fit."""
    seconds = seconds - _offsets(seconds, zone)
    fits = (seconds >= _LEAST // _MICROS + 1) & (seconds < _MOST // _MICROS)
    return np.where(fits, np.where(fits, seconds, 0) * _MICROS + micros, 0), fits


def _offsets(seconds: Any, zone: dt.tzinfo) -> Any:
    """Return how many seconds a zone is before UTC at seconds of its own time.

    Where clocks are put back, times come twice, and it is the first that is meant; where they are put forward,
    what is left out is taken to be as much later.
    """
    beyond = np.maximum(-((_LAST - seconds) // _CYCLE), 0)
    within = np.maximum(seconds - beyond * _CYCLE, _FIRST)
    steps = within // _STEP
    edges = np.array(distinct(np.concatenate([steps, steps + 1])), np.int64)
    offsets = np.array([_offset(each, zone) for each in (edges * _STEP).tolist()], np.int64)
    positions = np.searchsorted(edges, steps)
    found = offsets[positions]
    changing = np.flatnonzero(found != offsets[np.minimum(positions + 1, len(edges) - 1)])
    found[changing] = [_offset(each, zone) for each in within[changing].tolist()]
    return found


def _offset(seconds: int, zone: dt.tzinfo) -> int:
    offset = (_EPOCH + dt.timedelta(seconds=seconds)).replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return offset.days * _DAY + offset.seconds


@functools.cache
def _database() -> frozenset[str]:
    """Return the names of all zones; none where neither the system nor `tzdata` has them."""
    return frozenset(zoneinfo.available_timezones()) - _UNKNOWN


@functools.lru_cache(1024)
def _zone(name: str) -> dt.tzinfo | None:
    """Return the zone that Java has of a name, ``None`` where it has none."""
    if name in _OFFSETS:
        return dt.timezone(dt.timedelta(hours=_OFFSETS[name]))
    name = _SHORT.get(name, name)
    return zoneinfo.ZoneInfo(name) if name in _database() else None
