"""Half of a recorded conversation, played to a live peer."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from typing import Final, Self
from urllib.parse import parse_qsl

import pyarrow as pa

from tests.peer import wire
from tests.peer.wire import Frame, dialled, listening, receive, send
from tests.wire.transcripts import WAIT, Connection, Conversation

__all__ = ["RecordedServer", "ask", "numbered", "readdressed", "send_with_region", "table_of"]

# Not in fcntl before Python 3.13.
_F_SEAL_FUTURE_WRITE: Final = 0x10
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
# The top byte of the tags of bodies.
_BODIES: Final = (0, 1)


# Tags of requests for data.
_WANTS: Final = range(0xB1000000FFFFFF01, 0xB1000000FFFFFF04)


def opening_of(connection: Connection) -> list[Frame]:
    """Return what the reader of a connection said up to its request for data, which is the last of these."""
    said = connection.said("reader")
    return said[: next(index for index, frame in enumerate(said) if frame.tag in _WANTS) + 1]


def want_of(connection: Connection) -> int:
    """Return the tag with which the reader of a connection asked for data."""
    tag = opening_of(connection)[-1].tag
    assert tag is not None
    return tag


class RecordedServer:
    """Says to live readers, so many, what the server of a conversation said, and notes what they say."""

    def __init__(self, conversation: Conversation, times: int = 1) -> None:
        self._times = times
        self._connections = {want_of(each): each for each in conversation.connections}
        scheme = conversation.uri.partition(":")[0]
        self._listener, self._address = listening(scheme)
        self.heard: list[Frame] = []
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        self.uri = readdressed(conversation.uri, self._address)

    def _accept(self) -> None:
        try:
            for _ in range(self._times * len(self._connections)):
                sock, _ = self._listener.accept()
                sock.settimeout(WAIT)
                self._threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
                self._threads[-1].start()
        except OSError as error:
            self._errors.append(error)

    def _serve(self, sock: socket.socket) -> None:
        try:
            with sock:
                connection = None
                while connection is None and (received := receive(sock)) is not None:
                    self.heard.append(received[0])
                    connection = self._connections.get(received[0].tag or 0)
                assert connection is not None, "the reader asked for nothing"
                for frame in connection.said("server"):
                    send_with_region(sock, frame)
                while (received := receive(sock)) is not None:
                    self.heard.append(received[0])
        except (OSError, AssertionError) as error:
            self._errors.append(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        if self._address.startswith("unix:"):
            shutil.rmtree(os.path.dirname(self._address.removeprefix("unix:")))
        assert kind is not None or not self._errors, self._errors


def readdressed(uri: str, address: str) -> str:
    """Return an endpoint's URI with another address: it stands at its head, and in the URI of the bodies."""
    head, _, query = uri.partition("?")
    fields = dict(parse_qsl(query))
    text = uri.replace(head, address, 1)
    if "data" in fields:
        quoted = "".join(f"%{byte:02X}" if chr(byte) in ":/" else chr(byte) for byte in head.encode())
        moved = "".join(f"%{byte:02X}" if chr(byte) in ":/" else chr(byte) for byte in address.encode())
        assert quoted in text
        text = text.replace(quoted, moved)
    return text


def send_with_region(sock: socket.socket, frame: Frame) -> None:
    if frame.region is None:
        send(sock, frame)
        return
    fd = os.memfd_create("recorded", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(fd, frame.region)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        send(sock, frame, [fd])
    finally:
        os.close(fd)


def ask(conversation: Conversation, address: str, ticket: bytes) -> list[Connection]:
    """Say to a live server what the reader of a conversation said; return what passed on each connection.

    What the reader said after its request is said when the live server has sent all.
    """
    live: list[tuple[socket.socket, Connection]] = []
    for recorded in conversation.connections:
        *before, want = opening_of(recorded)
        said = [*before, Frame.of(want.tag, ticket)]
        connection = Connection([("reader", frame) for frame in said])
        sock = dialled(address)
        for frame in connection.said("reader"):
            send(sock, frame)
        live.append((sock, connection))
    for (sock, connection), recorded in zip(live, conversation.connections, strict=True):
        with sock:
            count = sum(is_last(frame) or is_body(frame) for frame in recorded.said("server"))
            while count:
                received = receive(sock)
                assert received is not None, "the server ended the connection before the stream"
                connection.frames.append(("server", received[0]))
                count -= is_last(received[0]) or is_body(received[0])
            for frame in recorded.said("reader")[len(opening_of(recorded)) :]:
                send(sock, frame)
                connection.frames.append(("reader", frame))
            sock.shutdown(socket.SHUT_WR)
            while (received := receive(sock)) is not None:
                connection.frames.append(("server", received[0]))
    return [connection for _, connection in live]


def is_body(frame: Frame) -> bool:
    """Whether a frame is the body of a numbered message."""
    return frame.tag is not None and frame.tag >> 56 in _BODIES


def is_last(frame: Frame) -> bool:
    """Whether a frame is the end of the stream."""
    return frame.tag is None and frame.body[0] == 0


def numbered(connections: list[Connection]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the metadata and the body of each message of a stream, in order; the schema has no body."""
    frames = [frame for each in connections for frame in each.said("server")]
    bodies = {
        frame.tag & 0xFFFFFFFF: frame.body for frame in frames if is_body(frame) and frame.tag is not None
    }
    for frame in frames:
        if frame.tag is None and not is_last(frame):
            yield frame.body[5:], bodies.get(frame.number, b"")


def table_of(connections: list[Connection]) -> pa.Table:
    """Return what pyarrow reads of a stream with packed bodies: nothing of Bowstring takes part."""
    return wire.table_of(list(numbered(connections)))
