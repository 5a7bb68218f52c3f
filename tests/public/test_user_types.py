"""Strict type checkers have nothing to say of a user's project, and know the type of each public name."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.public.surface import MODULES, ROOT

pytestmark = pytest.mark.slow

SECONDS = 280.0
# pyarrow comes without types: a project says once that it can be anything.
UNTYPED = "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"


def names() -> Iterator[str]:
    """Yield each public name, and each one within a public class, as one writes it."""
    for module in sorted({*MODULES.values(), "bowstring.errors"} - {"bowstring.spark"}):
        for name in importlib.import_module(module).__all__:
            value = getattr(importlib.import_module(module), name)
            if value is getattr(pa.lib, name, None):
                continue  # pyarrow's own, which has no types
            yield f"{module}.{name}"
            if inspect.isclass(value):
                yield from (
                    f"{module}.{name}.{member}" for member in vars(value) if not member.startswith("_")
                )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project of two programs that depends on an installed Bowstring."""
    used = list(names())
    modules = sorted(
        {each.rpartition(".")[0] for each in used if each.rpartition(".")[0] in MODULES.values()}
    )
    lines = [
        *(f"import {each}" for each in [*modules, "bowstring.errors"]),
        *(f"print({each})" for each in used),
    ]
    (tmp_path / "names.py").write_text("\n".join(lines) + "\n")
    shutil.copy(ROOT / "tests" / "public" / "user_program.py", tmp_path / "program.py")
    typings = tmp_path / "typings" / "pyarrow"
    typings.mkdir(parents=True)
    for module in ("__init__", "lib", "ipc", "flight"):
        (typings / f"{module}.pyi").write_text(UNTYPED)
    with (typings / "ipc.pyi").open("a") as stub:
        stub.write("\nclass Alignment: ...\n")  # the type of a public field
    return tmp_path


def run(project: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def test_the_program_runs(project: Path) -> None:
    """It is a program, and prints what it reads."""
    done = run(project, sys.executable, "program.py")
    assert done.returncode == 0, done.stderr
    assert "unix: mapped" in done.stdout


def test_mypy_has_nothing_to_say(project: Path) -> None:
    """Under ``--strict`` the program has no error."""
    pytest.importorskip("mypy")
    checked = run(project, sys.executable, "-m", "mypy", "--strict", "program.py", MYPYPATH="typings")
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.skipif(shutil.which("pyright") is None, reason="needs pyright")
def test_pyright_has_nothing_to_say(project: Path) -> None:
    """In its strict mode neither the program nor a name has an error: no type of what they use is unknown."""
    # As an installed package: of those that say that they are typed, pyright infers nothing.
    packages = project / "environment" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "bowstring").symlink_to(ROOT / "src" / "bowstring")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (project / "pyrightconfig.json").write_text(
        json.dumps(
            {
                "include": ["program.py", "names.py"],
                "typeCheckingMode": "strict",
                "venvPath": os.fspath(project),
                "venv": "environment",
            }
        )
    )
    checked = run(project, "pyright")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "0 errors, 0 warnings" in checked.stdout
