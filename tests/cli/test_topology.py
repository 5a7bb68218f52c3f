from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.cli.doctor.gpus import read_topology
from bowstring.cli.doctor.topology import Topology, topology_of, visible_devices
from bowstring.errors import InvalidData
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
    found = topology_read(two_linked(as_bytes=as_bytes), {})
    assert (found.why_not, found.driver, found.cuda) == (None, "580.95.05", "13.0")
    first = found.gpus[0]
    assert (first.name, first.uuid, first.bus_id) == ("NVIDIA H200", FIRST, "00000000:1B:00.0")
    assert (first.memory_total, first.compute_mode, first.persistence) == (141 * GIB, "default", True)
    assert [(link.number, link.remote, link.remote_kind) for link in first.links] == [
        (0, "00000000:1C:00.0", "gpu"),
        (1, "00000000:1C:00.0", "gpu"),
    ]
    there = found.pair(0, 1)
    assert there is not None
    assert (there.read, there.write, there.nvlink, there.atomics) == ("ok", "ok", "ok", "ok")
    assert (there.ancestor, there.links) == ("across NUMA nodes", 2)
    assert first.mig is None
    assert found.untold == ("nvmlDeviceGetMigMode: NVMLError_NotSupported: Not Supported",)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("machine", [two_linked, divided])
