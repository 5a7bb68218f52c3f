"""A consumer that is slower than its producer: the memory that both hold until the last batch is consumed."""

from __future__ import annotations

import contextlib
import functools
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Listener
from pathlib import Path
from queue import Queue
from typing import Any, Final

import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Way
from bowstring.benchmarks.data.payload import fingerprint, payload
from bowstring.benchmarks.data.tables import size_name, table
from bowstring.benchmarks.processes.child import Child

_FULL: Final = (4 << 20, 256)
_QUICK: Final = (1 << 20, 128)
_REST: Final = 0.005
_SAMPLE: Final = 0.02
_SEED: Final = 13
_WAYS: Final = {
    "bowstring": "bowstring",
    "Arrow Flight": "flight",
    "IPC stream over a socket": "stream",
    "pickles by a thread over a pipe": "pickles",
}


class Producer:
    """A role for a started process: makes batches as fast as they are taken off its hands."""

    def __init__(self, size: int, batches: int) -> None:
        [self._batch] = table("floats", size, _SEED).to_batches()
        self._batches = batches
        self._stack = contextlib.ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bowstring-benchmark-")))
        self._server = self._stack.enter_context(bow.Server())
        self._flight: Any = None
        self._listener = Listener(str(folder / "pickles"), "AF_UNIX")
        self._stack.callback(self._listener.close)
        self._socket = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self._socket.bind(str(folder / "stream"))
        self._socket.listen()

    def sent(self) -> str:
        """Return the fingerprint of all batches."""
        return f"{self._batches} times {fingerprint(payload([self._batch]))}"

    def _made(self) -> Iterator[pa.RecordBatch]:
        """Each batch has memory of its own, as one that was computed has."""
        for _ in range(self._batches):
            yield pa.RecordBatch.from_arrays(
                [pa.array(column.to_numpy().copy()) for column in self._batch.columns],
                schema=self._batch.schema,
            )

    def start(self, how: str) -> str:
        """Offer the batches; return where."""
        if how == "bowstring":
            reader = pa.RecordBatchReader.from_batches(self._batch.schema, self._made())
            return str(self._server.publish("batches", reader, replace=True))
        if how == "flight":
            return self._started_flight()
        send = self._send_pickles if how == "pickles" else self._send_stream
        threading.Thread(target=send, daemon=True).start()
        return str(self._listener.address if how == "pickles" else self._socket.getsockname())

    def _started_flight(self) -> str:
        from pyarrow import flight

        made, schema = self._made, self._batch.schema
        if self._flight is None:

            class Generating(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
                def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002  Flight's signature
                    return flight.GeneratorStream(schema, made())

            self._flight = self._stack.enter_context(Generating("grpc://127.0.0.1:0"))
        return f"grpc://127.0.0.1:{self._flight.port}"

    def _send_pickles(self) -> None:
        """A thread that sends, and a queue before it without a bound: what `multiprocessing.Queue` is."""
        queue: Queue[Any] = Queue()
        with self._listener.accept() as connection:

            def send() -> None:
                for each in iter(queue.get, None):
                    connection.send(each)

            sender = threading.Thread(target=send)
            sender.start()
            for batch in self._made():
                queue.put(batch)
            queue.put(None)
            sender.join()
            connection.send(None)

    def _send_stream(self) -> None:
        connection, _ = self._socket.accept()
        with (
            connection,
            connection.makefile("wb") as sink,
            pa.ipc.new_stream(sink, self._batch.schema) as writer,
        ):
            for batch in self._made():
                writer.write_batch(batch)

    def close(self) -> None:
        """End the servers."""
        self._stack.close()


class Consumer:
    """A role for a started process: takes a batch, rests, lets go of it, and takes the next."""

    def consume(self, how: str, where: str) -> dict[str, Any]:
        """Return the seconds until the last batch, and what came."""
        begin = time.perf_counter()
        count, first = 0, None
        for batch in getattr(self, f"_{how}")(where):
            time.sleep(_REST)
            found = fingerprint(payload([batch]))
            first = first or found
            if found != first:
                raise RuntimeError(f"batch {count} is {found}, not {first}")
            count += 1
            del batch
        return {"seconds": time.perf_counter() - begin, "arrived": f"{count} times {first}"}

    def _bowstring(self, where: str) -> Iterator[pa.RecordBatch]:
        with bow.connect(where) as stream:
            for batch in stream:
                yield batch.to_arrow()
                del batch

    def _flight(self, where: str) -> Iterator[pa.RecordBatch]:
        from pyarrow import flight

        with flight.connect(where) as client:
            for chunk in client.do_get(flight.Ticket(b"")):
                yield chunk.data
                del chunk

    def _stream(self, where: str) -> Iterator[pa.RecordBatch]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(where)
            with connection.makefile("rb") as source:
                yield from pa.ipc.open_stream(source)

    def _pickles(self, where: str) -> Iterator[pa.RecordBatch]:
        with Client(where, "AF_UNIX") as connection:
            yield from iter(connection.recv, None)


def held(pids: list[int]) -> int:
    """Return the bytes that processes hold together: of pages that several have mapped, each has its share."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


def _once(size: int, batches: int, how: str) -> Measured:
    """Start two processes, so that none begins with what another way has left in memory."""
    with Child(Producer, size=size, batches=batches) as producer, Child(Consumer) as consumer:
        sent = producer.call("sent")
        pids = [producer.pid, consumer.pid]
        before = held(pids)
        where = producer.call("start", how=how)
        with _watched(pids, before) as trace:
            found = consumer.call("consume", how=how, where=where)
    return Measured(found["seconds"], sent, found["arrived"], memory=trace)


@contextlib.contextmanager
def _watched(pids: list[int], before: int) -> Iterator[list[tuple[float, int]]]:
    """Write down what processes hold, over and over, for the time of a block."""
    trace, ended, begin = [(0.0, 0)], threading.Event(), time.perf_counter()

    def watch() -> None:
        while not ended.wait(_SAMPLE):
            trace.append((time.perf_counter() - begin, held(pids) - before))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield trace
    finally:
        ended.set()
        watcher.join()


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    size, batches = _QUICK if scale.quick else _FULL
    for each in scale.sizes((size,), (size,)):
        roles: dict[str, Role] = {"bowstring": "subject", "flight": "baseline"}
        ways = tuple(
            Way(
                title,
                roles.get(how, "beside"),
                functools.partial(_once, each, batches, how),
                None,
                None if how == "flight" else "Arrow Flight",
            )
            for title, how in _WAYS.items()
        )
        name = f"{batches} batches of {size_name(each)}, the consumer rests {_REST * 1e3:g} ms after each"
        yield LineUp(name, ways, scale.rounds(5, 3), warm_ups=1)


CASE: Final = Case(
    "slow_consumer",
    "memory that is held while a consumer is slower than its producer",
    _line_ups,
    Explanation(
        measured=(
            "A generator makes batches as fast as they are taken; a consumer in another process rests after "
            "each. The memory that both processes hold beyond what they held before, every 20 ms: pages that"
            " both have mapped count once. The time is until the last batch."
        ),
        baseline=(
            "A Flight server with a generator, whose flow control is gRPC's. Beside it: an IPC stream over a"
            " Unix socket, which blocks its writer, and pickles that a thread sends out of a queue without a"
            " bound, as multiprocessing.Queue does."
        ),
        floor="",
        reading=(
            "The times are about the same, since the consumer decides them. Look at the memory: a line that "
            "grows to the size of all batches ends a long job."
        ),
    ),
    sized=True,
)
