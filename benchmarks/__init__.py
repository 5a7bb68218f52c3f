"""Measurements: a program of cases, each beside what a user would use instead and beside its floor.

Imported as ``bowstring.benchmarks``; ``bowstring bench`` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program that `argv` (without its name; ``sys.argv`` by default) asks for; return its exit code.

    0: all was measured, whether or not a target holds. 1: bytes arrived wrong, or a case failed. 2: usage.
    """
    from bowstring.benchmarks.program import run

    return run(argv)
