"""The opening says and takes what the two state machines would, byte for byte, and they go on from there."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bowstring.dissociated.events import Announced, Event, Part, Pointers, Signal
from bowstring.dissociated.items import IpcMessage, regions_of
from bowstring.dissociated.location import Location
from bowstring.dissociated.opening import MOST_BYTES, MOST_REGIONS, Answer, Ask, Beginning, Framed
from bowstring.dissociated.producer import ProducerProtocol, Role, Wanted
from bowstring.dissociated.reader import ReaderProtocol, opening
from bowstring.dissociated.tags import POINTERS, Control, Want, is_pointers
from bowstring.dissociated.wire import (
    PREFIX_BYTES,
    Hello,
    Outgoing,
    Welcome,
    pack_addresses,
    unpack_pairs,
)
from bowstring.errors import BowstringError
from bowstring.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material

LOCATION = Location("unix:/x", Want.DATA, Want.FREE, None, Want.HELLO)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ['", "', '"', "\\", "a, b", "\x7f"]
)
HELLOS = st.builds(
    Hello,
    st.none() | st.lists(TEXTS, max_size=3).map(tuple),
    st.integers(0, (1 << 63) - 1) | st.integers(0, 1 << 28),
    st.booleans() | st.just(value=True),
    st.none() | TEXTS,
    st.just(1) | st.integers(1, 3),
    st.none() | st.just("0123:4567") | TEXTS | st.just("x" * 201),
    st.booleans() | st.just(value=True),
    st.booleans(),
    st.none() | st.just((0, 2)),
    st.just(0) | st.just(3),
    st.booleans(),
)
WELCOMES = st.builds(
    Welcome,
    st.booleans() | st.just(value=False),
    st.just("unix: mapped") | TEXTS | st.just("x" * 201),
    st.just("producer and reader share memory") | TEXTS,
    st.none() | st.integers(0, 1 << 62),
    st.integers(0, 99),
    st.integers(0, 99),
    st.sampled_from([30.0, 0.25, None, 7, 1e-9, 1e30]),
    st.just(1) | st.just(2),
    st.just("t#0123") | TEXTS | st.none(),
)
ORDINARY = Hello(None, 1 << 28, pointers=True, ipc="0123:4567", tries=True)
WELCOME = Welcome(False, "unix: mapped", "why", 7, 2, 56, 30.0, ticket="t#0")


def framed(outgoing: Sequence[Outgoing]) -> list[Framed]:
    """Return what arrives of messages."""
    return [
        Framed(each.tag, int(each.attachment is not None), b"".join(map(bytes, each.pieces)))
        for each in outgoing
    ]


def producer_of(messages: Sequence[Framed]) -> tuple[ProducerProtocol, list[Any]]:
    """Return the state machine that has heard some messages, and what they meant."""
    producer = ProducerProtocol(DEFAULT_LIMITS)
    return producer, [producer.receive(each.tag, each.body) for each in messages]


def facts_of(producer: ProducerProtocol) -> dict[str, Any]:
    """Return what can be seen of a producer's half."""
    said = ("sequence", "hello", "takes_errors", "role", "request", "pointers", "copied", "asked", "ended")
    done = ("end_sent", "done", "frees", "unused", "looks", "returned", "stopped", "read_all")
    found: dict[str, Any] = {name: getattr(producer, name) for name in (*said, *done, "pinged")}
    found |= {"allows": [producer.window.allows(1 << bits) for bits in range(64)]}
    ledger = producer.ledger
    return found | {"held": ledger.outstanding, "regions": [each.uuid for each in ledger.regions]}


@given(HELLOS, st.binary(max_size=20) | st.just(b"t" * 5000))
@example(ORDINARY, b"t")
@example(Hello(("a", "b c"), 0, pointers=True, token="secret", ipc="0:1", tries=True), b"")
def test_what_is_asked_is_what_the_state_machine_hears(hello: Hello, ticket: bytes) -> None:
    """Whatever a reader asks: what is read at once is what the state machine reads, and leaves the same state."""
    messages = framed(opening(LOCATION, ticket, hello))
    ask = Ask.read(messages)
    if ask is None:
        return
    heard, meant = producer_of(messages)
    assert meant == [None, Wanted(ticket, Role.BOTH)]
    assert (ask.hello, ask.ticket) == (heard.hello, ticket)
    begun = ProducerProtocol(DEFAULT_LIMITS)
    begun.begin_asked(ask.hello)
    assert facts_of(begun) == facts_of(heard)


