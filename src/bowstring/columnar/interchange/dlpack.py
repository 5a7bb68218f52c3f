"""DLPack: handing out an array, wherever it lies, to be written only where nobody else reads it.

NumPy makes the capsules, over memory that hangs on the batch; then another device is written into them. So the
consumer's release calls NumPy's code, and no Python code runs then in any thread. Consumers that do not ask for
DLPack 1.0 cannot see the read-only flag, and are refused. https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.columnar.interchange.capsule import address_in
from bowstring.columnar.parts import batch_parts
from bowstring.errors import NotExportable, warn_caller

if TYPE_CHECKING:
    from bowstring.columnar.parts import BatchData
    from bowstring.memory import Device

_HOST: Final = (1, 0)
_FIRST_VERSIONED: Final = (1, 0)
_IS_COPIED: Final = 2


class _Tensor(ctypes.Structure):
    """``struct DLTensor`` of DLPack 1.0."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """``struct DLManagedTensorVersioned``; what has no version begins with the tensor."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class _Elsewhere:
    """Memory of any device as NumPy can name it, without reading it; it keeps alive what it is given."""

    __slots__ = ("__array_interface__", "kept")

    def __init__(self, kept: object, array: Any, *, read_only: bool) -> None:
        self.kept = kept
        self.__array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.data.ptr if array.size else 0, read_only),
            "version": 3,
        }


def warn_of_writes(batch: BatchData) -> None:
    """Warn, once in a process, of arrays over GPU memory of another process, which nothing marks as read-only."""
    mapped = any(
        region.slab is not None and not region.slab.writable for region in batch_parts(batch).spans.regions
    )
    if mapped and not batch.device.is_host:
        warn_once()


@functools.cache
def warn_once() -> None:
    """Warn of what :func:`warn_of_writes` names, when it is called first."""
    text = (
        "an array lies over GPU memory of the producer's process, and must not be written: CuPy and torch cannot "
        "mark it read-only. Where the driver maps it read-only, a kernel that writes it ends this process's work "
        "on the GPU; where it does not, all readers see what was written. connect(mode='copy') gives memory of "
        "its own."
    )
    warn_caller([text])


def device_pair(device: Device) -> tuple[int, int]:
    """Return how DLPack names a device; its types are those of the Arrow C Device interface."""
    return _HOST if device.is_host else (device.arrow_device_type, device.arrow_device_id)


def dlpack_capsule(
    array: Any,
    device: Device,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a contiguous array as a capsule that keeps it alive, for the host or the array's own device."""
    wanted = device_pair(device) if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    versioned = max_version is not None and tuple(max_version) >= _FIRST_VERSIONED
    moves = wanted != device_pair(device)
    if moves and (wanted != _HOST or copy is False):
        raise NotExportable(
            "the data are on another device",
            expected=f"device {wanted}" + (" without a copy" if copy is False else ""),
            found=device.name,
            hint="Use to_device(), which copies.",
        )
    copied = moves or bool(copy)
    private = device.is_host and array.flags.writeable
    if not (copied or versioned or private):
        raise NotExportable(
            "the data are read-only, which a consumer without DLPack 1.0 would not know",
            found=f"max_version={max_version}",
            hint="Give copy=True, or hand it `values`.",
        )
    if device.is_host and stream is not None:
        raise NotExportable("the host has no streams", found=stream)
    if device.is_host or moves:
        taken = device.to_host(array)  # it is there when this returns, whatever stream comes next
        # What came from another device is a copy already.
        named = taken.copy() if copied and device.is_host else taken
    else:
        with device.use():
            lent = array.copy() if copied else array
        reader = device.order_for(stream)
        named = np.asarray(_Elsewhere((lent, reader), lent, read_only=not copied))
    capsule = _numpy_capsule(named, max_version if versioned else None)
    tensor = _write_device(capsule, wanted, copied=copied)
    if wanted != _HOST and not array.size:
        tensor.data = None  # NumPy gives what is empty an address of the host
    return capsule


def _numpy_capsule(named: np.ndarray[Any, Any], max_version: tuple[int, int] | None) -> Any:
    if max_version is None:
        return named.__dlpack__()
    try:
        return named.__dlpack__(max_version=max_version)
    except TypeError as error:
        raise NotExportable("DLPack 1.0 needs NumPy 2.1", found=np.__version__) from error


def _write_device(capsule: Any, device: tuple[int, int], *, copied: bool) -> _Tensor:
    """Write a device, and whether it is a copy, into what NumPy made; return the tensor."""
    try:
        struct = _Versioned.from_address(address_in(capsule, b"dltensor_versioned"))
    except ValueError:
        tensor = _Tensor.from_address(address_in(capsule, b"dltensor"))
    else:
        struct.flags |= _IS_COPIED if copied else 0
        tensor = struct.tensor
    tensor.device_type, tensor.device_id = device
    return tensor
