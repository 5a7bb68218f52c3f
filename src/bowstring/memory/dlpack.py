"""DLPack: handing out an array, wherever it lies, to be written only where nobody else reads it.

NumPy makes the capsules, over memory that hangs on the batch; then another device is written into them. So the
consumer's release calls NumPy's code, and no Python code runs then in any thread. Consumers that do not ask for
DLPack 1.0 cannot see the read-only flag, and are refused. https://dmlc.github.io/dlpack/latest/python_spec.html
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import NotExportable
from bowstring.memory.device import Interface

if TYPE_CHECKING:
    from bowstring.memory.device import Device

_HOST: Final = (1, 0)
_FIRST_VERSIONED: Final = (1, 0)
_IS_COPIED: Final = 2

# Returns the address that a capsule of a name holds.
address_in: Any = ctypes.pythonapi.PyCapsule_GetPointer
address_in.restype = ctypes.c_void_p
address_in.argtypes = [ctypes.py_object, ctypes.c_char_p]


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
    lenient: bool = False,
) -> Any:
    """Return a contiguous array as a capsule that keeps it alive, for the host or the array's own device.

    `lenient`: also for consumers that cannot see the read-only flag, to whom CuPy hands its arrays.
    """
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
    private = lenient or (device.is_host and array.flags.writeable)
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
        address = lent.data.ptr if lent.size else 0
        reads_only = versioned and not copied
        # Memory of any device can be named so, without being read.
        named = np.asarray(
            Interface((lent, reader), address, lent.shape, lent.dtype.str, read_only=reads_only)
        )
    options: dict[str, Any] = {"max_version": max_version} if versioned else {}
    try:
        capsule = named.__dlpack__(**options)
    except TypeError as error:
        raise NotExportable("DLPack 1.0 needs NumPy 2.1", found=np.__version__) from error
    try:
        struct = _Versioned.from_address(address_in(capsule, b"dltensor_versioned"))
    except ValueError:
        tensor = _Tensor.from_address(address_in(capsule, b"dltensor"))
    else:
        struct.flags |= _IS_COPIED if copied else 0
        tensor = struct.tensor
    tensor.device_type, tensor.device_id = wanted
    if wanted != _HOST and not array.size:
        tensor.data = None  # NumPy gives what is empty an address of the host
    return capsule