@pytest.mark.parametrize("columns", [None, ("a",), ("a", "b c", "")])
@pytest.mark.parametrize("token", [None, "", "secret~ !"])
def test_what_most_readers_ask_is_ordinary(columns: tuple[str, ...] | None, token: str | None) -> None:
    """With columns or a token, or without: that is read at once."""
    hello = Hello(columns, 1 << 28, pointers=True, token=token, ipc="0:1", tries=True)
    assert Ask.read(framed(opening(LOCATION, b"t", hello))) == Ask(hello, b"t")


@given(st.data())
def test_what_is_changed_in_an_ask_is_read_alike_or_left(data: st.DataObject) -> None:
    """A hello that somebody else wrote, or damaged, means what it means to the state machine, or is left to it."""
    fields = json.loads(ORDINARY.pack())
    text = ORDINARY.pack()
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from([*fields]))
        fields[name] = data.draw(
            st.sampled_from([None, True, False, 0, 1, -1, 1.5, "x", "\ud800", [], ["a"], {}])
        )
        text = json.dumps(fields).encode()
    else:
        place = data.draw(st.integers(0, len(text) - 1))
        text = text[:place] + data.draw(st.binary(max_size=2)) + text[place + 1 :]
    messages = [Framed(Want.HELLO, 0, text), Framed(Want.DATA, 0, b"t")]
    ask = Ask.read(messages)
    try:
        heard, _ = producer_of(messages)
    except BowstringError:
        assert ask is None
    else:
        assert ask is None or ask.hello == heard.hello


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said[:1],
        lambda said: said[1:],
        lambda said: said[::-1],
        lambda said: [*said, said[1]],
        lambda said: [said[0]._replace(attachments=1), said[1]],
        lambda said: [said[0], said[1]._replace(attachments=1)],
        lambda said: [said[0], said[1]._replace(tag=Want.METADATA)],
        lambda said: [said[0], said[1]._replace(tag=None)],
    ],
)
def test_what_is_no_ordinary_ask_is_left_alone(change: Any) -> None:
    """Other messages, in another order, or with something beside them, are for the state machine."""
    assert Ask.read(change(framed(opening(LOCATION, b"t", ORDINARY)))) is None


def items_of(material: Material, choose: random.Random, most: int) -> list[IpcMessage]:
    """Return a schema, and items in a few regions."""
    regions = [material.region() for _ in range(choose.randrange(1, MOST_REGIONS + 3))]
    items = [
        material.item(
            choose.randrange(4), choose.choice(regions), mark=number, dictionary=choose.random() < 0.2
        )
        for number in range(choose.randrange(most))
    ]
    return [material.schema, *items]


def answered(
    items: Sequence[IpcMessage], first: int = MOST_REGIONS
) -> tuple[Answer, ProducerProtocol, ProducerProtocol, list[Outgoing]]:
    """Return an answer, the state machine that goes on behind it, and one that says all; and what that says."""
    said, _ = producer_of(framed(opening(LOCATION, b"t", ORDINARY)))
    said.pointers = True
    regions = regions_of(items[:first])
    outgoing = [*said.announce(regions), *said.welcome(WELCOME)]
    answer = Answer.of(ORDINARY, regions, WELCOME, items, DEFAULT_LIMITS)
    begun, _ = producer_of(framed(opening(LOCATION, b"t", ORDINARY)))
    begun.pointers = True
    begun.go_on(answer.sequence, answer.ledger, ended=answer.ended)
    for item in items[: answer.items]:
        outgoing += said.send(item)
    if answer.items == len(items):
        outgoing += said.end()
    return answer, begun, said, outgoing


@given(st.integers(0, 1 << 32), st.sampled_from([1, 5, 40]))
def test_what_is_answered_is_what_the_state_machine_says(material: Material, seed: int, most: int) -> None:
    """For any items in any regions: the same messages, the same state, and the same conversation from there on."""
    choose = random.Random(seed)
    items = items_of(material, choose, most)
    answer, begun, said, outgoing = answered(items)
    assert framed(answer.outgoing) == framed(outgoing)
    assert [each.attachment for each in answer.outgoing] == [each.attachment for each in outgoing]
    another = ProducerProtocol(DEFAULT_LIMITS)
    another.begin_asked(ORDINARY)
    another.pointers = True
    another.go_on(answer.sequence, answer.ledger, ended=answer.ended)
    untouched = facts_of(another)
    bodies = [
        b"".join(each.pieces) for each in answer.outgoing if each.tag is not None and is_pointers(each.tag)
    ]
    pairs = [unpack_pairs(body)[1] for body in bodies]
    held = [address for found in pairs for address in found[:, 0].tolist() if address]
    for item in items[answer.items :]:
        assert framed(begun.send(item)) == framed(said.send(item))
    if answer.items < len(items):
        assert framed(begun.end()) == framed(said.end())
    choose.shuffle(held)
    for address in [*held, 4096]:
        body, tag = pack_addresses(np.array([address], np.uint64)), choose.choice([Want.FREE, Control.PING])
        outcomes: list[Any] = []
        for producer in (begun, said):
            try:
                outcomes.append(producer.receive(tag, body))
            except BowstringError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
        assert framed(begun.pong()) == framed(said.pong())
        assert facts_of(begun) == facts_of(said)
    # What one reader frees is still lent to the other one.
    assert facts_of(another) == untouched


