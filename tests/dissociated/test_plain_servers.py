"""A consumer of a server that knows only the specification, and what one with our extensions must not send."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from bowstring.dissociated.reader import ReaderProtocol
from bowstring.dissociated.tags import POINTERS, Control, body_tag
from bowstring.dissociated.wire import DeviceId, Welcome, pack_devices, pack_u64
from bowstring.errors import LimitExceeded, ProtocolError
from bowstring.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material, Said

FIRSTS = pytest.mark.parametrize("first", [0, 2**31 - 1, 2**32 - 2], ids=["", "far half", "roll-over"])
WELCOME = Welcome(charged=False, path="", why="").pack()


def with_an_empty_batch(material: Material, first: int) -> list[Said]:
    """Return schema, metadata and empty body of a batch without rows, those of one with a row, and the end."""
    return material.stream([material.item(0), material.item(1, mark=7)], first=first)


@FIRSTS
@pytest.mark.parametrize("sent", [True, False], ids=["sent", "left out"])
def test_every_order_with_an_empty_body(material: Material, first: int, *, sent: bool) -> None:
    """In every order of a stream, with its empty body or without, each batch comes out once, in order, and one end.

    The stream ends when the last message came that has a byte to bring; the empty body may come behind that.
    """
    messages = with_an_empty_batch(material, first)
    empty = messages[2]
    assert (empty.tag, empty.body) == (body_tag(first + 1, 0), b"")
    needed = [message for message in messages if message is not empty]
    for order in itertools.permutations(messages if sent else needed):
        listener = material.listener(ordered=False, first=first)
        missing = len(needed)
        for message in order:
            assert listener.ends == (not missing)
            listener.hear(message)
            missing -= message is not empty
        assert listener.ends == 1
        assert [part.sequence for part in listener.parts] == [(first + n) % 2**32 for n in range(3)]
        assert [body or b"" for body in listener.bodies()[1:]] == [b"", (7).to_bytes(8, "little")]


def test_an_empty_body_is_taken_once(material: Material) -> None:
    """A second empty body, one with bytes for a batch without any, and one for a batch with bytes are refused."""
    schema, metadata, empty, other, body, end = with_an_empty_batch(material, 0)
    for late in (
        [empty, empty],
        [material.say(empty.tag, b"12345678")],
        [material.say(body.tag, b"")],
        [material.say(body_tag(1, POINTERS), (8).to_bytes(8, "little") + bytes(8))],
    ):
        listener = material.listener(ordered=False)
        listener.hear(schema, metadata, other, body, end)
        assert listener.ends == 1
        with pytest.raises(ProtocolError):
            listener.hear(*late)


def test_a_server_with_extensions_sends_every_body(material: Material) -> None:
    """After a hello an empty body is sent, and waited for: it may be of type 1."""
    schema, metadata, empty, other, body, end = with_an_empty_batch(material, 0)
    listener = material.listener()
    listener.hear(schema, metadata, other, body, end)
    assert (len(listener.parts), listener.ends) == (1, 0)
    assert "message 1 lacks its body" in listener.protocol.missing
    listener.hear(empty)
    assert (len(listener.parts), listener.ends) == (3, 1)


@FIRSTS
def test_when_metadata_are_complete(material: Material, first: int) -> None:
    """In every order: exactly when the end has come and no number below it is missing, whatever bodies are."""
    messages = material.batches(2, first=first)
    for order in itertools.permutations(messages):
        listener = material.listener(ordered=False, first=first)
        left = sum(message.tag is None for message in messages)
        for message in order:
            assert listener.protocol.sequence.metadata_complete == (not left)
            listener.hear(message)
            left -= message.tag is None
        assert listener.protocol.sequence.metadata_complete


@FIRSTS
def test_whether_a_body_is_lacking(material: Material, first: int) -> None:
    """In every order: exactly when the next message to come out has its metadata."""
    messages = material.batches(2, first=first)
    for order in itertools.permutations(messages):
        listener = material.listener(ordered=False, first=first)
        came: set[int] = set()
        for message in order:
            listener.hear(message)
            if message.tag is None:
                came.add(int.from_bytes(message.body[1:5], "little"))
            following = (first + len(listener.parts)) % 2**32
            assert listener.protocol.sequence.lacks_body == (
                following in came and not listener.ends and following != (first + 3) % 2**32
            )


def test_metadata_that_wait_are_bounded_in_number(material: Material) -> None:
    """Of metadata behind a gap as many are kept as `Limits.early_messages` says."""
    schema, *rest = material.batches(6)
    metadata = [message for message in rest if message.tag is None][1:-1]
    assert len(metadata) == 5
    limits = DEFAULT_LIMITS.replace(early_messages=4)
    listener = material.listener(ordered=False, limits=limits)
    listener.hear(schema, *metadata[:4])
    with pytest.raises(LimitExceeded, match=r"early_messages.*message 1 lacks its metadata"):
        listener.hear(metadata[4])


def test_metadata_that_wait_are_bounded_in_bytes(material: Material) -> None:
    """Of metadata behind a gap as many bytes are kept as `Limits.early_bytes` says; what came out costs none."""
    schema, first, first_body, *rest = material.batches(6)
    metadata = [message for message in rest if message.tag is None][:-1]
    nbytes = len(metadata[0].body) - 5
    limits = DEFAULT_LIMITS.replace(early_bytes=3 * nbytes)
    listener = material.listener(ordered=False, limits=limits)
    listener.hear(schema, first, first_body, *reversed(metadata[1:4]))
    with pytest.raises(LimitExceeded, match="early_bytes"):
        listener.hear(metadata[4])


def test_metadata_run_ahead_of_bodies_only(material: Material) -> None:
    """Far ahead are metadata that wait for a body; where metadata are missing, reading on is what brings them."""
    schema, *rest = material.batches(4)
    metadata = [message for message in rest if message.tag is None][:-1]
    limits = DEFAULT_LIMITS.replace(early_messages=32)
    listener = material.listener(ordered=False, limits=limits)
    listener.hear(schema, *metadata[1:])
    assert not listener.protocol.sequence.runs_ahead
    listener.hear(metadata[0])
    assert listener.protocol.sequence.runs_ahead


@pytest.mark.parametrize("tag", sorted(Control))
def test_a_plain_server_sends_nothing_of_ours(material: Material, tag: Control) -> None:
    """A server that was sent no hello breaks the protocol with any message that the specification does not know."""
    listener = material.listener(ordered=False)
    listener.hear(material.batches(0)[0])
    with pytest.raises(ProtocolError, match="no hello"):
        listener.hear(material.say(tag, WELCOME if tag == Control.WELCOME else pack_u64(1)))


def test_a_welcome_that_was_promised(material: Material) -> None:
    """A server that took a hello sends WELCOME before the first message of the stream, or the error says so."""
    schema, metadata, body, _ = material.batches(1)
    for early in (schema, body):
        listener = material.listener(welcome=False)
        assert "WELCOME" in listener.protocol.missing
        with pytest.raises(ProtocolError, match="sent no WELCOME"):
            listener.hear(early)
    separate = ReaderProtocol(DEFAULT_LIMITS)
    separate.receive(schema.tag, schema.body)  # on the other connection, where there is none
    separate.receive(metadata.tag, metadata.body)
    assert "WELCOME" in separate.missing
    with pytest.raises(ProtocolError, match="sent no WELCOME"):
        separate.receive(body.tag, body.body)


def test_a_welcome_comes_once(material: Material) -> None:
    """A second WELCOME is refused wherever it comes, and so are questions that belong before it."""
    messages = material.batches(1)
    for position in range(len(messages) + 1):
        listener = material.listener()
        listener.hear(*messages[:position])
        with pytest.raises(ProtocolError, match="once"):
            listener.hear(material.say(Control.WELCOME, WELCOME))
    for tag, body in ((Control.DEVICES, pack_devices([DeviceId(2, bytes(16))])), (Control.EVENT, bytes(124))):
        with pytest.raises(ProtocolError, match="WELCOME"):
            material.listener().hear(material.say(tag, body))
