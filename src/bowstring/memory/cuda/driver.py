"""The calls that devices make of a driver; an implementation of them decides nothing."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

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


class Driver(Protocol):
    """CUDA's driver API, one call a method. A handle may be released as soon as it is mapped or exported:
    mappings, handles and descriptors each keep the memory. Calls raise `DeviceError`; `create`, `allocate_private`
    and `pin` raise `OutOfBudget` if the device, or the host, has no memory left.
    """

    def device_count(self) -> int:
        """Return how many devices this process sees (``cuDeviceGetCount``)."""

    def device_uuid(self, ordinal: int) -> bytes:
        """Return the 16 bytes that name a device, or a MIG instance, everywhere (``cuDeviceGetUuid``)."""

    def device_name(self, ordinal: int) -> str:
        """Return what the vendor calls a device (``cuDeviceGetName``)."""

    def can_export(self, ordinal: int) -> bool:
        """Return whether memory can be exported as file descriptors (``cuDeviceGetAttribute``)."""

    def has_shared_events(self, ordinal: int) -> bool:
        """Return whether other processes can open events of a device (``cuDeviceGetAttribute``)."""

    def allocate_private(self, ordinal: int, nbytes: int) -> int:
        """Return the address of memory that no other process can open (``cuMemAlloc``)."""

    def free_private(self, ordinal: int, address: int) -> None:
        """Give such memory back (``cuMemFree``)."""

    def granularity(self, ordinal: int) -> int:
        """Return what sizes of memory are multiples of, in bytes (``cuMemGetAllocationGranularity``)."""

    def create(self, ordinal: int, nbytes: int) -> int:
        """Make memory that can be exported; return its handle (``cuMemCreate``)."""

    def export(self, handle: int) -> int:
        """Return a file descriptor of some memory, owned by the caller (``cuMemExportToShareableHandle``)."""

    def import_(self, fd: int) -> int:
        """Return a handle of a descriptor's memory; it stays open (``cuMemImportFromShareableHandle``)."""

    def reserve(self, nbytes: int) -> int:
        """Return the address of a range where memory can be mapped (``cuMemAddressReserve``)."""

    def map(self, address: int, nbytes: int, handle: int) -> None:
        """Map memory, which cannot be accessed yet (``cuMemMap``)."""

    def set_access(self, address: int, nbytes: int, ordinal: int, *, writable: bool) -> None:
        """Let a device read what is mapped, or write it too (``cuMemSetAccess``); others may do what they could."""

    def unmap(self, address: int, nbytes: int) -> None:
        """Unmap memory (``cuMemUnmap``)."""

    def free_address(self, address: int, nbytes: int) -> None:
        """Give a range back (``cuMemAddressFree``)."""

    def release(self, handle: int) -> None:
        """Give a handle back (``cuMemRelease``)."""

    def pointer_attributes(self, ordinal: int, address: int) -> PointerAttributes:
        """Return what an address is, in the context of a device (``cuPointerGetAttributes``)."""

    def address_range(self, ordinal: int, address: int) -> tuple[int, int]:
        """Return start and bytes of the allocation that an address lies in (``cuMemGetAddressRange``)."""

    def get_ipc_handle(self, ordinal: int, address: int) -> bytes:
        """Return the 64 bytes by which another process opens an allocation (``cuIpcGetMemHandle``)."""

    def open_ipc_handle(self, ordinal: int, token: bytes) -> int:
        """Return the address of another process's allocation (``cuIpcOpenMemHandle``); the same each time."""

    def close_ipc_handle(self, ordinal: int, address: int) -> None:
        """Close what was opened, once for each time (``cuIpcCloseMemHandle``)."""

    def synchronize(self, ordinal: int) -> None:
        """Wait for all work of this process on a device (``cuCtxSynchronize`` in its primary context).

        Raises :class:`Capturing` where it cannot be waited for; see `nothing_runs` for what other errors say.
        """

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        """Return the bytes of a device that are free, and all of them (``cuMemGetInfo``)."""

    def can_reach(self, ordinal: int, peer: int) -> bool:
        """Return whether a device can read the memory of another one (``cuDeviceCanAccessPeer``)."""

    def pin(self, ordinal: int, nbytes: int) -> int:
        """Return the address of host memory that every device copies from and to quickly (``cuMemHostAlloc``).

        It is asked for in the context of one of them, which should be in use anyway.
        """

    def unpin(self, ordinal: int, address: int) -> None:
        """Give such memory back (``cuMemFreeHost``)."""

    def copy_in(self, ordinal: int, target: int, host: int, nbytes: int, stream: int) -> None:
        """Queue a copy from the host on a stream of the device (``cuMemcpyHtoDAsync``)."""

    def copy_out(self, ordinal: int, host: int, source: int, nbytes: int, stream: int) -> None:
        """Queue a copy to the host on a stream of the device (``cuMemcpyDtoHAsync``)."""

    def copy_peer(
        self, target: int, target_ordinal: int, source: int, source_ordinal: int, nbytes: int, stream: int
    ) -> None:
        """Queue a copy between two devices on a stream of the source (``cuMemcpyPeerAsync``)."""

    def beside_captures(self) -> contextlib.AbstractContextManager[None]:
        """Return a block in which calls of this thread end no capture of another one.

        ``cuThreadExchangeStreamCaptureMode``: this thread's own captures stay protected. Every method enters one.
        """

    def stream_capturing(self, ordinal: int, stream: int) -> bool:
        """Return whether a graph is captured on a stream, or on one that it would wait for
        (``cuStreamIsCapturing``).

        Recording an event on such a stream would add to the graph, or end the capture.
        """

    def stream_device(self, ordinal: int, stream: int) -> int:
        """Return the device of a stream that was made, asked in the context of any (``cuStreamGetCtx``)."""

    def event_create(self, ordinal: int, *, shared: bool = False) -> int:
        """Return the handle of a new event that takes no times (``cuEventCreate``).

        Other processes can open one that is `shared` (``CU_EVENT_INTERPROCESS``).
        """

    def event_destroy(self, ordinal: int, event: int) -> None:
        """Give an event back; streams that wait for it go on waiting (``cuEventDestroy``)."""

    def event_record(self, ordinal: int, event: int, stream: int) -> None:
        """Let an event stand for all that is queued on a stream now (``cuEventRecord``)."""

    def event_done(self, ordinal: int, event: int) -> bool:
        """Return whether all work that an event stands for is done (``cuEventQuery``)."""

    def get_ipc_event_handle(self, ordinal: int, event: int) -> bytes:
        """Return the 64 bytes by which another process opens an event (``cuIpcGetEventHandle``)."""

    def open_ipc_event_handle(self, ordinal: int, token: bytes) -> int:
        """Return another process's event, to be destroyed like ours (``cuIpcOpenEventHandle``)."""

    def stream_wait_event(self, ordinal: int, stream: int, event: int) -> None:
        """Let what is queued on a stream from now on wait for an event (``cuStreamWaitEvent``)."""


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
    found = re.search(r"\((\d+)\)$", str(error.found))
    return None if found is None else int(found[1])


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
