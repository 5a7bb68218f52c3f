"""The state machines of reader and producer take conversations that were recorded with an earlier build."""

from __future__ import annotations

import numpy as np
import pytest

import bowstring as bow
from bowstring.dissociated.events import Announced, Packed, Part, Pointers, Signal
from bowstring.dissociated.items import IpcMessage
from bowstring.dissociated.producer import ProducerProtocol, Role, Wanted
from bowstring.dissociated.reader import ReaderProtocol
from tests.wire.player import is_body, is_last, numbered
from tests.wire.test_transcripts import CONVERSATIONS, FAILING, PACKED


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_reader_without_io_takes_it(name: str) -> None:
    """The reader's state machine takes each recorded message of a server, and gives out every part and the end."""
    events = []
    protocol = ReaderProtocol(bow.DEFAULT_LIMITS)
    frames = [frame for each in CONVERSATIONS[name].connections for frame in each.said("server")]
    for frame in frames:
        attachments = () if frame.region is None else (object(),)
        events += protocol.receive(frame.tag, frame.body, attachments)
    parts = [event for event in events if isinstance(event, Part)]
    bodies = [part.body for part in parts if part.body is not None]
    assert len(parts) == sum(frame.tag is None and not is_last(frame) for frame in frames)
    assert len(bodies) == sum(is_body(frame) for frame in frames)
    assert {type(body) for body in bodies} <= {
        Pointers if CONVERSATIONS[name].uri.startswith("unix") else Packed
    }
    assert sum(isinstance(event, Announced) for event in events) == sum(
        frame.region is not None for frame in frames
    )
    assert isinstance(events[-1], bow.BowstringError) if name in FAILING else events[-1] is Signal.END


@pytest.mark.parametrize("name", PACKED)
def test_the_producer_without_io_says_it(name: str) -> None:
    """The producer's state machine frames the recorded items as before, and takes what the reader said of them."""
    conversation = CONVERSATIONS[name]
    items = [
        IpcMessage(metadata, np.zeros((1, 3), np.int64), (), [body], len(body))
        if number
        else IpcMessage(metadata)
        for number, (metadata, body) in enumerate(numbered(conversation.connections))
    ]
    for connection in conversation.connections:
        protocol = ProducerProtocol(bow.DEFAULT_LIMITS)
        hello, want, *others = connection.said("reader")
        assert protocol.receive(hello.tag, hello.body) is None
        assert isinstance(protocol.receive(want.tag, want.body), Wanted)
        said = [message for item in items for message in protocol.send(item)] + protocol.end()
        recorded = [each for each in connection.said("server") if each.tag is None or is_body(each)]
        found = [(message.tag, b"".join(map(bytes, message.pieces))) for message in said]
        assert sorted(found, key=repr) == sorted(((each.tag, each.body) for each in recorded), key=repr)
        for frame in others:
            protocol.receive(frame.tag, frame.body)
        assert protocol.done
        assert protocol.returned
        assert protocol.role is not Role.BODIES or len(conversation.connections) == 2
