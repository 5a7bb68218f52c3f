"""Workers of UCX, their listeners, and endpoints: the way from a worker to one peer; with Python's types.

Nothing here waits, takes a lock or starts a thread. One thread at a time may call what belongs to one worker;
callbacks run inside :meth:`Worker.progress`.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import functools
import ipaddress
import itertools
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.transport.tcp import spelled
from bowstring.transport.ucx import structures as ucp
from bowstring.transport.ucx.context import HOST, Context, Failure, Request, address_of, check
from bowstring.transport.ucx.library import library

if TYPE_CHECKING:
    from bowstring.memory import Buffer

_METADATA_ID: Final = 0
_SEVERAL: Final = 2
_KEY_HEAD: Final = 9
_KINDS_OF_MEMORY: Final = 10
_DISTANCE_BYTES: Final = 3
_MOST_TRANSPORTS: Final = 32


class ConnectionRequest(NamedTuple):
    """A client that wants to come in."""

    handle: int
    address: str
    client_id: int


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
        asked = ucp.WorkerParams(
            field_mask=ucp.WorkerParams.THREAD_MODE | ucp.WorkerParams.FLAGS | ucp.WorkerParams.CLIENT_ID,
            thread_mode=ucp.WorkerParams.SERIALIZED,
            flags=ucp.WorkerParams.IGNORE_REQUEST_LEAK,
            client_id=client_id,
        )
        handle = ctypes.c_void_p()
        check(
            self._library.worker_create(context.handle, ctypes.byref(asked), ctypes.byref(handle)),
            "making a worker",
        )
        self.handle = handle.value
        fd = ctypes.c_int()
        # Active messages, which `progress` takes.
        self.arrived: collections.deque[Arrived] = collections.deque()
        self._info = ucp.TagInfo()
        self._info_address = ctypes.addressof(self._info)
        self._plain = ucp.RequestParams()
        # What the callback knows holds nothing of ours, so that a worker that is dropped goes at once.
        self._handler = ucp.AmHandler.Callback(functools.partial(_take_message, self.arrived))
        try:
            check(self._library.worker_get_efd(handle, ctypes.byref(fd)), "asking for a descriptor")
            asked_messages = ucp.AmHandler(
                field_mask=ucp.AmHandler.ID | ucp.AmHandler.FLAGS | ucp.AmHandler.CALLBACK,
                id=_METADATA_ID,
                flags=ucp.AmHandler.WHOLE_MESSAGE,
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
        if status == ucp.Status.BUSY:
            return False
        check(status, "waiting for UCX")
        return True

    def probe(self, tag: int = 0, mask: int = 0) -> Probed | None:
        """Return the oldest tagged message whose tag is `tag` where `mask` is 1, if one is there."""
        handle = self._library.tag_probe_nb(self.handle, tag, mask, 1, self._info_address)
        return None if not handle else Probed(handle, self._info.sender_tag, self._info.length)

    def receive(self, probed: Probed, address: int, memory_type: int = HOST, kept: object = None) -> Request:
        """Land a tagged message in memory of its length."""
        params = self._plain
        if memory_type != HOST:
            params = ucp.RequestParams(op_attr_mask=ucp.RequestParams.MEMORY_TYPE, memory_type=memory_type)
        pointer = self._library.tag_msg_recv_nbx(
            self.handle, address, probed.nbytes, probed.handle, ctypes.byref(params)
        )
        return Request(pointer, "receiving", kept)

    def fetch(self, arrived: Arrived, address: int, kept: object = None) -> Request:
        """Land an active message that came as a descriptor."""
        pointer = self._library.am_recv_data_nbx(
            self.handle, arrived.descriptor, address, arrived.nbytes, ctypes.byref(self._plain)
        )
        return Request(pointer, "receiving", kept)

    def connect(self, host: str, port: int) -> Endpoint:
        """Begin to connect to a listener."""
        raw = _packed(host, port)
        asked = ucp.EndpointParams(
            field_mask=ucp.EndpointParams.FLAGS | ucp.EndpointParams.SOCK_ADDR,
            flags=ucp.EndpointParams.CLIENT_SERVER | ucp.EndpointParams.SEND_CLIENT_ID,
        )
        asked.sockaddr.addr, asked.sockaddr.addrlen = ctypes.addressof(raw), len(raw)
        return Endpoint(self, asked)

    def accept(self, request: ConnectionRequest) -> Endpoint:
        """Take a client that came to a listener, of whatever worker."""
        asked = ucp.EndpointParams(
            field_mask=ucp.EndpointParams.FLAGS | ucp.EndpointParams.CONN_REQUEST,
            flags=ucp.EndpointParams.NO_LOOPBACK,
            conn_request=request.handle,
        )
        return Endpoint(self, asked)

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
    if param.contents.recv_attr & ucp.AmReceived.RENDEZVOUS:
        arrived.append(Arrived(nbytes, None, data))
        return ucp.Status.IN_PROGRESS
    arrived.append(Arrived(nbytes, ctypes.string_at(data, nbytes) if nbytes else b""))
    return ucp.Status.OK


class ListenerHandle:
    """Where clients come in."""

    def __init__(self, worker: Worker, host: str, port: int) -> None:
        self._library = library()
        self.requests: collections.deque[ConnectionRequest] = collections.deque()
        self._callback = ucp.ConnectionCallback(functools.partial(_take_client, self.requests))
        raw = _packed(host, port)
        asked = ucp.ListenerParams(field_mask=ucp.ListenerParams.SOCK_ADDR | ucp.ListenerParams.CONN_HANDLER)
        asked.sockaddr.addr, asked.sockaddr.addrlen = ctypes.addressof(raw), len(raw)
        asked.conn_handler.cb = ctypes.cast(self._callback, ctypes.c_void_p)
        handle = ctypes.c_void_p()
        check(
            self._library.listener_create(worker.handle, ctypes.byref(asked), ctypes.byref(handle)),
            f"listening on {host}:{port}",
        )
        self._handle = handle.value
        told = ucp.ListenerAttributes(field_mask=ucp.ListenerAttributes.SOCKADDR)
        check(self._library.listener_query(handle, ctypes.byref(told)), "asking a listener")
        self.address = _unpacked(told, ucp.ListenerAttributes.sockaddr.offset)

    def reject(self, request: ConnectionRequest) -> None:
        """Turn a client away."""
        self._library.listener_reject(self._handle, request.handle)

    def close(self) -> None:
        """Take no more clients; its worker must be alive."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.listener_destroy(handle)


