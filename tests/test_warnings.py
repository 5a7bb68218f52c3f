"""Which warnings are no errors in the tests."""

from __future__ import annotations

import random

from hypothesis import register_random


def test_generators_that_the_collector_does_not_see() -> None:
    """Hypothesis may take a generator for lost that only the stack refers to, as it does with its own."""
    generator = random.Random(0)
    register_random(generator)
    assert generator.random() == random.Random(0).random()
