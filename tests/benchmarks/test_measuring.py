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
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.document import SCHEMA_VERSION, NotAResult, case_document, read
from bowstring.benchmarks.measuring import Failed, WrongBytes, measure, measure_case
from bowstring.benchmarks.summary import compared, summarize
from bowstring.benchmarks.table import line_up_lines, target_lines

HONEST = Measured(0.5, "bytes", "bytes")
NOTHING = Explanation("nothing", "", "", "nothing")


def case_of(*line_ups: LineUp | Skipped, closed: list[str] | None = None, **about: Any) -> Case:
    def made(_scale: Scale) -> Iterator[LineUp | Skipped]:
        try:
            yield from line_ups
        finally:
            if closed is not None:
                closed.append("closed")

    return Case("example", "an example", made, NOTHING, **about)


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


def run(monkeypatch: pytest.MonkeyPatch, case: Case, *arguments: str) -> int:
    monkeypatch.setattr(program, "case_named", lambda _name: case)
    return main(["import", *arguments])


def test_a_missed_target_counts_only_for_developers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users see no target, and exit with 0; --check shows the one that is missed, and exits with 1."""
    ways = (constant("a", 1.0), constant("b", 2.0))
    slow = case_of(LineUp("slow", ways, 2, (Target("a", "at least", 3, "b"),)))
    assert run(monkeypatch, slow) == 0
    assert "target" not in capsys.readouterr().out
    assert run(monkeypatch, slow, "--check") == 1
    assert "missed: example, slow, a: ≥ 3 × speed of b, found 2.00" in capsys.readouterr().out
    met = case_of(LineUp("quick", ways, 2, (Target("a", "at least", 1.5, "b"),)))
    assert run(monkeypatch, met, "--check") == 0
    assert "1 targets: 1 holds" in capsys.readouterr().out


def test_wrong_bytes_are_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line-up whose bytes are wrong exits with 1."""
    lies = LineUp("lies", (Way("liar", "subject", lambda: Measured(1.0, "a", "b")),), rounds=1)
    assert run(monkeypatch, case_of(lies)) == 1


def varying(name: str, *seconds: float, **references: Any) -> Way:
    turns = itertools.cycle(seconds)
    return Way(name, "subject", lambda: Measured(next(turns), "", ""), None, **references)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((1.0, 1.2), (1.3, 1.4), "faster"),
        ((1.5, 1.6), (1.3, 1.4), "slower"),
        ((1.0, 1.35), (1.3, 1.4), "inconclusive"),
    ],
)
def test_overlapping_spreads_are_inconclusive(
    ours: tuple[float, ...], theirs: tuple[float, ...], verdict: str
) -> None:
    """A way is faster or slower than its baseline only where no sample of one lies among those of the other."""
    line_up = LineUp("two", (varying("ours", *ours, baseline="theirs"), varying("theirs", *theirs)), 4)
    made = case_document(case_of(line_up), list(measure_case(case_of(line_up), Scale())))
    [shown] = made["line_ups"]
    assert shown["ways"][0]["verdict"] == verdict
    assert ("(inconclusive)" in "\n".join(line_up_lines(shown))) == (verdict == "inconclusive")


def test_two_samples_say_nothing() -> None:
    """With fewer than three samples, however far apart, a comparison is inconclusive."""
    few, many = summarize([1.0, 1.0]), summarize([9.0, 9.0, 9.0])
    assert compared(few, many) == compared(many, few) == "inconclusive"


def test_a_target_within_the_spreads_is_not_missed() -> None:
    """A target whose bound the spreads reach is inconclusive; one that even their better ends miss is missed."""
    ways = (varying("a", 1.0, 2.0), varying("b", 1.4, 1.6))
    targets = (Target("a", "at most", 0.9, "b"), Target("a", "at most", 0.5, "b"))
    line_up = LineUp("two", ways, 4, targets)
    made = case_document(case_of(line_up), list(measure_case(case_of(line_up), Scale())))
    assert [each["verdict"] for each in made["line_ups"][0]["targets"]] == ["inconclusive", "missed"]


def test_small_sizes_are_not_judged() -> None:
    """Below the size that a case judges from, neither a comparison nor a target says anything."""
    ways = (constant("a", 1.0, baseline="b"), constant("b", 4.0))
    line_ups = [
        LineUp(f"{size}", ways, 3, (Target("a", "at least", 9, "b"),), at={"bytes": size})
        for size in (10, 20)
    ]
    case = case_of(*line_ups, judged_from={"bytes": 20})
    small, large = case_document(case, list(measure_case(case, Scale())))["line_ups"]
    assert (small["ways"][0]["verdict"], large["ways"][0]["verdict"]) == ("too small to judge", "faster")
    assert (small["targets"][0]["verdict"], large["targets"][0]["verdict"]) == (
        "too small to judge",
        "missed",
    )
    assert "4.00 (too small to judge)" in "\n".join(line_up_lines(small))


