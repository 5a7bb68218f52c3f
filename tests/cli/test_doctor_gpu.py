from __future__ import annotations

import json
from typing import Any

import pytest

from bowstring.cli import doctor, main
from bowstring.cli.doctor import paths
from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.gpus import VISIBLE, Facts, Seen, describe
from bowstring.cli.doctor.packages import BINDINGS, CUPY
from bowstring.cli.doctor.paths import Path, try_paths
from bowstring.cli.doctor.trials import REAL, Outcome, Programs
from bowstring.testing import fake_device
from tests.memory.fake_nvml import FakeNvml, divided, gpu, topology_read, two_linked

pytestmark = pytest.mark.usefixtures("forked")

FAKE = Programs(preload=("bowstring.testing", "tests.cli.lendable"))
READY = [Check(CUPY, State.OK), Check(BINDINGS, State.OK), Check("CUDA driver", State.OK)]


def by_name(found: list[Path]) -> dict[str, Path]:
    """Return paths by their names."""
    return {path.name: path for path in found}


def test_every_road_of_a_device() -> None:
    """Between two processes and two devices, each road is taken, from both devices, or its reason is told."""
    found = by_name(try_paths(READY, Seen((), ("fake:0", "fake:1"), None), FAKE))
    for device, other in (("fake:0", "fake:1"), ("fake:1", "fake:0")):
        for name in (f"{device}: mapped", f"{device}: copied", f"{device} → host", f"{device} → {other}"):
            assert found[name].works, found[name].in_the_way
            assert found[name].tried
            assert (found[name].first_view or 0) > 0
        in_place = found[f"{device}: in place"]
        assert in_place.works == hasattr(fake_device(), "allocate"), in_place.in_the_way
        assert in_place.works or "no memory in place" in in_place.in_the_way[0].what


def test_what_was_asked_in_place_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory in place was asked for, and a copy came, the path does not work, and the stream says why."""
    outcomes(
        monkeypatch,
        Outcome(first_view=0.1, path="unix: mapped", took="unix: mapped: x; copied were 8 bytes; y"),
    )
    found = by_name(try_paths(READY, Seen((), ("cuda:0", "cuda:1"), None), REAL))
    [obstacle] = found["cuda:0: in place"].in_the_way
    assert obstacle.what == "the bytes came otherwise: unix: mapped: x; copied were 8 bytes; y"
    assert found["cuda:0: mapped"].works
    assert found["cuda:0 → cuda:1"].took == "unix: mapped: x; copied were 8 bytes; y"


def test_a_driver_that_takes_processes_down() -> None:
    """Where a GPU's roads crash their processes, those of the host are not touched, and each reason is told."""
    crash = "import os; os.kill(os.getpid(), 11)"
    found = by_name(try_paths(READY, Seen((), ("fake:0",), None), Programs(producer=crash)))
    assert "crashed with signal 11" in found["fake:0: mapped"].in_the_way[0].what


def test_a_driver_that_maps_nothing_read_only() -> None:
    """Where readers are given write access, since the driver gives no less, what maps works and says so."""
    programs = Programs(preload=("bowstring.testing", "tests.cli.unguarded"))
    found = by_name(try_paths(READY, Seen((), ("fake:0",), None), programs))
    assert found["fake:0: mapped"].works
    assert "maps nothing read-only" in str(found["fake:0: mapped"].took)
    others = by_name(try_paths(READY, Seen((), ("fake:0",), None), FAKE))
    assert "read-only" not in str(others["fake:0: mapped"].took)


def outcomes(monkeypatch: pytest.MonkeyPatch, found: Outcome) -> None:
    """Let all roads have one outcome, without any process."""
    monkeypatch.setattr(paths, "run_trials", lambda _device, trials, *_rest: [found] * len(trials))


