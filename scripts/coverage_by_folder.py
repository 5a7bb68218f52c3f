"""Print the coverage of each folder of src/bowstring as a table, from what ``coverage json`` writes.

``python scripts/coverage_by_folder.py FILE``; ``make coverage-public`` calls it.
"""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path

_COUNTS = ("covered_branches", "num_branches", "covered_lines", "num_statements")


def folder_of(path: str) -> str:
    """Return the folder that a file counts for; ``src/bowstring/kernels`` is a link to ``kernels``.

    Examples
    --------
    >>> (
    ...     folder_of("src/bowstring/cli/doctor/check.py"),
    ...     folder_of("kernels/host.py"),
    ...     folder_of("src/bowstring/errors.py"),
    ... )
    ('cli', 'kernels', '(top)')
    """
    parts = Path(path.removeprefix("src/bowstring/")).parts
    return parts[0] if len(parts) > 1 else "(top)"


def _share(part: int, whole: int) -> str:
    return f"{100 * part // whole} %" if whole else "–"


def table(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> str:
    """Return the table: branches and lines that ran, of all."""
    sums: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for path, found in report["files"].items():
        for folder in (folder_of(path), "all"):
            sums[folder].update({name: found["summary"][name] for name in _COUNTS})
    lines = ["| folder | branches | | lines | |", "|---|---:|---:|---:|---:|"]
    for folder in sorted(sums, key=lambda folder: (folder == "all", folder)):
        run, branches, hit, statements = (sums[folder][name] for name in _COUNTS)
        cells = (
            f"{run} of {branches}",
            _share(run, branches),
            f"{hit} of {statements}",
            _share(hit, statements),
        )
        lines.append(f"| {' | '.join((f'`{folder}`', *cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
