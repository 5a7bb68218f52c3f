"""The bytes of every message besides Arrow's own metadata and bodies.

Everything is little-endian. Hello, welcome and error (:mod:`bowstring.dissociated.failures`) are small JSON
objects, so that they can grow; unknown keys are ignored. ``docs/protocol.md`` has them all.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.dissociated.tags import SEQUENCE_MASK, Control
from bowstring.errors import ProtocolError
from bowstring.memory import Handle, KeyedHandle, LentHandle, unpack_handle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

VERSION: Final = 1
END: Final = 0
METADATA: Final = 1

PREFIX: Final = struct.Struct("<BI")
ROW_BYTES: Final = 16
"""Of a body of pointers: an address and a length, or its total and its count."""
PREFIX_BYTES: Final = PREFIX.size
_U64: Final = struct.Struct("<Q")
_MOST_TICKET: Final = 4096
_LONGEST_HELLO: Final = 2048


@dataclasses.dataclass(slots=True)
class Outgoing:
    """A message that a state machine wants sent: untagged if `tag` is ``None``.

    `attachment` is a region whose memory must travel beside the message.
    """

    tag: int | None
    pieces: Sequence[Any]
    attachment: Any = None


@dataclasses.dataclass(slots=True)
class Hello:
    """What a client sends first: how it wants the data."""

    columns: tuple[str, ...] | None = None  # names in the order wanted; None for all
    window: int = 0  # credit in bytes
    pointers: bool = False  # can map the regions that bodies of type 1 point into
    token: str | None = None  # the server's secret
    version: int = VERSION
    # place (:attr:`~bowstring.memory.handle.Process.place`) of processes whose driver handles it can open
    ipc: str | None = None
    # opens announced regions before the question about devices, and answers whether it could
    tries: bool = False
    events: bool = False  # its streams can wait for an event of the producer
    shard: tuple[int, int] | None = None  # (i, n), 0 <= i < n: part i of n of the data set; None for all
    partitions: int = 0  # how many partitions may be under way that its user has not taken; 0: one data set
    # only looks, not counted as a reader: LOOK after the hello, refused by producers that do not know it
    looks: bool = False
    # FOLLOW after the hello, refused likewise: goes on as the data set grows; begins at a position, as text
    follow: bool = False
    since: str | None = None

    @property
    def follows(self) -> bool:
        return self.follow or self.since is not None

    def pack(self) -> bytes:
        return json.dumps(dict(zip(_HELLO_FIELDS, _hello_fields(self), strict=True))).encode()

    def say(self, tag: int) -> list[Outgoing]:
        """Return the hello, whose tag the server names, and what goes beside it."""
        packed, beside = self.pack(), []
        if len(packed) > _LONGEST_HELLO and self.columns:
            # A server accepts few bytes before the hello, by which it authenticates the reader.
            packed = dataclasses.replace(self, columns=None).pack()
            columns = json.dumps({"columns": list(self.columns)}).encode()
            beside.append(Outgoing(Control.COLUMNS, [columns]))
        if self.looks:
            beside.append(Outgoing(Control.LOOK, []))
        if self.follows:
            follow = json.dumps({"follow": self.follow, "since": self.since}).encode()
            beside.append(Outgoing(Control.FOLLOW, [follow]))
        return [Outgoing(tag, [packed]), *beside]

    def hear(self, tag: int, body: bytes) -> Hello | None:
        """Return the hello with what a message beside it says; ``None`` where the message is another one."""
        may_look = not (self.looks or self.partitions or self.follows)
        match tag:
            case Control.COLUMNS:
                if self.columns is not None:
                    raise ProtocolError("columns come once, and a hello that names none comes first")
                columns = _columns(json_object(body, "message of columns"))
                return dataclasses.replace(self, columns=columns)
            case Control.LOOK if may_look:
                return dataclasses.replace(self, looks=True)
            case Control.FOLLOW if may_look:
                fields = json_object(body, "message of a follower")
                follow, since = fields.get("follow"), fields.get("since")
                if not (
                    isinstance(follow, bool) and (since is None or _is_text(since)) and (follow or since)
                ):
                    raise ProtocolError(
                        "a follower says whether it follows, and from which position",
                        found=f"{_shown(follow)}, {_shown(since)}",
                    )
                return dataclasses.replace(self, follow=follow, since=since)
        return None

    @classmethod
    def unpack(cls, data: bytes) -> Hello:
        fields = json_object(bytes(data), "hello")
        columns = _columns(fields)
        window = fields.get("window", 0)
        token = fields.get("token")
        if type(window) is not int or not 0 <= window < 1 << 63:
            raise ProtocolError("the window in a hello must be a number of bytes", found=_shown(window))
        if token is not None and not isinstance(token, str):
            raise ProtocolError("the token in a hello must be a string")
        partitions = fields.get("partitions", 0)
        if type(partitions) is not int or not 0 <= partitions < 1 << 31:
            raise ProtocolError("partitions in a hello must be a number of them", found=_shown(partitions))
        version = fields.get("version")
        if type(version) is not int or version < 1:
            raise ProtocolError("the hello has no version", expected=VERSION, found=_shown(version))
        return cls(
            columns,
            window,
            fields.get("pointers") is True,
            token,
            version,
            text_of(fields, "ipc", 200),
            fields.get("tries") is True,
            fields.get("events") is True,
            _shard(fields.get("shard")),
            partitions,
        )


# The others travel beside it.
_HELLO_FIELDS: Final = tuple(
    each.name for each in dataclasses.fields(Hello) if each.name not in ("looks", "follow", "since")
)
_hello_fields: Final = operator.attrgetter(*_HELLO_FIELDS)


@dataclasses.dataclass(slots=True)
class Welcome:
    """How a server answers a hello and a ticket: what is to come."""

    # each batch costs credit until its lease ends (produced lazily) or it is delivered (packed)
    charged: bool
    path: str  # of the bodies; `why` says the reason in words
    why: str
    num_rows: int | None = None  # None where not known beforehand, as the next two
    num_batches: int | None = None
    nbytes: int | None = None
    patience: float | None = None  # seconds without an answer until the server drops the reader
    version: int = VERSION
    ticket: str | None = None  # names this version of the data set
    begins: int | None = None  # index, in the version, of the first batch, where that is not 0

    def pack(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__slots__}
        if self.begins is None:
            del fields["begins"]
        return json.dumps(fields).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Welcome:
        fields = json_object(bytes(data), "welcome")

        def number(name: str) -> int | None:
            value = fields.get(name)
            return value if type(value) is int and 0 <= value < 1 << 63 else None

        patience: Any = fields.get("patience")
        is_time = type(patience) in (int, float) and patience >= 0
        return cls(
            fields.get("charged") is True,
            text_of(fields, "path", 200) or "",
            text_of(fields, "why", 500) or "",
            number("num_rows"),
            number("num_batches"),
            number("nbytes"),
            patience if is_time else None,
            number("version") or VERSION,
            text_of(fields, "ticket", _MOST_TICKET),
            number("begins"),
        )


def _shard(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value):
        index, count = value
        if 0 <= index < count < 1 << 31:
            return index, count
    raise ProtocolError("a shard is a number and how many there are", found=_shown(value))


def _columns(fields: dict[str, Any]) -> tuple[str, ...] | None:
    columns = fields.get("columns")
    if columns is None:
        return None
    if not (isinstance(columns, list) and all(map(_is_text, columns))):
        raise ProtocolError("columns in a hello must be a list of names", found=_shown(columns))
    return tuple(columns)


def json_object(data: bytes, what: str) -> dict[str, Any]:
    """Return the fields of a message that is a JSON object."""
    try:
        fields = json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the {what} is not JSON", found=repr(bytes(data[:40]))) from error
    if not isinstance(fields, dict):
        raise ProtocolError(f"the {what} is not a JSON object", found=type(fields).__name__)
    return fields


def text_of(fields: dict[str, Any], name: str, longest: int) -> str | None:
    """Return a string of the peer's that can be printed wherever it goes: half a surrogate pair cannot."""
    value = fields.get(name)
    if not isinstance(value, str):
        return None
    return value[:longest] if value.isascii() else value[:longest].encode(errors="replace").decode()


