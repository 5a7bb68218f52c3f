"""The result as a JSON document; tables and plots are drawn from it alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bowstring.benchmarks.case import Case, Skipped, Target
from bowstring.benchmarks.measuring import Failed, MeasuredLineUp, MeasuredWay
from bowstring.benchmarks.summary import summarize

__all__ = ["SCHEMA_VERSION", "case_document", "document"]

SCHEMA_VERSION: Final = 1
"""Goes up when a reader of older documents would misunderstand a newer one."""


def document(
    command: Sequence[str], started: str, environment: dict[str, Any], cases: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the whole document.

    Parameters
    ----------
    command
        The arguments of the program that decide what was measured.
    started
        When, in UTC, ISO 8601.
    environment
        See :func:`bowstring.benchmarks.environment.environment`.
    cases
        Made by `case_document`.

    Examples
    --------
    >>> document(["import"], "2026-01-01T00:00:00+00:00", {}, [])["schema_version"]
    1
    """
    return {
        "schema": "bowstring-benchmarks",
        "schema_version": SCHEMA_VERSION,
        "units": {
            "times": "seconds",
            "nbytes": "bytes of payload, each counted once",
            "rates": "bytes/second",
        },
        "command": ["bowstring", "bench", *command],
        "started": started,
        "environment": environment,
        "cases": list(cases),
    }


def case_document(case: Case, results: Sequence[MeasuredLineUp | Skipped | Failed]) -> dict[str, Any]:
    """Return what a document says about one case."""
    return {"name": case.name, "title": case.title, "line_ups": [_line_up(result) for result in results]}


def _line_up(result: MeasuredLineUp | Skipped | Failed) -> dict[str, Any]:
    if isinstance(result, Skipped):
        return {"name": result.name, "skipped": result.why}
    if isinstance(result, Failed):
        return {"name": result.name, "failed": result.why, "wrong_bytes": result.wrong_bytes}
    medians = result.medians
    return {
        "name": result.line_up.name,
        "warm_ups": result.line_up.warm_ups,
        "ways": [_way(each, medians) for each in result.ways],
        "clock": result.line_up.clock,
        "targets": [_target(each, result.judged) for each in result.line_up.targets],
    }


def _way(measured: MeasuredWay, medians: dict[str, float]) -> dict[str, Any]:
    way, summary = measured.way, measured.summary
    return {
        "name": way.name,
        "role": way.role,
        "nbytes": way.nbytes,
        "baseline": way.baseline,
        "floor": way.floor,
        "n": summary.n,
        "median": summary.median,
        "p5": summary.p5,
        "p95": summary.p95,
        "median_rate": None if way.nbytes is None else way.nbytes / summary.median,
        "harmonic_mean_rate": summary.harmonic_mean_rate,
        # How many times as fast as the other one: ratios of medians of the same run.
        "speed_to_baseline": medians[way.baseline] / summary.median if way.baseline else None,
        "speed_to_floor": medians[way.floor] / summary.median if way.floor else None,
        "first": measured.first,
        "samples": list(measured.samples),
        **_device(measured),
    }


def _device(measured: MeasuredWay) -> dict[str, Any]:
    samples = measured.device_samples
    if samples is None:
        return {}
    summary = summarize(samples, measured.way.nbytes)
    return {"device_median": summary.median, "device_samples": list(samples)}


def _target(target: Target, medians: dict[str, float]) -> dict[str, Any]:
    return {
        "way": target.way,
        "sense": target.sense,
        "bound": target.bound,
        "against": target.against,
        "found": target.found(medians),
        "holds": target.holds(medians),
    }
