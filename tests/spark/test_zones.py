"""Time zones of Spark's sessions, as readers of Arrow get them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.spark.batches import FromSpark
from bowstring.spark.types import arrow_zone
from tests.spark.live import MARKS, live_session

AT = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


def from_spark(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of Spark's as it is published."""
    return FromSpark(batch.schema)(batch)


def batch_in(zone: str) -> pa.RecordBatch:
    """Return times at each place of a type, as Spark hands them over."""
    time = pa.timestamp("us", zone)
    columns = {
        "plain": pa.array([AT, None], time),
        "list": pa.array([[AT], None], pa.list_(time)),
        "struct": pa.array([{"at": AT}, None], pa.struct([("at", time)])),
        "map": pa.array([[(AT, AT)], None], pa.map_(time, time)),
        "local": pa.array([AT.replace(tzinfo=None), None], pa.timestamp("us")),
    }
    return pa.record_batch(columns)


@given(
    st.sampled_from(["", "UTC", "GMT", "UT"]),
    st.sampled_from("+-"),
    st.integers(0, 17),
    st.integers(0, 59),
    st.sampled_from(["{0}", "{0:02}", "{0:02}:{1:02}", "{0:02}{1:02}", "{0}:{1:02}", "{0:02}:{1}"]),
)
def test_offsets_keep_their_time(prefix: str, sign: str, hours: int, minutes: int, form: str) -> None:
    """An offset in any form that Java or Spark takes is one that pyarrow takes, of the same time, at any depth."""
    zone = prefix + sign + form.format(hours, minutes)
    offset = dt.timedelta(hours=hours, minutes=minutes if "1" in form else 0)
    made = from_spark(batch_in(zone))
    for row in (made.to_pylist()[0], made.to_pandas().to_dict("records")[0]):
        assert row["plain"] == AT
        assert row["plain"].utcoffset() == (offset if sign == "+" else -offset)
    for name, column in zip(made.schema.names, made.columns, strict=True):
        zones = re.findall(r"tz=([^\]]+)\]", str(column.type))
        assert zones == [arrow_zone(zone)] * {"local": 0, "map": 2}.get(name, 1)


@pytest.mark.parametrize(
    "zone", ["Asia/Tokyo", "America/New_York", "UTC", "GMT", "Etc/GMT+8", "EST5EDT", "+05:30"]
)
def test_zones_that_readers_know_stay(zone: str) -> None:
    """Names of the time zone database and Arrow's offsets stay as they are, and nothing is made anew for them."""
    assert arrow_zone(zone) == zone
    batch = batch_in(zone).select(["plain", "local"])
    assert from_spark(batch).schema.equals(batch.schema)
    assert [a.address for a in from_spark(batch).column(0).buffers() if a] == [
        a.address for a in batch.column(0).buffers() if a
    ]


def test_an_offset_with_seconds_is_utc() -> None:
    """Arrow has no seconds in offsets: the instants stay."""
    made = from_spark(batch_in("+08:00:30"))
    assert made.schema.field("plain").type == pa.timestamp("us", "UTC")
    assert made.to_pylist()[0]["plain"] == AT


@pytest.mark.parametrize("session", [pytest.param(live_session, marks=MARKS)])
def test_java_s_short_names(session: Callable[[], Any]) -> None:
    """Each short name and each form of an offset means the same offset as for Java, in winter and in summer."""
    java = session()._jvm.java.time
    short = java.ZoneId.SHORT_IDS
    names = {str(each) for each in short}
    assert len(names) > 20
    for name in sorted(
        names | {"Z", "UT", "UTC", "GMT", "UTC+8", "GMT-03:30", "UT+0", "+0530", "GMT+0", "-18:00"}
    ):
        rules = java.ZoneId.of(name, short).getRules()
        for month in (1, 7):
            moment = dt.datetime(2024, month, 1, tzinfo=dt.UTC)
            theirs = rules.getOffset(java.Instant.ofEpochSecond(int(moment.timestamp()))).getTotalSeconds()
            ours = pa.scalar(moment, pa.timestamp("us", arrow_zone(name))).as_py().utcoffset()
            assert ours.total_seconds() == theirs, (name, moment)


@pytest.mark.parametrize("session", [pytest.param(live_session, marks=MARKS)])
def test_session_zones_are_published_as_readers_know_them(session: Callable[[], Any]) -> None:
    """Whatever a session's zone is called, readers get the instants and the times of day of Spark."""
    spark, before = session(), session().conf.get("spark.sql.session.timeZone")
    try:
        for zone in ("GMT+8", "UTC-3", "GMT+08:00", "+5:30", "Z", "PST", "Asia/Kolkata"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            frame = spark.sql(
                "SELECT timestamp'2020-07-01 00:00:00' AS at, array(timestamp'2020-07-01 00:00:00') AS all"
            )
            frame.write.format("bowstring").mode("overwrite").save("zones")
            frame.write.format("bowstring").mode("append").save("zones")
            for source in (bow.spark.publish(frame), bow.spark.dataset("zones")):
                [row, *_] = source.to_pandas().to_dict("records")
                assert row["at"].strftime("%F %T") == "2020-07-01 00:00:00", zone
                assert row["at"].timestamp() == frame.selectExpr("unix_timestamp(at)").first()[0]
                assert pa.table(source.to_arrow())["all"].to_pylist()[0] == [row["at"]]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        bow.spark.drop("zones")
