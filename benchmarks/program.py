"""The program: ``bowstring bench`` measures; ``list``, ``explain`` and ``compare`` say more."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bowstring.benchmarks import comparing, document
from bowstring.benchmarks.case import Case, Scale
from bowstring.benchmarks.cases import GPU_CASES, GROUPS, case_named, case_names
from bowstring.benchmarks.environment import environment, load_average
from bowstring.benchmarks.measuring import measure_case
from bowstring.benchmarks.profiling import profile_case
from bowstring.benchmarks.progress import Progress
from bowstring.benchmarks.table import duration, environment_lines, failure_lines, line_up_lines, target_lines
from bowstring.errors import MissingDependency

_INTERRUPTED: Final = 130
_UNITS: Final = {
    "": 1,
    "B": 1,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,
}
_QUICK: Final = (
    "small data and few rounds, to see that it runs and the rough picture; --full for figures to rely on"
)


def run(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    parser = _parser()
    chosen = parser.parse_args(argv)
    try:
        return _WORDS.get(next(iter(chosen.words), ""), _measure)(chosen)
    except (document.NotAResult, _Usage, OSError) as error:
        parser.error(str(error))


class _Usage(Exception):
    """The command line asks for something that there is not."""


def _list(_chosen: argparse.Namespace) -> int:
    for name in case_names():
        print(f"{name:18} {case_named(name).title}")
    return 0


def _explain(chosen: argparse.Namespace) -> int:
    for name in _names(chosen.words[1:]):
        case = case_named(name)
        print(f"{name}: {case.title}")
        about = case.explanation
        small = ", ".join(f"{least:,} {axis}" for axis, least in case.judged_from.items())
        for title, text in (
            ("measured", about.measured),
            ("baseline", about.baseline or "none: nothing else does this"),
            ("floor", about.floor or "none"),
            ("to read it", about.reading),
            ("judged from", small),
            ("--sizes", "applies" if case.sized else ""),
        ):
            if text:
                print(textwrap.fill(text, 100, initial_indent=f"  {title:12}", subsequent_indent=" " * 14))
    return 0


def _compare(chosen: argparse.Namespace) -> int:
    if len(chosen.words) != 3:
        raise _Usage("compare takes two files: bowstring bench compare OLD.json NEW.json")
    return _compared(*(document.read(Path(each)) for each in chosen.words[1:]))


def _compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    """Print how two results differ; return 1 where something became slower, 2 where they cannot be compared."""
    if different := comparing.differences(old, new):
        print("These results cannot be compared, the machines differ:\n  " + "\n  ".join(different))
        return 2
    print(f"Compared with commit {old['environment']['commit'] or 'unknown'}, {old['started']}:")
    for line in comparing.comparison_lines(old, new):
        print(line)
    return int(any(each.verdict == "slower" for each in comparing.changes(old, new)))


def _report(chosen: argparse.Namespace) -> int:
    if len(chosen.words) != 3:
        raise _Usage("report takes a file and a folder: bowstring bench report RESULT.json DIR")
    _reported(document.read(Path(chosen.words[1])), Path(chosen.words[2]))
    return 0


def _reported(result: Mapping[str, Any], folder: Path) -> None:
    from bowstring.benchmarks.report.page import write_report  # matplotlib takes its time

    print(f"\nreport: {write_report(result, folder)}")


def _names(words: Sequence[str]) -> list[str]:
    """Return the cases that some words stand for: names of cases and of groups; all where there are none."""
    names = [name for word in words for name in GROUPS.get(word, (word,))]
    unknown = [name for name in names if name not in case_names()]
    if unknown:
        raise _Usage(
            f"no such case: {', '.join(unknown)} (there are {', '.join(case_names())}; "
            f"and groups of them: {', '.join(GROUPS)})"
        )
    return list(dict.fromkeys(names)) or case_names()


def _measure(chosen: argparse.Namespace) -> int:
    cases = [case_named(name) for name in _names(chosen.words)]
    scale = Scale(not chosen.full, chosen.repeat, chosen.device, chosen.sizes)
    if chosen.profile is not None:
        [case] = map(case_named, _names([chosen.profile]))
        return profile_case(case, scale)
    if scale.asked and chosen.words and (fixed := [case.name for case in cases if not case.sized]):
        raise _Usage(f"--sizes means nothing to {', '.join(fixed)}")
    # First: a mistake here should not cost the time of a run.
    if chosen.report is not None and find_spec("matplotlib") is None:
        raise MissingDependency("--report draws plots by matplotlib", hint='pip install "bowstring[bench]"')
    old = document.read(chosen.compare) if chosen.compare is not None else None
    result = run_cases(cases, scale, chosen.json)
    done = result["cases"]
    failed = any("failed" in line_up for case in done for line_up in case["line_ups"])
    if not result["complete"]:
        print("interrupted" + (f"; what was measured is in {chosen.json}" if chosen.json else ""))
        return _INTERRUPTED
    if chosen.report is not None:
        _reported(result, chosen.report)
    code = int(failed)
    if chosen.check:
        print()
        for line in target_lines(done):
            print(line)
        missed = any(
            target["verdict"] == "missed"
            for case in done
            for line_up in case["line_ups"]
            for target in line_up.get("targets", ())
        )
        code = code or int(missed)
    if old is not None:
        print()
        code = code or _compared(old, result)
    return code


def run_cases(cases: Sequence[Case], scale: Scale, file: Path | None = None) -> dict[str, Any]:
    """Measure, print a table for each line-up as it is done, and return the document.

    It is written to `file` after each line-up: whatever ends the program, a valid document is there.
    """
    run = _Run(cases, scale, file)
    for line in environment_lines(run.about):
        print(line)
    if scale.quick:
        print(f"quick: {_QUICK}")
    try:
        for case in cases:
            run.measure(case)
        run.complete = True
    except KeyboardInterrupt:
        run.progress.clear()
    run.about["load_average_after"] = load_average()
    run.write()
    result = run.document
    for line in failure_lines(result["cases"]):
        print(line)
    failed = sum("failed" in line_up for case in result["cases"] for line_up in case["line_ups"])
    how = f"{failed} FAILED" if failed else "medians, in turns, every byte checked"
    print(f"\nmeasured in {duration(time.monotonic() - run.began)}; {how}", flush=True)
    return result


class _Run:
    """What a run has measured so far."""

    def __init__(self, cases: Sequence[Case], scale: Scale, file: Path | None) -> None:
        on_device = any(case.name in GPU_CASES for case in cases)
        self._scale = scale
        self.about = environment(scale.device if on_device else None)
        self._file = file / document.file_name(self.about) if file is not None and file.is_dir() else file
        self._started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self._done: list[dict[str, Any]] = []
        on_device = any(case.name in GPU_CASES for case in cases)
        self._command = [
            *(case.name for case in cases),
            "--quick" if scale.quick else "--full",
            *(["--repeat", str(scale.repeat)] if scale.repeat else []),
            *(["--sizes", ",".join(map(str, scale.asked))] if scale.asked else []),
            *(["--device", scale.device] * on_device),
        ]
        self.about = environment(scale.device if on_device else None)
        self.began = time.monotonic()
        self.progress = Progress(sys.stderr, len(cases))
        self.complete = False
        self.write()

    @property
    def document(self) -> dict[str, Any]:
        return document.document(
            self._command, self._scale, self._started, self.about, self._done, complete=self.complete
        )

    def write(self) -> None:
        """Write what there is."""
        if self._file is not None:
            document.write(self._file, self.document)

    def measure(self, case: Case) -> None:
        """Measure a case, and print it."""
        print(f"\n{case.name}: {case.title}", flush=True)
        self.progress.next_case()
        self._done.append(document.case_document(case, []))
        for result in measure_case(case, self._scale, lambda *state: self.progress.draw(case.name, *state)):
            line_up = document.case_document(case, [result])["line_ups"][0]
            self._done[-1]["line_ups"].append(line_up)
            self.write()
            self.progress.clear()
            print()
            for line in line_up_lines(line_up):
                print(line, flush=True)
        self.progress.clear()


_WORDS: Final = {"list": _list, "explain": _explain, "compare": _compare, "report": _report}


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _sizes(text: str) -> tuple[int, ...]:
    """Return sizes such as ``64KiB,1MiB`` in bytes."""
    return tuple(map(_size, text.split(",")))


def _size(text: str) -> int:
    plain = text.strip().upper()
    digits = plain.rstrip("BIKMG ")
    return _positive(digits) * _UNITS[plain[len(digits) :].strip()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "bowstring bench",
        description="Measure Bowstring on this machine, each case beside what you would use instead.",
        epilog="Exit code: 0 measured, 1 wrong bytes or a failed case (with --check: a missed target; with "
        "--compare: something became slower), 2 usage, 130 after Ctrl-C.",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="CASE",
        help=f"cases, or groups of them ({', '.join(GROUPS)}); all by default. Instead: `list`; `explain CASE…`; "
        "`compare OLD.json NEW.json`; `report RESULT.json DIR`",
    )
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument("--quick", action="store_true", help=f"the default: {_QUICK}")
    scale.add_argument(
        "--full", action="store_true", help="all sizes and rounds: for some cases many minutes"
    )
    parser.add_argument(
        "--sizes", type=_sizes, default=(), metavar="64KiB,1MiB", help="sizes to measure instead"
    )
    parser.add_argument("--repeat", type=_positive, metavar="N", help="rounds that count, for every case")
    parser.add_argument(
        "--device", default="cuda:0", help="what the cases of a GPU run on; fake:0 tries them without one"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write samples and environment there; in a folder, to a file named for the machine and commit",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="OLD.json", help="say what became faster or slower since that result"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="write a page with plots there (extra bench)"
    )
    parser.add_argument(
        "--profile", metavar="CASE", help="run that case under profilers instead, and say where the time went"
    )
    parser.add_argument(
        "--check", action="store_true", help="for developers of Bowstring: say which targets hold"
    )
    return parser
