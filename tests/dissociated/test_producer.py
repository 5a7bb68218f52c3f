"""The producer's half: what a reader may say, in which order, and what is lent for which credit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.items import IpcMessage
from bowstring.dissociated.producer import (
    Heard,
    ProducerProtocol,
    Role,
    Wanted,
)
from bowstring.dissociated.tags import PACKED, POINTERS, Control, Want, body_tag
from bowstring.dissociated.wire import DeviceId, Hello, pack_addresses, pack_u64, unpack_pairs
from bowstring.errors import BowstringError, ProtocolError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import LentHandle, Region, cpu, lend, lendable
from bowstring.testing import fake_device

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material

HELLO = Hello(window=100, pointers=True).pack()
FROM_READER = [*Want, *Control]
GOOD: dict[int, bytes] = {
    Want.HELLO: HELLO,
    Want.DATA: b"ticket",
    Want.METADATA: b"ticket",
    Want.BODIES: b"ticket",
    Want.FREE: pack_addresses(np.array([4096], np.uint64)),
    Control.CREDIT: pack_u64(0),
    Control.WINDOW: pack_u64(8),
    Control.COLUMNS: b'{"columns": ["a", "b"]}',
    Control.PARTITIONS: bytes.fromhex("00000000 0100 74"),
    Control.TAKEN: bytes(4),
    Control.FOLLOW: b'{"follow": true, "since": "00ff:7"}',
}
MEANINGS: dict[int, Heard] = {
    Control.CREDIT: Heard.FREED,
    Control.WINDOW: Heard.FREED,
    Control.FORKED: Heard.FORKED,
    Control.STOP: Heard.STOPPED,
    Control.UNUSED: Heard.STOPPED,
    Control.PING: Heard.PING,
    Control.PONG: Heard.ALIVE,
}


def fresh() -> ProducerProtocol:
    return ProducerProtocol(DEFAULT_LIMITS)


@pytest.mark.parametrize("role", list(Role))
def test_a_reader_asks_by_tag(role: Role) -> None:
    """The tag of the request says what a reader wants on this connection, its body names the data set."""
    for hello in (False, True):
        producer = fresh()
        if hello:
            assert producer.receive(Want.HELLO, HELLO) is None
        assert producer.receive(role.value, b"trips") == Wanted(b"trips", role)
        assert producer.role is role


@pytest.mark.parametrize(
    "tag", sorted({*FROM_READER} - {Want.HELLO, Want.DATA, Want.METADATA, Want.BODIES, Control.LIST})
)
def test_a_data_set_is_named_first(tag: int) -> None:
    """Before a reader asks for a data set it can say hello, name columns, look, follow, or ask for a list."""
    for hello in (False, True):
        producer = fresh()
        if hello:
            producer.receive(Want.HELLO, HELLO)
        if hello and tag == Control.COLUMNS:
            assert producer.receive(tag, GOOD[tag]) is Heard.ALIVE
            assert producer.hello is not None
            assert producer.hello.columns == ("a", "b")
            tag = Want.FREE
        if hello and tag == Control.LOOK:
            assert producer.receive(tag, b"") is Heard.ALIVE
            assert producer.looks
        if hello and tag == Control.FOLLOW:
            assert producer.receive(tag, GOOD[tag]) is Heard.ALIVE
            assert producer.hello is not None
            assert (producer.hello.follow, producer.hello.since) == (True, "00ff:7")
        with pytest.raises(ProtocolError, match="first"):
            producer.receive(tag, GOOD.get(tag, b""))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"7",
        b"{}",
        b'{"follow": false}',
        b'{"follow": 1}',
        b'{"follow": true, "since": 7}',
        b'{"since": "a"}',
    ],
)
def test_what_no_follower_says(body: bytes) -> None:
    """A follower says that it follows, or from which position, as JSON."""
    producer = fresh()
    producer.receive(Want.HELLO, HELLO)
    with pytest.raises(ProtocolError, match="follower"):
        producer.receive(Control.FOLLOW, body)


def test_columns_come_once() -> None:
    """Columns behind a hello that names some, or behind others, are refused, and so is what is no list of names."""
    for hello, body in (
        (Hello(("a",)), GOOD[Control.COLUMNS]),
        (Hello(), b'{"columns": [1]}'),
        (Hello(), b"{"),
    ):
        producer = fresh()
        producer.receive(Want.HELLO, hello.pack())
        with pytest.raises(ProtocolError, match="columns"):
            producer.receive(Control.COLUMNS, body)
    producer = fresh()
    producer.receive(Want.HELLO, Hello().pack())
    producer.receive(Control.COLUMNS, GOOD[Control.COLUMNS])
    with pytest.raises(ProtocolError, match="columns"):
        producer.receive(Control.COLUMNS, GOOD[Control.COLUMNS])


def test_the_hello_comes_first_and_once() -> None:
    """A second hello, or one after the request, is refused."""
    producer = fresh()
    producer.receive(Want.HELLO, HELLO)
    with pytest.raises(ProtocolError, match="hello"):
        producer.receive(Want.HELLO, HELLO)
    producer = fresh()
    producer.receive(Want.DATA, b"t")
    with pytest.raises(ProtocolError, match="hello"):
        producer.receive(Want.HELLO, HELLO)


@pytest.mark.parametrize("tag", [Want.DATA, Want.METADATA, Want.BODIES])
def test_one_stream_a_connection(tag: int) -> None:
    """A second request on a connection is refused: numbers name messages of one stream only."""
    producer = fresh()
    producer.receive(Want.DATA, b"t")
    with pytest.raises(ProtocolError, match="one stream"):
        producer.receive(tag, b"t")


@pytest.mark.parametrize("tag", sorted(Control))
def test_a_reader_without_hello_knows_the_specification_only(tag: int) -> None:
    """Without a hello a reader can free memory; our own messages are refused."""
    producer = fresh()
    producer.receive(Want.DATA, b"t")
    with pytest.raises(ProtocolError, match="hello"):
        producer.receive(tag, GOOD.get(tag, b""))


@pytest.mark.parametrize("tag", sorted(Control))
def test_what_a_reader_may_say(material: Material, tag: int) -> None:
    """After hello and request each message of a reader has its meaning; a server's own are refused."""
    producer = material.producer()
    if tag in MEANINGS:
        assert producer.receive(tag, GOOD.get(tag, b"")) is MEANINGS[tag]
    elif tag == Control.DONE:
        producer.end()
        assert producer.receive(tag, b"") is Heard.DONE
    elif tag == Control.ANSWER:
        producer.ask([DeviceId(2, bytes(16))])
        assert producer.receive(tag, b"") is Heard.ANSWERED
    else:
        with pytest.raises(ProtocolError, match="cannot say"):
            producer.receive(tag, b"")


