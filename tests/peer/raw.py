"""Peers that speak the extended protocol message by message, so that a test can say anything at any point."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Final, Self

from bowstring.dissociated.endpoint import Endpoint
from bowstring.errors import BrokenError
from bowstring.transport import Channel, Message, Received, dial, listen
from tests.peer.wire import Frame, Tag, dialled, header, hello, receive
from tests.transport.certified import shown_at

_WAIT: Final = 20.0


class RawReader:
    """A reader that says what a test has it say, and keeps what it hears.

    Parameters
    ----------
    endpoint
        The data set.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.channel = self._dial(endpoint.locations[0].address)
        self.heard: list[Received] = []

    def _dial(self, address: str) -> Channel | _SocketChannel:
        return dial(address)

    def say(self, tag: int | None, body: bytes = b"", *attachments: object) -> None:
        """Send one message."""
        self.channel.send([Message(tag, [body], attachments)], _WAIT)

    def hello(self, **wishes: object) -> None:
        """Say hello: with regions and much credit, unless told otherwise."""
        wishes = {"pointers": self.channel.passes_memory is not None, "window": 1 << 40, **wishes}
        self.say(Tag.HELLO, hello(**wishes))

    def want(self) -> None:
        """Ask for the data."""
        self.say(Tag.DATA, self._endpoint.ticket)

    def hear(self) -> Received:
        """Return the next message, besides questions."""
        end = time.monotonic() + _WAIT
        while time.monotonic() < end:
            received = self.channel.receive(1.0)
            if received is not None and received.tag != Tag.PING:
                self.heard.append(received)
                return received
        raise AssertionError("the server says nothing more")

    def hear_all(self) -> list[Received]:
        """Return all messages of the stream, the end included."""
        while (last := self.hear()).tag is not None or last.body[0]:
            pass
        return self.heard

    def hear_error(self) -> bytes:
        """Return what the server says is wrong, before it hangs up; empty if it just hangs up."""
        error = b""
        try:
            while True:
                received = self.hear()
                if received.tag == Tag.ERROR:
                    error = bytes(received.body)
        except BrokenError:
            return error

    def addresses(self) -> list[int]:
        """Return the addresses that were lent, once for each occurrence."""
        bodies = [bytes(each.body) for each in self.heard if each.tag is not None and each.tag >> 56 == 1]
        pairs = [struct.iter_unpack("<QQ", body[16:]) for body in bodies]
        return [address for body in pairs for address, _ in body if address]

    def free(self, addresses: Sequence[int]) -> None:
        """Free some addresses."""
        self.say(Tag.FREE, struct.pack(f"<{len(addresses)}Q", *addresses))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        for received in self.heard:
            self.channel.drop(received.attachments)


class SocketReader(RawReader):
    """A reader on a plain socket, for `unix:`, `tcp:` and `tls:`: it may also send bytes that are no message."""

    channel: _SocketChannel

    def _dial(self, address: str) -> _SocketChannel:
        return _SocketChannel(dialled(address))

    @property
    def sock(self) -> socket.socket:
        """The socket."""
        return self.channel.sock

    def push(self, data: bytes) -> None:
        """Send bytes, through the encryption where there is one."""
        self.sock.sendall(data)

    def end_sending(self) -> None:
        """Let the server see the end of what is sent; what it says can still be heard."""
        with socket.socket(fileno=os.dup(self.sock.fileno())) as same:
            same.shutdown(socket.SHUT_WR)


class _SocketChannel:
    """What `RawReader` needs of a channel, on a socket; descriptors that come are closed."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.passes_memory = "fd" if sock.family == socket.AF_UNIX else None

    def send(self, messages: Sequence[Message], _: float) -> None:
        for message in messages:
            self.sock.sendall(Frame.of(message.tag, b"".join(message.views())).data)

    def receive(self, _: float) -> Received:
        try:
            got = receive(self.sock)
        except OSError as error:
            raise BrokenError("the server hung up") from error
        if got is None:
            raise BrokenError("the server hung up")
        frame, fds = got
        for fd in fds:
            os.close(fd)
        return Received(frame.tag, frame.body)

    def drop(self, attachments: tuple[object, ...]) -> None:
        assert not attachments

    def close(self) -> None:
        self.sock.close()


class RawServer:
    """A server that waits for a hello and a ticket and then sends what a test has given.

    Parameters
    ----------
    address
        Where to listen.
    messages
        What to send.
    hang_up
        Whether to disconnect then, or to wait for the reader to do so.
    at_once
        Whether to send all that can go in one call together, or message by message.
    claim
        The tag and the length of one more message, and how many bytes of it are sent.
    """

    def __init__(
        self,
        address: str,
        messages: Sequence[Message],
        *,
        hang_up: bool = False,
        at_once: bool = False,
        claim: tuple[int | None, int, int] | None = None,
    ) -> None:
        self._claim = claim
        self._listener = listen(address, tls=shown_at(address))
        self._messages = [messages] if at_once else [[message] for message in messages]
        self._hang_up = hang_up
        self.heard: list[tuple[int | None, bytes]] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        """What a reader connects to."""
        return (
            f"{self._listener.uri}?want_data={int(Tag.DATA)}&free_data={int(Tag.FREE)}"
            f"&bow=1&hello={int(Tag.HELLO)}&ticket=dA"
        )

    def _serve(self) -> None:
        try:
            channel = self._listener.accept(_WAIT)
            assert channel is not None
            with channel:
                while len(self.heard) < 2:
                    self._hear(channel)
                for messages in self._messages:
                    channel.send(messages, _WAIT)
                if self._claim is not None:
                    tag, nbytes, sent = self._claim
                    with _socket_of(channel) as sock:
                        sock.sendall(header(tag, nbytes) + bytes(sent))
                while not self._hang_up:
                    self._hear(channel)
        except ConnectionError:
            return
        except BaseException as error:  # noqa: BLE001  the test asks for it at its end
            self.error = error

    def wait(self) -> None:
        """Wait until the reader has hung up."""
        self._thread.join(_WAIT)

    def _hear(self, channel: Channel) -> None:
        said = channel.receive(_WAIT)
        assert said is not None, "the reader says nothing more"
        self.heard.append((said.tag, bytes(said.body)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(_WAIT)
        self._listener.close()
        assert not self._thread.is_alive()
        assert self.error is None, self.error


def _socket_of(channel: Channel) -> socket.socket:
    """Return the socket of a channel of `unix:` or `tcp:`, once more."""
    watched: list[int] = []
    channel.watch(lambda fds: watched.append(os.dup(fds[0])))
    sock = socket.socket(fileno=watched[0])
    sock.settimeout(_WAIT)
    return sock


def recorded(endpoint: Endpoint) -> list[Message]:
    """Return the messages of a whole stream; whoever gets them closes the descriptors (`close_messages`)."""
    reader = RawReader(endpoint)
    with contextlib.closing(reader.channel):
        reader.hello()
        reader.want()
        reader.hear_all()
        reader.free(reader.addresses())
        return [Message(each.tag, [bytes(each.body)], each.attachments) for each in reader.heard]


def close_messages(messages: Sequence[Message]) -> None:
    """Close the descriptors that recorded messages hold."""
    for message in messages:
        for each in message.attachments:
            if isinstance(each, int):
                each.close()  # type: ignore[attr-defined]  # a number that closes itself
