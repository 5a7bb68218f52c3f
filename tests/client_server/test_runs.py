"""Small batches over TCP that come many at a time: the same as if they came one by one, whatever comes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.client.connection import Connection, connection
from bowstring.client.connection.wire import Run, Wire
from bowstring.columnar.batch import Batch
from bowstring.dissociated.producer import ProducerProtocol
from bowstring.dissociated.tags import Control, Want
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Pool, default_pool
from bowstring.server.materialized import MaterializedSource
from bowstring.server.session import Session
from bowstring.transport import Message, dial, sockets
from bowstring.transport.framing import gathered
from bowstring.transport.tcp import TcpChannel
from tests.client_server.conftest import PATIENCE, come_home
from tests.peer.raw import RawReader
from tests.peer.wire import END_OF_STREAM, METADATA, Frame, parts_of, prefix
from tests.transport.kit import in_thread
from tests.transport.kit.harness import let_it_wait

WAIT = 10.0


def numbers(rows: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    return pa.record_batch({"a": rng.random(rows), "b": rng.integers(0, 9, rows, np.int32)})


def words(rows: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    text = ["x" * int(size) for size in rng.integers(0, 9, rows)]
    return pa.record_batch({"s": [*text[:-1], None], "l": [[seed] * (row % 3) for row in range(rows)]})


def dictionaries(rows: int, seed: int) -> pa.RecordBatch:
    values = pa.array(["u", "v", "w"])
    indices = pa.array(np.random.default_rng(seed).integers(0, 3, rows, np.int8))
    return pa.record_batch({"d": pa.DictionaryArray.from_arrays(indices, values)})


def views(rows: int, seed: int) -> pa.RecordBatch:
    text = [f"{seed} is longer than twelve" if row % 2 else "short" for row in range(rows)]
    return pa.record_batch({"v": pa.array(text, pa.string_view())})


def ends(rows: int, seed: int) -> pa.RecordBatch:
    found = pa.RunEndEncodedArray.from_arrays(pa.array([rows // 2, rows], pa.int32()), pa.array([seed, None]))
    return pa.record_batch({"e": found})


KINDS: dict[str, Callable[[int, int], pa.RecordBatch]] = {
    "numbers": numbers,
    "words": words,
    "dictionaries": dictionaries,
    "views": views,
    "ends": ends,
}


def frames(table: pa.Table) -> list[bytes]:
    """Return what a server says that knows only the specification, message by message."""
    protocol = ProducerProtocol(DEFAULT_LIMITS)
    protocol.receive(Want.DATA, b"t")
    source = MaterializedSource(table.schema, [Batch.from_arrow(each) for each in table.to_batches()], Pool())
    outgoing = []
    for item in source.items(None, pointers=False, make_room=lambda _: False):
        outgoing += protocol.send(item)
    outgoing += protocol.end()
    bodies = [b"".join(bytes(piece) for piece in each.pieces) for each in outgoing]
    return [Frame.of(each.tag, body).data for each, body in zip(outgoing, bodies, strict=True)]


def arrow_frames(table: pa.Table, **options: Any) -> bytes:
    """Return what a server says that takes its messages from pyarrow; no dictionaries."""
    said: list[tuple[int | None, bytes]] = []
    for number, (metadata, body) in enumerate(parts_of(table, options)):
        said.append((None, prefix(METADATA, number) + metadata))
        said += [] if body is None else [(number, body)]
    said.append((None, prefix(END_OF_STREAM, number + 1)))
    return b"".join(Frame.of(tag, body).data for tag, body in said)


class Says:
    """A server that says the same bytes, all at once, to each reader that asks, and hangs up."""

    def __init__(self) -> None:
        self.bytes = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.uri = f"tcp://127.0.0.1:{port}?want_data={int(Want.DATA)}&free_data={int(Want.FREE)}&ticket=dA"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(6 * WAIT)  # for all of it, while a busy reader looks at each batch
                try:
                    peer.recv(1000)
                    peer.sendall(self.bytes)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(1000):
                        pass
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT)


@pytest.fixture
def says() -> Iterator[Says]:
    """Return a server whose bytes a test can set."""
    server = Says()
    yield server
    server.close()


def outcome(uri: str) -> tuple[list[Any], str]:
    """Return the values of all batches that a reader was given, and how the stream ended."""
    found: list[Any] = []
    try:
        with bow.connect(uri, limits=PATIENCE) as stream:
            for batch in stream:
                batch.validate(full=True)
                found.append(batch.to_arrow().to_pylist())
    except bow.BowstringError as error:
        # A message of ours that meets a peer that has hung up may find that out first.
        is_lost = isinstance(error, bow.BrokenError) and "the connection is lost (" in error.what
        return found, f"{type(error).__name__}: {'the peer closed the connection' if is_lost else error.what}"
    return found, "the end"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of how many batches each run had."""
    found: list[int] = []
    receive = Wire.receive_run

    def counted(self: Wire, idle: float) -> Run | None:
        run = receive(self, idle)
        if run is not None:
            found.append(len(run.tags))
        return run

    monkeypatch.setattr(Wire, "receive_run", counted)
    return found