@given(tag=st.none() | st.integers(0, 2**64 - 1) | st.sampled_from(FROM_READER), body=st.binary(max_size=40))
def test_any_reader_is_understood_or_refused(material: Material, tag: int | None, body: bytes) -> None:
    """Whatever a reader says, at any time, nothing but an error of the tree comes of it."""
    for producer in (fresh(), material.producer(), material.producer(pointers=True)):
        for _ in range(2):
            try:
                producer.receive(tag, body)
            except BowstringError:
                continue


def test_tickets_are_bounded() -> None:
    """A ticket is any bytes, up to 4096 of them."""
    assert fresh().receive(Want.DATA, bytes(4096)) == Wanted(bytes(4096), Role.BOTH)
    with pytest.raises(ProtocolError, match="ticket"):
        fresh().receive(Want.DATA, bytes(4097))


def test_nobody_is_done_before_the_end(material: Material) -> None:
    """A reader that has not been told the end cannot have read to it."""
    for want in (Want.DATA, Want.METADATA):
        producer = material.producer(want=want)
        producer.send(material.schema)
        with pytest.raises(ProtocolError, match="done"):
            producer.receive(Control.DONE, b"")
        assert not producer.done


def test_bodies_alone_have_no_end(material: Material) -> None:
    """On a connection of bodies the reader may be done before the producer notes its own end: the end went over
    the other connection.
    """
    producer = material.producer(want=Want.BODIES)
    producer.send(material.schema)
    assert producer.receive(Control.DONE, b"") is Heard.DONE
    assert producer.end() == []
    assert producer.done
    assert producer.returned


