"""Bytes over ``tcp:`` on loopback, beside a plain socket that moves messages of the same sizes."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Target, Way
from bowstring.benchmarks.data.payload import Bytes, fingerprint, payload
from bowstring.benchmarks.data.tables import size_name, table
from bowstring.benchmarks.processes.child import Child
from bowstring.transport import Channel, Message, dial, listen

_SIZES: Final = (64 << 10, 1 << 20, 64 << 20)
_FULL: Final = 256 << 20
_QUICK: Final = 64 << 20
_SECONDS: Final = 60.0
_TAG: Final = 1
_HOST: Final = "127.0.0.1"
_BOUND: Final = 0.9
# Bytes of the messages that go in one call, as a server hands them over.
_TOGETHER: Final = 1 << 20


class Sender:
    """A role for a started process: sends one of two tables in turn, so that old bytes are never taken for new."""

    def __init__(self, size: int, total: int) -> None:
        self._size = size
        count = total // size
        tables = [table("floats", total, seed, count) for seed in (1, 2)]
        # One batch after the other in one piece of memory, as the plain socket sends them.
        self._bytes = [np.concatenate(payload(each.to_batches())) for each in tables]
        if any(each.nbytes != total for each in self._bytes):
            raise ValueError(f"messages of {size} bytes do not make up {total} bytes of whole batches")
        self._sent = [fingerprint([each]) for each in self._bytes]
        self._server = bow.Server("tcp://")
        self._endpoints = [str(self._server.publish(f"{n}", each)) for n, each in enumerate(tables)]
        self._listener = socket.create_server((_HOST, 0))
        self._listener.settimeout(_SECONDS)
        self._default = self._listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
        self._channels = listen("tcp://")
        self._plain: socket.socket | None = None
        self._channel: Channel | None = None

    def about(self) -> dict[str, Any]:
        """Return where to connect, and the fingerprints of the two tables."""
        return {
            "endpoints": self._endpoints,
            "sent": self._sent,
            "port": self._listener.getsockname()[1],
            "address": self._channels.uri,
        }

    def accept(self) -> None:
        """Take the connections that the receiver makes once: a plain one, and a channel."""
        self._plain = self._accepted()
        self._channel = self._channels.accept(_SECONDS)

    def _accepted(self) -> socket.socket:
        peer, _ = self._listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(None)
        return peer

    def send_plain(self, turn: int, reno: bool) -> float:
        """Send over the plain socket; return the seconds until the receiver has it all."""
        self._control(self._connected, reno=reno)
        return self._until_received(lambda: self._send_pieces(self._connected, turn))

    def _control(self, peer: socket.socket, *, reno: bool) -> None:
        """Have the kernel pace a connection as it does for everybody, or as ours ask it to."""
        chosen = b"reno" if reno else self._default
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, chosen)

    def send_channel(self, turn: int, together: int) -> float:
        """Send over the channel, so many messages in a call; return the seconds until the receiver has it all."""
        channel = self._channel
        assert channel is not None

        def send() -> None:
            pieces = self._pieces(turn)
            while messages := [Message(_TAG, [piece]) for piece in itertools.islice(pieces, together)]:
                channel.send(messages, _SECONDS)

        return self._until_received(send)

    @property
    def _connected(self) -> socket.socket:
        assert self._plain is not None
        return self._plain

    def _until_received(self, send: Callable[[], None]) -> float:
        ready = self._connected.recv(1)
        begin = time.perf_counter()
        send()
        done = self._connected.recv(1)
        seconds = time.perf_counter() - begin
        if (ready, done) != (b"r", b"d"):
            raise ConnectionError("the receiver is gone")
        return seconds

    def _pieces(self, turn: int) -> Iterator[memoryview]:
        view = self._bytes[turn].data
        return (view[start : start + self._size] for start in range(0, len(view), self._size))

    def _send_pieces(self, peer: socket.socket, turn: int) -> None:
        for piece in self._pieces(turn):
            peer.sendall(piece)

    def answer_plain(self, turn: int, reno: bool) -> None:
        """Answer one connection that asks for the bytes."""
        with self._accepted() as peer:
            self._control(peer, reno=reno)
            if peer.recv(1) == b"?":
                self._send_pieces(peer, turn)
            peer.recv(1)

    def close(self) -> None:
        """End everything."""
        self._server.close()


class Receiver:
    """The other end of a `Sender`: receives into memory that was there before, and looks at every byte after."""

    def __init__(self, size: int, total: int, port: int, address: str) -> None:
        self._size = size
        self._count = total // size
        self._port = port
        self._landing = np.zeros(self._count * size, np.uint8)
        self._plain = self._dial()
        self._channel = dial(address)

    def _dial(self) -> socket.socket:
        peer = socket.create_connection((_HOST, self._port), _SECONDS)
        peer.settimeout(None)
        return peer

    def _slots(self) -> list[Bytes]:
        self._landing[:] = 0
        return list(self._landing.reshape(self._count, self._size))

    def take_plain(self) -> str:
        """Receive what the plain socket brings."""
        slots = self._slots()
        self._plain.sendall(b"r")
        for slot in slots:
            _fill(self._plain, slot)
        self._plain.sendall(b"d")
        return fingerprint(slots)

    def take_channel(self) -> str:
        """Receive what the channel brings."""
        slots = self._slots()
        waiting = iter(slots)
        self._plain.sendall(b"r")
        for _ in slots:
            if self._channel.receive(_SECONDS, lambda _tag, _nbytes: next(waiting)) is None:
                raise TimeoutError("no message came")
        self._plain.sendall(b"d")
        return fingerprint(slots)

    def fetch_plain(self) -> dict[str, Any]:
        """Connect, ask, and receive."""
        slots = self._slots()
        begin = time.perf_counter()
        with self._dial() as peer:
            peer.sendall(b"?")
            for slot in slots:
                _fill(peer, slot)
            seconds = time.perf_counter() - begin
        return {"seconds": seconds, "arrived": fingerprint(slots)}

    def fetch_stream(self, endpoint: str) -> dict[str, Any]:
        """Connect, and take all batches."""
        begin = time.perf_counter()
        with bow.connect(endpoint) as stream:
            batches = list(stream)
            seconds = time.perf_counter() - begin
        return {
            "seconds": seconds,
            "arrived": fingerprint(payload([batch.to_arrow() for batch in batches])),
        }


def _fill(peer: socket.socket, slot: Bytes) -> None:
    view = slot.data
    while view:
        got = peer.recv_into(view, 0, socket.MSG_WAITALL)
        if not got:
            raise ConnectionError("the sender is gone")
        view = view[got:]


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    total = _QUICK if scale.quick else _FULL
    for size in _SIZES:
        with Child(Sender, size=size, total=total) as sender:
            about = sender.call("about")
            places = {"port": about["port"], "address": about["address"]}
            sender.begin("accept")
            with Child(Receiver, size=size, total=total, **places) as receiver:
                sender.finish()
                pair = _Pair(sender, receiver, about, total, size)
                rounds = scale.rounds(31, 5)
                for name, ways in (
                    ("transport", pair.transport()),
                    ("connect to last batch", pair.streams()),
                ):
                    subject, other = ways[0], ways[-2]
                    target = Target(subject.name, "at least", _BOUND, other.name)
                    line_up = f"{name}, {size_name(total)} in messages of {size_name(size)}"
                    yield LineUp(line_up, ways, rounds, (target,), panel=name, at={"bytes": size})


class _Pair:
    """A sender and its receiver, as the ways use them."""

    def __init__(self, sender: Child, receiver: Child, about: dict[str, Any], total: int, size: int) -> None:
        self._sender = sender
        self._receiver = receiver
        self._about = about
        self._total = total
        self._size = size
        self._turn = 0

    def _next(self) -> int:
        self._turn ^= 1
        return self._turn

    def transport(self) -> tuple[Way, ...]:
        """Return the ways over connections that are there: ours as a server uses it, and a message at a time."""
        together = _TOGETHER // self._size
        ours = {"bowstring transport": self._sent_by("channel", together=max(1, together))}
        if together > 1:
            ours["one at a time"] = self._sent_by("channel", together=1)
        return self._ways(ours, self._sent_by("plain", reno=False), self._sent_by("plain", reno=True))

    def streams(self) -> tuple[Way, ...]:
        """Return the ways that begin with a connection."""
        ours = {"bowstring stream": self._stream}
        return self._ways(ours, self._answered(reno=False), self._answered(reno=True))

    def _ways(
        self,
        subjects: dict[str, Callable[[], Measured]],
        plain: Callable[[], Measured],
        reno: Callable[[], Measured],
    ) -> tuple[Way, ...]:
        def way(name: str, role: Role, once: Callable[[], Measured], *references: str) -> Way:
            return Way(name, role, once, self._total, *references)

        # What a user would write instead; and what nothing over TCP can beat that sends as many messages in calls.
        names = "plain socket", "plain socket, Reno"
        ours = [way(name, "subject", subject, *names) for name, subject in subjects.items()]
        return (*ours, way(names[0], "baseline", plain), way(names[1], "floor", reno))

    def _sent_by(self, what: str, **options: int) -> Callable[[], Measured]:
        def once() -> Measured:
            turn = self._next()
            self._receiver.begin(f"take_{what}")
            seconds = self._sender.call(f"send_{what}", turn=turn, **options)
            return Measured(seconds, self._about["sent"][turn], self._receiver.finish())

        return once

    def _stream(self) -> Measured:
        turn = self._next()
        result = self._receiver.call("fetch_stream", endpoint=self._about["endpoints"][turn])
        return Measured(sent=self._about["sent"][turn], **result)

    def _answered(self, *, reno: bool) -> Callable[[], Measured]:
        def once() -> Measured:
            turn = self._next()
            self._sender.begin("answer_plain", turn=turn, reno=reno)
            result = self._receiver.call("fetch_plain")
            self._sender.finish()
            return Measured(sent=self._about["sent"][turn], **result)

        return once


CASE: Final = Case(
    "tcp",
    "bytes over tcp: on loopback, beside a plain socket",
    _line_ups,
    Explanation(
        measured=(
            "Messages from the first byte sent to the last one received, over a connection that is there; "
            "and a stream from connect() to its last batch. All over loopback, in two processes."
        ),
        baseline=(
            "A plain socket with the same message sizes, as the system configures it. Beside it: messages "
            "that are handed over one at a time."
        ),
        floor=(
            "The same plain socket with the congestion control Reno, as Bowstring's connections within a "
            "machine ask for."
        ),
        reading=(
            "What the protocol adds to moving bytes. Loopback has no network: between machines the network "
            "decides. The size of a panel is that of a message."
        ),
    ),
)
