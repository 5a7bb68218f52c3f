"""The examples in the docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import bowstring

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def module_names() -> list[str]:
    """Return every module of the package by name."""
    found = pkgutil.walk_packages(bowstring.__path__, f"{bowstring.__name__}.", onerror=lambda _name: None)
    return [bowstring.__name__, *(module.name for module in found if not module.name.endswith("__main__"))]


@pytest.mark.usefixtures("own_server")  # of `put`
@pytest.mark.parametrize("name", module_names())
def test_examples_in_docstrings(name: str) -> None:
    """Each example in a module's docstrings gives the result printed under it."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("bowstring"):
            raise
        pytest.skip(f"{name} needs the optional package {error.name}")
    assert module.__file__ is not None
    if ">>>" in Path(module.__file__).read_text():  # to look through all docstrings takes ten times as long
        failures, _ = doctest.testmod(module, optionflags=FLAGS, report=True)
        assert failures == 0