def test_a_stream_that_was_read_and_freed(material: Material) -> None:
    """A reader is done when it read everything, and has returned all when it freed everything, in either order."""
    producer = material.producer(pointers=True)
    body = b"".join(producer.send(material.item(1, material.region()))[-1].pieces)
    producer.end()
    producer.receive(Control.DONE, b"")
    assert not (producer.done and producer.returned)
    pairs = unpack_pairs(body)[1]
    producer.receive(Want.FREE, pack_addresses(pairs[pairs[:, 0] != 0, 0]))
    assert producer.done
    assert producer.returned


ITEMS = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 2)), max_size=8)


@given(items=ITEMS, pointers=st.booleans())
def test_two_connections_say_what_one_says(
    material: Material, items: list[tuple[int, bool, bool, int]], *, pointers: bool
) -> None:
    """The metadata connection carries the untagged messages of the one stream, the other one the tagged."""
    regions = [material.region() for _ in range(3)]
    made = [
        material.schema,
        *(
            material.item(rows, regions[which], dictionary=is_dictionary, mark=number)
            for number, (rows, is_dictionary, _, which) in enumerate(items)
        ),
    ]

    def said(want: Want) -> list[tuple[int | None, bytes]]:
        producer = material.producer(pointers=pointers, want=want)
        messages = [message for item in made for message in producer.send(item)] + producer.end()
        return [(message.tag, b"".join(message.pieces)) for message in messages]

    both = said(Want.DATA)
    assert said(Want.METADATA) == [message for message in both if message[0] is None]
    assert said(Want.BODIES) == [message for message in both if message[0] is not None]


@given(items=ITEMS, pointers=st.booleans())
def test_what_costs_credit(
    material: Material, items: list[tuple[int, bool, bool, int]], *, pointers: bool
) -> None:
    """Packed bodies cost their bytes, pointers only what was made for this reader, and metadata nothing."""
    producer = material.producer(pointers=pointers)
    metadata = material.producer(pointers=pointers, want=Want.METADATA)
    region = material.region()
    spent = 0
    assert producer.cost(material.schema) == 0
    for rows, is_dictionary, charged, _ in items:
        item = material.item(rows, region, dictionary=is_dictionary, charged=charged)
        spent += 8 * rows if charged or not pointers else 0
        assert metadata.cost(item) == 0
        for each in (producer, metadata):
            each.send(item)
        assert producer.window.outstanding == spent
        assert metadata.window.outstanding == 0
        assert metadata.ledger.outstanding == 0
    producer.receive(Control.CREDIT, pack_u64(spent))
    with pytest.raises(ProtocolError):
        producer.receive(Control.CREDIT, pack_u64(1))


def test_only_what_a_body_points_into_is_announced(material: Material) -> None:
    """Regions of an item that none of its buffers lie in are neither announced nor lent, shareable or not."""
    region, unwanted, foreign = material.region(), material.region(), Region(cpu(), 0, 4096)
    item = material.item(2, region)
    assert item.spans is not None
    spans = item.spans.copy()
    spans[1, 0] = 2
    producer = material.producer(pointers=True)
    announced, untagged, body = producer.send(
        IpcMessage(item.metadata, spans, (unwanted, foreign, region), item.pieces, item.nbytes)
    )
    assert announced.attachment is region
    assert untagged.tag is None
    assert unpack_pairs(b"".join(body.pieces))[1].tolist()[0] == [0, 0]
    assert producer.ledger.regions == [region]