def test_an_answer_is_bounded(material: Material) -> None:
    """However many items there are, an answer has its bounds; what is left is said behind it."""
    region = material.region()
    many = [material.schema, *(material.item(1, region) for _ in range(2000))]
    answer, *_ = answered(many)
    assert 1 < answer.items < len(many)
    assert not answer.ended
    assert MOST_BYTES // 2 < sum(len(each.body) + 24 for each in framed(answer.outgoing)) <= MOST_BYTES + 1000
    scattered = [material.schema, *(material.item(1, material.region()) for _ in range(20))]
    answer, *_ = answered(scattered)
    assert sum(each.attachment is not None for each in answer.outgoing) <= MOST_REGIONS
    assert not answer.ended


def reader() -> ReaderProtocol:
    """Return a reader's half that has said hello."""
    return ReaderProtocol(DEFAULT_LIMITS, one_connection=True, window=1 << 28, free_data=Want.FREE)


def hear(half: ReaderProtocol, message: Framed) -> list[Event]:
    """Let a reader's half hear a message."""
    return half.receive(message.tag, message.body, (object(),) * message.attachments)


def comparable(event: Event) -> Any:
    """Return what can be compared of an event."""
    match event:
        case Part(sequence, message, body):
            pairs = body.pairs.tolist() if isinstance(body, Pointers) else None
            return sequence, (message.kind, message.body_length, bytes(message.data)), pairs
        case Announced(base, handle, _):
            return base, handle
        case _:
            return event


def state_of(half: ReaderProtocol) -> dict[str, Any]:
    """Return what can be seen of a reader's half."""
    names = ("handshake", "phase", "use", "charged", "error", "behind_end", "quiet", "over", "missing")
    sequence = half.sequence
    return {name: getattr(half, name) for name in names} | {
        "next": (sequence.next, sequence.ended, sequence.end, sequence.missing),
        "account": (half.account.size, half.account.outstanding, half.account.owed),
    }


@given(st.integers(0, 1 << 32), st.sampled_from([1, 5, 40]), WELCOMES | st.just(WELCOME), st.integers(0, 99))
@example(0, 5, WELCOME, 99)
def test_what_is_taken_at_once_is_what_the_state_machine_takes(
    material: Material, seed: int, most: int, welcome: Welcome, last: int
) -> None:
    """For any answer, whole or cut: the same regions, welcome, parts and end, in the same state."""
    choose = random.Random(seed)
    items = items_of(material, choose, most)
    regions = regions_of(items[: choose.randrange(1, 40)])
    producer, _ = producer_of(framed(opening(LOCATION, b"t", ORDINARY)))
    producer.pointers = True
    outgoing = [*producer.announce(regions), *producer.welcome(welcome)]
    outgoing += [said for item in items for said in producer.send(item)] + producer.end()
    messages = framed(outgoing)[: last + 1]
    begun = Beginning.read(messages)
    if begun is None:
        assert welcome != WELCOME or len(regions) > MOST_REGIONS or len(messages) < len(regions) + 2
        return
    taken, machine, together = reader(), reader(), reader()
    came, following = messages[: begun.messages], messages[begun.messages :]
    expected = [comparable(event) for each in came for event in hear(machine, each)]
    schema = expected.pop()
    assert (schema[0], schema[1][-1]) == (0, begun.schema)
    assert expected == [*begun.regions, comparable(begun.welcome)]
    taken.begin_answered(begun.welcome)
    together.begin_answered(begun.welcome)
    assert state_of(taken) == state_of(machine)
    pairs = list(itertools.takewhile(is_pair, zip(following[::2], following[1::2], strict=False)))
    behind = following[2 * len(pairs) :]
    if pairs:
        prefixes = b"".join(each.body[:PREFIX_BYTES] for each, _ in pairs)
        assert together.foreseen(prefixes, [body.tag or 0 for _, body in pairs], POINTERS)
    untagged = behind[0].body if behind and behind[0].tag is None else None
    if together.take_pointed(len(pairs), untagged):
        del behind[0]
    for each in behind:
        hear(together, each)
    for number, each in enumerate(following):
        events = hear(taken, each)
        assert list(map(comparable, events)) == list(map(comparable, hear(machine, each)))
        assert state_of(taken) == state_of(machine)
        if number < len(begun.following):
            assert not each.attachments
            # Behind the end nothing is taken that was not read.
            assert (number + 1 == len(begun.following)) or not any(event is Signal.END for event in events)
    assert state_of(together) == state_of(machine)


