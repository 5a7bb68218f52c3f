"""Workers of UCX, with Python's types.

Nothing here waits, takes a lock or starts a thread. One thread at a time may call what belongs to one worker;
callbacks run inside :meth:`Worker.progress`.
"""

from __future__ import annotations

import collections
import ctypes
import functools
from typing import Any, NamedTuple

from bowstring.transport.ucx.context import HOST, Context, Failure, Request, check
from bowstring.transport.ucx.endpoint import METADATA_ID, Endpoint
from bowstring.transport.ucx.library import library
from bowstring.transport.ucx.listener_handle import ConnectionRequest, ListenerHandle, packed_address
from bowstring.transport.ucx.structures import (
    AmHandler,
    AmReceived,
    EndpointParams,
    RequestParams,
    Status,
    TagInfo,
    WorkerParams,
)


class Probed(NamedTuple):
    """A tagged message that is there, and was taken out of those that are matched."""

    handle: int
    tag: int
    nbytes: int


class Arrived(NamedTuple):
    """An active message: its bytes, or what they can be fetched with."""

    nbytes: int
    body: bytes | None
    descriptor: int = 0


class Worker:
    """A queue of messages, and what makes them move."""

    def __init__(self, context: Context, client_id: int = 0) -> None:
        self._library = library()
        self.context = context
        asked = WorkerParams(
            field_mask=WorkerParams.THREAD_MODE | WorkerParams.FLAGS | WorkerParams.CLIENT_ID,
            thread_mode=WorkerParams.SERIALIZED,
            flags=WorkerParams.IGNORE_REQUEST_LEAK,
            client_id=client_id,
        )
        handle = ctypes.c_void_p()
        check(
            self._library.worker_create(context.handle, ctypes.byref(asked), ctypes.byref(handle)),
            "making a worker",
        )
        self.handle = handle.value
        fd = ctypes.c_int()
        self.arrived: collections.deque[Arrived] = (
            collections.deque()
        )  # active messages, filled by `progress`
        self._info = TagInfo()
        self._info_address = ctypes.addressof(self._info)
        self._plain = RequestParams()
        self._plain_address = ctypes.addressof(self._plain)
        # What the callback knows holds nothing of ours, so that a worker that is dropped goes at once.
        self._handler = AmHandler.Callback(functools.partial(_take_message, self.arrived))
        try:
            check(self._library.worker_get_efd(handle, ctypes.byref(fd)), "asking for a descriptor")
            asked_messages = AmHandler(
                field_mask=AmHandler.ID | AmHandler.FLAGS | AmHandler.CALLBACK,
                id=METADATA_ID,
                flags=AmHandler.WHOLE_MESSAGE,
                cb=ctypes.cast(self._handler, ctypes.c_void_p),
            )
            status = self._library.worker_set_am_recv_handler(handle, ctypes.byref(asked_messages))
            check(status, "taking active messages")
        except Failure:
            self.close()
            raise
        self.fd = fd.value

    def progress(self) -> int:
        """Let everything move that can; return 0 where nothing did."""
        moved: int = self._library.worker_progress(self.handle)
        return moved

    def arm(self) -> bool:
        """Have `fd` tell of what comes from now on; false where something is there already."""
        status = self._library.worker_arm(self.handle)
        if status == Status.BUSY:
            return False
        check(status, "waiting for UCX")
        return True

    def probe(self, tag: int = 0, mask: int = 0) -> Probed | None:
        """Return the oldest tagged message whose tag is `tag` where `mask` is 1, if one is there."""
        handle = self._library.tag_probe_nb(self.handle, tag, mask, 1, self._info_address)
        return None if not handle else Probed(handle, self._info.sender_tag, self._info.length)

    def receive(self, probed: Probed, address: int, memory_type: int = HOST, kept: object = None) -> Request:
        """Land a tagged message in memory of its length."""
        pointer = self._library.tag_msg_recv_nbx(
            self.handle, address, probed.nbytes, probed.handle, self._params(memory_type)
        )
        return Request(pointer, "receiving", kept)

    def fetch(self, arrived: Arrived, address: int, kept: object = None) -> Request:
        """Land an active message that came as a descriptor."""
        pointer = self._library.am_recv_data_nbx(
            self.handle, arrived.descriptor, address, arrived.nbytes, self._plain_address
        )
        return Request(pointer, "receiving", kept)

    def _params(self, memory_type: int) -> Any:
        if memory_type == HOST:
            return self._plain_address
        return ctypes.byref(RequestParams(op_attr_mask=RequestParams.MEMORY_TYPE, memory_type=memory_type))

    def drop(self, arrived: Arrived) -> None:
        """Let go of an active message that came as a descriptor and is not wanted."""
        if arrived.body is None and arrived.descriptor:
            self._library.am_data_release(self.handle, arrived.descriptor)

    def connect(self, host: str, port: int, *, watched: bool = False) -> Endpoint:
        """Begin to connect to a listener; `watched` must be the same at both ends.

        It is ``UCP_ERR_HANDLING_MODE_PEER``, with which UCX uses no shared memory. Without it the end of a peer is
        noticed too, as the connection to its listener ends.
        """
        raw = ctypes.create_string_buffer(packed_address(host, port))
        asked = EndpointParams(
            field_mask=EndpointParams.FLAGS | EndpointParams.SOCK_ADDR,
            flags=EndpointParams.CLIENT_SERVER | EndpointParams.SEND_CLIENT_ID,
        )
        asked.sockaddr.addr = ctypes.addressof(raw)
        asked.sockaddr.addrlen = len(raw.raw) - 1
        return Endpoint(self, asked, watched=watched)

    def accept(self, request: ConnectionRequest, *, watched: bool = False) -> Endpoint:
        """Take a client that came to a listener, of whatever worker."""
        asked = EndpointParams(
            field_mask=EndpointParams.FLAGS | EndpointParams.CONN_REQUEST,
            flags=EndpointParams.NO_LOOPBACK,
            conn_request=request.handle,
        )
        return Endpoint(self, asked, watched=watched)

    def listen(self, host: str, port: int) -> ListenerHandle:
        """Listen on an address; clients come inside `progress`."""
        return ListenerHandle(self, host, port)

    def close(self) -> None:
        """Let go of it, with all endpoints; what was not done never will be."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._library.worker_destroy(handle)


def _take_message(
    arrived: collections.deque[Arrived],
    _arg: int,
    _header: int,
    _header_length: int,
    data: int,
    nbytes: int,
    param: Any,
) -> int:
    """Take an active message; its bytes are UCX's again when this returns, unless it came as a descriptor."""
    if param.contents.recv_attr & AmReceived.RENDEZVOUS:
        arrived.append(Arrived(nbytes, None, data))
        return Status.IN_PROGRESS
    arrived.append(Arrived(nbytes, ctypes.string_at(data, nbytes) if nbytes else b""))
    return Status.OK
