"""Every MUST of the Dissociated IPC specification, with its sentence."""

from __future__ import annotations

import gc
import queue
import struct
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.client.connection.assembler import Assembler
from bowstring.dissociated.events import Announced
from bowstring.dissociated.items import IpcMessage
from bowstring.dissociated.location import Location
from bowstring.dissociated.producer import ProducerProtocol
from bowstring.dissociated.tags import PACKED, POINTERS, Control, Want, body_tag
from bowstring.dissociated.wire import pack_addresses, pack_prefix, pack_region
from bowstring.errors import ProtocolError, UsageError
from bowstring.ipc.flatbuf.message import MessageKind, decode_message
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Handle
from bowstring.transport.header import HEADER_BYTES, Header, decode_header, pack_header

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material

NUMBERS = pa.schema({"n": pa.int64()})


def test_messages_are_delimited() -> None:
    """*A transport MUST provide … delimited messages*: the framing gives back where a message ends."""
    header = decode_header(pack_header(None, 0, 77), 0, DEFAULT_LIMITS, 0)
    assert header == Header(tag=None, attachments=0, length=77)
    assert len(pack_header(*header)) == HEADER_BYTES


@given(tag=st.integers(0, 2**64 - 1))
def test_messages_are_tagged(tag: int) -> None:
    """*… tagged message sending*: the framing carries any 64-bit tag, little-endian."""
    data = pack_header(tag, 0, 5)
    assert decode_header(data, 0, DEFAULT_LIMITS, 0).tag == tag
    assert tag.to_bytes(8, "little") == data[8:16]


def test_want_data_is_required() -> None:
    """*want_data: REQUIRED*: a URI without it is refused, and one that we print has it in decimal."""
    with pytest.raises(UsageError, match="want_data"):
        Location.parse("unix:/tmp/x.sock?free_data=3")
    assert "?want_data=18446744073709551615" in str(Location("unix:/tmp/x.sock", 2**64 - 1))


def test_first_message_is_the_schema(material: Material) -> None:
    """*The first message in the stream MUST always be a schema message*: another one is refused."""
    messages = material.batches(1)
    batch = next(each for each in messages if each.tag is None and each.body[1:5] == bytes([1, 0, 0, 0]))
    assert decode_message(messages[0].body[5:]).kind is MessageKind.SCHEMA
    for ordered in (True, False):
        listener = material.listener(ordered=ordered)
        with pytest.raises(ProtocolError):
            listener.hear(material.say(None, pack_prefix(1, 0) + batch.body[5:]))
        assert not listener.events


def test_schema_has_number_0(material: Material) -> None:
    """*The first message … MUST have a sequence number of 0*: ours has, and a schema with another is refused."""
    schema = material.batches(0)[0]
    assert schema.body[:5] == bytes([1, 0, 0, 0, 0])
    for number in (1, 2**31, 2**32 - 1):
        for ordered in (True, False):
            with pytest.raises(ProtocolError):
                material.listener(ordered=ordered).hear(
                    material.say(None, pack_prefix(1, number) + schema.body[5:])
                )


def test_numbers_go_up_by_one(material: Material) -> None:
    """*Each subsequent message MUST increment the number by 1*: ours do, and a leap is refused at once."""
    messages = material.batches(3)
    untagged = [message for message in messages if message.tag is None]
    assert [int.from_bytes(message.body[1:5], "little") for message in untagged] == [0, 1, 2, 3, 4]
    listener = material.listener()
    listener.hear(untagged[0], untagged[1])
    with pytest.raises(ProtocolError, match="missing"):
        listener.hear(untagged[3])


def test_end_is_exactly_5_bytes(material: Material) -> None:
    """*The server MUST indicate the end … by a message of exactly 5 bytes*: type 0 and the number, no more."""
    messages = material.batches(2)
    assert messages[-1].body == struct.pack("<BI", 0, 3)
    assert sum(message.tag is None and message.body[0] == 0 for message in messages) == 1
    for body in (messages[-1].body[:4], messages[-1].body + b"\0", messages[-1].body * 2, b""):
        listener = material.listener()
        listener.hear(*messages[:-1])
        with pytest.raises(ProtocolError):
            listener.hear(material.say(None, body))
        assert listener.ends == 0


@pytest.mark.parametrize("pointers", [False, True])
def test_every_batch_and_dictionary_has_a_body(material: Material, *, pointers: bool) -> None:
    """*A tagged message MUST be sent if that message has a body (i.e. a Record Batch or Dictionary)*: even
    an empty one; the schema has none.
    """
    region = material.region()
    items = [
        material.item(rows, region, dictionary=is_dictionary)
        for rows in (0, 3)
        for is_dictionary in (False, True)
    ]
    tags = [
        message.tag
        for message in material.stream(items, pointers=pointers)
        if message.tag is not None and message.tag != Control.REGION
    ]
    assert tags == [body_tag(number, POINTERS if pointers else PACKED) for number in (1, 2, 3, 4)]


