"""A producer of Arrow's C Device streams, as a library in C would be one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from bowstring.columnar.batch import Batch
from tests.columnar.capsules import STRUCT_BYTES, address_in

__all__ = ["Producer"]

_NEW = ctypes.pythonapi.PyCapsule_New
_NEW.restype, _NEW.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_TAKING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SAYING = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_ENDING = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_DEVICE_ARRAY_BYTES = 128
_EIO = 5


class _Stream(ctypes.Structure):
    _fields_ = [
        ("device_type", ctypes.c_int32),
        ("get_schema", _TAKING),
        ("get_next", _TAKING),
        ("get_last_error", _SAYING),
        ("release", _ENDING),
        ("private_data", ctypes.c_void_p),
    ]


class Producer:
    """Gives batches of any devices as one stream; then, or in place of its schema, it fails if told so.

    Its capsule has no destructor, as that would be Python code: the test holds the producer.
    """

    def __init__(self, schema: pa.Schema, batches: Iterable[Batch], fail: str | None = None) -> None:
        self.schema = schema
        self.fail = fail
        self.given = 0
        self._batches: Iterator[Batch] = iter(batches)
        self._message = ctypes.create_string_buffer(b"the disk is on fire")
        self._stream = _Stream(
            12,
            _TAKING(self._get_schema),
            _TAKING(self._get_next),
            _SAYING(lambda _: None if self.fail == "silent" else ctypes.addressof(self._message)),
            _ENDING(lambda _: None),
            None,
        )

    def _get_schema(self, _: int, out: int) -> int:
        if self.fail == "schema":
            return _EIO
        self.schema._export_to_c(out)
        return 0

    def _get_next(self, _: int, out: int) -> int:
        batch = next(self._batches, None)
        if batch is None:
            if self.fail:
                return _EIO
            ctypes.memset(out, 0, _DEVICE_ARRAY_BYTES)
            return 0
        self.given += 1
        capsule = batch.__arrow_c_device_array__()[1]
        address = address_in(capsule, b"arrow_device_array")
        ctypes.memmove(out, address, _DEVICE_ARRAY_BYTES)
        ctypes.memset(address + STRUCT_BYTES - 16, 0, 8)  # moved
        return 0

    def release(self) -> None:
        """Mark the stream as released."""
        self._stream.release = _ENDING()

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **_: Any) -> Any:
        return _NEW(ctypes.addressof(self._stream), b"arrow_device_array_stream", None)
