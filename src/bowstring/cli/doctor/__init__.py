"""``bowstring doctor``: what this machine can do, and which setting is in the way of the rest."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.connections import try_connections
from bowstring.cli.doctor.devices import find_devices
from bowstring.cli.doctor.handover import try_handover
from bowstring.cli.doctor.packages import find_packages
from bowstring.cli.doctor.paths import Path, judge_paths
from bowstring.cli.doctor.shared_memory import try_shared_memory
from bowstring.cli.text import shown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["run"]

_MARKS = {State.OK: "✓", State.ABSENT: "·", State.BROKEN: "✗"}


def run(arguments: argparse.Namespace) -> int:
    """Try everything once; 0 where the default path works."""
    groups = {
        "Packages": find_packages(),
        "Shared memory": try_shared_memory(),
        "Connections": try_connections(),
        "Hand-over between two processes": try_handover(),
        "Devices": find_devices(),
    }
    found = judge_paths([check for checks in groups.values() for check in checks])
    default = found[0]
    if arguments.json:
        print(json.dumps(_as_json(groups, found, default)))
    else:
        for title, checks in groups.items():
            _print_group(title, checks)
        _print_paths(found)
        print(f"\n{_verdict(default)}")
    return 0 if default.works else 1


def _verdict(default: Path) -> str:
    if default.works:
        return f"The default path ({default.name}) works here."
    return f"The default path ({default.name}) does NOT work here: {'; '.join(default.in_the_way)}."


def _print_group(title: str, checks: Sequence[Check]) -> None:
    print(title)
    width = max(len(check.name) for check in checks)
    for check in checks:
        line = f"  {_MARKS[check.state]} {check.name.ljust(width)}  {shown(check.detail)}"
        print(line.rstrip())
        if check.hint and check.state is not State.OK:
            print(f"    {' ' * width}  → {shown(check.hint)}")
    print()


def _print_paths(found: Sequence[Path]) -> None:
    print("Paths")
    width = max(len(path.name) for path in found)
    for path in found:
        mark = _MARKS[State.OK if path.works else State.ABSENT]
        print(f"  {mark} {path.name.ljust(width)}  {shown(path.meaning)}")
        for obstacle in path.in_the_way:
            print(f"    {' ' * width}  → in the way: {shown(obstacle)}")


def _as_json(groups: dict[str, list[Check]], found: Sequence[Path], default: Path) -> dict[str, object]:
    return {
        "default_path_works": default.works,
        "checks": [
            {"group": title, **dataclasses.asdict(check), "state": check.state.value}
            for title, checks in groups.items()
            for check in checks
        ],
        "paths": [{**dataclasses.asdict(path), "works": path.works} for path in found],
    }
