"""Publishing from a live Spark: each scenario runs in a process with a session and a depot of its own."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

from tests.spark.publishing import cluster, local, standalone

pytestmark = pytest.mark.peers

_SECONDS = 420.0
MODULES = {"local": local, "cluster": cluster, "standalone": standalone}
CASES = [(name, each.__name__) for name, module in MODULES.items() for each in module.SCENARIOS]


@functools.cache
def outcomes(module: str) -> dict[str, str]:
    """Run the scenarios of a module; return what went wrong, by their names."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.publishing.program", module],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {line["name"]: line["error"] for line in lines}
    assert done.returncode == 0, f"{found}\n{done.stderr[-4000:]}"
    return found


@pytest.mark.parametrize(("module", "scenario"), CASES)
def test_scenario(module: str, scenario: str) -> None:
    """What the scenario's own sentence says holds on a live Spark."""
    assert outcomes(module).get(scenario, "it did not run") == ""