def _is_text(value: object) -> bool:
    """Whether a value is a string that UTF-8 can encode: JSON can escape half a surrogate pair."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _shown(value: object) -> str:
    # A nested value is named by its type: its repr may be deeper than Python's stack.
    return type(value).__name__ if isinstance(value, (list, dict)) else ascii(value)[:80]


def pack_prefix(kind: int, sequence: int) -> bytes:
    """Return the 5 bytes that begin an untagged message (specification: *Metadata Stream Sequence*)."""
    return PREFIX.pack(kind, sequence & SEQUENCE_MASK)


def unpack_prefix(message: bytes | memoryview) -> tuple[int, int, memoryview]:
    """Return (message type, sequence number, flatbuffer bytes) of an untagged message."""
    view = memoryview(message)
    if len(view) < PREFIX.size:
        raise ProtocolError("an untagged message is too short", expected="5 bytes or more", found=len(view))
    kind, sequence = PREFIX.unpack_from(view)
    rest = view[PREFIX.size :]
    if kind not in (END, METADATA):
        raise ProtocolError("an untagged message has an unknown type", expected="0 or 1", found=kind)
    if kind == END and len(rest):
        raise ProtocolError("an end of stream is not 5 bytes long", found=len(view))
    return kind, sequence, rest


def pack_pairs(pairs: npt.NDArray[np.uint64], total: int) -> bytes:
    """Return a body of type 1: total bytes, number of buffers, then (address, length) of each."""
    head = np.array([[total, len(pairs)]], np.uint64)
    return np.concatenate([head, pairs]).astype("<u8", copy=False).tobytes()


def unpack_pairs(body: bytes | memoryview) -> tuple[int, npt.NDArray[np.uint64]]:
    """Return (total bytes, pairs of shape ``(n, 2)``) of a body of type 1."""
    if len(body) < 16 or len(body) % 16:
        raise ProtocolError("a body of pointers has an odd length", found=len(body))
    table = np.frombuffer(body, "<u8").reshape(-1, 2)
    total, count = table[0].tolist()
    pairs = table[1:]
    if count != len(pairs):
        raise ProtocolError("a body of pointers miscounts its buffers", expected=count, found=len(pairs))
    summed = sum(pairs[:, 1].tolist())  # as Python integers: lengths near 2**64 must not wrap
    if summed != total:
        raise ProtocolError("a body of pointers gives a wrong total", expected=summed, found=total)
    return total, pairs


def pack_addresses(addresses: npt.NDArray[np.uint64]) -> bytes:
    """Return a ``free_data`` message."""
    return addresses.astype("<u8", copy=False).tobytes()


def unpack_addresses(body: bytes | memoryview) -> list[int]:
    """Return the addresses in a ``free_data`` message."""
    if not len(body) or len(body) % 8:
        raise ProtocolError("a free_data message is not a list of uint64", found=f"{len(body)} bytes")
    addresses: list[int] = np.frombuffer(body, "<u8").tolist()
    return addresses


def pack_region(base: int, handle: Handle | LentHandle | KeyedHandle) -> bytes:
    """Return the announcement of a region: where it lies in the stream, and its handle."""
    return _U64.pack(base) + handle.pack()


def unpack_region(body: bytes | memoryview) -> tuple[int, Handle | LentHandle | KeyedHandle]:
    """Return (base, handle) of an announcement."""
    if len(body) < _U64.size:
        raise ProtocolError("the announcement of a region is too short", found=len(body))
    return _U64.unpack_from(body)[0], unpack_handle(bytes(body[_U64.size :]))


def pack_u64(value: int) -> bytes:
    """Return a number as 8 bytes."""
    return _U64.pack(value)


def unpack_u64(body: bytes | memoryview) -> int:
    """Return the number in a message of 8 bytes."""
    if len(body) != _U64.size:
        raise ProtocolError("a control message has the wrong length", expected=_U64.size, found=len(body))
    value: int = _U64.unpack(body)[0]
    return value


_DEVICE: Final = struct.Struct("<I16s")
_MOST_DEVICES: Final = 256
_MOST_WHY: Final = 500


class DeviceId(NamedTuple):
    """What a device is called in every process: its ``ArrowDeviceType``, and 16 bytes."""

    arrow_device_type: int
    uuid: bytes


def pack_devices(devices: Iterable[DeviceId]) -> bytes:
    """Return the question whether the reader can map memory of some devices."""
    return b"".join(_DEVICE.pack(*device) for device in devices)


def unpack_devices(body: bytes | memoryview) -> tuple[DeviceId, ...]:
    """Return the devices that a question names."""
    count, rest = divmod(len(body), _DEVICE.size)
    if rest or not 0 < count <= _MOST_DEVICES:
        raise ProtocolError(
            "a list of devices has the wrong length",
            expected=f"1 to {_MOST_DEVICES} times {_DEVICE.size} bytes",
            found=len(body),
        )
    return tuple(DeviceId(*fields) for fields in _DEVICE.iter_unpack(body))


def pack_answer(why_not: str) -> bytes:
    """Return the reader's answer: nothing if it can map memory of all these devices, else why not."""
    return why_not[:_MOST_WHY].encode(errors="replace")


def unpack_answer(body: bytes | memoryview) -> str:
    """Return why a reader cannot map memory of a device; empty if it can."""
    return bytes(body).decode(errors="replace")[:_MOST_WHY]
