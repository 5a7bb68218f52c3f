"""The CUDA driver's calls: what is asked of ``cuda.bindings``, whose own types and enumerations stand here."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bowstring.benchmarks.processes.child import Child
from bowstring.errors import DeviceError, InvalidRegion, NotOnDevice, OutOfBudget
from bowstring.memory import LentHandle, find_device, lendable, unpack_handle
from bowstring.memory.cuda import device as cuda
from bowstring.memory.cuda.bindings import CudaDriver
from bowstring.memory.cuda.device import CudaDevice
from bowstring.memory.cuda.driver import Capturing
from tests.memory.cuda_api import Api, bindings
from tests.memory.exporter import Exporter

MIB = 1 << 20


@pytest.fixture
def api() -> Api:
    """Return bindings that remember what they were asked."""
    return Api()


@pytest.fixture
def gpu(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    """Return the first GPU of a machine that has two."""
    driver = CudaDriver(api)
    monkeypatch.setattr(cuda, "cuda_driver", lambda: driver)
    cuda._devices.clear()
    yield cuda.cuda_device(0)
    cuda._devices.clear()
    assert api.fake.held == (0, 0, 0)


def test_a_gpu_is_known_by_its_uuid(gpu: CudaDevice) -> None:
    """A GPU is found by its UUID whatever its number, and one that this process does not see is refused by name."""
    other = cuda.cuda_device(1)
    assert (gpu.name, other.name, gpu.arrow_device_type) == ("cuda:0", "cuda:1", 2)
    assert find_device(2, other.uuid) is other
    assert find_device(2, gpu.uuid) is gpu
    with pytest.raises(NotOnDevice, match="CUDA_VISIBLE_DEVICES"):
        find_device(2, bytes(16))
    with pytest.raises(NotOnDevice, match="no such GPU"):
        cuda.cuda_device(2)
    restore, arguments = gpu.__reduce__()
    assert restore(*arguments) is gpu


@pytest.mark.usefixtures("gpu")
def test_threads_that_come_together_get_one_device(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one object for each GPU, also where several threads ask for it first: what it swept is its own."""
    together = threading.Barrier(2)
    name = api.fake.device_uuid

    def meets(ordinal: int) -> bytes:
        together.wait(10.0)
        return name(ordinal)

    monkeypatch.setattr(api.fake, "device_uuid", meets)
    found: list[CudaDevice] = []
    threads = [threading.Thread(target=lambda: found.append(cuda.cuda_device(1))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20.0)
    assert len(found) == 2
    assert found[0] is found[1]


def in_context(call: str) -> tuple[str, str, str]:
    """Return the calls that make one in the device's primary context."""
    return "cuCtxPushCurrent", call, "cuCtxPopCurrent"


def test_a_device_that_is_used_has_its_context(gpu: CudaDevice, api: Api) -> None:
    """The primary context is there before any memory is: a process that cannot have it hears of it at once."""
    assert gpu.ordinal == 0
    asked = api.made.index("cuDevicePrimaryCtxRetain")
    assert not [each for each in api.made[:asked] if each.startswith("cuMem")]
    api.refuse["cuDevicePrimaryCtxRetain"] = bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceError, match="cuDevicePrimaryCtxRetain"):
        cuda.cuda_device(1)
    with pytest.raises(NotOnDevice, match="cuDevicePrimaryCtxRetain"):
        find_device(2, api.fake.device_uuid(1))


@pytest.mark.usefixtures("no_leaks")
def test_memory_is_made_exported_and_imported(gpu: CudaDevice, api: Api) -> None:
    """Making, exporting and mapping memory asks the driver for just that, in this order, and gives all back."""
    api.made.clear()
    slab = gpu.make_slab(MIB)
    assert api.made == [
        *in_context("cuMemCreate"),
        "cuMemAddressReserve",
        "cuMemMap",
        *in_context("cuMemSetAccess"),
        "cuMemExportToShareableHandle",
        "cuMemRelease",
    ]
    api.made.clear()
    mapped = gpu.map_slab(os.dup(slab.fd), MIB, slab.uuid)
    assert (mapped.nbytes, mapped.address == slab.address, gpu.maps_read_only) == (MIB, False, True)
    assert api.made[0] == "cuMemImportFromShareableHandle"
    assert api.made[-1] == "cuMemRelease"
    api.made.clear()
    del slab, mapped
    gpu.sweep()
    # Giving back needs no context, which may be what is broken.
    waited = ("cuStreamIsCapturing", "cuEventCreate", "cuEventRecord", "cuEventQuery")
    assert api.made == [
        *(name for call in waited for name in in_context(call)),
        *["cuMemUnmap", "cuMemAddressFree"] * 2,
        *in_context("cuEventDestroy"),
    ]


