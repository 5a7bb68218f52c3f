"""The protocol of the depot and its clients: one request, one answer, each one message of a server's session.

The tag of a request is a :class:`Verb`, its body a :class:`Record`. The answer is tagged :attr:`Verb.DONE`, with
descriptors of lent slabs beside it, or it is the error message that readers get, too. What an attempt writes is
described by PARTS, which are not answered; an error in one is reported in the answer to the next request. The first
request is the hello, with the version, and with the token where the client came by a network.
"""

from __future__ import annotations

import enum
import struct
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bowstring.dissociated.failures import unpack_error
from bowstring.dissociated.location import token_of
from bowstring.dissociated.tags import REQUEST, Control
from bowstring.errors import BrokenError, DeadlineExceeded, ProtocolError, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Message, dial, encrypts, is_loopback
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from bowstring.limits import Limits
    from bowstring.transport.certificates import TlsConfig

VERSION: Final = 5

# Of a depot's one server: as many clients as readers, and data sets of many endpoints in one request.
DEPOT_LIMITS: Final[Limits] = DEFAULT_LIMITS.replace(
    control_bytes=64 << 20, connections=2 * DEFAULT_LIMITS.connections
)

# How it is with the job that makes a data set; any other text is the error with which it failed.
RUNNING: Final = "running"
COMPLETE: Final = "complete"
LOST: Final = "lost"


class Verb(enum.IntEnum):
    """The tags. None is ever given another meaning; HELLO is the same in every version."""

    HELLO = REQUEST | 0x01
    DONE = REQUEST | 0x04
    BEGIN = REQUEST | 0x10
    BORROW = REQUEST | 0x11
    COMMIT = REQUEST | 0x12
    ABORT = REQUEST | 0x13
    PARTS = REQUEST | 0x14
    HOLD = REQUEST | 0x20
    SETTLE = REQUEST | 0x21
    RELEASE = REQUEST | 0x22
    END = REQUEST | 0x23
    OFFERED = REQUEST | 0x24
    WAIT_RELEASED = REQUEST | 0x25
    ANNOUNCE = REQUEST | 0x26
    LOOKUP = REQUEST | 0x27
    DROP = REQUEST | 0x28
    LIST = REQUEST | 0x29
    CHECK_NAME = REQUEST | 0x2A
    STATUS = REQUEST | 0x30
    LISTEN = REQUEST | 0x31
    STOP = REQUEST | 0x32


_TYPES: Final[dict[str, tuple[type, ...]]] = {"number": (int,), "seconds": (int, float), "flag": (bool,)}
_MOST: Final[dict[str, float]] = {"number": (1 << 63) - 1, "seconds": 1e9, "flag": 1}
# A ticket, with the name in it, has at most 4096 bytes, and a character up to four.
_MOST_CHARACTERS: Final = {"name": 1000, "text": 4096, "long": 1 << 26}
_EXPECTED: Final = {
    "number": "a whole number of 0 or more, of at most 63 bits",
    "seconds": "a number of seconds, 0 or more",
    "flag": "True or False",
    "bytes": "bytes",
    "list": "a list of bytes or text",
    **{kind: f"text of 1 to {most} characters" for kind, most in _MOST_CHARACTERS.items()},
}
_LENGTH: Final = struct.Struct("<I")


class Record:
    """The values of a request or an answer, by name; ``"partition:number folder:text?"`` says of which kinds.

    First 8 bytes of each: a number, or the length of what lies behind them; -1 for a value that is left out.
    """

    def __init__(self, fields: str = "") -> None:
        pairs = [field.split(":") for field in fields.split()]
        self._fields = [(name, kind.rstrip("?"), kind.endswith("?")) for name, kind in pairs]
        self._head = struct.Struct(
            "<" + "".join("d" if kind == "seconds" else "q" for _, kind, _ in self._fields)
        )

    def pack(self, values: Mapping[str, Any]) -> bytes:
        head: list[Any] = []
        tail = [b""]
        for name, kind, optional in self._fields:
            value: Any = values.get(name)
            if value is None and optional:
                head.append(-1)
            elif (
                kind in _MOST
                and issubclass(type(value), _TYPES[kind])
                and isinstance(value, bool) is (kind == "flag")
                and 0 <= value <= _MOST[kind]
            ):
                head.append(value)
            else:
                data = _bytes_of(name, kind, value)
                head.append(len(data))
                tail.append(data)
        return self._head.pack(*head) + b"".join(tail)

    def unpack(self, body: Any) -> dict[str, Any]:
        data = bytes(body)
        at = self._head.size
        if len(data) < at:
            raise ProtocolError(
                "a message of the depot is cut short", expected=at, found=f"{len(data)} bytes"
            )
        values: dict[str, Any] = {}
        for (name, kind, optional), head in zip(self._fields, self._head.unpack_from(data), strict=True):
            if optional and head == -1:
                values[name] = None
            elif kind in _MOST and 0 <= head <= _MOST[kind]:
                values[name] = head == 1 if kind == "flag" else head
            elif kind in _MOST or not 0 <= head <= len(data) - at:
                raise _wrong(name, kind, head)
            else:
                values[name] = _value_of(name, kind, data[at : at + head])
                at += head
        if at != len(data):
            raise ProtocolError("a message of the depot is too long", expected=at, found=f"{len(data)} bytes")
        return values


