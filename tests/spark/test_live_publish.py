"""Publishing from a live Spark: each scenario runs in a process with a session and a depot of its own."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

from tests.spark.publishing import (
    batches,
    cluster,
    connect,
    daily,
    data,
    hosts,
    large,
    local,
    long_rows,
    speculation,
    standalone,
    streams,
    streams_again,
)

pytestmark = pytest.mark.peers

_SECONDS = 540.0
MODULES = {
    "local": local, "data": data, "cluster": cluster, "standalone": standalone, "speculation": speculation,
    "hosts": hosts, "large": large, "daily": daily, "connect": connect, "streams": streams,
    "streams_again": streams_again, "batches": batches, "long_rows": long_rows,
}  # fmt: skip
# A network of its own: this needs the right to make one.
_BEFORE = {"hosts": ["unshare", "-n"]}
CASES = [
    pytest.param(name, each.__name__, marks=[pytest.mark.slow] if name in ("large", "long_rows") else [])
    for name, module in MODULES.items()
    for each in module.SCENARIOS
]


@functools.cache
def outcomes(module: str) -> dict[str, str]:
    """Run the scenarios of a module; return what went wrong, by their names."""
    pytest.importorskip("pyspark", reason="Spark itself is not installed: pip install 'bowstring[spark]'")
    before = _BEFORE.get(module, [])
    if before and not _may_wire():
        pytest.skip("this user may make no network namespaces, or there is no ip(8)")
    done = subprocess.run(
        [*before, sys.executable, "-m", "tests.spark.publishing.program", module],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = {line["name"]: line["error"] for line in lines}
    assert done.returncode == 0, f"{found}\n{done.stderr[-4000:]}"
    return found


def _may_wire() -> bool:
    command = ["unshare", "-n", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far"]
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.parametrize(("module", "scenario"), CASES)
def test_scenario(module: str, scenario: str) -> None:
    """What the scenario's own sentence says holds on a live Spark."""
    assert outcomes(module).get(scenario, "it did not run") == ""