def test_errors_name_the_call_and_the_status(gpu: CudaDevice, api: Api) -> None:
    """A device or a host without room is out of budget; other refusals name the driver's call and its error."""
    api.refuse["cuMemCreate"] = bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(OutOfBudget, match=r"cuMemCreate failed; found CUDA_ERROR_OUT_OF_MEMORY \(2\)"):
        gpu.make_slab(MIB)
    api.refuse["cuMemHostAlloc"] = bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(OutOfBudget, match="cuMemHostAlloc failed"):
        gpu.driver.pin(0, MIB)
    api.refuse["cuMemCreate"] = bindings.CUresult.CUDA_ERROR_INVALID_DEVICE
    with pytest.raises(DeviceError, match=r"cuMemCreate failed; found CUDA_ERROR_INVALID_DEVICE \(101\)"):
        gpu.make_slab(MIB)


def test_only_making_memory_is_out_of_budget(gpu: CudaDevice, api: Api) -> None:
    """Without room for anything else the driver refuses; memory stays until nothing is known to read it."""
    slab = gpu.make_slab(MIB)
    api.refuse["cuCtxPushCurrent"] = bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceError, match="cuCtxPushCurrent"):
        gpu.synchronize()
    del slab
    gpu.sweep()
    assert api.fake.held == (0, 1, 1)
    del api.refuse["cuCtxPushCurrent"]
    gpu.sweep()
    assert api.fake.held == (0, 0, 0)


def test_the_driver_knows_where_a_stream_is(gpu: CudaDevice, api: Api) -> None:
    """The device of a stream is that of its context, whichever is asked, and no context stays current."""
    api.fake.stream_devices = {4096: 1}
    assert [gpu.driver.stream_device(0, each) for each in (4096, 8192)] == [1, 0]
    assert api.current == []


def test_a_capture_is_no_failure(gpu: CudaDevice, api: Api) -> None:
    """While somebody captures a graph the device cannot be waited for, which says nothing about its work."""
    api.refuse["cuCtxSynchronize"] = bindings.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    with pytest.raises(Capturing, match="900"):
        gpu.synchronize()


