"""``bowstring doctor``: what this machine can do, and which setting is in the way of the rest (docs/doctor.md)."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from bowstring import __version__
from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.child import Child
from bowstring.cli.doctor.environment import find_gpu_files, find_limits, find_namespaces
from bowstring.cli.doctor.gpus import LOOK, Facts, gpus_seen
from bowstring.cli.doctor.packages import find_gpu_software, find_packages
from bowstring.cli.doctor.paths import Path, default_path, try_paths
from bowstring.cli.doctor.sharing import try_connections, try_shared_memory
from bowstring.cli.doctor.trials import REAL
from bowstring.cli.terminal import duration, shown

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Try everything once; 0 where the default path works."""
    report = examine()
    if arguments.json:
        print(json.dumps(as_json(report)))
    else:
        print_text(report)
    return 0 if report.default.works else 1


# For the look at GPUs, which runs beside the other checks.
_LOOK_SECONDS: Final = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The findings."""

    groups: dict[str, list[Check]]
    topology: Facts | None  # from NVML; ``None`` if it could not be asked
    paths: list[Path]

    @property
    def default(self) -> Path:
        """The path that is used by default."""
        return default_path(self.paths)


def examine() -> Report:
    """Look at everything, and try every path."""
    with Child(LOOK, {}) as looking:
        groups = {
            "Packages": find_packages(),
            "Namespaces": find_namespaces(),
            "Limits": find_limits(),
            "Shared memory": try_shared_memory(),
            "Connections": try_connections(),
        }
        seen = gpus_seen(looking, _LOOK_SECONDS)
    cuda = None if seen.topology is None else seen.topology["cuda"]
    groups["GPUs"] = [*seen.checks, *find_gpu_files(), *find_gpu_software(cuda)]
    checks = [check for group in groups.values() for check in group]
    return Report(groups, seen.topology, try_paths(checks, seen, REAL))


_WIDTH: Final = 100
_MARKS: Final = {State.OK: "✓", State.ABSENT: "·", State.BROKEN: "✗"}


def print_text(report: Report) -> None:
    """Print the report; the last line says whether the default path works."""
    for title, checks in report.groups.items():
        _print_lines(title, _checks(checks))
    if report.topology is not None:
        if len(report.topology["gpus"]) > 1:
            print("Links between the GPUs: nvidia-smi topo -m\n")
        _print_lines("Unknown to NVML", (f"  {refusal}" for refusal in report.topology["untold"]))
    _print_lines("Paths (tried between two processes; time from connect to the first view)", _paths(report))
    verdict = f"The default path ({report.default.name}) works here."
    if not report.default.works:
        causes = "; ".join(each.what for each in report.default.in_the_way)
        verdict = f"The default path ({report.default.name}) does NOT work here: {causes}."
    print("\n".join(textwrap.wrap(verdict, _WIDTH)))


def _print_lines(title: str, lines: Iterator[str]) -> None:
    below = [shown(line) for line in lines]
    if below:
        print(title, *below, "", sep="\n")


def _hanging(first: str, text: str) -> Iterator[str]:
    """Yield lines that begin with `first`, or below it with as many blanks."""
    rest = " " * len(first)
    yield from textwrap.wrap(
        shown(text), _WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    ) or [first.rstrip()]


def _checks(checks: Sequence[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield from _hanging(f"  {_MARKS[check.state]} {check.name.ljust(width)}  ", check.detail)
        if check.hint and check.state is not State.OK:
            yield from _hanging(f"    {' ' * width}  → ", check.hint)


def _paths(report: Report) -> Iterator[str]:
    width = max(len(path.name) for path in report.paths)
    hints = {check.hint for checks in report.groups.values() for check in checks}
    for path in report.paths:
        mark = _MARKS[State.OK if path.works else State.ABSENT]
        took = "" if path.first_view is None else f"{duration(path.first_view)}; "
        yield from _hanging(f"  {mark} {path.name.ljust(width)}  ", f"{took}{path.meaning}")
        if path.works and path.took and "→" in path.name:  # there are several ways to get there
            yield from _hanging(f"    {' ' * width}  ", path.took)
        for obstacle in path.in_the_way:
            yield from _hanging(f"    {' ' * width}  → in the way: ", obstacle.what)
            if obstacle.hint and obstacle.hint not in hints:  # those of checks stand with them
                yield from _hanging(f"    {' ' * width}    ", obstacle.hint)


VERSION: Final = 2


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as plain values. Within a version, fields are added and never change their meaning."""
    return {
        "version": VERSION,
        "bowstring": __version__,
        "default_path_works": report.default.works,
        "checks": [
            {"group": title, **dataclasses.asdict(check), "state": check.state.value}
            for title, checks in report.groups.items()
            for check in checks
        ],
        "topology": report.topology,
        "paths": [{**dataclasses.asdict(path), "works": path.works} for path in report.paths],
    }
