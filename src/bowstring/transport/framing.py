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

import struct
from typing import NamedTuple

from bowstring.errors import LimitExceeded, ProtocolError
from bowstring.limits import Limits

__all__ = [
    "HEADER_BYTES",
    "Header",
    "check_beginning",
    "check_length",
    "decode_header",
    "encode_header",
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
        raise ProtocolError(
            "the peer does not speak Bowstring's framing",
            expected=_MAGIC,
            found=f"{begun[:4]!r}...",
            hint="Something else uses this address, or bytes were lost on the way.",
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