def _bytes_of(name: str, kind: str, value: Any) -> bytes:
    try:
        if kind == "bytes":
            return bytes(memoryview(value))
        if kind == "list" and isinstance(value, (list, tuple)):
            pieces = [each.encode() if isinstance(each, str) else bytes(memoryview(each)) for each in value]
            return b"".join(piece for each in pieces for piece in (_LENGTH.pack(len(each)), each))
        if 0 < len(value) <= _MOST_CHARACTERS[kind]:
            data: bytes = value.encode()
            return data
    except (TypeError, AttributeError, KeyError, UnicodeEncodeError, struct.error):
        pass
    raise _wrong(name, kind, value)


def _value_of(name: str, kind: str, data: bytes) -> Any:
    if kind == "bytes":
        return data
    if kind == "list":
        pieces, at = [], 0
        while at < len(data):
            start = at + _LENGTH.size
            at = start + (_LENGTH.unpack_from(data, at)[0] if start <= len(data) else 0)
            if at > len(data):
                raise _wrong(name, kind, data)
            pieces.append(data[start:at])
        return pieces
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise _wrong(name, kind, data) from None
    if not 0 < len(text) <= _MOST_CHARACTERS[kind]:
        raise _wrong(name, kind, text)
    return text


def texts(name: str, pieces: list[bytes]) -> list[str]:
    """Return the text of each piece of a list."""
    return [_value_of(name, "text", piece) for piece in pieces]


def _wrong(name: str, kind: str, found: object) -> ProtocolError:
    return ProtocolError(
        f"{name} in a message of the depot", expected=_EXPECTED[kind], found=repr(found)[:80]
    )


# What is in a list of the messages below.
COMMITTED: Final = Record(
    "uri:long ticket:bytes elsewhere:long? host:text? partition:number attempt:number num_rows:number "
    "num_batches:number nbytes:number"
)
STAY: Final = Record("name:name seconds:seconds")
REPLACED: Final = Record("part:name depots:list")

_NOTHING: Final = Record()
# What each request says, and its answer.
MESSAGES: Final[dict[int, tuple[Record, Record]]] = {
    Verb.HELLO: (
        Record("version:number token:text?"),
        Record("pid:number remote:text? options:long address_space:number? kept:flag token:text?"),
    ),
    Verb.BEGIN: (
        Record(
            "application:text dataset:name partition:number attempt:number readers:number? spill_folder:text? "
            "mapped:bytes"
        ),
        Record("gone:bytes"),
    ),
    Verb.BORROW: (
        Record("nbytes:number wanted:number wait:seconds"),
        Record("slab:number nbytes:number uuid:bytes"),
    ),
    Verb.COMMIT: (Record("kept:bytes parts:bytes"), COMMITTED),
    Verb.ABORT: (Record("kept:bytes"), _NOTHING),
    Verb.HOLD: (
        Record(
            "application:text lease_seconds:seconds? watch_pid:number? pid_namespace:number? unattended:flag?"
        ),
        Record("watched:flag"),
    ),
    Verb.SETTLE: (Record("dataset:text tickets:list ttl:seconds? name:text?"), Record("kept:number")),
    Verb.RELEASE: (Record("dataset:text final:flag?"), Record("known:flag")),
    Verb.END: (Record("application:text stays:list?"), Record("known:flag")),
    Verb.OFFERED: (Record("dataset:text"), Record("streams:list")),
    Verb.WAIT_RELEASED: (Record("dataset:text timeout:seconds"), _NOTHING),
    Verb.ANNOUNCE: (
        Record(
            "name:text dataset:long application:text version:name append:flag? new:flag? batch:number? once:text? "
            "part:name? depots:list? ttl:seconds? state:long? note:long?"
        ),
        Record("changed:flag replaced:list note:long?"),
    ),
    Verb.LOOKUP: (
        Record("name:text first:number? last:number? joined:flag?"),
        Record("dataset:long position:text state:long?"),
    ),
    Verb.DROP: (Record("name:text"), Record("replaced:list")),
    Verb.LIST: (_NOTHING, Record("names:list")),
    Verb.CHECK_NAME: (Record("name:text application:text new:flag"), Record("given_up:list")),
    Verb.STATUS: (_NOTHING, Record("status:long")),
    Verb.LISTEN: (Record("address:text"), Record("remote:text")),
    Verb.STOP: (Record("application:text? if_empty:flag?"), Record("stopped:flag elsewhere:list")),
}


