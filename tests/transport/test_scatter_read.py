"""Messages that were foreseen, read many at a time, from a peer that sends something else, stops and cuts."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import BrokenError, ClosedError, DeadlineExceeded, ProtocolError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.transport import Peer
from bowstring.transport.header import pack_header
from bowstring.transport.scatter_read import Rows, cut
from bowstring.transport.tcp import TcpChannel
from tests.transport.kit import in_thread

UNTAGGED, BODY = 40, 128
IMPATIENT = DEFAULT_LIMITS.replace(stall_timeout=0.2)
Said = tuple[int | None, bytes]
Raw = Callable[..., tuple[TcpChannel, socket.socket]]


@contextlib.contextmanager
def connection(limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[TcpChannel, socket.socket]]:
    """Give a channel and the plain socket at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as far:
        far.connect(listener.getsockname())
        near, _ = listener.accept()
        with TcpChannel(near, "tcp://pair", Peer.at("pair"), limits) as channel:
            yield channel, far


def frame(said: Said) -> bytes:
    tag, body = said
    return pack_header(tag, 0, len(body)) + body


def turns(first: int, count: int) -> list[Said]:
    """Return turns as they were foreseen."""
    return [
        each
        for number in range(first, first + count)
        for each in ((None, bytes([number % 251]) * UNTAGGED), (number, bytes([number % 253]) * BODY))
    ]


def places(count: int) -> list[memoryview]:
    """Return where so many bodies land."""
    return cut(memoryview(bytearray(count * BODY)), BODY)


class Reader:
    """Takes turns as long as some are there, and by themselves whatever else comes."""

    def __init__(self, channel: TcpChannel, room: int) -> None:
        self.channel = channel
        self.rows = Rows(UNTAGGED, BODY, 0, 8)
        self.room = room
        self.place = places(room)
        self.used = 0
        self.said: list[Said] = []
        self.runs = 0

    def step(self) -> bool:
        """Take what comes next; false when nothing is there."""
        if not self.said or self.said[-1][0] is not None:
            if self.used == self.room:
                self.place, self.used = places(self.room), 0
            bodies = self.place[self.used :]
            count = self.channel.receive_rows(self.rows, bodies)
            if not count and self.rows.begun:
                count = self.channel.receive_rows(self.rows, bodies, 10.0)
            if count:
                self.runs += count > 1
                self.used += count
                tags, messages = self.rows.tags(count).tolist(), self.rows.messages(count)
                for row in range(count):
                    body = bytes(bodies[row])
                    self.said += [(None, messages[row].tobytes()), (tags[row], body)]
                return True
        received = self.channel.receive(0.0)
        if received is not None:
            self.said.append((received.tag, bytes(received.body)))
        return received is not None

    def read(self, count: int) -> list[Said]:
        """Take so many messages."""
        while len(self.said) < count:
            self.step()
        return self.said


OTHERS: Sequence[Said] = (
    (None, b"e" * 5),
    (None, b"x" * UNTAGGED),
    (7, b"y" * BODY),
    (2 << 56, b""),
    (1 << 56, b"z" * BODY),
    (9, b"w" * (BODY + 64)),
    (None, b"v" * 9000),
    (11, b"u" * 20_000),
)


@given(
    st.lists(st.one_of(st.integers(1, 30), st.sampled_from(range(-len(OTHERS), 0))), max_size=8),
    st.lists(st.integers(1, 4000), max_size=20),
    st.integers(1, 9),
)
def test_any_order_and_any_pieces(kinds: list[int], cuts: list[int], room: int) -> None:
    """Whatever comes, in whatever pieces, is received as it was sent and in its order."""
    said: list[Said] = []
    for kind in kinds:
        said += turns(len(said), kind) if kind > 0 else [OTHERS[kind]]
    sent = b"".join(map(frame, said))
    with connection() as (channel, far):
        reader = Reader(channel, room)
        for cut in cuts:
            end = _edge(said, len(sent) - cut)
            far.sendall(sent[: len(sent) - end])
            sent = sent[len(sent) - end :]
            while reader.step():
                pass
        sending = in_thread(far.sendall, sent)
        assert reader.read(len(said)) == said
        sending.result()


