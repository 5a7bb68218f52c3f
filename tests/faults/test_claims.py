"""Producers that claim more than they send: memory is taken as bytes arrive, within the credit that was given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool
from bowstring.transport import Message
from tests.faults.conftest import LIMITS, WAIT
from tests.faults.tables import batch_of, number_of
from tests.peer.raw import RawServer, recorded

MIB = 1 << 20
GIB = 1 << 30

# A process of its own, whose memory is that of the reader alone.
READER = """
import resource, sys
import bowstring as bow
from bowstring.memory import Pool

def most_resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

limits = bow.Limits(stall_timeout=float(sys.argv[2]), heartbeat=0.1, close_timeout=1.0)
pool = Pool(budget=4 << 30)
before = most_resident()
try:
    with bow.connect(sys.argv[1], options=bow.ConnectOptions(pool=pool), limits=limits) as stream:
        stream.read_next_batch()
except bow.BowstringError as error:
    print(most_resident() - before, type(error).__name__)
"""


def taken_by(uri: str, stall_timeout: float = 1.0) -> tuple[int, str]:
    """Return by how many bytes the memory of a reader grew before its stream failed, and how it failed."""
    command = [sys.executable, "-c", READER, uri, str(stall_timeout)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * WAIT, check=True)
    grown, name = done.stdout.split()
    return int(grown), name


@pytest.fixture
def packed(serve: Callable[..., bow.Server]) -> list[Message]:
    """Return the messages of a stream of packed bodies: welcome, schema, then metadata and body in turns."""
    table = pa.Table.from_batches([batch_of(number, 100_000) for number in range(8)])
    return recorded(serve("tcp://127.0.0.1:0").publish("t", table))


def is_body(message: Message) -> bool:
    """Whether a recorded message is a packed body."""
    return message.tag is not None and message.tag >> 56 == 0


@pytest.mark.parametrize("arrived", [1000, 20 * MIB], ids=["nearly nothing", "20 MiB"])
def test_a_body_takes_memory_as_it_arrives(packed: list[Message], arrived: int) -> None:
    """A body of 2 GiB of which little ever comes takes little more than that, in large pages too."""
    first = next(index for index, each in enumerate(packed) if is_body(each))
    tag = packed[first].tag
    with RawServer("tcp://127.0.0.1:0", packed[:first], claim=(tag, 2 * GIB, arrived)) as server:
        grown, name = taken_by(server.uri)
    assert name == "DeadlineExceeded"
    assert grown < 2 * arrived + 64 * MIB


@pytest.mark.parametrize("tag", [None, 1 << 56 | 1], ids=["metadata", "pointers"])
def test_metadata_take_memory_as_they_arrive(packed: list[Message], tag: int | None) -> None:
    """Metadata and bodies of pointers may be long, and take memory only when they come."""
    with RawServer("tcp://127.0.0.1:0", packed[:2], claim=(tag, 64 * MIB, 1000)) as server:
        grown, name = taken_by(server.uri)
    assert name == "DeadlineExceeded"
    assert grown < 48 * MIB


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "together"])
def test_bodies_beyond_the_credit_are_refused(packed: list[Message], *, at_once: bool) -> None:
    """Packed bodies that the reader gave no credit for end the stream; those before them are delivered."""
    nbytes = next(each.nbytes for each in packed if is_body(each))
    pool = Pool(budget=64 * MIB)
    limits = LIMITS.replace(window_bytes=2 * nbytes)
    server = RawServer("tcp://127.0.0.1:0", packed, at_once=at_once)
    with server, bow.connect(server.uri, options=bow.ConnectOptions(pool=pool), limits=limits) as stream:
        server.wait()  # for the reader, who hangs up
        numbers: list[int] = []
        with pytest.raises(bow.ProtocolError, match="credit"):
            numbers.extend(number_of(batch) for batch in stream)
        assert numbers == [0, 1]


def test_one_body_alone_may_be_larger_than_the_credit(serve: Callable[..., bow.Server]) -> None:
    """A batch that is larger than all the credit is read, by itself."""

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            yield batch_of(number, 100_000)

    endpoint = serve("tcp://127.0.0.1:0").publish("t", batches)
    with bow.connect(endpoint, limits=LIMITS.replace(window_bytes=1000)) as stream:
        assert [number_of(batch) for batch in stream] == list(range(5))


def test_lean_batches_are_within_the_credit(serve: Callable[..., bow.Server]) -> None:
    """Batches that are mostly padding cost what their buffers do, on both sides."""
    columns = {f"c{number}": pa.array([1], pa.int8()) for number in range(200)}
    table = pa.concat_tables([pa.table(columns)] * 300)
    server = serve("tcp://127.0.0.1:0")
    for separate in (False, True):
        endpoint = server.publish(f"t{separate}", table, separate=separate)
        with bow.connect(endpoint, limits=LIMITS.replace(window_bytes=700)) as stream:
            assert stream.read_all().equals(table)
