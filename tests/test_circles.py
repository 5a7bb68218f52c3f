"""No circle of modules, whatever the imports are for: those of type checking and of function bodies count, too."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ALLOWED: Final = {
    "bowstring": 1,
    "client": 9,
    "depot": 7,
    "ipc": 5,
    "memory": 10,
    "server": 2,
    "spark": 12,
    "testing": 3,
    "transport": 7,
    "variant": 14,
    "vortex": 7,
}
"""How many modules of a room may still stand in a circle: each circle that is undone lowers a number."""


def modules() -> dict[str, Path]:
    """Return the files of the package, by the names of their modules."""
    files: dict[str, Path] = {}
    for base, package in (("src", ""), ("kernels", "bowstring.kernels")):
        for path in (ROOT / base).rglob("*.py"):
            parts = [package] if package else []
            parts += path.relative_to(ROOT / base).with_suffix("").parts
            files[".".join(parts).removesuffix(".__init__")] = path
    return files


def imported(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield what a module imports of the package."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                target = f"{base}.{alias.name}"
                if target in known or base in known:
                    yield target if target in known else base


def room(name: str) -> str:
    """Return the room of a module; `bowstring` is that of the files on top."""
    return [*name.split("."), "bowstring"][1]


def circular(imports: dict[str, set[str]]) -> set[str]:
    """Return the modules that import themselves by way of others.

    >>> sorted(circular({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}))
    ['b', 'c']
    """
    result = set()
    for name, direct in imports.items():
        reached: set[str] = set()
        pending = direct - {name}
        while pending:
            reached |= pending
            pending = set().union(*(imports[each] for each in pending)) - reached
        if name in reached:
            result.add(name)
    return result


def test_modules_import_in_one_direction() -> None:
    """A room has at most the modules in circles that `ALLOWED` says, and one that it does not name has none."""
    known = modules()
    imports = {name: {*imported(name, path, known)} - {name} for name, path in known.items()}
    circles = circular(imports)
    assert "bowstring.columnar.nodes" in imports["bowstring.columnar.layout"]  # imports are found
    counts = Counter(room(name) for name in circles)
    over = {name for name, count in counts.items() if count > ALLOWED.get(name, 0)}
    assert not over, sorted(name for name in circles if room(name) in over)
