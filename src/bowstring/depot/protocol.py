"""The protocol of the depot and its clients: one request, one answer, over a channel.

A request is a tagged message whose tag is a :class:`Verb` and whose body is a JSON object. The answer is tagged
:attr:`Verb.DONE` (a JSON object, with descriptors of lent slabs) or :attr:`Verb.FAILED` (an error).
What an attempt writes is described by untagged messages, which are not answered; an error in one is reported in
the answer to the next request. The first request is the hello, in which each side gives its version.
"""

from __future__ import annotations

import enum
import json
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from bowstring import errors
from bowstring.dissociated.failures import DETAILS, details_of
from bowstring.dissociated.location import token_of
from bowstring.errors import (
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    ProtocolError,
    RefusedError,
    UsageError,
)
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Message, dial, encrypts, is_loopback
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from bowstring.limits import Limits
    from bowstring.transport.certificates import TlsConfig

VERSION: Final = 3

CONTROL_LIMITS: Final[Limits] = DEFAULT_LIMITS.replace(control_bytes=64 << 20)
# Of clients on other hosts, who write nothing.
REMOTE_LIMITS: Final[Limits] = CONTROL_LIMITS.replace(metadata_bytes=1)

# How it is with the job that makes a data set; any other text is the error with which it failed.
RUNNING: Final = "running"
COMPLETE: Final = "complete"
LOST: Final = "lost"

_WORDS: Final = (0xB2 << 56) | 0xFFFF_FF00
_MOST_TEXT: Final = 4096


class Verb(enum.IntEnum):
    """The tags. None is ever given another meaning; HELLO, DRAIN and FAILED are the same in every version."""

    HELLO = _WORDS | 0x01
    DRAIN = _WORDS | 0x02
    FAILED = _WORDS | 0x03
    DONE = _WORDS | 0x04
    BEGIN = _WORDS | 0x10
    BORROW = _WORDS | 0x11
    COMMIT = _WORDS | 0x12
    ABORT = _WORDS | 0x13
    HOLD = _WORDS | 0x20
    SETTLE = _WORDS | 0x21
    RELEASE = _WORDS | 0x22
    END = _WORDS | 0x23
    OFFERED = _WORDS | 0x24
    WAIT_RELEASED = _WORDS | 0x25
    ANNOUNCE = _WORDS | 0x26
    LOOKUP = _WORDS | 0x27
    DROP = _WORDS | 0x28
    LIST = _WORDS | 0x29
    CHECK_NAME = _WORDS | 0x2A
    STATUS = _WORDS | 0x30
    LISTEN = _WORDS | 0x31
    STOP = _WORDS | 0x32


def pack(fields: dict[str, Any]) -> bytes:
    """Return the body of a request or an answer."""
    return json.dumps(fields, separators=(",", ":")).encode()


