"""Every error that Bowstring raises, in one tree.

::

    BowstringError
    ├── UsageError (ValueError)               a call that cannot mean anything
    │   ├── UnknownColumn (KeyError, IndexError)  no column, or several, of that name or position
    │   ├── MissingDependency (ImportError)   an extra is not installed; says which
    │   ├── MissingFile (FileNotFoundError)   there is no such file or folder
    │   ├── NotWritable (PermissionError)     a file, or its folder, may not be written
    │   ├── NotPicklable (TypeError)          the object belongs to this process
    │   ├── ForkedError (RuntimeError)        used in a child of the process that made it
    │   ├── ViewsAlive (BufferError)          memory cannot change hands while views of it live
    │   ├── NotExportable (BufferError)       the data cannot be handed out in the form asked for
    │   └── NotOnDevice                       the memory is on another device than the call needs
    ├── Unsupported (NotImplementedError)     valid, but not done by Bowstring; named
    ├── ClosedError (ValueError)              you closed it
    ├── BrokenError (ConnectionError)         the peer, or the path to it, is gone
    │   ├── ProtocolError                     the peer sent what the protocol forbids
    │   └── LeaseExpired                      the peer took its memory back: we did not answer in time
    ├── DeviceError (RuntimeError)            the driver of a device refuses, or the device is gone
    ├── EndOfStream (EOFError, StopIteration) there are no more batches
    ├── DeadlineExceeded (TimeoutError)       nothing happened in the time allowed
    ├── RefusedError                          the peer refused
    │   ├── UnknownTicket (LookupError)       it has no such data set (any more)
    │   │   ├── UnknownName                   it offers no data set of that name
    │   │   ├── DatasetReplaced               the name stands for another version than the one that is read
    │   │   └── DatasetWithdrawn              the version that is followed was withdrawn
    │   ├── PositionExpired (LookupError)     the batches at that position are no longer kept
    │   ├── AccessDenied (PermissionError)    wrong token, wrong user
    │   └── ProducerFailed                    the code that makes the batches raised
    ├── LimitExceeded                         a bound of ``Limits`` would be passed
    │   ├── OutOfBudget (MemoryError)         the pool has no room
    │   └── Starved                           the reader itself holds all the credit
    └── InvalidData (ValueError)              bytes that are not what the format says
        ├── InvalidMetadata                   … in a message's metadata
        ├── InvalidBody                       … in a message's body, or in the buffers of a batch
        ├── InvalidRegion                     … in a region that somebody handed to us
        └── Truncated (OSError)               the bytes end too early

*Closed*, *broken*, *end of stream*, *timed out* and *lease expired* are five different things, and no
error is ever read as the end of a stream. Each message says what was expected, what was found, where, and
what to do about it.
"""

from __future__ import annotations

import errno
import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import FrameType

__all__ = [
    "AccessDenied",
    "BowstringError",
    "BrokenError",
    "ClosedError",
    "DatasetReplaced",
    "DatasetWithdrawn",
    "DeadlineExceeded",
    "DeviceError",
    "EndOfStream",
    "ForkedError",
    "InvalidBody",
    "InvalidData",
    "InvalidMetadata",
    "InvalidRegion",
    "LeaseExpired",
    "LimitExceeded",
    "MissingDependency",
    "MissingFile",
    "NotExportable",
    "NotOnDevice",
    "NotPicklable",
    "NotWritable",
    "OutOfBudget",
    "PositionExpired",
    "ProducerFailed",
    "ProtocolError",
    "RefusedError",
    "Starved",
    "Truncated",
    "UnknownColumn",
    "UnknownName",
    "UnknownTicket",
    "Unsupported",
    "UsageError",
    "ViewsAlive",
]


def __dir__() -> list[str]:
    return __all__


class BowstringError(Exception):
    """The root of the tree.

    Parameters
    ----------
    what
        One clause that says what went wrong.
    expected, found
        What the specification or the call asked for, and what was there.
    where
        The place: a message's sequence number, a field's path, a byte offset.
    hint
        What the reader of the message can do.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: object = None,
        found: object = None,
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.expected = expected
        # An error that was found would keep the frames that it passed.
        self.found = str(found) if isinstance(found, BaseException) else found
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.what]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.found is not None:
            parts.append(f"found {self.found}")
        if self.where:
            parts.append(f"at {self.where}")
        text = "; ".join(parts)
        return f"{text}. {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        details = {name: getattr(self, name) for name in ("expected", "found", "where", "hint")}
        return (_rebuild, (type(self), self.what, details))


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint for a name that is not known: the nearest that is, or what to say if none is near."""
    import difflib

    near = difflib.get_close_matches(name, list(known), 1)
    return f"Did you mean {near[0]!r}?" if near else otherwise


_Error = TypeVar("_Error", bound=BaseException)


