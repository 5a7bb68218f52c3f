# ruff: noqa: N802, N803  NVML's own names
"""A module like ``pynvml`` of nvidia-ml-py 13, over GPUs that a test describes."""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest

from bowstring.cli.doctor.gpus import Facts, read_topology

MIB = 1 << 20
GIB = 1 << 30


class NVMLError(Exception):
    """As that of nvidia-ml-py: one class for each error, found by its number."""

    text = "Unknown Error"

    def __str__(self) -> str:
        return self.text


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    text = "Not Supported"


class NVMLError_NoPermission(NVMLError):  # noqa: N801
    text = "Insufficient Permissions"


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801
    text = "NVML Shared Library Not Found"


class NVMLError_DriverNotLoaded(NVMLError):  # noqa: N801
    text = "Driver Not Loaded"


class NVMLError_NotFound(NVMLError):  # noqa: N801
    text = "Not Found"


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801
    text = "GPU is lost"


def gpu(number: int, **facts: Any) -> dict[str, Any]:
    """Describe a GPU of a board with eight of them."""
    return {
        "name": "NVIDIA H200",
        "uuid": f"GPU-0000000{number}-1111-2222-3333-444444444444",
        "bus": f"00000000:{0x1B + number:02x}:00.0",
        "mig": None,
        "instances": {},
        "linked": False,
    } | facts


def instance(number: int, gpu_instance: int, compute_instance: int = 0) -> dict[str, Any]:
    """Describe a MIG instance."""
    return {
        "uuid": f"MIG-0000000{number}-aaaa-bbbb-cccc-dddddddddddd",
        "gi": gpu_instance,
        "ci": compute_instance,
        "total": 18 * GIB,
    }


class FakeNvml:
    """The functions that a topology asks for, with the names, arguments and answers of the real ones.

    Parameters
    ----------
    gpus
        What :func:`gpu` describes.
    as_bytes
        Whether text comes as bytes, as older versions gave it.
    """

    NVML_P2P_CAPS_INDEX_READ = (0,)  # as it is in the module
    NVML_P2P_CAPS_INDEX_WRITE = 1

    def __init__(self, *gpus: dict[str, Any], as_bytes: bool = False) -> None:
        self.gpus = list(gpus)
        self.refuse: dict[str, Exception] = {}
        self.calls: collections.Counter[str] = collections.Counter()
        self._as_bytes = as_bytes

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            self.calls[name] += 1
            error = self.refuse.get(name)
            if error is not None:

                def refuse(*_arguments: Any) -> None:
                    raise error

                return refuse
        return super().__getattribute__(name)

    def _text(self, text: str) -> Any:
        return text.encode() if self._as_bytes else text

    def nvmlInit(self) -> None:
        """Begin."""

    def nvmlShutdown(self) -> None:
        """End."""

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._text("580.95.05")

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13000

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        if self.gpus[index].get("lost"):
            raise NVMLError_GpuIsLost
        return self.gpus[index]

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> Any:
        return self._text(handle["name"])

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> Any:
        return self._text(handle["uuid"])

    def nvmlDeviceGetPciInfo(self, handle: dict[str, Any]) -> Any:
        return types.SimpleNamespace(busId=self._text(handle["bus"]))

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any], version: Any = None) -> Any:
        total = handle.get("total", 141 * GIB)
        return types.SimpleNamespace(total=total, used=500 * MIB, free=total - 500 * MIB)

    def nvmlDeviceGetComputeMode(self, handle: dict[str, Any]) -> int:
        return 0

    def nvmlDeviceGetPersistenceMode(self, handle: dict[str, Any]) -> int:
        return 1

    def nvmlDeviceGetMigMode(self, handle: dict[str, Any]) -> list[int]:
        if handle["mig"] is None:
            raise NVMLError_NotSupported
        return [int(handle["mig"]), int(handle["mig"])]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: dict[str, Any]) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: dict[str, Any], index: int) -> dict[str, Any]:
        if index not in device["instances"]:
            raise NVMLError_NotFound
        found: dict[str, Any] = device["instances"][index]
        return found

    def nvmlDeviceGetGpuInstanceId(self, device: dict[str, Any]) -> int:
        return int(device["gi"])

    def nvmlDeviceGetComputeInstanceId(self, device: dict[str, Any]) -> int:
        return int(device["ci"])

    def nvmlDeviceGetP2PStatus(self, device1: dict[str, Any], device2: dict[str, Any], p2pIndex: int) -> int:
        if type(p2pIndex) is not int:
            raise TypeError("argument 3: wrong type")
        return 0 if device1["linked"] or p2pIndex != 2 else 5

    def nvmlDeviceGetTopologyCommonAncestor(self, device1: dict[str, Any], device2: dict[str, Any]) -> int:
        return 50

    def nvmlDeviceGetTotalEccErrors(self, handle: dict[str, Any], errorType: int, counterType: int) -> int:
        assert (errorType, counterType) == (1, 0)
        return 0


def two_linked(**options: Any) -> FakeNvml:
    """Return a machine of two GPUs with NVLink between them."""
    return FakeNvml(gpu(0, linked=True), gpu(1, linked=True), **options)


def divided() -> FakeNvml:
    """Return a machine with a GPU in two MIG instances, and one that is whole."""
    parts = {0: instance(0, 1), 3: instance(1, 2)}
    return FakeNvml(gpu(0, mig=True, instances=parts), gpu(1, mig=False))


def topology_read(nvml: FakeNvml, value: str | None = None, shown: Sequence[str] | None = None) -> Facts:
    """Return what doctor reads of a machine in a process whose ``CUDA_VISIBLE_DEVICES`` is `value`.

    CUDA has the devices with the UUIDs `shown`, by default the first of each GPU.
    """
    if shown is None:
        first = [next(iter(each["instances"].values())) if each["mig"] else each for each in nvml.gpus]
        shown = [each["uuid"] for each in first]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", nvml)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if value is not None:
            patch.setenv("CUDA_VISIBLE_DEVICES", value)
        return read_topology([uuid.partition("-")[2] for uuid in shown])
