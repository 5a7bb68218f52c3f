from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from bowstring.cli import main
from bowstring.cli.doctor import devices, handover
from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.handover import TCP, UNIX
from bowstring.cli.doctor.paths import judge_paths
from bowstring.cli.doctor.shared_memory import try_shared_memory


def test_doctor_tries_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """Memory, sockets and both hand-overs work on a machine that runs the tests; the rest has a reason."""
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    states = {check["name"]: check["state"] for check in facts["checks"]}
    assert states["sealed memfd"] == states[UNIX] == states[TCP] == "ok"
    assert facts["default_path_works"] is True
    for path in facts["paths"]:
        assert path["works"] == (not path["in_the_way"])


def test_doctor_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Each check is one line, and the last line says whether the default path works."""
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  ✓ sealed memfd") for line in lines)
    assert lines[-1] == "The default path (unix: mapped) works here."


def test_doctor_names_what_is_in_the_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system forbids memfd_create, the exit code is 1, and check, path and verdict say so."""

    def forbid(*_arguments: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.memfd_create", forbid)
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "✗ sealed memfd" in said
    assert "A seccomp filter may forbid memfd_create" in said
    assert "in the way: sealed memfd: PermissionError" in said
    assert "does NOT work here" in said.splitlines()[-1]


def test_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc cannot be used no region can be made, and the checks say so."""

    def absent(_fd: int) -> int:
        raise FileNotFoundError("/proc/self/fd/3")

    monkeypatch.setattr("bowstring.memory.slab.reopened_read_only", absent)
    states = {check.name: check.state for check in try_shared_memory()}
    assert states["read-only for readers"] is State.BROKEN
    assert states["sealed memfd"] is State.BROKEN


@pytest.mark.parametrize(
    "child", ["import time; time.sleep(600)", "raise SystemExit('no')", "print('nonsense')"]
)
def test_a_child_that_fails(child: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that hangs, fails or talks nonsense is a broken check, within the deadline and with nothing left."""
    started: list[Any] = []
    popen = subprocess.Popen

    def watched(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(handover, "_CHILD", child)
    monkeypatch.setattr(handover, "_SECONDS", 2.0)
    monkeypatch.setattr("subprocess.Popen", watched)
    assert {check.state for check in handover.try_handover()} == {State.BROKEN}
    assert started
    assert all(process.poll() is not None for process in started)


@pytest.mark.parametrize("child", ["import os; os.abort()", "import time; time.sleep(600)"])
def test_a_driver_that_crashes_or_hangs(child: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that takes its process down, or never answers, is said to be broken."""
    monkeypatch.setattr(devices, "_CHILD", child)
    monkeypatch.setattr(devices, "_SECONDS", 2.0)
    assert devices.find_devices()[0].state is State.BROKEN


def test_paths_follow_the_checks() -> None:
    """A hand-over whose bytes were sent is no mapped one, and the reason is told."""
    seen = [Check(UNIX, State.OK, "unix: packed: the reader cannot map"), Check(TCP, State.OK)]
    default, tcp, *_ = judge_paths(seen)
    assert default.in_the_way == ("the bytes were sent instead: unix: packed: the reader cannot map",)
    assert tcp.works
