"""Streams have no threads: who reads receives for itself, and the loop of the process does while nobody reads."""

from __future__ import annotations

import _thread
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import bowstring as bow
from tests.faults.interrupting import Interrupter, interrupted

WAIT = 20.0
QUICK = bow.Limits(heartbeat=0.1, lease_timeout=0.4, connect_timeout=WAIT, reply_timeout=WAIT)
BATCHES = [pa.record_batch({"a": list(range(n, n + 40)), "s": [f"{n}"] * 40}) for n in range(60)]

_MANY = """
import sys, threading
import bowstring as bow

before = threading.active_count()
streams = [bow.connect(sys.argv[1]) for _ in range(60)]
batches = [next(stream) for stream in streams]
print(threading.active_count() - before)
"""


def lazy(pause: float = 0.0) -> Callable[[], Iterator[pa.RecordBatch]]:
    """Return what makes the batches one by one."""

    def make() -> Iterator[pa.RecordBatch]:
        for batch in BATCHES:
            time.sleep(pause)
            yield batch

    return make


@pytest.mark.parametrize(("address", "most"), [("unix:", 1), ("tcp://127.0.0.1:0", 12)], ids=["unix", "tcp"])
@pytest.mark.parametrize("data", ["resident", "lazy"])
def test_many_streams_share_a_thread(
    serve: Callable[..., bow.Server], address: str, data: str, most: int
) -> None:
    """A process that reads from many streams has one thread more, and a few that take bodies of idle ones."""
    endpoint = serve(address).publish("t", BATCHES if data == "resident" else lazy(), readers=None)
    done = subprocess.run(
        [sys.executable, "-c", _MANY, str(endpoint)], capture_output=True, text=True, timeout=3 * WAIT
    )
    assert int(done.stdout) <= most, done.stderr


def test_a_reader_that_pauses_is_answered_for(server: bow.Server) -> None:
    """Caller and loop take turns at a stream whose reader pauses, for longer than its lease too: all comes once."""
    endpoint = server.publish("t", lazy(0.002))
    with bow.connect(endpoint, limits=QUICK) as stream:
        seen = []
        for number in itertools.count():
            try:
                seen.append(stream.read_next_batch().to_arrow())
            except bow.EndOfStream:
                break
            if number % 15 == 3:
                time.sleep(0.25)
    assert pa.Table.from_batches(seen).equals(pa.Table.from_batches(BATCHES))


def test_threads_share_a_stream(server: bow.Server) -> None:
    """Of threads that read one stream one receives at a time, each batch goes to one, and all see the end."""
    endpoint = server.publish("t", lazy(0.001))
    taken: list[list[int]] = [[] for _ in range(6)]
    with bow.connect(endpoint) as stream:

        def read(mine: list[int]) -> None:
            mine += [batch["a"].to_numpy()[0].item() for batch in stream]

        threads = [threading.Thread(target=read, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    assert sorted(itertools.chain(*taken)) == list(range(60))


def test_closed_while_another_thread_waits(server: bow.Server) -> None:
    """A thread that waits for a batch learns that another one closed the stream, long before it gives up."""
    go_on = threading.Event()

    def make() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        go_on.wait(WAIT)

    with bow.connect(server.publish("t", make, schema=BATCHES[0].schema)) as stream:
        stream.read_next_batch()
        timer = threading.Timer(0.1, stream.close)
        timer.start()
        with pytest.raises(bow.ClosedError):
            stream.read_next_batch()
        timer.join()
        go_on.set()


def test_an_interrupt_while_waiting_loses_nothing(server: bow.Server) -> None:
    """Ctrl-C ends the wait for a batch, and whoever reads on has that and all others."""
    go_on = threading.Event()

    def make() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        assert go_on.wait(WAIT)
        yield from BATCHES[1:]

    with bow.connect(server.publish("t", make, schema=BATCHES[0].schema)) as stream:
        seen = [stream.read_next_batch().to_arrow()]
        timer = threading.Timer(0.2, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            stream.read_next_batch()
        timer.join()
        go_on.set()
        seen += [batch.to_arrow() for batch in stream]
    assert pa.Table.from_batches(seen).equals(pa.Table.from_batches(BATCHES))


# An interrupt right behind the line that counts a user of a socket leaves it to its finalizer, which closes it.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:unclosed:ResourceWarning"
)
def test_an_interrupt_anywhere_in_receiving_is_told(server: bow.Server) -> None:
    """Of a stream whose reader was interrupted at any line, all is there that was not returned, or an error is."""
    table = pa.Table.from_batches(BATCHES[:6])
    endpoint = server.publish("t", lambda: iter(BATCHES[:6]), schema=table.schema)
    for number in range(1, 1500, 97):
        with bow.connect(endpoint) as stream:
            seen: list[pa.RecordBatch] = []

            def read(seen: list[pa.RecordBatch] = seen, stream: bow.Stream = stream) -> None:
                for batch in stream:
                    seen.append(batch.to_arrow())  # noqa: PERF401  one by one

            interrupter = Interrupter(number)
            interrupted = interrupter.run(read)
            try:
                read()
            except (bow.BrokenError, bow.ClosedError):
                assert interrupted
                continue
            except bow.UsageError:  # it had ended
                pass
            # What was on its way to the user, in whose hands an interrupt may drop it, too.
            assert len(seen) >= len(BATCHES[:6]) - interrupted, interrupter.place


@pytest.mark.parametrize("address", ["unix:", "inproc:"])
def test_an_interrupt_in_a_lock_stops_no_loop(serve: Callable[..., bow.Server], address: str) -> None:
    """Who is interrupted in Python code of a lock keeps none that the loop needs: all other streams go on."""
    table = pa.Table.from_batches(BATCHES[:4])
    endpoint = serve(address).publish("t", lambda: iter(BATCHES[:4]), schema=table.schema, readers=None)
    limits = bow.Limits(connect_timeout=WAIT / 4)
    for number in itertools.count():
        stream = bow.connect(endpoint, limits=limits)
        read, lines = interrupted(stream.read_all, number, threading.__file__)
        stream.close()
        with bow.connect(endpoint, limits=limits) as other:
            assert other.read_all() == table
        if read is not None:
            assert lines <= number
            break
