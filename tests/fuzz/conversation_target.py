"""Conversations as a target: what a recorded server or reader says, changed, to a live peer over a socket.

An input is a byte that says to whom, and frames as they pass on the wire. A frame has a byte before it, which is 1
where a region comes beside it, and the length of the frame.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import bowstring as bow
from bowstring.errors import BowstringError
from tests.fuzz.mutators import changed_bytes, other_number, rearranged
from tests.peer.wire import Frame, dialled, listening
from tests.wire.player import readdressed, send_with_region
from tests.wire.program import TABLES
from tests.wire.transcripts import Conversation

_LIMITS: Final = bow.Limits(
    metadata_bytes=1 << 16,
    control_bytes=1 << 12,
    message_bytes=1 << 22,
    decompressed_bytes=1 << 22,
    region_bytes=1 << 24,
    regions=16,
    window_bytes=1 << 20,
    outstanding_bytes=1 << 22,
    connect_timeout=0.5,
    reply_timeout=0.3,
    stall_timeout=0.3,
    heartbeat=0.2,
    lease_timeout=0.3,
    close_timeout=0.2,
)
_FOLDER: Final = Path(__file__).parents[1] / "data" / "transcripts"
_READER, _SERVER, _UNIX, _SILENT, _FOLLOWS = 1, 2, 4, 8, 16
_FOLLOW: Final = 0xB0000000FFFFFF1E
_GROWING: Final = "growing dictionary"
_ENTRY: Final = struct.Struct("<BI")
_HEADER: Final = 24
_PREFIX: Final = 5
_SECONDS: Final = 30.0
_MOST_FRAMES: Final = 200
_LARGEST: Final = 1 << 15
_CONTROL: Final = 0xB0000000FFFFFF00
_TAGS: Final = (
    *range(_CONTROL, _CONTROL + 32),
    *range(_CONTROL + (1 << 56), _CONTROL + (1 << 56) + 8),
    0,
    1,
    1 << 56,
    2 << 56,
)


def conversation(data: bytes) -> None:
    """Say frames to a reader, or to a server; then that one is as it was before."""
    frames = list(unpacked(data[1:]))
    kind = data[0] if data else 0
    (_to_reader if kind & _READER else _to_server)(kind, frames)


def _to_reader(kind: int, frames: list[Frame]) -> None:
    listener, address, uri = _recorded("unix" if kind & _UNIX else "tcp")
    speaking = threading.Thread(target=_speak, args=(listener, frames, kind))
    speaking.start()
    try:
        follow = bool(kind & _FOLLOWS)
        with contextlib.suppress(BowstringError), bow.connect(uri, limits=_LIMITS, follow=follow) as stream:
            for batch in stream:
                if address.startswith("unix"):  # whose elements are trusted
                    batch.validate(full=True)
                found = batch.to_arrow()
                found.validate()
                batch.validate(full=True)
                found.validate(full=True)
                repr(batch)
    finally:
        speaking.join()


@functools.cache
def _recorded(scheme: str) -> tuple[socket.socket, str, str]:
    listener, address = listening(scheme)
    return listener, address, readdressed(_conversation(f"{scheme}-types").uri, address)


def _speak(listener: socket.socket, frames: list[Frame], kind: int) -> None:
    sock, _ = listener.accept()
    sock.settimeout(_SECONDS)
    with sock:
        say(sock, frames)
        if not kind & _SILENT:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
        _drain(sock)


def say(sock: socket.socket, frames: list[Frame]) -> None:
    with contextlib.suppress(OSError):
        for frame in frames:
            send_with_region(sock, frame)


def _drain(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            data, descriptors, _, _ = (
                socket.recv_fds(sock, 1 << 16, 16)
                if sock.family == socket.AF_UNIX
                else (sock.recv(1 << 16), [], 0, 0)
            )
            for each in descriptors:
                os.close(each)
            if not data:
                break


def _to_server(kind: int, frames: list[Frame]) -> None:
    server, endpoints = _serving("unix:" if kind & _UNIX else "tcp://127.0.0.1:0")
    tickets = {each.split(b"#")[0]: each for each in (found.ticket for found in endpoints.values())}
    with contextlib.closing(dialled(server.address)) as sock:
        sock.settimeout(_SECONDS)
        for frame in frames:
            name = frame.data[_HEADER:].split(b"#")[0]
            data = frame.data[:_HEADER] + tickets[name] if name in tickets else frame.data
            if frame.tag == _FOLLOW:
                data = data.replace(b"f" * 16, _version(server).encode())
            say(sock, [Frame(data, frame.region)])
        if not kind & _SILENT:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            _drain(sock)
    end = time.monotonic() + _SECONDS
    while server.stats.connections:
        assert time.monotonic() < end, "the server keeps a connection of a reader that is gone"
        time.sleep(0.001)
    if sum(data := b"".join(each.data for each in frames)) % 8 == 0:
        with bow.connect(endpoints["types"]) as stream:
            assert stream.read_all().num_rows == TABLES["types"].num_rows, data


@functools.cache
def _version(server: bow.Server) -> str:
    """Return the version of a data set that has begun to grow."""
    return str(server.append(_GROWING, TABLES[_GROWING])).partition(":")[0]


@functools.cache
def _serving(address: str) -> tuple[bow.Server, dict[str, bow.Endpoint]]:
    server = bow.Server(address, limits=_LIMITS)
    return server, {name: server.publish(name, TABLES[name]) for name in ("types", _GROWING, "no rows")}


def mutated_conversation(data: bytes, rng: random.Random) -> bytes:
    """Return frames that are changed, left out, repeated, cut, moved, or between those of another conversation."""
    kind = data[0]
    frames = list(unpacked(data[1:]))
    if rng.random() < 0.05:
        kind ^= _SILENT
    if rng.random() < 0.2:
        kind ^= kind & _READER and _FOLLOWS
    if rng.random() < 0.1:
        others = [each for each in conversation_seeds().values() if each[0] & 7 == kind & 7]
        second = list(unpacked(rng.choice(others)[1:]))
        frames = _interleaved(frames, second, rng)
    else:
        frames = rearranged(frames, lambda each: other_frame(each, rng), rng, 0.35)
    return bytes([kind]) + b"".join(packed(each) for each in frames[:_MOST_FRAMES])


def _interleaved(first: list[Frame], second: list[Frame], rng: random.Random) -> list[Frame]:
    found, queues = [], [first[::-1], second[::-1]]
    while any(queues):
        chosen = rng.choice([each for each in queues if each])
        found.append(chosen.pop())
    return found


def other_frame(frame: Frame, rng: random.Random) -> Frame:
    """Return a frame of another body, tag or length; or one whose header is not what was agreed."""
    header, body = frame.data[:_HEADER], frame.data[_HEADER:]
    match rng.randrange(8):
        case 0:
            return Frame(changed_bytes(header, rng) + body, frame.region)
        case 1:
            tag = other_number(rng, frame.tag or 0, signed=False)
            return Frame(Frame.of(rng.choice((tag, rng.choice(_TAGS), None)), body).data, frame.region)
        case 2:
            nbytes = other_number(rng, len(body), signed=False).to_bytes(8, "little")
            return Frame(header[:-8] + nbytes + body, frame.region)
        case 3 if frame.tag is None and body:
            numbered = body[:1] + other_number(rng, frame.number, 32, signed=False).to_bytes(4, "little")
            body = numbered + body[_PREFIX:]
        case 4 if body[:1] == b"{":
            body = _other_json(body, rng)
        case 5 if len(body) % 8 == 0 and body:
            at = 8 * rng.randrange(len(body) // 8)
            number = other_number(rng, int.from_bytes(body[at : at + 8], "little"), signed=False)
            body = body[:at] + number.to_bytes(8, "little") + body[at + 8 :]
        case _:
            body = changed_bytes(body, rng)
    region = frame.region if rng.random() < 0.98 else None
    return Frame(header[:-8] + len(body).to_bytes(8, "little") + body, region)


def _other_json(body: bytes, rng: random.Random) -> bytes:
    """Return an object of JSON of which a value is of another kind, or a number another one."""
    found = json.loads(body)
    name = rng.choice(sorted(found))
    old = found[name]
    found[name] = rng.choice(
        (
            other_number(rng, old if isinstance(old, int) else 7),
            None,
            "x",
            [old],
            {"a": old},
            -1,
            1.5,
            1e300,
            True,
        )
    )
    return json.dumps(found).encode()


def packed(frame: Frame) -> bytes:
    return _ENTRY.pack(frame.region is not None, len(frame.data)) + frame.data


def unpacked(data: bytes) -> Iterator[Frame]:
    at = 0
    while at + _ENTRY.size + _HEADER <= len(data):
        region, nbytes = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size + max(nbytes, _HEADER)
        frame = data[at - max(nbytes, _HEADER) : at]
        yield Frame(frame.ljust(_HEADER, b"\0"), _region() if region else None)


@functools.cache
def _region() -> bytes:
    """Return what the region of a recorded conversation holds."""
    [region] = [each.region for _, each in _conversation("unix-types").connections[0].frames if each.region]
    return region


@functools.cache
def _conversation(name: str) -> Conversation:
    return Conversation.load(_FOLDER / f"{name}.json")


@functools.cache
def conversation_seeds() -> dict[str, bytes]:
    """Return both sides of the recorded conversations; those over two connections as one after the other."""
    found = {}
    for path in sorted(_FOLDER.rglob("*.json")):
        recorded = Conversation.load(path)
        for side, to in (("server", _READER), ("reader", _SERVER)):
            frames = [frame for each in recorded.connections for frame in each.said(side)]
            kind = to | (_UNIX if recorded.uri.startswith("unix") else 0)
            data = bytes([kind]) + b"".join(map(packed, frames))
            if len(data) <= _LARGEST:
                found[f"{path.parent.name} {path.stem} {side}"] = data
    frames = list(unpacked(found["transcripts tcp-growing-dictionary reader"][1:]))
    for kind, since in ((_SERVER, None), (_SERVER, f"{'f' * 16}:1"), (_SERVER | _UNIX, f"{'f' * 16}:2")):
        body = json.dumps({"follow": kind != _SERVER or since is None, "since": since}).encode()
        followed = [frames[0], Frame.of(_FOLLOW, body), *frames[1:]]
        found[f"follower {kind} {since}"] = bytes([kind]) + b"".join(map(packed, followed))
    return found
