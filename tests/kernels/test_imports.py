"""A build compiles the kernels where little is installed: they import NumPy, numba, and of ours only the errors."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bowstring.kernels import library

FOLDER = Path(library.__file__).parent
OURS = ("bowstring.kernels", "bowstring.errors")
# Those of the build; those that launch on GPUs and compile for them are imported by functions only.
BUILD = {"numpy", "numba", "llvmlite"}
ON_GPUS = {"cupy", "cuda"}
PROGRAM = f"""
import importlib, importlib.abc, pkgutil, sys, types

class Refusal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        ours = name in {OURS} or name.startswith("bowstring.kernels.")
        first = name.partition(".")[0]
        if not (ours or first in {BUILD} or first in sys.stdlib_module_names):
            raise ModuleNotFoundError(f"{{name}} is refused", name=name)

# Without the façade, which imports more of ours.
package = sys.modules["bowstring"] = types.ModuleType("bowstring")
package.__path__ = [sys.argv[1]]
sys.meta_path.insert(0, Refusal())
kernels = importlib.import_module("bowstring.kernels")
for module in pkgutil.walk_packages(kernels.__path__, "bowstring.kernels."):
    importlib.import_module(module.name)
    print(module.name)
"""


def modules() -> dict[str, Path]:
    """Return the files of the kernels by the names of their modules."""
    files = [path for path in FOLDER.rglob("*.py") if path != FOLDER / "__init__.py"]
    parts = {path: path.relative_to(FOLDER).with_suffix("").parts for path in files}
    return {
        ".".join(("bowstring.kernels", *(each for each in names if each != "__init__"))): path
        for path, names in parts.items()
    }


def imported(path: Path) -> Iterator[str]:
    """Yield the names of all modules that a file imports, those within functions included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not node.level
            # `from bowstring import errors` names a module, too.
            yield from (
                [f"bowstring.{each.name}" for each in node.names]
                if node.module == "bowstring"
                else [node.module]
            )


def test_all_are_imported_where_only_the_build_is_installed() -> None:
    """Each module of the kernels is imported where only NumPy, numba and Bowstring's errors can be."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(FOLDER.parent)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == set(modules())


@pytest.mark.parametrize("name", sorted(modules()))
def test_nothing_else_is_imported_later(name: str) -> None:
    """No function of a module imports anything else either, but for what runs on GPUs and compiles for them."""
    for each in imported(modules()[name]):
        first = each.partition(".")[0]
        if first == "bowstring":
            assert each.startswith(OURS), each
        else:
            assert first in sys.stdlib_module_names or first in BUILD | ON_GPUS, each
