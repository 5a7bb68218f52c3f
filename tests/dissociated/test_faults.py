"""Faults: a producer that breaks the protocol is found out, and never taken for one that came to its end."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.events import Signal
from bowstring.dissociated.reader import ReaderProtocol
from bowstring.dissociated.tags import PACKED, POINTERS, Control, Want, body_tag
from bowstring.dissociated.wire import pack_prefix
from bowstring.errors import BowstringError, ProtocolError, Unsupported
from bowstring.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from tests.dissociated.conftest import Listener, Material, Said

FIRSTS = st.sampled_from([0, 2**31 - 2, 2**32 - 3])


def broken_by(listener: Listener, fault: Said, rest: list[Said]) -> BowstringError:
    """Say a fault and then the rest of the stream: nothing of that may be taken."""
    before = len(listener.events)
    with pytest.raises(BowstringError) as raised:
        listener.hear(fault)
    for message in rest:
        with pytest.raises(ProtocolError, match="broke before"):
            listener.hear(message)
    assert len(listener.events) == before
    assert listener.ends == 0
    return raised.value


def renumbered(message: Said, number: int) -> Said:
    """Return a message with another sequence number."""
    if message.tag is None:
        return dataclasses.replace(
            message, body=message.body[:1] + struct.pack("<I", number % 2**32) + message.body[5:]
        )
    return dataclasses.replace(message, tag=body_tag(number, message.tag >> 56))


@pytest.fixture(params=[0, 2**31 - 2, 2**32 - 3], ids=["", "far half", "roll-over"])
def first(request: pytest.FixtureRequest) -> int:
    """Return the number of the schema."""
    return int(request.param)


@pytest.fixture(params=[True, False], ids=["ordered", "unordered"])
def ordered(request: pytest.FixtureRequest) -> bool:
    """Return whether the metadata connection keeps the order."""
    return bool(request.param)


@pytest.mark.parametrize("leap", [1, 2, 1000, 2**31 - 1])
def test_a_gap_is_found_at_once(material: Material, first: int, leap: int) -> None:
    """Where the order is kept, a number left out is an error at the next one, not at some deadline."""
    schema, metadata, body, *rest = material.batches(2, first=first)
    listener = material.listener(first=first)
    listener.hear(schema)
    broken_by(listener, renumbered(metadata, first + 1 + leap), [body, *rest])


@pytest.mark.parametrize("back", [1, 2, 1000, 2**31 - 2])
def test_numbers_do_not_go_back(material: Material, first: int, back: int, *, ordered: bool) -> None:
    """Metadata or a body for a message that was complete is refused, whether it is a duplicate or new."""
    messages = material.batches(3, first=first)
    for fault in (messages[3], messages[4]):
        listener = material.listener(ordered=ordered, first=first)
        listener.hear(*messages[:5])
        broken_by(listener, renumbered(fault, first + 3 - back), messages[5:])


def test_duplicates(material: Material, first: int, *, ordered: bool) -> None:
    """The same half twice is refused, also while its other half is still missing."""
    schema, metadata, body, *rest = material.batches(2, first=first)
    for said, fault in (([schema, metadata], metadata), ([schema, body], body), ([schema], schema)):
        listener = material.listener(ordered=ordered, first=first)
        listener.hear(*said)
        broken_by(listener, fault, rest)


def test_two_bodies_of_two_types(material: Material, first: int) -> None:
    """A body of type 1 beside one of type 0 for the same message is a duplicate too."""
    schema, _, body, *rest = material.batches(2, first=first)
    listener = material.listener(first=first)
    listener.hear(schema, body)
    broken_by(listener, material.say(body_tag(first + 1, POINTERS), bytes(16)), rest)


@pytest.mark.parametrize("off", [1, 2, 1000, 2**31 - 1, 2**31, -1, -2, -1000, -(2**31) + 3])
def test_an_end_with_a_wrong_number(material: Material, first: int, off: int) -> None:
    """The end must have the next number: one more claims messages that never came, one less denies some."""
    *messages, end = material.batches(3, first=first)
    listener = material.listener(first=first)
    listener.hear(*messages)
    broken_by(listener, renumbered(end, first + 4 + off), [end])


@pytest.mark.parametrize("off", [-1, -2, -3])
def test_an_end_that_denies_what_came(material: Material, first: int, off: int) -> None:
    """Without order too: an end whose number some message has, or is behind, is refused."""
    messages = material.batches(3, first=first)
    for heard in (
        messages[:-1],
        [message for message in messages[:-1] if message.tag is None],
        messages[2:-1],
    ):
        listener = material.listener(ordered=False, first=first)
        listener.hear(*heard)
        broken_by(listener, renumbered(messages[-1], first + 4 + off), messages[-1:])


def test_an_end_that_comes_too_early_is_waited_behind(material: Material, first: int) -> None:
    """Without order, an end that overtakes the others ends nothing until all of them are there."""
    *messages, end = material.batches(3, first=first)
    listener = material.listener(ordered=False, first=first)
    listener.hear(end)
    for message in messages:
        assert listener.ends == 0
        listener.hear(message)
    assert listener.ends == 1


def test_an_end_before_everything(material: Material, first: int, *, ordered: bool) -> None:
    """A stream without a schema has no end."""
    messages = material.batches(1, first=first)
    broken_by(material.listener(ordered=ordered, first=first), renumbered(messages[-1], first), messages)


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_two_ends(material: Material, first: int, off: int, *, ordered: bool) -> None:
    """A second end is refused, with whatever number, while parts are missing and when none is."""
    messages = material.batches(2, first=first)
    body = next(message for message in messages if message.tag is not None)
    missing = [message for message in messages if message is not body]
    listener = material.listener(ordered=ordered, first=first)
    listener.hear(*missing)
    broken_by(listener, renumbered(messages[-1], first + 3 + off), [body])
    listener = material.listener(ordered=ordered, first=first)
    listener.hear(*messages)
    with pytest.raises(ProtocolError):
        listener.hear(renumbered(messages[-1], first + 3 + off))
    assert listener.ends == 1


@pytest.mark.parametrize("beyond", [0, 1, 1000, 2**31 - 1])
def test_nothing_comes_behind_the_end(material: Material, first: int, beyond: int, *, ordered: bool) -> None:
    """Metadata and bodies with the number of the end, or a later one, are refused once the end is known."""
    messages = material.batches(2, first=first)
    last_body = messages[-2]
    for fault in (messages[3], messages[2]):
        listener = material.listener(ordered=ordered, first=first)
        listener.hear(*(message for message in messages if message is not last_body))
        broken_by(listener, renumbered(fault, first + 3 + beyond), [last_body])


def test_bodies_beyond_an_end_that_came_later(material: Material, first: int, *, ordered: bool) -> None:
    """A body that came early is held against the end when that comes."""
    schema, end = material.batches(0, first=first)
    listener = material.listener(ordered=ordered, first=first)
    listener.hear(schema, material.say(body_tag(first + 5, PACKED), b""))
    broken_by(listener, end, [])


def test_a_schema_has_no_body(material: Material, first: int, *, ordered: bool) -> None:
    """A body with the number of the schema is refused, before the schema and after it."""
    schema, *rest = material.batches(1, first=first)
    for said in ([], [schema]):
        for body_type in (PACKED, POINTERS):
            listener = material.listener(ordered=ordered, first=first)
            listener.hear(*said)
            broken_by(listener, material.say(body_tag(first, body_type), bytes(16)), rest)


def test_there_is_one_schema(material: Material, first: int, *, ordered: bool) -> None:
    """A schema in the middle of a stream is refused."""
    schema, *rest = material.batches(1, first=first)
    listener = material.listener(ordered=ordered, first=first)
    listener.hear(schema)
    broken_by(listener, renumbered(schema, first + 1), rest)


def test_other_kinds_of_messages(material: Material) -> None:
    """A tensor has no place in a stream of record batches."""
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.zeros(4)), sink)
    tensor = pa.ipc.read_message(sink.getvalue()).metadata.to_pybytes()
    schema, *rest = material.batches(1)
    listener = material.listener()
    listener.hear(schema)
    broken_by(listener, material.say(None, pack_prefix(1, 1) + tensor), rest)


@pytest.mark.parametrize("kind", [2, 3, 127, 255])
def test_unknown_types(material: Material, kind: int, *, ordered: bool) -> None:
    """Types that the specification does not have yet are refused, of metadata and of bodies."""
    schema, metadata, body, *rest = material.batches(1)
    faults = [
        dataclasses.replace(metadata, body=bytes([kind]) + metadata.body[1:]),
        dataclasses.replace(body, tag=1 | kind << 56),
    ]
    for fault in faults:
        listener = material.listener(ordered=ordered)
        listener.hear(schema)
        broken_by(listener, fault, [metadata, body, *rest])


@pytest.mark.parametrize(
    "tag", sorted({*Want, *Control} - set(Control) | {Control.CREDIT, Control.DONE, 0xB0 << 56})
)
def test_what_a_server_cannot_say(material: Material, tag: int) -> None:
    """A server that speaks as a reader does, or says what neither knows, is refused."""
    broken_by(material.listener(), material.say(tag, b""), material.batches(1))


@pytest.mark.parametrize("count", [0, 2])
def test_a_region_comes_with_its_memory(material: Material, count: int) -> None:
    """The announcement of a region without a descriptor, or with two, is refused."""
    announcement = next(
        message for message in material.batches(1, pointers=True) if message.tag == Control.REGION
    )
    fault = dataclasses.replace(announcement, attachments=announcement.attachments * count)
    broken_by(material.listener(), fault, material.batches(1))


def test_an_error_on_one_connection_ends_both(material: Material) -> None:
    """Where bodies come over a connection of their own, they do not complete a stream whose metadata broke."""
    messages = material.batches(2)
    untagged = [message for message in messages if message.tag is None]
    tagged = [message for message in messages if message.tag is not None]
    listener = material.listener()
    listener.hear(*untagged[:3], tagged[0])
    broken_by(listener, renumbered(untagged[3], 2), [tagged[1]])


@given(first=FIRSTS, count=st.integers(0, 4), pointers=st.booleans(), ordered=st.booleans(), data=st.data())
def test_a_truncated_stream_never_ends(
    material: Material, first: int, count: int, data: st.DataObject, *, pointers: bool, ordered: bool
) -> None:
    """Whichever messages are lost on the way, and in whatever order the others come, there is no end."""
    messages = [
        message
        for message in material.batches(count, pointers=pointers, first=first)
        if message.tag != Control.REGION
    ]
    lost = data.draw(st.sets(st.integers(0, len(messages) - 1), min_size=1))
    left = [message for position, message in enumerate(messages) if position not in lost]
    if not ordered:
        left = data.draw(st.permutations(left))
    listener = material.listener(ordered=ordered, first=first)
    for message in left:
        try:
            listener.hear(message)
        except BowstringError:
            continue
    assert listener.ends == 0


@st.composite
def damaged(draw: st.DrawFn, message: Said) -> list[Said]:
    """Return what becomes of a message by one fault."""
    how = draw(st.sampled_from(["flip", "tag", "cut", "add", "lose", "repeat", "retag", "garbage"]))
    body = bytearray(message.body)
    if how == "flip" and body:
        body[draw(st.integers(0, len(body) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif how == "tag" and message.tag is not None:
        return [dataclasses.replace(message, tag=message.tag ^ 1 << draw(st.integers(0, 63)))]
    elif how == "cut":
        body = body[: draw(st.integers(0, len(body)))]
    elif how == "add":
        body += draw(st.binary(min_size=1, max_size=20))
    elif how == "lose":
        return []
    elif how == "repeat":
        return [message, message]
    elif how == "retag":
        tags = st.none() | st.integers(0, 2**64 - 1) | st.sampled_from([*Control, *Want])
        return [dataclasses.replace(message, tag=draw(tags))]
    elif how == "garbage":
        strange = dataclasses.replace(
            message, tag=draw(st.none() | st.integers(0, 2**64 - 1)), body=draw(st.binary(max_size=30))
        )
        return [strange, message]
    return [dataclasses.replace(message, body=bytes(body))]


@given(first=FIRSTS, count=st.integers(0, 4), pointers=st.booleans(), data=st.data())
def test_a_damaged_stream_ends_only_if_it_is_whole(
    material: Material, first: int, count: int, data: st.DataObject, *, pointers: bool
) -> None:
    """One message lost, repeated, cut, or with a bit flipped: an error of the tree, or silence, or all parts."""
    messages = material.batches(count, pointers=pointers, first=first)
    where = data.draw(st.integers(0, len(messages) - 1))
    faulty = [*messages[:where], *data.draw(damaged(messages[where])), *messages[where + 1 :]]
    listener = material.listener(first=first)
    for position, message in enumerate(faulty):
        try:
            listener.hear(message)
        except BowstringError:
            ends = listener.ends
            for later in faulty[position + 1 :]:
                with pytest.raises(ProtocolError):
                    listener.hear(later)
            assert listener.ends == ends
            break
    assert listener.ends <= 1
    if listener.ends:
        assert [part.sequence for part in listener.parts] == [
            (first + number) % 2**32 for number in range(count + 1)
        ]


@given(
    messages=st.lists(
        st.tuples(
            st.none() | st.integers(0, 2**64 - 1) | st.integers(0, 5) | st.sampled_from([*Control]),
            st.binary(max_size=40),
        ),
        max_size=8,
    ),
    ordered=st.booleans(),
)
def test_any_garbage_at_all(messages: list[tuple[int | None, bytes]], *, ordered: bool) -> None:
    """Messages of random bytes raise nothing but errors of the tree, and are no stream that ends."""
    protocol = ReaderProtocol(DEFAULT_LIMITS, extended=ordered)
    events: list[Any] = []
    for tag, body in messages:
        try:
            events += protocol.receive(tag, body)
        except BowstringError:
            continue
    assert not any(event is Signal.END for event in events)


@given(data=st.data(), count=st.integers(1, 3))
def test_damaged_metadata(material: Material, data: st.DataObject, count: int) -> None:
    """Metadata cut anywhere, or with any bytes changed, decode, or raise an error of the tree."""
    messages = material.batches(count)
    untagged = [message for message in messages[:-1] if message.tag is None]
    chosen = data.draw(st.sampled_from(untagged))
    body = bytearray(chosen.body)
    for position in data.draw(st.lists(st.integers(5, len(body) - 1), max_size=4)):
        body[position] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(5, len(body)))
    listener = material.listener()
    for message in messages:
        said = message if message is not chosen else dataclasses.replace(chosen, body=bytes(body[:end]))
        try:
            listener.hear(said)
        except BowstringError:
            break


def test_an_unknown_metadata_version(material: Material) -> None:
    """Metadata of a version that does not exist yet are named as what they are."""
    schema = material.batches(0)[0]
    message = pa.ipc.read_message(pa.schema([]).serialize()).metadata.to_pybytes()
    body = bytearray(message)
    table = struct.unpack_from("<I", body)[0]
    vtable = table - struct.unpack_from("<i", body, table)[0]
    slot = struct.unpack_from("<H", body, vtable + 4)[0]
    struct.pack_into("<h", body, table + slot, 9)
    with pytest.raises(Unsupported, match="V10"):
        material.listener().hear(dataclasses.replace(schema, body=schema.body[:5] + bytes(body)))
