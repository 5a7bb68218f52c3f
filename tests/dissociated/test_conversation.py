"""Reader and producer talk to each other in every order of events, without threads, clocks and sockets."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bowstring.dissociated.events import Asked, Packed, Part, Pointers, Signal
from bowstring.dissociated.location import Location
from bowstring.dissociated.partitions import PartitionTicket
from bowstring.dissociated.producer import (
    Heard,
    Outcome,
    ProducerProtocol,
    Role,
    Taken,
    Wanted,
    outcome_of,
)
from bowstring.dissociated.reader import Handshake, Lent, Phase, ReaderProtocol, Use, opening
from bowstring.dissociated.sequence import packed_cost
from bowstring.dissociated.tags import Want, is_packed
from bowstring.dissociated.wire import DeviceId, Hello, Outgoing, Welcome
from bowstring.errors import BrokenError, ProducerFailed, Starved
from bowstring.ipc.flatbuf.message import MessageKind
from bowstring.limits import DEFAULT_LIMITS
from tests.dissociated.conftest import Said

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material

GPU = DeviceId(2, b"sixteen bytes ..")
GONE = BrokenError("the peer closed the connection")
LIMITS = DEFAULT_LIMITS.replace(outstanding_bytes=120)
STEPS = 120
MOST_ITEMS = 8
ITEM = 8  # bytes of a row


class Line:
    """One connection: its producer, and the messages under way in both directions."""

    def __init__(self, role: Role) -> None:
        self.producer = ProducerProtocol(LIMITS)
        self.role = role
        self.to_producer: collections.deque[Said] = collections.deque()
        self.to_reader: collections.deque[Said] = collections.deque()
        self.begun = False
        self.blocked = False
        self.items = 0
        # Of partitions: how many were begun, how many batches the last one lacks, and what the reader took.
        self.begun_partitions = self.lacks = 0
        self.taken: list[int] = []

    def say(self, outgoing: list[Outgoing]) -> None:
        """Put messages of the producer on their way."""
        self.to_reader += map(Said.of, outgoing)


class Conversation:
    """A stream over one connection or two; `random` picks what happens next."""

    def __init__(self, material: Material, seed: int) -> None:
        self.material = material
        self.random = choose = random.Random(seed)
        self.extended = choose.random() < 0.8
        self.charged = choose.random() < 0.5  # produced for this reader
        self.maps = self.extended and choose.random() < 0.6
        self.asks = self.maps and choose.random() < 0.5
        self.window = choose.choice([0, 16, 60, 1000])
        self.total = choose.randrange(MOST_ITEMS)
        self.region = material.region()
        # How many batches each partition has, by its number, and how many may be under way.
        self.partitions: dict[int, int] = {}
        self.under_way = 0
        if self.extended and not self.charged and choose.random() < 0.4:
            counts = [choose.randrange(4) for _ in range(1 + choose.randrange(4))]
            self.partitions = {3 * index: count for index, count in enumerate(counts)}
            self.under_way = choose.choice([1, 2, 64])
            self.total = sum(counts)
        self.heard_partitions = 0
        separate = not (self.charged or self.partitions) and choose.random() < 0.3
        roles = [Role.METADATA, Role.BODIES] if separate else [Role.BOTH]
        self.lines = [Line(role) for role in roles]
        self.reader = ReaderProtocol(
            LIMITS,
            extended=self.extended,
            one_connection=not separate,
            window=self.window if self.extended else None,
            free_data=Want.FREE,
            partitions=[*self.partitions] or None,
        )
        self.waiting: collections.deque[tuple[Lent | None, int, int]] = collections.deque()
        self.kept: list[Lent] = []
        self.grown = self.starved = self.lost = self.failed = False
        for line in self.lines:
            location = Location("x:", line.role.value, Want.FREE, None, Want.HELLO if self.extended else None)
            hello = Hello(window=self.window, pointers=self.maps, partitions=self.under_way)
            tickets = [PartitionTicket(number, b"t" * number) for number in self.partitions]
            line.to_producer += map(Said.of, opening(location, b"t", hello, tickets))

    @property
    def bodies(self) -> Line:
        """The connection that carries the bodies."""
        return self.lines[-1]

    # What may happen, in any order.

    def producer_hears(self) -> None:
        """A producer takes a message."""
        line = self.random.choice(self.lines)
        if line.to_producer and not self.lost:
            self.producer_takes(line)

    def producer_takes(self, line: Line) -> None:
        """Take the next message of the reader, and begin the stream when it may."""
        said = line.to_producer.popleft()
        match line.producer.receive(said.tag, said.body):
            case Wanted():
                line.producer.pointers = self.maps and line.role is not Role.METADATA
                if self.asks and line.producer.pointers:
                    line.say(line.producer.ask([GPU]))
                else:
                    self.begin(line)
            case Heard.ANSWERED | Heard.STOPPED:  # which need not know the answer
                if not line.begun:
                    self.begin(line)
            case Taken(partitions=numbers):
                line.taken += numbers
            case _:
                line.say(line.producer.pong())

    def begin(self, line: Line) -> None:
        """Send what comes before the batches."""
        line.begun = True
        charged = self.charged or not line.producer.pointers
        line.say(line.producer.welcome(Welcome(charged, "path", "why")))
        line.say(line.producer.send(self.material.schema))

    def goes_on(self, line: Line) -> bool:
        """Whether a producer has more to send."""
        return line.begun and not (line.producer.ended or line.producer.stopped or self.failed or self.lost)

    def produce(self) -> None:
        """A producer sends its next batch, or that it has no credit for it, or the end."""
        line = self.random.choice(self.lines)
        if not self.goes_on(line):
            return
        if self.partitions and not line.lacks and line.begun_partitions < len(self.partitions):
            self.begin_partition(line)
            return
        if line.items == self.total:
            line.say(line.producer.end())
            line.producer.end_sent = True
            return
        rows = 1 + line.items % 3
        item = self.material.item(rows, self.region, offset=64 * line.items, charged=self.charged)
        outgoing = line.producer.offer(item)
        if outgoing is None:
            line.say([] if line.blocked else line.producer.blocked(line.producer.cost(item)))
        else:
            line.items += 1
            line.lacks -= bool(self.partitions)
            line.say(outgoing)
        line.blocked = outgoing is None

    def begin_partition(self, line: Line) -> None:
        """A producer begins its next partition, if the reader has taken enough of those before."""
        number, count = list(self.partitions.items())[line.begun_partitions]
        outgoing = line.producer.partition(number, count)
        if outgoing is not None:
            line.begun_partitions += 1
            line.lacks = count
            line.say(outgoing)

    def answer_stop(self) -> None:
        """A producer answers STOP, once."""
        for line in self.lines:
            if line.begun and not line.producer.ended:
                line.say(line.producer.stop())
                line.producer.ended |= line.producer.stopped

    def ping(self) -> None:
        """A producer asks whether the reader is there."""
        line = self.random.choice(self.lines)
        if not self.lost:
            line.say(line.producer.ping())

    def fail(self) -> None:
        """The code that makes the batches raises."""
        if self.random.random() < 0.05 and all(line.begun for line in self.lines):
            self.failed = True
            self.lost |= not self.extended  # a reader that knows no errors sees the connection end
            for line in self.lines:
                line.say(line.producer.fail(ProducerFailed("it raised")))

    def lose(self) -> None:
        """The connections are lost, with what is under way to the producer."""
        if self.random.random() < 0.03:
            self.lost = True
            for line in self.lines:
                line.to_producer.clear()

    def reader_hears(self) -> None:
        """The reader takes a message of either connection."""
        line = self.random.choice(self.lines)
        if line.to_reader:
            self.reader_takes(line)
        elif self.lost and self.reader.lost(GONE, bodies=line is self.bodies):
            self.reader.fail(GONE)

    def reader_takes(self, line: Line) -> None:
        """Take the next message, after its length, as a transport does."""
        said, reader = line.to_reader.popleft(), self.reader
        if is_packed(said.tag) and reader.phase in (Phase.OPEN, Phase.STOPPED):
            assert said.tag is not None
            reader.sequence.expect(said.tag, len(said.body))
        body = memoryview(said.body) if is_packed(said.tag) else said.body
        for event in reader.receive(said.tag, body, said.attachments):
            match event:
                case Part() if event.message.kind is MessageKind.RECORD_BATCH and reader.error is None:
                    self.assemble(event)
                case Asked():
                    why_not = self.random.choice(["", "no GPU here"])
                    self.bodies.to_producer += map(Said.of, reader.answer(why_not)[1])
                case Welcome():
                    reader.begin()
                case Signal.PARTITION:
                    self.heard_partitions += 1

    def assemble(self, part: Part) -> None:
        """Make a batch."""
        reader, nbytes = self.reader, part.message.body_length
        credit = nbytes if reader.charged else 0
        lent, cost = None, 0
        if isinstance(part.body, Pointers):
            lent = reader.lend(part.body.addresses, credit)
        elif isinstance(part.body, Packed):
            cost = packed_cost(part.message, nbytes)
        reader.arrived([cost])
        self.waiting.append((lent, cost, credit))

    def next_batch(self) -> None:
        """The user asks for a batch; where there is none, the producer may lack what the user holds."""
        reader = self.reader
        if reader.use is not Use.READING:
            return
        if self.waiting:
            lent, cost, credit = self.waiting.popleft()
            reader.deliver(cost, credit, until_delivered=lent is None)
            self.kept += [] if lent is None else [lent]
        elif reader.phase is Phase.COMPLETE:
            reader.read_to_end()
        else:
            before = reader.account.size
            try:
                reader.relieve("batch")
                self.grown |= reader.account.size != before
            except Starved:
                self.starved = True

    def free(self) -> None:
        """The user lets go of a batch."""
        if self.kept:
            self.reader.free([self.kept.pop(self.random.randrange(len(self.kept)))])

    def send(self) -> None:
        """The reader sends what is due."""
        bodies, metadata = self.reader.to_send()
        self.bodies.to_producer += map(Said.of, bodies)
        for line in self.lines[:-1]:
            line.to_producer += map(Said.of, metadata)

    def ask(self) -> None:
        """The reader asks whether the producer is there."""
        self.reader.ask()

    def fork(self) -> None:
        """The process of the reader forks."""
        self.bodies.to_producer += map(Said.of, self.reader.forked())

    def close(self) -> None:
        """The user closes the stream."""
        if self.random.random() < 0.05:
            self.close_now()

    def close_now(self) -> None:
        """Close, and drop what nobody will ask for."""
        self.reader.close(nothing_left=not self.waiting)
        self.reader.free([lent for lent, _, _ in self.waiting if lent is not None])
        self.waiting.clear()

    # Until nothing happens any more.

    def run(self) -> None:
        """Let things happen, and check what must hold at every moment."""
        steps: list[Callable[[], None]] = [
            *(self.producer_hears, self.reader_hears, self.produce, self.next_batch, self.send) * 4,
            *(self.free, self.ping, self.ask, self.fork, self.close, self.fail, self.lose, self.answer_stop),
        ]
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check()

    def finish(self) -> None:
        """Let everything arrive; the user reads on, or closes a stream that cannot go on, and frees everything."""
        for _ in range(40 * (MOST_ITEMS + 2)):
            for step in (self.produce, self.answer_stop, self.next_batch, self.send):
                step()
            for line in self.lines:
                while line.to_producer and not self.lost:
                    self.producer_takes(line)
                while line.to_reader:
                    self.reader_takes(line)
                if self.lost and self.reader.lost(GONE, bodies=line is self.bodies):
                    self.reader.fail(GONE)
            while self.kept:
                self.free()
            if self.reader.error is not None:
                self.close_now()
            self.check()
        if self.reader.use is Use.CLOSED and not self.reader.over:
            # One connection stopped, and the other had ended: only the clock tells that nothing more comes.
            assert len(self.lines) == 2
            self.reader.give_up()
            self.send()
            while self.bodies.to_producer:
                self.producer_takes(self.bodies)

    def check(self) -> None:
        """No more credit is out than the window, but for one batch alone; leases are counted alike."""
        for line in self.lines:
            window = line.producer.window
            assert window.size is None or window.outstanding <= max(window.size, 3 * ITEM)
            assert not (line.producer.owes_pong and line.to_producer)
        assert self.reader.account.outstanding >= 0
        assert self.reader.account.held >= 0
        if self.partitions:
            [line] = self.lines
            assert line.begun_partitions - len(line.taken) <= self.under_way
            assert line.taken == [*self.partitions][: len(line.taken)]


@settings(max_examples=500)
@given(seed=st.integers(0, 2**32))
def test_every_order_of_events_ends(material: Material, seed: int) -> None:
    """Whatever happens when, no side takes a message for wrong, and the stream has one of the named ends."""
    talk = Conversation(material, seed)
    talk.run()
    talk.finish()
    reader = talk.reader
    assert reader.over, (reader.phase, reader.use)
    assert reader.all_freed
    assert not reader.has_news
    ends = {Use.READ: {Phase.COMPLETE}, Use.CLOSED: {Phase.COMPLETE, Phase.STOPPED, Phase.FAILED}}
    if not talk.extended or len(talk.lines) == 2:
        ends[Use.CLOSED].add(Phase.OPEN)
    assert reader.phase in ends[reader.use]
    for line in talk.lines:
        check_producer(talk, line)


def check_producer(talk: Conversation, line: Line) -> None:
    """Check that a producer knows the same end, no lease, and no credit but what is owed."""
    producer, reader = line.producer, talk.reader
    if talk.lost:
        return
    assert producer.returned
    assert producer.ledger.outstanding == 0
    assert not any(producer.ledger.holds(number) for number in talk.partitions)
    if talk.partitions and reader.use is Use.READ:
        assert line.taken == [*talk.partitions]
        assert talk.heard_partitions == len(talk.partitions)
        used = {number for number, count in talk.partitions.items() if count and talk.maps}
        assert not producer.pointers or set(producer.ledger.take_emptied()) == used
    if (
        line is talk.bodies and reader.use is Use.READ
    ):  # of a stream that was stopped nobody counts it any more
        assert producer.window.outstanding == reader.account.owed
    outcome = outcome_of(producer, GONE, admitted=True)
    if line.role is Role.METADATA:
        assert outcome is Outcome.METADATA
    elif reader.use is Use.READ:
        assert outcome is Outcome.COMPLETED
    elif talk.extended:
        assert outcome is Outcome.STOPPED
    assert (reader.handshake is Handshake.WELCOMED) == line.begun or line.role is Role.METADATA


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seed_is_the_same_conversation(material: Material, seed: int) -> None:
    """What a seed chooses is repeated exactly, so that a failure can be looked at again."""
    talks = [Conversation(material, seed) for _ in range(2)]
    for talk in talks:
        talk.run()
    assert talks[0].reader.phase is talks[1].reader.phase
    assert [line.items for line in talks[0].lines] == [line.items for line in talks[1].lines]
