"""How else a table gets from one process to another: what people write without Bowstring, at both ends."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.benchmarks.peers.flight_server import fetch, serve

_TMPFS: Final = "/dev/shm"

WAYS: Final = {
    "Arrow Flight": "flight",
    "Arrow file in shared memory": "file",
    "IPC in multiprocessing.shared_memory": "shared",
    "IPC stream over a socket": "stream",
    "Parquet file in shared memory": "parquet",
    "pickle over a pipe": "pickle",
}
"""What people call it, and what it is called here."""


class Givers:
    """The end that has the tables: prepares hand-overs, one at a time."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self._tables = tables
        self._table = tables[0]
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bowstring-benchmark-"))
        fast = _TMPFS if os.access(_TMPFS, os.W_OK) else folder
        self._files = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bowstring-", dir=fast))
        self._flights = [serve(each) for each in tables]
        for each in self._flights:
            self._stack.callback(each.shutdown)
        self._memory: SharedMemory | None = None
        self._stack.callback(self._forget_memory)
        self._pickles = Listener(os.path.join(folder, "pickles"), "AF_UNIX")
        self._stack.callback(self._pickles.close)
        self._streams = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self._streams.bind(os.path.join(folder, "streams"))
        self._streams.listen()
        for answer in (self._send_pickles, self._send_streams):
            threading.Thread(target=answer, daemon=True).start()

    def give(self, method: str, turn: int) -> str:
        """Prepare a hand-over of one table by one of `WAYS`; return where the other end finds it."""
        self._table = self._tables[turn]
        if method == "flight":
            return f"grpc://127.0.0.1:{self._flights[turn].port}"
        if method == "stream":
            return str(self._streams.getsockname())
        if method == "pickle":
            return str(self._pickles.address)
        if method == "shared":
            return self._in_memory()
        return self._written(method)

    def _written(self, method: str) -> str:
        """Write a file anew: a writer must not change what a reader has mapped still."""
        path = os.path.join(self._files, f"table.{method}")
        Path(path).unlink(missing_ok=True)
        if method == "parquet":
            pq.write_table(self._table, path)
            return path
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        return path

    def _in_memory(self) -> str:
        size = pa.MockOutputStream()
        _write_stream(size, self._table)
        self._forget_memory()
        self._memory = SharedMemory(create=True, size=size.size())
        with pa.FixedSizeBufferWriter(pa.py_buffer(self._memory.buf)) as sink:
            _write_stream(sink, self._table)
        return self._memory.name

    def _forget_memory(self) -> None:
        if self._memory is not None:
            self._memory.unlink()
            with contextlib.suppress(BufferError):  # something of pyarrow's looks at it still
                self._memory.close()
            self._memory = None

    def _send_pickles(self) -> None:
        while True:
            try:
                connection = self._pickles.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._send_pickle, args=(connection,), daemon=True).start()

    def _send_pickle(self, connection: Connection) -> None:
        with connection:
            connection.send(self._table)

    def _send_streams(self) -> None:
        while True:
            try:
                connection, _ = self._streams.accept()
            except OSError:
                return
            threading.Thread(target=self._send_stream, args=(connection,), daemon=True).start()

    def _send_stream(self, connection: socket.socket) -> None:
        with connection, connection.makefile("wb") as sink, contextlib.suppress(OSError):
            _write_stream(sink, self._table)

    def close(self) -> None:
        """End the servers, and remove the files."""
        self._stack.close()


def _write_stream(sink: Any, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


@contextlib.contextmanager
def taken(method: str, where: str) -> Iterator[pa.Table]:
    """Take a table that was handed over; it may be looked at within the block."""
    if method == "flight":
        yield fetch(where)
    elif method == "parquet":
        # Whole groups of rows: `read_table` cuts columns into slices that share their memory.
        yield pq.ParquetFile(where).read()
    elif method == "file":
        with pa.memory_map(where) as mapped:
            yield pa.ipc.open_file(mapped).read_all()
    elif method == "pickle":
        with Client(where, "AF_UNIX") as connection:
            yield connection.recv()
    elif method == "stream":
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(where)
            with connection.makefile("rb") as source:
                yield pa.ipc.open_stream(source).read_all()
    else:
        yield from _from_memory(where)


def _from_memory(name: str) -> Iterator[pa.Table]:
    memory = SharedMemory(name)
    # This process only looks at it: without this, Python would unlink it when this process ends.
    resource_tracker.unregister(memory._name, "shared_memory")  # type: ignore[attr-defined]
    try:
        yield pa.ipc.open_stream(pa.py_buffer(memory.buf)).read_all()
    finally:
        with contextlib.suppress(BufferError):  # the table is alive where the block ended by an error
            memory.close()
