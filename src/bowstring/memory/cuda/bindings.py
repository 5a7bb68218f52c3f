"""The driver of CUDA devices: calls of ``cuda.bindings``, whose statuses become errors."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bowstring.errors import DeviceError, MissingDependency, OutOfBudget
from bowstring.memory.cuda.driver import Capturing, PointerAttributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")
_SUCCESS: Final = 0
_OUT_OF_MEMORY: Final = 2
_NOT_READY: Final = 600
_PORTABLE: Final = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context
_TOKEN: Final = 64  # bytes of a CUipcMemHandle, and of a CUipcEventHandle
_ALLOCATING: Final = ("cuMemCreate", "cuMemAlloc", "cuMemHostAlloc")
_CAPTURE: Final = range(900, 909)  # CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and the like
_IMPLICIT: Final = 906  # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT


def _lenient(call: Callable[..., _T]) -> Callable[..., _T]:
    """Make a method that needs no context one that ends no capture of another thread."""

    @functools.wraps(call)
    def method(self: CudaDriver, *arguments: Any) -> _T:
        with self.beside_captures():
            return call(self, *arguments)

    return method


class CudaDriver:
    """The driver of this machine, from :func:`cuda_driver`. Every call ends no capture of another thread.

    A handle may be released as soon as it is mapped or exported: mappings, handles and descriptors each keep the
    memory. Calls raise `DeviceError`; `create`, `allocate_private` and `pin` also `OutOfBudget`.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        self._done("cuInit", api.cuInit(0))
        self._contexts: dict[int, Any] = {}
        self._asks_rdma: dict[int, bool] = {}
        self.direct_rdma: dict[int, bool] = {}

    def _done(self, call: str, result: tuple[Any, ...], *, where: str | None = None) -> Any:
        """Return the results of a call besides its status, or raise."""
        status, *values = result
        if int(status) == _SUCCESS:
            return values[0] if len(values) == 1 else tuple(values)
        kind: type[DeviceError | OutOfBudget] = DeviceError
        if int(status) == _OUT_OF_MEMORY and call in _ALLOCATING:
            kind = OutOfBudget
        elif int(status) in _CAPTURE:
            kind = Capturing
        raise kind(f"{call} failed", found=f"{getattr(status, 'name', status)} ({int(status)})", where=where)

    def _device(self, ordinal: int) -> Any:
        return self._done("cuDeviceGet", self._api.cuDeviceGet(ordinal), where=f"cuda:{ordinal}")

    def device_count(self) -> int:
        return int(self._done("cuDeviceGetCount", self._api.cuDeviceGetCount()))

    def device_uuid(self, ordinal: int) -> bytes:
        # The bindings of CUDA 12 have the one that knows MIG instances under a name of its own.
        get = getattr(self._api, "cuDeviceGetUuid_v2", None) or self._api.cuDeviceGetUuid
        uuid = self._done("cuDeviceGetUuid", get(self._device(ordinal)))
        return bytes(uuid.bytes)

    def device_name(self, ordinal: int) -> str:
        most = 256
        name: bytes = self._done("cuDeviceGetName", self._api.cuDeviceGetName(most, self._device(ordinal)))
        return name.split(b"\0")[0].decode(errors="replace")

    def can_export(self, ordinal: int) -> bool:
        """Whether memory can be exported as file descriptors."""
        attributes = self._api.CUdevice_attribute
        wanted = (
            attributes.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            attributes.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        )
        device = self._device(ordinal)
        return all(
            self._done("cuDeviceGetAttribute", self._api.cuDeviceGetAttribute(each, device))
            for each in wanted
        )

    def has_shared_events(self, ordinal: int) -> bool:
        """Whether other processes can open events of a device."""
        attribute = getattr(self._api.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED", None)
        if attribute is None:
            return True
        try:
            answer = self._api.cuDeviceGetAttribute(attribute, self._device(ordinal))
            return bool(self._done("cuDeviceGetAttribute", answer))
        except DeviceError:  # a driver that is older than the question
            return True

    def allocate_private(self, ordinal: int, nbytes: int) -> int:
        """Return the address of memory that no other process can open."""
        with self._current(ordinal):
            answer = self._api.cuMemAlloc(nbytes)
            return int(self._done("cuMemAlloc", answer, where=f"cuda:{ordinal}, {nbytes} bytes"))

    def free_private(self, ordinal: int, address: int) -> None:
        with self._current(ordinal):
            self._done("cuMemFree", self._api.cuMemFree(address))

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
            attribute = (
                self._api.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
            )
            answer = self._api.cuDeviceGetAttribute(attribute, self._device(ordinal))
            can = self._asks_rdma[ordinal] = bool(self._done("cuDeviceGetAttribute", answer))
        return can

    def _note_rdma(self, ordinal: int, handle: int) -> None:
        """Take note whether the first memory of a device is what was asked for."""
        if ordinal in self.direct_rdma:
            return
        self.direct_rdma[ordinal] = False
        if not self._can_rdma(ordinal):
            return
        with contextlib.suppress(DeviceError):
            answer = self._api.cuMemGetAllocationPropertiesFromHandle(handle)
            properties = self._done("cuMemGetAllocationPropertiesFromHandle", answer)
            self.direct_rdma[ordinal] = bool(properties.allocFlags.gpuDirectRDMACapable)

    @property
    def _fd_type(self) -> Any:
        return self._api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

    def granularity(self, ordinal: int) -> int:
        least = self._api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        # The device will be used: a process that cannot have a context there fails here.
        with self._current(ordinal):
            answer = self._api.cuMemGetAllocationGranularity(self._properties(ordinal), least)
            return int(self._done("cuMemGetAllocationGranularity", answer))

    def create(self, ordinal: int, nbytes: int) -> int:
        """Make memory that can be exported; return its handle."""
        with self._current(ordinal):
            answer = self._api.cuMemCreate(nbytes, self._properties(ordinal), 0)
            handle = int(self._done("cuMemCreate", answer, where=f"cuda:{ordinal}, {nbytes} bytes"))
        self._note_rdma(ordinal, handle)
        return handle

    @_lenient
    def export(self, handle: int) -> int:
        """Return a file descriptor of some memory, owned by the caller."""
        answer = self._api.cuMemExportToShareableHandle(handle, self._fd_type, 0)
        fd = int(self._done("cuMemExportToShareableHandle", answer))
        os.set_inheritable(fd, False)  # programs that this process starts must not keep the memory
        return fd

    @_lenient
    def import_(self, fd: int) -> int:
        """Return a handle of a descriptor's memory; the descriptor stays open."""
        answer = self._api.cuMemImportFromShareableHandle(fd, self._fd_type)
        return int(self._done("cuMemImportFromShareableHandle", answer))

    @_lenient
    def reserve(self, nbytes: int) -> int:
        return int(self._done("cuMemAddressReserve", self._api.cuMemAddressReserve(nbytes, 0, 0, 0)))

    @_lenient
    def map(self, address: int, nbytes: int, handle: int) -> None:
        self._done("cuMemMap", self._api.cuMemMap(address, nbytes, 0, handle, 0))

    def set_access(self, address: int, nbytes: int, ordinal: int, *, writable: bool) -> None:
        """Let a device read what is mapped, or write it too; others may do what they could."""
        flags = self._api.CUmemAccess_flags
        access = self._api.CUmemAccessDesc()
        access.location = self._location(ordinal)
        access.flags = (
            flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if writable else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        )
        with self._current(ordinal):
            self._done("cuMemSetAccess", self._api.cuMemSetAccess(address, nbytes, [access], 1))

    @_lenient
    def unmap(self, address: int, nbytes: int) -> None:
        self._done("cuMemUnmap", self._api.cuMemUnmap(address, nbytes))

    @_lenient
    def free_address(self, address: int, nbytes: int) -> None:
        self._done("cuMemAddressFree", self._api.cuMemAddressFree(address, nbytes))

    @_lenient
    def release(self, handle: int) -> None:
        self._done("cuMemRelease", self._api.cuMemRelease(handle))

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
        with self._current(ordinal):
            answer = self._api.cuPointerGetAttributes(len(wanted), wanted, address)
            values = self._done("cuPointerGetAttributes", answer)
        memory_type, lies_on, buffer_id, managed, pool, ipc = (int(each) for each in values)
        return PointerAttributes(memory_type, lies_on, buffer_id, bool(managed), bool(pool), bool(ipc))

    def address_range(self, ordinal: int, address: int) -> tuple[int, int]:
        with self._current(ordinal):
            start, nbytes = self._done("cuMemGetAddressRange", self._api.cuMemGetAddressRange(address))
        return int(start), int(nbytes)

    def get_ipc_handle(self, ordinal: int, address: int) -> bytes:
        with self._current(ordinal):
            handle = self._done("cuIpcGetMemHandle", self._api.cuIpcGetMemHandle(address))
        return _bytes_of(handle)

    def open_ipc_handle(self, ordinal: int, token: bytes) -> int:
        """Return the address of another process's allocation: the same each time."""
        handle = _filled("cuIpcOpenMemHandle", self._api.CUipcMemHandle(), token)
        flags = self._api.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        with self._current(ordinal):
            answer = self._api.cuIpcOpenMemHandle(handle, int(flags))
            return int(self._done("cuIpcOpenMemHandle", answer, where=f"cuda:{ordinal}"))

    def close_ipc_handle(self, ordinal: int, address: int) -> None:
        """Close what was opened, once for each time."""
        with self._current(ordinal):
            self._done("cuIpcCloseMemHandle", self._api.cuIpcCloseMemHandle(address))

    def synchronize(self, ordinal: int) -> None:
        with self._current(ordinal):
            self._done("cuCtxSynchronize", self._api.cuCtxSynchronize())

    def _context(self, ordinal: int) -> Any:
        # The primary context is the one that CuPy, numba and the runtime use; it is kept for good.
        context = self._contexts.get(ordinal)
        if context is None:
            retained = self._api.cuDevicePrimaryCtxRetain(self._device(ordinal))
            context = self._contexts[ordinal] = self._done("cuDevicePrimaryCtxRetain", retained)
        return context

    @contextlib.contextmanager
    def _current(self, ordinal: int) -> Iterator[None]:
        with self.beside_captures():
            self._done("cuCtxPushCurrent", self._api.cuCtxPushCurrent(self._context(ordinal)))
            try:
                yield
            finally:
                self._done("cuCtxPopCurrent", self._api.cuCtxPopCurrent())

    def memory_info(self, ordinal: int) -> tuple[int, int]:
        with self._current(ordinal):
            free, total = self._done("cuMemGetInfo", self._api.cuMemGetInfo())
        return int(free), int(total)

    def can_reach(self, ordinal: int, peer: int) -> bool:
        answer = self._api.cuDeviceCanAccessPeer(self._device(ordinal), self._device(peer))
        return bool(self._done("cuDeviceCanAccessPeer", answer))

    def pin(self, ordinal: int, nbytes: int) -> int:
        """Return the address of host memory that every device copies from and to quickly."""
        with self._current(ordinal):
            answer = self._api.cuMemHostAlloc(nbytes, _PORTABLE)
            return int(self._done("cuMemHostAlloc", answer, where=f"{nbytes} bytes of the host"))

    def unpin(self, ordinal: int, address: int) -> None:
        with self._current(ordinal):
            self._done("cuMemFreeHost", self._api.cuMemFreeHost(address))

    def copy_in(self, ordinal: int, target: int, host: int, nbytes: int, stream: int) -> None:
        with self._current(ordinal):
            self._done("cuMemcpyHtoDAsync", self._api.cuMemcpyHtoDAsync(target, host, nbytes, stream))

    def copy_out(self, ordinal: int, host: int, source: int, nbytes: int, stream: int) -> None:
        with self._current(ordinal):
            self._done("cuMemcpyDtoHAsync", self._api.cuMemcpyDtoHAsync(host, source, nbytes, stream))

    def copy_peer(
        self, target: int, target_ordinal: int, source: int, source_ordinal: int, nbytes: int, stream: int
    ) -> None:
        ends = (target, self._context(target_ordinal), source, self._context(source_ordinal))
        with self._current(source_ordinal):
            self._done("cuMemcpyPeerAsync", self._api.cuMemcpyPeerAsync(*ends, nbytes, stream))

    def stream_create(self, ordinal: int) -> int:
        """Return a stream that does not wait for the default one."""
        flags = int(self._api.CUstream_flags.CU_STREAM_NON_BLOCKING)
        with self._current(ordinal):
            return int(self._done("cuStreamCreate", self._api.cuStreamCreate(flags)))

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
            # Version 2 of the call returns a green context beside it.
            context = self._done("cuStreamGetCtx", self._api.cuStreamGetCtx(stream))
            self._done("cuCtxPushCurrent", self._api.cuCtxPushCurrent(_first(context)))
            try:
                return int(self._done("cuCtxGetDevice", self._api.cuCtxGetDevice()))
            finally:
                self._done("cuCtxPopCurrent", self._api.cuCtxPopCurrent())

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

    def _is_ready(self, call: str, result: tuple[Any, ...]) -> bool:
        if int(result[0]) == _NOT_READY:
            return False
        self._done(call, result)
        return True

    def event_create(self, ordinal: int, *, shared: bool = False) -> int:
        kinds = self._api.CUevent_flags
        flags = int(kinds.CU_EVENT_DISABLE_TIMING)
        if shared:
            flags |= int(kinds.CU_EVENT_INTERPROCESS)
        with self._current(ordinal):
            return int(self._done("cuEventCreate", self._api.cuEventCreate(flags)))

    def event_destroy(self, ordinal: int, event: int) -> None:
        with self._current(ordinal):
            self._done("cuEventDestroy", self._api.cuEventDestroy(event))

    def event_record(self, ordinal: int, event: int, stream: int) -> None:
        with self._current(ordinal):
            self._done("cuEventRecord", self._api.cuEventRecord(event, stream))

    def event_done(self, ordinal: int, event: int) -> bool:
        """Whether all work that an event stands for is done."""
        with self._current(ordinal):
            return self._is_ready("cuEventQuery", self._api.cuEventQuery(event))

    def get_ipc_event_handle(self, ordinal: int, event: int) -> bytes:
        with self._current(ordinal):
            handle = self._done("cuIpcGetEventHandle", self._api.cuIpcGetEventHandle(event))
        return _bytes_of(handle)

    def open_ipc_event_handle(self, ordinal: int, token: bytes) -> int:
        handle = _filled("cuIpcOpenEventHandle", self._api.CUipcEventHandle(), token)
        with self._current(ordinal):
            answer = self._api.cuIpcOpenEventHandle(handle)
            return int(self._done("cuIpcOpenEventHandle", answer, where=f"cuda:{ordinal}"))

    def stream_wait_event(self, ordinal: int, stream: int, event: int) -> None:
        with self._current(ordinal):
            self._done("cuStreamWaitEvent", self._api.cuStreamWaitEvent(stream, event, 0))


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def _bytes_of(handle: Any) -> bytes:
    """Return the bytes of a handle: not all bindings show them, and a C string would end with the first zero."""
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
