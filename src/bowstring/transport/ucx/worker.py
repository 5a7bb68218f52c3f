"""Contexts, workers, endpoints, listeners and requests of UCX, with Python's types.

Nothing here waits, takes a lock or starts a thread. One thread at a time may call what belongs to one worker;
callbacks run inside :meth:`Worker.progress`. A request keeps alive what it reads or writes.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import functools
import ipaddress
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.transport.tcp import spelled
from bowstring.transport.ucx.library import (
    AmHandler,
    AmReceived,
    ConnectionCallback,
    ConnectionRequestAttributes,
    ContextAttributes,
    EndpointAttributes,
    EndpointParams,
    ErrorCallback,
    ListenerAttributes,
    ListenerParams,
    MapParams,
    Params,
    RequestAttributes,
    RequestParams,
    Status,
    TagInfo,
    WorkerParams,
    library,
)

__all__ = [
    "CUDA",
    "DONE",
    "HOST",
    "Arrived",
    "ConnectionRequest",
    "Context",
    "Endpoint",
    "Failure",
    "ListenerHandle",
    "Mapped",
    "Probed",
    "RemoteKey",
    "Request",
    "Worker",
]

HOST: Final = 0
CUDA: Final = 1

_API: Final = (1, 22)
_FIRST_ERROR: Final = (1 << 64) - 100
_METADATA_ID: Final = 0
_SEVERAL: Final = 2
_INFO_BYTES: Final = 512
_KEY_HEAD: Final = 9
_KINDS_OF_MEMORY: Final = 10
_MOST_TRANSPORTS: Final = 32
_READ_ONLY: Final = MapParams.LOCAL_READ | MapParams.REMOTE_READ


class Failure(Exception):
    """A call of UCX failed.

    Attributes
    ----------
    status
        Why.
    """

    def __init__(self, status: int, doing: str) -> None:
        super().__init__(f"{doing}: {library().words(status)}")
        self.status = status


def _check(status: int, doing: str) -> None:
    if status != Status.OK:
        raise Failure(status, doing)


class Request:
    """Something that was begun; it is asked whether it is done.

    Parameters
    ----------
    pointer
        What UCX returned: nothing where it is done, a status, or a request.
    doing
        What it is, for errors.
    kept
        What must live until it is done.

    Raises
    ------
    Failure
        It failed at once.
    """

    __slots__ = ("_doing", "_kept", "_pointer")

    def __init__(self, pointer: int | None, doing: str, kept: object = None) -> None:
        if pointer and pointer >= _FIRST_ERROR:
            raise Failure(pointer - (1 << 64), doing)
        self._pointer = pointer
        self._doing = doing
        self._kept = kept if pointer else None

    @property
    def done(self) -> bool:
        """Whether it is done; its worker must be alive.

        Raises
        ------
        Failure
            It failed.
        """
        if not self._pointer:
            return True
        status = library().request_check_status(self._pointer)
        if status == Status.IN_PROGRESS:
            return False
        library().request_free(self._pointer)
        self._pointer = self._kept = None
        _check(status, self._doing)
        return True

    def protocol(self) -> str:
        """Return how UCX moves it, in its own words; empty where it does not say so, or is done."""
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
        return text.value.decode(errors="replace")

    def cancel(self, worker: Worker) -> None:
        """Ask for its end, which comes with progress."""
        if self._pointer:
            library().request_cancel(worker.handle, self._pointer)


DONE: Final = Request(None, "")


class Context:
    """What UCX knows of this machine and its settings.

    Parameters
    ----------
    settings
        By name without ``UCX_``; they stand before those of the environment.

    Raises
    ------
    MissingDependency
        libucp is not there.
    Failure
        UCX cannot be used so: there is no such transport, for example.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._library = library()
        config = ctypes.c_void_p()
        _check(self._library.config_read(None, None, ctypes.byref(config)), "reading the settings of UCX")
        try:
            for name, value in (settings or {}).items():
                status = self._library.config_modify(config, name.encode(), value.encode())
                _check(status, f"UCX_{name}={value}")
            asked = Params(
                field_mask=Params.FEATURES | Params.MT_WORKERS_SHARED,
                features=Params.TAG | Params.AM | Params.RMA | Params.WAKEUP,
                mt_workers_shared=1,
            )
            handle = ctypes.c_void_p()
            status = self._library.init_version(*_API, ctypes.byref(asked), config, ctypes.byref(handle))
            _check(status, "opening UCX")
        finally:
            self._library.config_release(config)
        self.handle = handle.value

    @property
    def memory_types(self) -> int:
        """Bits of the kinds of memory that can be sent, bit ``HOST`` and bit ``CUDA`` among them."""
        asked = ContextAttributes(field_mask=ContextAttributes.MEMORY_TYPES)
        _check(self._library.context_query(self.handle, ctypes.byref(asked)), "asking UCX")
        return int(asked.memory_types)

    def map(self, address: int, nbytes: int, memory_type: int = HOST) -> Mapped:
        """Let peers read memory.

        Raises
        ------
        Failure
            It cannot be registered.
        """
        return Mapped(self, address, nbytes, memory_type)

    def close(self) -> None:
        """Let go of it; its workers must be closed."""
        handle, self.handle = self.handle, None
        if handle is not None:
            self._library.cleanup(handle)


