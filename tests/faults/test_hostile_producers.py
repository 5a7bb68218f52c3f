"""Producers that break the protocol: their reader has one clear error and nothing left of them."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import struct
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import bowstring as bow
from bowstring.dissociated.tags import Control
from bowstring.dissociated.wire import pack_prefix
from bowstring.memory import Pool, cpu
from bowstring.transport import Message
from tests.faults.conftest import LIMITS
from tests.faults.tables import table_of
from tests.peer.raw import RawServer, close_messages, recorded

Messages = list[Message]
SHORT = LIMITS.replace(reply_timeout=1.0, connect_timeout=1.0, regions=8, close_timeout=0.2)
# Where things are among the messages of a stream over unix:, see `stream`.
WELCOME, SCHEMA, REGION, META, BODY, META2, BODY2 = range(7)


@pytest.fixture
def stream(serve: Callable[..., bow.Server]) -> Iterator[Messages]:
    """Return the messages of a good stream with regions."""
    server = serve("unix:")
    messages = recorded(server.publish("t", table_of()))
    yield messages
    close_messages(messages)


def refused(messages: Messages, *, hang_up: bool = False, limits: bow.Limits = SHORT) -> bow.BowstringError:
    """Return the error that a reader of some messages gets."""
    with RawServer("unix:", messages, hang_up=hang_up) as server:
        with pytest.raises(bow.BowstringError) as raised, bow.connect(server.uri, limits=limits) as stream:
            stream.read_all()
        error = raised.value.with_traceback(None)  # the frames hold batches, and those the connection
        del raised
        gc.collect()
    assert error.what
    return error


def body_of(message: Message) -> bytes:
    """Return the body of a recorded message."""
    (body,) = message.pieces
    assert isinstance(body, bytes)
    return body


def said(message: Message, body: bytes) -> Message:
    """Return a message with another body."""
    return Message(message.tag, [body], message.attachments)


def changed(messages: Messages, index: int, body: bytes) -> Messages:
    """Return a stream with another body at one place."""
    return [*messages[:index], said(messages[index], body), *messages[index + 1 :]]


def region(
    messages: Messages, *, base: int | None = None, nbytes: int | None = None, uuid: bytes = b""
) -> bytes:
    """Return the announcement of a region, changed."""
    body = bytearray(body_of(messages[REGION]))
    if base is not None:
        body[:8] = struct.pack("<Q", base)
    if uuid:
        body[8:24] = uuid
    if nbytes is not None:
        body[40:48] = struct.pack("<Q", nbytes)
    return bytes(body)


def test_what_is_replayed_is_read(stream: Messages) -> None:
    """The recorded stream is a good one: what the tests below change is what is wrong."""
    with RawServer("unix:", stream) as server, bow.connect(server.uri, limits=LIMITS) as reader:
        assert reader.read_all().equals(table_of())


@pytest.mark.parametrize("kept", range(10))
def test_no_end(stream: Messages, kept: int) -> None:
    """A producer that hangs up before the end of the stream, at any message, has broken it."""
    assert type(refused(stream[:kept], hang_up=True)) is bow.BrokenError


@pytest.mark.parametrize("kept", [0, 1, 2, 5, 9])
def test_silence(stream: Messages, kept: int) -> None:
    """A producer that says nothing more is given up in time."""
    assert type(refused(stream[:kept], limits=SHORT.replace(reply_timeout=0.2, connect_timeout=0.2))) is (
        bow.DeadlineExceeded
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda base, size: (base + size, 1),
        lambda base, size: (base + size - 8, 9),
        lambda base, size: (base - 1, 8),
        lambda base, size: (4096, 8),
        lambda base, size: (0, 8),
        lambda base, size: (base, size + 1),
        lambda base, size: (base, 2**63),
        lambda base, size: (2**64 - 8, 8),
        lambda base, size: (2**63, 2**63),
        lambda base, size: (2**63 - 1, 1),
    ],
)
def test_pairs_outside_the_region(stream: Messages, change: Callable[[int, int], tuple[int, int]]) -> None:
    """A buffer that the producer places outside what it announced is refused, however it is put."""
    base, _, _, size, _, _ = struct.unpack("<Q16s16sQII", body_of(stream[REGION]))
    table = np.frombuffer(body_of(stream[BODY]), "<u8").reshape(-1, 2).copy()
    used = int(np.flatnonzero(table[1:, 1])[0]) + 1
    table[used] = change(base, size)
    table[0, 0] = sum(table[1:, 1].tolist()) % 2**64
    assert isinstance(refused(changed(stream, BODY, table.tobytes())), (bow.ProtocolError, bow.InvalidData))


@pytest.mark.parametrize("what", ["total", "count", "odd", "short", "empty", "lengths swapped"])
def test_bodies_of_pointers_that_do_not_add_up(stream: Messages, what: str) -> None:
    """A body of pointers whose numbers contradict each other, or its metadata, is refused."""
    table = np.frombuffer(body_of(stream[BODY]), "<u8").reshape(-1, 2).copy()
    used = np.flatnonzero(table[1:, 1]) + 1
    match what:
        case "total":
            table[0, 0] += 1
        case "count":
            table[0, 1] += 1
        case "lengths swapped":
            table[used[:2], 1] = table[used[1::-1], 1]
    body = {"odd": table.tobytes()[:-1], "short": table.tobytes()[:8], "empty": b""}.get(
        what, table.tobytes()
    )
    assert isinstance(refused(changed(stream, BODY, body)), (bow.ProtocolError, bow.InvalidData))


@pytest.mark.parametrize(
    "fault",
    [
        "base 0",
        "base below 4096",
        "base beyond",
        "size 0",
        "size + 1",
        "size 1",
        "size 2**63",
        "announced twice",
        "overlapping",
        "too many",
        "unknown device",
        "short",
        "no attachment",
        "two attachments",
    ],
)
def test_regions_announced_wrongly(stream: Messages, fault: str) -> None:
    """A region with a wrong place, size, name or attachment is refused, and its descriptor closed."""
    base, _, _, size, _, _ = struct.unpack("<Q16s16sQII", body_of(stream[REGION]))
    announcement = stream[REGION]
    (fd,) = announcement.attachments
    again = said(announcement, region(stream, base=base + size // 2, uuid=bytes(range(16))))
    streams: dict[str, Messages] = {
        "base 0": changed(stream, REGION, region(stream, base=0)),
        "base below 4096": changed(stream, REGION, region(stream, base=4095)),
        "base beyond": changed(stream, REGION, region(stream, base=2**63 - 1)),
        "size 0": changed(stream, REGION, region(stream, nbytes=0)),
        "size + 1": changed(stream, REGION, region(stream, nbytes=size + 1)),
        "size 1": changed(stream, REGION, region(stream, nbytes=1)),
        "size 2**63": changed(stream, REGION, region(stream, nbytes=2**63)),
        "announced twice": [*stream[: REGION + 1], *stream[REGION:]],
        "overlapping": [*stream[: REGION + 1], again, *stream[REGION + 1 :]],
        "too many": [
            *stream[:REGION],
            *(said(announcement, region(stream, base=base + 2 * size * n)) for n in range(1, 10)),
            *stream[REGION:],
        ],
        "unknown device": changed(
            stream, REGION, body_of(announcement)[:48] + struct.pack("<I", 77) + bytes(4)
        ),
        "short": changed(stream, REGION, body_of(announcement)[:-1]),
        "no attachment": [*stream[:REGION], Message(Control.REGION, announcement.pieces), *stream[META:]],
        "two attachments": [
            *stream[:REGION],
            Message(Control.REGION, announcement.pieces, (fd, fd)),
            *stream[META:],
        ],
    }
    error = refused(streams[fault])
    assert isinstance(error, (bow.ProtocolError, bow.InvalidRegion, bow.LimitExceeded, bow.NotOnDevice)), (
        error
    )


def unsealed(nbytes: int) -> int:
    """Return a new memfd that can still be sealed."""
    fd = os.memfd_create("bowstring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    return fd


def fake_memory(fault: str, nbytes: int, good: int) -> int:
    """Return a descriptor that is not what a region must be."""
    match fault:
        case "unsealed":
            return unsealed(nbytes)
        case "half sealed":
            fd = unsealed(nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            return fd
        case "plain file":
            with tempfile.TemporaryFile() as file:
                file.truncate(nbytes)
                return os.dup(file.fileno())
        case "pipe":
            fd, other = os.pipe()
            os.close(other)
            return fd
        case "folder":
            return os.open("/", os.O_RDONLY)
        case "path only":
            return os.open(f"/proc/self/fd/{good}", os.O_PATH)
        case "sealed but smaller":
            slab = cpu().make_slab(nbytes // 2)
        case _:
            slab = cpu().make_slab(nbytes * 2)
    return os.dup(slab.fd)


@pytest.mark.parametrize(
    "fault",
    [
        "unsealed",
        "half sealed",
        "plain file",
        "pipe",
        "folder",
        "path only",
        "sealed but smaller",
        "sealed but larger",
    ],
)
@pytest.mark.parametrize("first", [False, True], ids=["behind the schema", "first of all"])
def test_fake_regions(stream: Messages, fault: str, *, first: bool) -> None:
    """Memory that could shrink, is no memory, or is not of the size that was said, is never mapped."""
    (good,) = stream[REGION].attachments
    assert isinstance(good, int)
    nbytes = struct.unpack_from("<Q", body_of(stream[REGION]), 40)[0]
    fd = fake_memory(fault, nbytes, good)
    try:
        body = region(stream, uuid=os.urandom(16))
        fake = Message(Control.REGION, [body], (fd,))
        at = 0 if first else REGION
        error = refused([*stream[:at], fake, *stream[at:REGION], *stream[META:]])
    finally:
        os.close(fd)
    assert isinstance(error, bow.InvalidRegion), error


def test_a_region_under_the_name_of_another(stream: Messages) -> None:
    """Other memory under the name of a region that is mapped is refused, and the good one stays what it is."""
    with RawServer("unix:", stream) as server, bow.connect(server.uri, limits=LIMITS) as reader:
        table = reader.read_all()
        pool = Pool(budget=8 << 20)
        other = pool.allocate(1 << 20).region
        assert other.slab is not None
        fake = Message(Control.REGION, stream[REGION].pieces, (other.slab.fd,))
        assert isinstance(refused([*stream[:REGION], fake, *stream[META:]]), bow.InvalidRegion)
        assert table.equals(table_of())
        del table, other, fake


def numbered(stream: Messages, fault: str) -> Messages:
    """Return a stream whose numbers are wrong."""
    meta, body = stream[META], stream[BODY]
    end = len(stream) - 1

    def at(message: Message, number: int) -> Message:
        raw = body_of(message)
        return Message(None, [raw[:1] + struct.pack("<I", number) + raw[5:]])

    def tagged(message: Message, tag: int) -> Message:
        return Message(tag, message.pieces)

    assert body.tag is not None
    swap = {
        "wrong metadata number": (META, at(meta, 7)),
        "gap": (META, at(meta, 2)),
        "duplicate metadata": (META2, at(stream[META2], 1)),
        "duplicate body": (BODY2, tagged(stream[BODY2], body.tag)),
        "body of another": (BODY, tagged(body, body.tag + 5)),
        "body of the schema": (BODY, tagged(body, 1 << 56)),
        "reserved bits": (BODY, tagged(body, body.tag | 1 << 40)),
        "bit 55": (BODY, tagged(body, body.tag | 1 << 55)),
        "unknown type": (BODY, tagged(body, 1 | 2 << 56)),
        "type 0 instead of 1": (BODY, tagged(body, 1)),
        "end too early": (BODY2, Message(None, [pack_prefix(0, 2)])),
        "end with a lower number": (end, Message(None, [pack_prefix(0, 3)])),
        "end with a higher number": (end, Message(None, [pack_prefix(0, 5)])),
        "end of six bytes": (end, Message(None, [pack_prefix(0, 4) + b"\0"])),
        "end of four bytes": (end, Message(None, [pack_prefix(0, 4)[:4]])),
        "unknown kind": (META, Message(None, [b"\2" + body_of(meta)[1:]])),
        "schema twice": (META, at(stream[SCHEMA], 1)),
        "metadata of one byte": (META, Message(None, [b"\1"])),
        "empty metadata": (META, Message(None, [pack_prefix(1, 1)])),
        "a reader's words": (META, Message(Control.DONE)),
        "an unknown tag": (META, Message(0xB0 << 56)),
        "garbage welcome": (WELCOME, Message(Control.WELCOME, [b"{"])),
        "garbage error": (META, Message(Control.ERROR, [b"\xff"])),
        "an error": (
            META,
            Message(Control.ERROR, [b'{"code": "nonsense", "what": "\\ud800", "found": [1]}']),
        ),
        "blocked by seven bytes": (META, Message(Control.BLOCKED, [bytes(7)])),
        "no schema": (SCHEMA, meta),
    }[fault]
    index, message = swap
    return [*stream[:index], message, *stream[index + 1 :]]


@pytest.mark.parametrize(
    "fault",
    [
        "wrong metadata number",
        "gap",
        "duplicate metadata",
        "duplicate body",
        "body of another",
        "body of the schema",
        "reserved bits",
        "bit 55",
        "unknown type",
        "type 0 instead of 1",
        "end too early",
        "end with a lower number",
        "end with a higher number",
        "end of six bytes",
        "end of four bytes",
        "unknown kind",
        "schema twice",
        "metadata of one byte",
        "empty metadata",
        "a reader's words",
        "an unknown tag",
        "garbage welcome",
        "garbage error",
        "an error",
        "blocked by seven bytes",
        "no schema",
    ],
)
def test_wrong_numbers_and_words(stream: Messages, fault: str) -> None:
    """A stream whose numbers or words are wrong at one place is refused as a whole."""
    error = refused(numbered(stream, fault))
    assert isinstance(error, (bow.BrokenError, bow.InvalidData)), error


@pytest.mark.parametrize("where", [WELCOME, SCHEMA, META, BODY, 9])
def test_descriptors_that_belong_to_nothing(stream: Messages, where: int) -> None:
    """File descriptors on a message that is no region are closed, and the stream is broken."""
    fault = Message(stream[where].tag, stream[where].pieces, (0, 1, 2))
    assert isinstance(refused([*stream[:where], fault, *stream[where + 1 :]]), bow.ProtocolError)


@pytest.mark.parametrize("kind", ["metadata", "body", "control"])
def test_messages_beyond_the_bounds(stream: Messages, kind: str) -> None:
    """A message longer than the limits allow is refused before it is taken in."""
    tag = {"metadata": None, "body": 1, "control": int(Control.WELCOME)}[kind]
    limits = SHORT.replace(metadata_bytes=1 << 16, message_bytes=1 << 16, control_bytes=1 << 10)
    messages = [*stream[:META], Message(tag, [bytes(1 << 17)])]
    assert isinstance(refused(messages, limits=limits, hang_up=True), bow.LimitExceeded)


@pytest.mark.parametrize("seed", range(20))
def test_streams_with_a_flipped_byte(stream: Messages, seed: int) -> None:
    """A stream with one byte changed anywhere but in the data is an error, or it is a table of valid batches."""
    chosen = random.Random(seed)
    index = chosen.randrange(len(stream))
    body = bytearray(body_of(stream[index]))
    if index == REGION:  # a random name is as good as another
        return
    body[chosen.randrange(len(body))] ^= 1 << chosen.randrange(8)
    with RawServer("unix:", changed(stream, index, bytes(body)), hang_up=True) as server:
        try:
            with bow.connect(server.uri, limits=SHORT) as reader:
                table = reader.read_all()
        except bow.BowstringError:
            return
        table.validate()
        del table
