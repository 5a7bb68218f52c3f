"""Many partitions in one stream: the list that a reader sends, the marks between them, what each side refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.dissociated.addresses import LOWEST_ADDRESS
from bowstring.dissociated.events import Pointers, Signal
from bowstring.dissociated.partitions import (
    MOST_PARTITIONS,
    PartitionMark,
    PartitionRequest,
    PartitionTicket,
    lists_of,
    pack_taken,
)
from bowstring.dissociated.producer import ProducerProtocol, Taken, Wanted
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import Hello, Welcome
from bowstring.errors import ProtocolError
from bowstring.limits import DEFAULT_LIMITS
from tests.dissociated.conftest import Listener, Said

if TYPE_CHECKING:
    from tests.dissociated.conftest import Material

HELLO = Hello(window=1 << 40, pointers=True, partitions=2).pack()
TICKETS = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.binary(max_size=200)).map(lambda each: PartitionTicket(*each)),
    min_size=1,
    max_size=60,
    unique_by=lambda each: each.number,
).map(sorted)


def listed(numbers: list[int]) -> list[PartitionTicket]:
    """Return a list of partitions."""
    return [PartitionTicket(number, b"t%d" % number) for number in numbers]


def asked(numbers: list[int], hello: bytes = HELLO) -> ProducerProtocol:
    """Return a producer whose reader has asked for partitions."""
    request, bodies = PartitionRequest.of(listed(numbers))
    producer = ProducerProtocol(DEFAULT_LIMITS)
    producer.receive(Want.HELLO, hello)
    for body in bodies:
        producer.receive(Control.PARTITIONS, body)
    assert producer.receive(Want.DATA, request.generation) == Wanted(request.generation, producer.role)  # type: ignore[arg-type]  # it has one now
    producer.pointers = True
    return producer


def listener(numbers: list[int] | None) -> Listener:
    """Return a reader that has asked for partitions, and was welcomed."""
    made = Listener()
    made.protocol = type(made.protocol)(DEFAULT_LIMITS, one_connection=True, partitions=numbers)
    made.hear(Said(Control.WELCOME, Welcome(charged=False, path="", why="").pack()))
    return made


def mark(number: int, batches: int, first: int) -> Said:
    """Return what begins a partition."""
    return Said(Control.PARTITION, PartitionMark(number, batches, first).pack())


@given(tickets=TICKETS)
def test_a_list_arrives_as_it_was_sent(tickets: list[PartitionTicket]) -> None:
    """Whatever the tickets are, the producer has the same list, and both give it the same name."""
    request, bodies = PartitionRequest.of(tickets)
    heard = PartitionRequest()
    for body in bodies:
        heard.take(body)
    assert heard.tickets == request.tickets == tickets
    assert heard.is_named(request.generation)
    assert len(request.generation) < 64
    other = PartitionRequest()
    other.take(PartitionRequest.of([*tickets[:-1], tickets[-1]._replace(ticket=b"another")])[1][-1])
    assert not other.is_named(request.generation)


@given(tickets=TICKETS, cut=st.integers(1, 5))
def test_a_list_that_was_cut_is_refused(tickets: list[PartitionTicket], cut: int) -> None:
    """A list that ends within an entry is an error, or names another generation."""
    request, bodies = PartitionRequest.of(tickets)
    heard = PartitionRequest()
    try:
        heard.take(b"".join(bodies)[:-cut])
    except ProtocolError:
        return
    assert not heard.is_named(request.generation)


@given(body=st.binary(max_size=300))
def test_any_list_is_read_or_refused(body: bytes) -> None:
    """Whatever a reader sends as its list, nothing but an error of the protocol comes of it."""
    heard = PartitionRequest()
    try:
        heard.take(body)
    except ProtocolError:
        assert not heard.tickets
    else:
        assert [each.number for each in heard.tickets] == sorted({each.number for each in heard.tickets})


@pytest.mark.parametrize(
    "numbers", [[0, 0], [2, 1]], ids=["the same number twice", "a number below the one before"]
)
def test_numbers_go_up(numbers: list[int]) -> None:
    """Each partition has its number, and numbers go up."""
    with pytest.raises(ProtocolError, match="number"):
        PartitionRequest.of(listed(numbers))


def test_lists_are_bounded() -> None:
    """A list beyond what one stream takes is refused; one that is cut by `lists_of` fits."""
    many = listed(list(range(MOST_PARTITIONS + 1)))
    with pytest.raises(ProtocolError, match="too many"):
        PartitionRequest.of(many)
    assert [len(PartitionRequest.of(part)[0].tickets) for part in lists_of(many)] == [MOST_PARTITIONS, 1]
    long = [PartitionTicket(number, bytes(60_000)) for number in range(300)]
    with pytest.raises(ProtocolError, match="too many"):
        PartitionRequest.of(long)
    parts = [PartitionRequest.of(part)[0].tickets for part in lists_of(long)]
    assert [ticket for part in parts for ticket in part] == long


@pytest.mark.parametrize(
    ("hello", "want", "ticket"),
    [
        (Hello().pack(), Want.DATA, None),
        (HELLO, Want.BODIES, None),
        (HELLO, Want.METADATA, None),
        (HELLO, Want.DATA, b"t1"),
    ],
    ids=["no number under way", "bodies only", "metadata only", "another ticket"],
)
def test_a_list_that_is_not_asked_for_well_is_refused(hello: bytes, want: Want, ticket: bytes | None) -> None:
    """A list needs a hello that says so, one connection, and the ticket that names it."""
    request, [body] = PartitionRequest.of(listed([1, 2]))
    producer = ProducerProtocol(DEFAULT_LIMITS)
    producer.receive(Want.HELLO, hello)
    named = request.generation if ticket is None else ticket

    def ask() -> None:
        producer.receive(Control.PARTITIONS, body)
        producer.receive(want, named)

    with pytest.raises(ProtocolError, match="partitions"):
        ask()


def test_so_many_are_under_way_and_no_more() -> None:
    """A producer begins the next partition when the reader has taken one; none is taken twice, or too early."""
    producer = asked([1, 4, 6])
    assert producer.partition(1, 0) is not None
    assert producer.partition(4, 0) is not None
    assert producer.partition(6, 0) is None
    for wrong in (6, 7):
        with pytest.raises(ProtocolError, match="not sent"):
            producer.receive(Control.TAKEN, pack_taken([wrong]))
    assert producer.receive(Control.TAKEN, pack_taken([1])) == Taken([1])
    assert producer.partition(6, 0) is not None
    with pytest.raises(ProtocolError, match="not sent"):
        producer.receive(Control.TAKEN, pack_taken([1]))
    for body in (b"", b"abc"):
        with pytest.raises(ProtocolError, match="uint32"):
            producer.receive(Control.TAKEN, body)


def test_an_address_belongs_to_one_partition(material: Material) -> None:
    """Of memory that two partitions share each has addresses of its own, and the ledger knows which is held."""
    producer, region = asked([1, 2]), material.region()
    said = [Said.of(each) for each in producer.send(material.schema)]
    for number in (1, 2):
        said += map(Said.of, producer.partition(number, 2) or [])
        said += [Said.of(each) for _ in range(2) for each in producer.send(material.item(1, region))]
    reader = listener([1, 2])
    reader.hear(*said, *map(Said.of, producer.end()))
    assert sum(each.tag == Control.REGION for each in said) == 2
    addresses = [part.body.addresses.tolist() for part in reader.parts if isinstance(part.body, Pointers)]
    first, second = addresses[:2], addresses[2:]
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert not {*first[0]} & {*second[0]}
    assert all(each > LOWEST_ADDRESS for pair in addresses for each in pair)
    ledger = producer.ledger
    for number, pair in ((2, second), (1, first)):
        assert ledger.holds(number)
        ledger.free(pair[0])
        assert ledger.holds(number)
        assert ledger.take_emptied() == []
        ledger.free(pair[1])
        assert not ledger.holds(number)
        assert ledger.take_emptied() == [number]
    assert producer.returned


def test_batches_are_counted_by_partition(material: Material) -> None:
    """A reader says TAKEN when its user has the last batch, and of an empty partition when it comes to that."""
    producer = asked([0, 5, 6])
    reader, region = listener([0, 5, 6]), material.region()
    protocol = reader.protocol
    assert protocol.partitions is not None
    reader.hear(*map(Said.of, producer.send(material.schema)))
    for number, count in ((0, 2), (5, 0)):
        reader.hear(*map(Said.of, producer.partition(number, count) or []))
        for _ in range(count):
            reader.hear(*map(Said.of, producer.send(material.item(1, region))))
    taken = []
    for _ in range(2):
        assert protocol.partitions.current == 0
        protocol.deliver(0, 0, until_delivered=False)
        taken += [each for each in protocol.to_send()[0] if each.tag == Control.TAKEN]
    assert [b"".join(each.pieces) for each in taken] == [pack_taken([0, 5])]
    assert producer.receive(Control.TAKEN, pack_taken([0, 5])) == Taken([0, 5])
    assert (protocol.partitions.last_taken, protocol.partitions.current) == (5, 6)
    reader.hear(*map(Said.of, producer.partition(6, 0) or []), *map(Said.of, producer.end()))
    assert protocol.partitions.current is None
    assert sum(event is Signal.PARTITION for event in reader.events) == 3
    assert reader.events[-1] is Signal.END


WRONG: dict[str, tuple[str, Callable[[Material, list[Said]], list[Said]]]] = {
    # Of a stream of partitions 1 and 2 with a batch each: schema, mark, metadata, body, mark, metadata, body, end.
    "a batch before its partition": ("belongs to no", lambda _, said: [said[0], *said[2:]]),
    "a dictionary behind the last batch": (
        "belongs to no",
        lambda material, said: [
            *said[:4],
            *(
                Said(each.tag, each.body[:1] + b"\2" + each.body[2:])
                if each.tag is None
                else Said(2, each.body)
                for each in material.stream([material.item(1, dictionary=True)])[1:3]
            ),
        ],
    ),
    "more batches than said": ("belongs to no", lambda _, said: [*said[:4], *said[5:]]),
    "fewer batches than said": (
        "before the one before it is complete",
        lambda _, said: [said[0], mark(1, 2, 1), *said[2:]],
    ),
    "another order": (
        "another order",
        lambda _, said: [said[0], mark(2, 1, 1), *said[2:]],
    ),
    "a partition that nobody asked for": (
        "another order",
        lambda _, said: [*said[:7], mark(3, 0, 3), said[7]],
    ),
    "a mark before the last body": (
        "before the one before it is complete",
        lambda _, said: [*said[:3], said[4], said[3], *said[5:]],
    ),
    "a mark of another message": (
        "before the one before it is complete",
        lambda _, said: [said[0], mark(1, 1, 2), *said[2:]],
    ),
    "an end within a partition": (
        "ends before its partitions",
        lambda _, said: [said[0], mark(1, 2, 1), *said[2:4], Said(None, bytes.fromhex("0002000000"))],
    ),
    "an end before the last partition": (
        "ends before its partitions",
        lambda _, said: [*said[:4], Said(None, bytes.fromhex("0002000000"))],
    ),
    "half a mark": ("length", lambda _, said: [said[0], Said(Control.PARTITION, said[1].body[:-1])]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_server_that_miscounts_is_refused(material: Material, what: str) -> None:
    """A stream whose partitions are not what was asked for and announced is an error, and is never complete."""
    message, wrong = WRONG[what]
    plain = material.batches(2)
    right = [plain[0], mark(1, 1, 1), *plain[1:3], mark(2, 1, 2), *plain[3:]]
    reader = listener([1, 2])
    reader.hear(*right)
    assert reader.ends == 1
    reader = listener([1, 2])
    with pytest.raises(ProtocolError, match=message):
        reader.hear(*wrong(material, right))
    assert reader.ends == 0


def test_partitions_come_only_to_those_that_asked(material: Material) -> None:
    """A mark in the stream of one data set is an error."""
    reader = listener(None)
    reader.hear(material.batches(0)[0])
    with pytest.raises(ProtocolError, match="asked for none"):
        reader.hear(mark(0, 0, 1))


def test_marks_may_come_behind_the_end(material: Material) -> None:
    """Where messages have no common order, the end may come before marks of empty partitions: it waits for them."""
    plain = material.batches(1)
    reader = listener([1, 2, 3])
    reader.protocol = type(reader.protocol)(
        DEFAULT_LIMITS, one_connection=True, ordered=False, partitions=[1, 2, 3]
    )
    reader.hear(Said(Control.WELCOME, Welcome(charged=False, path="", why="").pack()))
    reader.hear(plain[0], mark(1, 1, 1), *plain[1:], mark(2, 0, 2))
    assert reader.ends == 0
    reader.hear(mark(3, 0, 2))
    assert reader.ends == 1
    assert reader.protocol.quiet
