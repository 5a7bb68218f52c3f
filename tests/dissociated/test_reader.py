"""The consumer's half: whatever the order in which a stream arrives, it comes out complete and in order."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bowstring.dissociated.events import Announced, Part, Pointers, Signal
from bowstring.dissociated.failures import pack_error
from bowstring.dissociated.items import IpcMessage
from bowstring.dissociated.location import Location
from bowstring.dissociated.producer import ProducerProtocol
from bowstring.dissociated.reader import ReaderProtocol, opening
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello, Welcome, pack_addresses, pack_u64
from bowstring.errors import LimitExceeded, ProducerFailed, ProtocolError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Handle, LentHandle, Region, this_process

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material, Said

FIRSTS = st.sampled_from([0, 1, 2**31 - 2, 2**31, 2**32 - 3, 2**32 - 1])
# Rows, whether it is a dictionary, and which of two regions it lies in.
ITEMS = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 1)), max_size=7)


def stream(
    material: Material, items: list[tuple[int, bool, int]], *, pointers: bool, first: int
) -> list[Said]:
    regions = [material.region(), material.region()]
    made = [
        material.item(rows, regions[which], dictionary=is_dictionary, mark=number, offset=64 * number)
        for number, (rows, is_dictionary, which) in enumerate(items)
    ]
    return material.stream(made, pointers=pointers, first=first)


def is_empty_body(message: Said) -> bool:
    """Whether a message is a body without a byte, of either type."""
    if message.tag is None:
        return False
    return message.body[:8] == bytes(8) if message.tag >> 56 else not message.body


def check(material: Material, said: list[Said], heard: list[Said], *, ordered: bool, first: int) -> None:
    """Hear messages in one order and compare with what was said in another."""
    expected = material.listener(first=first)
    expected.hear(*said)
    listener = material.listener(ordered=ordered, first=first)
    for position, message in enumerate(heard):
        # An empty body may be left out, so nobody waits for one.
        late = [each for each in heard[position:] if ordered or not is_empty_body(each)]
        assert not (listener.protocol.sequence.ended and late), f"the end came before {len(late)} messages"
        listener.hear(message)
        assert [part.sequence for part in listener.parts] == [
            (first + number) % 2**32 for number in range(len(listener.parts))
        ]
    # A region may be announced behind the end of the numbered messages, whose order is all that counts.
    assert [part.message.data for part in listener.parts] == [part.message.data for part in expected.parts]
    for found, body in zip(listener.bodies(), expected.bodies(), strict=True):
        assert found == body or (found is None and not ordered and not (body[0] if body else 0))
    assert listener.ends == 1
    numbered = [event for event in listener.events if not isinstance(event, Announced)]
    assert numbered[-1] is Signal.END


@given(items=ITEMS, pointers=st.booleans(), first=FIRSTS, data=st.data())
def test_any_order_at_all(
    material: Material, items: list[tuple[int, bool, int]], first: int, data: st.DataObject, *, pointers: bool
) -> None:
    """Where nothing keeps the order, every permutation of the messages gives the same parts, and one end."""
    said = stream(material, items, pointers=pointers, first=first)
    numbered = [message for message in said if message.tag != Control.REGION]
    check(material, said, data.draw(st.permutations(numbered)), ordered=False, first=first)


@given(items=ITEMS, pointers=st.booleans(), first=FIRSTS, data=st.data())
def test_any_order_of_bodies(
    material: Material, items: list[tuple[int, bool, int]], first: int, data: st.DataObject, *, pointers: bool
) -> None:
    """Where metadata keep their order, bodies may come in any, early or late, also behind the end."""
    said = stream(material, items, pointers=pointers, first=first)
    untagged = iter([message for message in said if message.tag is None])
    tagged = [message for message in said if message.tag not in (None, Control.REGION)]
    bodies = iter(data.draw(st.permutations(tagged)))
    turns = data.draw(
        st.permutations([message.tag is None for message in said if message.tag != Control.REGION])
    )
    heard = [next(untagged if turn else bodies) for turn in turns]
    check(material, said, heard, ordered=True, first=first)


def test_every_order_of_a_small_stream(material: Material) -> None:
    """All 720 orders of a stream of two batches and its end, by brute force."""
    said = [message for message in material.batches(2, pointers=True) if message.tag != Control.REGION]
    assert len(said) == 6
    for heard in itertools.permutations(said):
        listener = material.listener(ordered=False)
        listener.hear(*heard)
        assert [part.sequence for part in listener.parts] == [0, 1, 2]
        assert listener.ends == 1


def test_parts_come_out_as_soon_as_they_can(material: Material) -> None:
    """A part is given out by the message that completes it, and with it all that waited behind."""
    schema, *rest, end = material.batches(2)
    first, first_body, second, second_body = rest
    listener = material.listener()
    for message, parts in ((schema, 1), (first, 1), (second, 1), (end, 1), (second_body, 1), (first_body, 3)):
        assert listener.ends == 0
        listener.hear(message)
        assert len(listener.parts) == parts
    assert listener.ends == 1


def test_an_empty_stream(material: Material) -> None:
    """A schema and an end are a stream of no batches, not an error."""
    listener = material.listener()
    listener.hear(*material.batches(0))
    assert (len(listener.parts), listener.ends) == (1, 1)


def test_the_body_of_a_part_is_what_came(material: Material) -> None:
    """A packed body is handed through as the object that the transport landed it in."""
    schema, metadata, body, _ = material.batches(1)
    protocol = ReaderProtocol(DEFAULT_LIMITS, extended=False)
    landed = object()
    protocol.receive(None, schema.body)
    protocol.receive(None, metadata.body)
    (part,) = protocol.receive(body.tag, landed)
    assert isinstance(part, Part)
    assert getattr(part.body, "body", None) is landed


def test_what_a_client_says_first() -> None:
    """The hello goes first, to those who know it, then the ticket, both by the tags of the URI."""
    known, plain = Location("tcp://h:1", 7, hello=9), Location("tcp://h:1", 7)
    hello = Hello(("a",), 5, pointers=True)
    said = [(each.tag, b"".join(each.pieces)) for each in opening(known, b"t", hello)]
    assert said == [(9, hello.pack()), (7, b"t")]
    for location, greeting in ((plain, hello), (known, None)):
        assert [each.tag for each in opening(location, b"t", greeting)] == [7]


def test_what_a_server_says_beside_the_stream(material: Material) -> None:
    """Our messages change nothing about the stream; those that its user need not hear of are no events."""
    region = material.region()
    messages = material.batches(1)
    listener = material.listener(welcome=False)
    listener.hear(material.say(Control.WELCOME, Welcome(charged=True, path="p", why="w", num_rows=3).pack()))
    listener.hear(*messages[:2])
    heard = len(listener.events)
    for tag, body in (
        (Control.PONG, b""),
        (Control.BLOCKED, pack_u64(7)),
        (Control.NO_ROOM, pack_u64(8)),
        (Control.PING, b""),
    ):
        assert not listener.protocol.has_news
        listener.hear(material.say(tag, body))
    assert listener.events[heard:] == []
    assert (listener.protocol.account.blocked, listener.protocol.account.no_room) == (7, 8)
    assert [each.tag for each in listener.protocol.to_send()[0]] == [Control.PONG]
    listener.hear(material.say(Control.STOPPED, b""))
    assert listener.events[heard:] == [Signal.STOPPED]
    announcement = (4096).to_bytes(8, "little") + Handle.of(region).pack()
    listener.hear(material.say(Control.REGION, announcement, region))
    assert listener.events[-1] == Announced(4096, Handle.of(region), region)
    listener.hear(*messages[2:])
    assert (len(listener.parts), listener.ends) == (2, 1)


def test_an_error_of_the_producer_is_the_last_word(material: Material) -> None:
    """After the producer said that it failed nothing is taken for the stream, and its questions still are heard."""
    messages = material.batches(1)
    listener = material.listener()
    listener.hear(*messages[:2], material.say(Control.ERROR, pack_error(ZeroDivisionError("no"))))
    failed = listener.events[-1]
    assert isinstance(failed, ProducerFailed)
    heard = len(listener.events)
    listener.hear(*messages[2:], material.say(Control.PING, b""))
    assert listener.events[heard:] == []
    assert [each.tag for each in listener.protocol.to_send()[0]] == [Control.PONG]
    assert listener.ends == 0


def test_what_is_missing_is_named(material: Material) -> None:
    """A stream that waits says for which half of which message."""
    schema, metadata, _, _ = material.batches(1)
    listener = material.listener()
    assert "message 0 lacks its metadata" in listener.protocol.missing
    listener.hear(schema, metadata)
    assert "message 1 lacks its body" in listener.protocol.missing


def test_waiting_halves_are_bounded(material: Material) -> None:
    """A producer that sends bodies without metadata for ever is stopped."""
    listener = material.listener()
    endless = [material.say(number, b"") for number in range(1, 1 << 17)]
    with pytest.raises(LimitExceeded):
        listener.hear(*endless)


class Conversation(RuleBasedStateMachine):
    """A producer, a reader, and two roads that deliver in their own time, against a list of what was sent."""

    material: Material
    regions: ClassVar[list[Region]]

    @initialize(pointers=st.booleans(), window=st.integers(0, 200), first=FIRSTS)
    def connect(self, window: int, first: int, *, pointers: bool) -> None:
        material = self.material
        self.producer: ProducerProtocol = material.producer(pointers=pointers, first=first, window=window)
        self.listener = material.listener(first=first)
        self.first, self.window = first, window
        self.untagged: list[Said] = []
        self.tagged: list[Said] = []
        self.expected: list[int] = []
        self.costs: list[int] = []
        self.freed = 0
        self._say(material.schema)

    def _say(self, item: IpcMessage) -> None:
        for message in self.producer.send(item):
            said = self.material.say(message.tag, b"".join(message.pieces))
            if message.tag is None:
                self.untagged.append(said)
            elif message.attachment is None:
                self.tagged.append(said)

    @precondition(lambda self: not self.producer.ended)
    @rule(rows=st.integers(0, 5), which=st.integers(0, 1), charged=st.booleans(), is_dictionary=st.booleans())
    def send(self, rows: int, which: int, *, charged: bool, is_dictionary: bool) -> None:
        """Send an item if there is credit for it."""
        item = self.material.item(
            rows,
            self.regions[which],
            dictionary=is_dictionary,
            charged=charged,
            mark=len(self.expected),
            offset=64 * len(self.expected),
        )
        cost = self.producer.cost(item)
        assert self.producer.window.allows(cost) == (
            not sum(self.costs) or sum(self.costs) + cost <= self.window
        )
        if self.producer.window.allows(cost):
            self._say(item)
            self.expected.append(rows)
            self.costs += [cost] if cost else []

    @precondition(lambda self: not self.producer.ended)
    @rule()
    def end(self) -> None:
        """Say that these were all."""
        (message,) = self.producer.end()
        self.untagged.append(self.material.say(None, b"".join(message.pieces)))

    @precondition(lambda self: self.untagged)
    @rule()
    def hear_metadata(self) -> None:
        """Deliver the next untagged message."""
        self.listener.hear(self.untagged.pop(0))

    @precondition(lambda self: self.tagged)
    @rule(position=st.integers(0, 100))
    def hear_body(self, position: int) -> None:
        """Deliver any body."""
        self.listener.hear(self.tagged.pop(position % len(self.tagged)))

    @precondition(lambda self: len(self.listener.parts) > 1 + self.freed)
    @rule()
    def free(self) -> None:
        """Free what the oldest part was lent."""
        part = self.listener.parts[1 + self.freed]
        self.freed += 1
        if isinstance(part.body, Pointers):
            lent = part.body.pairs[part.body.pairs[:, 0] != 0, 0]
            if len(lent):
                self.producer.receive(Want.FREE, pack_addresses(lent))

    @precondition(lambda self: self.costs)
    @rule(position=st.integers(0, 100))
    def give_credit_back(self, position: int) -> None:
        """Give back what some message cost."""
        cost = self.costs.pop(position % len(self.costs))
        self.producer.receive(Control.CREDIT, pack_u64(cost))

    @rule(nbytes=st.integers(0, 50))
    def enlarge(self, nbytes: int) -> None:
        """Enlarge the window."""
        self.window += nbytes
        self.producer.receive(Control.WINDOW, pack_u64(nbytes))

    @invariant()
    def accounts_agree(self) -> None:
        """Credit and leases are what the model says, and never more than the window is out unless alone."""
        if not hasattr(self, "producer"):
            return
        assert self.producer.window.outstanding == sum(self.costs)
        assert sum(self.costs) <= self.window or len(self.costs) == 1
        lent = sum(rows > 0 for rows in self.expected) if self.producer.pointers else 0
        freed = sum(rows > 0 for rows in self.expected[: self.freed]) if self.producer.pointers else 0
        assert self.producer.ledger.outstanding == lent - freed

    @invariant()
    def parts_are_a_prefix(self) -> None:
        """What came out are the first of what was sent, and the end only when that is everything."""
        if not hasattr(self, "producer"):
            return
        parts = self.listener.parts[1:]
        assert [part.sequence for part in parts] == [
            (self.first + 1 + number) % 2**32 for number in range(len(parts))
        ]
        for number, (part, rows) in enumerate(zip(parts, self.expected, strict=False)):
            assert part.message.body_length == 8 * rows
            if isinstance(part.body, Pointers):
                offsets = part.body.pairs[1, 0] % np.uint64(1 << 20)
                assert not rows or offsets == 64 * number
            else:
                assert getattr(part.body, "body", None) == number.to_bytes(8, "little") * rows
        arrived = self.producer.ended and not self.untagged and not self.tagged
        assert self.listener.ends == arrived
        assert not arrived or len(parts) == len(self.expected)

    def teardown(self) -> None:
        """Let everything arrive, and be freed: then both sides are through."""
        if not hasattr(self, "producer"):
            return
        if not self.producer.ended:
            self.end()
        while self.tagged:
            self.hear_body(1)
        while self.untagged:
            self.hear_metadata()
        while len(self.listener.parts) > 1 + self.freed:
            self.free()
        self.parts_are_a_prefix()
        self.producer.receive(Control.DONE, b"")
        assert self.listener.ends == 1
        assert self.producer.done
        assert self.producer.ledger.outstanding == 0


TestConversation = Conversation.TestCase


@pytest.fixture(autouse=True, scope="module")
def _give_material(material: Material) -> None:
    """Give the state machine, which takes no fixtures, what it makes streams of."""
    Conversation.material = material
    Conversation.regions = [material.region(), material.region()]


def test_the_schema_comes_first_and_without_a_body(material: Material) -> None:
    """The first part is the schema as it was encoded, without a body."""
    listener = material.listener()
    listener.hear(material.batches(0)[0])
    assert listener.parts[0].body is None
    assert listener.parts[0].message.data == material.schema.metadata


def test_what_comes_beside_a_region(material: Material) -> None:
    """A region of ours comes with its memory; lent memory with nothing, or with itself, never with a descriptor."""
    region = material.region()
    ours = (4096).to_bytes(8, "little") + Handle.of(region).pack()
    handle = LentHandle(bytes(64), 1, 4096, this_process(), bytes(16), 100, 12)
    lent = (4096).to_bytes(8, "little") + handle.pack()
    fine: list[tuple[bytes, tuple[Any, ...]]] = [
        (lent, ()),
        (lent, (region,)),
        (ours, (region,)),
        (ours, (7,)),
    ]
    for body, attachments in fine:
        listener = material.listener()
        listener.hear(material.say(Control.REGION, body, *attachments))
        [event] = listener.events
        assert isinstance(event, Announced)
        assert event.attachment == (attachments[0] if attachments else None)
    for body, attachments in [(ours, ()), (ours, (7, 8)), (lent, (7,)), (lent, (region, region))]:
        with pytest.raises(ProtocolError, match=r"attachment|descriptor"):
            material.listener().hear(material.say(Control.REGION, body, *attachments))
