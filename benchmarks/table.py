"""The result as text, drawn from the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["duration", "environment_lines", "line_up_lines", "verdict_lines"]

_TITLES = (
    "way",
    "n",
    "median",
    "p5 – p95",
    "first",
    "GB/s (1e9 B, once)",
    "h. mean",
    "× baseline",
    "× floor",
    "target",
)
_TO_THE_RIGHT = range(1, 9)
_MARGIN = 1.05


def duration(seconds: float) -> str:
    """Return a time with three digits that count.

    Examples
    --------
    >>> duration(0.00123), duration(4.5e-6), duration(12.34)
    ('1.23 ms', '4.50 µs', '12.3 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds / 1e-9)} ns"


def _digits(value: float) -> str:
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def environment_lines(environment: dict[str, Any]) -> Iterator[str]:
    """Yield the block that stands before all tables."""
    packages = ", ".join(f"{name} {found}" for name, found in environment["packages"].items() if found)
    memory = environment["memory_bytes"] or 0
    virtual = ", virtual" if environment["hypervisor"] else ""
    yield f"{environment['cpu']}, {environment['cores']} cores{virtual}, {memory / 1e9:.1f} GB of memory"
    java = f", Java {environment['java']}" if environment.get("java") else ""
    yield f"{environment['kernel']}, {environment['python']}{java}, {packages}"
    device = environment.get("device")
    if device is not None and device["is_gpu"]:
        memory = (device["memory_bytes"] or 0) / 1e9
        yield f"{device['name']}, {memory:.1f} GB, driver {device['driver']}, CUDA {device['cuda']}"
    elif device is not None:
        yield f"on {device['asked']}, which is no GPU: these figures say nothing of one"
    yield f"bowstring {environment['bowstring']}, commit {environment['commit'] or 'unknown'}"
    load = ", ".join(f"{value:.2f}" for value in environment["load_average_before"])
    yield f"load average {load}; governor {environment['settings']['cpu_governor'] or 'unknown'}"


def line_up_lines(line_up: dict[str, Any]) -> Iterator[str]:
    """Yield the table of one line-up."""
    if "skipped" in line_up:
        yield f"{line_up['name']}: skipped, {line_up['skipped']}"
        return
    if "failed" in line_up:
        what = "WRONG BYTES" if line_up["wrong_bytes"] else "failed"
        yield f"{line_up['name']}: {what}, {line_up['failed']}"
        return
    yield line_up["name"]
    rows = [_TITLES, *(_row(way, line_up["targets"]) for way in line_up["ways"])]
    # A column without an entry is left out.
    columns = [column for column in range(len(_TITLES)) if any(row[column] for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in columns}
    for row in rows:
        yield ("  " + "  ".join(_cell(row[column], widths[column], column) for column in columns)).rstrip()


def _cell(text: str, width: int, column: int) -> str:
    return text.rjust(width) if column in _TO_THE_RIGHT else text.ljust(width)


def _row(way: dict[str, Any], targets: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    marks = {"subject": "", "baseline": " (baseline)", "floor": " (floor)", "beside": ""}
    rate, mean = way["median_rate"], way["harmonic_mean_rate"]
    return (
        way["name"] + marks[way["role"]],
        str(way["n"]),
        duration(way["median"]),
        f"{duration(way['p5'])} – {duration(way['p95'])}",
        duration(way["first"]),
        "" if rate is None else _digits(rate / 1e9),
        "" if mean is None else _digits(mean / 1e9),
        _ratio(way["speed_to_baseline"]),
        # Nothing is faster than its floor: a red flag for the measurement.
        _ratio(way["speed_to_floor"]) + ("!" if (way["speed_to_floor"] or 0) > _MARGIN else ""),
        "; ".join(_target(each) for each in targets if each["way"] == way["name"]),
    )


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 0.1 else _digits(value)


def _target(target: dict[str, Any]) -> str:
    sign = "≥" if target["sense"] == "at least" else "≤"
    verdict = "holds" if target["holds"] else "DOES NOT HOLD"
    if target["against"] is None:
        return f"{sign} {duration(target['bound'])}: {verdict}"
    what = "speed" if target["sense"] == "at least" else "time"
    return (
        f"{sign} {target['bound']:g} × {what} of {target['against']}: {verdict} ({_ratio(target['found'])})"
    )


def verdict_lines(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the count of targets, and those that do not hold."""
    line_ups = [(case["name"], each) for case in cases for each in case["line_ups"]]
    targets = [(name, each, target) for name, each in line_ups for target in each.get("targets", ())]
    missed = [(name, each, target) for name, each, target in targets if not target["holds"]]
    yield f"{len(targets) - len(missed)} of {len(targets)} targets hold"
    for name, line_up, target in missed:
        found = target["found"]
        shown = duration(found) if target["against"] is None else f"{_ratio(found)} ×"
        yield f"  {name}, {line_up['name']}, {target['way']}: {_target(target).split(':')[0]}, found {shown}"
    for name, line_up in line_ups:
        if "failed" in line_up:
            yield f"  {name}: {next(line_up_lines(line_up))}"
