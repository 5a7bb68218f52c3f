"""Import of batches by the Arrow C Device Stream interface, one after the other, where they lie.

The producer's callbacks are called, and its structs are written into capsules of pyarrow's, so that their release
is C code. The other way there is nothing: a stream of ours would have to hand out callbacks, and each of them would
be Python code, called by whatever thread, maybe after the interpreter's end.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.columnar.interchange.capsule import address_in, device_in, empty_device_capsule, is_released
from bowstring.columnar.interchange.cudf import with_names_of_cudf
from bowstring.errors import DeviceError, UsageError
from bowstring.memory import CPU_DEVICE_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.interchange.foreign import Importer

__all__ = ["device_stream"]

_GetStruct: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GetLastError: Final = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_SCHEMA_WORDS: Final = 9


class _Struct(ctypes.Structure):
    """``struct ArrowDeviceArrayStream``."""

    _fields_ = [
        ("device_type", ctypes.c_int32),
        ("get_schema", _GetStruct),
        ("get_next", _GetStruct),
        ("get_last_error", _GetLastError),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


class _Source:
    """The stream in a capsule, which releases it when it is dropped."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule
        self._address = address_in(capsule, b"arrow_device_array_stream")
        self._struct = _Struct.from_address(self._address)
        if not self._struct.release:
            raise UsageError("the stream of a device was released, or taken by somebody else")

    def schema(self) -> pa.Schema:
        words = (ctypes.c_int64 * _SCHEMA_WORDS)()
        self._check(self._struct.get_schema(self._address, ctypes.addressof(words)), "schema")
        try:
            return pa.Schema._import_from_c(ctypes.addressof(words))
        except pa.ArrowException as error:
            raise UsageError("the data of a device are no record batches", found=str(error)) from error

    def next(self) -> Any:
        """Return a capsule with the next struct, or ``None`` at the end."""
        capsule = empty_device_capsule()
        address = address_in(capsule, b"arrow_device_array")
        self._check(self._struct.get_next(self._address, address), "batch")
        return None if is_released(address) else capsule

    def _check(self, status: int, what: str) -> None:
        if status:
            message = self._struct.get_last_error(self._address) if self._struct.get_last_error else None
            words = message.decode(errors="replace") if message else os.strerror(status)
            raise DeviceError(f"a stream of a device could not give its {what}", found=f"{words} ({status})")


def device_stream(capsule: Any, importer: Importer) -> tuple[pa.Schema, Iterator[Batch]]:
    """Return the schema of a stream and its batches, each on its device and over the producer's memory.

    Parameters
    ----------
    capsule
        What ``__arrow_c_device_stream__`` returned.
    importer
        Takes the batches.

    Raises
    ------
    UsageError
        It is no stream of record batches.
    DeviceError
        The producer failed; while iterating, too. Never an end that comes early.
    """
    source = _Source(capsule)
    schema = source.schema()
    return with_names_of_cudf(schema), _batches(source, schema, importer)


def _batches(source: _Source, schema: pa.Schema, importer: Importer) -> Iterator[Batch]:
    while (capsule := source.next()) is not None:
        named = schema.__arrow_c_schema__()
        if device_in(address_in(capsule, b"arrow_device_array"))[0] == CPU_DEVICE_TYPE:
            yield importer.batch(_on_host(named, capsule))
            continue
        batch = importer.device_batch(named, capsule)
        assert batch is not None
        del capsule
        yield batch
        del batch


def _on_host(schema: Any, capsule: Any) -> pa.RecordBatch:
    try:
        return pa.RecordBatch._import_from_c_device_capsule(schema, capsule)
    except pa.ArrowException as error:
        raise UsageError("a batch of a stream is not what its schema says", found=str(error)) from error