def without_frames(error: _Error) -> _Error:
    """Return an error that keeps nothing alive: it, its causes and contexts lose their tracebacks.

    Frames hold buffers, connections and streams, which would stay until the garbage collector found them.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += [each.__cause__, each.__context__]
    return error


def _rebuild(cls: type[BowstringError], what: str, details: dict[str, Any]) -> BowstringError:
    return cls(what, **details)


class UsageError(BowstringError, ValueError):
    """A call that cannot mean anything."""


class UnknownColumn(UsageError, KeyError, IndexError):
    """There is no column, or several, of that name or position."""


class MissingDependency(UsageError, ImportError):
    """A package that this call needs is not installed."""


class MissingFile(UsageError, FileNotFoundError):
    """There is no such file, or no such folder; its ``errno`` is ``ENOENT``."""

    errno = errno.ENOENT


class NotWritable(UsageError, PermissionError):
    """A file cannot be written, or not be replaced; its ``errno`` is ``EACCES``."""

    errno = errno.EACCES


class NotPicklable(UsageError, TypeError):
    """The object is tied to this process and cannot be sent to another one by pickle."""


class ForkedError(UsageError, RuntimeError):
    """The object was made before a fork and is used in the child."""


class ViewsAlive(UsageError, BufferError):
    """Memory cannot be released or frozen while views of it are alive."""


class NotExportable(UsageError, BufferError):
    """The data cannot be handed out in the form asked for: an array of numbers, a tensor; says which column."""


class NotOnDevice(UsageError):
    """The memory is on another device than the call needs."""


class Unsupported(BowstringError, NotImplementedError):
    """Valid input that Bowstring does not handle."""


class ClosedError(BowstringError, ValueError):
    """The object was closed on this side; a ``ValueError``, as for files of Python and of pyarrow."""


class BrokenError(BowstringError, ConnectionError):
    """The peer, or the connection to it, is gone."""


class ProtocolError(BrokenError):
    """The peer sent what the protocol forbids."""


class LeaseExpired(BrokenError):
    """The peer took its memory back because this side did not answer in time."""


class DeviceError(BowstringError, RuntimeError):
    """The driver of a device refuses a call, or the device is gone; the message names the call and the error."""


class EndOfStream(BowstringError, EOFError, StopIteration):
    """There are no more batches; a ``StopIteration``, as from pyarrow's readers.

    Inside a generator catch it: Python makes a ``RuntimeError`` of any ``StopIteration`` that leaves a generator.
    """


class DeadlineExceeded(BowstringError, TimeoutError):
    """Nothing happened in the time allowed."""


class RefusedError(BowstringError):
    """The peer refused."""


class UnknownTicket(RefusedError, LookupError):
    """The server has no such data set, or has it no longer."""


class UnknownName(UnknownTicket):
    """The server offers no data set of that name."""


class DatasetReplaced(UnknownTicket):
    """The name stands for another version than the one that was followed, or that a position belongs to."""


class DatasetWithdrawn(UnknownTicket):
    """The data set that was followed was withdrawn before it was finished."""


class PositionExpired(RefusedError, LookupError):
    """The server no longer keeps the batches from that position on (``retain=``)."""


class AccessDenied(RefusedError, PermissionError):
    """The peer is not allowed in: wrong token, another user, or a certificate that is not accepted."""


class ProducerFailed(RefusedError):
    """The code that makes the batches raised in the producer's process."""


class LimitExceeded(BowstringError):
    """A bound of :class:`bowstring.Limits` would be passed."""


class OutOfBudget(LimitExceeded, MemoryError):
    """The pool of regions has no room within its budget."""


class Starved(LimitExceeded):
    """The reader itself holds all the credit, so no further batch can come."""


class InvalidData(BowstringError, ValueError):
    """Bytes that are not what the format says."""


class InvalidMetadata(InvalidData):
    """The metadata of a message is not valid."""


class InvalidBody(InvalidData):
    """The body of a message, or a buffer of a batch, is not valid."""


class InvalidRegion(InvalidData):
    """A region handed over by a peer is not what it claims to be."""


class Truncated(InvalidData, OSError):
    """The bytes end too early; an ``OSError``, as from pyarrow's readers."""


def first_line(error: BaseException) -> str:
    """Return what an error of another library says, for the ``found`` of one of Bowstring's."""
    return str(error).partition("\n")[0][:300]


def warn_caller(texts: Sequence[str], kind: type[Warning] = UserWarning) -> None:
    """Warn of each text where the package was called: of all of them, also where warnings are errors."""
    if texts:
        try:
            warnings.warn(texts[0], kind, stacklevel=_level_outside())
        finally:
            warn_caller(texts[1:], kind)


def _level_outside() -> int:
    """Return the `stacklevel`, for the function that calls this, of the first frame outside of the package."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "bowstring":
        frame = frame.f_back
        level += 1
    return level
