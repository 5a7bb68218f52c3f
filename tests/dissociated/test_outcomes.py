"""What becomes of a connection, for every order of its last events, without IO."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from bowstring import errors
from bowstring.dissociated.producer import Outcome, ProducerProtocol, outcome_of
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello, pack_addresses, unpack_pairs
from bowstring.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material

GONE = errors.BrokenError("the peer closed the connection")
WRONG = errors.ProtocolError("a reader cannot say this")


def plain(want: Want = Want.DATA) -> ProducerProtocol:
    """Return a producer whose reader knows only the specification."""
    producer = ProducerProtocol(DEFAULT_LIMITS)
    producer.receive(want, b"ticket")
    return producer


@pytest.mark.parametrize("hello", [False, True])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (GONE, Outcome.IDLE),
        (errors.ClosedError("closed"), Outcome.IDLE),
        (errors.DeadlineExceeded("named no data set in time"), Outcome.IDLE),
        (WRONG, Outcome.REFUSED),
        (errors.LimitExceeded("too long"), Outcome.REFUSED),
    ],
)
def test_who_has_not_asked(error: errors.BowstringError, expected: Outcome, *, hello: bool) -> None:
    """Before a data set was asked for, a connection that just ends is idle; one that breaks a rule is refused."""
    producer = ProducerProtocol(DEFAULT_LIMITS)
    if hello:
        producer.receive(Want.HELLO, Hello().pack())
    assert outcome_of(producer, error, admitted=False) is expected


@pytest.mark.parametrize("error", [GONE, errors.AccessDenied("no"), errors.UnknownTicket("no")])
def test_who_was_not_admitted(error: errors.BowstringError) -> None:
    """A reader that asked and was not let in is refused, however the connection ended."""
    assert outcome_of(plain(), error, admitted=False) is Outcome.REFUSED


@pytest.mark.parametrize("want", [Want.DATA, Want.BODIES])
def test_every_order_of_the_end_of_a_plain_stream(want: Want) -> None:
    """Whether the call that sends the end returns before or after the reader is seen to hang up is all the same.

    The sending side first decides that the stream ends, then knows that it was sent; the reader, which may hang up
    as soon as the last message is on its way, is seen to have gone at any point behind that.
    """
    for order in itertools.permutations(["end", "sent", "gone"]):
        if order.index("end") > order.index("sent"):
            continue
        producer = plain(want)
        waited = False
        for step in order:
            match step:
                case "end":
                    producer.end()
                case "sent":
                    producer.end_sent = True
                case _:
                    waited = producer.may_have_read_all
        # On a connection of bodies the last body is the last message, whatever `end` was.
        early = order[0] == "gone" and want is Want.DATA
        assert waited is (order[-1] != "gone" and not early)
        if waited or order[-1] == "gone":
            assert outcome_of(producer, GONE, admitted=True) is Outcome.COMPLETED


def test_who_hangs_up_before_everything_was_sent() -> None:
    """A plain reader that was not sent the end has stopped; it holds nothing that could be missing."""
    producer = plain()
    assert not producer.may_have_read_all
    producer.end()
    assert producer.may_have_read_all
    assert outcome_of(producer, GONE, admitted=True) is Outcome.STOPPED


@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("word", [None, Control.STOP, Control.UNUSED, Control.DONE])
@pytest.mark.parametrize("gone", [False, True])
def test_every_way_in_which_a_reader_leaves(
    material: Material, word: Control | None, *, holds: bool, ended: bool, gone: bool
) -> None:
    """DONE completes; STOP and UNUSED stop; without a word it is lost, unless it came to the end and freed all."""
    producer = material.producer(pointers=True)
    messages = producer.send(material.item(1, material.region()))
    if not holds:
        _, pairs = unpack_pairs(b"".join(messages[-1].pieces))
        producer.receive(Want.FREE, pack_addresses(pairs[pairs[:, 0] != 0, 0].astype(np.uint64)))
    if ended:
        producer.end()
    if word is Control.DONE and not ended:
        with pytest.raises(errors.ProtocolError):
            producer.receive(word, b"")
        return
    if word is not None:
        producer.receive(word, b"")
    expected = {
        Control.DONE: Outcome.COMPLETED,
        Control.UNUSED: Outcome.STOPPED,
        # What a process that is gone held is free.
        Control.STOP: Outcome.LOST if holds and not gone else Outcome.STOPPED,
        None: Outcome.STOPPED if ended and not holds else Outcome.LOST,
    }[word]
    assert outcome_of(producer, GONE, admitted=True, gone=gone) is expected
    assert not producer.may_have_read_all


def test_how_a_producer_ends_a_stream(material: Material) -> None:
    """What the producer itself ends is no loss; a reader that breaks a rule or does not answer is lost."""
    producer = material.producer()
    closed = errors.ClosedError("closed")
    assert outcome_of(producer, closed, admitted=True, closing=True) is Outcome.STOPPED
    found = {
        errors.ProducerFailed: Outcome.STOPPED,
        errors.DeviceError: Outcome.STOPPED,
        errors.UnknownColumn: Outcome.REFUSED,
        errors.DeadlineExceeded: Outcome.LOST,
        errors.ProtocolError: Outcome.LOST,
        errors.LeaseExpired: Outcome.LOST,
    }
    for reported, expected in found.items():
        assert outcome_of(producer, GONE, admitted=True, reported=reported) is expected
    for error in (WRONG, errors.LeaseExpired("x"), errors.DeadlineExceeded("x"), errors.LimitExceeded("x")):
        assert outcome_of(producer, error, admitted=True) is Outcome.LOST


def test_a_connection_of_metadata_counts_elsewhere() -> None:
    """Of two connections of one stream, the one with the bodies counts."""
    assert outcome_of(plain(Want.METADATA), GONE, admitted=True) is Outcome.METADATA
