"""The floors of the house hold: imports go down only, and every room has its floor."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parent.parent


def test_imports_go_down_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room imports from a floor above its own, and no room is without a floor."""
    monkeypatch.chdir(ROOT)
    # It would disable all loggers that are there, for the tests that follow.
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        status = lint_imports(config_filename="pyproject.toml", no_cache=True, no_logo=True)
    assert status == 0, report.getvalue()
