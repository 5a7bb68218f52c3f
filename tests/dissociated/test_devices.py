"""Devices: a producer asks whether its reader can map them, in any order of what else is said."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.events import Asked
from bowstring.dissociated.producer import Heard, ProducerProtocol, Role
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import (
    DeviceId,
    Hello,
    pack_answer,
    pack_devices,
    pack_u64,
    unpack_answer,
    unpack_devices,
)
from bowstring.errors import ProtocolError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import EventHandle, this_process

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material

EVENT_BYTES = 124
GPU = DeviceId(2, bytes(range(16)))
DEVICES = st.lists(
    st.builds(DeviceId, st.integers(0, 2**32 - 1), st.binary(min_size=16, max_size=16)),
    min_size=1,
    max_size=256,
)
ENDINGS = {Control.STOP: Heard.STOPPED, Control.UNUSED: Heard.STOPPED, Control.DONE: Heard.DONE}


def asked(role: Role = Role.BOTH) -> ProducerProtocol:
    """Return a producer that has asked a reader."""
    producer = ProducerProtocol(DEFAULT_LIMITS)
    producer.receive(Want.HELLO, Hello(window=1 << 20, pointers=True).pack())
    producer.receive(role.value, b"ticket")
    producer.pointers = True
    (question,) = producer.ask([GPU])
    assert (question.tag, b"".join(question.pieces)) == (Control.DEVICES, pack_devices([GPU]))
    return producer


@given(DEVICES)
def test_questions_travel(devices: list[DeviceId]) -> None:
    """What is asked arrives as it was asked."""
    assert list(unpack_devices(pack_devices(devices))) == devices


@pytest.mark.parametrize("size", [0, 1, 19, 21, 39, 20 * 257])
def test_questions_of_a_wrong_length(size: int) -> None:
    """No device, half a one, and more than anybody has, are refused."""
    with pytest.raises(ProtocolError, match="devices"):
        unpack_devices(bytes(size))


@given(st.text())
def test_answers_travel(text: str) -> None:
    """A reason arrives, cut where it is too long; no reason stays none."""
    found = unpack_answer(pack_answer(text))
    assert len(found) <= 500
    assert bool(found) == bool(text)


@given(st.binary(max_size=2000))
def test_any_answer_can_be_printed(body: bytes) -> None:
    """Whatever bytes come as a reason, it is text of a bounded length, and empty only where nothing came."""
    found = unpack_answer(body)
    found.encode()
    assert len(found) <= 500
    assert bool(found) == bool(body)


@pytest.mark.parametrize("why", ["", "no GPU here"])
def test_the_answer_decides(why: str) -> None:
    """Bodies go by pointers if the reader can map them, and packed if not; before the answer nothing is decided."""
    producer = asked()
    assert not producer.pointers
    assert producer.receive(Control.ANSWER, pack_answer(why)) is Heard.ANSWERED
    assert (producer.pointers, producer.why_not, producer.asked) == (not why, why, False)


@pytest.mark.parametrize("why", ["", "no GPU here"])
def test_an_answer_comes_once_and_when_asked(why: str) -> None:
    """An answer without a question, and a second one, break the protocol."""
    producer = ProducerProtocol(DEFAULT_LIMITS)
    with pytest.raises(ProtocolError):
        producer.receive(Control.ANSWER, pack_answer(why))
    producer.receive(Want.HELLO, Hello(pointers=True).pack())
    with pytest.raises(ProtocolError):
        producer.receive(Control.ANSWER, pack_answer(why))
    producer.receive(Want.DATA, b"ticket")
    with pytest.raises(ProtocolError):
        producer.receive(Control.ANSWER, pack_answer(why))
    producer = asked()
    producer.receive(Control.ANSWER, pack_answer(why))
    with pytest.raises(ProtocolError):
        producer.receive(Control.ANSWER, pack_answer(why))


@pytest.mark.parametrize("why", ["", "no GPU here"])
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda tag: tag.name)
def test_an_answer_behind_the_end_changes_nothing(ending: Control, why: str) -> None:
    """A reader may stop before it answers: what it says then neither breaks nor begins anything."""
    producer = asked(Role.BODIES)
    assert producer.receive(ending, b"") is ENDINGS[ending]
    assert producer.receive(Control.ANSWER, pack_answer(why)) is Heard.ALIVE
    assert not producer.pointers
    with pytest.raises(ProtocolError):
        producer.receive(Control.ANSWER, pack_answer(why))


SAYINGS = {
    Control.PING: b"",
    Control.PONG: b"",
    Control.WINDOW: pack_u64(8),
    Control.FORKED: b"",
    Control.STOP: b"",
    Control.UNUSED: b"",
    Control.ANSWER: b"",
}


@pytest.mark.parametrize("first", SAYINGS, ids=lambda tag: tag.name)
def test_every_order_of_what_a_reader_says(first: Control) -> None:
    """In every order of four sayings a stream begins with one answer, or with an end before it, never with both."""
    for rest in itertools.permutations([tag for tag in SAYINGS if tag is not first], 3):
        producer = asked()
        answered = ended = False
        for tag in (first, *rest):
            event = producer.receive(tag, SAYINGS[tag])
            ended |= event is Heard.STOPPED
            if tag is Control.ANSWER:
                assert event is (Heard.ALIVE if ended else Heard.ANSWERED)
                answered = not ended
            assert producer.pointers == answered
            assert producer.asked == (Control.ANSWER not in (first, *rest)[: (first, *rest).index(tag) + 1])


@pytest.mark.parametrize("why", ["", "no GPU here"])
def test_the_stream_after_the_answer(material: Material, why: str) -> None:
    """A stream goes on as any: with regions and pairs behind a yes, with packed bytes behind a no."""
    items = [material.schema, material.item(3, material.region(), mark=7)]
    producer = asked()
    producer.receive(Control.ANSWER, pack_answer(why))
    plain = material.producer(pointers=not why)
    for item in items:
        said, expected = producer.send(item), plain.send(item)
        assert [(each.tag, b"".join(each.pieces)) for each in said] == [
            (each.tag, b"".join(each.pieces)) for each in expected
        ]


def test_a_reader_is_asked_once(material: Material) -> None:
    """A reader hears the question as an event; a second one, or one that names nothing, breaks the protocol."""
    listener = material.listener(welcome=False)
    listener.hear(material.say(Control.DEVICES, pack_devices([GPU])))
    assert listener.events == [Asked((GPU,))]
    with pytest.raises(ProtocolError, match="once"):
        listener.hear(material.say(Control.DEVICES, pack_devices([GPU])))
    with pytest.raises(ProtocolError):
        material.listener(welcome=False).hear(material.say(Control.DEVICES, b""))


# Events, and regions that are tried.

EVENT = EventHandle(2, bytes(range(16)), bytes(range(64)), this_process())
HANDLES = st.builds(
    EventHandle,
    st.integers(0, 2**32 - 1),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=64, max_size=64),
    st.just(this_process()),
)


@given(HANDLES)
def test_events_travel(handle: EventHandle) -> None:
    """A handle arrives as it was sent, whichever of its bytes are zero, and has one length."""
    packed = handle.pack()
    assert len(packed) == EVENT_BYTES
    assert EventHandle.unpack(packed) == handle
    for wrong in (packed[:-1], packed + b"\0", b""):
        with pytest.raises(ProtocolError):
            EventHandle.unpack(wrong)


@given(st.binary(min_size=EVENT_BYTES, max_size=EVENT_BYTES))
def test_what_is_no_event(data: bytes) -> None:
    """Bytes that nobody made are a handle that packs to the same, or refused."""
    try:
        assert EventHandle.unpack(data).pack() == data
    except ProtocolError:
        assert data[-4:] != bytes(4)


def greeted(**wishes: bool) -> ProducerProtocol:
    """Return a producer that heard what a reader can."""
    producer = ProducerProtocol(DEFAULT_LIMITS)
    producer.receive(Want.HELLO, Hello(window=1 << 20, pointers=True, **wishes).pack())  # type: ignore[arg-type]
    producer.receive(Want.DATA, b"ticket")
    producer.pointers = True
    return producer


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("tries", [False, True])
def test_readers_are_told_what_they_take(material: Material, *, tries: bool, events: bool) -> None:
    """The event comes first, then regions, then the question; what a reader does not take is left out."""
    producer = greeted(tries=tries, events=events)
    said = producer.ask([GPU], [material.region(), material.region()], EVENT)
    tags = [Control.EVENT] * (events and tries) + [Control.REGION] * 2 * tries + [Control.DEVICES]
    assert [each.tag for each in said] == tags
    assert producer.told_event == (events and tries)


def test_a_region_that_was_tried_is_not_announced_again(material: Material) -> None:
    """What was announced before the answer lies where it was said to, and is said once; others come later."""
    producer = greeted(tries=True)
    first, second = material.region(), material.region()
    producer.ask([GPU], [first])
    producer.receive(Control.ANSWER, b"")
    for region, more in ((first, 0), (second, 1)):
        said = producer.send(material.item(3, region, mark=7))
        assert [each.tag for each in said].count(Control.REGION) == more


def test_a_reader_has_us_wait() -> None:
    """A reader that cannot open the event says so once, before its answer; bodies go by pointers all the same."""
    producer = greeted(events=True, tries=True)
    producer.ask([GPU], (), EVENT)
    assert producer.receive(Control.WAIT, pack_answer("no such event")) is Heard.ALIVE
    assert (producer.told_event, producer.why_wait, producer.asked) == (False, "no such event", True)
    with pytest.raises(ProtocolError):
        producer.receive(Control.WAIT, b"")
    producer.receive(Control.ANSWER, b"")
    assert producer.pointers


@pytest.mark.parametrize("event", [None, EVENT])
def test_nobody_waits_unasked(event: EventHandle | None) -> None:
    """Where no event was named, and behind the answer, a reader cannot have us wait."""
    producer = greeted(events=True, tries=True)
    with pytest.raises(ProtocolError):
        producer.receive(Control.WAIT, b"")
    producer = greeted(events=True, tries=True)
    producer.ask([GPU], (), event)
    if event is None:
        with pytest.raises(ProtocolError):
            producer.receive(Control.WAIT, b"")
        return
    producer.receive(Control.ANSWER, b"")
    with pytest.raises(ProtocolError):
        producer.receive(Control.WAIT, b"")


def test_an_event_is_named_once_and_first(material: Material) -> None:
    """A reader hears of one event, before the question; a second, a late and a broken one break the protocol."""
    listener = material.listener(welcome=False)
    listener.hear(material.say(Control.EVENT, EVENT.pack()))
    assert listener.events == [EVENT]
    with pytest.raises(ProtocolError, match="one event"):
        listener.hear(material.say(Control.EVENT, EVENT.pack()))
    listener = material.listener(welcome=False)
    listener.hear(material.say(Control.DEVICES, pack_devices([GPU])))
    with pytest.raises(ProtocolError, match="one event"):
        listener.hear(material.say(Control.EVENT, EVENT.pack()))
    with pytest.raises(ProtocolError):
        material.listener(welcome=False).hear(material.say(Control.EVENT, EVENT.pack()[:-1]))
