"""No circle of modules, whatever the imports are for: those of type checking and of function bodies count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


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
    """No module imports itself by way of others."""
    known = modules()
    imports = {name: {*imported(name, path, known)} - {name} for name, path in known.items()}
    assert "bowstring.columnar.nodes" in imports["bowstring.columnar.layout"]  # imports are found
    assert sorted(circular(imports)) == []
