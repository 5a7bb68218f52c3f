"""The command line: cases are listed and explained, runs can be ended at any time, and compared."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bowstring.benchmarks import main, program
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Way
from bowstring.benchmarks.cases import GROUPS, case_named, case_names
from bowstring.benchmarks.document import read
from bowstring.benchmarks.progress import Progress

ENDLESS = """
import sys, time
from bowstring.benchmarks import main, program
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Way

def line_ups(scale):
    quick = Way("quick", "subject", lambda: Measured(1.0, "", ""))
    yield LineUp("done", (quick,), 2)
    def long():
        print("measuring", file=sys.stderr, flush=True)
        time.sleep(600)
        return Measured(600.0, "", "")
    yield LineUp("endless", (Way("long", "subject", long),), 2)

case = Case("example", "an example", line_ups, Explanation("", "", "", ""))
program.case_named = lambda name: case
from bowstring.cli import main
sys.exit(main(["bench", "import", "--json", sys.argv[1]]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_what_was_measured(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, or SIGTERM, in the middle of a line-up: the file has the ones before, and says that it is not all."""
    file = tmp_path / "result.json"
    command = [sys.executable, "-c", ENDLESS, str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stderr is not None
        try:
            assert run.stderr.readline() == b"measuring\n"
            run.send_signal(number)
            assert run.wait(60) == 130
        finally:
            run.kill()
        assert run.stdout is not None
        assert b"interrupted" in run.stdout.read()
    result = read(file)
    assert result["complete"] is False
    assert [line_up["name"] for line_up in result["cases"][0]["line_ups"]] == ["done"]
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_kill_leaves_a_valid_file(tmp_path: Path) -> None:
    """Even a killed run leaves the line-ups that were done."""
    file = tmp_path / "result.json"
    command = [sys.executable, "-c", ENDLESS, str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as run:
        assert run.stderr is not None
        assert run.stderr.readline() == b"measuring\n"
        run.kill()
        run.wait(60)
    assert len(read(file)["cases"][0]["line_ups"]) == 1


def made(seconds: float, other: float) -> Case:
    """Return a case whose subject takes so long beside another way."""

    def line_ups(_scale: Scale) -> Iterator[LineUp]:
        ways = (
            Way("ours", "subject", lambda: Measured(seconds, "", ""), None, "theirs"),
            Way("theirs", "baseline", lambda: Measured(other, "", "")),
            Way("alone", "subject", lambda: Measured(seconds, "", "")),
        )
        yield LineUp("one", ways, 5)

    return Case("example", "an example", line_ups, Explanation("a thing", "another", "", "as it is"))


def measured(monkeypatch: pytest.MonkeyPatch, file: Path, case: Case, *arguments: str) -> int:
    monkeypatch.setattr(program, "case_named", lambda _name: case)
    return main(["import", "--json", str(file), *arguments])


def test_a_case_made_slow_on_purpose_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--compare exits with 1 and names what became slower; the same, or a faster one, exits with 0."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    assert measured(monkeypatch, old, made(1.0, 2.0)) == 0
    assert measured(monkeypatch, new, made(1.0, 2.0), "--compare", str(old)) == 0
    assert "2 same" in capsys.readouterr().out
    assert measured(monkeypatch, new, made(1.5, 2.0), "--compare", str(old)) == 1
    said = capsys.readouterr().out
    assert "slower: example, one, ours: 0.50 × the time of theirs, now 0.75 ×" in said
    assert "slower: example, one, alone: 1.00 s, now 1.50 s" in said
    assert main(["compare", str(new), str(old)]) == 0
    assert "faster: example, one, ours" in capsys.readouterr().out


def test_a_busier_machine_is_not_a_slower_bowstring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the baseline takes longer in the same measure, nothing became slower beside it."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    measured(monkeypatch, old, made(1.0, 2.0))
    measured(monkeypatch, new, made(1.5, 3.0))
    capsys.readouterr()
    main(["compare", str(old), str(new)])
    assert "slower: example, one, ours" not in capsys.readouterr().out


def test_two_machines_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of another processor are refused, with what differs, and exit with 2."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    measured(monkeypatch, old, made(1.0, 2.0))
    other: dict[str, Any] = copy.deepcopy(read(old))
    other["environment"]["cpu"] = "Some other CPU"
    new.write_text(json.dumps(other))
    assert main(["compare", str(old), str(new)]) == 2
    assert "cannot be compared" in (said := capsys.readouterr().out)
    assert "now Some other CPU" in said


def test_cases_and_groups_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """``explain`` says what is measured, beside what, and how to read it, for every case; a group is its cases."""
    assert main(["explain"]) == 0
    said = capsys.readouterr().out
    for name in case_names():
        case = case_named(name)
        assert f"{name}: {case.title}" in said
        assert case.explanation.measured
        assert case.explanation.reading
    assert main(["explain", "spark"]) == 0
    said = capsys.readouterr().out
    assert [line.partition(":")[0] for line in said.splitlines() if line[:1] != " "] == list(GROUPS["spark"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["conect_views"], "connect_views"),
        (["explain", "nothing"], "no such case: nothing"),
        (["import", "--sizes", "1MiB"], "--sizes means nothing to import"),
        (["hand_over", "--sizes", "-3"], "invalid"),
        (["hand_over", "--quick", "--full"], "not allowed"),
        (["compare", "one.json"], "two files"),
        (["import", "--compare", "no-such-file.json"], "no-such-file.json"),
    ],
)
def test_mistakes_are_usage_errors(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What means nothing exits with 2, before anything is measured, and says what there is."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def test_progress_is_drawn_on_a_terminal() -> None:
    """One line, written over, names case, line-up and round, and the time that is left; at the end it is empty."""
    terminal = Terminal()
    progress = Progress(terminal, 2)  # type: ignore[arg-type]  # what it uses of one
    progress.next_case()
    progress.draw("hand_over", "64 MiB", 0, 13)
    time.sleep(0.01)
    progress.draw("hand_over", "64 MiB", 2, 13)
    progress.clear()
    drawn = terminal.text.split("\r\x1b[K")
    assert drawn[1] == "[1/2] hand_over: 64 MiB: round 1 of 13"
    assert drawn[2].startswith("[1/2] hand_over: 64 MiB: round 3 of 13, about ")
    assert drawn[-1] == ""
    assert "\n" not in terminal.text
