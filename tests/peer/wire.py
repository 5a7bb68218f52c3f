"""Messages as bytes, written from the specification of Dissociated IPC and from ``docs/protocol.md``.

Nothing of Bowstring takes part: what the peers of this folder say and understand is a second opinion. pyarrow
reads and writes Arrow's own messages.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import os
import socket
import ssl
import struct
import tempfile
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

__all__ = [
    "END_OF_STREAM",
    "METADATA",
    "Frame",
    "Tag",
    "dialled",
    "header",
    "hello",
    "listening",
    "parts_of",
    "prefix",
    "receive",
    "send",
    "table_of",
]

END_OF_STREAM: Final = 0
METADATA: Final = 1
_WAIT: Final = 30.0
_PREFIX: Final = struct.Struct("<BI")
_HEADER: Final = struct.Struct("<3sBBBHQQ")


class Tag(enum.IntEnum):
    """Tags of ``docs/protocol.md``, section 4."""

    DATA = 0xB1000000FFFFFF01
    FREE = 0xB1000000FFFFFF04
    HELLO = 0xB1000000FFFFFF05
    ERROR = 0xB0000000FFFFFF03
    PING = 0xB0000000FFFFFF04


def header(tag: int | None, nbytes: int, attachments: int = 0) -> bytes:
    """Return the 24 bytes in front of a message (section 3)."""
    return _HEADER.pack(b"BOW", 1, int(tag is not None), 0, attachments, tag or 0, nbytes)


def prefix(kind: int, sequence: int) -> bytes:
    """Return the five bytes in front of a metadata message (specification: *Metadata Stream Sequence*)."""
    return _PREFIX.pack(kind, sequence)


def hello(**wishes: Any) -> bytes:
    """Return the hello of a reader (section 6)."""
    return json.dumps({"version": 1, **wishes}).encode()


def parts_of(table: pa.Table, options: Mapping[str, Any] | None = None) -> list[tuple[bytes, bytes | None]]:
    """Return (metadata, packed body) of each message of a table; the schema has no body."""
    sink = io.BytesIO()
    chosen = pa.ipc.IpcWriteOptions(**(options or {}))
    with pa.ipc.new_stream(sink, table.schema, options=chosen) as writer:
        writer.write_table(table)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    bodies = [None, *(each.body.to_pybytes() if each.body else b"" for each in messages[1:])]
    return [(each.metadata.to_pybytes(), body) for each, body in zip(messages, bodies, strict=True)]


def table_of(parts: Sequence[tuple[bytes, bytes]]) -> pa.Table:
    """Return the table that pyarrow reads from (metadata, body) of each message."""
    sink = io.BytesIO()
    for metadata, body in parts:
        padded = metadata + bytes(-len(metadata) % 8)
        sink.write(struct.pack("<Ii", 0xFFFF_FFFF, len(padded)) + padded + body)
    sink.write(struct.pack("<Ii", 0xFFFF_FFFF, 0))
    return pa.ipc.open_stream(sink.getvalue()).read_all()


@dataclasses.dataclass(frozen=True)
class Frame:
    """One message: its header and body, and what a region that came beside it holds."""

    data: bytes
    region: bytes | None = None

    @property
    def tag(self) -> int | None:
        """The tag, or nothing where there is none."""
        _, _, kind, _, _, tag, _ = _HEADER.unpack_from(self.data)
        return int(tag) if kind else None

    @property
    def body(self) -> bytes:
        """What follows the header."""
        return self.data[_HEADER.size :]

    @property
    def number(self) -> int:
        """The sequence number of metadata."""
        return int(_PREFIX.unpack_from(self.body)[1])

    @classmethod
    def of(cls, tag: int | None, body: bytes) -> Frame:
        """Return the frame of a message."""
        return cls(header(tag, len(body)) + body)


def receive(sock: socket.socket) -> tuple[Frame, list[int]] | None:
    """Return the next message and the descriptors beside it; or nothing where the connection ends."""
    data, fds = b"", []
    while len(data) < _HEADER.size:
        part, found = _receive(sock, _HEADER.size - len(data))
        fds += found
        if not part:
            return None
        data += part
    length = _HEADER.unpack(data)[-1]
    while len(data) < _HEADER.size + length:
        part = sock.recv(_HEADER.size + length - len(data))
        if not part:
            return None
        data += part
    return Frame(data), fds


def _receive(sock: socket.socket, nbytes: int) -> tuple[bytes, list[int]]:
    if sock.family == socket.AF_UNIX:
        part, fds, _, _ = socket.recv_fds(sock, nbytes, 16)
        return part, fds
    return sock.recv(nbytes), []


def send(sock: socket.socket, frame: Frame, fds: list[int] | None = None) -> None:
    """Send a message, with the descriptors in front of its header."""
    data = frame.data
    if fds:
        sent = socket.send_fds(sock, [data], fds)
        data = data[sent:]
    sock.sendall(data)


def listening(scheme: str) -> tuple[socket.socket, str]:
    """Return a listening socket, and its address as a transport dials it."""
    if scheme == "unix":
        listener = socket.socket(socket.AF_UNIX)
        path = os.path.join(tempfile.mkdtemp(prefix="wire-"), "s")
        listener.bind(path)
        address = f"unix:{path}"
    else:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    listener.listen()
    listener.settimeout(_WAIT)
    return listener, address


def dialled(address: str) -> socket.socket:
    """Return a socket that is connected to an address; at `tls:`, as ``SSL_CERT_FILE`` says."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(urllib.parse.unquote(rest))
    else:
        host, _, port = rest.removeprefix("//").rpartition(":")
        sock = socket.create_connection((host, int(port)), _WAIT)
        if scheme == "tls":
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
    sock.settimeout(_WAIT)
    return sock
