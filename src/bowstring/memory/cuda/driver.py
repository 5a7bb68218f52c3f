"""What a driver says: its errors, attributes of pointers, and what to do where it does not start."""

from __future__ import annotations

import os
import re
import resource
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bowstring.errors import BowstringError, DeviceError


class Capturing(DeviceError):
    """A stream cannot be waited for now, because a graph is being captured on it. It works on."""


# Of DEINITIALIZED, DEVICE_UNAVAILABLE (of a context that was there), ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, and
# what a kernel that failed leaves to its context.
_ENDED: Final = frozenset({4, 46, 214, 220, 700, 702, 709, 710, *range(714, 720)})
_NO_HANDLE: Final = 400  # INVALID_HANDLE


def nothing_runs(error: BaseException) -> bool:
    """Whether an error says that a device does nothing any more; after any other it may read memory still."""
    return isinstance(error, DeviceError) and status_of(error) in _ENDED


def no_such_stream(error: BaseException) -> bool:
    """Whether an error says that a stream was destroyed, or is another device's."""
    return isinstance(error, DeviceError) and status_of(error) == _NO_HANDLE


class PointerAttributes(NamedTuple):
    """What a driver knows of an address."""

    # ``CUmemorytype``: 0 for what it does not know, 1 for memory of the host, 2 for that of a device.
    memory_type: int
    ordinal: int
    buffer_id: int  # names the allocation; never used again in this process
    # Moves between host and device by itself; comes from a stream-ordered pool.
    is_managed: bool
    is_pooled: bool
    has_ipc: bool  # whether another process can open it by a handle (``IS_LEGACY_CUDA_IPC_CAPABLE``)


def uuid_text(uuid_bytes: bytes) -> str:
    """Return a device's UUID as ``nvidia-smi`` writes it, without ``GPU-`` or ``MIG-``, which it does not hold."""
    return str(uuid.UUID(bytes=uuid_bytes)) if len(uuid_bytes) == 16 else uuid_bytes.hex()


HIDDEN: Final = "CUDA_VISIBLE_DEVICES"
_DOCTOR: Final = "`bowstring doctor` says what is in the way."
_LIMITED: Final = (
    "The address space is limited (ulimit -v), and CUDA reserves more: in Spark, leave "
    "spark.executor.pyspark.memory unset."
)
# Errors of cuInit, by their numbers in cuda.h.
_STARTS: Final = {
    3: "A driver does not survive a fork: start processes by spawn or forkserver, or touch no GPU before.",
    802: "nvidia-fabricmanager must run on this machine (NVSwitch).",
    803: "The driver's libraries do not fit its kernel module: reboot, or give the container the host's.",
    804: "The CUDA compatibility package does not fit this GPU: take it out of LD_LIBRARY_PATH.",
    999: "Device nodes or modules are missing: nvidia-modprobe -u -c=0; dmesg says more.",
}


def why_no_start(
    code: int | None, environment: Mapping[str, str] | None = None, root: Path = Path("/")
) -> str:
    """Return what to do if CUDA does not start."""
    if code in _STARTS:
        return _STARTS[code]
    value = (os.environ if environment is None else environment).get(HIDDEN)
    if value is not None and code == 100:
        return f"{HIDDEN} is {value!r}: unset it, or name a GPU that is there (nvidia-smi -L)."
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return _LIMITED
    if not (root / "dev/nvidiactl").exists():
        if _in_container(root):
            return f"The container has no GPU: docker run --gpus all. {_DOCTOR}"
        return f"There is no GPU, or its driver is not loaded. {_DOCTOR}"
    return _DOCTOR


def no_gpu(
    error: BowstringError, environment: Mapping[str, str] | None = None, root: Path = Path("/")
) -> str:
    """Return what to do if an error of the driver, or a missing package, keeps a process from all GPUs."""
    return error.hint or why_no_start(status_of(error), environment, root)


def status_of(error: BowstringError) -> int | None:
    """Return the driver's number of an error, such as 100 for one that found ``CUDA_ERROR_NO_DEVICE (100)``."""
    match = re.search(r"\((\d+)\)$", str(error.found))
    return None if match is None else int(match[1])


def hidden_gpu(
    names: Sequence[str], environment: Mapping[str, str] | None = None, root: Path = Path("/")
) -> str:
    """Return what to do if a process does not see the GPU that memory is on."""
    if any(re.search(r"\bMIG\b", name) for name in names):
        return (
            "This process sees a MIG instance, and memory is not shared between instances: let both processes "
            "use the same one, or publish from the host."
        )
    value = (os.environ if environment is None else environment).get(HIDDEN)
    if value is not None:
        return f"{HIDDEN} is {value!r} here: name the producer's GPU, too, best by its UUID (nvidia-smi -L)."
    if _in_container(root):
        return f"Give both containers the same GPUs (docker run --gpus all), and the same {HIDDEN}."
    return f"{HIDDEN} of the producer's process, or its container, may name a GPU that this one has not. {_DOCTOR}"


def _in_container(root: Path) -> bool:
    return any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))
