"""Flight as a target: requests of any method, as bytes of gRPC, to a live server; and what was put is read back.

An input is a byte for the method, and the messages of the call as gRPC frames them: a flag, a length, and bytes of
protocol buffers. No client takes part, so nothing puts them right.
"""

from __future__ import annotations

import contextlib
import functools
import random
import re
import socket
import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyarrow import flight

import bowstring as bow
from bowstring.errors import BowstringError
from bowstring.vortex.protobuf import BYTES, encode
from bowstring.vortex.protobuf import Message as Fields
from tests.fuzz.mutators import changed_bytes, changed_fields, other_number, rearranged

_METHODS: Final = (
    "DoGet",
    "DoPut",
    "DoAction",
    "GetFlightInfo",
    "GetSchema",
    "ListFlights",
    "ListActions",
    "DoExchange",
    "PollFlightInfo",
    "Handshake",
)
_TOKEN: Final = "a secret of 20 marks"
_TABLE: Final = pa.table(
    {
        "n": [1, None, 3],
        "s": ["a", None, "a text of more than twelve bytes"],
        "v": pa.array(["short", None, "longer than twelve bytes"], pa.string_view()),
        "l": [[1], None, [2, 3]],
        "d": pa.array(["x", None, "x"]).dictionary_encode(),
        "u": pa.UnionArray.from_sparse(
            pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
        ),
    }
)
_LIMITS: Final = bow.Limits(close_timeout=0.2)
_POOL: Final = 16 << 20
_SECONDS: Final = 30.0
_FRAME: Final = struct.Struct(">BI")  # of gRPC
_DATA, _HEADERS, _RESET, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_ENDS, _WHOLE, _ACK = 1, 4, 1
_PIECE: Final = 1 << 14
# The last line of what pyarrow tells of an error that nobody meant.
_FAULT: Final = re.compile(
    rb"%0A(Assertion|Type|Attribute|Index|Name|Runtime|ZeroDivision|Overflow|Recursion|Memory|System|Unicode\w+|struct\.)"
    rb"[eE]rror"
)


def flight_requests(data: bytes) -> None:
    """Call a method; what it put is read as it is valid, and what was there before is."""
    if _ends_pyarrow(data):
        return
    server, flights = _serving()
    answer = _called(flights.port, _METHODS[data[0] % len(_METHODS)] if data else "DoGet", data[1:])
    fault = _FAULT.search(answer)
    assert fault is None, answer
    for name, endpoint in server.endpoints.items():
        if name != "t":
            _read(endpoint)
            server.withdraw(name)
    server.publish("t", _TABLE, replace=True)
    if sum(data) % 16 == 0:
        with bow.connect(f"{flights.uri}/t", token=_TOKEN) as stream:
            assert stream.read_all().equals(_TABLE)


def _ends_pyarrow(data: bytes) -> bool:
    """Whether a message that is put has no header: between dictionaries pyarrow 26 dies of it (decision 70)."""
    put = bool(data) and _METHODS[data[0] % len(_METHODS)] == "DoPut"
    with contextlib.suppress(BowstringError, struct.error):
        for message in _messages(data[1:] if put else b""):
            if not any(field.number == 2 for field in Fields(message[_FRAME.size :], "").fields):
                return True
    return False


def _read(endpoint: bow.Endpoint) -> None:
    """Read what was put, as a reader does who trusts the server, for it is of the same user."""
    with bow.connect(endpoint) as stream:
        for batch in stream:
            batch.to_arrow().validate(full=True)


@functools.cache
def _serving() -> tuple[bow.Server, bow.flight.FlightServer]:
    server = bow.Server("unix:", limits=_LIMITS, pool=bow.memory.Pool(budget=_POOL))
    server.publish("t", _TABLE)
    return server, bow.flight.serve(server, "grpc://127.0.0.1:0", token=_TOKEN, allow_put=True)


def _called(port: int, method: str, messages: bytes) -> bytes:
    """Return all that a server answers to a call, as it stands in the frames of HTTP/2."""
    with socket.create_connection(("127.0.0.1", port), _SECONDS) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _framed(_SETTINGS, 0, 0))
        sock.sendall(_framed(_HEADERS, _WHOLE, 1, _headers(port, method)))
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(messages), _PIECE):
                sock.sendall(_framed(_DATA, 0, 1, messages[at : at + _PIECE]))
            sock.sendall(_framed(_DATA, _ENDS, 1))
        return b"".join(_answers(sock))


def _answers(sock: socket.socket) -> Iterator[bytes]:
    with sock.makefile("rb") as file, contextlib.suppress(ConnectionError):
        while len(header := file.read(9)) == 9:
            size, kind, flags = int.from_bytes(header[:3]), header[3], header[4]
            body = file.read(size)
            yield body
            if kind == _SETTINGS and not flags & _ACK:
                sock.sendall(_framed(_SETTINGS, _ACK, 0))
            if kind in (_RESET, _GOAWAY) or (kind in (_DATA, _HEADERS) and flags & _ENDS):
                return


