"""The program: ``bowstring bench [CASE…] [--quick] [--repeat N] [--json FILE] [--device NAME]``."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bowstring.benchmarks.case import Case, Scale
from bowstring.benchmarks.cases import GPU_CASES, case_named, case_names
from bowstring.benchmarks.document import case_document, document
from bowstring.benchmarks.environment import environment, load_average
from bowstring.benchmarks.measuring import measure_case
from bowstring.benchmarks.table import duration, environment_lines, line_up_lines, verdict_lines

__all__ = ["run", "run_cases"]


def run(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    parser = _parser()
    chosen = parser.parse_args(argv)
    if chosen.cases == ["list"]:
        for name in case_names():
            print(f"{name:16} {case_named(name).title}")
        return 0
    wanted = [name for each in chosen.cases for name in (GPU_CASES if each == "gpu" else (each,))]
    unknown = [name for name in wanted if name not in case_names()]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)} (there are {', '.join(case_names())})")
    names = list(dict.fromkeys(wanted)) or case_names()
    scale = Scale(quick=chosen.quick, repeat=chosen.repeat, device=chosen.device)
    result = run_cases([case_named(name) for name in names], scale)
    if chosen.json is not None:
        _write(chosen.json, result)
    line_ups = [each for case in result["cases"] for each in case["line_ups"]]
    return int(any("failed" in each for each in line_ups))


def run_cases(cases: Sequence[Case], scale: Scale) -> dict[str, Any]:
    """Measure, print a table for each line-up as it is done, and return the document."""
    command = [case.name for case in cases]
    command += ["--quick"] * scale.quick + (["--repeat", str(scale.repeat)] if scale.repeat else [])
    on_device = any(case.name in GPU_CASES for case in cases)
    command += ["--device", scale.device] * on_device
    started = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    began = time.monotonic()
    about = environment(scale.device if on_device else None)
    for line in environment_lines(about):
        print(line)
    done = []
    for case in cases:
        print(f"\n{case.name}: {case.title}", flush=True)
        results = []
        for result in measure_case(case, scale, _progress):
            results.append(result)
            print()
            for line in line_up_lines(case_document(case, [result])["line_ups"][0]):
                print(line, flush=True)
        done.append(case_document(case, results))
    about["load_average_after"] = load_average()
    print()
    for line in verdict_lines(done):
        print(line)
    failed = sum("failed" in line_up for case in done for line_up in case["line_ups"])
    how = f"{failed} FAILED" if failed else "medians, in turns, every byte checked"
    print(f"measured in {duration(time.monotonic() - began)}; {how}", flush=True)
    return document(command, started, about, done)


def _progress(name: str) -> None:
    if sys.stderr.isatty():
        print(f"  measuring {name} …", file=sys.stderr)


def _write(path: Path, result: dict[str, Any]) -> None:
    text = json.dumps(result, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("bowstring bench", description="Measure, each case beside its baseline.")
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help="all by default; `list` lists them, `gpu` is those of a GPU"
    )
    parser.add_argument(
        "--device", default="cuda:0", help="what the cases of a GPU run on; fake:0 tries them without one"
    )
    parser.add_argument("--quick", action="store_true", help="small data, few rounds, under a minute")
    parser.add_argument("--repeat", type=_positive, metavar="N", help="rounds that count, for every case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write samples and environment there")
    return parser
