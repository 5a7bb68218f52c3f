"""What a peer's author needs: each violation is answered by an error that says what was wrong."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable, Iterator

import pytest

import bowstring as bow
from bowstring.dissociated.tags import Control, Want
from bowstring.dissociated.wire import pack_prefix
from bowstring.transport import Message
from tests.faults.conftest import LIMITS
from tests.faults.tables import table_of
from tests.peer.raw import RawReader, RawServer, SocketReader, close_messages, recorded


def told(reader: RawReader) -> dict[str, str]:
    """Return the error that a server sends before it hangs up."""
    error = reader.hear_error()
    assert error, "the server hung up without a word"
    found: dict[str, str] = json.loads(error)
    return found


@pytest.mark.parametrize(
    ("hello", "what"),
    [
        (b"not JSON", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "version"),
        (b'{"version": 1, "columns": 7}', "columns"),
        (b'{"version": 1, "window": -1}', "window"),
    ],
)
def test_a_bad_hello(serve: Callable[..., bow.Server], address: str, hello: bytes, what: str) -> None:
    """A hello that cannot be read is answered by an error that says what is wrong with it."""
    server = serve(address)
    with RawReader(server.publish("t", table_of())) as reader:
        reader.say(Want.HELLO, hello)
        found = told(reader)
    assert found["code"] == "protocol"
    assert what in found["what"]


@pytest.mark.parametrize("asked", [False, True], ids=["before the ticket", "in the stream"])
@pytest.mark.parametrize(
    ("header", "code", "what"),
    [
        (b"GET / HTTP/1.1\r\n\r\n\r\n\r\n\r\n", "protocol", "framing"),
        (struct.pack("<3sBBBHQQ", b"BOW", 1, 7, 0, 0, 0, 0), "protocol", "reserved bits"),
        (struct.pack("<3sBBBHQQ", b"BOW", 1, 1, 0, 0, int(Control.PING), 1 << 30), "limit_exceeded", ""),
        (struct.pack("<3sBBBHQQ", b"BOW", 1, 1, 0, 0, 5, 8) + bytes(8), "protocol", "bodies"),
    ],
    ids=["foreign", "reserved", "oversize", "a body"],
)
def test_bad_framing_after_a_good_hello(
    serve: Callable[..., bow.Server],
    between_processes: str,
    header: bytes,
    code: str,
    what: str,
    *,
    asked: bool,
) -> None:
    """After a good hello, bytes that are no message, and one that is too long, are answered by an error."""
    server = serve(between_processes)
    with SocketReader(server.publish("t", table_of())) as reader:
        reader.hello()
        if asked:
            reader.want()
            reader.hear_all()
        reader.push(header)
        found = told(reader)
    assert found["code"] == code
    assert what in found["what"]


def test_an_oversize_message_after_a_good_hello(serve: Callable[..., bow.Server], address: str) -> None:
    """A control message beyond the bound is answered by an error that names the bound."""
    server = serve(address)
    with RawReader(server.publish("t", table_of())) as reader:
        reader.hello()
        reader.want()
        reader.hear_all()
        with contextlib.suppress(bow.BrokenError):  # the server is quicker to refuse than this side to send
            reader.say(Control.PONG, bytes(1 << 20))
        assert told(reader)["code"] == "limit_exceeded"


@pytest.mark.parametrize("asked", [False, True], ids=["before the ticket", "in the stream"])
def test_a_message_that_stops_halfway(
    serve: Callable[..., bow.Server], between_processes: str, *, asked: bool
) -> None:
    """A reader that goes silent inside a message gets an error that says so before the server hangs up."""
    server = serve(between_processes, limits=LIMITS.replace(connect_timeout=5.0, stall_timeout=0.3))
    with SocketReader(server.publish("t", table_of())) as reader:
        reader.hello()
        if asked:
            reader.want()
            reader.hear_all()
        tag = Control.CREDIT if asked else Want.DATA
        header = struct.pack("<3sBBBHQQ", b"BOW", 1, 1, 0, 0, int(tag), 8)
        reader.push(header)
        found = told(reader)
    assert found["code"] == "deadline_exceeded"
    assert "inside a message" in found["what"]


def test_a_ticket_that_does_not_come_in_time(
    serve: Callable[..., bow.Server], between_processes: str
) -> None:
    """A reader whose ticket is late gets an error that names the bound, also where half of it has come."""
    server = serve(between_processes, limits=LIMITS.replace(connect_timeout=0.5))
    with SocketReader(server.publish("t", table_of())) as reader:
        reader.hello()
        header = struct.pack("<3sBBBHQQ", b"BOW", 1, 1, 0, 0, int(Want.DATA), 8)
        reader.push(header)
        found = told(reader)
    assert found["code"] == "deadline_exceeded"
    assert "connect_timeout" in found["hint"]


@pytest.fixture
def stream(serve: Callable[..., bow.Server]) -> Iterator[list[Message]]:
    """Return the messages of a good stream over ``tcp:``, WELCOME first."""
    messages = recorded(serve("tcp://127.0.0.1:0").publish("t", table_of()))
    yield messages
    close_messages(messages)


def number_of_end(stream: list[Message]) -> int:
    """Return the number of the end of a stream."""
    return int.from_bytes(bytes(stream[-1].pieces[0])[1:5], "little")


@pytest.mark.parametrize("what", ["end", "end later", "metadata", "body", "welcome"])
def test_messages_behind_the_end(stream: list[Message], address: str, what: str) -> None:
    """A second end, metadata, a body and WELCOME behind the end are refused, though all batches have come."""
    number = number_of_end(stream)
    metadata = bytes(stream[-3].pieces[0])[5:]
    late = {
        "end": stream[-1],
        "end later": Message(None, [pack_prefix(0, number + 1)]),
        "metadata": Message(None, [pack_prefix(1, number), metadata]),
        "body": Message(number, [bytes(8)]),
        "welcome": stream[0],
    }[what]
    with RawServer(address, [*stream, late]) as server, bow.connect(server.uri, limits=LIMITS) as reader:
        server.wait()  # the reader hangs up
        with pytest.raises(bow.ProtocolError):
            reader.read_all()


def test_a_promised_welcome(stream: list[Message], address: str) -> None:
    """A server whose URI promises a WELCOME, and that sends none, gets its reader an error that says so."""
    with (
        RawServer(address, stream[1:]) as server,
        pytest.raises(bow.ProtocolError, match=r"sent no WELCOME.*bow=1"),
    ):
        bow.connect(server.uri, limits=LIMITS)


def test_a_promised_welcome_of_a_silent_server(address: str) -> None:
    """The deadline of a reader that waits for nothing but the WELCOME says so, too."""
    with (
        RawServer(address, []) as server,
        pytest.raises(bow.DeadlineExceeded, match=r"has not sent the WELCOME"),
    ):
        bow.connect(server.uri, limits=LIMITS.replace(connect_timeout=0.3, close_timeout=0.2))