@pytest.mark.parametrize("check", ["CUDA driver", CUPY, BINDINGS])
def test_no_road_without_its_software(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    """What is missing for a GPU is in the way of its roads, with what installs it, and nothing is tried."""
    outcomes(monkeypatch, Outcome(first_view=0.1, path="unix: mapped", took="unix: mapped: x"))
    checks = [each for each in READY if each.name != check] + [Check(check, State.ABSENT, "gone", "get it")]
    found = by_name(try_paths(checks, Seen((), ("cuda:0",), None), REAL))
    for name in ("unix: mapped CUDA memory", "unix: CUDA memory in place", "GPU to GPU"):
        assert not found[name].tried
        assert [(each.what, each.hint) for each in found[name].in_the_way] == [(f"{check}: gone", "get it")]


def test_no_visible_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a variable hides every GPU, it is what is in the way."""
    outcomes(monkeypatch, Outcome(first_view=0.1, path="unix: mapped", took="unix: mapped: x"))
    topology = topology_read(two_linked(), "", [])
    checks = [*READY, *describe(topology)]
    [hidden] = by_name(try_paths(checks, Seen((), (), topology), REAL))["GPU to GPU"].in_the_way
    assert "CUDA_VISIBLE_DEVICES: ''; 0 of 2 devices are visible" in hidden.what
    assert hidden.hint is not None


class NoPeers(FakeNvml):
    """Two GPUs that cannot read each other."""

    def nvmlDeviceGetP2PStatus(self, device1: Any, device2: Any, p2pIndex: int) -> int:  # noqa: N802, N803
        return 1


def causes(monkeypatch: pytest.MonkeyPatch, topology: Facts, *more: Check) -> dict[str, str]:
    """Return what is in the way of the roads of failing GPUs."""
    outcomes(monkeypatch, Outcome("DeviceError: no"))
    names = tuple(f"cuda:{number}" for number in range(len(topology["visible"]["shown"])))
    found = by_name(try_paths([*READY, *more], Seen((), names, topology), REAL))
    return {name: " | ".join(each.what for each in path.in_the_way) for name, path in found.items()}


def test_gpus_without_peer_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the chipset forbids peer access, it is in the way between two GPUs, not within one."""
    found = causes(monkeypatch, topology_read(NoPeers(gpu(0), gpu(1))))
    assert "peer access of GPU 0 and GPU 1: chipset not supported" in found["cuda:0 → cuda:1"]
    assert "peer access" not in found["cuda:0: mapped"]


def test_numbers_are_matched_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA numbers the devices that a process sees, NVML those of the machine."""
    nvml = NoPeers(gpu(0), gpu(1), gpu(2))
    found = causes(monkeypatch, topology_read(nvml, "2,1", [nvml.gpus[2]["uuid"], nvml.gpus[1]["uuid"]]))
    assert "peer access of GPU 2 and GPU 1" in found["cuda:0 → cuda:1"]


def test_divided_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a MIG instance, handles in place meet the boundary of GPU instances."""
    found = causes(monkeypatch, topology_read(divided()))
    assert "GPU 0 is divided (MIG)" in found["cuda:0: in place"]
    assert "divided" not in found["cuda:0: mapped"]


def test_settings_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits and namespaces that were found before are named where a road fails."""
    address = Check("address space", State.ABSENT, "1 GiB", "ulimit -v unlimited")
    pids = Check("pid namespace", State.ABSENT, "its own", "--pid")
    found = causes(monkeypatch, topology_read(two_linked()), address, pids)
    assert "address space: 1 GiB" in found["cuda:0: mapped"]
    assert "pid namespace" not in found["cuda:0: mapped"]
    assert "pid namespace: its own" in found["cuda:0: in place"]


@pytest.mark.parametrize(
    ("machine", "value", "shown", "name", "state", "detail"),
    [
        (two_linked(), None, None, VISIBLE, State.OK, "not set; 2 of 2"),
        (two_linked(), "1", [gpu(1)["uuid"]], VISIBLE, State.ABSENT, "'1'; 1 of 2"),
        (two_linked(), "4", [], VISIBLE, State.ABSENT, "'4'; 0 of 2"),
        (divided(), None, None, "GPU 0", State.OK, "MIG, 2 instances"),
        (FakeNvml(gpu(0, mig=True)), None, [], "GPU 0", State.ABSENT, "MIG, 0 instances"),
        (FakeNvml(gpu(0, lost=True)), None, [], "NVML", State.OK, "0 GPUs"),
    ],
)
def test_each_gpu_and_what_is_visible_is_a_line(
    machine: FakeNvml, value: str | None, shown: list[str] | None, name: str, state: State, detail: str
) -> None:
    """Each GPU, and what this process may use, is one line; what keeps it from being used has a hint."""
    found = {check.name: check for check in describe(topology_read(machine, value, shown))}[name]
    assert (found.state, detail in found.detail) == (state, True), found
    assert found.hint or found.state is State.OK


def test_modes_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that only one process may use, or whose memory fails, has a hint."""
    whole = topology_read(two_linked())
    first, second = whole["gpus"]
    gpus = [first | {"compute_mode": "exclusive process"}, second | {"ecc_errors": 3}]
    checks = {each.name: each for each in describe(whole | {"gpus": gpus})}
    assert checks["GPU 0"].hint == "nvidia-smi -i 0 -c DEFAULT, so that two processes may use it"
    assert "3 ECC errors" in checks["GPU 1"].detail


# A machine with two GPUs, whose memory the fake devices have.
LOOK = """
from bowstring.cli.doctor.child import be_a_child
from tests.memory.fake_nvml import {machine}, topology_read
_, say = be_a_child()
driver = dict(state="ok", detail="CUDA 13.0: Fake 0; Fake 1", hint=None)
say(driver | dict(devices={devices}, topology=topology_read({machine}())))
"""


@pytest.mark.parametrize("machine", ["two_linked", "divided"])
def test_a_whole_report(
    machine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report of a machine with GPUs has them, where their links are shown, and fits into 100 columns."""
    monkeypatch.setattr("bowstring.cli.doctor.find_gpu_software", lambda _cuda: READY[:2])
    look = LOOK.format(machine=machine, devices=[])
    monkeypatch.setattr(doctor, "LOOK", look)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100, max(lines, key=len)
    assert any("NVIDIA H200" in line and "GPU-00000000-1111" in line for line in lines)
    assert "500.0 MiB of 141.0 GiB in use" in " ".join(" ".join(lines).split())
    assert "Links between the GPUs: nvidia-smi topo -m" in lines
    refused = any("nvmlDeviceGetMigMode: NVMLError_NotSupported" in line for line in lines)
    assert refused == (machine == "two_linked")


def test_a_report_for_programs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The same in JSON, with the roads of the devices, tried."""
    monkeypatch.setattr("bowstring.cli.doctor.find_gpu_software", lambda _cuda: READY[:2])
    look = LOOK.format(machine="two_linked", devices=["fake:0"])
    monkeypatch.setattr(doctor, "LOOK", look)
    monkeypatch.setattr(doctor, "REAL", FAKE)
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in facts["topology"]["gpus"]] == ["NVIDIA H200"] * 2
    tried = {each["name"] for each in facts["paths"] if each["tried"] and each["works"]}
    assert tried >= {"fake:0: mapped", "fake:0 → host"}