def test_a_region_named_twice_is_held_once(material: Material) -> None:
    """An item that lists a region twice lends each address once, so that its reader can free them all."""
    region = material.region()
    item = material.item(2, region)
    spans = np.array([[0, 0, 16], [1, 64, 16]], np.int64)
    producer = material.producer(pointers=True)
    *announced, _, body = producer.send(IpcMessage(item.metadata, spans, (region, region), (), 32))
    assert len(announced) == 1
    addresses = unpack_pairs(b"".join(body.pieces))[1][:, 0]
    assert producer.ledger.outstanding == 2
    producer.receive(Want.FREE, pack_addresses(addresses))
    assert producer.ledger.outstanding == 0


def test_pairs_say_where_the_buffers_lie(material: Material) -> None:
    """One pair for each buffer of the metadata, in order: base of the region plus offset; zeros where empty."""
    regions = [material.region(), material.region()]
    spans = np.array([[1, 128, 24], [0, 999, 0], [0, 64, 8], [1, 0, 1]], np.int64)
    producer = material.producer(pointers=True)
    *announced, _, body = producer.send(IpcMessage(b"metadata", spans, regions, (), 33))
    bases = {message.attachment: int.from_bytes(message.pieces[0][:8], "little") for message in announced}
    total, pairs = unpack_pairs(b"".join(body.pieces))
    one, two = (bases[region] for region in regions)
    assert body.tag == body_tag(0, POINTERS)
    assert total == 33
    assert pairs.tolist() == [[two + 128, 24], [0, 0], [one + 64, 8], [two, 1]]


def test_a_fork_retires_what_is_lent(material: Material) -> None:
    """Memory that is lent when the reader forks is never written again; what is lent later is."""
    producer = material.producer(pointers=True)
    lent, later = material.region(), material.region()
    producer.send(material.item(1, lent))
    producer.receive(Control.FORKED, b"")
    producer.send(material.item(1, later))
    slabs: list[Any] = [lent.slab, later.slab]
    assert [slab.retired for slab in slabs] == [True, False]
    assert producer.ledger.outstanding == 2


def test_blocked_is_said_to_those_who_know_it(material: Material) -> None:
    """A reader that said hello is told how much credit is missing; another one is told nothing."""
    (said,) = material.producer().blocked(4711)
    assert (said.tag, b"".join(said.pieces)) == (Control.BLOCKED, pack_u64(4711))
    assert fresh().blocked(4711) == []


def test_packed_bodies_go_in_pieces(material: Material) -> None:
    """A packed body is sent from where it lies: its pieces are those of the item, not a copy."""
    item = material.item(3)
    _, body = material.producer().send(item)
    assert body.tag == body_tag(0, PACKED)
    assert body.pieces is item.pieces


def test_lent_memory_is_returned_by_a_word(material: Material) -> None:
    """What a reader opens by a handle is not back when its addresses are: only when it says so, or is gone."""
    device = fake_device()
    array = device.allocate(4096)
    handle = lendable(device, array.data.ptr)
    assert isinstance(handle, LentHandle)
    region = lend(device, handle, array)
    producer = material.producer(pointers=True)
    assert producer.returned
    producer.send(material.schema)
    assert producer.returned
    *_, body = producer.send(material.item(3, region))
    (pair,) = np.frombuffer(b"".join(body.pieces), "<u8").reshape(-1, 2)[2:].tolist()
    assert not producer.returned
    producer.receive(Want.FREE, pack_addresses(np.array(pair[:1], np.uint64)))
    assert producer.ledger.outstanding == 0
    assert not producer.returned
    assert producer.ledger.regions == [region]
    producer.receive(Control.UNUSED, b"")
    assert producer.returned
