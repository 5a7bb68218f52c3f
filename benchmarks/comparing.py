"""Two results side by side: what became faster or slower, where the samples show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from bowstring.benchmarks.table import duration, ratio

_MACHINE: Final = ("cpu", "cores_allowed", "memory_bytes", "hypervisor")
_SOFTWARE: Final = ("kernel", "python", "java")
_NOTEWORTHY: Final = 1.05
"""Changes of less are within what the same code shows from run to run, however narrow its spreads."""


class Change(NamedTuple):
    """How one way of Bowstring's did in two runs."""

    case: str
    line_up: str
    way: str
    baseline: str | None  # what both times are multiples of, or ``None`` where they are seconds
    before: float
    now: float
    verdict: str  # ``"slower"``, ``"faster"``, ``"same"``, ``"inconclusive"`` or ``"too small to judge"``


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return in what the machines of two results differ, so that their times cannot be compared."""
    pairs = [(name, *(each["environment"].get(name) for each in (old, new))) for name in _MACHINE]
    pairs.append(("GPU", *(_gpu(each) for each in (old, new))))
    return [f"{name}: {before}, now {now}" for name, before, now in pairs if before != now]


def _gpu(result: Mapping[str, Any]) -> Any:
    return (result["environment"].get("device") or {}).get("name")


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the change of each way of Bowstring's that both results have."""
    # Multiples of the baseline of the same run: a machine that is busier today makes both slower.
    before = dict(_subjects(old))
    for key, (way, baseline) in _subjects(new):
        if key not in before:
            continue
        was, its_baseline = before[key]
        now, then = _relative(way, baseline), _relative(was, its_baseline)
        too_small = "too small to judge" in (way["verdict"], was["verdict"])
        verdict = "too small to judge" if too_small else _verdict(then, now)
        name = None if baseline is None else baseline["name"]
        yield Change(*key, name, then[1], now[1], verdict)


def _subjects(
    result: Mapping[str, Any],
) -> Iterator[tuple[tuple[str, str, str], tuple[dict[str, Any], dict[str, Any] | None]]]:
    for case in result["cases"]:
        for line_up in case["line_ups"]:
            ways = {way["name"]: way for way in line_up.get("ways", ())}
            for name, way in ways.items():
                if way["role"] == "subject":
                    yield (case["name"], line_up["name"], name), (way, ways.get(way["baseline"]))


def _relative(way: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> tuple[float, float, float]:
    """Return the low end, the median and the high end of a time, as a multiple of the baseline's median."""
    unit = 1.0 if baseline is None else baseline["median"]
    return way["low"] / unit, way["median"] / unit, way["high"] / unit


def _verdict(before: tuple[float, float, float], now: tuple[float, float, float]) -> str:
    change = now[1] / before[1]
    if 1 / _NOTEWORTHY < change < _NOTEWORTHY:
        return "same"
    if now[0] > before[2]:
        return "slower"
    return "faster" if now[2] < before[0] else "inconclusive"


def comparison_lines(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is printed: changes first, then how many there are of each kind, and what was not compared."""
    notes = [(name, *(each["environment"].get(name) for each in (old, new))) for name in _SOFTWARE]
    packages = [each["environment"].get("packages") or {} for each in (old, new)]
    notes += [(name, packages[0].get(name), found) for name, found in packages[1].items()]
    for name, before, now in notes:
        if before != now:
            yield f"  note: {name} was {before}, is {now}"
    found = list(changes(old, new))
    for each in found:
        if each.verdict in ("slower", "faster"):
            yield f"  {each.verdict}: {each.case}, {each.line_up}, {each.way}: {_shown(each)}"
    counts = {verdict: sum(each.verdict == verdict for each in found) for verdict in dict.fromkeys(_ORDER)}
    yield "  " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count or not found)
    keys = [{key for key, _ in _subjects(each)} for each in (old, new)]
    for which, only in (("old", keys[0] - keys[1]), ("new", keys[1] - keys[0])):
        if only:
            yield f"  only in the {which} result: {len(only)}, such as {', '.join(min(only))}"


_ORDER: Final = ("slower", "faster", "same", "inconclusive", "too small to judge")


def _shown(change: Change) -> str:
    if change.baseline is None:
        return f"{duration(change.before)}, now {duration(change.now)}"
    return f"{ratio(change.before)} × the time of {change.baseline}, now {ratio(change.now)} ×"
