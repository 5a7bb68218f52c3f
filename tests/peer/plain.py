"""Peers that know the specification of Dissociated IPC and nothing of Bowstring's additions.

They share no code with what they test but the transports.
"""

from __future__ import annotations

import base64
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pyarrow as pa

from bowstring.transport import Channel, Listener, Message, dial, listen
from tests.peer.wire import END_OF_STREAM, METADATA, parts_of, prefix, table_of

WAIT = 10.0


class PlainClient:
    """A client that says ``want_data`` and nothing else, on one connection or on two."""

    def __init__(self, uri: str) -> None:
        parsed = urllib.parse.urlsplit(uri)
        query = dict(urllib.parse.parse_qsl(parsed.query))
        ticket = query["ticket"].replace("-", "+").replace("_", "/")
        self._ticket = base64.b64decode(ticket + "=" * (-len(ticket) % 4))
        self._wants: list[tuple[Channel, int]] = []
        for location in (uri, query["data"]) if "data" in query else (uri,):
            want = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(location).query))["want_data"]
            self._wants.append((dial(location.partition("?")[0]), int(want)))
        self.channel = self._wants[0][0]
        self.bodies = self._wants[-1][0]
        self.tags: list[int] = []

    def ask(self) -> None:
        """Ask for the data, on each connection."""
        for channel, want in self._wants:
            channel.send([Message(want, [self._ticket])], WAIT)

    def close(self) -> None:
        """Disconnect."""
        for channel, _ in self._wants:
            channel.close()

    def read(self) -> pa.Table:
        """Return the table, put together from the messages by their sequence numbers."""
        metadata: dict[int, bytes] = {}
        bodies: dict[int, bytes] = {}
        end: int | None = None
        deadline = time.monotonic() + WAIT
        while end is None or len(metadata) < end or len(bodies) < end - 1:
            # Metadata are small: they do not wait for somebody to read the bodies of another connection.
            channel = self.channel if end is None or len(metadata) < end else self.bodies
            received = channel.receive(max(0.0, deadline - time.monotonic()))
            assert received is not None, "the server said nothing more"
            assert not received.attachments
            if received.tag is not None:
                self.tags.append(received.tag)
                bodies[received.tag & 0xFFFF_FFFF] = bytes(received.body)
                continue
            kind, sequence = struct.unpack_from("<BI", received.body)
            if kind == END_OF_STREAM:
                assert len(received.body) == 5
                end = sequence
            else:
                assert kind == METADATA
                metadata[sequence] = bytes(received.body[5:])
        return table_of([(metadata[number], bodies.get(number, b"")) for number in range(end)])


class PlainServer:
    """A server that sends one table to each who asks for it, in an order of messages that a test chooses.

    Parameters
    ----------
    address
        Where to listen.
    messages
        What to send to a client that has asked.
    close
        Whether to hang up at the end, or to wait for the client.
    later, go_on
        What to send then, once the event is set.
    """

    want = 7
    free = 9

    def __init__(
        self,
        address: str,
        messages: Sequence[Message],
        *,
        close: bool = False,
        later: Sequence[Message] = (),
        go_on: threading.Event | None = None,
    ) -> None:
        self._listener: Listener = listen(address)
        self._later = later
        self._go_on = go_on
        self._messages = messages
        self._close = close
        self.heard: list[tuple[int | None, bytes]] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        """What a client connects to."""
        return f"{self._listener.uri}?want_data={self.want}&free_data={self.free}"

    def _serve(self) -> None:
        try:
            channel = self._listener.accept(WAIT)
            assert channel is not None
            with channel:
                asked = channel.receive(WAIT)
                assert asked is not None
                self.heard.append((asked.tag, bytes(asked.body)))
                channel.send(self._messages, WAIT)
                if self._go_on is not None:
                    assert self._go_on.wait(WAIT)
                    channel.send(self._later, WAIT)
                while not self._close and (said := channel.receive(WAIT)) is not None:
                    self.heard.append((said.tag, bytes(said.body)))
        except ConnectionError:
            return
        except BaseException as error:  # noqa: BLE001  the test asks for it at its end
            self.error = error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(WAIT)
        self._listener.close()
        assert not self._thread.is_alive()
        assert self.error is None, self.error


def messages_of(
    table: pa.Table,
    arrange: Callable[[list[Message], list[Message]], Sequence[Message]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[Message]:
    """Return the messages of a stream: metadata and bodies in turn, or as `arrange` puts them."""
    metadata, bodies = [], []
    parts: list[tuple[bytes, Any]] = list(parts_of(table, options))
    for sequence, (header, body) in enumerate(parts):
        metadata.append(Message(None, [prefix(METADATA, sequence), header]))
        if body is not None:
            bodies.append(Message(sequence, [body]))
    metadata.append(Message(None, [prefix(END_OF_STREAM, len(parts))]))
    if arrange is not None:
        return list(arrange(metadata, bodies))
    woven = [metadata[0]]
    for pair in zip(metadata[1:-1], bodies, strict=True):
        woven += pair
    return [*woven, metadata[-1]]
