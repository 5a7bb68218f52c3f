"""Which test files count as using public interfaces only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.public_interface import ROOT, why_not_public

PUBLIC = {
    "names": "import bowstring as bow\nfrom bowstring.memory import Pool\nbow.connect('x')",
    "its own state": "class A:\n    def f(self):\n        return self._x",
    "a named tuple": "import os\nx._replace(a=1)\nos._exit(0)",
    "another library": "import os\ndef test(monkeypatch):\n    monkeypatch.setattr(os, 'fork', None)",
    "code for another process": "CODE = 'import bowstring as bow; from bowstring.depot import connect'",
    "a public name where it is defined": "from bowstring.limits import DEFAULT_LIMITS, Limits",
    "the command line": "from bowstring.cli import main",
}
DEEP = {
    "a module inside": ("from bowstring.ipc.reader import ReadStatistics", "bowstring.ipc.reader"),
    "a module inside, whole": ("import bowstring.columnar.batch", "bowstring.columnar.batch"),
    "a module inside, from a public one": (
        "from bowstring.memory import copying",
        "bowstring.memory.copying",
    ),
    "a private attribute": ("import bowstring\nbowstring.connect._x", "_x"),
    "a module by name": ("m = import_module('bowstring.server.session')", "bowstring.server.session"),
    "in code": ("CODE = 'from bowstring.server import session'", "bowstring.server"),
    "replaced": ("import bowstring as bow\nmonkeypatch.setattr(bow.Pool, 'close', None)", "bow"),
    "replaced by name": ("mock.patch('bowstring.connect')", "bowstring.connect"),
    "privately replaced": ("monkeypatch.setattr(thing, '_limit', 3)", "_limit"),
    "more than the program": ("from bowstring.cli import terminal", "bowstring.cli"),
    "by a helper": ("from tests.memory.copies import unpin", "copies.py"),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_interfaces_are_known(name: str, tmp_path: Path) -> None:
    """A file that imports public modules, and touches nothing private, is marked."""
    path = tmp_path / "test_it.py"
    path.write_text(PUBLIC[name], encoding="utf-8")
    assert why_not_public(path) == ""


@pytest.mark.parametrize("name", DEEP)
def test_what_lies_inside_is_found(name: str, tmp_path: Path) -> None:
    """A file that uses what lies inside, itself or by a helper, is not marked, and the reason names it."""
    path = tmp_path / "test_it.py"
    text, reason = DEEP[name]
    path.write_text(text, encoding="utf-8")
    assert reason in why_not_public(path)


def test_a_run_of_public_tests_has_those_of_the_marked_files_only() -> None:
    """A run that asks for the marker collects a file that uses public interfaces, and not one that does not."""
    public = ROOT / "tests" / "errors" / "test_errors.py"
    deep = ROOT / "tests" / "depot" / "test_room.py"
    assert not why_not_public(public)
    assert why_not_public(deep)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "public", str(public), str(deep)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "test_errors.py::" in run.stdout
    assert "test_room.py::" not in run.stdout
