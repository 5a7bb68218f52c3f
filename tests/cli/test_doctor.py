from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bowstring.cli import doctor, main
from bowstring.cli.doctor import paths
from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.child import Child
from bowstring.cli.doctor.gpus import Seen, gpus_seen
from bowstring.cli.doctor.paths import default_path, try_paths
from bowstring.cli.doctor.sharing import try_connections, try_shared_memory
from bowstring.cli.doctor.trials import CONSUMER, PRODUCER, REAL, Outcome, Programs
from tests.ucx import NO_UCX

# Looks for GPUs, and sees that there is no driver.
NO_GPU = """
from bowstring.cli.doctor.child import be_a_child
from bowstring.cli.doctor.gpus import NOTHING_KNOWN
_, say = be_a_child()
topology = {"why_not": "not installed", **NOTHING_KNOWN}
say({"state": "absent", "detail": "not there", "hint": "Install it.", "devices": [], "topology": topology})
"""


def use(monkeypatch: pytest.MonkeyPatch, look: str = NO_GPU, programs: Programs = REAL) -> None:
    """Let doctor run other programs in its children."""
    monkeypatch.setattr(doctor, "LOOK", look)
    monkeypatch.setattr(doctor, "REAL", programs)


@pytest.mark.usefixtures("forked")
def test_doctor_tries_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """Memory, sockets and all roads of the host work on a machine that runs the tests; the rest has a reason."""
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    states = {check["name"]: check["state"] for check in facts["checks"]}
    assert states["sealed memfd"] == states["Unix socket"] == "ok"
    assert facts["default_path_works"] is True
    works = {path["name"] for path in facts["paths"] if path["works"]}
    assert works >= {"unix: mapped", "unix: copied", "tcp: packed", "inproc:"}
    assert ("ucx:" in works) == (not NO_UCX)
    for path in facts["paths"]:
        assert path["works"] == (not path["in_the_way"])
        assert not path["works"] or (path["tried"] and path["first_view"] > 0 and path["took"])
        assert all(obstacle["what"] for obstacle in path["in_the_way"])


def test_nothing_heavy_is_loaded() -> None:
    """Doctor itself loads neither numba, CuPy nor CUDA's bindings, and NVML neither: its children do."""
    code = (
        "import sys\n"
        "from bowstring.cli import main\n"
        "assert main(['doctor', '--json']) == 0\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "heavy = loaded & {'numba', 'cupy', 'cuda', 'pynvml', 'pandas', 'pyspark'}\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.usefixtures("forked")
def test_doctor_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each check is a line of at most 100 columns without colours; the last one says whether the default works."""
    use(monkeypatch)
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert any(line.startswith("  ✓ sealed memfd") for line in lines)
    assert any(line.startswith("  ✓ unix: mapped") and " ms; " in line for line in lines)
    assert lines[-1] == "The default path (unix: mapped) works here."
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in said


NO_MEMFD = """
import os
def no(*_): raise PermissionError(1, 'Operation not permitted')
os.memfd_create = no
"""


@pytest.mark.usefixtures("forked")
def test_doctor_names_what_is_in_the_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system forbids memfd_create, the exit code is 1, and check, path and verdict say so."""

    def forbid(*_arguments: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.memfd_create", forbid)
    use(monkeypatch, programs=Programs(NO_MEMFD + PRODUCER, NO_MEMFD + CONSUMER))
    assert main(["doctor"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "✗ sealed memfd" in said
    assert "A seccomp filter may forbid memfd_create" in said
    assert "→ in the way: sealed memfd: PermissionError" in said
    assert "The default path (unix: mapped) does NOT work here" in said


def test_bytes_that_are_sent_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that works, but not as it should, is in the way of itself, and says which path was taken."""
    outcome = Outcome(first_view=0.1, path="unix: packed", took="unix: packed: no")
    monkeypatch.setattr(paths, "run_trials", lambda _device, trials, *_rest: [outcome] * len(trials))
    checks = [Check("sealed memfd", State.BROKEN, "forbidden", "allow it")]
    mapped = default_path(try_paths(checks, Seen(()), REAL))
    assert [obstacle.what for obstacle in mapped.in_the_way] == [
        "the bytes came otherwise: unix: packed: no",
        "sealed memfd: forbidden",
    ]


def test_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc cannot be used no region can be made, and the checks say so."""
    real = os.open

    def absent(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", absent)
    states = {check.name: check.state for check in try_shared_memory()}
    assert states["read-only for readers"] is State.BROKEN
    assert states["sealed memfd"] is State.BROKEN


# An answer of today's form that lacks what NVML says of the GPUs.
INCOMPLETE: dict[str, Any] = {
    "state": "ok",
    "detail": "",
    "hint": None,
    "devices": [],
    "topology": {"why_not": "x"},
}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "crashed with signal 6 (SIGABRT)"),
        ("import time; time.sleep(600)", "did not answer within 1 s"),
        ("print('[]', flush=True)", "printed nonsense"),
        ('print(\'{"state": "ok"}\', flush=True)', "printed nonsense"),
        (f"print({json.dumps(json.dumps(INCOMPLETE))}, flush=True)", "printed nonsense"),
    ],
)
def test_a_driver_that_crashes_or_hangs(code: str, said: str) -> None:
    """A driver that takes its process down, or never answers, is broken, and nothing is known of GPUs."""
    with Child(code, {}) as child:
        seen = gpus_seen(child, 1.0 if "within" in said else 30.0)
    assert (seen.checks[0].name, seen.checks[0].state) == ("CUDA driver", State.BROKEN)
    assert said in seen.checks[0].detail
    assert (seen.devices, seen.topology) == ((), None)


def test_a_runtime_folder_that_others_may_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A runtime folder in which other users could replace the folder for sockets is reported as broken."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    folder = {check.name: check for check in try_connections()}["folder for sockets"]
    assert folder.state is State.BROKEN
    assert "drwxrwxrwx" in folder.detail
