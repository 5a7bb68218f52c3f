"""The report for programs: one JSON object, described in docs/doctor.md."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Final

from bowstring import __version__
from bowstring.cli.doctor.report import Report

__all__ = ["VERSION", "as_json", "print_json"]

VERSION: Final = 1


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
        "topology": None if report.topology is None else dataclasses.asdict(report.topology),
        "paths": [{**dataclasses.asdict(path), "works": path.works} for path in report.paths],
    }


def print_json(report: Report) -> None:
    """Print the report in one line."""
    print(json.dumps(as_json(report)))