class Mapped:
    """Memory that peers can read, and the key that they need.

    Attributes
    ----------
    key
        The packed rkey.
    """

    def __init__(self, context: Context, address: int, nbytes: int, memory_type: int) -> None:
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
        _check(ucp.mem_map(context.handle, ctypes.byref(asked), ctypes.byref(handle)), "mapping memory")
        self._handle = handle.value
        packed, size = ctypes.c_void_p(), ctypes.c_size_t()
        try:
            _check(
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


class ConnectionRequest(NamedTuple):
    """A client that wants to come in."""

    handle: int
    address: str
    client_id: int


class Worker:
    """A queue of messages, and what makes them move.

    Parameters
    ----------
    context
        It must live as long.
    client_id
        What servers are told of this worker.

    Attributes
    ----------
    arrived
        Active messages that came, the oldest first; put there by `progress`.
    fd
        Readable when there is progress to be made, once `arm` returned true.
    """

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
        _check(
            self._library.worker_create(context.handle, ctypes.byref(asked), ctypes.byref(handle)),
            "making a worker",
        )
        self.handle = handle.value
        fd = ctypes.c_int()
        self.arrived: collections.deque[Arrived] = collections.deque()
        self._info = TagInfo()
        self._info_address = ctypes.addressof(self._info)
        self._plain = RequestParams()
        self._plain_address = ctypes.addressof(self._plain)
        # What the callback knows holds nothing of ours, so that a worker that is dropped goes at once.
        self._handler = AmHandler.Callback(functools.partial(_take_message, self.arrived))
        try:
            _check(self._library.worker_get_efd(handle, ctypes.byref(fd)), "asking for a descriptor")
            asked_messages = AmHandler(
                field_mask=AmHandler.ID | AmHandler.FLAGS | AmHandler.CALLBACK,
                id=_METADATA_ID,
                flags=AmHandler.WHOLE_MESSAGE,
                cb=ctypes.cast(self._handler, ctypes.c_void_p),
            )
            status = self._library.worker_set_am_recv_handler(handle, ctypes.byref(asked_messages))
            _check(status, "taking active messages")
        except Failure:
            self.close()
            raise
        self.fd = fd.value

    def progress(self) -> int:
        """Let everything move that can; return 0 where nothing did."""
        moved: int = self._library.worker_progress(self.handle)
        return moved

    def arm(self) -> bool:
        """Have `fd` tell of what comes from now on; false where something is there already.

        Raises
        ------
        Failure
            The worker is broken.
        """
        status = self._library.worker_arm(self.handle)
        if status == Status.BUSY:
            return False
        _check(status, "waiting for UCX")
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
        """Begin to connect to a listener.

        Parameters
        ----------
        host, port
            The address, in numbers.
        watched
            Whether UCX handles errors of the peer (``UCP_ERR_HANDLING_MODE_PEER``); both ends must use the same
            mode. UCX then uses no shared memory. The end of a peer is noticed without it, too: the connection to
            its listener ends.
        """
        raw = ctypes.create_string_buffer(_packed(host, port))
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
        _check(
            self._library.ep_create(worker.handle, ctypes.byref(asked), ctypes.byref(handle)), "connecting"
        )
        self.handle = handle.value

    @property
    def failed(self) -> str:
        """Why the peer was lost, in words; empty while it was not. It becomes known inside `progress`."""
        return self._library.words(self._failures[0]) if self._failures else ""

    def send(
        self,
        tag: int | None,
        views: Sequence[bytes | memoryview],
        memory_type: int = HOST,
        *,
        sync: bool = False,
    ) -> Request:
        """Begin to send a tagged message, or an active one of number 0 with an empty header.

        Parameters
        ----------
        tag
            ``None`` for an active message.
        views
            What it is made of, in order; read in place until the request is done.
        memory_type
            Of all of them.
        sync
            Whether the request is done only when the peer has matched the message.
        """
        if len(views) < _SEVERAL:
            place, count, datatype = _address_of(views[0]) if views else 0, len(views[0]) if views else 0, 0
            kept: object = views
        else:
            pieces = np.array([(_address_of(view), len(view)) for view in views], np.uint64)
            place, count, datatype = pieces.ctypes.data, len(pieces), RequestParams.IOV
            kept = (views, pieces)
        asked = RequestParams(op_attr_mask=RequestParams.MEMORY_TYPE, memory_type=memory_type)
        if datatype:
            asked.op_attr_mask |= RequestParams.DATATYPE
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
        asked = RequestParams()
        return Request(self._library.ep_flush_nbx(self.handle, ctypes.byref(asked)), "sending")

    def key(self, packed: bytes) -> RemoteKey:
        """Return what memory of the peer is read with.

        Raises
        ------
        Failure
            The bytes are no key, or one for another way than there is to the peer.
        """
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
        return _spelled(asked, EndpointAttributes.remote_sockaddr.offset)

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
        if not _is_key(packed):
            raise Failure(Status.INVALID_PARAM, "reading a remote key")
        self._endpoint = endpoint
        handle = ctypes.c_void_p()
        _check(
            library().ep_rkey_unpack(endpoint.handle, packed, ctypes.byref(handle)), "reading a remote key"
        )
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


class ListenerHandle:
    """Where clients come in.

    Attributes
    ----------
    address : tuple of str and int
        Where it listens.
    requests
        Clients that came and were not taken yet, the first one first.
    """

    def __init__(self, worker: Worker, host: str, port: int) -> None:
        self._library = library()
        self.requests: collections.deque[ConnectionRequest] = collections.deque()
        self._callback = ConnectionCallback(functools.partial(_take_client, self.requests))
        raw = ctypes.create_string_buffer(_packed(host, port))
        asked = ListenerParams(field_mask=ListenerParams.SOCK_ADDR | ListenerParams.CONN_HANDLER)
        asked.sockaddr.addr = ctypes.addressof(raw)
        asked.sockaddr.addrlen = len(raw.raw) - 1
        asked.conn_handler.cb = ctypes.cast(self._callback, ctypes.c_void_p)
        handle = ctypes.c_void_p()
        _check(
            self._library.listener_create(worker.handle, ctypes.byref(asked), ctypes.byref(handle)),
            f"listening on {host}:{port}",
        )
        self._handle = handle.value
        told = ListenerAttributes(field_mask=ListenerAttributes.SOCKADDR)
        _check(self._library.listener_query(handle, ctypes.byref(told)), "asking a listener")
        self.address = _unpacked(told, ListenerAttributes.sockaddr.offset)

    def reject(self, request: ConnectionRequest) -> None:
        """Turn a client away."""
        self._library.listener_reject(self._handle, request.handle)

    def close(self) -> None:
        """Take no more clients; its worker must be alive."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.listener_destroy(handle)


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


def _take_failure(failures: list[int], _arg: int, _endpoint: int, status: int) -> None:
    failures.append(status)


def _take_client(requests: collections.deque[ConnectionRequest], request: int, _arg: int) -> None:
    told = ConnectionRequestAttributes(
        field_mask=ConnectionRequestAttributes.CLIENT_ADDR | ConnectionRequestAttributes.CLIENT_ID
    )
    known = library().conn_request_query(request, ctypes.byref(told)) == Status.OK
    where = _spelled(told, ConnectionRequestAttributes.client_address.offset) if known else ""
    requests.append(ConnectionRequest(request, where, told.client_id))


def _is_key(packed: bytes) -> bool:
    """Whether bytes have the form of an rkey, whose lengths UCX believes.

    A set of memory domains in 8 bytes, the kind of memory, and for each domain a length and so many bytes; then
    maybe devices.
    """
    if len(packed) < _KEY_HEAD or packed[_KEY_HEAD - 1] >= _KINDS_OF_MEMORY:
        return False
    at = _KEY_HEAD
    for _ in range(int.from_bytes(packed[:8], "little").bit_count()):
        if at >= len(packed):
            return False
        at += 1 + packed[at]
    return at <= len(packed)


def _address_of(view: bytes | memoryview) -> int:
    address: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return address


def _packed(host: str, port: int) -> bytes:
    """Return a ``sockaddr`` (netinet/in.h)."""
    found = ipaddress.ip_address(host.partition("%")[0])
    if found.version == 4:
        return struct.pack("@H", socket.AF_INET) + struct.pack("!H", port) + found.packed + bytes(8)
    scope = int(host.partition("%")[2] or 0)
    return (
        struct.pack("@H", socket.AF_INET6)
        + struct.pack("!HI", port, 0)
        + found.packed
        + struct.pack("@I", scope)
    )


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


def _spelled(structure: ctypes.Structure, offset: int) -> str:
    try:
        return spelled(_unpacked(structure, offset))
    except OSError:
        return ""
