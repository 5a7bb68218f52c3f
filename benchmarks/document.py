"""The result as a JSON document; tables, pages and plots are drawn from it alone."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bowstring.benchmarks.case import Case, Scale, Skipped, Target
from bowstring.benchmarks.measuring import Failed, MeasuredLineUp, MeasuredWay
from bowstring.benchmarks.summary import Summary, compared, summarize

SCHEMA: Final = "bowstring-benchmarks"
SCHEMA_VERSION: Final = 2
"""Goes up when a reader of older documents would misunderstand a newer one."""


class NotAResult(ValueError):
    """A file is not a result of this program, or not of this version."""


def document(
    command: Sequence[str],
    scale: Scale,
    started: str,
    environment: dict[str, Any],
    cases: Sequence[dict[str, Any]],
    *,
    complete: bool = True,
) -> dict[str, Any]:
    """Return the whole document."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "units": {
            "times": "seconds",
            "nbytes": "bytes of payload, each counted once",
            "rates": "bytes/second",
        },
        "command": ["bowstring", "bench", *command],
        "started": started,
        "complete": complete,
        "quick": scale.quick,
        "environment": environment,
        "cases": list(cases),
    }


def file_name(environment: Mapping[str, Any]) -> str:
    """Return what a result is called: one file for each machine and commit."""
    gpu = (environment.get("device") or {}).get("name") or ""
    machine = f"{environment['cpu'] or 'unknown'} {environment['cores_allowed']} cores {gpu}"
    commit = (environment["commit"] or "unknown").rstrip("+")[:12]
    return f"{re.sub('[^a-z0-9]+', '-', machine.lower()).strip('-')}-{commit}.json"


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write a document so that a reader finds the old one or the new one, never a half."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(path)


def read(path: Path) -> dict[str, Any]:
    """Return a document."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NotAResult(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise NotAResult(f"{path} is not a result of `bowstring bench --json`")
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise NotAResult(f"{path} has schema version {version}; this program reads {SCHEMA_VERSION}")
    return found


def case_document(case: Case, results: Sequence[MeasuredLineUp | Skipped | Failed]) -> dict[str, Any]:
    """Return what a document says about one case."""
    return {
        "name": case.name,
        "title": case.title,
        "explanation": dataclasses.asdict(case.explanation),
        "line_ups": [_line_up(case, result) for result in results],
    }


def _line_up(case: Case, result: MeasuredLineUp | Skipped | Failed) -> dict[str, Any]:
    if isinstance(result, Skipped):
        return {"name": result.name, "skipped": result.why}
    if isinstance(result, Failed):
        return {"name": result.name, "failed": result.why, "wrong_bytes": result.wrong_bytes}
    line_up, judged = result.line_up, result.judged
    small = {each.way.name for each in result.ways if case.too_small(line_up.place(each.way))}
    return {
        "name": line_up.name,
        "panel": line_up.panel,
        "warm_ups": line_up.warm_ups,
        "clock": line_up.clock,
        "ways": [
            {**_way(each, judged, too_small=each.way.name in small), "at": line_up.place(each.way)}
            for each in result.ways
        ],
        "targets": [_target(each, judged, too_small=each.way in small) for each in line_up.targets],
    }


def _way(measured: MeasuredWay, judged: Mapping[str, Summary], *, too_small: bool) -> dict[str, Any]:
    way, summary = measured.way, measured.summary
    own = judged[way.name]
    verdict = compared(own, judged[way.baseline]) if way.baseline else None
    return {
        "name": way.name,
        "role": way.role,
        "series": way.series or way.name,
        "nbytes": way.nbytes,
        "baseline": way.baseline,
        "floor": way.floor,
        **{name: value for name, value in summary._asdict().items() if name != "harmonic_mean_rate"},
        "median_rate": None if way.nbytes is None else way.nbytes / summary.median,
        "harmonic_mean_rate": summary.harmonic_mean_rate,
        # How many times as fast as the other one: ratios of medians of the same run.
        "speed_to_baseline": judged[way.baseline].median / own.median if way.baseline else None,
        "verdict": "too small to judge" if verdict and too_small else verdict,
        "speed_to_floor": judged[way.floor].median / own.median if way.floor else None,
        # Nothing can: a red flag for the measurement.
        "beats_floor": bool(way.floor) and compared(own, judged[way.floor or ""]) == "faster",
        "first": measured.first,
        "samples": list(measured.samples),
        **_device(measured),
        **({"memory": [list(each) for each in measured.memory]} if measured.memory else {}),
    }


def _device(measured: MeasuredWay) -> dict[str, Any]:
    samples = measured.device_samples
    if samples is None:
        return {}
    summary = summarize(samples, measured.way.nbytes)
    return {"device_median": summary.median, "device_samples": list(samples)}


def _target(target: Target, judged: Mapping[str, Summary], *, too_small: bool) -> dict[str, Any]:
    medians = {name: each.median for name, each in judged.items()}
    return {
        "way": target.way,
        "sense": target.sense,
        "bound": target.bound,
        "against": target.against,
        "found": target.found(medians),
        "verdict": "too small to judge" if too_small else _target_verdict(target, judged),
    }


def _target_verdict(target: Target, judged: Mapping[str, Summary]) -> str:
    """A target is missed only where even the better ends of both spreads would miss it."""
    if target.holds({name: each.median for name, each in judged.items()}):
        return "holds"
    best = {target.way: judged[target.way].low, target.against: judged[target.against].high}
    return "inconclusive" if target.holds(best) else "missed"
