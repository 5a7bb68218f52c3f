"""Workers of Spark leave their imports out of collections: once, and nobody else does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import gc, weakref
from bowstring.spark.task import freeze_imports

class Knot:
    def __init__(self):
        self.itself = self

gc.disable()
before, again = weakref.ref(Knot()), None
first, frozen = freeze_imports(), gc.get_freeze_count()
again = weakref.ref(Knot())
second, frozen_again = freeze_imports(), gc.get_freeze_count()
looked_at = len(gc.get_objects())
gc.collect()
print(first, second, frozen > 1000, frozen_again == frozen, looked_at < 1000, before() is None, again() is None)
"""


@pytest.mark.parametrize(
    ("used_again", "said"),
    [
        # What is garbage before is not kept for good, and what is garbage later is found.
        ("1", "True True True True True True True"),
        (None, "False False False True False True True"),
    ],
    ids=["a worker", "another process"],
)
def test_imports_are_frozen_once(used_again: str | None, said: str) -> None:
    """Later collections of a worker look at little, and miss no garbage; those of other processes are as ever."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    if used_again is not None:
        environment["SPARK_REUSE_WORKER"] = used_again
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == said, done.stderr