def test_the_document_has_every_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The JSON is versioned, names the command, keeps raw samples, ratios, targets and skips, and no paths."""
    ways = (
        constant("bowstring", 1.0, baseline="other", floor="memcpy"),
        constant("other", 4.0),
        constant("memcpy", 0.5),
    )
    line_up = LineUp("sizes", ways, 2, (Target("bowstring", "at least", 3, "other"),), at={"bytes": 1000})
    file = tmp_path / "result.json"
    case = case_of(line_up, Skipped("4 GiB", "too big"))
    assert run(monkeypatch, case, "--quick", "--repeat", "2", "--json", str(file)) == 0
    text = file.read_text()
    result = read(file)
    assert result["schema"] == "bowstring-benchmarks"
    assert result["schema_version"] == SCHEMA_VERSION
    assert result["command"] == ["bowstring", "bench", "example", "--quick", "--repeat", "2"]
    assert (result["quick"], result["complete"]) == (True, True)
    assert {"cpu", "cores", "memory_bytes", "kernel", "python", "packages", "commit"} <= set(
        result["environment"]
    )
    measured, skipped = result["cases"][0]["line_ups"]
    assert skipped == {"name": "4 GiB", "skipped": "too big"}
    way = measured["ways"][0]
    assert way["samples"] == [1.0, 1.0]
    assert way["at"] == {"bytes": 1000}
    assert (way["speed_to_baseline"], way["speed_to_floor"], way["median_rate"]) == (4.0, 0.5, 1000.0)
    assert measured["targets"][0] == {
        "way": "bowstring",
        "sense": "at least",
        "bound": 3,
        "against": "other",
        "found": 4.0,
        "verdict": "holds",
    }
    assert str(tmp_path) not in text
    shown = "\n".join(line_up_lines(measured))
    assert "50%" in shown
    assert "4.00" in shown
    assert "1 targets: 1 holds" in "\n".join(target_lines(result["cases"]))


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"schema": "other"}', None])
def test_other_files_are_not_results(tmp_path: Path, text: str | None) -> None:
    """What is not a result, or is one of another version, is refused with what it is."""
    file = tmp_path / "result.json"
    file.write_text(text or json.dumps({"schema": "bowstring-benchmarks", "schema_version": 1}))
    with pytest.raises(NotAResult, match="schema version 1" if text is None else "not"):
        read(file)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1), st.integers(1, 1 << 40))
def test_summaries_are_in_order(samples: list[float], nbytes: int) -> None:
    """Percentiles enclose the median and lie among the samples, and the mean rate lies among the rates."""
    summary = summarize(samples, nbytes)
    least, most = min(samples), max(samples)
    ordered = (least, summary.p5, summary.median, summary.p95, summary.p99, most)
    assert summary.low <= summary.median * (1 + 1e-12)
    assert summary.median <= summary.high * (1 + 1e-12)
    assert compared(summary, summary) == "inconclusive"
    assert all(low <= high * (1 + 1e-12) for low, high in itertools.pairwise(ordered))
    assert summary.n == len(samples)
    assert summary.harmonic_mean_rate is not None
    slow, fast = nbytes / most, nbytes / least
    assert slow * (1 - 1e-9) <= summary.harmonic_mean_rate <= fast * (1 + 1e-9)


def test_percentiles_interpolate() -> None:
    """The percentiles of 0 to 100 are their own names."""
    summary = summarize([float(value) for value in range(101)], None)
    assert (summary.p5, summary.low, summary.median, summary.high, summary.p95, summary.p99) == (
        5,
        25,
        50,
        75,
        95,
        99,
    )
    assert summary.harmonic_mean_rate is None


def test_targets_compare_times_or_speeds() -> None:
    """A bound on time is kept from below, one on speed from above, as a multiple of another way's."""
    medians = {"a": 2.0, "b": 4.0}
    assert Target("a", "at least", 2.0, "b").holds(medians)
    assert not Target("b", "at least", 0.6, "a").holds(medians)
    assert Target("b", "at most", 2.0, "a").holds(medians)
    assert not Target("b", "at most", 1.9, "a").holds(medians)
