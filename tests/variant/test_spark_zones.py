"""Text of times in named zones, and of times without a date, as Spark reads them."""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys
import time
import warnings
import zoneinfo
from typing import Any

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.variant import Status
from bowstring.variant.spark_casts import SHORT_ZONES, _database
from tests.variant.conftest import Move
from tests.variant.spark_peer import WANTED, spark_session, typed

UTC = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")
_ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Cairo", "GMT0"]
# Days on which clocks were put forward or back, and days before there were rules.
_DAYS = ["1893-04-01", "1910-10-31", "2024-03-10", "2024-03-31", "2024-10-27", "2024-11-03", "2077-03-28"]
_FAR = ["0001-01-01", "-0044-03-15", "9999-12-31", "12024-07-01", "+200000-01-01"]
_NOW = 1_711_846_800  # 2024-03-31 01:00:00, when clocks were put forward in Berlin


def _random_texts(days: list[str], zones: list[str], count: int) -> list[str]:
    drawn = random.Random(11)
    return [
        f"{drawn.choice(days)} {drawn.randrange(5):02}:{drawn.randrange(60):02}:{drawn.randrange(60):02}"
        f".{drawn.randrange(10**6):06} {drawn.choice(zones)}"
        for _ in range(count)
    ]


def _micros(text: str) -> int:
    """Return the instant of a text by Python's own calendar."""
    when, zone = text.rsplit(" ", 1)
    local = dt.datetime.fromisoformat(when).replace(tzinfo=zoneinfo.ZoneInfo(zone))
    since = local.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1)


def _cast(texts: list[str], type_: pa.DataType, move: Any = lambda column: column) -> list[int | None]:
    got = variant.get(move(variant.from_python(texts)), "$", type_, cast="spark")
    return got.to_arrow().cast(pa.int64()).to_pylist()


def test_times_in_named_zones(on_device: Move) -> None:
    """Times are those of Python's zones, those that come twice the first, those that are left out put forward."""
    texts = _random_texts(_DAYS, _ZONES, 400)
    assert _cast(texts, UTC, on_device) == list(map(_micros, texts))


def test_years_beyond_pythons(on_device: Move) -> None:
    """Rules go on behind the year 9999 as they were 400 years before, and before the first is the sun's time."""
    summer, winter = "12024-07-01 00:00:00 Europe/Berlin", "+12024-01-01 00:00:00 Europe/Berlin"
    ancient, first = "-0044-03-15 00:00:00 Europe/Berlin", "1893-03-01 00:00:00 Europe/Berlin"
    here = _cast([summer, winter, ancient, first], UTC, on_device)
    there = _cast([text.replace("Europe/Berlin", "UTC") for text in (summer, winter, ancient, first)], UTC)
    offsets = [(b - a) / 1e6 for a, b in zip(here, there, strict=True) if a is not None and b is not None]
    assert offsets == [7200, 3600, 3208, 3208]


@pytest.mark.filterwarnings("ignore:.* became null")
def test_without_a_zone_the_name_must_be_one() -> None:
    """A timestamp without a zone leaves the zone away, and is null where there is no such one, as in Spark."""
    texts = ["2024-07-01 12:00:00 Europe/Berlin", "2024-07-01 12:00:00 Europe/Bonn"]
    assert _cast(texts, LOCAL) == [1_719_835_200_000_000, None]


@pytest.mark.filterwarnings("ignore:.* became null")
def test_a_time_without_a_date_is_one_of_today(on_device: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the day of the call, in the zone that the text names."""
    monkeypatch.setattr(time, "time", lambda: float(_NOW))
    day = 86_400 * 1_000_000
    begin = _NOW * 1_000_000 // day * day
    hour = 3_600_000_000
    texts = [
        "T12:30",
        "12:30:45.5",
        "0:0 +23",
        "01:00:00+18:00",
        "T12:0:0 Europe/Berlin",
        "1:00:00 Pacific/Kiritimati",
    ]
    assert _cast(texts, UTC, on_device) == [
        *(begin + hour * 25 // 2, begin + hour * 25 // 2 + 45_500_000, None, begin + hour - 18 * hour),
        *(begin + 10 * hour, begin + hour - 14 * hour),
    ]
    assert _cast(texts, LOCAL, on_device) == [None] * len(texts)


WITHOUT_ZONES = """
import zoneinfo
zoneinfo.available_timezones = set
import pyarrow as pa
from bowstring import variant
column = variant.from_python(["2024-07-01 12:00:00 Europe/Berlin", "2024-07-01 12:00:00 +1"])
got = variant.get(column, "$", pa.timestamp("us", "UTC"), cast="spark", with_status=True)
print(*got["status"].to_arrow().to_pylist())
"""


def test_without_a_database_zones_are_unsupported(forked: None) -> None:
    """Where nobody knows zones, a name is not called wrong."""
    command = [sys.executable, "-c", WITHOUT_ZONES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.stdout.split() == [f"{Status.UNSUPPORTED:d}", f"{Status.OK:d}"], done.stderr


@pytest.mark.slow
@pytest.mark.peers
def test_zones_live() -> None:
    """Spark gives the same instants in all zones, and takes the same names."""
    pytest.importorskip("pyspark", reason=f"Spark itself is not installed: {WANTED}")
    odd = {"EST", "MST", "HST", "ROC", "Factory", "posixrules", "utc", "Zulu", "GMT0", "UT"}
    names = sorted(_database() | set(SHORT_ZONES) | odd)
    texts = [
        *(f"2024-07-01 12:00:00 {name}" for name in names),
        # Databases differ in what was before 1970, but where it is known best.
        *_random_texts([day for day in _DAYS if day > "1970"], names, 5000),
        *_random_texts(_DAYS + _FAR, _ZONES, 1000),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = pa.table({"row": pa.array(range(len(texts)), pa.int64()), "text": pa.array(texts)})
        spark_session().createDataFrame(table).createOrReplaceTempView("zoned")
        for name, type_ in (("timestamp", UTC), ("timestamp_ntz", LOCAL)):
            query = f"SELECT try_variant_get(CAST(text AS VARIANT), '$', '{name}') t FROM zoned ORDER BY row"
            theirs = typed(spark_session().sql(query).toArrow()["t"])
            ours = _cast(texts, type_)
            differ = [each for each in zip(texts, ours, theirs, strict=True) if each[1] != each[2]]
            assert not differ, f"{len(differ)} times:\n" + "\n".join(map(str, differ[:40]))
