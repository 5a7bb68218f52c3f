"""Print the size of the house: files, lines, lines of code, lines of docstrings and functions, by room.

Counted are `src` and `kernels`; links are not followed, so that `benchmarks` is not. A line of code is a line that
holds a token other than a comment and that is not part of a docstring.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import io
import os
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
COUNTED: Final = ("src", "kernels")
_NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """The size of a room."""

    files: int = 0
    lines: int = 0
    code: int = 0
    docstrings: int = 0
    functions: int = 0

    def __add__(self, other: Size) -> Size:
        both = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Size(*map(sum, both))


def size_of(source: str) -> Size:
    r"""Return the size of one module.

    >>> size_of('def f(x):  # doubles\n    "Double."\n\n    return 2 * x\n')
    Size(files=1, lines=4, code=2, docstrings=1, functions=1)
    """
    nodes = list(ast.walk(ast.parse(source)))
    described = [node for node in nodes if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS))]
    docstrings = {
        line
        for node in described
        if ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    functions = sum(isinstance(node, _FUNCTIONS) for node in nodes)
    return Size(1, source.count("\n"), len(code - docstrings), len(docstrings), functions)


def rooms(root: Path = ROOT) -> dict[str, Size]:
    """Return the size of each room, by its name; what lies in no folder is ``bowstring``."""
    sizes: dict[str, Size] = defaultdict(Size)
    for file in _modules(root):
        parts = file.relative_to(root).parts
        inside = parts if parts[0] == "kernels" else parts[2:]
        sizes[inside[0] if len(inside) > 1 else "bowstring"] += size_of(file.read_text())
    return dict(sorted(sizes.items()))


def total(sizes: dict[str, Size]) -> Size:
    """Return the sum of all rooms."""
    return sum(sizes.values(), Size())


def _modules(root: Path) -> Iterator[Path]:
    for top in COUNTED:
        for folder, _, names in os.walk(root / top):  # follows no link
            yield from (Path(folder, name) for name in names if name.endswith(".py"))


def main() -> None:
    """Print one line for each room, the largest first, and the sum."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="of another checkout, to compare")
    sizes = rooms(parser.parse_args().root)
    names = [field.name for field in dataclasses.fields(Size)]
    print(f"{'room':<14}" + "".join(f"{name:>12}" for name in names))
    ordered = sorted(sizes.items(), key=lambda item: -item[1].lines)
    for room, size in (*ordered, ("total", total(sizes))):
        print(f"{room:<14}" + "".join(f"{value:>12,}" for value in dataclasses.astuple(size)))


if __name__ == "__main__":
    main()
