"""The header of 24 bytes before each message on a byte stream (``unix:``, ``tcp:``); see ``docs/protocol.md``.

A length is held against :class:`~bowstring.limits.Limits` before anything is allocated: `metadata_bytes` for an
untagged message, `message_bytes` for a tag whose top byte is 0 or 1, `control_bytes` for every other tag.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from bowstring.errors import LimitExceeded, ProtocolError
from bowstring.limits import Limits

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


def pack_header(tag: int | None, attachments: int, length: int) -> bytes:
    """Return the 24 bytes of a header."""
    if tag is None:
        return _HEADER.pack(_MAGIC, _VERSION, _UNTAGGED, 0, attachments, 0, length)
    return _HEADER.pack(_MAGIC, _VERSION, _TAGGED, 0, attachments, tag, length)


def decode_header(
    source: memoryview | bytes | bytearray, offset: int, limits: Limits, most_attachments: int
) -> Header:
    """Decode the header at ``offset`` and hold it against the bounds."""
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
    """Refuse bytes that are not the beginning of a header, however few they are."""
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
    """Hold the length of a message against the bound for its kind."""
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
