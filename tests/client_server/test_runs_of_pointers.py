"""Batches over a producer's memory that are made many at a time: the same as if they came one by one."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.client.connection import Connection
from bowstring.columnar import placed
from bowstring.columnar.parts import batch_parts
from bowstring.dissociated.tags import Want
from bowstring.dissociated.wire import PREFIX_BYTES
from bowstring.memory import Pool
from bowstring.transport import Message
from tests.client_server.conftest import PATIENCE, come_home
from tests.client_server.test_runs import KINDS, numbers, outcome
from tests.ipc.null_counts import without_nulls
from tests.peer.raw import RawServer, close_messages, recorded
from tests.peer.wire import END_OF_STREAM

COUNT = 24


class Streams(dict[str, list[Message]]):
    """Recorded streams, by kind; shown in short, or Hypothesis warns of the length and hides what it has found."""

    def __repr__(self) -> str:
        return f"<streams of {', '.join(self)}>"


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many messages were taken together each time."""
    found: list[int] = []
    take = Connection.take_pairs

    def counted(self: Connection, held: Any) -> int:
        found.append(take(self, held))
        return found[-1]

    monkeypatch.setattr(Connection, "take_pairs", counted)
    return found


@pytest.fixture(scope="module")
def streams() -> Iterator[Streams]:
    """Return recorded streams of batches that look alike."""
    kinds = Streams()
    with bow.Server("unix:", limits=PATIENCE) as server:
        for kind, make in KINDS.items():
            kinds[kind] = recorded(server.publish(kind, pa.Table.from_batches([make(20, 1)] * COUNT)))
    yield kinds
    for messages in kinds.values():
        close_messages(messages)


@pytest.fixture(params=["unix:", "inproc:"])
def server(request: pytest.FixtureRequest) -> Iterator[bow.Server]:
    """Return a server whose memory its readers see."""
    with bow.Server(request.param, limits=PATIENCE) as made:
        yield made


def replayed(messages: Sequence[Message], *, hang_up: bool = True) -> tuple[list[Any], str, list[int]]:
    """Return the values that a reader of some messages was given, how its stream ended, and what it freed."""
    with RawServer("unix:", messages, hang_up=hang_up, at_once=True) as server:
        values, end = outcome(server.uri)
    freed = [struct.iter_unpack("<Q", body) for tag, body in server.heard if tag == Want.FREE]
    return values, end, sorted(address for addresses in freed for (address,) in addresses)


