"""Tags: the 64-bit numbers that say what a message is (specification: *Data Stream Sequence*).

A body's tag: type in bits 56 to 63, zeros, sequence number in bits 0 to 31. Messages that the specification does
not know have the type byte 0xB0 (control, both ways) or 0xB1 (named by the URI). Their low halves are at the far
end of the sequence numbers, for receivers that match bodies by the low 32 bits alone.
"""

from __future__ import annotations

import enum
from typing import Final

from bowstring.errors import ProtocolError

PACKED: Final = 0
POINTERS: Final = 1

SEQUENCE_MASK: Final = 0xFFFF_FFFF
TYPE_SHIFT: Final = 56
_RESERVED: Final = 0x00FF_FFFF_0000_0000
_CONTROL: Final = (0xB0 << TYPE_SHIFT) | 0xFFFF_FF00
_URI: Final = (0xB1 << TYPE_SHIFT) | 0xFFFF_FF00
REQUEST: Final = (0xB2 << TYPE_SHIFT) | 0xFFFF_FF00
"""Requests to a server that is more than one of data sets, such as a depot, and its answers."""


def is_request(tag: int | None) -> bool:
    """Whether a message, with a tag or without, is a request beside those for data sets."""
    return tag is not None and tag >> TYPE_SHIFT == REQUEST >> TYPE_SHIFT


class Want(enum.IntEnum):
    """The tags that a server of ours names in its URIs."""

    DATA = _URI | 0x01
    """Metadata and bodies on this connection."""
    METADATA = _URI | 0x02
    """Metadata only."""
    BODIES = _URI | 0x03
    """Bodies only."""
    FREE = _URI | 0x04
    HELLO = _URI | 0x05


class Control(enum.IntEnum):
    """The tags of the messages beyond the specification, used only after a hello (``docs/protocol.md``)."""

    WELCOME = _CONTROL | 0x01
    REGION = _CONTROL | 0x02
    ERROR = _CONTROL | 0x03
    PING = _CONTROL | 0x04
    PONG = _CONTROL | 0x05
    BLOCKED = _CONTROL | 0x06
    STOPPED = _CONTROL | 0x07
    NO_ROOM = _CONTROL | 0x08
    DEVICES = _CONTROL | 0x09
    EVENT = _CONTROL | 0x0A
    LISTING = _CONTROL | 0x0B
    PARTITION = _CONTROL | 0x0C
    FORGET = _CONTROL | 0x0D
    CREDIT = _CONTROL | 0x11
    WINDOW = _CONTROL | 0x12
    FORKED = _CONTROL | 0x13
    DONE = _CONTROL | 0x14
    STOP = _CONTROL | 0x15
    UNUSED = _CONTROL | 0x16
    ANSWER = _CONTROL | 0x17
    WAIT = _CONTROL | 0x18
    COLUMNS = _CONTROL | 0x19
    LIST = _CONTROL | 0x1A
    PARTITIONS = _CONTROL | 0x1B
    TAKEN = _CONTROL | 0x1C
    LOOK = _CONTROL | 0x1D
    FOLLOW = _CONTROL | 0x1E


def body_tag(sequence: int, body_type: int) -> int:
    """Return the tag of a body."""
    return (body_type << TYPE_SHIFT) | (sequence & SEQUENCE_MASK)


def is_body(tag: int) -> bool:
    """Whether a tag is meant for a body: its type byte is none of those that Bowstring added."""
    return tag >> TYPE_SHIFT not in (_CONTROL >> TYPE_SHIFT, _URI >> TYPE_SHIFT, REQUEST >> TYPE_SHIFT)


def is_pointers(tag: int) -> bool:
    """Whether a tag is that of a body of type 1."""
    return tag >> TYPE_SHIFT == POINTERS


def is_packed(tag: int | None) -> bool:
    """Whether a message, with a tag or without, is a body of type 0."""
    return tag is not None and tag >> TYPE_SHIFT == PACKED


def split_body_tag(tag: int) -> tuple[int, int]:
    """Return (sequence number, body type); reserved bits must be 0."""
    body_type = tag >> TYPE_SHIFT
    if tag & _RESERVED:
        raise ProtocolError(
            "reserved bits of a body tag are set", expected="bits 32-55 clear", found=hex(tag)
        )
    if body_type not in (PACKED, POINTERS):
        raise ProtocolError("a body has an unknown type", expected="0 or 1", found=body_type)
    return tag & SEQUENCE_MASK, body_type