def test_programs_inherit_no_memory(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    """A descriptor of the driver's closes where this process starts another program."""
    export = api.fake.export

    def inheritable(handle: int) -> int:
        fd = export(handle)
        os.set_inheritable(fd, True)
        return fd

    monkeypatch.setattr(api.fake, "export", inheritable)
    slab = gpu.make_slab(MIB)
    assert not os.get_inheritable(slab.fd)
    del slab
    gpu.sweep()


def test_a_gpu_that_exports_nothing_takes_copies(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without virtual memory management, or without descriptors, has memory that no other process opens."""
    monkeypatch.setattr(api, "do_cuDeviceGetAttribute", lambda _attribute, _device: 0, raising=False)
    driver = CudaDriver(api)
    monkeypatch.setattr(cuda, "cuda_driver", lambda: driver)
    cuda._devices.clear()
    gpu = cuda.cuda_device(0)
    assert (gpu.exports, driver.has_shared_events(0)) == (False, False)
    slab = gpu.make_slab(1000)
    assert (slab.fd, slab.nbytes) == (-1, 1000)
    assert not {"cuMemCreate", "cuMemGetAllocationGranularity"} & set(api.made)
    del slab
    gpu.sweep()
    assert api.made[-6:] == [*in_context("cuMemFree"), *in_context("cuEventDestroy")]
    assert api.fake.allocated == 0


def test_a_capture_on_a_stream_is_seen_and_left_alone(gpu: CudaDevice, api: Api) -> None:
    """Whether a stream is captured, or waits for one that is, is asked before anything is recorded on it."""
    api.fake.begin_capture(9, blocking=True)
    assert [gpu.driver.stream_capturing(0, each) for each in (9, 0, 1, 8)] == [True, True, True, False]
    api.refuse["cuStreamIsCapturing"] = bindings.CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
    assert gpu.driver.stream_capturing(0, 0)
    api.refuse["cuStreamIsCapturing"] = bindings.CUresult.CUDA_ERROR_INVALID_HANDLE
    with pytest.raises(DeviceError, match="400"):
        gpu.driver.stream_capturing(0, 8)
    del api.refuse["cuStreamIsCapturing"]
    with pytest.raises(Capturing, match="stream 0x9"):
        gpu.wait_streams([8, 9], 1.0)
    assert api.fake.end_capture(9)
    assert api.fake.misused == []
    assert api.mode is bindings.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


@pytest.mark.usefixtures("no_leaks")
def test_memory_is_copied_in_out_and_to_a_peer(gpu: CudaDevice, api: Api) -> None:
    """Copies run in the context of the device whose stream they are queued on, and the peer is let in once."""
    other = cuda.cuda_device(1)
    driver = gpu.driver
    here, there = gpu.make_slab(MIB), other.make_slab(MIB)
    pinned = driver.pin(1, 64)
    assert driver.memory_info(0)[1] == api.fake.memory
    assert driver.can_reach(1, 0)
    ctypes.memset(pinned, 7, 64)
    api.made.clear()
    driver.copy_in(0, here.address, pinned, 64, 0)
    assert api.made[-3:] == ["cuCtxPushCurrent", "cuMemcpyHtoDAsync", "cuCtxPopCurrent"]
    gpu.let_in(here, other)
    gpu.let_in(here, other)
    assert api.made.count("cuMemSetAccess") == 1
    driver.copy_peer(there.address, 1, here.address, 0, 64, 0)
    ctypes.memset(pinned, 0, 64)
    driver.copy_out(1, pinned, there.address, 64, 0)
    assert ctypes.string_at(pinned, 64) == bytes([7]) * 64
    driver.unpin(1, pinned)
    del here, there
    gpu.sweep()
    other.sweep()


def test_memory_of_others_is_lent(gpu: CudaDevice, api: Api) -> None:
    """What an address is, its allocation and its handle are asked of the driver in its own words, in a context."""
    address = api.fake.allocate(0, 5000)
    api.made.clear()
    handle = lendable(gpu, address + 100)
    assert isinstance(handle, LentHandle)
    assert (handle.address, handle.nbytes, handle.device_uuid) == (address, 5000, gpu.uuid)
    assert handle.token == api.fake.get_ipc_handle(0, address)
    assert handle.token[:1] == b"\0"  # not cut there
    asked = [name for name in api.made if "Ctx" not in name and name != "cuDeviceGet"]
    assert asked == ["cuPointerGetAttributes", "cuMemGetAddressRange", "cuIpcGetMemHandle"]
    assert not api.current
    api.fake.free(address)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("async", "cudaMallocAsync"), ("managed", "managed"), ("vmm", "cuMemMap")],
)
def test_memory_without_a_handle(gpu: CudaDevice, api: Api, kind: Any, reason: str) -> None:
    """Memory of other kinds is told by its attributes alone; so is what the driver does not know."""
    address = api.fake.allocate(0, 5000, kind)
    assert reason in str(lendable(gpu, address))
    api.fake.free(address)
    assert lendable(gpu, address) == "memory that is not the device's"


def test_lent_memory_is_opened_and_closed(gpu: CudaDevice, api: Api) -> None:
    """A handle is opened with peer access, its size asked for, and closed by a sweep, each in a context."""
    with Child(Exporter) as child:
        handle = unpack_handle(bytes.fromhex(child.call("allocate", value=6)[1]))
        assert isinstance(handle, LentHandle)
        api.made.clear()
        slab = gpu.open_lent(handle)
        assert (slab.nbytes, slab.uuid, slab.writable, slab.fd) == (1000, handle.uuid, False, -1)
        asked = [name for name in api.made if "Ctx" not in name and name != "cuDeviceGet"]
        assert asked == ["cuIpcOpenMemHandle", "cuMemGetAddressRange"]
        del slab
        api.made.clear()
        gpu.sweep()
        asked = [name for name in api.made if "CtxP" not in name and name != "cuDeviceGet"]
        assert asked[-3:] == ["cuEventQuery", "cuIpcCloseMemHandle", "cuEventDestroy"]
        api.refuse["cuIpcOpenMemHandle"] = bindings.CUresult.CUDA_ERROR_MAP_FAILED
        with pytest.raises(InvalidRegion, match=r"CUDA_ERROR_MAP_FAILED \(205\).*MIG"):
            gpu.open_lent(handle)
        assert not api.current
    with pytest.raises(DeviceError, match="64 bytes"):
        gpu.driver.open_ipc_handle(0, bytes(63))


def test_events_are_asked_of_the_driver_in_the_context(gpu: CudaDevice, api: Api) -> None:
    """Events are made without times, recorded, waited for and destroyed, each in the device's primary context."""
    driver = gpu.driver
    gpu.synchronize()
    api.made.clear()
    event = driver.event_create(0)
    driver.event_record(0, event, 7)
    driver.stream_wait_event(0, 9, event)
    driver.event_destroy(0, event)
    assert api.made == [
        name
        for call in ("cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy")
        for name in in_context(call)
    ]
    assert (list(api.fake.waits), api.fake.held_events) == ([(9, event)], set())


def test_events_are_shared_with_other_processes(gpu: CudaDevice, api: Api) -> None:
    """Of an event for others the 64 bytes go out whole; theirs are opened, waited for, and destroyed by a sweep."""
    mine = gpu.driver.event_create(0, shared=True)
    gpu.driver.event_record(0, mine, 0)
    token = gpu.driver.get_ipc_event_handle(0, mine)
    assert (len(token), token[:1]) == (64, b"\0")  # not cut there
    assert gpu.driver.event_done(0, mine)
    api.refuse["cuEventQuery"] = bindings.CUresult.CUDA_ERROR_NOT_READY
    assert not gpu.driver.event_done(0, mine)
    api.refuse["cuEventQuery"] = bindings.CUresult.CUDA_ERROR_LAUNCH_FAILED
    with pytest.raises(DeviceError, match="cuEventQuery"):
        gpu.driver.event_done(0, mine)
    with Child(Exporter) as child:
        theirs = bytes.fromhex(child.call("event"))
        opened = gpu.open_event(theirs)
        gpu.wait_event(opened.address, 9)
        assert list(api.fake.waits) == [(9, opened.address)]
        event = opened.address
        del opened
        assert event in api.fake.held_events
        gpu.sweep()
        assert event not in api.fake.held_events
        with pytest.raises(DeviceError, match="64 bytes"):
            gpu.driver.open_ipc_event_handle(0, theirs[:-1])
    gpu.driver.event_destroy(0, mine)
    assert not api.current