def _edge(said: list[Said], left: int) -> int:
    """Return how many bytes are left at the end of a message, no more than `left`: nobody waits for them."""
    end = 0
    for each in reversed(said):
        if end + len(frame(each)) > left:
            break
        end += len(frame(each))
    return end


@given(st.integers(1, (24 + UNTAGGED + 24 + BODY) * 3 - 1))
def test_a_turn_that_comes_in_two(cut: int) -> None:
    """Wherever the bytes that are there end, the rest of a message is waited for, and nothing is lost."""
    said = turns(0, 8)
    sent = b"".join(map(frame, said))
    with connection() as (channel, far):
        reader = Reader(channel, 16)
        far.sendall(sent[:cut])
        reading = in_thread(reader.read, len(said))
        far.sendall(sent[cut:])
        assert reading.result() == said


def test_many_at_once() -> None:
    """Turns that are there are taken in one call, as many as there is room for."""
    said = turns(0, 20)
    with connection() as (channel, far):
        far.sendall(b"".join(map(frame, said)))
        reader = Reader(channel, 16)
        assert reader.read(len(said)) == said
        # 8 rows; then 8 more, which is all the room; then 4.
        assert reader.runs == 3


def test_waiting_for_turns() -> None:
    """Where nothing is there, what comes next is waited for, as long as it was said, and nothing is lost by it."""
    said = turns(0, 4)
    with connection() as (channel, far):
        rows, bodies = Rows(UNTAGGED, BODY, 0, 8), places(8)
        assert channel.receive_rows(rows, bodies, 0.01) == 0
        waiting = in_thread(channel.receive_rows, rows, bodies, 10.0)
        with contextlib.suppress(AssertionError):
            waiting.result(0.05)
        far.sendall(frame(said[0])[:5])
        assert waiting.result() == 0
        far.sendall(b"".join(map(frame, said))[5:])
        reader = Reader(channel, 16)
        reader.rows, reader.place = rows, bodies
        assert reader.read(len(said)) == said


def test_who_only_looks_does_not_wait() -> None:
    """The rest of a body is not waited for by who only looks, who is told that it has begun, and gets it later."""
    said = turns(0, 1)
    sent = b"".join(map(frame, said))
    with connection(IMPATIENT) as (channel, far):
        rows, bodies = Rows(UNTAGGED, BODY, 0, 8), places(8)
        far.sendall(sent[:-1])
        while not rows.begun:  # the bytes may be long in coming
            assert channel.receive_rows(rows, bodies) == 0
        time.sleep(2 * IMPATIENT.stall_timeout)
        assert channel.receive_rows(rows, bodies) == 0
        assert rows.begun == len(sent) - 1
        far.sendall(sent[-1:])
        assert channel.receive_rows(rows, bodies, 10.0) == 1
        assert (rows.messages(1).tobytes(), bytes(bodies[0])) == (said[0][1], said[1][1])


def test_close_while_waiting_for_turns() -> None:
    """Closing wakes whoever waits for messages that were foreseen."""
    with connection() as (channel, _):
        rows, bodies = Rows(UNTAGGED, BODY, 0, 8), places(8)
        waiting = in_thread(channel.receive_rows, rows, bodies, 10.0)
        with contextlib.suppress(AssertionError):
            waiting.result(0.05)
        channel.close()
        with contextlib.suppress(ClosedError):
            assert waiting.result() == 0
        with pytest.raises(ClosedError):
            channel.receive(0.0)


def test_an_end_while_waiting_for_turns() -> None:
    """A peer that hangs up wakes whoever waits for its messages, and is found gone next."""
    with connection() as (channel, far):
        rows, bodies = Rows(UNTAGGED, BODY, 0, 8), places(8)
        waiting = in_thread(channel.receive_rows, rows, bodies, 10.0)
        far.shutdown(socket.SHUT_WR)
        assert waiting.result() == 0
        with pytest.raises(BrokenError):
            channel.receive(0.0)


@pytest.mark.parametrize("cut", [10, 24 + UNTAGGED + 24, 24 + UNTAGGED + 24 + 60])
def test_cut_off_inside_a_turn(cut: int) -> None:
    """What came before the end of a connection is received, and then the end says how many bytes were missing."""
    said = turns(0, 3)
    with connection() as (channel, far):
        far.sendall(b"".join(map(frame, said)) + b"".join(map(frame, turns(3, 1)))[:cut])
        far.shutdown(socket.SHUT_WR)
        reader = Reader(channel, 16)
        assert reader.read(len(said)) == said
        with pytest.raises(BrokenError, match="more bytes"):
            reader.read(len(said) + 1)
        with pytest.raises(BrokenError):
            channel.receive(0.0)
        assert channel.receive_rows(reader.rows, reader.place) == 0


