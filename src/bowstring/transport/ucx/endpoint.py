"""Endpoints of UCX: the way from a worker to one peer, and keys for memory of the peer's."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.transport.ucx.context import HOST, Failure, Request, address_of, check
from bowstring.transport.ucx.library import library
from bowstring.transport.ucx.listener_handle import spelled_address
from bowstring.transport.ucx.structures import (
    EndpointAttributes,
    EndpointParams,
    ErrorCallback,
    RequestParams,
    Status,
)

if TYPE_CHECKING:
    from bowstring.memory import Buffer
    from bowstring.transport.ucx.worker import Worker

METADATA_ID: Final = 0
_SEVERAL: Final = 2
_KEY_HEAD: Final = 9
_KINDS_OF_MEMORY: Final = 10
_DISTANCE_BYTES: Final = 3
_MOST_TRANSPORTS: Final = 32


class Endpoint:
    """The way from a worker to one peer.

    It lives as long as its worker, which it keeps.
    """

    def __init__(self, worker: Worker, asked: EndpointParams, *, watched: bool) -> None:
        self._library = library()
        self._worker = worker
        self._failures: list[int] = []
        self._callback = ErrorCallback(functools.partial(_take_failure, self._failures))
        asked.field_mask |= EndpointParams.ERR_HANDLING_MODE | EndpointParams.ERR_HANDLER
        asked.err_mode = EndpointParams.MODE_PEER if watched else EndpointParams.MODE_NONE
        asked.err_handler.cb = ctypes.cast(self._callback, ctypes.c_void_p)
        handle = ctypes.c_void_p()
        check(self._library.ep_create(worker.handle, ctypes.byref(asked), ctypes.byref(handle)), "connecting")
        self.handle = handle.value

    @property
    def failed(self) -> str:
        """Why the peer was lost, in words; empty while it was not. It becomes known inside `progress`."""
        return self._library.words(self._failures[0]) if self._failures else ""

    def send(
        self,
        tag: int | None,
        views: Sequence[bytes | memoryview | Buffer],
        memory_type: int = HOST,
        *,
        sync: bool = False,
    ) -> Request:
        """Begin to send a tagged message, or with ``tag=None`` an active one; views are read until it is done.

        With `sync` the request is done only when the peer has matched the message.
        """
        if len(views) < _SEVERAL:
            place, count, datatype = address_of(views[0]) if views else 0, len(views[0]) if views else 0, 0
            kept: object = views
        else:
            pieces = np.array([(address_of(view), len(view)) for view in views], np.uint64)
            place, count, datatype = pieces.ctypes.data, len(pieces), RequestParams.IOV
            kept = (views, pieces)
        asked = RequestParams(op_attr_mask=RequestParams.MEMORY_TYPE, memory_type=memory_type)
        if datatype:
            asked.op_attr_mask |= RequestParams.DATATYPE
            asked.datatype = datatype
        if tag is None:
            pointer = self._library.am_send_nbx(
                self.handle, METADATA_ID, None, 0, place, count, ctypes.byref(asked)
            )
        else:
            send = self._library.tag_send_sync_nbx if sync else self._library.tag_send_nbx
            pointer = send(self.handle, place, count, tag, ctypes.byref(asked))
        return Request(pointer, "sending", kept)

    def flush(self) -> Request:
        """Begin to wait until all that was sent has left."""
        asked = RequestParams()
        return Request(self._library.ep_flush_nbx(self.handle, ctypes.byref(asked)), "sending")

    def key(self, packed: bytes) -> RemoteKey:
        """Return what memory of the peer is read with."""
        return RemoteKey(self, packed)

    @property
    def ways(self) -> list[str]:
        """Transports and devices that it uses, such as ``tcp/lo``; nothing before it is connected."""
        entries = (EndpointAttributes.Entry * _MOST_TRANSPORTS)()
        asked = EndpointAttributes(field_mask=EndpointAttributes.TRANSPORTS)
        asked.transports.entries = entries
        asked.transports.num_entries = _MOST_TRANSPORTS
        asked.transports.entry_size = ctypes.sizeof(EndpointAttributes.Entry)
        if self._library.ep_query(self.handle, ctypes.byref(asked)) != Status.OK:
            return []
        found = [entries[index] for index in range(asked.transports.num_entries)]
        ways = [f"{each.transport_name.decode()}/{each.device_name.decode()}" for each in found]
        return list(dict.fromkeys(ways))

    @property
    def peer(self) -> str:
        """The address of the peer, empty while it is not known."""
        asked = EndpointAttributes(field_mask=EndpointAttributes.REMOTE_SOCKADDR)
        if self._library.ep_query(self.handle, ctypes.byref(asked)) != Status.OK:
            return ""
        return spelled_address(asked, EndpointAttributes.remote_sockaddr.offset)

    def close(self, *, force: bool) -> Request:
        """Begin to close: at once, or when all was sent. The endpoint must not be used any more."""
        asked = RequestParams()
        if force:
            asked.op_attr_mask, asked.flags = RequestParams.FLAGS, RequestParams.FORCE_CLOSE
        handle, self.handle = self.handle, None
        return Request(self._library.ep_close_nbx(handle, ctypes.byref(asked)), "closing", self._callback)


class RemoteKey:
    """What memory of a peer is read with."""

    def __init__(self, endpoint: Endpoint, packed: bytes) -> None:
        if _end_of_domains(packed) is None:
            raise Failure(Status.INVALID_PARAM, "reading a remote key")
        self._endpoint = endpoint
        handle = ctypes.c_void_p()
        check(library().ep_rkey_unpack(endpoint.handle, packed, ctypes.byref(handle)), "reading a remote key")
        self._handle = handle.value

    def get(
        self, address: int, nbytes: int, remote: int, memory_type: int = HOST, kept: object = None
    ) -> Request:
        """Begin to read `nbytes` at `remote`, an address of the peer's, into memory at `address`."""
        asked = RequestParams(op_attr_mask=RequestParams.MEMORY_TYPE, memory_type=memory_type)
        pointer = library().get_nbx(
            self._endpoint.handle, address, nbytes, remote, self._handle, ctypes.byref(asked)
        )
        return Request(pointer, "reading remote memory", kept)

    def close(self) -> None:
        """Let go of it; its endpoint and worker must be alive."""
        handle, self._handle = self._handle, None
        if handle is not None:
            library().rkey_destroy(handle)


