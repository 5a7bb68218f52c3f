"""Which GPUs there are. A child process looks, since a driver may hang or crash."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

from bowstring.cli.doctor.check import Check, State
from bowstring.cli.doctor.packages import version_of

__all__ = ["CUDA", "CUPY", "UCX", "find_devices", "look"]

CUDA = "CUDA driver"
CUPY = "CuPy"
UCX = "UCX"
_SECONDS = 30.0
_CHILD = "from bowstring.cli.doctor.devices import look; look()"
_WHEELS = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
_UCX_WHEELS = ("libucx-cu13", "libucx-cu12")


def find_devices() -> list[Check]:
    """Return what is there of CUDA, CuPy, NVML and UCX; none of it is needed."""
    return [*(_asked() or [_gone("the look at the driver crashed or hung")]), _cupy(), _ucx()]


def _gone(why: str) -> Check:
    return Check(CUDA, State.BROKEN, why, "Run nvidia-smi; reboot, or reload the driver.")


def _asked() -> list[Check]:
    try:
        done = subprocess.run(  # noqa: S603  our own program
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        return [
            Check(name, State(state), detail, hint) for name, state, detail, hint in json.loads(done.stdout)
        ]
    except (subprocess.SubprocessError, OSError, ValueError):
        return []


def look() -> None:
    """Be the child: print the checks of driver and NVML."""
    print(
        json.dumps(
            [(check.name, check.state.value, check.detail, check.hint) for check in (_driver(), _nvml())]
        )
    )


def _driver() -> Check:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        nodes = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
        seen = (
            f"libcuda.so.1 is not there, though /dev has {', '.join(nodes)}"
            if nodes
            else "not there (libcuda.so.1)"
        )
        hint = (
            "Start the container with its driver: --gpus all"
            if nodes
            else "Install NVIDIA's driver, if there is a GPU."
        )
        return Check(CUDA, State.ABSENT, seen, hint)
    code = library.cuInit(0)
    if code:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hint = f"CUDA_VISIBLE_DEVICES is {visible!r}." if visible is not None else "nvidia-smi says more."
        return Check(CUDA, State.ABSENT, f"cuInit returns {code}", hint)
    version, count = ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGetCount(ctypes.byref(count))
    names = ", ".join(_device_name(library, index) for index in range(count.value)) or "no device"
    return Check(CUDA, State.OK if count.value else State.ABSENT, f"CUDA {_cuda(version.value)}: {names}")


def _device_name(library: ctypes.CDLL, index: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(name, len(name), device)
    return name.value.decode(errors="replace")


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _nvml() -> Check:
    name, hint = "NVML", "pip install 'bowstring[cuda13]' (or cuda12)"
    if importlib.util.find_spec("pynvml") is None:
        return Check(name, State.ABSENT, "nvidia-ml-py is not installed; for facts about GPUs", hint)
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            driver = pynvml.nvmlSystemGetDriverVersion()
            parts = [_nvml_device(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()
    except Exception as error:  # noqa: BLE001  NVML's errors have no common root that is there without NVML
        return Check(
            name, State.ABSENT, f"{type(error).__name__}: {error}", "NVML comes with NVIDIA's driver."
        )
    return Check(name, State.OK, f"driver {driver}; {'; '.join(parts) or 'no device'}")


def _nvml_device(nvml: object, index: int) -> str:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)  # type: ignore[attr-defined]  # ships no types
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)  # type: ignore[attr-defined]
    try:
        mig = nvml.nvmlDeviceGetMigMode(handle)[0]  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001  older GPUs have no MIG, and say so by an error
        mig = 0
    return f"GPU {index}: {memory.total >> 30} GiB{', MIG is on' if mig else ''}"


def _cupy() -> Check:
    for wheel in _WHEELS:
        version = version_of(wheel)
        if version:
            return Check(CUPY, State.OK, f"{wheel} {version}")
    return Check(
        CUPY, State.ABSENT, "not installed; for data on GPUs", "pip install 'bowstring[cuda13]' (or cuda12)"
    )


def _ucx() -> Check:
    for wheel in _UCX_WHEELS:
        version = version_of(wheel)
        if version:
            return Check(UCX, State.OK, f"{wheel} {version}")
    system = ctypes.util.find_library("ucp")
    if system:
        return Check(UCX, State.OK, f"{system} of the system")
    return Check(UCX, State.ABSENT, "not installed; for RDMA and NVLink", "pip install 'bowstring[ucx]'")
