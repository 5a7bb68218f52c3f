# ruff: noqa: N802  the driver's own names
"""The bindings of CUDA's driver over a fake one: their own types, enumerations and ways to be called."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import pytest

from bowstring.testing.fake_driver import FakeDriver

bindings: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda.bindings is not installed")

SUCCESS = bindings.CUresult.CUDA_SUCCESS


class Api(types.SimpleNamespace):
    """The bindings, with memory of a fake driver behind their calls, and a list of those that were made."""

    def __init__(self) -> None:
        super().__init__(
            **{name: getattr(bindings, name) for name in dir(bindings) if not name.startswith("cu")}
        )
        self.fake = FakeDriver()
        self.made: list[str] = []
        self.refuse: dict[str, Any] = {}
        self.current: list[str] = []
        self.mode = bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or not hasattr(bindings, name):
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            if name == "cuThreadExchangeStreamCaptureMode":
                self.mode, before = arguments[0], self.mode
                return SUCCESS, before
            # While another thread captures a graph, such calls are safe in this mode alone.
            beside = self.mode is bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            assert beside or name == "cuInit" or name.startswith("cuDevice"), name
            self.made.append(name)
            if name in self.refuse:
                return (self.refuse[name], None)
            found = getattr(self, f"do_{name}")(*arguments)
            if found is None:
                return (SUCCESS,)
            return (SUCCESS, *found) if isinstance(found, tuple) else (SUCCESS, found)

        return call

    def do_cuInit(self, flags: int) -> None:
        assert flags == 0

    def do_cuDeviceGet(self, ordinal: int) -> Any:
        return bindings.CUdevice(ordinal)

    def do_cuDeviceGetCount(self) -> int:
        return self.fake.device_count()

    def do_cuDeviceGetUuid(self, device: Any) -> Any:
        return types.SimpleNamespace(bytes=self.fake.device_uuid(int(device)))

    def do_cuDeviceGetName(self, most: int, device: Any) -> bytes:
        return self.fake.device_name(int(device)).encode().ljust(most, b"\0")

    def do_cuDeviceGetAttribute(self, attribute: Any, device: Any) -> int:
        assert int(device) in (0, 1)
        return int(int(attribute) in (102, 103, 125))  # virtual memory, POSIX file descriptors, IPC events

    def do_cuMemAlloc(self, nbytes: int) -> Any:
        assert self.current
        return bindings.CUdeviceptr(self.fake.allocate_private(0, nbytes))

    def do_cuMemFree(self, address: int) -> None:
        assert self.current
        self.fake.free_private(0, address)

    def do_cuMemGetAllocationGranularity(self, properties: Any, option: Any) -> int:
        self.check(properties)
        assert int(option) == 0
        return self.fake.granularity(properties.location.id)

    def check(self, properties: Any) -> None:
        """Check what kind of memory is asked for: pinned on a device, to be exported as a descriptor."""
        kinds = int(properties.type), int(properties.requestedHandleTypes), int(properties.location.type)
        assert kinds == (1, 1, 1)

    def do_cuMemCreate(self, nbytes: int, properties: Any, flags: int) -> int:
        self.check(properties)
        assert flags == 0
        return self.fake.create(properties.location.id, nbytes)

    def do_cuMemExportToShareableHandle(self, handle: int, kind: Any, flags: int) -> int:
        assert (int(kind), flags) == (1, 0)
        return self.fake.export(handle)

    def do_cuMemImportFromShareableHandle(self, fd: int, kind: Any) -> int:
        assert int(kind) == 1
        return self.fake.import_(fd)

    def do_cuMemAddressReserve(self, nbytes: int, alignment: int, address: int, flags: int) -> int:
        assert (alignment, address, flags) == (0, 0, 0)
        return self.fake.reserve(nbytes)

    def do_cuMemMap(self, address: int, nbytes: int, offset: int, handle: int, flags: int) -> None:
        assert (offset, flags) == (0, 0)
        self.fake.map(address, nbytes, handle)

    def do_cuMemSetAccess(self, address: int, nbytes: int, access: list[Any], count: int) -> None:
        [one] = access
        assert (count, int(one.location.type)) == (1, 1)
        writable = {1: False, 3: True}[int(one.flags)]
        self.fake.set_access(address, nbytes, one.location.id, writable=writable)

    def do_cuMemUnmap(self, address: int, nbytes: int) -> None:
        self.fake.unmap(address, nbytes)

    def do_cuMemAddressFree(self, address: int, nbytes: int) -> None:
        self.fake.free_address(address, nbytes)

    def do_cuMemRelease(self, handle: int) -> None:
        self.fake.release(handle)

    def do_cuMemGetInfo(self) -> Any:
        return self.fake.memory_info(0)

    def do_cuDeviceCanAccessPeer(self, device: Any, peer: Any) -> int:
        return int(self.fake.can_reach(int(device), int(peer)))

    def do_cuMemHostAlloc(self, nbytes: int, flags: int) -> int:
        assert self.current == ["context 1"]  # not that of a GPU which nobody uses
        assert flags == 1  # for every context
        return self.fake.pin(0, nbytes)

    def do_cuMemFreeHost(self, address: int) -> None:
        self.fake.unpin(0, address)

    def do_cuMemcpyHtoDAsync(self, target: int, host: int, nbytes: int, stream: int) -> None:
        self.fake.copy_in(0, target, host, nbytes, stream)

    def do_cuMemcpyDtoHAsync(self, host: int, source: int, nbytes: int, stream: int) -> None:
        self.fake.copy_out(0, host, source, nbytes, stream)

    def do_cuMemcpyPeerAsync(self, target: int, there: str, source: int, here: str, *rest: int) -> None:
        nbytes, stream = rest
        self.fake.copy_peer(target, int(there[-1]), source, int(here[-1]), nbytes, stream)

    def do_cuStreamCreate(self, flags: int) -> int:
        assert flags == int(bindings.CUstream_flags.CU_STREAM_NON_BLOCKING)
        return self.fake.stream_create(0)

    def do_cuStreamIsCapturing(self, stream: int) -> Any:
        return bindings.CUstreamCaptureStatus(int(self.fake.stream_capturing(0, stream)))

    def do_cuStreamGetCtx(self, stream: int) -> str:
        assert self.current
        return f"context {self.fake.stream_device(int(self.current[-1][-1]), stream)}"

    def do_cuCtxGetDevice(self) -> Any:
        return bindings.CUdevice(int(self.current[-1][-1]))

    def do_cuPointerGetAttributes(self, count: int, wanted: list[Any], address: int) -> list[Any]:
        assert self.current
        found = self.fake.pointer_attributes(0, address)
        answers = {
            "MEMORY_TYPE": bindings.CUmemorytype(found.memory_type) if found.memory_type else 0,
            "DEVICE_ORDINAL": found.ordinal,
            "BUFFER_ID": found.buffer_id,
            "IS_MANAGED": int(found.is_managed),
            "MEMPOOL_HANDLE": bindings.CUmemoryPool(4096 if found.is_pooled else 0),
            "IS_LEGACY_CUDA_IPC_CAPABLE": int(found.has_ipc),
        }
        assert count == len(wanted)
        return [answers[each.name.removeprefix("CU_POINTER_ATTRIBUTE_")] for each in wanted]

    def do_cuMemGetAddressRange(self, address: int) -> tuple[Any, int]:
        assert self.current
        start, nbytes = self.fake.address_range(0, address)
        return bindings.CUdeviceptr(start), nbytes

    def do_cuIpcGetMemHandle(self, address: int) -> Any:
        assert self.current
        handle = bindings.CUipcMemHandle()
        ctypes.memmove(int(handle.getPtr()), self.fake.get_ipc_handle(0, address), 64)
        return handle

    def do_cuIpcOpenMemHandle(self, handle: Any, flags: int) -> Any:
        assert self.current
        assert flags == 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only one there is
        return bindings.CUdeviceptr(self.fake.open_ipc_handle(0, ctypes.string_at(int(handle.getPtr()), 64)))

    def do_cuIpcCloseMemHandle(self, address: int) -> None:
        assert self.current
        self.fake.close_ipc_handle(0, address)

    def do_cuDevicePrimaryCtxRetain(self, device: Any) -> str:
        return f"context {int(device)}"

    def do_cuCtxPushCurrent(self, context: str) -> None:
        assert context.startswith("context")
        self.current.append(context)

    def do_cuCtxSynchronize(self) -> None:
        self.fake.synchronize(0)

    def do_cuCtxPopCurrent(self) -> str:
        return self.current.pop()

    def do_cuEventCreate(self, flags: int) -> int:
        assert flags in (
            2,
            6,
        )  # no times: those who wait need none, and it is cheaper; 4 more for other processes
        return self.fake.event_create(0, shared=flags == 6)

    def do_cuEventQuery(self, event: int) -> None:
        assert self.fake.event_done(0, event)

    def do_cuIpcGetEventHandle(self, event: int) -> Any:
        assert self.current
        handle = bindings.CUipcEventHandle()
        ctypes.memmove(int(handle.getPtr()), self.fake.get_ipc_event_handle(0, event), 64)
        return handle

    def do_cuIpcOpenEventHandle(self, handle: Any) -> Any:
        assert self.current
        token = ctypes.string_at(int(handle.getPtr()), 64)
        return bindings.CUevent(self.fake.open_ipc_event_handle(0, token))

    def do_cuEventDestroy(self, event: int) -> None:
        self.fake.event_destroy(0, event)

    def do_cuEventRecord(self, event: int, stream: int) -> None:
        self.fake.event_record(0, event, stream)

    def do_cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        assert flags == 0
        self.fake.stream_wait_event(0, stream, event)