class Answer(NamedTuple):
    """What the depot says, and the descriptors that came beside it."""

    fields: dict[str, Any]
    descriptors: tuple[int, ...]


class DepotConnection:
    """A connection to a depot, after the hello; the address has ``?token=…`` where one is needed."""

    def __init__(self, address: str, seconds: float, tls: TlsConfig | ssl.SSLContext | None = None) -> None:
        where, token = address.partition("?")[0], token_of(address)
        self._lock = threading.Lock()
        self.address = address
        self._channel = dial(where, DEPOT_LIMITS, seconds, tls=tls)
        try:
            said = self.ask(Verb.HELLO, {"version": VERSION, "token": token}, seconds).fields
            self.pid: int = said["pid"]
            self.remote_address: str | None = said["remote"]
            self.options: str = said["options"]
            self.address_space: int | None = said["address_space"]
            self.kept: bool = said["kept"]
            # Two containers may have the same path: a depot is known by its token.
            self.token: str | None = said["token"] or token
            if token not in (None, self.token):
                raise BrokenError("a depot ended, or is elsewhere: another one has its address", where=where)
        except BaseException:
            self._channel.close()
            raise

    def ask(self, verb: Verb, fields: Mapping[str, Any], seconds: float) -> Answer:
        asks, says = MESSAGES[verb]
        body = asks.pack(fields)
        with self._lock:
            try:
                self._channel.send([Message(verb, [body])], DEPOT_LIMITS.stall_timeout)
                received = self._channel.receive(seconds)
                if received is None:
                    raise DeadlineExceeded(f"the depot did not answer in {seconds:g} s", found=repr(verb))
            except BaseException:
                # An answer to this, that comes later, must not be taken for one to the next request.
                self._channel.close()
                raise
        descriptors = tuple(each for each in received.attachments if isinstance(each, int))
        try:
            if received.tag == Control.ERROR:
                raise unpack_error(received.body)
            if received.tag != Verb.DONE:
                raise ProtocolError("the depot answers something else", found=f"tag {received.tag}")
            return Answer(says.unpack(received.body), descriptors)
        except BaseException:
            close_all(descriptors)
            raise

    def listen(self, tcp: str, *, encrypted: bool | None) -> None:
        """Let the depot listen for other hosts where it does not; with encryption, or without, where that is
        asked.
        """
        if self.remote_address is None:
            answer = self.ask(Verb.LISTEN, {"address": tcp}, DEPOT_LIMITS.connect_timeout)
            self.remote_address = answer.fields["remote"]
        bare = self.remote_address.partition("?")[0]
        near = is_loopback(bare) and not is_loopback(tcp)
        if near or encrypted not in (None, encrypts(bare)):
            raise UsageError(
                "the depot listens for other hosts already, "
                + ("where only this one reaches it" if near else "with other encryption"),
                expected=tcp,
                found=bare,
                hint="Ask with depot.Options(tls=…), or (plaintext=True), once it holds no data.",
            )

    def tell(self, pieces: Sequence[bytes]) -> None:
        """Send parts of an attempt, which are not answered."""
        with self._lock:
            self._channel.send([Message(Verb.PARTS, pieces)], DEPOT_LIMITS.stall_timeout)

    def wait_exited(self, seconds: float) -> bool:
        """Return whether the depot's process is gone, waiting for that; true where nobody can know."""
        peer = self._channel.peer
        return peer.pidfd is None or peer.exited(seconds)

    def close(self) -> None:
        self._channel.close()

    @property
    def closed(self) -> bool:
        return self._channel.closed
