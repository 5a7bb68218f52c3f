"""How messages follow one another on a byte stream (``unix:`` and ``tcp:``).

Each message is a header of 24 bytes, little-endian, and then its body:

====== ======= ============ =====================================================================
offset type    name         meaning
====== ======= ============ =====================================================================
0      3 bytes magic        ``BOW``
3      u8      version      1, of this framing
4      u8      kind         0: untagged, 1: tagged
5      u8      flags        0; any other bit is refused
6      u16     attachments  number of file descriptors that belong to this message; 0 on ``tcp:``
8      u64     tag          the tag; 0 in an untagged message
16     u64     length       bytes of the body that follows, without padding
====== ======= ============ =====================================================================

There is no greeting: the first bytes of a foreign protocol are refused as what they are. A length is held
against :class:`~bowstring.limits.Limits` before anything is allocated: ``metadata_bytes`` for an untagged
message, ``message_bytes`` for a tag whose top byte is 0 or 1 (the bodies of Dissociated IPC),
``control_bytes`` for every other tag.

File descriptors (``unix:`` only) travel with the first byte of the header of their message: whoever sends a
message with descriptors begins a new ``sendmsg`` with its header, and never attaches more than 253 (the
kernel's bound for one ``SCM_RIGHTS``). The number in the header must equal the number received.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.dissociated.wire import Outgoing
from bowstring.errors import LimitExceeded, ProtocolError, UsageError
from bowstring.limits import Limits
from bowstring.memory import Buffer
from bowstring.transport.channel import Channel, Land, Landing, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.dissociated.items import Said

__all__ = [
    "HEADER_BYTES",
    "Header",
    "Place",
    "Prepared",
    "Run",
    "Views",
    "advance",
    "as_messages",
    "check_beginning",
    "check_length",
    "decode_header",
    "encode_header",
    "gathered",
    "landing",
    "lazy_memory",
    "pack_header",
]

HEADER_BYTES = 24
_MAGIC = b"BOW"
_VERSION = 1
_UNTAGGED, _TAGGED = 0, 1
_HEADER = struct.Struct("<3sBBBHQQ")
_HIGHEST_BODY_TYPE = 1


class Header(NamedTuple):
    """What a header says."""

    tag: int | None
    attachments: int
    length: int


def encode_header(header: Header) -> bytes:
    """Return the 24 bytes of a header.

    Examples
    --------
    >>> encode_header(Header(tag=None, attachments=0, length=5)).hex(" ", 8)
    '424f570100000000 0000000000000000 0500000000000000'
    """
    return pack_header(*header)


def pack_header(tag: int | None, attachments: int, length: int) -> bytes:
    """Return the 24 bytes of a header that nobody has made yet."""
    if tag is None:
        return _HEADER.pack(_MAGIC, _VERSION, _UNTAGGED, 0, attachments, 0, length)
    return _HEADER.pack(_MAGIC, _VERSION, _TAGGED, 0, attachments, tag, length)


def decode_header(
    source: memoryview | bytes | bytearray, offset: int, limits: Limits, most_attachments: int
) -> Header:
    """Decode the header at ``offset`` and hold it against the bounds.

    Raises
    ------
    ProtocolError
        No header, one of another version, or more attachments than the transport carries.
    LimitExceeded
        The body is longer than ``limits`` allow.

    Examples
    --------
    >>> from bowstring.limits import DEFAULT_LIMITS
    >>> decode_header(encode_header(Header(7, 0, 5)), 0, DEFAULT_LIMITS, 0)
    Header(tag=7, attachments=0, length=5)
    """
    magic, version, kind, flags, attachments, tag, length = _HEADER.unpack_from(source, offset)
    if magic != _MAGIC or version != _VERSION:
        check_beginning(bytes(source[offset : offset + HEADER_BYTES]))
    if kind > _TAGGED or flags or (kind == _UNTAGGED and tag):
        raise ProtocolError(
            "a header with reserved bits set", found=bytes(source[offset : offset + HEADER_BYTES]).hex(" ", 8)
        )
    if attachments > most_attachments:
        raise ProtocolError(
            "a message with too many attachments", expected=f"at most {most_attachments}", found=attachments
        )
    if kind == _UNTAGGED:
        tag = None
    check_length(tag, length, limits)
    return Header(tag, attachments, length)


def check_beginning(begun: bytes) -> None:
    """Refuse bytes that are not the beginning of a header, however few they are.

    Raises
    ------
    ProtocolError
        The peer speaks something else, or another version.

    Examples
    --------
    >>> check_beginning(b"BO")
    >>> check_beginning(b"GET / HTTP/1.1")
    Traceback (most recent call last):
    bowstring.errors.ProtocolError: the peer does not speak Bowstring's framing; ...
    """
    magic = begun[: len(_MAGIC)]
    if magic != _MAGIC[: len(magic)]:
        is_tls = begun[:1] in (b"\x15", b"\x16") and begun[1:2] in (b"", b"\x03")
        raise ProtocolError(
            "the peer does not speak Bowstring's framing",
            expected=_MAGIC,
            found=f"{begun[:4]!r}...",
            hint="It speaks TLS: the one end says tls:, and the other tcp:."
            if is_tls
            else "Something else uses this address, or bytes were lost on the way.",
        )
    if len(begun) > len(_MAGIC) and begun[len(_MAGIC)] != _VERSION:
        raise ProtocolError(
            "the peer speaks another version of the framing", expected=_VERSION, found=begun[3]
        )


def check_length(tag: int | None, length: int, limits: Limits) -> None:
    """Hold the length of a message against the bound for its kind.

    Raises
    ------
    LimitExceeded
        It is longer.

    Examples
    --------
    >>> from bowstring.limits import DEFAULT_LIMITS
    >>> check_length(2 << 56, 1 << 20, DEFAULT_LIMITS)
    Traceback (most recent call last):
    bowstring.errors.LimitExceeded: a message is longer than Limits.control_bytes; ...
    """
    if tag is None:
        name, most = "metadata_bytes", limits.metadata_bytes
    elif tag >> 56 <= _HIGHEST_BODY_TYPE:
        name, most = "message_bytes", limits.message_bytes
    else:
        name, most = "control_bytes", limits.control_bytes
    if length > most:
        raise LimitExceeded(
            f"a message is longer than Limits.{name}",
            expected=f"at most {most} bytes",
            found=f"{length} bytes",
            where="an untagged message" if tag is None else f"tag {tag:#x}",
        )


# In larger calls the kernel's two ends wait for each other: 128 MiB took a tenth longer in calls of 8 MiB.
_MOST_BYTES = 1 << 20

# Up to here a piece is copied to go with its neighbours, where it is sent many times.
_SMALL = 4096

Views = list[bytes | memoryview]


@dataclasses.dataclass(slots=True)
class Run:
    """What goes out in one call: the bytes, how many they are, and what travels beside them."""

    views: Views
    nbytes: int
    attachments: tuple[object, ...] = ()


class Prepared:
    """Messages that are sent together, as they are, many times: what it takes to send them is done once.

    Parameters
    ----------
    messages
        In order, without attachments. Their pieces are read in place each time.

    Examples
    --------
    >>> prepared = Prepared([Message(None, [b"ab", b"c"]), Message(7, [memoryview(b"cd")])])
    >>> [len(view) for view in prepared.views]
    [51, 2]
    """

    __slots__ = ("nbytes", "views")

    def __init__(self, messages: Iterable[Message]) -> None:
        self.views: Views = []
        small: list[bytes] = []  # headers, metadata, padding: each costs a call as much as a body does
        for view in (view for message in messages for view in _framed(message).views):
            if isinstance(view, bytes) and len(view) <= _SMALL:
                small.append(view)
                continue
            self.views += [b"".join(small)] if small else []
            self.views.append(view)
            small.clear()
        self.views += [b"".join(small)] if small else []
        self.nbytes = sum(map(len, self.views))


def _framed(message: Message) -> Run:
    views = message.views()
    length = sum(map(len, views))
    header = pack_header(message.tag, len(message.attachments), length)
    return Run([header, *views], HEADER_BYTES + length, message.attachments)


def gathered(
    messages: Sequence[Message | Prepared], check: Callable[[tuple[object, ...]], None]
) -> list[Run]:
    """Return what goes out in one call each: a message with descriptors begins a run of its own.

    Parameters
    ----------
    messages
        In order.
    check
        Refuses attachments.
    """
    runs: list[Run] = []
    joins = False  # whether the next one can go with the last
    for message in messages:
        if isinstance(message, Prepared):
            runs.append(Run(message.views.copy(), message.nbytes))
            joins = False
            continue
        if message.attachments:
            check(message.attachments)
        framed = _framed(message)
        if joins and not framed.attachments:
            runs[-1].views += framed.views
            runs[-1].nbytes += framed.nbytes
        else:
            runs.append(framed)
        joins = runs[-1].nbytes < _MOST_BYTES
    return runs


def advance(views: Views, at: int, sent: int) -> int:
    """Return the first view that is not wholly sent, cut down to what is left of it."""
    while at < len(views) and sent >= len(views[at]):
        sent -= len(views[at])
        at += 1
    if sent:
        views[at] = memoryview(views[at])[sent:]
    return at


_EAGER: Final = 1 << 16

Prepare = Callable[[int], int]


def lazy_memory(nbytes: int) -> memoryview:
    """Return fresh writable memory that takes pages as it is written: a length is only a claim.

    Raises
    ------
    LimitExceeded
        There is no memory for it.

    Examples
    --------
    >>> lazy_memory(3).nbytes
    3
    """
    try:
        # Memory of a `bytearray` is filled with zeros, and so all there at once.
        fresh: Any = bytearray(nbytes) if nbytes <= _EAGER else np.empty(nbytes, np.uint8)
        return memoryview(fresh)
    except MemoryError as error:
        raise LimitExceeded("no memory for a message", found=f"{nbytes} bytes") from error


class Place(NamedTuple):
    """Where a body lands: its bytes, what to call before they are written, and what stands for it."""

    view: memoryview
    prepare: Prepare | None
    body: Any


def landing(tag: int | None, length: int, land: Land | None) -> Place:
    """Return where a body lands: a tagged one in what ``land`` gives, any other in fresh memory.

    Raises
    ------
    UsageError
        ``land`` gave memory of another length, read-only, or in strides.
    LimitExceeded
        There is no memory for it.

    Examples
    --------
    >>> place = bytearray(4)
    >>> landing(7, 4, lambda tag, nbytes: place).view.obj is place
    True
    """
    if tag is None or land is None:
        fresh = lazy_memory(length)
        return Place(fresh, None, fresh)
    body: Any = land(tag, length)
    place, prepare = body, None
    if isinstance(body, Buffer):
        place, prepare = _writable(body)
    elif isinstance(body, Landing):
        place, prepare = body.place, body.prepare
    given = memoryview(place)
    if given.readonly or not given.c_contiguous or given.nbytes != length:
        raise UsageError(
            "land() gave memory that does not fit",
            expected=f"{length} contiguous writable bytes",
            found=f"{given.nbytes} bytes, {'read-only' if given.readonly else 'writable'}",
        )
    if given.format != "B" or given.ndim != 1:
        # A view with a zero in its shape cannot be cast.
        given = given.cast("B") if length else memoryview(bytearray())
    return Place(given, prepare, body if isinstance(body, Buffer) else given)


def _writable(buffer: Buffer) -> tuple[Any, Prepare]:
    """Return the bytes of a buffer that nobody has yet, and what takes pages for the first of them."""
    region, offset = buffer.region, buffer.offset
    place = region.array(offset, buffer.nbytes, writable=True)
    return place, lambda arrived: region.prepare(offset + arrived) - offset


def as_messages(outgoing: Sequence[Said], channel: Channel) -> list[Message | Prepared]:
    """Return messages for a channel; a region goes as the channel can carry it."""
    messages: list[Message | Prepared] = []
    for each in outgoing:
        if isinstance(each, Outgoing):
            messages.append(_message(each, channel))
        elif channel.takes_prepared:
            if each.made is None:
                each.made = Prepared(_message(one, channel) for one in each.messages())
            messages.append(each.made)
        else:
            messages += [_message(one, channel) for one in each.messages()]
    return messages


def _message(outgoing: Outgoing, channel: Channel) -> Message:
    if outgoing.attachment is None:
        return Message(outgoing.tag, outgoing.pieces)
    return Message(outgoing.tag, outgoing.pieces, channel.attachments_of(outgoing.attachment))
