"""The driver of CUDA devices: calls of ``cuda.bindings``, whose statuses become errors."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import DeviceError, MissingDependency, OutOfBudget
from bowstring.memory.cuda.driver import Capturing, PointerAttributes

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUCCESS: Final = 0
_OUT_OF_MEMORY: Final = 2
_NOT_READY: Final = 600
_PORTABLE: Final = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context
_NAME_BYTES: Final = 256
_TOKEN: Final = 64  # bytes of a CUipcMemHandle, and of a CUipcEventHandle
_ALLOCATING: Final = ("cuMemCreate", "cuMemAlloc", "cuMemHostAlloc")
_CAPTURE: Final = range(900, 909)  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and the like
_IMPLICIT: Final = 906  # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT


class CudaDriver:
    """The driver of this machine, from :func:`cuda_driver`. Every call ends no capture of another thread.

    A handle may be released as soon as it is mapped or exported: mappings, handles and descriptors each keep the
    memory. Calls raise `DeviceError`; `create`, `allocate_private` and `pin` also `OutOfBudget`.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        self._ask("cuInit", 0)
        self._contexts: dict[int, Any] = {}
        self._asks_rdma: dict[int, bool] = {}
        self.direct_rdma: dict[int, bool] = {}

    def _done(self, name: str, result: tuple[Any, ...], where: str | None = None) -> Any:
        """Return the results of a call besides its status, or raise."""
        status, *values = result
        if int(status) == _SUCCESS:
            return values[0] if len(values) == 1 else tuple(values)
        kind: type[DeviceError | OutOfBudget] = DeviceError
        if int(status) == _OUT_OF_MEMORY and name in _ALLOCATING:
            kind = OutOfBudget
        elif int(status) in _CAPTURE:
            kind = Capturing
        raise kind(f"{name} failed", found=f"{getattr(status, 'name', status)} ({int(status)})", where=where)

    def _ask(self, name: str, *arguments: Any, where: str | None = None) -> Any:
        """Return the results of a call, where the thread is."""
        return self._done(name, getattr(self._api, name)(*arguments), where)

    def _run(self, name: str, *arguments: Any, on: int | None = None, where: str | None = None) -> Any:
        """Return the results of a call in the context of a device, or of one that needs none."""
        with self.beside_captures() if on is None else self._current(on):
            return self._ask(name, *arguments, where=where)

    def _device(self, ordinal: int) -> Any:
        return self._ask("cuDeviceGet", ordinal, where=f"cuda:{ordinal}")

    def device_count(self) -> int:
        return int(self._ask("cuDeviceGetCount"))

    def device_uuid(self, ordinal: int) -> bytes:
        # The bindings of CUDA 12 have the one that knows MIG instances under a name of its own.
        get = getattr(self._api, "cuDeviceGetUuid_v2", None) or self._api.cuDeviceGetUuid
        uuid = self._done("cuDeviceGetUuid", get(self._device(ordinal)))
        return bytes(uuid.bytes)

    def device_name(self, ordinal: int) -> str:
        name: bytes = self._ask("cuDeviceGetName", _NAME_BYTES, self._device(ordinal))
        return name.split(b"\0")[0].decode(errors="replace")

    def _has(self, ordinal: int, attribute: str) -> bool:
        kind = getattr(self._api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{attribute}")
        return bool(self._ask("cuDeviceGetAttribute", kind, self._device(ordinal)))

    def can_export(self, ordinal: int) -> bool:
        """Whether memory can be exported as file descriptors."""
        return self._has(ordinal, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED") and self._has(
            ordinal, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED"
        )

    def has_shared_events(self, ordinal: int) -> bool:
        """Whether other processes can open events of a device."""
        try:
            return self._has(ordinal, "IPC_EVENT_SUPPORTED")
        except (AttributeError, DeviceError):  # bindings, or a driver, that are older than the question
            return True

    def allocate_private(self, ordinal: int, nbytes: int) -> int:
        """Return the address of memory that no other process can open."""
        return int(self._run("cuMemAlloc", nbytes, on=ordinal, where=f"cuda:{ordinal}, {nbytes} bytes"))

    def free_private(self, ordinal: int, address: int) -> None:
        self._run("cuMemFree", address, on=ordinal)

    def _location(self, ordinal: int) -> Any:
        location = self._api.CUmemLocation()
        location.type = self._api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = ordinal
        return location

    def _properties(self, ordinal: int) -> Any:
        properties = self._api.CUmemAllocationProp()
        properties.type = self._api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.requestedHandleTypes = self._fd_type
        properties.location = self._location(ordinal)
        if self._can_rdma(ordinal):
            properties.allocFlags.gpuDirectRDMACapable = 1
        return properties

    def _can_rdma(self, ordinal: int) -> bool:
        can = self._asks_rdma.get(ordinal)
        if can is None:
            can = self._asks_rdma[ordinal] = self._has(ordinal, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED")
        return can

    @property
    def _fd_type(self) -> Any:
        return self._api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

    def granularity(self, ordinal: int) -> int:
        least = self._api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        # The device will be used: a process that cannot have a context there fails here.
        return int(self._run("cuMemGetAllocationGranularity", self._properties(ordinal), least, on=ordinal))

    def create(self, ordinal: int, nbytes: int) -> int:
        """Make memory that can be exported; return its handle."""
        where = f"cuda:{ordinal}, {nbytes} bytes"
        handle = int(self._run("cuMemCreate", nbytes, self._properties(ordinal), 0, on=ordinal, where=where))
        if ordinal not in self.direct_rdma:  # whether the first memory is what was asked for
            self.direct_rdma[ordinal] = False
            with contextlib.suppress(DeviceError):
                if self._can_rdma(ordinal):
                    properties = self._ask("cuMemGetAllocationPropertiesFromHandle", handle)
                    self.direct_rdma[ordinal] = bool(properties.allocFlags.gpuDirectRDMACapable)
        return handle

    def export(self, handle: int) -> int:
        """Return a file descriptor of some memory, owned by the caller."""
        fd = int(self._run("cuMemExportToShareableHandle", handle, self._fd_type, 0))
        os.set_inheritable(fd, False)  # programs that this process starts must not keep the memory
        return fd

    def import_(self, fd: int) -> int:
        """Return a handle of a descriptor's memory; the descriptor stays open."""
        return int(self._run("cuMemImportFromShareableHandle", fd, self._fd_type))

    def reserve(self, nbytes: int) -> int:
        return int(self._run("cuMemAddressReserve", nbytes, 0, 0, 0))

    def map(self, address: int, nbytes: int, handle: int) -> None:
        self._run("cuMemMap", address, nbytes, 0, handle, 0)

    def set_access(self, address: int, nbytes: int, ordinal: int, *, writable: bool) -> None:
        """Let a device read what is mapped, or write it too; others may do what they could."""
        flags = self._api.CUmemAccess_flags
        access = self._api.CUmemAccessDesc()
        access.location = self._location(ordinal)
        access.flags = (
            flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if writable else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        )
        self._run("cuMemSetAccess", address, nbytes, [access], 1, on=ordinal)

    def unmap(self, address: int, nbytes: int) -> None:
        self._run("cuMemUnmap", address, nbytes)

    def free_address(self, address: int, nbytes: int) -> None:
        self._run("cuMemAddressFree", address, nbytes)

    def release(self, handle: int) -> None:
        self._run("cuMemRelease", handle)

    def pointer_attributes(self, ordinal: int, address: int) -> PointerAttributes:
        """Return what an address is, in the context of a device."""
        kinds = self._api.CUpointer_attribute
        wanted = [
            kinds.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            kinds.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            kinds.CU_POINTER_ATTRIBUTE_BUFFER_ID,
            kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED,
            kinds.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
            kinds.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        ]
        # A thread without a context, such as a fresh one, gets CUDA_ERROR_INVALID_CONTEXT.
        values = self._run("cuPointerGetAttributes", len(wanted), wanted, address, on=ordinal)
        memory_type, lies_on, buffer_id, managed, pool, ipc = (int(each) for each in values)
        return PointerAttributes(memory_type, lies_on, buffer_id, bool(managed), bool(pool), bool(ipc))

    def address_range(self, ordinal: int, address: int) -> tuple[int, int]:
        start, nbytes = self._run("cuMemGetAddressRange", address, on=ordinal)
        return int(start), int(nbytes)

    def get_ipc_handle(self, ordinal: int, address: int) -> bytes:
        return _bytes_of(self._run("cuIpcGetMemHandle", address, on=ordinal))

    def open_ipc_handle(self, ordinal: int, token: bytes) -> int:
        """Return the address of another process's allocation: the same each time."""
        handle = _filled("cuIpcOpenMemHandle", self._api.CUipcMemHandle(), token)
        flags = int(self._api.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return int(self._run("cuIpcOpenMemHandle", handle, flags, on=ordinal, where=f"cuda:{ordinal}"))

    def close_ipc_handle(self, ordinal: int, address: int) -> None:
        """Close what was opened, once for each time."""
        self._run("cuIpcCloseMemHandle", address, on=ordinal)

    def synchronize(self, ordinal: int) -> None:
        self._run("cuCtxSynchronize", on=ordinal)

    @contextlib.contextmanager
    def _current(self, ordinal: int) -> Iterator[None]:
        with self.beside_captures():
            self._ask("cuCtxPushCurrent", self._context(ordinal))
            try:
                yield
            finally:
                self._ask("cuCtxPopCurrent")

    def _context(self, ordinal: int) -> Any:
        # The primary context is the one that CuPy, numba and the runtime use; it is kept for good.
        context = self._contexts.get(ordinal)
        if context is None:
            context = self._contexts[ordinal] = self._ask("cuDevicePrimaryCtxRetain", self._device(ordinal))
        return context

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        free, total = self._run("cuMemGetInfo", on=ordinal)
        return int(free), int(total)

    def can_reach(self, ordinal: int, peer: int) -> bool:
        return bool(self._ask("cuDeviceCanAccessPeer", self._device(ordinal), self._device(peer)))

    def pin(self, ordinal: int, nbytes: int) -> int:
        """Return the address of host memory that every device copies from and to quickly."""
        where = f"{nbytes} bytes of the host"
        return int(self._run("cuMemHostAlloc", nbytes, _PORTABLE, on=ordinal, where=where))

    def unpin(self, ordinal: int, address: int) -> None:
        self._run("cuMemFreeHost", address, on=ordinal)

    def copy_in(self, ordinal: int, target: int, host: int, nbytes: int, stream: int) -> None:
        self._run("cuMemcpyHtoDAsync", target, host, nbytes, stream, on=ordinal)

    def copy_out(self, ordinal: int, host: int, source: int, nbytes: int, stream: int) -> None:
        self._run("cuMemcpyDtoHAsync", host, source, nbytes, stream, on=ordinal)

    def copy_peer(
        self, target: int, target_ordinal: int, source: int, source_ordinal: int, nbytes: int, stream: int
    ) -> None:
        ends = (target, self._context(target_ordinal), source, self._context(source_ordinal))
        self._run("cuMemcpyPeerAsync", *ends, nbytes, stream, on=source_ordinal)

    def stream_create(self, ordinal: int) -> int:
        """Return a stream that does not wait for the default one."""
        flags = int(self._api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        return int(self._run("cuStreamCreate", flags, on=ordinal))

    def stream_capturing(self, ordinal: int, stream: int) -> bool:
        """Whether a graph is captured on a stream, or on one that it would wait for: recording would end that."""
        with self._current(ordinal):
            answer = self._api.cuStreamIsCapturing(stream)
        if int(answer[0]) == _IMPLICIT:  # the legacy stream, while a stream that it waits for is captured
            return True
        return bool(int(self._done("cuStreamIsCapturing", answer)))

    def stream_device(self, ordinal: int, stream: int) -> int:
        """Return the device of a stream that was made, asked in the context of any."""
        with self._current(ordinal):
            context = self._ask("cuStreamGetCtx", stream)
            # Version 2 of the call returns a green context beside it.
            self._ask("cuCtxPushCurrent", context[0] if isinstance(context, tuple) else context)
            try:
                return int(self._ask("cuCtxGetDevice"))
            finally:
                self._ask("cuCtxPopCurrent")

    @contextlib.contextmanager
    def beside_captures(self) -> Iterator[None]:
        """Return a block in which calls of this thread end no capture of another; its own stay protected."""
        exchange = self._api.cuThreadExchangeStreamCaptureMode
        mode = self._api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        before = self._done("cuThreadExchangeStreamCaptureMode", exchange(mode))
        try:
            yield
        finally:
            exchange(before)

    def event_create(self, ordinal: int, *, shared: bool = False) -> int:
        kinds = self._api.CUevent_flags
        flags = int(kinds.CU_EVENT_DISABLE_TIMING) | (int(kinds.CU_EVENT_INTERPROCESS) if shared else 0)
        return int(self._run("cuEventCreate", flags, on=ordinal))

    def event_destroy(self, ordinal: int, event: int) -> None:
        self._run("cuEventDestroy", event, on=ordinal)

    def event_record(self, ordinal: int, event: int, stream: int) -> None:
        self._run("cuEventRecord", event, stream, on=ordinal)

    def event_done(self, ordinal: int, event: int) -> bool:
        """Whether all work that an event stands for is done."""
        with self._current(ordinal):
            answer = self._api.cuEventQuery(event)
            if int(answer[0]) == _NOT_READY:
                return False
            self._done("cuEventQuery", answer)
            return True

    def get_ipc_event_handle(self, ordinal: int, event: int) -> bytes:
        return _bytes_of(self._run("cuIpcGetEventHandle", event, on=ordinal))

    def open_ipc_event_handle(self, ordinal: int, token: bytes) -> int:
        handle = _filled("cuIpcOpenEventHandle", self._api.CUipcEventHandle(), token)
        return int(self._run("cuIpcOpenEventHandle", handle, on=ordinal, where=f"cuda:{ordinal}"))

    def stream_wait_event(self, ordinal: int, stream: int, event: int) -> None:
        self._run("cuStreamWaitEvent", stream, event, 0, on=ordinal)


def _bytes_of(handle: Any) -> bytes:
    # Not all bindings show them, and a C string would end with the first zero.
    return ctypes.string_at(int(handle.getPtr()), _TOKEN)


def _filled(call: str, handle: Any, token: bytes) -> Any:
    if len(token) != _TOKEN:
        raise DeviceError(f"{call} failed", expected=f"{_TOKEN} bytes", found=len(token))
    ctypes.memmove(int(handle.getPtr()), token, _TOKEN)
    return handle


@functools.cache
def cuda_driver() -> CudaDriver:
    """Return the CUDA driver of this machine."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingDependency(
            "CUDA devices need cuda.bindings", hint="pip install 'bowstring[cuda13]'"
        ) from error
    try:
        return CudaDriver(driver)
    except RuntimeError as error:  # how the bindings say that there is no libcuda
        if isinstance(error, DeviceError):
            raise
        raise DeviceError("there is no CUDA driver", found=str(error)) from error
