"""Publishing from a live Spark: each scenario runs in a process with a session and a depot of its own."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

from tests.spark.live import patient
from tests.spark.publishing import (
    apart,
    batches,
    cluster,
    connect,
    daily,
    data,
    hosts,
    large,
    local,
    long_rows,
    running,
    speculation,
    standalone,
    streams,
    streams_again,
)

pytestmark = pytest.mark.peers

# Of a scenario, on an idle machine; the slowest module, with its start, takes a fifth of it.
_SECONDS = 120.0
MODULES = {
    "local": local, "data": data, "cluster": cluster, "standalone": standalone, "speculation": speculation,
    "hosts": hosts, "large": large, "daily": daily, "connect": connect, "streams": streams,
    "streams_again": streams_again, "batches": batches, "long_rows": long_rows, "apart": apart,
    "running": running,
}  # fmt: skip
# A network of its own, and what shows whether this user may have one, with a file system; and so for users.
_BEFORE = {"hosts": ["unshare", "-n"]}
_NEEDS = {
    "hosts": "unshare -nm ip link add near type veth peer name far",
    "apart": f"unshare -m {apart.AS_USER} {sys.executable} --version",
}
CASES = [
    pytest.param(name, each.__name__, marks=[pytest.mark.slow] if name in ("large", "long_rows") else [])
    for name, module in MODULES.items()
    for each in module.SCENARIOS
]


@functools.cache
def outcomes(module: str) -> dict[str, str]:
    """Run the scenarios of a module; return what went wrong, by their names."""
    pytest.importorskip("pyspark", reason="Spark itself is not installed: pip install 'bowstring[spark]'")
    if module in _NEEDS and not _works(_NEEDS[module]):
        pytest.skip(f"this user may not do so, or lacks a program: {_NEEDS[module]}")
    done = subprocess.run(
        [*_BEFORE.get(module, []), sys.executable, "-m", "tests.spark.publishing.program", module],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patient(_SECONDS * (1 + len(MODULES[module].SCENARIOS))),
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {line["name"]: line["error"] for line in lines}
    assert done.returncode == 0, f"{found}\n{done.stderr[-4000:]}"
    return found


def _works(command: str) -> bool:
    try:
        return subprocess.run(command.split(), capture_output=True, timeout=60, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.parametrize(("module", "scenario"), CASES)
def test_scenario(module: str, scenario: str) -> None:
    """What the scenario's own sentence says holds on a live Spark."""
    error = outcomes(module).get(scenario, "it did not run")
    assert not error, error
