"""``ucx:`` as a target: URIs, and messages of plain UCX to either end of a channel."""

from __future__ import annotations

import contextlib
import functools
import struct
import time
from collections.abc import Iterator
from typing import Final

from bowstring import Limits
from bowstring.dissociated.endpoint import Endpoint as Uri
from bowstring.errors import BowstringError
from bowstring.transport.channel import Restriction
from bowstring.transport.peer import Peer
from bowstring.transport.ucx.channel import UcxChannel
from bowstring.transport.ucx.context import Context
from bowstring.transport.ucx.link import Link, Own
from bowstring.transport.ucx.listening import shared_context
from bowstring.transport.ucx.worker import Endpoint, ListenerHandle, Worker

__all__ = ["ucx", "ucx_seeds"]

_LIMITS: Final = Limits(
    metadata_bytes=1 << 12, message_bytes=1 << 17, control_bytes=1 << 10, stall_timeout=0.05
)
_HOST: Final = "127.0.0.1"
_KINDS: Final = 3
_MOST: Final = 40
_SECONDS: Final = 5.0
_TAGS: Final = (0, 1 << 56, 0xB0 << 56, 0xB0 << 56 | 7, 2 << 56, (1 << 64) - 1, *Own, Own.GONE | 0x70)
# The tag or none, how often the bytes that follow are sent one behind the other, and how many they are.
_HEAD: Final = struct.Struct("<BBH")


def ucx(data: bytes) -> None:
    """Read a URI, or give messages to a channel that was dialled, or was accepted."""
    kind, data = (data[0] % _KINDS if data else 0), data[1:]
    if kind == 0:
        with contextlib.suppress(BowstringError):
            Uri.parse(f"ucx:{data.decode(errors='replace')}", b"t")
        return
    with _pair(dialled=kind == 1) as (channel, worker, endpoint):
        channel.restriction = None if kind == 1 else Restriction(time.monotonic() + 0.5)
        sent = [endpoint.send(tag, [body] if body else []) for tag, body in _messages(data)]
        for _ in range(len(sent) + 1):
            worker.progress()
        with contextlib.suppress(BowstringError):
            for _ in range(2 * _MOST):
                if channel.receive(0.01, lambda _, nbytes: bytearray(nbytes)) is None:
                    break
                worker.progress()


def _messages(data: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Yield the tags and bodies that bytes describe."""
    at = 0
    for _ in range(_MOST):
        if len(data) < at + _HEAD.size:
            return
        which, times, nbytes = _HEAD.unpack_from(data, at)
        at += _HEAD.size + nbytes
        tag = None if which >= len(_TAGS) else _TAGS[which]
        yield tag, data[at - nbytes : at] * times


@functools.cache
def _context() -> Context:
    return Context({"NET_DEVICES": "lo", "TLS": "tcp", "RNDV_THRESH": "64k"})


@contextlib.contextmanager
def _pair(*, dialled: bool) -> Iterator[tuple[UcxChannel, Worker, Endpoint]]:
    """Give a channel, and the plain worker and endpoint that are its peer."""
    contexts = (shared_context(loopback=True), _context())
    near, far = (Worker(context) for context in contexts)
    client, server = (near, far) if dialled else (far, near)
    listening = Worker(server.context)
    listener = ListenerHandle(listening, _HOST, 0)
    dialling = client.connect(*listener.address)
    end = time.monotonic() + _SECONDS
    while not listener.requests:
        listening.progress(), client.progress()
        assert time.monotonic() < end
    accepted = server.accept(listener.requests.popleft())
    while not (dialling.ways and accepted.ways):
        listening.progress(), client.progress(), server.progress()
        assert time.monotonic() < end
    link = Link(near, dialling if dialled else accepted, "", ours=not dialled)
    channel = UcxChannel(link, "ucx://fuzz:1", Peer.at("fuzz"), _LIMITS, dialled=dialled)
    try:
        yield channel, far, accepted if dialled else dialling
    finally:
        channel.close()
        listener.close()
        for each in (listening, far):
            each.close()


def ucx_seeds() -> Iterator[tuple[str, bytes]]:
    """Yield URIs, and messages of each kind."""
    yield "uri", b"\0//10.0.0.1:13337?want_data=7&free_data=8&remote_handle=AAAA"
    yield "uri of IPv6", b"\0//[::1]:1?want_data=18446744073709551615&bow=1&hello=9"
    for end, kind in (("client", b"\1"), ("server", b"\2")):
        metadata = _HEAD.pack(255, 1, 5) + b"\1\0\0\0\0"
        control = _HEAD.pack(2, 1, 12) + struct.pack("<I", 1) + b"whatever"
        body = _HEAD.pack(0, 1, 300) + bytes(300)
        yield f"messages to a {end}", kind + metadata + control + body
        yield f"a long body to a {end}", kind + _HEAD.pack(0, 200, 500) + bytes(500)
        yield f"too long to a {end}", kind + _HEAD.pack(0, 255, 1000) + bytes(1000)
        yield f"pointers to a {end}", kind + _HEAD.pack(1, 1, 32) + struct.pack("<4Q", 8, 1, 4096, 8)
        yield f"goodbye to a {end}", kind + metadata + _HEAD.pack(7, 1, 4) + struct.pack("<I", 1)
        yield f"a goodbye that is too long to a {end}", kind + _HEAD.pack(7, 255, 900) + bytes(900)
        key = bytes([1]) + bytes(7) + bytes([0, 2, 1, 2])
        yield (
            f"a greeting to a {end}",
            kind + _HEAD.pack(6, 1, 20 + len(key)) + struct.pack("<IQQ", 0, 5, 4096) + key,
        )
        yield f"a protocol to a {end}", kind + _HEAD.pack(9, 1, 9) + struct.pack("<I", 0) + b"words"
        yield f"waits for ever to a {end}", kind + _HEAD.pack(3, 1, 4) + struct.pack("<I", 99)
        yield f"nothing to a {end}", kind + _HEAD.pack(2, 1, 0) + _HEAD.pack(255, 0, 0) + _HEAD.pack(0, 0, 0)
