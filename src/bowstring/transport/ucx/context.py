"""Contexts of UCX, the memory that they register, and requests.

Nothing here waits, takes a lock or starts a thread. A request keeps alive what it reads or writes.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from bowstring.memory import Buffer
from bowstring.transport.ucx.library import library
from bowstring.transport.ucx.structures import (
    ContextAttributes,
    MapParams,
    Params,
    RequestAttributes,
    Status,
)

HOST: Final = 0
CUDA: Final = 1
# By the device types of the Arrow C Device interface: ``ARROW_DEVICE_CUDA``.
MEMORY_TYPES: Final = {2: CUDA}

_API: Final = (1, 22)
_FIRST_ERROR: Final = (1 << 64) - 100
_INFO_BYTES: Final = 512
# Flags, an operation, its memory and length; how and by what it moves; what UCX expects of that.
_PROTOCOL: Final = re.compile(r" length \d+ (.+?) [\d.]+ MB/s")
_READ_ONLY: Final = MapParams.LOCAL_READ | MapParams.REMOTE_READ


class Failure(Exception):
    """A call of UCX failed."""

    def __init__(self, status: int, doing: str) -> None:
        super().__init__(f"{doing}: {library().words(status)}")
        self.status = status


def check(status: int, doing: str) -> None:
    """Raise `Failure` unless a call went well."""
    if status != Status.OK:
        raise Failure(status, doing)


class Request:
    """Something that was begun; it is asked whether it is done."""

    __slots__ = ("_doing", "_kept", "_pointer", "_status")

    def __init__(self, pointer: int | None, doing: str, kept: object = None) -> None:
        if pointer and pointer >= _FIRST_ERROR:
            raise Failure(pointer - (1 << 64), doing)
        self._pointer = pointer
        self._status: int = Status.OK
        self._doing = doing
        self._kept = kept if pointer else None

    @property
    def done(self) -> bool:
        """Whether it is done; its worker must be alive."""
        if self._pointer:
            self._status = library().request_check_status(self._pointer)
            if self._status == Status.IN_PROGRESS:
                return False
            library().request_free(self._pointer)
            self._pointer = self._kept = None
        check(self._status, self._doing)
        return True

    def protocol(self) -> str:
        """Return how UCX moves the data, such as ``rendezvous zero-copy read from remote cma/memory``; else empty.

        UCX tells it to the sender, or the reader of remote memory, and not to the receiver of a message.
        """
        if not self._pointer:
            return ""
        text = ctypes.create_string_buffer(_INFO_BYTES)
        asked = RequestAttributes(
            field_mask=RequestAttributes.INFO_STRING | RequestAttributes.INFO_STRING_SIZE,
            debug_string=ctypes.cast(text, ctypes.c_char_p),
            debug_string_size=_INFO_BYTES,
        )
        if library().request_query(self._pointer, ctypes.byref(asked)) != Status.OK:
            return ""
        match = _PROTOCOL.search(text.value.decode(errors="replace"))
        return match[1] if match is not None else ""


DONE: Final = Request(None, "")


class Context:
    """What UCX knows of this machine and its settings."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._library = library()
        config = ctypes.c_void_p()
        check(self._library.config_read(None, None, ctypes.byref(config)), "reading the settings of UCX")
        try:
            for name, value in (settings or {}).items():
                status = self._library.config_modify(config, name.encode(), value.encode())
                check(status, f"UCX_{name}={value}")
            asked = Params(
                field_mask=Params.FEATURES | Params.MT_WORKERS_SHARED,
                features=Params.TAG | Params.AM | Params.RMA | Params.WAKEUP,
                mt_workers_shared=1,
            )
            handle = ctypes.c_void_p()
            status = self._library.init_version(*_API, ctypes.byref(asked), config, ctypes.byref(handle))
            check(status, "opening UCX")
        finally:
            self._library.config_release(config)
        self.handle = handle.value

    @property
    def memory_types(self) -> int:
        """Bits of the kinds of memory that can be sent, bit ``HOST`` and bit ``CUDA`` among them."""
        asked = ContextAttributes(field_mask=ContextAttributes.MEMORY_TYPES)
        check(self._library.context_query(self.handle, ctypes.byref(asked)), "asking UCX")
        return int(asked.memory_types)

    def close(self) -> None:
        """Let go of it; its workers must be closed."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._library.cleanup(handle)


class Mapped:
    """Memory that peers can read, and the key that they need."""

    def __init__(self, context: Context, address: int, nbytes: int, memory_type: int = HOST) -> None:
        ucp = library()
        self._context = context
        handle = ctypes.c_void_p()
        asked = MapParams(
            field_mask=MapParams.ADDRESS | MapParams.LENGTH | MapParams.PROT | MapParams.MEMORY_TYPE,
            address=address,
            length=nbytes,
            prot=_READ_ONLY,
            memory_type=memory_type,
        )
        check(ucp.mem_map(context.handle, ctypes.byref(asked), ctypes.byref(handle)), "mapping memory")
        self._handle = handle.value
        packed, size = ctypes.c_void_p(), ctypes.c_size_t()
        try:
            check(
                ucp.rkey_pack(context.handle, handle, ctypes.byref(packed), ctypes.byref(size)),
                "packing a key",
            )
        except Failure:
            self.close()
            raise
        assert packed.value is not None
        self.key = ctypes.string_at(packed.value, size.value)
        ucp.rkey_buffer_release(packed)

    def close(self) -> None:
        """Let nobody read it any more."""
        handle, self._handle = self._handle, None
        if handle is not None and self._context.handle is not None:
            library().mem_unmap(self._context.handle, handle)


def address_of(view: bytes | memoryview | Buffer) -> int:
    """Return where bytes lie."""
    if isinstance(view, Buffer):
        return view.address
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address