def is_pair(messages: tuple[Framed, Framed]) -> bool:
    """Whether these are metadata, and a body of pointers."""
    metadata, body = messages
    return metadata.tag is None and body.tag is not None and is_pointers(body.tag)


@given(st.data())
def test_what_is_changed_in_a_welcome_is_read_alike_or_left(material: Material, data: st.DataObject) -> None:
    """A welcome from another program, or a damaged one, means what the state machine says, or is left to it."""
    text = WELCOME.pack()
    [schema] = framed(said_of(material.schema))
    if data.draw(st.booleans()):
        fields = json.loads(text)
        name = data.draw(st.sampled_from([*fields]))
        fields[name] = data.draw(
            st.sampled_from([None, True, False, 0, 1, -1, 1.5, 1e-9, "x", "\ud800", [], ["a"], {}])
        )
        text = json.dumps(fields).encode()
    else:
        place = data.draw(st.integers(0, len(text) - 1))
        inserted = data.draw(st.binary(max_size=2) | st.sampled_from([b"0", b"00", b"1", b"-", b".0"]))
        text = text[:place] + inserted + text[place + data.draw(st.integers(0, 1)) :]
    check_welcome(text, schema)


@pytest.mark.parametrize(
    "patience", [b"0030.0", b"00.5", b"0.5", b"30.", b".5", b"1e3", b"-1.0", b"999999999.999999999"]
)
@pytest.mark.parametrize("number", [b"7", b"07", b"-7", b"7.0"])
def test_numbers_of_a_welcome(material: Material, patience: bytes, number: bytes) -> None:
    """Numbers are those of JSON, as the state machine has them."""
    text = WELCOME.pack()
    [schema] = framed(said_of(material.schema))
    text = text.replace(b"30.0", patience).replace(b": 7", b": " + number)
    check_welcome(text, schema)


def said_of(item: IpcMessage) -> Sequence[Outgoing]:
    """Return the messages of the first item of a stream."""
    producer, _ = producer_of(framed(opening(LOCATION, b"t", ORDINARY)))
    producer.pointers = True
    return producer.send(item)


def check_welcome(text: bytes, schema: Framed) -> None:
    """See to it that a welcome is read as the state machine reads it, or not at all."""
    begun = Beginning.read([Framed(Control.WELCOME, 0, text), schema])
    taken, machine = reader(), reader()
    try:
        heard = hear(machine, Framed(Control.WELCOME, 0, text))
    except BowstringError:
        assert begun is None
    else:
        hear(machine, schema)
        if begun is not None:
            assert heard == [begun.welcome]
            taken.begin_answered(begun.welcome)
            assert state_of(taken) == state_of(machine)


@pytest.mark.parametrize("place", range(3))
def test_what_is_no_ordinary_answer_is_left_alone(material: Material, place: int) -> None:
    """Regions, welcome and schema in another order, twice, or with what is not theirs are for the state machine."""
    region = material.region()
    producer, _ = producer_of(framed(opening(LOCATION, b"t", ORDINARY)))
    producer.pointers = True
    said = framed([*producer.announce([region]), *producer.welcome(WELCOME), *producer.send(material.schema)])
    assert Beginning.read(said) is not None
    message = said[place]
    for changed in (
        [],
        [message, message] if place else [],
        [message._replace(attachments=1 - message.attachments)],
        [message._replace(tag=Control.PING)],
        [message._replace(body=message.body[:4])],
    ):
        found = Beginning.read([*said[:place], *changed, *said[place + 1 :]])
        # A region may be missing: then what points into it is wrong, which is seen there. What is behind a schema
        # is for the state machine.
        assert found is None or (not place and not changed) or (place == 2 and len(changed) == 2)
