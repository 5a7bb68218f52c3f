"""How messages follow one another on a byte stream (``unix:`` and ``tcp:``), and where bodies land.

Descriptors (``unix:``) travel with the first byte of the header of their message, at most 253 (``SCM_RIGHTS``), and
their number must equal that in the header.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.dissociated.opening import Framed
from bowstring.dissociated.wire import Outgoing
from bowstring.errors import LimitExceeded, ProtocolError, UsageError
from bowstring.limits import Limits
from bowstring.memory import Buffer
from bowstring.memory.copying import DeviceBody
from bowstring.transport.channel import Channel, Land, Message
from bowstring.transport.header import HEADER_BYTES, decode_header, pack_header

_BASE = struct.Struct("<Q")
# In larger calls the kernel's two ends wait for each other: 128 MiB took a tenth longer in calls of 8 MiB.
_MOST_BYTES = 1 << 20

Views = list[bytes | memoryview]


@dataclasses.dataclass(slots=True)
class Run:
    """What goes out in one call: the bytes, how many they are, and what travels beside the first of them."""

    views: Views
    nbytes: int
    attachments: tuple[object, ...] = ()
    at: int = 0  # the first view that is not wholly sent, which is cut down to what is left of it

    def advance(self, sent: int) -> None:
        """Note that so many bytes more are sent, and not all yet."""
        self.nbytes -= sent
        self.attachments = ()
        while sent >= len(self.views[self.at]):
            sent -= len(self.views[self.at])
            self.at += 1
        if sent:
            self.views[self.at] = memoryview(self.views[self.at])[sent:]


def whole_messages(data: bytes, limits: Limits, most_attachments: int) -> list[Framed]:
    """Return the messages that are whole in some bytes, as far as no bound or rule is broken."""
    messages: list[Framed] = []
    at = 0
    with contextlib.suppress(ProtocolError, LimitExceeded):
        while at + HEADER_BYTES <= len(data):
            tag, attachments, length = decode_header(data, at, limits, most_attachments)
            at += HEADER_BYTES + length
            if at > len(data):
                break
            messages.append(Framed(tag, attachments, data[at - length : at]))
    return messages


def gathered(messages: Sequence[Message], check: Callable[[tuple[object, ...]], None]) -> list[Run]:
    """Return the messages of each ``sendmsg`` call, in order: one with descriptors begins a call of its own."""
    runs: list[Run] = []
    run: Run | None = None
    for message in messages:
        views = message.views()
        nbytes = sum(map(len, views))
        if message.attachments:
            check(message.attachments)
            run = None
        if run is None:
            run = Run([], 0, message.attachments)
            runs.append(run)
        run.views.append(pack_header(message.tag, len(message.attachments), nbytes))
        run.views += views
        run.nbytes += HEADER_BYTES + nbytes
        if run.nbytes >= _MOST_BYTES:
            run = None
    return runs


def joined(outgoing: Sequence[Outgoing]) -> Run:
    """Return messages that nothing travels beside as what goes out in one call."""
    parts: list[Any] = []
    for each in outgoing:
        parts += pack_header(each.tag, 0, sum(map(len, each.pieces))), *each.pieces
    data = b"".join(parts)
    return Run([data], len(data))


_EAGER: Final = 1 << 16

Prepare = Callable[[int], int]


def lazy_memory(nbytes: int) -> memoryview:
    """Return fresh writable memory that takes pages as it is written: a length is only a claim."""
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
    """Return where a body lands: a tagged one in what ``land`` gives, any other in fresh memory."""
    if tag is None or land is None:
        fresh = lazy_memory(length)
        return Place(fresh, None, fresh)
    body: Any = land(tag, length)
    place, prepare = body, None
    if isinstance(body, Buffer):  # which nobody has yet; pages are taken as bytes come
        region, offset = body.region, body.offset
        place = region.array(offset, body.nbytes, writable=True)
        prepare = lambda arrived: region.prepare(offset + arrived) - offset  # noqa: E731
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


def as_messages(outgoing: Sequence[Outgoing], channel: Channel) -> list[Message]:
    """Return messages for a channel; a region goes as the channel can carry it."""
    return [_message(each, channel) for each in outgoing]


def _message(outgoing: Outgoing, channel: Channel) -> Message:
    if outgoing.attachment is None:
        pieces = outgoing.pieces
        if pieces and type(pieces[0]) is DeviceBody:
            body, joined = pieces[0], None
            if channel.reaches(body.device):
                with contextlib.suppress(MemoryError):  # the device has no room for it, but the host may
                    joined = body.on_device()
            pieces = [body.on_host() if joined is None else joined]
        return Message(outgoing.tag, pieces)
    region = outgoing.attachment
    keyed = channel.keyed(region)
    if keyed is not None:  # in place of the handle, which stands behind the base
        return Message(outgoing.tag, [bytes(outgoing.pieces[0])[: _BASE.size] + keyed.pack()])
    return Message(outgoing.tag, outgoing.pieces, channel.attachments_of(region))
