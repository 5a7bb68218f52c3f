"""nvCOMP: frames decompressed by a GPU, through the C interface of versions 5 and 6.

What its headers say decides what it is given here. LZ4 is raw blocks, not frames, each by itself; on CUDA cores a
damaged one comes back with a status. On the hardware engine it is undefined what a damaged one does, so that is
never chosen. ZSTD is frames, and of damaged ones only some are found ("undefined behavior or out-of-bound errors"):
only what can be trusted may be given to it.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.errors import DeviceError
from bowstring.memory import Device

_NAMES: Final = {"lz4": "LZ4", "zstd": "Zstd"}
# Of one chunk, in and out.
_LARGEST: Final = {"lz4": (1 << 32) - 1, "zstd": (1 << 31) - 1}
CAREFUL: Final = ("lz4",)  # damaged and hostile chunks of these are found out, whatever they hold
_ON_CUDA_CORES: Final = 2
_SUCCESS: Final = 0
_LIBRARIES: Final = ("libnvcomp.so.6", "libnvcomp.so.5")
_WHEEL: Final = "nvidia.libnvcomp"
_HINT: Final = "pip install nvidia-libnvcomp-cu13, or -cu12"

_Table = npt.NDArray[np.int64]


class _Options(ctypes.Structure):
    """Options of LZ4 and of ZSTD alike: 64 bytes, the backend first, all else zero."""

    _fields_ = (("backend", ctypes.c_int), ("reserved", ctypes.c_int * 15))


class _Properties(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("cudart_version", ctypes.c_uint32))


class _Alignments(ctypes.Structure):
    _fields_ = (("input", ctypes.c_size_t), ("output", ctypes.c_size_t), ("temp", ctypes.c_size_t))


class Work(NamedTuple):
    """Chunks on a device, and where they go."""

    codec: str  # "lz4" or "zstd"
    source: int  # address on the device, as `target`
    target: int
    places: _Table  # int64, shape (chunks, 4): offset and bytes in the source, then in the target


class NvComp:
    """nvCOMP on CUDA cores; `stream` returns the handle of the stream that work is queued on, in its context."""

    def __init__(self, library: Any, stream: Callable[[], int]) -> None:
        self._library = library
        self._stream = stream
        self._options = _Options(backend=_ON_CUDA_CORES)
        properties = _Properties()
        _check("nvcompGetProperties", library.nvcompGetProperties(ctypes.byref(properties)))
        major, rest = divmod(properties.version, 1000)
        if major not in (5, 6):
            raise DeviceError("another version of nvCOMP", expected="5 or 6", found=properties.version)
        self._is_5 = major == 5
        self.name = f"nvCOMP {major}.{rest // 100}.{rest % 100}"

    def takes(self, codec: str, largest: int, place: int) -> bool:
        """Whether chunks may be as large as this, and lie at multiples of so many bytes."""
        alignments = _Alignments()
        name = f"nvcompBatched{_NAMES[codec]}DecompressGetRequiredAlignments"
        _check(name, getattr(self._library, name)(self._options, ctypes.byref(alignments)))
        return largest <= _LARGEST[codec] and not (place % alignments.input or place % alignments.output)

    def run(self, device: Device, work: Work) -> npt.NDArray[np.bool_]:
        """Decompress, wait, and return which chunks became exactly as many bytes as they should.

        After an error (`DeviceError`, or `MemoryError` without room to work in) the target has no meaning.
        """
        xp, count, stream = device.xp, len(work.places), self._stream()
        # The function takes tables of addresses and of sizes, which lie on the device, too.
        numbers = np.empty((4, count), np.int64)
        numbers[0] = work.places[:, 0] + work.source
        numbers[1] = work.places[:, 1]
        numbers[2] = work.places[:, 3]
        numbers[3] = work.places[:, 2] + work.target
        tables = device.from_host(numbers)
        # A chunk counts as failed until the library reports that it is right.
        results = xp.full(2 * count, -1, xp.int64)
        temp_bytes = self._temp_bytes(work, stream)
        temp = xp.empty(max(temp_bytes, 1), xp.uint8)
        start, each = tables.data.ptr, 8 * count
        name = f"nvcompBatched{_NAMES[work.codec]}DecompressAsync"
        status = getattr(self._library, name)(
            ctypes.c_void_p(start),
            ctypes.c_void_p(start + each),
            ctypes.c_void_p(start + 2 * each),
            ctypes.c_void_p(results.data.ptr),
            ctypes.c_size_t(count),
            ctypes.c_void_p(temp.data.ptr if temp_bytes else None),
            ctypes.c_size_t(temp_bytes),
            ctypes.c_void_p(start + 3 * each),
            self._options,
            ctypes.c_void_p(results.data.ptr + each),
            ctypes.c_void_p(stream),
        )
        _check(name, status)
        on_host = device.to_host(results)
        sizes, statuses = on_host[:count], on_host[count:].view(np.int32)[:count]
        fine: npt.NDArray[np.bool_] = (statuses == _SUCCESS) & (sizes == work.places[:, 3])
        return fine

    def _temp_bytes(self, work: Work, stream: int) -> int:
        sizes, nbytes = work.places[:, 3], ctypes.c_size_t()
        name = f"nvcompBatched{_NAMES[work.codec]}DecompressGetTempSize" + "Async" * self._is_5
        status = getattr(self._library, name)(
            ctypes.c_size_t(len(sizes)),
            ctypes.c_size_t(int(sizes.max())),
            self._options,
            ctypes.byref(nbytes),
            ctypes.c_size_t(int(sizes.sum())),
            *(() if self._is_5 else (ctypes.c_void_p(stream),)),
        )
        _check(name, status)
        return nbytes.value


def _check(name: str, status: int) -> None:
    if status != _SUCCESS:
        raise DeviceError(f"{name} failed", found=f"nvcompStatus_t {status}")


def _library() -> Any:
    """Return the library of the wheel, or of the system."""
    try:
        library = importlib.import_module(_WHEEL).load_library()
    except ImportError:
        library = None
    for name in () if library is not None else _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    if library is None:
        raise OSError(f"nvCOMP is not installed ({_HINT})")
    return library


@functools.cache
def _of_cuda() -> NvComp | str:
    from bowstring.memory.cuda.device import load_cupy

    try:
        return NvComp(_library(), lambda: int(load_cupy().cuda.get_current_stream().ptr))
    except (OSError, DeviceError, AttributeError) as error:
        return str(error)


_CUDA: Final = 2  # ARROW_DEVICE_CUDA of the C Device interface
_KINDS: dict[int, Callable[[], NvComp | str]] = {_CUDA: _of_cuda}


def register_decompressor(arrow_device_type: int, find: Callable[[], NvComp | str] | None) -> None:
    """Tell what decompresses on devices of an Arrow device type, or why nothing does; or take it back."""
    if find is None:
        _KINDS.pop(arrow_device_type, None)
    else:
        _KINDS[arrow_device_type] = find


def decompressor_of(device: Device) -> NvComp | str:
    """Return what decompresses on a device, or why nothing does."""
    find = _KINDS.get(device.arrow_device_type)
    return f"nothing decompresses on {device.name}" if find is None else find()
