"""Which warnings are no errors in the tests, and where the package's own point to."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import register_random

import bowstring


def test_generators_that_the_collector_does_not_see() -> None:
    """Hypothesis may take a generator for lost that only the stack refers to, as it does with its own."""
    generator = random.Random(0)
    register_random(generator)
    assert generator.random() == random.Random(0).random()


def test_all_warnings_name_the_caller() -> None:
    """The package warns by the one function that looks for the line outside of it."""
    package = Path(bowstring.__file__).parent
    warning = [each.name for each in package.rglob("*.py") if "warnings.warn(" in each.read_text()]
    assert warning == ["errors.py"]
