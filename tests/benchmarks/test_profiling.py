"""A profile says where a case spends its time, in this process and in those that it starts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bowstring.benchmarks import main, program
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Way
from bowstring.benchmarks.processes.child import Child


def burn_here() -> Measured:
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    return Measured(1.0, "", "")


def never() -> Measured:
    raise AssertionError("a baseline is not profiled")


def line_ups(_scale: Scale) -> Iterator[LineUp]:
    with Child("fractions:Fraction", numerator=6, denominator=4) as child:

        def elsewhere() -> Measured:
            child.call("limit_denominator.__name__.upper")
            child.call("__hash__")
            return Measured(1.0, "", "")

        ways = (
            Way("here", "subject", burn_here),
            Way("elsewhere", "subject", elsewhere),
            Way("other", "baseline", never),
        )
        yield LineUp("both", ways, 3)


def test_a_profile_names_what_takes_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_leaks: None
) -> None:
    """Functions of this process and of started ones are listed, and perf is used, or said to be absent."""
    case = Case("example", "an example", line_ups, Explanation("", "", "", ""))
    monkeypatch.setattr(program, "case_named", lambda _name: case)
    assert main(["--profile", "import", "--repeat", "2"]) == 0
    said = capsys.readouterr().out
    here, _, _ = said.partition("this process, 1 processes")[2].partition("all processes")
    assert "burn_here" in here
    assert "Fraction, 1 processes" in said
    assert "__hash__" in said.partition("Fraction, 1 processes")[2].partition("this process")[0]
    assert "2 rounds of each\n  both: here\n  both: elsewhere\n" in said
    assert "by perf" in said or "native code:" in said
