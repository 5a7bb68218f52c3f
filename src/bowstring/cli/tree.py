"""Trees on the terminal."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import TextIO

from bowstring.cli.text import shown

__all__ = ["Branch", "print_tree"]


@dataclasses.dataclass(slots=True)
class Branch:
    """One line of a tree, and what hangs on it."""

    label: str
    branches: list[Branch] = dataclasses.field(default_factory=list)

    def add(self, label: str) -> Branch:
        """Hang a line on this one; return it."""
        branch = Branch(label)
        self.branches.append(branch)
        return branch


def print_tree(root: Branch, stream: TextIO | None = None) -> None:
    """Print a tree.

    Examples
    --------
    >>> root = Branch("schema")
    >>> root.add("id: int64").add("data 24 bytes")
    Branch(label='data 24 bytes', branches=[])
    >>> print_tree(root)
    schema
    └── id: int64
        └── data 24 bytes
    """
    stream = sys.stdout if stream is None else stream
    print(shown(root.label), file=stream)
    for line in _lines(root, ""):
        print(line, file=stream)


def _lines(branch: Branch, indent: str) -> Iterator[str]:
    for each in branch.branches:
        last = each is branch.branches[-1]
        yield f"{indent}{'└── ' if last else '├── '}{shown(each.label)}"
        yield from _lines(each, indent + ("    " if last else "│   "))
