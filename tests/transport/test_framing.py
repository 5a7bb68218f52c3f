"""The header of a message, and what is refused in its place."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bowstring.dissociated.wire import Outgoing
from bowstring.errors import LimitExceeded, ProtocolError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport.framing import joined, whole_messages
from bowstring.transport.header import HEADER_BYTES, Header, check_beginning, decode_header, pack_header

LIMITS = DEFAULT_LIMITS
ROOMY = DEFAULT_LIMITS.replace(metadata_bytes=1 << 64, message_bytes=1 << 64, control_bytes=1 << 64)
HEADERS = st.builds(
    Header,
    tag=st.none() | st.integers(0, 2**64 - 1),
    attachments=st.integers(0, 0xFFFF),
    length=st.integers(0, 2**64 - 1),
)


@given(HEADERS, st.binary(max_size=50))
def test_round_trip(header: Header, before: bytes) -> None:
    """What was encoded is decoded, wherever it lies."""
    encoded = before + pack_header(*header) + b"rest"
    assert len(pack_header(*header)) == HEADER_BYTES
    assert decode_header(encoded, len(before), ROOMY, 0xFFFF) == header


BODIES = st.lists(
    st.tuples(st.none() | st.integers(0, 2**64 - 1), st.integers(0, 9), st.binary(max_size=30)), max_size=4
)


@given(BODIES, st.integers(0, 300), st.none() | st.tuples(st.integers(0, 300), st.integers(1, 255)))
def test_whole_messages(
    messages: list[tuple[int | None, int, bytes]], cut: int, flipped: tuple[int, int] | None
) -> None:
    """Of any bytes those messages are found that are whole, and only what a receiver takes one by one, too."""
    data = bytearray(b"".join(pack_header(tag, beside, len(body)) + body for tag, beside, body in messages))[
        :cut
    ]
    if flipped is not None and flipped[0] < len(data):
        data[flipped[0]] ^= flipped[1]
    found = whole_messages(bytes(data), LIMITS, 5)
    at = 0
    for message in found:
        assert decode_header(data, at, LIMITS, 5) == (message.tag, message.attachments, len(message.body))
        at += HEADER_BYTES + len(message.body)
        assert data[at - len(message.body) : at] == message.body
    if len(data) - at >= HEADER_BYTES:  # what stops it is incomplete, or refused
        with contextlib.suppress(ProtocolError, LimitExceeded):
            assert decode_header(data, at, LIMITS, 5).length > len(data) - at - HEADER_BYTES


@given(BODIES)
def test_messages_that_are_joined(messages: list[tuple[int | None, int, bytes]]) -> None:
    """What goes out in one call is each header with its body."""
    run = joined([Outgoing(tag, [body[:3], body[3:]]) for tag, _, body in messages])
    expected = b"".join(pack_header(tag, 0, len(body)) + body for tag, _, body in messages)
    assert (b"".join(run.views), run.nbytes, run.attachments) == (expected, len(expected), ())


def test_layout() -> None:
    """The bytes are those of the documented table."""
    encoded = pack_header(0x0102030405060708, 0x0A0B, 0x1112131415161718)
    assert encoded.hex() == "424f570101000b0a08070605040302011817161514131211"


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
@example(b"GET / HTTP/1.1\r\nHost: x\r\n")
@example(b"\x16\x03\x01\x02\x00\x01" * 4)
@example(bytes(24))
def test_foreign_bytes(found: bytes) -> None:
    """Bytes of another protocol are refused, whole and as soon as their beginning shows it."""
    assume(found[:4] != b"BOW\x01")
    with pytest.raises(ProtocolError):
        decode_header(found, 0, LIMITS, 0)
    with pytest.raises(ProtocolError):
        check_beginning(found[:4])


@pytest.mark.parametrize("begun", [b"", b"B", b"BO", b"BOW", b"BOW\x01", b"BOW\x01\x01\x00"])
def test_true_beginning(begun: bytes) -> None:
    """The beginning of a header passes, however little has come."""
    check_beginning(begun)


@pytest.mark.parametrize("begun", [b"G", b"BX", b"BOx", b"BOW\x02", b"\x00"])
def test_false_beginning(begun: bytes) -> None:
    """The first wrong byte is enough."""
    with pytest.raises(ProtocolError):
        check_beginning(begun)


@given(HEADERS, st.integers(0, HEADER_BYTES * 8 - 1))
def test_flipped_bit(header: Header, bit: int) -> None:
    """A header with one bit flipped is refused, or is another valid header of the same kind."""
    flipped = bytearray(pack_header(*header))
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        found = decode_header(flipped, 0, ROOMY, 0xFFFF)
    except ProtocolError:
        return
    assert bit >= 32
    assert found != header
    assert pack_header(*found) == flipped


@pytest.mark.parametrize(("offset", "value"), [(4, 2), (4, 255), (5, 1), (5, 128), (8, 1), (15, 1)], ids=str)
def test_reserved_bits(offset: int, value: int) -> None:
    """Unknown kinds and flags, and a tag in an untagged message, are refused."""
    header = bytearray(pack_header(None, 0, 5))
    header[offset] = value
    with pytest.raises(ProtocolError):
        decode_header(header, 0, LIMITS, 253)


def test_too_many_attachments() -> None:
    """More attachments than a transport carries are refused by the header alone."""
    header = pack_header(None, 3, 5)
    assert decode_header(header, 0, LIMITS, 3).attachments == 3
    with pytest.raises(ProtocolError):
        decode_header(header, 0, LIMITS, 2)


@given(HEADERS)
def test_bounds(header: Header) -> None:
    """A length passes exactly when it is within the bound for the kind of its message."""
    if header.tag is None:
        most = LIMITS.metadata_bytes
    else:
        most = LIMITS.message_bytes if header.tag < 2 << 56 else LIMITS.control_bytes
    for length in (header.length, most, most + 1):
        encoded = pack_header(*header._replace(length=length))
        if length <= most:
            assert decode_header(encoded, 0, LIMITS, 0xFFFF).length == length
        else:
            with pytest.raises(LimitExceeded):
                decode_header(encoded, 0, LIMITS, 0xFFFF)
