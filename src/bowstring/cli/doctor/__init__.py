"""``bowstring doctor``: what this machine can do, and which setting is in the way of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bowstring.cli.doctor.report import examine, print_json, print_text

if TYPE_CHECKING:
    import argparse

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Try everything once; 0 where the default path works."""
    report = examine()
    (print_json if arguments.json else print_text)(report)
    return 0 if report.default.works else 1