@pytest.mark.parametrize("rows", [7, 64, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_values(says: Says, runs: list[int], kind: str, rows: int) -> None:
    """Many batches that look alike, and the last that does not, arrive with their values."""
    batches = [KINDS[kind](rows, seed) for seed in range(40)] + [KINDS[kind](3, 99)]
    says.bytes = b"".join(frames(pa.Table.from_batches(batches)))
    assert outcome(says.uri) == ([each.to_pylist() for each in batches], "the end")
    if kind == "numbers":
        assert sum(runs) >= 30
        assert max(runs) > 2


FAULTY = {kind: frames(pa.Table.from_batches([KINDS[kind](20, 1)] * 90)) for kind in KINDS}


@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(["flip", "cut", "drop", "double", "swap", "nothing"]),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20),
    st.integers(0, 255),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_faults(says: Says, kind: str, fault: str, where: int, at: int, bits: int) -> None:
    """A stream with a fault anywhere gives the same batches, and ends in the same way, as read one by one."""
    said = list(FAULTY[kind])
    # Where the batches that look alike are.
    index = len(said) - 42 + where % 40
    match fault:
        case "flip":
            changed = bytearray(said[index])
            # Mostly in what stands in front of values.
            changed[at % min(len(changed), 400)] ^= bits
            said[index] = bytes(changed)
        case "cut":
            said[index:] = [said[index][: at % len(said[index])]]
        case "drop":
            del said[index]
        case "double":
            said.insert(index, said[index])
        case "swap":
            said[index : index + 2] = said[index + 1], said[index]
    says.bytes = b"".join(said)
    together = outcome(says.uri)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TcpChannel, "takes_rows", False)
        assert outcome(says.uri) == together


LARGE = numbers(200_000, 7)


@pytest.mark.parametrize(
    ("last", "there"),
    [
        (numbers(1000, 39), 24 + 20),
        (numbers(1000, 39), 24 + 300),
        (numbers(1000, 39), -100),
        (LARGE, 24 + 20),
        (LARGE, -100),
    ],
    ids=["metadata", "all metadata", "body", "other metadata", "other body"],
)
def test_nobody_waits_for_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, last: pa.RecordBatch, there: int
) -> None:
    """Batches that are there can be had at once, wherever what comes next stops, and the rest of it later."""
    monkeypatch.setattr(connection, "_LOOK", 3 * WAIT)  # who is not told does not look by himself
    said = frames(pa.Table.from_batches([*(numbers(1000, seed) for seed in range(39)), last]))
    before = b"".join(said[:-3])
    rest = b"".join(said[-3:])
    cut = len(before) + (there if there > 0 else len(said[-3]) + len(said[-2]) + there)
    whole = before + rest
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        uri = f"tcp://127.0.0.1:{port}?want_data={int(Want.DATA)}&free_data={int(Want.FREE)}&ticket=dA"
        opening = in_thread(lambda: bow.connect(uri, limits=PATIENCE))
        peer, _ = listener.accept()
        with peer:
            peer.sendall(whole[:cut])
            with opening.result() as stream:
                found = in_thread(lambda: [next(stream).num_rows for _ in range(39)])
                assert found.result(WAIT / 2) == [1000] * 39
                peer.sendall(whole[cut:])
                assert next(stream).num_rows == last.num_rows
                with pytest.raises(StopIteration):
                    next(stream)


