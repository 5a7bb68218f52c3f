"""Casts as Spark's ``try_variant_get`` does them, in UTC: the launches that do them, and what the host works out.

The host settles times in zones that only a database knows, as Java's ``ZonedDateTime`` has them: names are
looked up once for each distinct one, and offsets once for some days.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import functools
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant import numbers
from bowstring.kernels.variant.slots import copy_slots
from bowstring.kernels.variant.spark import times
from bowstring.kernels.variant.spark.decimals import spark_decimals, spark_text_decimals
from bowstring.kernels.variant.spark.numbers import IS_TEXT
from bowstring.kernels.variant.spark.parse import IS_LONG, spark_text_numbers, spark_text_reals
from bowstring.kernels.variant.spark.strings import IS_HOLDER, measure_spark_strings, write_spark_strings
from bowstring.memory.arrays import distinct
from bowstring.variant.json.writer import rows_of
from bowstring.variant.nested import bounds_of, ends_of
from bowstring.variant.status import Status, any_of

if TYPE_CHECKING:
    from bowstring.variant.cast import Numbers
    from bowstring.variant.nested import Source
    from bowstring.variant.walk import Located

_INTEGERS: Final = (int(numbers.BOOLEAN), int(numbers.INTEGER))
_LARGEST: Final = float(np.finfo(np.float32).max)
_REALS: Final = (int(numbers.FLOAT), int(numbers.DOUBLE))


def read_texts(source: Source, located: Located, target: Numbers, out: Any) -> None:
    """Write what texts become: they are rare and slow, and have kernels of their own, run where there are some."""
    if not _any(source, located, IS_TEXT):
        return
    rows, where = len(located.statuses), (source.data, located.positions)
    family: Any = target.arguments[0]
    if target.kernel is spark_decimals:
        launch(spark_text_decimals, rows, *where, *target.arguments, located.statuses, out)
    elif family in _INTEGERS:
        launch(spark_text_numbers, rows, *where, *target.arguments, located.statuses, out)
    elif family in _REALS:
        launch(spark_text_reals, rows, *where, family, located.statuses, out)
        _long_reals(source, located, out, single=family == int(numbers.FLOAT))
    else:
        # A time without a date is one of today.
        now, zones = int(time.time()), source.device.xp.empty(rows, np.int64)
        launch(times.spark_text_times, rows, *where, family, now, located.statuses, out, zones)
        _settle_regions(source, located, out, zones, family, now)


def spark_strings_at(source: Source, located: Located, metadata_ids: Any, *, large: bool) -> list[Any]:
    """Return offsets and bytes of what values are written as."""
    rows, xp = len(located.statuses), source.device.xp
    sizes = xp.empty(rows, np.int64)
    nowhere = xp.empty(1, np.uint8)
    launch(measure_spark_strings, rows, source.data, located.positions, located.statuses, nowhere, sizes)
    texts = None
    if _any(source, located, IS_HOLDER):
        holds = located.statuses == np.uint8(IS_HOLDER)
        indices = metadata_ids if len(metadata_ids) else source.dictionary.indices
        inside = dataclasses.replace(source.dictionary, indices=indices)
        starts, stops = bounds_of(source, located)
        stops = xp.where(holds, stops, starts)
        bounds = {"starts": starts, "stops": stops, "wanted": bitmap.packed(holds)}
        texts = rows_of(source.opened, inside, **bounds, rules="spark", limits=source.limits).texts()
        located.statuses[...] = xp.where(holds, texts.statuses, located.statuses)
        sizes = xp.where(holds, texts.offsets[1:] - texts.offsets[:-1], sizes)
    offsets, total = ends_of(source, sizes, large=large)
    out = xp.empty(total, np.uint8)
    launch(write_spark_strings, rows, source.data, located.positions, located.statuses, offsets, out)
    if texts is not None:
        launch_shared(copy_slots, rows, texts.offsets[:-1], texts.offsets[1:], texts.data, offsets, out)
    return [offsets if large else offsets.astype(np.int32), out]


def _any(source: Source, located: Located, status: Any) -> bool:
    return any_of(located.statuses == np.uint8(status), source.device)


def _long_reals(source: Source, located: Located, out: Any, *, single: bool) -> None:
    """Work out floats of more than 19 digits that are nearly between two: on the host, they are that rare."""
    if not _any(source, located, IS_LONG):
        return
    device, xp = source.device, source.device.xp
    rows = xp.flatnonzero(located.statuses == np.uint8(IS_LONG))
    found = []
    for at in device.to_host(located.positions[rows]).tolist():
        head = device.to_host(source.data[at : at + 5])
        first, size = (at + 1, int(head[0]) >> 2) if head[0] & 3 else (at + 5, int(head[1:].view("<u4")[0]))
        found.append(_real(bytes(device.to_host(source.data[first : first + size])), single=single))
    bits = np.array(found, np.float32 if single else np.float64).view(np.int32 if single else np.int64)
    out[rows] = xp.asarray(bits.astype(np.int64))
    located.statuses[rows] = np.uint8(Status.OK)


def _real(text: bytes, *, single: bool) -> float:
    number = text.decode("ascii").strip("".join(map(chr, range(33)))).rstrip("dDfF")
    if not single:
        return float(number)
    # The bits of positive floats count them, up to the infinite one.
    nearest = np.float32(min(abs(float(number)), _LARGEST))
    bits, exact = int(nearest.view(np.uint32)), decimal.Decimal(number).copy_abs()
    below, above = _middle(bits - 1), _middle(bits)
    if exact > above or (exact == above and bits % 2):
        bits += 1
    elif exact < below or (exact == below and bits % 2):
        bits -= 1
    found = float(np.uint32(bits).view(np.float32))
    return -found if number.startswith("-") else found


def _middle(bits: int) -> decimal.Decimal:
    """Return what is half way from a float to the next."""
    ends = [float(np.uint32(max(each, 0)).view(np.float32)) for each in (bits, bits + 1)]
    with decimal.localcontext(prec=400):
        return sum(decimal.Decimal(each if each <= _LARGEST else 2**128) for each in ends) / decimal.Decimal(
            2
        )


_MICROS: Final = 1_000_000
_DAY: Final = 86_400
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  the time of a place
# The calendar, and with it the rules of zones for years to come, repeat themselves after so many seconds.
_CYCLE: Final = 146_097 * _DAY
_FIRST: Final = -719_150 * _DAY  # in the first January of the year 1
_LAST: Final = 2_932_880 * _DAY  # in December 9999
# No zone has ever changed twice within so long so as to be as it was; it took Freetown four days, in 1939.
_STEP: Final = 3 * _DAY
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# Of these, the Java that Spark runs on knows no rules, and the names below by other ones.
_UNKNOWN: Final = frozenset(("Factory", "ROC", "localtime", "posixrules"))
_OFFSETS: Final = {"EST": -5, "MST": -7, "HST": -10}
# java.time.ZoneId.SHORT_IDS, less those that stand for an offset.
SHORT_ZONES: Final = {
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


def _settle_regions(source: Source, located: Located, out: Any, zones: Any, family: int, now: int) -> None:
    """Make instants of the times in regions, and settle their statuses; `family` and `now` as for the kernel."""
    device, xp = source.device, source.device.xp
    statuses = located.statuses
    rows = xp.flatnonzero(
        (statuses == np.uint8(times.IS_REGION)) | (statuses == np.uint8(times.IS_TODAY_IN_REGION))
    )
    if not len(rows):
        return
    names = xp.empty(len(rows) * int(times.LONGEST_NAME), np.uint8)
    launch(times.copy_zone_names, len(rows), source.data, zones[rows], names)
    named, inverse = np.unique(device.to_host(names).view(f"S{times.LONGEST_NAME}"), return_inverse=True)
    moments, today = device.to_host(out[rows]), device.to_host(statuses[rows]) == times.IS_TODAY_IN_REGION
    settled = np.full(len(rows), int(Status.OK), np.uint8)
    known = _database()
    for number, name in enumerate(named.tolist()):
        chosen = np.flatnonzero(inverse == number)
        zone = _zone(name.decode("ascii", "replace")) if known else None
        if zone is None:
            settled[chosen] = Status.TYPE_MISMATCH if known else Status.UNSUPPORTED
            moments[chosen] = 0
        elif family == int(numbers.TIMESTAMP):
            day = dt.datetime.fromtimestamp(now, zone).date().toordinal() - _EPOCH.toordinal()
            seconds = moments[chosen] // _MICROS + today[chosen] * (day * _DAY)
            micros, seconds = moments[chosen] % _MICROS, seconds - _offsets(seconds, zone)
            fits = (seconds >= _LEAST // _MICROS + 1) & (seconds < _MOST // _MICROS)
            moments[chosen] = np.where(fits, np.where(fits, seconds, 0) * _MICROS + micros, 0)
            settled[chosen[~fits]] = Status.OVERFLOW
    out[rows] = xp.asarray(moments)
    statuses[rows] = xp.asarray(settled)


def _offsets(seconds: Any, zone: dt.tzinfo) -> Any:
    """Return how many seconds a zone is before UTC at seconds of its own time. As in Java, the first of two
    equal times counts where clocks go back, and skipped times move forward by the length of the gap.
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
    import zoneinfo  # takes time to import, and is seldom asked for

    return frozenset(zoneinfo.available_timezones()) - _UNKNOWN


@functools.lru_cache(1024)
def _zone(name: str) -> dt.tzinfo | None:
    """Return the zone that Java has of a name, ``None`` where it has none."""
    import zoneinfo

    if name in _OFFSETS:
        return dt.timezone(dt.timedelta(hours=_OFFSETS[name]))
    name = SHORT_ZONES.get(name, name)
    return zoneinfo.ZoneInfo(name) if name in _database() else None