def _framed(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


def _headers(port: int, method: str) -> bytes:
    """Return the headers of a call: each written out, none taken from a table."""
    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/arrow.flight.protocol.FlightService/{method}",
        ":authority": f"127.0.0.1:{port}",
        "te": "trailers",
        "content-type": "application/grpc",
        "authorization": f"Bearer {_TOKEN}",
    }
    texts = [[each.encode() for each in pair] for pair in pairs.items()]
    return b"".join(b"\0" + b"".join(bytes([len(each)]) + each for each in pair) for pair in texts)


def mutated_requests(data: bytes, rng: random.Random) -> bytes:
    """Return a call of another method, or of messages that are changed, left out, repeated, cut or moved."""
    if rng.random() < 0.05:
        return bytes([rng.randrange(len(_METHODS))]) + data[1:]
    messages = rearranged(list(_messages(data[1:])), lambda each: _other_message(each, rng), rng, 0.2)
    return data[:1] + b"".join(messages)


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        _, size = _FRAME.unpack_from(data, at)
        yield data[at : at + _FRAME.size + size]
        at += _FRAME.size + size


def _other_message(message: bytes, rng: random.Random) -> bytes:
    flag, size = _FRAME.unpack_from(message)
    body = message[_FRAME.size :]
    if rng.random() < 0.05:
        return _FRAME.pack(flag ^ 1, size) + body
    if rng.random() < 0.05:
        return _FRAME.pack(flag, other_number(rng, size, 32, signed=False)) + body
    body = changed_bytes(body, rng) if rng.random() < 0.1 else changed_fields(body, rng)
    return _FRAME.pack(flag, len(body)) + body


def flight_seeds() -> Iterator[tuple[str, bytes]]:
    """Yield a call of each method, and what clients put."""
    server, _ = _serving()
    path, command = flight.FlightDescriptor.for_path("t"), flight.FlightDescriptor.for_command(b"SELECT 1")
    ticket = server.endpoints["t"].ticket
    endpoint = flight.FlightEndpoint(ticket, [])
    for name, method, message in (
        ("get", "DoGet", flight.Ticket(ticket).serialize()),
        ("info", "GetFlightInfo", path.serialize()),
        ("poll", "PollFlightInfo", path.serialize()),
        ("command", "GetFlightInfo", command.serialize()),
        ("schema", "GetSchema", path.serialize()),
        ("list", "ListFlights", b""),
        ("criteria", "ListFlights", encode([(1, BYTES, b"a")])),
        ("actions", "ListActions", b""),
        ("renew", "DoAction", encode([(1, BYTES, b"renew"), (2, BYTES, b"t")])),
        ("withdraw", "DoAction", encode([(1, BYTES, b"withdraw"), (2, BYTES, b"other")])),
        (
            "renew endpoint",
            "DoAction",
            encode(
                [(1, BYTES, b"RenewFlightEndpoint"), (2, BYTES, encode([(1, BYTES, endpoint.serialize())]))]
            ),
        ),
        ("handshake", "Handshake", encode([(2, BYTES, b"user")])),
    ):
        yield name, _call(method, [message])
    for name, options in {
        "put": {},
        "put lz4": {"compression": "lz4"},
        "put V4": {"metadata_version": pa.ipc.MetadataVersion.V4},
        "exchange": {},
    }.items():
        columns = ["n", "s", "v", "l", "d"] if name == "put V4" else _TABLE.column_names
        for chosen in ([columns[0]], columns):
            messages = list(_put(_TABLE.select(chosen), pa.ipc.IpcWriteOptions(**options)))
            yield f"{name} {len(chosen)}", _call("DoExchange" if name == "exchange" else "DoPut", messages)


def _put(table: pa.Table, options: pa.ipc.IpcWriteOptions) -> Iterator[bytes]:
    """Yield messages of FlightData: the descriptor with the schema, then what the IPC format makes of the table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    descriptor = flight.FlightDescriptor.for_path("put").serialize()
    for number, message in enumerate(pa.ipc.MessageReader.open_stream(sink.getvalue())):
        fields = [] if number else [(1, BYTES, descriptor)]
        fields.append((2, BYTES, message.metadata.to_pybytes()))
        yield encode([*fields, (1000, BYTES, message.body.to_pybytes() if message.body else b"")])


def _call(method: str, messages: list[bytes]) -> bytes:
    return bytes([_METHODS.index(method)]) + b"".join(_FRAME.pack(0, len(each)) + each for each in messages)