def _take_client(requests: collections.deque[ConnectionRequest], request: int, _arg: int) -> None:
    told = ucp.ConnectionRequestAttributes(
        field_mask=ucp.ConnectionRequestAttributes.CLIENT_ADDR | ucp.ConnectionRequestAttributes.CLIENT_ID
    )
    known = library().conn_request_query(request, ctypes.byref(told)) == ucp.Status.OK
    where = _spelled_address(told, ucp.ConnectionRequestAttributes.client_address.offset) if known else ""
    requests.append(ConnectionRequest(request, where, told.client_id))


def _packed(host: str, port: int) -> ctypes.Array[ctypes.c_char]:
    """Return a ``sockaddr`` (netinet/in.h)."""
    ip, _, scope = host.partition("%")
    packed = ipaddress.ip_address(ip).packed
    if len(packed) == 4:
        raw = struct.pack("@H", socket.AF_INET) + struct.pack("!H", port) + packed + bytes(8)
    else:
        raw = struct.pack("@H", socket.AF_INET6) + struct.pack("!HI", port, 0) + packed
        raw += struct.pack("@I", int(scope or 0))
    return ctypes.create_string_buffer(raw, len(raw))


def _unpacked(structure: ctypes.Structure, offset: int) -> tuple[str, int]:
    # Fields of `c_char` end at the first zero where they are read as attributes.
    raw = bytes(memoryview(structure).cast("B"))[offset : offset + 128]
    family = struct.unpack_from("@H", raw)[0]
    port = struct.unpack_from("!H", raw, 2)[0]
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[4:8]), port
    if family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, raw[8:24]), port
    raise OSError(errno.EAFNOSUPPORT, "an address of an unknown family")


def _spelled_address(structure: ctypes.Structure, offset: int) -> str:
    """Return the ``sockaddr_storage`` at an offset of a structure in words; empty for another family."""
    try:
        return spelled(_unpacked(structure, offset))
    except OSError:
        return ""


