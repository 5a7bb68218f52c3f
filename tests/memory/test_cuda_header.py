"""What CUDA's own header says of each number and size that we rely on, and the bindings' word for the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bowstring.memory.cuda import bindings as cuda_driver
from bowstring.memory.cuda import driver_device, ipc
from bowstring.memory.cuda.device import CUDA_DEVICE_TYPE
from bowstring.memory.handle import IPC_TOKEN_BYTES
from tests.memory.cuda_api import bindings
from tests.memory.cuda_header import find_header

# Name in the header, and our number.
NUMBERS = {
    "CUDA_SUCCESS": cuda_driver._SUCCESS,
    "CUDA_ERROR_OUT_OF_MEMORY": cuda_driver._OUT_OF_MEMORY,
    "CUDA_ERROR_NOT_READY": cuda_driver._NOT_READY,
    "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED": cuda_driver._CAPTURE.start,
    "CUDA_ERROR_CAPTURED_EVENT": cuda_driver._CAPTURE.stop - 2,
    "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD": cuda_driver._CAPTURE.stop - 1,
    "CU_MEMORYTYPE_DEVICE": ipc._DEVICE_MEMORY,
    "CU_EVENT_DISABLE_TIMING": 2,
    "CU_EVENT_INTERPROCESS": 4,
    "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS": 1,
    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR": 1,
    "CU_MEM_ALLOCATION_TYPE_PINNED": 1,
    "CU_MEM_LOCATION_TYPE_DEVICE": 1,
    "CU_MEM_ACCESS_FLAGS_PROT_READ": 1,
    "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": 3,
    "CU_MEM_ALLOC_GRANULARITY_MINIMUM": 0,
    "CU_POINTER_ATTRIBUTE_MEMORY_TYPE": 2,
    "CU_POINTER_ATTRIBUTE_BUFFER_ID": 7,
    "CU_POINTER_ATTRIBUTE_IS_MANAGED": 8,
    "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL": 9,
    "CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE": 10,
    "CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE": 17,
    "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 102,
    "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 103,
}
ENUMERATIONS = (
    *("CUresult", "CUmemorytype", "CUevent_flags", "CUipcMem_flags", "CUmemAllocationHandleType"),
    *("CUmemAllocationType", "CUmemLocationType", "CUmemAccess_flags", "CUmemAllocationGranularity_flags"),
    *("CUpointer_attribute", "CUdevice_attribute"),
)


@pytest.fixture(scope="module")
def header() -> str:
    """Return the text of CUDA's header without its comments, or skip."""
    path = find_header()
    if path is None:
        pytest.skip("CUDA's header is not here")
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(errors="replace"), flags=re.DOTALL)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_header_has_our_numbers(header: str, name: str) -> None:
    """Each status, flag and attribute has the number by which we know it."""
    found = re.search(rf"\b{name}\s*=\s*(0x[0-9a-fA-F]+|\d+)", header)
    assert found is not None
    assert int(found[1], 0) == NUMBERS[name]


@pytest.mark.parametrize("name", NUMBERS)
def test_the_bindings_have_our_numbers(name: str) -> None:
    """The installed bindings call it so, and mean the same."""
    [kind] = [each for each in ENUMERATIONS if hasattr(getattr(bindings, each), name)]
    assert int(getattr(getattr(bindings, kind), name)) == NUMBERS[name]


def test_sizes_and_what_is_no_enumerator(header: str) -> None:
    """Handles have 64 bytes; memory is pinned for all contexts by 1; DLPack numbers the default stream as CUDA."""
    assert re.search(r"#define\s+CU_IPC_HANDLE_SIZE\s+64\b", header)
    for name in ("CUipcMemHandle_st", "CUipcEventHandle_st"):
        assert re.search(rf"{name}\s*{{\s*char\s+reserved\[CU_IPC_HANDLE_SIZE\];\s*}}", header)
    assert {cuda_driver._TOKEN, IPC_TOKEN_BYTES, ipc._EVENT.size - 20} == {64}
    assert re.search(r"#define\s+CU_MEMHOSTALLOC_PORTABLE\s+0x01\b", header)
    assert cuda_driver._PORTABLE == 1
    assert re.search(r"#define\s+CU_STREAM_LEGACY\s+\(\(CUstream\)0x1\)", header)
    assert driver_device._DEFAULT_STREAM == 1
    assert re.search(r"CUuuid_st\s*{\s*char\s+bytes\[16\];\s*}", header)
    assert CUDA_DEVICE_TYPE == 2  # kDLCUDA, of dlpack.h


@pytest.mark.parametrize(
    "name",
    sorted(
        set(re.findall(r'_(?:ask|run|done)\(\s*"(cu\w+)"', Path(cuda_driver.__file__).read_text("utf-8")))
    ),
)
def test_every_call_is_there(header: str, name: str) -> None:
    """What we call is declared by the header, and known to the installed bindings."""
    assert hasattr(bindings, name)
    assert re.search(rf"\bCUDAAPI\s+{name}\(", header)