def one_by_one(messages: Sequence[Message], *, hang_up: bool = True) -> tuple[list[Any], str, list[int]]:
    """Return the same for a reader that makes each batch by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "take_pairs", lambda *_: 0)
        return replayed(messages, hang_up=hang_up)


def changed(message: Message, body: bytes) -> Message:
    """Return a message with another body."""
    return Message(message.tag, [body], message.attachments)


def body_of(message: Message) -> bytes:
    """Return the body of a recorded message."""
    return bytes(message.pieces[0])


@pytest.mark.parametrize("rows", [7, 64, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_values(server: bow.Server, taken: list[int], kind: str, rows: int) -> None:
    """Many batches that look alike, and the last that does not, arrive with their values, and are given back."""
    batches = [KINDS[kind](rows, seed) for seed in range(200)] + [KINDS[kind](3, 99)]
    with bow.connect(server.publish("t", pa.Table.from_batches(batches)), limits=PATIENCE) as stream:
        found = list(stream)
        assert stream.stats.path.endswith(": mapped")
        assert stream.stats.nbytes == sum(each.nbytes for each in found)
    for index, expected in enumerate(batches):
        found[index].validate(full=True)
        assert found[index].to_arrow().equals(expected)
    if kind in ("numbers", "dictionaries"):
        assert sum(taken) >= 200
    found.clear()
    server.withdraw("t")
    server.wait_released("t", 10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_is_freed(streams: dict[str, list[Message]], taken: list[int], kind: str) -> None:
    """A stream of batches made together gives the same values and frees the same addresses as one by one."""
    together = replayed(streams[kind], hang_up=False)
    assert together == one_by_one(streams[kind], hang_up=False)
    assert together[1] == "the end"
    assert together[2]
    assert max(taken) > 4


@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(["flip", "cut", "drop", "double", "swap", "tag", "nothing"]),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20),
    st.integers(1, 255),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_faults(
    streams: dict[str, list[Message]], kind: str, fault: str, where: int, at: int, bits: int
) -> None:
    """A stream with a fault anywhere gives the same batches, and ends in the same way, as made one by one."""
    said = list(streams[kind])
    index = len(said) - 1 - 2 * COUNT + where % (2 * COUNT)
    body = bytearray(body_of(said[index]))
    match fault:
        case "flip":
            body[at % len(body)] ^= bits
            said[index] = changed(said[index], bytes(body))
        case "cut":
            said[index] = changed(said[index], bytes(body[: at % len(body)]))
        case "drop":
            del said[index]
        case "double":
            said.insert(index, said[index])
        case "swap":
            said[index : index + 2] = said[index + 1], said[index]
        case "tag":
            tag = said[index].tag
            said[index] = Message(None if tag is None else tag ^ (1 << bits % 64), said[index].pieces)
    assert replayed(said)[:2] == one_by_one(said)[:2]


@pytest.mark.parametrize("kind", ["numbers", "words", "views"])
@pytest.mark.parametrize(
    ("which", "every"), [("metadata", 29), pytest.param("metadata", 5, marks=pytest.mark.slow), ("body", 1)]
)
def test_a_fault_in_each_place(
    streams: dict[str, list[Message]], taken: list[int], kind: str, which: str, every: int
) -> None:
    """Wherever metadata or pointers of one batch of many are wrong, it is judged as if it had come by itself."""
    said = streams[kind]
    index = len(said) - 1 - 8 + (which == "body")
    body = body_of(said[index])
    judged = set()
    for place in range(0, len(body), every):
        flipped = bytearray(body)
        flipped[place] ^= 0x40
        wrong = [*said[:index], changed(said[index], bytes(flipped)), *said[index + 1 :]]
        together = replayed(wrong)
        assert one_by_one(wrong)[:2] == together[:2], place
        judged.add(together[1])
    assert len(judged) > 1
    if kind == "words" and which == "body":  # pointers to other bytes of the region, where offsets should be
        assert any(end.startswith("InvalidBody") for end in judged)
    assert max(taken) > 4


def test_regions_of_their_own(server: bow.Server, taken: list[int]) -> None:
    """Batches in several regions are made together, and each keeps only its own from being used again."""
    pool = Pool()
    apart = [placed(bow.Batch.from_arrow(numbers(1000, seed)), pool.allocator()) for seed in range(9)]
    batches = [apart[index % 9] for index in range(90)]
    with bow.connect(server.publish("t", batches), limits=PATIENCE) as stream:
        found = list(stream)
    assert max(taken) > 4
    assert {len(batch_parts(each).spans.regions) for each in found} == {1}
    assert len({id(batch_parts(each).spans.regions[0]) for each in found}) == 9
    for index, batch in enumerate(batches):
        assert found[index].equals(batch)
    del batch, batches, apart
    found.clear()
    server.withdraw("t")
    server.wait_released("t", 10)
    come_home(pool)


def test_each_batch_by_itself(server: bow.Server, taken: list[int]) -> None:
    """Batches of one run end one by one: what was released tells its producer so, and the others stay true."""
    rows = [numbers(1000, seed) for seed in range(100)]
    with bow.connect(server.publish("t", pa.Table.from_batches(rows)), limits=PATIENCE) as stream:
        kept = [batch for index, batch in enumerate(stream) if index % 13 == 5]
    assert max(taken) > 4
    kept[0].release()
    with pytest.raises(bow.ClosedError):
        kept[0].to_arrow()
    assert [each.to_arrow() for each in kept[1:]] == [rows[index] for index in range(18, 100, 13)]
    kept.clear()
    server.withdraw("t")
    server.wait_released("t", 10)


def test_credit(server: bow.Server, taken: list[int]) -> None:
    """Batches produced for one reader cost credit until they end, whether they were made together or not."""
    small = PATIENCE.replace(window_bytes=400_000)
    endpoint = server.publish("t", (numbers(1000, seed) for seed in range(300)))
    with bow.connect(endpoint, limits=small) as stream:
        assert [batch.num_rows for batch in stream] == [1000] * 300
        assert stream.stats.nbytes == 300 * 12_000


@pytest.mark.parametrize("kind", ["words", "dictionaries", "views"])
def test_bitmaps_without_a_meaning(streams: dict[str, list[Message]], taken: list[int], kind: str) -> None:
    """A bitmap that a producer sends with a null count of 0 makes no nulls, of batches together and one by one,
    and what it lies in is given back.
    """
    said = [
        changed(message, body_of(message)[:PREFIX_BYTES] + without_nulls(body_of(message)[PREFIX_BYTES:]))
        if message.tag is None and body_of(message)[:1] != bytes([END_OF_STREAM])
        else message
        for message in streams[kind]
    ]
    together, alone = replayed(said, hang_up=False), one_by_one(said, hang_up=False)
    assert together == alone
    assert max(taken) > 4
    assert together[1] == "the end"
    assert together[2] == replayed(streams[kind], hang_up=False)[2]
    assert "None" not in str(together[0])
