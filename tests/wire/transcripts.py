"""Conversations as bytes: recorded between a server and a reader of one build, and played to another.

As a program it records them: ``python -m tests.wire.transcripts FOLDER``. Those in ``tests/data/transcripts`` were
recorded with the build of commit 6da4e3a; those in its folder ``partitions``, of streams of many partitions, with
the first build that had such streams, by ``python -m tests.wire.transcripts FOLDER partitions``; those in folder
``0.1.0`` with the code of that release. Each file has the messages of each connection in the order in which they
passed, as they were framed (``docs/protocol.md``, section 3), and the contents of the regions beside them.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import re
import socket
import sys
import threading
import zlib
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.peer.wire import Frame, dialled, listening, receive, send

__all__ = ["Connection", "Conversation"]

WAIT: Final = 30.0


def _packed(frame: Frame) -> list[str]:
    """Return a frame as texts; the region, if any, is the second one."""
    parts = [frame.data] if frame.region is None else [frame.data, frame.region]
    return [base64.b64encode(zlib.compress(part, 9)).decode() for part in parts]


def _unpacked(parts: list[str]) -> Frame:
    return Frame(*(zlib.decompress(base64.b64decode(part)) for part in parts))


@dataclasses.dataclass
class Connection:
    """What passed on one connection: (``"reader"`` or ``"server"``, frame)."""

    frames: list[tuple[str, Frame]] = dataclasses.field(default_factory=list)

    def said(self, side: str) -> list[Frame]:
        """Return the messages of one side."""
        return [frame for by, frame in self.frames if by == side]


@dataclasses.dataclass
class Conversation:
    """All connections of one reader, the URI that it was given, and the data set that it read."""

    uri: str
    table: str
    connections: list[Connection]

    def to_json(self) -> str:
        """Return the text of a file."""
        connections = [[[by, *_packed(frame)] for by, frame in each.frames] for each in self.connections]
        return json.dumps({"uri": self.uri, "table": self.table, "connections": connections}, indent=0) + "\n"

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """Read a file."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        connections = [
            Connection([(by, _unpacked(parts)) for by, *parts in each]) for each in fields["connections"]
        ]
        return cls(fields["uri"], fields["table"], connections)


class _Recorder:
    """Stands between a reader and its server, and notes what passes."""

    def __init__(self, address: str, connections: int) -> None:
        self._to = address
        self._lock = threading.Lock()
        self.connections = [Connection() for _ in range(connections)]
        self._listener, self.address = listening(address.partition(":")[0])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        threads = []
        for connection in self.connections:
            reader, _ = self._listener.accept()
            reader.settimeout(WAIT)
            server = dialled(self._to)
            for by, source, target in (("reader", reader, server), ("server", server, reader)):
                threads.append(threading.Thread(target=self._pump, args=(connection, by, source, target)))
                threads[-1].start()
        for thread in threads:
            thread.join()
        self._listener.close()

    def _pump(self, connection: Connection, by: str, source: socket.socket, target: socket.socket) -> None:
        while (received := receive(source)) is not None:
            frame, fds = received
            with self._lock:
                contents = os.pread(fds[0], os.fstat(fds[0]).st_size, 0) if fds else None
                connection.frames.append((by, dataclasses.replace(frame, region=contents)))
                try:
                    send(target, frame, fds)
                except OSError:
                    break
            for fd in fds:
                os.close(fd)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def join(self) -> None:
        """Wait until both have gone."""
        self._thread.join(WAIT)


def _record_partitions(folder: Path) -> None:
    import bowstring as bow
    from tests.wire.program import TABLES, TOKEN

    limits = bow.Limits(heartbeat=WAIT)
    for name in PARTITIONED:
        table = TABLES[name]
        with bow.Server("tcp://127.0.0.1:0", token=TOKEN, limits=limits) as server:
            endpoints = [
                server.publish(f"part {number}", pa.Table.from_batches([batch], table.schema))
                for number, batch in enumerate(table.to_batches())
            ]
            recorder = _Recorder(server.address, 1)
            moved = [
                dataclasses.replace(each, uri=each.uri.replace(server.address, recorder.address))
                for each in endpoints
            ]
            with bow.connect(bow.Dataset(tuple(moved), table.schema), limits=limits) as stream:
                print(name, stream.read_all().num_rows)
            recorder.join()
        conversation = Conversation(str(moved[0]), name, recorder.connections)
        file = folder / f"tcp-{name.replace(' ', '-')}.json"
        file.write_text(conversation.to_json(), encoding="utf-8")


def _record(folder: Path) -> None:
    import bowstring as bow
    from tests.wire.program import TABLES, datasets

    limits = bow.Limits(heartbeat=WAIT)
    for name, address, separate, options in _CASES:
        made = datasets()[name]()
        with bow.Server(address, limits=limits) as server:
            endpoint = server.publish(name, made, separate=separate)
            recorder = _Recorder(server.address, 1 + separate)
            changes = {
                field: uri.replace(server.address, recorder.address)
                for field in ("uri", "data_uri")
                if (uri := getattr(endpoint, field)) is not None
            }
            endpoint = dataclasses.replace(endpoint, **changes)
            try:
                with bow.connect(endpoint, limits=limits, **options) as stream:
                    found: Any = stream.read_all().num_rows
            except bow.BowstringError as error:
                found = type(error).__name__
            recorder.join()
        scheme = address.partition(":")[0] + (" separate" if separate else "")
        kind = " ".join([scheme, name, *(f"{key}={value}" for key, value in options.items())])
        file = re.sub(r"[^a-z0-9]+", "-", kind).strip("-")
        conversation = Conversation(str(endpoint), name, recorder.connections)
        (folder / f"{file}.json").write_text(conversation.to_json(), encoding="utf-8")
        print(file, found, [[by[0] for by, _ in each.frames] for each in recorder.connections], len(TABLES))


_CASES: Final[list[tuple[str, str, bool, dict[str, Any]]]] = [
    ("types", "tcp://127.0.0.1:0", False, {}),
    ("types", "tcp://127.0.0.1:0", True, {}),
    ("types", "tcp://127.0.0.1:0", False, {"columns": ["string", "int64"]}),
    ("growing dictionary", "tcp://127.0.0.1:0", False, {}),
    ("changing dictionary", "tcp://127.0.0.1:0", True, {}),
    ("lazy growing dictionary", "tcp://127.0.0.1:0", False, {}),
    ("no rows", "tcp://127.0.0.1:0", False, {}),
    ("failing", "tcp://127.0.0.1:0", False, {}),
    ("types", "unix:", False, {}),
    ("changing dictionary", "unix:", False, {}),
]

PARTITIONED: Final = ("numbers", "changing dictionary")

if __name__ == "__main__":
    (_record_partitions if sys.argv[2:] == ["partitions"] else _record)(Path(sys.argv[1]))
