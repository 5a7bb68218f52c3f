"""What a result says about where it came from."""

from __future__ import annotations

from typing import Any

import pytest

from bowstring.benchmarks.environment import environment
from bowstring.benchmarks.table import environment_lines
from bowstring.errors import MissingDependency
from bowstring.spark.java import Java


def about(monkeypatch: pytest.MonkeyPatch, missing: str | None, found: Java | Exception) -> dict[str, Any]:
    """Return the environment where Spark is there or not, and so is Java."""

    def find() -> Java:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("bowstring.benchmarks.environment.missing", lambda _engine: missing)
    monkeypatch.setattr("bowstring.benchmarks.environment.find_java", find)
    return environment()


def test_a_result_says_which_java_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark is installed the version of its Java is written, and shown."""
    found = about(monkeypatch, None, Java(None, "21.0.8"))
    assert found["java"] == "21.0.8"
    assert any(", Java 21.0.8," in line for line in environment_lines(found))


@pytest.mark.parametrize(
    ("missing", "found"),
    [("not installed: pyspark", Java(None, "17")), (None, MissingDependency("Spark needs Java"))],
    ids=["no Spark", "no Java"],
)
def test_where_no_java_ran_none_is_said(
    monkeypatch: pytest.MonkeyPatch, missing: str | None, found: Java | Exception
) -> None:
    """Without Spark, or without a Java, there is nothing to say, and no error."""
    without = about(monkeypatch, missing, found)
    assert without["java"] is None
    assert not any("Java" in line for line in environment_lines(without))
