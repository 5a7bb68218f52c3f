"""A second implementation of Dissociated IPC over UCX, from the specification's text alone: a client and a server.

They call libucp by its C functions (the binding, which tests hold against the header, is all that they share with
Bowstring), read and write Arrow's messages with pyarrow, and know nothing of Bowstring's additions.
"""

from __future__ import annotations

import base64
import io
import struct
import threading
import time
import urllib.parse
from collections.abc import Sequence
from typing import Self

import numpy as np
import pyarrow as pa

from bowstring.transport.ucx.context import Context, Mapped, Request
from bowstring.transport.ucx.worker import (
    Arrived,
    ConnectionRequest,
    Endpoint,
    ListenerHandle,
    Probed,
    Worker,
)

WAIT = 20.0
LOW_HALF = 0xFFFF_FFFF
ALL_BITS = (1 << 64) - 1
LOW_44_BITS = (1 << 44) - 1
END_OF_STREAM = 0
METADATA = 1
PACKED = 0
POINTERS = 1

Part = tuple[bytes, list[bytes] | None]


def parts_of(table: pa.Table, **options: object) -> list[Part]:
    """Return the flatbuffer of each message of a table, with the pieces of its body: buffers and padding."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    parts: list[Part] = [(messages[0].metadata.to_pybytes(), None)]
    for message in messages[1:]:
        body = message.body.to_pybytes() if message.body is not None else b""
        parts.append((message.metadata.to_pybytes(), _buffers(message.metadata.to_pybytes(), body)))
    return parts


def _buffers(metadata: bytes, body: bytes) -> list[bytes]:
    """Return the buffers of a body, by the places that its metadata names (Message.fbs, read by hand)."""
    table = _Table.root(metadata)
    header_type, header = table.scalar(1, "<B"), table.child(2)
    batch = header if header_type == 3 else header.child(1)  # a DictionaryBatch holds its RecordBatch
    return [body[start : start + length] for start, length in batch.structs(2, "<qq")]


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        self._most = struct.unpack_from("<H", data, self._fields)[0]

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def _place(self, field: int) -> int:
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", self._data, self._fields + entry)[0] if entry < self._most else 0
        return self._at + offset if offset else 0

    def scalar(self, field: int, kind: str) -> int:
        place = self._place(field)
        return int(struct.unpack_from(kind, self._data, place)[0]) if place else 0

    def child(self, field: int) -> _Table:
        place = self._place(field)
        return _Table(self._data, place + struct.unpack_from("<I", self._data, place)[0])

    def structs(self, field: int, kind: str) -> list[tuple[int, int]]:
        place = self._place(field)
        if not place:
            return []
        start = place + struct.unpack_from("<I", self._data, place)[0]
        count, size = struct.unpack_from("<I", self._data, start)[0], struct.calcsize(kind)
        return [struct.unpack_from(kind, self._data, start + 4 + index * size) for index in range(count)]


def body_length(metadata: bytes) -> int:
    """Return the length of the body that a message has."""
    return _Table.root(metadata).scalar(3, "<q")


def has_body(metadata: bytes) -> bool:
    """Whether a message is a record batch or a dictionary."""
    return _Table.root(metadata).scalar(1, "<B") in (2, 3)


def table_of(parts: Sequence[tuple[bytes, bytes]]) -> pa.Table:
    """Return the table that pyarrow reads from (metadata, body) of each message."""
    sink = io.BytesIO()
    for metadata, body in parts:
        padded = metadata + bytes(-len(metadata) % 8)
        sink.write(struct.pack("<Ii", 0xFFFF_FFFF, len(padded)) + padded + body)
    sink.write(struct.pack("<Ii", 0xFFFF_FFFF, 0))
    return pa.ipc.open_stream(sink.getvalue()).read_all()


class _End:
    """One connection: a worker, and the endpoint to the other side."""

    def __init__(self, worker: Worker, endpoint: Endpoint) -> None:
        self.worker, self.endpoint = worker, endpoint

    def until(self, ready: object) -> object:
        end = time.monotonic() + WAIT
        while not (found := ready()):  # type: ignore[operator]
            if not self.worker.progress():
                time.sleep(0.0005)
            assert not self.endpoint.failed, self.endpoint.failed
            assert time.monotonic() < end, "nothing more came"
        return found

    def send(self, tag: int | None, pieces: Sequence[bytes], *, sync: bool = False) -> None:
        self.done(self.endpoint.send(tag, [piece for piece in pieces if piece], sync=sync))

    def done(self, request: Request) -> None:
        self.until(lambda: request.done)

    def untagged(self) -> bytes:
        self.until(lambda: self.worker.arrived)
        arrived: Arrived = self.worker.arrived.popleft()
        if arrived.body is not None:  # eager
            return arrived.body
        place = np.zeros(arrived.nbytes, np.uint8)  # rendezvous
        request = self.worker.fetch(arrived, place.ctypes.data)
        self.until(lambda: request.done)
        return place.tobytes()

    def tagged(self, tag: int, mask: int) -> tuple[int, bytes]:
        probed = self.until(lambda: self.worker.probe(tag, mask))
        assert isinstance(probed, Probed)
        place = np.zeros(max(1, probed.nbytes), np.uint8)
        request = self.worker.receive(probed, place.ctypes.data)
        self.until(lambda: request.done)
        return probed.tag, place[: probed.nbytes].tobytes()


class UcxClient:
    """Reads the data set of a URI, and of the URI of the body server where that is another one."""

    def __init__(self, uri: str, ticket: bytes, data_uri: str | None = None) -> None:
        self._context = Context({"NET_DEVICES": "lo"})
        self._ticket = ticket
        self._ends: list[_End] = []
        self._queries: list[dict[str, str]] = []
        for each in (uri, data_uri) if data_uri is not None else (uri,):
            parsed = urllib.parse.urlsplit(each)
            worker = Worker(self._context)
            assert parsed.hostname is not None
            assert parsed.port is not None
            self._ends.append(_End(worker, worker.connect(parsed.hostname, parsed.port)))
            self._queries.append(dict(urllib.parse.parse_qsl(parsed.query)))
        self.tags: list[int] = []

    def read(self) -> pa.Table:
        """Ask for the data on each connection, read all, free what was lent, and return the table."""
        for end, query in zip(self._ends, self._queries, strict=True):
            end.send(int(query["want_data"]), [self._ticket], sync=True)
        metadata: dict[int, bytes] = {}
        bodies: dict[int, bytes] = {}
        end_number: int | None = None
        while end_number is None or len(metadata) < end_number:
            message = self._ends[0].untagged()
            kind, number = struct.unpack_from("<BI", message)
            if kind == END_OF_STREAM:
                assert len(message) == 5
                end_number = number
            else:
                assert kind == METADATA
                metadata[number] = message[5:]
                if has_body(metadata[number]):
                    bodies[number] = self._body(number)
        return table_of([(metadata[number], bodies.get(number, b"")) for number in range(end_number)])

    def _body(self, number: int) -> bytes:
        tag, body = self._ends[-1].tagged(number, LOW_HALF)
        self.tags.append(tag)
        assert tag >> 32 == PACKED << 24, "a reader that sent no hello gets packed bodies"
        return body

    def close(self) -> None:
        """Disconnect."""
        for end in self._ends:
            request = end.endpoint.close(force=False)
            stop = time.monotonic() + 1.0
            while not request.done and time.monotonic() < stop:
                end.worker.progress()
            end.worker.close()
        self._context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class UcxServer:
    """Sends one table to each client that asks for it.

    Parameters
    ----------
    parts
        As :func:`parts_of` returns them.
    pointers
        Whether bodies are addresses, to be read with the key in the URI.
    role
        ``"both"``, or ``"metadata"`` or ``"bodies"`` of a pair of servers; ``"by tag"`` for one that is both of a
        pair, as the reference implementation is: the high bits of the request's tag say which.
    backwards
        Whether bodies are sent last first, and before all metadata.
    handle
        A CUDA IPC handle of memory in which the bodies lie as :func:`image_of` has them: they are offsets into it.
    shift
        Where in the tag of a body its type stands; 55 is a mistake of the reference implementation.
    withheld
        How many of the last bodies are not sent: the connection ends instead.
    answers
        Whether it answers; the reference implementation does not where it lacks what it is asked for.
    """

    want_data = 0xFFFF_FDEA_DBA0_BAB0
    want_bodies = 0x0000_0DEA_DBA0_BAB0  # of a server that is both of a pair
    free_data = 0x0000_00DE_ADBA_0BA0

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        pointers: bool = False,
        role: str = "both",
        backwards: bool = False,
        handle: bytes | None = None,
        shift: int = 56,
        withheld: int = 0,
        answers: bool = True,
    ) -> None:
        self._parts, self._pointers, self._role, self._backwards = parts, pointers, role, backwards
        self._shift, self._withheld, self._answers = shift, withheld, answers
        self._context = Context({"NET_DEVICES": "lo"})
        self._worker = Worker(self._context)
        self._listener = ListenerHandle(self._worker, "127.0.0.1", 0)
        self.tickets: list[bytes] = []
        self.freed: list[int] = []
        self.served = 0
        self.errors: list[BaseException] = []
        self._memory = np.frombuffer(image_of(parts), np.uint8).copy()
        self._base = self._memory.ctypes.data
        self._mapped: Mapped | None = None
        query = {"want_data": str(self.want_data)}
        if handle is not None:
            self._pointers, self._base = True, 0
            query |= {"free_data": str(self.free_data), "remote_handle": base64.b64encode(handle).decode()}
        elif pointers:
            self._mapped = Mapped(self._context, self._memory.ctypes.data, max(1, self._memory.nbytes))
            query |= {
                "free_data": str(self.free_data),
                "remote_handle": base64.b64encode(self._mapped.key).decode(),
            }
        host, port = self._listener.address
        self.uri = f"ucx://{host}:{port}?{urllib.parse.urlencode(query)}"
        self.data_uri = f"ucx://{host}:{port}?want_data={self.want_bodies}"
        self._stop = threading.Event()
        self._serving: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._worker.progress():
                time.sleep(0.001)
            while self._listener.requests:
                self._accept(self._listener.requests.popleft())
        for each in self._serving:
            each.join(WAIT)

    def _accept(self, request: ConnectionRequest) -> None:
        worker = Worker(self._context)
        end = _End(worker, worker.accept(request))
        self._serving.append(threading.Thread(target=self._serve, args=(end,)))
        self._serving[-1].start()

    def _serve(self, end: _End) -> None:
        try:
            role = self._take_request(end)
            if not self._answers:
                return self._until_gone(end)
            bodies = [number for number, (_, body) in enumerate(self._parts) if body is not None]
            bodies = bodies[: len(bodies) - self._withheld]
            if self._backwards and role != "metadata":
                self._send_bodies(end, bodies)
            if role != "bodies":
                self._send_metadata(end)
            if not self._backwards and role != "metadata":
                self._send_bodies(end, bodies)
            if not self._withheld:
                self._until_gone(end)
        except BaseException as error:  # noqa: BLE001  the test raises it
            self.errors.append(error)
        finally:
            end.worker.close()
            self.served += 1

    def _take_request(self, end: _End) -> str:
        """Take the ticket of a connection; return what it asks for, in words of `role`."""
        mask = ALL_BITS if self._role != "by tag" else LOW_44_BITS
        tag, ticket = end.tagged(self.want_data & mask, mask)
        self.tickets.append(ticket)
        if self._role != "by tag":
            return self._role
        return "metadata" if tag & ~LOW_44_BITS else "bodies"

    def _send_metadata(self, end: _End) -> None:
        for number, (metadata, _) in enumerate(self._parts):
            end.send(None, [struct.pack("<BI", METADATA, number), metadata])
        end.send(None, [struct.pack("<BI", END_OF_STREAM, len(self._parts))])

    def _send_bodies(self, end: _End, numbers: Sequence[int]) -> None:
        address = self._base
        starts = {}
        for number in numbers:
            starts[number] = address
            address += sum(map(len, _padded([self._parts[number]])))
        for number in reversed(numbers) if self._backwards else numbers:
            buffers = self._parts[number][1]
            assert buffers is not None
            if self._pointers:
                end.send(POINTERS << self._shift | number, [_pairs(buffers, starts[number])])
            else:
                end.send(PACKED << self._shift | number, _padded([self._parts[number]]))

    def _until_gone(self, end: _End) -> None:
        """Keep the connection, and hear what is freed, until the client is gone."""
        stop = time.monotonic() + WAIT
        while not (end.endpoint.failed or self._stop.is_set() or time.monotonic() > stop):
            if not end.worker.progress():
                time.sleep(0.001)
            if (probed := end.worker.probe(self.free_data, ALL_BITS)) is not None:
                place = np.zeros(probed.nbytes // 8, "<u8")
                request = end.worker.receive(probed, place.ctypes.data)
                end.done(request)
                self.freed += place.tolist()

    def close(self) -> None:
        """End all, and raise what went wrong."""
        self._stop.set()
        self._thread.join(WAIT)
        self._listener.close()
        self._worker.close()
        if self._mapped is not None:
            self._mapped.close()
        self._context.close()
        if self.errors:
            raise self.errors[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def image_of(parts: Sequence[Part]) -> bytes:
    """Return the bodies of all messages one behind the other, as addresses name them."""
    return b"".join(_padded(parts))


def _padded(parts: Sequence[Part]) -> list[bytes]:
    return [buffer + bytes(-len(buffer) % 8) for _, body in parts for buffer in body or ()]


def _pairs(buffers: Sequence[bytes], address: int) -> bytes:
    """Return the table of a body of addresses: (total, count), then (address, length) of each buffer."""
    rows = [(sum(map(len, buffers)), len(buffers))]
    for buffer in buffers:
        rows.append((address if buffer else 0, len(buffer)))
        address += len(buffer) + -len(buffer) % 8
    return np.array(rows, "<u8").tobytes()
