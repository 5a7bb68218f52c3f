"""The house stays as small as it was made, and no words that readers stumble over are added."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT = Path(__file__).parents[1]
BUDGET: Final = {"lines": 92_500, "code": 66_000, "functions": 5_250}
"""What was counted when a step that made the house smaller was merged; the next such step lowers it.

The last one made each room smaller: one form of each thing that stood twice, and no layer that only forwards.
"""
SLACK: Final = 1.03


def script(name: str) -> ModuleType:
    """Return a script as a module; scripts are not a package."""
    spec = importlib.util.spec_from_file_location(f"scripts.{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for dataclasses
    spec.loader.exec_module(module)
    return module


def test_the_house_is_within_its_budget() -> None:
    """Lines, lines of code and functions of `src` and `kernels` are at most 3 % more than they were."""
    counts = script("counts")
    whole = counts.total(counts.rooms())
    over = {
        name: getattr(whole, name) for name, most in BUDGET.items() if getattr(whole, name) > most * SLACK
    }
    assert not over, f"beyond {BUDGET}; python scripts/counts.py prints the rooms"


def test_no_room_has_more_words_that_readers_stumble_over() -> None:
    """Docstrings, comments, messages and pages have at most the counts of `scripts/words.txt`."""
    words = script("words")
    allowed = words.allowed()
    counts = Counter(room for room, *_ in words.places())
    assert {room: count for room, count in counts.items() if count > allowed.get(room, 0)} == {}