class Endpoint:
    """The way from a worker to one peer.

    It lives as long as its worker, which it keeps.
    """

    def __init__(self, worker: Worker, asked: ucp.EndpointParams) -> None:
        self._library = library()
        self._worker = worker
        self._failures: list[int] = []
        failures = self._failures  # the callback must not hold this endpoint
        self._callback = ucp.ErrorCallback(lambda _arg, _endpoint, status: failures.append(status))
        asked.field_mask |= ucp.EndpointParams.ERR_HANDLING_MODE | ucp.EndpointParams.ERR_HANDLER
        # With MODE_PEER, UCX uses no shared memory. Without it the end of a peer is noticed too, as the connection
        # to its listener ends.
        asked.err_mode = ucp.EndpointParams.MODE_NONE
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
            place, count, datatype = pieces.ctypes.data, len(pieces), ucp.RequestParams.IOV
            kept = (views, pieces)
        asked = ucp.RequestParams(op_attr_mask=ucp.RequestParams.MEMORY_TYPE, memory_type=memory_type)
        if datatype:
            asked.op_attr_mask |= ucp.RequestParams.DATATYPE
            asked.datatype = datatype
        if tag is None:
            pointer = self._library.am_send_nbx(
                self.handle, _METADATA_ID, None, 0, place, count, ctypes.byref(asked)
            )
        else:
            send = self._library.tag_send_sync_nbx if sync else self._library.tag_send_nbx
            pointer = send(self.handle, place, count, tag, ctypes.byref(asked))
        return Request(pointer, "sending", kept)

    def flush(self) -> Request:
        """Begin to wait until all that was sent has left."""
        asked = ucp.RequestParams()
        return Request(self._library.ep_flush_nbx(self.handle, ctypes.byref(asked)), "sending")

    @property
    def ways(self) -> list[str]:
        """Transports and devices that it uses, such as ``tcp/lo``; nothing before it is connected."""
        entries = (ucp.EndpointAttributes.Entry * _MOST_TRANSPORTS)()
        asked = ucp.EndpointAttributes(field_mask=ucp.EndpointAttributes.TRANSPORTS)
        asked.transports.entries = entries
        asked.transports.num_entries = _MOST_TRANSPORTS
        asked.transports.entry_size = ctypes.sizeof(ucp.EndpointAttributes.Entry)
        if self._library.ep_query(self.handle, ctypes.byref(asked)) != ucp.Status.OK:
            return []
        known = [entries[index] for index in range(asked.transports.num_entries)]
        ways = [f"{entry.transport_name.decode()}/{entry.device_name.decode()}" for entry in known]
        return list(dict.fromkeys(ways))

    @property
    def peer(self) -> str:
        """The address of the peer, empty while it is not known."""
        asked = ucp.EndpointAttributes(field_mask=ucp.EndpointAttributes.REMOTE_SOCKADDR)
        if self._library.ep_query(self.handle, ctypes.byref(asked)) != ucp.Status.OK:
            return ""
        return _spelled_address(asked, ucp.EndpointAttributes.remote_sockaddr.offset)

    def close(self, *, force: bool) -> Request:
        """Begin to close: at once, or when all was sent. The endpoint must not be used any more."""
        asked = ucp.RequestParams()
        if force:
            asked.op_attr_mask, asked.flags = ucp.RequestParams.FLAGS, ucp.RequestParams.FORCE_CLOSE
        handle, self.handle = self.handle, None
        return Request(self._library.ep_close_nbx(handle, ctypes.byref(asked)), "closing", self._callback)


class RemoteKey:
    """What memory of a peer is read with."""

    def __init__(self, endpoint: Endpoint, packed: bytes) -> None:
        if _end_of_domains(packed) is None:
            raise Failure(ucp.Status.INVALID_PARAM, "reading a remote key")
        self._endpoint = endpoint
        handle = ctypes.c_void_p()
        check(library().ep_rkey_unpack(endpoint.handle, packed, ctypes.byref(handle)), "reading a remote key")
        self._handle = handle.value

    def get(
        self, address: int, nbytes: int, remote: int, memory_type: int = HOST, kept: object = None
    ) -> Request:
        """Begin to read `nbytes` at `remote`, an address of the peer's, into memory at `address`."""
        asked = ucp.RequestParams(op_attr_mask=ucp.RequestParams.MEMORY_TYPE, memory_type=memory_type)
        pointer = library().get_nbx(
            self._endpoint.handle, address, nbytes, remote, self._handle, ctypes.byref(asked)
        )
        return Request(pointer, "reading remote memory", kept)

    def close(self) -> None:
        """Let go of it; its endpoint and worker must be alive."""
        handle, self._handle = self._handle, None
        if handle is not None:
            library().rkey_destroy(handle)


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
    """Return where the domains of an rkey end, whose lengths UCX believes; ``None`` for other bytes.

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