def test_pointers_that_come_together_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches over mapped memory that are taken together are the user's at once, though more is to come."""
    monkeypatch.setattr(connection, "_LOOK", 3 * WAIT)
    silent = PATIENCE.replace(heartbeat=3 * WAIT)  # and nobody asks him whether he is there
    together: list[int] = []
    held: list[Any] = []
    take, send = Connection.take_pairs, Session._send
    waits, over, holding = threading.Event(), threading.Event(), threading.Event()

    def grouped(self: Session, outgoing: Any) -> Any:
        held.extend(outgoing)  # what is produced lazily goes one by one
        if holding.is_set() and len(held) < 40:
            return []
        said, held[:] = [*held], []
        return send(self, said)

    def noted(self: Connection, messages: Any) -> int:
        together.append(take(self, messages))
        return together[-1]

    def produced() -> Iterator[pa.RecordBatch]:
        for seed in range(24):
            if seed == 4:
                waits.wait(WAIT)
                holding.set()
            yield numbers(100, seed)
        holding.clear()
        over.wait(WAIT)

    monkeypatch.setattr(Session, "_send", grouped)
    monkeypatch.setattr(Connection, "take_pairs", noted)
    with bow.Server("unix:", limits=silent) as server:
        endpoint = server.publish("t", produced(), schema=numbers(1, 1).schema)
        with bow.connect(endpoint, limits=silent) as stream:
            found = in_thread(lambda: [next(stream).num_rows for _ in range(24)])
            let_it_wait(found)
            waits.set()
            assert found.result(WAIT / 2) == [100] * 24
            assert max(together) > 4
            over.set()


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "which"), [("numbers", "metadata"), ("words", "body"), ("ends", "body")])
def test_a_fault_in_each_place(says: Says, runs: list[int], kind: str, which: str, every: int) -> None:
    """Wherever metadata or offsets of one batch of many are wrong, it is judged as if it had come by itself."""
    said = FAULTY[kind]
    index = len(said) - 9 + (which == "body")
    header = 24 + 5 * (which == "metadata")
    # Of offsets in a body, the byte that makes them too large.
    places = (
        range(header, len(said[index])) if which == "metadata" else range(header + 3, len(said[index]), 4)
    )
    judged = set()
    for place in places[::every]:
        changed = bytearray(said[index])
        changed[place] ^= 0x40
        says.bytes = b"".join((*said[:index], bytes(changed), *said[index + 1 :]))
        together = outcome(says.uri)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TcpChannel, "takes_rows", False)
            assert outcome(says.uri) == together, place
        judged.add(together[1])
    assert len(judged) > 1
    assert max(runs) > 2


def test_bodies_of_any_length_are_aligned(says: Says) -> None:
    """Batches of a server that pads to 8 bytes lie at multiples of 64, as if they came one by one."""
    table = pa.Table.from_batches([pa.record_batch({"a": pa.array([1, 2, 3], pa.int32())})] * 30)
    says.bytes = arrow_frames(table)
    with bow.connect(says.uri, limits=PATIENCE) as stream:
        batches = list(stream)
    assert [batch["a"].values.tolist() for batch in batches] == [[1, 2, 3]] * 30
    assert {batch["a"].values.ctypes.data % 64 for batch in batches} == {0}
    batches.clear()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_bodies(says: Says, runs: list[int], codec: str) -> None:
    """Compressed bodies that come many at a time are decompressed, though they are as long as plain ones."""
    values = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, 200)
    table = pa.table({"a": values})
    rows = next(rows for rows in range(200, 1, -1) if _body_of(table[:rows], codec) % 64 == 0)
    batches = table[:rows].to_batches() * 30
    says.bytes = arrow_frames(pa.Table.from_batches(batches), compression=codec)
    assert outcome(says.uri) == ([each.to_pylist() for each in batches], "the end")
    assert max(runs) > 2


def _body_of(table: pa.Table, codec: str) -> int:
    return len(parts_of(table, {"compression": codec})[1][1] or b"")


def test_each_batch_by_itself(says: Says, runs: list[int]) -> None:
    """Batches of one run end one by one: what is kept stays true when the others are gone and memory is used."""
    batches = [numbers(1000, seed) for seed in range(40)]
    says.bytes = b"".join(frames(pa.Table.from_batches(batches)))
    with bow.connect(says.uri, limits=PATIENCE) as stream:
        kept = [batch for index, batch in enumerate(stream) if index % 13 == 5]
    assert max(runs) > 2
    kept[0].release()
    for _ in range(3):
        assert outcome(says.uri)[1] == "the end"
    assert [each.to_arrow().to_pylist() for each in kept[1:]] == [
        batches[5 + 13].to_pylist(),
        batches[31].to_pylist(),
    ]
    with pytest.raises(bow.ClosedError):
        kept[0].to_arrow()
    kept.clear()


def test_no_room(says: Says, runs: list[int]) -> None:
    """A reader whose memory is short takes batch by batch, as its user lets them go."""
    batches = [numbers(2000, seed) for seed in range(200)]
    says.bytes = b"".join(frames(pa.Table.from_batches(batches)))
    pool = Pool(budget=2 << 20)
    with bow.connect(says.uri, options=bow.ConnectOptions(pool=pool), limits=PATIENCE) as stream:
        for expected in batches:
            assert next(stream).to_arrow().equals(expected)
        with pytest.raises(StopIteration):
            next(stream)
    assert max(runs) > 2
    pool.close()


