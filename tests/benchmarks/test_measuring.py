"""Cases are measured in turns, and one whose bytes are wrong is found out."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.benchmarks import main, program
from bowstring.benchmarks.case import Case, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.document import SCHEMA_VERSION
from bowstring.benchmarks.measuring import Failed, WrongBytes, measure, measure_case
from bowstring.benchmarks.summary import summarize
from bowstring.benchmarks.table import line_up_lines, verdict_lines

HONEST = Measured(0.5, "bytes", "bytes")


def case_of(*line_ups: LineUp | Skipped, closed: list[str] | None = None) -> Case:
    def made(_scale: Scale) -> Iterator[LineUp | Skipped]:
        try:
            yield from line_ups
        finally:
            if closed is not None:
                closed.append("closed")

    return Case("example", "an example", made)


def constant(name: str, seconds: float, **references: Any) -> Way:
    return Way(name, "subject", lambda: Measured(seconds, "bytes", "bytes"), 1000, **references)


def test_ways_take_turns() -> None:
    """Each round runs every way once, in order, and warm-ups are not counted."""
    calls: list[str] = []

    def way(name: str) -> Way:
        def once() -> Measured:
            calls.append(name)
            return Measured(float(len(calls)), "", "")

        return Way(name, "subject", once)

    measured = measure(LineUp("turns", (way("A"), way("B")), rounds=3, warm_ups=2))
    assert "".join(calls) == "AB" * 5
    assert [each.first for each in measured.ways] == [1.0, 2.0]
    assert [each.samples for each in measured.ways] == [(5.0, 7.0, 9.0), (6.0, 8.0, 10.0)]


def test_a_way_that_lies_about_bytes_fails() -> None:
    """A sample whose bytes differ from those sent ends the measurement."""
    samples = iter([HONEST, HONEST, HONEST, Measured(0.1, "bytes", "other bytes")])
    way = Way("liar", "subject", lambda: next(samples))
    with pytest.raises(WrongBytes, match="liar"):
        measure(LineUp("lies", (way,), rounds=5))


def test_a_sample_without_time_fails() -> None:
    """A timed region of no length is a mistake of the case."""
    with pytest.raises(ValueError, match="took 0"):
        measure(LineUp("no time", (Way("a", "subject", lambda: Measured(0.0, "", "")),), rounds=1))


def test_wrong_bytes_are_reported_and_the_case_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong bytes end a case with its resources closed, and are told apart from other failures."""
    closed: list[str] = []
    liar = LineUp("lies", (Way("liar", "subject", lambda: Measured(1.0, "a", "b")),), rounds=1)
    broken = LineUp("breaks", (Way("broken", "subject", lambda: Measured(1 / 0, "", "")),), rounds=1)
    [lied] = measure_case(case_of(liar, closed=closed), Scale())
    [broke] = measure_case(case_of(broken, closed=closed), Scale())
    assert isinstance(lied, Failed)
    assert isinstance(broke, Failed)
    assert (lied.wrong_bytes, broke.wrong_bytes) == (True, False)
    assert closed == ["closed", "closed"]
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_exit_code_is_about_bytes_and_not_about_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that does not hold exits with 0; wrong bytes exit with 1."""
    slow = LineUp("slow", (constant("a", 1.0),), 1, (Target("a", "at most", 0.001),))
    lies = LineUp("lies", (Way("liar", "subject", lambda: Measured(1.0, "a", "b")),), rounds=1)
    for line_up, code in ((slow, 0), (lies, 1)):
        monkeypatch.setattr(program, "case_named", {"import": case_of(line_up)}.get)
        assert main(["import"]) == code


def test_the_document_has_every_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The JSON is versioned, names the command, keeps raw samples, ratios, targets and skips, and no paths."""
    ways = (
        constant("bowstring", 1.0, baseline="other", floor="memcpy"),
        constant("other", 4.0),
        constant("memcpy", 0.5),
    )
    line_up = LineUp("sizes", ways, 2, (Target("bowstring", "at least", 3, "other"),))
    monkeypatch.setattr(program, "case_named", lambda _name: case_of(line_up, Skipped("4 GiB", "too big")))
    file = tmp_path / "result.json"
    assert main(["import", "--quick", "--repeat", "2", "--json", str(file)]) == 0
    text = file.read_text()
    result = json.loads(text)
    assert result["schema"] == "bowstring-benchmarks"
    assert result["schema_version"] == SCHEMA_VERSION == 1
    assert result["command"] == ["bowstring", "bench", "example", "--quick", "--repeat", "2"]
    assert {"cpu", "cores", "memory_bytes", "kernel", "python", "packages", "commit"} <= set(
        result["environment"]
    )
    measured, skipped = result["cases"][0]["line_ups"]
    assert skipped == {"name": "4 GiB", "skipped": "too big"}
    way = measured["ways"][0]
    assert way["samples"] == [1.0, 1.0]
    assert (way["speed_to_baseline"], way["speed_to_floor"], way["median_rate"]) == (4.0, 0.5, 1000.0)
    assert measured["targets"][0] == {
        "way": "bowstring",
        "sense": "at least",
        "bound": 3,
        "against": "other",
        "found": 4.0,
        "holds": True,
    }
    assert str(tmp_path) not in text
    shown = "\n".join([*line_up_lines(measured), *verdict_lines(result["cases"])])
    assert "≥ 3 × speed of other: holds (4.00)" in shown
    assert "1 of 1 targets hold" in shown


@given(st.lists(st.floats(1e-6, 1e3), min_size=1), st.integers(1, 1 << 40))
def test_summaries_are_in_order(samples: list[float], nbytes: int) -> None:
    """Percentiles enclose the median and lie among the samples, and the mean rate lies among the rates."""
    summary = summarize(samples, nbytes)
    least, most = min(samples), max(samples)
    ordered = (least, summary.p5, summary.median, summary.p95, most)
    assert all(low <= high * (1 + 1e-12) for low, high in itertools.pairwise(ordered))
    assert summary.n == len(samples)
    assert summary.harmonic_mean_rate is not None
    slow, fast = nbytes / most, nbytes / least
    assert slow * (1 - 1e-9) <= summary.harmonic_mean_rate <= fast * (1 + 1e-9)


def test_percentiles_interpolate() -> None:
    """The percentiles of 0 to 100 are their own names."""
    summary = summarize([float(value) for value in range(101)], None)
    assert (summary.p5, summary.median, summary.p95) == (5.0, 50.0, 95.0)
    assert summary.harmonic_mean_rate is None


def test_targets_compare_times_or_speeds() -> None:
    """A bound on time is kept from below, one on speed from above, alone or as a multiple."""
    medians = {"a": 2.0, "b": 4.0}
    assert Target("a", "at most", 2.0).holds(medians)
    assert not Target("b", "at most", 2.0).holds(medians)
    assert Target("a", "at least", 2.0, "b").holds(medians)
    assert not Target("b", "at least", 0.6, "a").holds(medians)
    assert Target("b", "at most", 2.0, "a").holds(medians)
    assert not Target("b", "at most", 1.9, "a").holds(medians)