def test_any_call_may_be_refused(machine: Any, call: str, error: type[NVMLError]) -> None:
    """Whatever NVML does not answer is not told, with its name, and everything else is."""
    whole = topology_read(machine(), {})
    nvml = machine()
    nvml.refuse[call] = error()
    found = topology_read(nvml, {})
    asked = nvml.calls[call] > 0
    if call == "nvmlInit":
        assert found.why_not == f"NVML cannot be used: {error.__name__}: {error.text}"
        return
    assert found.why_not is None
    quiet = {"nvmlDeviceGetNvLinkState", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlShutdown"}
    if asked and call not in quiet:
        assert any(each.startswith(f"{call}: {error.__name__}") for each in found.untold)
    if call not in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
        assert [each.index for each in found.gpus] == [each.index for each in whole.gpus]
        known = [name for name in ("name", "uuid", "bus_id", "memory_total") if f"{name}" not in call]
        lost = sum(getattr(found.gpus[0], name) is None for name in known)
        assert lost <= 1
    assert nvml.calls["nvmlShutdown"] == 1


def test_a_function_that_is_not_there() -> None:
    """An older module that lacks a function loses that fact only."""
    nvml = two_linked()
    nvml.refuse["nvmlDeviceGetP2PStatus"] = AttributeError("no such function")
    there = topology_read(nvml, {}).pair(0, 1)
    assert there is not None
    assert (there.read, there.ancestor) == (None, "across NUMA nodes")


def test_answers_of_an_unknown_form() -> None:
    """An answer that makes no sense is not told, and no crash."""
    nvml: Any = two_linked()
    for name in CALLS:
        if name not in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"):
            setattr(nvml, name, lambda *_arguments: object())
    found = topology_read(nvml, {})
    assert [each.memory_total for each in found.gpus] == [None, None]


def test_one_gpu_is_lost() -> None:
    """A GPU that fell off the bus is named by its error, and the others are there."""
    found = topology_read(FakeNvml(gpu(0, lost=True), gpu(1)), {})
    assert [each.index for each in found.gpus] == [1]
    assert any("GPU is lost" in each for each in found.untold)


def test_instances() -> None:
    """MIG instances are found in whatever slots they are; empty slots are nothing to tell."""
    found = topology_read(divided(), {})
    assert found.gpus[0].mig is True
    assert [(each.index, each.gpu_instance, each.memory_total) for each in found.gpus[0].mig_instances] == [
        (0, 1, 18 * GIB),
        (3, 2, 18 * GIB),
    ]
    assert found.gpus[1].mig is False
    assert found.untold == ()


def test_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without nvidia-ml-py that is said, and nothing raised."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_topology() == Topology("nvidia-ml-py is not installed")


@pytest.mark.parametrize("machine", [two_linked, divided])
def test_a_topology_goes_through_json(machine: Any) -> None:
    """What a child prints is read back as it was."""
    found = topology_read(machine(), {"CUDA_VISIBLE_DEVICES": "0,7"})
    assert topology_of(json.loads(json.dumps(dataclasses.asdict(found)))) == found


@pytest.mark.parametrize("facts", [None, 1, [], {}, {"gpus": [1]}, {"gpus": [], "visible": 3}])
def test_what_is_no_topology(facts: Any) -> None:
    """Other JSON is refused."""
    with pytest.raises(InvalidData):
        topology_of(facts)


MIG_A, MIG_B = "MIG-00000000-aaaa-bbbb-cccc-dddddddddddd", "MIG-00000001-aaaa-bbbb-cccc-dddddddddddd"


@pytest.mark.parametrize(
    ("value", "shown", "wrong"),
    [
        (None, (FIRST, SECOND), 0),
        ("", (), 0),
        ("1", (SECOND,), 0),
        ("1,0", (SECOND, FIRST), 0),
        (" 1 , 0 ", (SECOND, FIRST), 0),
        ("0,-1,1", (FIRST,), 1),
        ("5,0", (), 1),
        ("+1,00", (SECOND, FIRST), 0),
        ("--1", (), 1),
        ("+-1,0", (), 1),
        ("9" * 5000, (), 1),
        ("0,0", (FIRST,), 1),
        (SECOND, (SECOND,), 0),
        ("GPU-00000001", (SECOND,), 0),
        ("GPU-0000000", (), 1),
        ("GPU-ffff,0", (), 1),
        ("cuda:0", (), 1),
        ("NoDevFiles", (), 1),
        (MIG_A, (), 1),
    ],
)
def test_visible_devices(value: str | None, shown: tuple[str, ...], wrong: int) -> None:
    """Numbers, UUIDs and their beginnings are found in their order, up to the first wrong one, which is named."""
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = visible_devices(topology_read(two_linked(), {}).gpus, environment)
    assert found.shown == shown
    assert set(found.hidden) == {FIRST, SECOND} - set(shown)
    assert len(found.wrong) == wrong


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, MIG_A),
        (MIG_B, MIG_B),
        (f"{MIG_B},{MIG_A}", MIG_B),
        ("MIG-00000001", MIG_B),
        (f"MIG-{FIRST}/2/0", MIG_B),
        ("0", MIG_A),
        ("1", SECOND),
        (f"MIG-{FIRST}/9/0", None),
    ],
)
def test_visible_instances(value: str | None, shown: str | None) -> None:
    """A process sees one MIG instance, by either of its names, and the first of a GPU that is divided."""
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = visible_devices(topology_read(divided(), {}).gpus, environment)
    assert found.shown == (() if shown is None else (shown,))


@pytest.mark.parametrize(("order", "said"), [(None, 1), ("FASTEST_FIRST", 1), ("PCI_BUS_ID", 0)])
def test_numbers_of_unlike_gpus(order: str | None, said: int) -> None:
    """Where GPUs differ, CUDA's numbers may not be NVML's, and that is said unless both go by the bus."""
    gpus = topology_read(FakeNvml(gpu(0), gpu(1, name="NVIDIA L4")), {}).gpus
    environment = {"CUDA_VISIBLE_DEVICES": "1"} | ({} if order is None else {"CUDA_DEVICE_ORDER": order})
    assert len(visible_devices(gpus, environment).notes) == said


@given(st.text(alphabet="0123456789-GPUMI,/af +\0é", max_size=40))
def test_any_value_of_the_variable(value: str) -> None:
    """Whatever the variable holds, each device is shown or hidden, none is both, and nothing raises."""
    gpus = topology_read(divided(), {}).gpus
    found = visible_devices(gpus, {"CUDA_VISIBLE_DEVICES": value})
    assert sorted(found.shown + found.hidden) == sorted([MIG_A, MIG_B, SECOND])