class Fields:
    """The body of a request or an answer, read with checks."""

    def __init__(self, body: Any) -> None:
        data = bytes(body)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ProtocolError("a message of the depot is not JSON", found=repr(data[:40])) from error
        if not isinstance(found, dict):
            raise ProtocolError("a message of the depot is not a JSON object", found=type(found).__name__)
        self._fields: dict[str, Any] = found

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Return an object that is inside of another."""
        made = cls.__new__(cls)
        made._fields = fields
        return made

    def inside(self, name: str) -> Self:
        """Return the object in a field, an empty one where there is none."""
        value = self._fields.get(name, {})
        if not isinstance(value, dict):
            raise _wrong(name, "an object", value)
        return self.of(value)

    def each(self, name: str) -> list[Self]:
        """Return the objects of a list."""
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise _wrong(name, "a list of objects", value)
        return list(map(self.of, value))

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number, 0 or more and of at most 63 bits."""
        value = self._fields.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise _wrong(name, "a number", value)
        return value

    def seconds(self, name: str, default: float | None = None) -> float:
        """Return a time, finite and 0 or more."""
        value = self._fields.get(name, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e9:
            raise _wrong(name, "a number of seconds", value)
        return float(value)

    def maybe_seconds(self, name: str) -> float | None:
        """Return a time, or ``None`` where there is none."""
        return None if self._fields.get(name) is None else self.seconds(name)

    def text(self, name: str, longest: int = _MOST_TEXT) -> str:
        """Return a string that can be printed, and is not empty."""
        value = self._fields.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= longest or not _is_plain(value):
            raise _wrong(name, f"text of 1 to {longest} characters", value)
        return value

    def maybe_text(self, name: str, longest: int = _MOST_TEXT) -> str | None:
        """Return a string, or ``None`` where there is none."""
        return None if self._fields.get(name) is None else self.text(name, longest)

    def maybe_number(self, name: str) -> int | None:
        """Return a whole number, or ``None`` where there is none."""
        return None if self._fields.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        """Return a truth value, false where there is none."""
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise _wrong(name, "true or false", value)
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of strings."""
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(
            isinstance(each, str) and _is_plain(each) for each in value
        ):
            raise _wrong(name, "a list of text", value)
        return list(value)

    def numbers(self, name: str) -> list[int]:
        """Return a list of whole numbers."""
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise _wrong(name, "a list of numbers", value)
        return list(value)

    def raw(self) -> dict[str, Any]:
        """Return the whole object."""
        return self._fields


def pack_failure(error: BaseException) -> bytes:
    """Return the body of an answer that says no."""
    if isinstance(error, ClosedError):
        error = BrokenError("the depot ends", found=str(error))
    if not isinstance(error, BowstringError):
        error = RefusedError("the depot failed", found=f"{type(error).__name__}: {error}"[:2000])
    kind = next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in errors.__all__)
    # A field that is there is never empty.
    details = {name: "nothing" if text == "" else text for name, text in details_of(error).items()}
    return pack({"kind": kind, **details, "version": VERSION})


def failure_of(body: Any) -> BowstringError:
    """Return the error that an answer says."""
    fields = Fields(body)
    kind = fields.maybe_text("kind", 100)
    cls = getattr(errors, kind) if kind in errors.__all__ else RefusedError
    details = {name: fields.maybe_text(name) for name in DETAILS}
    made: BowstringError = cls(details.pop("what") or "the depot failed", **details)
    return made


def _is_plain(text: str) -> bool:
    """Whether text can be printed: half a surrogate pair cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong(name: str, expected: str, found: object) -> ProtocolError:
    return ProtocolError(f"{name} in a message of the depot", expected=expected, found=repr(found)[:80])


class Answer(NamedTuple):
    """What the depot says, and the descriptors that came beside it."""

    fields: Fields
    descriptors: tuple[int, ...]


class Connection:
    """A connection to a depot, after the hello; the address has ``?token=…`` where one is needed."""

    def __init__(self, address: str, seconds: float, tls: TlsConfig | ssl.SSLContext | None = None) -> None:
        where, token = address.partition("?")[0], token_of(address)
        self._lock = threading.Lock()
        self.address = address
        self._channel = dial(where, CONTROL_LIMITS, seconds, tls=tls)
        try:
            said: dict[str, Any] = {"version": VERSION}
            if token is not None:
                said["token"] = token
            answer = self.ask(Verb.HELLO, said, seconds).fields
            self.pid = answer.number("pid")
            self.remote_address = answer.maybe_text("remote")
            self.options = answer.maybe_text("options")
            self.address_space = answer.maybe_number("address_space")
            self.kept = answer.flag("kept")
            # Two containers may have the same path: a depot is known by its token.
            self.token = answer.maybe_text("token") or token
            if token not in (None, self.token):
                raise BrokenError("a depot ended, or is elsewhere: another one has its address", where=where)
        except BaseException:
            self._channel.close()
            raise

    def ask(self, verb: Verb, fields: dict[str, Any], seconds: float) -> Answer:
        """Return the answer to a request."""
        with self._lock:
            try:
                self._channel.send([Message(verb, [pack(fields)])], CONTROL_LIMITS.stall_timeout)
                received = self._channel.receive(seconds)
                if received is None:
                    raise DeadlineExceeded(f"the depot did not answer in {seconds:g} s", found=repr(verb))
            except BaseException:
                # An answer to this, that comes later, must not be taken for one to the next request.
                self._channel.close()
                raise
        descriptors = tuple(each for each in received.attachments if isinstance(each, int))
        if received.tag == Verb.FAILED:
            close_all(descriptors)
            raise failure_of(received.body)
        try:
            if received.tag != Verb.DONE:
                raise ProtocolError("the depot answers something else", found=f"tag {received.tag}")
            return Answer(Fields(received.body), descriptors)
        except BaseException:
            close_all(descriptors)
            raise

    def listen(self, tcp: str, *, encrypted: bool | None) -> None:
        """Let the depot listen for other hosts where it does not; with encryption, or without, where that is
        asked.
        """
        if self.remote_address is None:
            answer = self.ask(Verb.LISTEN, {"address": tcp}, CONTROL_LIMITS.connect_timeout)
            self.remote_address = answer.fields.text("remote")
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
        """Send what is not answered."""
        with self._lock:
            self._channel.send([Message(None, pieces)], CONTROL_LIMITS.stall_timeout)

    def wait_exited(self, seconds: float) -> bool:
        """Return whether the depot's process is gone, waiting for that; true where nobody can know."""
        peer = self._channel.peer
        return peer.pidfd is None or peer.exited(seconds)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    @property
    def closed(self) -> bool:
        """Whether this side hung up."""
        return self._channel.closed
