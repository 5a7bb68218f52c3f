"""Listeners of UCX, and addresses of sockets as it takes them."""

from __future__ import annotations

import collections
import ctypes
import errno
import functools
import ipaddress
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from bowstring.transport.tcp import spelled
from bowstring.transport.ucx.context import check
from bowstring.transport.ucx.library import library
from bowstring.transport.ucx.structures import (
    ConnectionCallback,
    ConnectionRequestAttributes,
    ListenerAttributes,
    ListenerParams,
    Status,
)

if TYPE_CHECKING:
    from bowstring.transport.ucx.worker import Worker


class ConnectionRequest(NamedTuple):
    """A client that wants to come in."""

    handle: int
    address: str
    client_id: int


class ListenerHandle:
    """Where clients come in."""

    def __init__(self, worker: Worker, host: str, port: int) -> None:
        self._library = library()
        self.requests: collections.deque[ConnectionRequest] = collections.deque()
        self._callback = ConnectionCallback(functools.partial(_take_client, self.requests))
        raw = ctypes.create_string_buffer(packed_address(host, port))
        asked = ListenerParams(field_mask=ListenerParams.SOCK_ADDR | ListenerParams.CONN_HANDLER)
        asked.sockaddr.addr = ctypes.addressof(raw)
        asked.sockaddr.addrlen = len(raw.raw) - 1
        asked.conn_handler.cb = ctypes.cast(self._callback, ctypes.c_void_p)
        handle = ctypes.c_void_p()
        check(
            self._library.listener_create(worker.handle, ctypes.byref(asked), ctypes.byref(handle)),
            f"listening on {host}:{port}",
        )
        self._handle = handle.value
        told = ListenerAttributes(field_mask=ListenerAttributes.SOCKADDR)
        check(self._library.listener_query(handle, ctypes.byref(told)), "asking a listener")
        self.address = _unpacked(told, ListenerAttributes.sockaddr.offset)

    def reject(self, request: ConnectionRequest) -> None:
        """Turn a client away."""
        self._library.listener_reject(self._handle, request.handle)

    def close(self) -> None:
        """Take no more clients; its worker must be alive."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.listener_destroy(handle)


def _take_client(requests: collections.deque[ConnectionRequest], request: int, _arg: int) -> None:
    told = ConnectionRequestAttributes(
        field_mask=ConnectionRequestAttributes.CLIENT_ADDR | ConnectionRequestAttributes.CLIENT_ID
    )
    known = library().conn_request_query(request, ctypes.byref(told)) == Status.OK
    where = spelled_address(told, ConnectionRequestAttributes.client_address.offset) if known else ""
    requests.append(ConnectionRequest(request, where, told.client_id))


def packed_address(host: str, port: int) -> bytes:
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


def spelled_address(structure: ctypes.Structure, offset: int) -> str:
    """Return the ``sockaddr_storage`` at an offset of a structure in words; empty where it is none."""
    try:
        return spelled(_unpacked(structure, offset))
    except OSError:
        return ""
