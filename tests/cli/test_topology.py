from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.cli.doctor.gpus import gpu_of, read_topology
from tests.memory.fake_nvml import (
    GIB,
    FakeNvml,
    NVMLError,
    NVMLError_DriverNotLoaded,
    NVMLError_LibraryNotFound,
    NVMLError_NoPermission,
    NVMLError_NotSupported,
    divided,
    gpu,
    topology_read,
    two_linked,
)

CALLS = sorted(name for name in vars(FakeNvml) if name.startswith("nvml"))
FIRST, SECOND = gpu(0)["uuid"], gpu(1)["uuid"]
ERRORS = [
    NVMLError_NotSupported,
    NVMLError_NoPermission,
    NVMLError_LibraryNotFound,
    NVMLError_DriverNotLoaded,
]


@pytest.mark.parametrize("as_bytes", [False, True])
def test_everything_is_told(as_bytes: bool) -> None:
    """Two linked GPUs are described in full, whether the module gives text or bytes."""
    found = topology_read(two_linked(as_bytes=as_bytes))
    assert (found["why_not"], found["driver"], found["cuda"]) == (None, "580.95.05", "13.0")
    first = found["gpus"][0]
    assert (first["name"], first["uuid"], first["bus_id"]) == ("NVIDIA H200", FIRST, "00000000:1B:00.0")
    assert (first["memory_total"], first["compute_mode"], first["persistence"]) == (
        141 * GIB,
        "default",
        True,
    )
    assert tuple(found["pairs"][0].values()) == (0, 1, "ok", "ok", "ok", "ok", "across NUMA nodes")
    assert first["mig"] is None
    assert found["untold"] == ["nvmlDeviceGetMigMode: NVMLError_NotSupported: Not Supported"]


@given(
    st.sampled_from([two_linked, divided]), st.dictionaries(st.sampled_from(CALLS), st.sampled_from(ERRORS))
)
def test_any_calls_may_be_refused(machine: Any, refused: dict[str, type[NVMLError]]) -> None:
    """Whatever NVML refuses is unknown, and listed with its error; every other fact is there."""
    whole, nvml = topology_read(machine()), machine()
    nvml.refuse.update({call: error() for call, error in refused.items()})
    found = topology_read(nvml)
    if "nvmlInit" in refused:
        error = refused["nvmlInit"]
        assert found["why_not"] == f"NVML cannot be used: {error.__name__}: {error.text}"
        return
    assert found["why_not"] is None
    assert nvml.calls["nvmlShutdown"] == 1
    for call, error in refused.items():
        asked = nvml.calls[call] and call not in ("nvmlShutdown", "nvmlDeviceGetMigDeviceHandleByIndex")
        assert not asked or f"{call}: {error.__name__}: {error.text}" in found["untold"]
    if refused.keys() & {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}:
        assert found["gpus"] == []
        return
    for read, known in zip(found["gpus"], whole["gpus"], strict=True):
        facts = {name: read[name] for name in FACTS.values()}
        expected = {name: None if call in refused else known[name] for call, name in FACTS.items()}
        assert facts == expected


FACTS = {
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetPciInfo": "bus_id",
    "nvmlDeviceGetMemoryInfo": "memory_total",
    "nvmlDeviceGetComputeMode": "compute_mode",
    "nvmlDeviceGetPersistenceMode": "persistence",
    "nvmlDeviceGetMigMode": "mig",
    "nvmlDeviceGetTotalEccErrors": "ecc_errors",
}


def test_a_function_that_is_not_there() -> None:
    """An older module that lacks a function loses that fact only."""
    nvml = two_linked()
    nvml.refuse["nvmlDeviceGetP2PStatus"] = AttributeError("no such function")
    there = topology_read(nvml)["pairs"][0]
    assert (there["read"], there["ancestor"]) == (None, "across NUMA nodes")


def test_answers_of_an_unknown_form() -> None:
    """An answer that makes no sense is not told, and no crash."""
    nvml: Any = two_linked()
    for name in CALLS:
        if name not in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
            setattr(nvml, name, lambda *_arguments: object())
    found = topology_read(nvml)
    assert [each["memory_total"] for each in found["gpus"]] == [None, None]


def test_one_gpu_is_lost() -> None:
    """A GPU that fell off the bus is named by its error, and the others are there."""
    found = topology_read(FakeNvml(gpu(0, lost=True), gpu(1)))
    assert [each["index"] for each in found["gpus"]] == [1]
    assert any("GPU is lost" in each for each in found["untold"])


def test_instances() -> None:
    """MIG instances are found in whatever slots they are; empty slots are nothing to tell."""
    found = topology_read(divided())
    assert found["gpus"][0]["mig"] is True
    assert [
        (each["index"], each["gpu_instance"], each["memory_total"])
        for each in found["gpus"][0]["mig_instances"]
    ] == [
        (0, 1, 18 * GIB),
        (3, 2, 18 * GIB),
    ]
    assert found["gpus"][1]["mig"] is False
    assert found["untold"] == []


def test_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvidia-ml-py that is said, and nothing raised."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_topology()["why_not"] == "nvidia-ml-py is not installed"


MIG_A, MIG_B = "MIG-00000000-aaaa-bbbb-cccc-dddddddddddd", "MIG-00000001-aaaa-bbbb-cccc-dddddddddddd"


@pytest.mark.parametrize("shown", [[], [FIRST], [SECOND, FIRST]])
def test_devices_are_those_that_cuda_shows_in_its_order(shown: list[str]) -> None:
    """CUDA's devices are found by their UUIDs, whatever the variable says; the other GPUs are hidden."""
    topology = topology_read(two_linked(), "1,0,nonsense", shown)
    visible = topology["visible"]
    assert (visible["value"], visible["shown"]) == ("1,0,nonsense", shown)
    assert set(visible["hidden"]) == {FIRST, SECOND} - set(shown)
    found = [gpu_of(topology, f"cuda:{number}") for number in range(3)]
    assert [gpu and gpu["uuid"] for gpu in found] == [*shown, None, None, None][:3]


def test_a_mig_instance_belongs_to_its_gpu() -> None:
    """A device that is a MIG instance is found under its own UUID, on the GPU that is divided."""
    topology = topology_read(divided(), None, [MIG_B])
    visible, device = topology["visible"], gpu_of(topology, "cuda:0")
    assert device is not None
    assert (visible["shown"], set(visible["hidden"])) == ([MIG_B], {MIG_A, SECOND})
    assert device["index"] == 0


def test_a_device_that_nvml_does_not_have() -> None:
    """A device of CUDA's that NVML lists nowhere is shown by its UUID, and belongs to no GPU."""
    topology = topology_read(two_linked(), None, ["GPU-ffffffff"])
    assert topology["visible"]["shown"] == ["GPU-ffffffff"]
    assert gpu_of(topology, "cuda:0") is None
