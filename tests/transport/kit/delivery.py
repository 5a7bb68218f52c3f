"""What arrives: whole, unchanged, in order, with what belongs to it."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bowstring.errors import UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Channel, Message
from tests.transport.kit.harness import (
    MIB,
    Maker,
    in_thread,
    next_from,
    pairs_from,
    pattern,
    raises,
    send,
)


def check_order(make: Maker) -> None:
    """Messages, tagged and not, empty ones too, arrive whole and in the order in which they were sent.

    Where the channel keeps no order between tagged and untagged ones, each kind keeps its own.
    """
    with make(DEFAULT_LIMITS) as (here, there):
        sent = [(None if n % 3 == 0 else n, pattern(n, n * n % 700)) for n in range(200)]
        for start in range(0, len(sent), 7):
            send(here, *[Message(tag, [body]) for tag, body in sent[start : start + 7]])
        got = [next_from(there) for _ in sent]
        found = [(message.tag, bytes(message.body)) for message in got]
        if here.ordered:
            assert found == sent
        for untagged in (True, False):
            kind = [each for each in sent if (each[0] is None) is untagged]
            assert [each for each in found if (each[0] is None) is untagged] == kind
        assert all(message.attachments == () for message in got)
        assert there.receive(0.0) is None


def check_sizes(make: Maker) -> None:
    """Bodies of every size around the bounds of buffers arrive unchanged, in both directions."""
    sizes = [
        0,
        1,
        23,
        24,
        25,
        4095,
        4096,
        8168,
        8192,
        8193,
        65_535,
        65_536,
        65_537,
        212_992,
        MIB + 1,
        9 * MIB + 3,
    ]
    with make(DEFAULT_LIMITS) as ends:
        for here, there in (ends, ends[::-1]):
            for tag in (None, 7):
                messages = [Message(tag, [pattern(size, size)]) for size in sizes]
                sending = in_thread(send, here, *messages)
                for message in messages:
                    received = next_from(there)
                    assert received.tag == tag
                    assert received.body.nbytes == message.nbytes
                    assert [received.body] == message.pieces
                sending.result()


def check_tags(make: Maker) -> None:
    """All 64 bits of a tag arrive; more are refused, and nothing is sent."""
    tags = [0, 1, (1 << 32) - 1, 1 << 56, 2 << 56, 0xFF << 56, (1 << 64) - 1]
    with make(DEFAULT_LIMITS) as (here, there):
        send(here, *[Message(tag, [b"x"]) for tag in tags])
        assert [next_from(there).tag for _ in tags] == tags
        for tag in (-1, 1 << 64):
            with raises(UsageError):
                send(here, Message(1, [b"not sent"]), Message(tag))
        assert there.receive(0.0) is None


def check_pieces(make: Maker) -> None:
    """A body of thousands of pieces of any contiguous kind arrives joined; others are refused."""
    pieces: list[Any] = [bytes([n % 251]) * (n % 5) for n in range(5000)]
    pieces += [
        bytearray(b"array"),
        memoryview(b"view"),
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.empty((0, 4)),
    ]
    with make(DEFAULT_LIMITS) as (here, there):
        send(here, Message(3, pieces), Message(None, ()))
        [(joined, empty)] = pairs_from(there, 1)
        assert bytes(joined.body) == b"".join(memoryview(piece).tobytes() for piece in pieces)
        assert empty.body.nbytes == 0
        for bad in ("text", np.arange(6)[::2], 5):
            with raises(UsageError):
                send(here, Message(None, [bad]))  # type: ignore[list-item]  # that is the point
        assert there.receive(0.0) is None


def check_reuse(make: Maker) -> None:
    """What a sender does to its buffers after ``send`` does not reach the receiver."""
    with make(DEFAULT_LIMITS) as (here, there):
        buffer = bytearray(b"before")
        send(here, Message(1, [buffer]), Message(None, [buffer]))
        buffer[:] = b"after!"
        assert [bytes(next_from(there).body), bytes(next_from(there).body)] == [b"before", b"before"]


def check_landing(make: Maker) -> None:
    """A tagged body lands in the memory that ``land`` gives; an untagged one never asks."""
    places: dict[int, np.ndarray[Any, Any]] = {}

    def land(tag: int, nbytes: int) -> np.ndarray[Any, Any]:
        places[tag] = np.zeros(nbytes // 4, dtype=np.int32)
        return places[tag]

    with make(DEFAULT_LIMITS) as (here, there):
        for words in (0, 3, 100_000):
            body = pattern(words, 4 * words)
            sending = in_thread(send, here, Message(9, [body]), Message(None, [body]))
            [(received, untagged)] = pairs_from(there, 1, land)
            assert places.pop(9).tobytes() == body == bytes(received.body)
            assert untagged.body == body
            assert untagged.body.readonly
            assert not places
            sending.result()


def check_interleaved_senders(make: Maker) -> None:
    """Two threads may send: each keeps its order, and the messages of one call stay together."""
    with make(DEFAULT_LIMITS) as (here, there):

        def send_all(sender: int) -> None:
            for number in range(150):
                body = struct.pack("<II", sender, number)
                send(here, Message(sender, [body, bytes(5000 * (number % 7))]), Message(None, [body]))

        senders = [in_thread(send_all, sender) for sender in (1, 2)]
        counts = {1: 0, 2: 0}
        for first, second in pairs_from(there, 300):
            assert first.tag is not None
            assert first.body[:8] == second.body == struct.pack("<II", first.tag, counts[first.tag])
            counts[first.tag] += 1
        for sender in senders:
            sender.result()


def check_both_directions(make: Maker) -> None:
    """Both ends may send more than any buffer holds at the same time, while both receive."""
    with make(DEFAULT_LIMITS) as ends:
        body = pattern(1, 3 * MIB)

        def receive_all(end: Channel) -> list[bool]:
            return [next_from(end).body == body for _ in range(5)]

        sending = [in_thread(send, end, *[Message(n, [body]) for n in range(5)]) for end in ends]
        receiving = [in_thread(receive_all, end) for end in ends]
        assert [thread.result() for thread in receiving] == [[True] * 5] * 2
        for thread in sending:
            thread.result()


def check_attachments(make: Maker) -> None:
    """Attachments arrive with their message, in order, as many as were sent; or the transport refuses them."""
    with make(DEFAULT_LIMITS) as (here, there):
        if not here.most_attachments:
            with raises(UsageError):
                send(here, Message(1, [b"not sent"]), Message(None, [b"x"], (object(),)))
            assert there.receive(0.0) is None
            return
        counts = [1, 0, 3, min(here.most_attachments, 253), 0, 2]
        with contextlib.ExitStack() as stack:
            for number, count in enumerate(counts):
                things = tuple(_attachment(here, stack, f"{number}.{n}") for n in range(count))
                send(here, Message(number, [bytes(number)], things), Message(None, [b"plain"]))
            for number, count in enumerate(counts):
                received, plain = next_from(there), next_from(there)
                assert plain.attachments == ()
                found = [_read_attachment(there, thing) for thing in received.attachments]
                assert found == [f"{number}.{n}" for n in range(count)]
        with raises(UsageError):
            send(here, Message(None, [b"x"], (object(),) * (here.most_attachments + 1)))
        assert there.receive(0.0) is None


def _attachment(channel: Channel, stack: contextlib.ExitStack, name: str) -> object:
    if channel.passes_memory == "object":
        return [name]
    fd = os.memfd_create(name)
    stack.callback(os.close, fd)
    os.write(fd, name.encode())
    return fd


def _read_attachment(channel: Channel, thing: Any) -> str:
    if channel.passes_memory == "object":
        return str(thing[0])
    try:
        assert not os.get_inheritable(thing), "a descriptor that would leak into other programs"
        return os.pread(thing, 100, 0).decode()
    finally:
        channel.drop((thing,))


CHECKS: Sequence[Callable[[Maker], None]] = (
    check_order,
    check_sizes,
    check_tags,
    check_pieces,
    check_reuse,
    check_landing,
    check_interleaved_senders,
    check_both_directions,
    check_attachments,
)
