"""The result as text, drawn from the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_TITLES = ("", "n", "median", "spread", "first", "GB/s (1e9 B, once)", "h. mean", "× baseline", "of floor")
_TO_THE_RIGHT = range(1, 9)


def duration(seconds: float) -> str:
    """Return a time with three digits that count."""
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
    load = environment["load_average_before"]
    busy = (
        ": other programs are busy, expect wide spreads" if load[0] > (environment["cores"] or 1) / 2 else ""
    )
    shown = ", ".join(f"{value:.2f}" for value in load)
    yield f"load average {shown}{busy}; governor {environment['settings']['cpu_governor'] or 'unknown'}"


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
    rows = [_TITLES, *(_row(way) for way in line_up["ways"])]
    # A column without an entry is left out.
    columns = [column for column in range(len(_TITLES)) if any(row[column] for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in columns}
    for row in rows:
        yield ("  " + "  ".join(_cell(row[column], widths[column], column) for column in columns)).rstrip()


def _cell(text: str, width: int, column: int) -> str:
    return text.rjust(width) if column in _TO_THE_RIGHT else text.ljust(width)


def _row(way: dict[str, Any]) -> tuple[str, ...]:
    marks = {"subject": "", "baseline": " (baseline)", "floor": " (floor)", "beside": ""}
    rate, mean, floor = way["median_rate"], way["harmonic_mean_rate"], way["speed_to_floor"]
    return (
        way["name"] + marks[way["role"]],
        str(way["n"]),
        duration(way["median"]),
        f"{duration(way['low'])} – {duration(way['high'])}",
        duration(way["first"]),
        "" if rate is None else _digits(rate / 1e9),
        "" if mean is None else _digits(mean / 1e9),
        comparison(way),
        "" if floor is None else f"{floor:.0%}" + "!" * way["beats_floor"],
    )


def comparison(way: dict[str, Any]) -> str:
    """Return how a way compares with its baseline: the ratio, and where that says nothing, why."""
    found = way["speed_to_baseline"]
    if found is None:
        return ""
    doubt = way["verdict"] in ("inconclusive", "too small to judge")
    return ratio(found) + f" ({way['verdict']})" * doubt


def ratio(value: float) -> str:
    """Return a ratio with three digits that count."""
    return f"{value:.3f}" if value < 0.1 else _digits(value)


def target_lines(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield how many targets hold, and those that do not, with what was found."""
    targets = [
        (case["name"], line_up["name"], target)
        for case in cases
        for line_up in case["line_ups"]
        for target in line_up.get("targets", ())
    ]
    counts = {
        verdict: sum(target["verdict"] == verdict for _, _, target in targets)
        for verdict in ("holds", "missed", "inconclusive", "too small to judge")
    }
    yield f"{len(targets)} targets: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    for case, line_up, target in targets:
        if target["verdict"] != "holds":
            sign = "≥" if target["sense"] == "at least" else "≤"
            what = "speed" if target["sense"] == "at least" else "time"
            asked = f"{sign} {target['bound']:g} × {what} of {target['against']}"
            held = f"{case}, {line_up}, {target['way']}"
            yield f"  {target['verdict']}: {held}: {asked}, found {ratio(target['found'])}"


def failure_lines(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the line-ups that failed."""
    for case in cases:
        for line_up in case["line_ups"]:
            if "failed" in line_up:
                yield f"  {case['name']}: {next(line_up_lines(line_up))}"