def test_batches_that_seldom_look_alike(says: Says, runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what was foreseen does not come, again and again, no more is foreseen, and little is copied."""
    copied: list[int] = []
    put_back = TcpChannel._put_back

    def counted(self: TcpChannel, begun: bytes) -> None:
        copied.append(len(begun))
        put_back(self, begun)

    monkeypatch.setattr(TcpChannel, "_put_back", counted)
    batches = [numbers(1000 if index % 5 else 2000, index) for index in range(1000)]
    said = frames(pa.Table.from_batches(batches))
    says.bytes = b"".join(said)
    assert outcome(says.uri) == ([each.to_pylist() for each in batches], "the end")
    assert runs
    assert sum(copied) < len(says.bytes) // 2
    assert sum(nbytes > 10_000 for nbytes in copied) < 10


def test_closed_in_the_middle(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that comes when the stream was closed keeps no memory, though somebody still has the stream."""
    says.bytes = b"".join(frames(pa.Table.from_batches([numbers(1000, seed) for seed in range(40)])))
    closed, late = threading.Event(), threading.Event()
    receive = Wire.receive_run

    def delayed(self: Wire, idle: float) -> Run | None:
        run = receive(self, idle)
        if run is not None and len(run.tags) > 2:
            late.set()
            closed.wait(WAIT)
        return run

    monkeypatch.setattr(Wire, "receive_run", delayed)
    pool = Pool(budget=16 << 20)
    stream = bow.connect(says.uri, options=bow.ConnectOptions(pool=pool), limits=PATIENCE)
    assert late.wait(WAIT)
    stream.close()
    closed.set()
    come_home(pool)
    with pytest.raises(bow.ClosedError):
        next(stream)


def test_a_run_is_heard(says: Says) -> None:
    """A peer of whom many messages come at once has not gone silent."""
    said = frames(pa.Table.from_batches([numbers(1000, seed) for seed in range(40)]))
    says.bytes = b"".join(said)
    with dial(says.uri.partition("?")[0], PATIENCE, WAIT) as channel:
        channel.send([Message(int(Want.DATA), [b"t"])], WAIT)
        wire = Wire(channel, Pool(budget=16 << 20))
        came = runs = 0
        while came < len(said):
            wire.heard = 0.0
            run = wire.receive_run(WAIT)
            came += 2 * len(run.tags) if run is not None else wire.receive(WAIT) is not None
            runs += run is not None
            assert wire.heard > 0.0
        assert runs
        wire.end()


def test_what_is_counted(server: bow.Server) -> None:
    """Statistics and credit are those of the batches, together or one by one."""
    batches = [numbers(1000, seed) for seed in range(300)]
    small = PATIENCE.replace(window_bytes=100_000)
    with bow.connect(server.publish("t", pa.Table.from_batches(batches)), limits=small) as stream:
        assert sum(batch.num_rows for batch in stream) == 300_000
        assert (stream.stats.batches, stream.stats.rows) == (300, 300_000)
        assert stream.stats.nbytes == 300 * 12_000


@pytest.mark.parametrize("rows", [16, 8000, 400_000])
def test_what_is_sent_at_once(server: bow.Server, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Small batches are sent many at a time, up to 64 or about 1 MiB; a larger one goes alone."""
    batch = numbers(rows, 1)
    count = max(4, (12 << 20) // batch.nbytes) if rows > 16 else 300
    calls: list[int] = []

    def counted(messages: Any, check: Any) -> Any:
        runs = gathered(messages, check)
        bodies = (sum(len(view) == batch.nbytes for view in run.views) for run in runs)
        calls.extend(filter(None, bodies))
        return runs

    monkeypatch.setattr(sockets, "gathered", counted)
    endpoint = server.publish("t", pa.Table.from_batches([batch] * count))
    with bow.connect(endpoint, limits=PATIENCE) as stream:
        assert sum(each.num_rows for each in stream) == rows * count
    assert sum(calls) == count
    # Few at first, for whoever waits.
    most = min(64, -(-(1 << 20) // batch.nbytes))
    assert calls[0] <= 4
    assert max(calls) == most


def test_a_reader_that_stops_inside_a_run_hears_no_more_of_it(server: bow.Server) -> None:
    """Of batches that wait for credit nothing more is said to a reader that stops, but that it was heard."""
    batches = [pa.record_batch({"a": np.arange(rows, dtype=np.int64)}) for rows in (100, 100, 30, 30, 30)]
    endpoint = server.publish("t", pa.Table.from_batches(batches))
    with RawReader(endpoint) as reader:
        reader.hello(window=1000)
        reader.want()
        while reader.hear().tag != Control.BLOCKED:
            pass
        assert [each.tag for each in reader.heard if each.tag is not None and each.tag >> 56 == 0] == [1]
        reader.say(Control.STOP)
        assert reader.hear().tag == Control.STOPPED


@pytest.fixture
def server() -> Iterator[bow.Server]:
    """Return a server on TCP."""
    with bow.Server("tcp://127.0.0.1:0", limits=PATIENCE) as made:
        yield made
    default_pool().trim()