def test_silence_inside_a_turn() -> None:
    """A peer that goes silent inside a foreseen body is given up on in time, and meanwhile one is said to land."""
    said = turns(0, 3)
    with connection(IMPATIENT) as (channel, far):
        far.sendall(b"".join(map(frame, said)) + b"".join(map(frame, turns(3, 1)))[:-1])
        reader = Reader(channel, 16)
        assert reader.read(len(said)) == said
        assert not reader.rows.landing
        with pytest.raises(DeadlineExceeded):
            reader.step()
        assert not reader.rows.landing


def test_close_inside_a_turn() -> None:
    """Closing wakes whoever waits for the rest of a foreseen body."""
    with connection() as (channel, far):
        far.sendall(b"".join(map(frame, turns(0, 3)))[:-1])
        reader = Reader(channel, 16)
        assert reader.read(4) == turns(0, 2)
        waiting = in_thread(reader.step)
        with contextlib.suppress(AssertionError):
            waiting.result(0.1)
        assert reader.rows.landing
        channel.close()
        with pytest.raises(ClosedError):
            waiting.result()


@pytest.mark.parametrize("place", [*range(24), *range(24 + UNTAGGED, 24 + UNTAGGED + 24)])
def test_another_header(place: int) -> None:
    """A turn is taken up to where a header says anything else than was foreseen, but for the number of the tag."""
    sent = bytearray(b"".join(map(frame, turns(0, 3))))
    turn = len(sent) // 3
    sent[turn + place] ^= 1
    number = range(24 + UNTAGGED + 8, 24 + UNTAGGED + 15)
    with connection() as (channel, far):
        far.sendall(sent)
        rows, bodies = Rows(UNTAGGED, BODY, 0, 8), places(8)
        assert channel.receive_rows(rows, bodies) == (3 if place in number else 1)


def test_garbage_behind_turns() -> None:
    """Foreign bytes behind messages that were foreseen are refused as what they are; nothing after them is read."""
    said = turns(0, 3)
    sent = b"".join(map(frame, said))
    with connection() as (channel, far):
        far.sendall(sent + bytes(5 * len(sent) // 3) + b"".join(map(frame, turns(3, 2))))
        reader = Reader(channel, 16)
        assert reader.read(len(said)) == said
        with pytest.raises(ProtocolError):
            reader.step()
        assert channel.receive_rows(reader.rows, reader.place) == 0


def test_an_interrupt_inside_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt after bytes were taken ends the connection: nobody knows where the next message begins."""

    def interrupted(_: Rows, most: int) -> int:
        raise KeyboardInterrupt

    with connection() as (channel, far):
        far.sendall(b"".join(map(frame, turns(0, 3))))
        monkeypatch.setattr(Rows, "right", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Reader(channel, 16).step()
        with pytest.raises(BrokenError):
            channel.receive(0.0)


def test_an_interrupt_between_calls_loses_nothing() -> None:
    """A run that ended inside a body goes on where it was, though its first row was needed in between."""
    said = turns(0, 3)
    sent = b"".join(map(frame, said))
    with connection() as (channel, far):
        far.sendall(sent[:-10])
        reader = Reader(channel, 16)
        reader.step()
        assert reader.said == said[:4]
        assert reader.rows.begun == 24 + UNTAGGED + 24 + BODY - 10
        far.sendall(sent[-10:])
        assert reader.read(6) == said
        assert reader.rows.begun == 0


def test_room_is_offered_for_what_may_be_there() -> None:
    """Room is offered for twice as many turns as were there the last time and some more; at first for all."""
    rows = Rows(UNTAGGED, BODY, 0, 256)
    bodies = places(256)
    offered = [len(rows.places(bodies, 0)) // 2]
    for there in (0, 3, 100, 200, 1):
        rows.expect(there)
        offered.append(len(rows.places(bodies, 0)) // 2)
    assert offered == [256, 8, 14, 208, 256, 10]