@given(bits=st.integers(1, 2**24 - 1), number=st.integers(0, 2**32 - 1), body_type=st.sampled_from([0, 1]))
def test_reserved_bits_are_0(material: Material, bits: int, number: int, body_type: int) -> None:
    """*Bits 32 - 55 of the tag … MUST be 0*: ours are, and a tag with one of them set is refused."""
    tag = body_tag(number, body_type)
    assert not tag >> 32 & 0xFF_FFFF
    with pytest.raises(ProtocolError, match="reserved"):
        material.listener().hear(material.say(tag | bits << 32, b""))


def test_lent_memory_lives_until_it_is_freed(material: Material) -> None:
    """*Memory addresses that are sent across MUST be kept alive until … free_data*: and no longer."""
    producer = material.producer(pointers=True)
    region = material.region()
    alive = weakref.ref(region)
    producer.send(material.schema)
    body = b"".join(producer.send(material.item(4, region))[-1].pieces)
    del region
    gc.collect()
    assert alive() is not None
    addresses = np.frombuffer(body, "<u8").reshape(-1, 2)[1:, 0]
    producer.receive(Want.FREE, pack_addresses(addresses[addresses != 0]))
    gc.collect()
    assert alive() is None


def test_client_keeps_the_addresses_for_free_data(material: Material) -> None:
    """*These addresses MUST be retained so they can be sent back in free_data*: a batch that is collected leaves
    the addresses that it was lent, each as often as it came, and the producer takes them.
    """
    producer, listener = material.producer(pointers=True), material.listener()
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    assembler = Assembler(DEFAULT_LIMITS, listener.protocol, ended)
    region = material.region()
    for item in (IpcMessage(encode_schema(NUMBERS)), material.item(4, region), material.item(4, region)):
        for message in producer.send(item):
            beside = [region] if message.attachment is not None else []
            listener.hear(material.say(message.tag, b"".join(message.pieces), *beside))
    announced = next(event for event in listener.events if isinstance(event, Announced))
    assembler.announced.add(announced.base, region, region.nbytes)
    batches = [assembler.take(part) for part in listener.parts][1:]
    assert producer.ledger.outstanding == 2
    assert ended.empty()
    while batches:
        assert batches.pop() is not None
        gc.collect()
        producer.receive(Want.FREE, pack_addresses(ended.get(timeout=1).addresses))
    assert ended.empty()
    assert producer.ledger.outstanding == 0


@pytest.mark.parametrize("pointers", [False, True])
def test_numbers_roll_over(material: Material, *, pointers: bool) -> None:
    """*If a sequence number reaches UINT32_MAX, it should be allowed to roll over*: a stream goes on at 0."""
    messages = material.batches(6, pointers=pointers, first=2**32 - 3)
    listener = material.listener(first=2**32 - 3)
    listener.hear(*messages)
    assert [part.sequence for part in listener.parts] == [2**32 - 3, 2**32 - 2, 2**32 - 1, 0, 1, 2, 3]
    assert listener.ends == 1


def test_numbers_come_round(material: Material) -> None:
    """After four thousand million messages the number of the schema is that of a batch like any other."""
    listener = material.listener()
    listener.hear(material.batches(0)[0])
    far = 2**32 - 2
    listener.protocol.sequence.next = far
    listener.hear(*material.batches(5, first=far - 1)[1:])
    assert [part.sequence for part in listener.parts[1:]] == [far, far + 1, 0, 1, 2]
    assert listener.ends == 1


def test_prefix_is_little_endian() -> None:
    """*The next 4-bytes are a little-endian, unsigned 32-bit integer*: and the first is the type."""
    assert pack_prefix(1, 0x0403_0201) == bytes([1, 1, 2, 3, 4])


def test_bodies_match_by_number_alone(material: Material) -> None:
    """*The tag mask of 0xFFFFFFFF should be used*: either type of body goes with the metadata of its number."""
    messages = material.batches(2)
    listener = material.listener()
    for message in messages:
        if message.tag is not None and message.tag == body_tag(2, PACKED):
            listener.hear(material.say(body_tag(2, POINTERS), struct.pack("<4Q", 8, 1, 4096, 8)))
        else:
            listener.hear(message)
    assert listener.bodies() == [None, bytes(8), (8, [[4096, 8]])]


def test_a_session_without_hello_keeps_to_the_specification(material: Material) -> None:
    """A reader that knows only the specification gets numbered metadata and bodies of type 0, nothing else."""
    producer = ProducerProtocol(DEFAULT_LIMITS)
    producer.receive(Want.DATA, b"ticket")
    region = material.region()
    said = [
        message for item in (material.schema, material.item(3, region)) for message in producer.send(item)
    ]
    said += producer.end() + producer.blocked(1)
    assert [message.tag for message in said] == [None, None, body_tag(1, PACKED), None]
    assert all(message.attachment is None for message in said)


def test_a_region_is_announced_before_it_is_used(material: Material) -> None:
    """The announcement of a region goes before the first body that points into it, and goes once."""
    region, other = material.region(), material.region()
    messages = material.stream([material.item(1, each) for each in (region, region, other)], pointers=True)
    announced = [message for message in messages if message.tag == Control.REGION]
    assert [message.attachments for message in announced] == [(region,), (other,)]
    assert announced[0].body == pack_region(
        int.from_bytes(announced[0].body[:8], "little"), Handle.of(region)
    )
    assert messages.index(announced[1]) < messages.index(
        next(message for message in messages if message.tag == body_tag(3, POINTERS))
    )