def _take_failure(failures: list[int], _arg: int, _endpoint: int, status: int) -> None:
    failures.append(status)


def ends_as_key(packed: bytes) -> bool:
    """Whether bytes end as an rkey of UCX 1.22 does: a CUDA IPC handle may begin like a key, but ends otherwise.

    After the domains comes nothing, or the memory's device and 3 bytes for each device of known distance.
    """
    end = _end_of_domains(packed)
    if end is None:
        return False
    devices = packed[end + 1 :: _DISTANCE_BYTES]
    return len(packed) == end or (
        (len(packed) - end) % _DISTANCE_BYTES == 1
        and all(first < second for first, second in itertools.pairwise(devices))
    )


def _end_of_domains(packed: bytes) -> int | None:
    """Return where the domains of an rkey end, whose lengths UCX believes; ``None`` where the bytes are none.

    A set of memory domains in 8 bytes, the kind of memory, and for each domain a length and so many bytes.
    """
    if len(packed) < _KEY_HEAD or packed[_KEY_HEAD - 1] >= _KINDS_OF_MEMORY:
        return None
    at = _KEY_HEAD
    for _ in range(int.from_bytes(packed[:8], "little").bit_count()):
        if at >= len(packed):
            return None
        at += 1 + packed[at]
    return at if at <= len(packed) else None
