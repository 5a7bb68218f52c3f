"""The one interface of all transports: delimited messages, tagged or not, between two ends.

A transport carries *messages* and knows nothing of what is in them. An **untagged** message is small and
comes whole (the metadata of Dissociated IPC); a **tagged** one has a 64-bit tag and a body that lands where
the receiver wants it. Both may have *attachments*: file descriptors on ``unix:``, any objects on
``inproc:``, none on ``tcp:``.

What holds for every transport (``tests/transport/kit`` checks it):

* Messages arrive whole, unchanged, and in the order in which ``send`` calls took their turn; the messages of
  one call stay together.
* When ``send`` returns, the pieces may be changed and the attached descriptors closed; it does not say that
  the peer has read anything.
* No end of a connection is read as an end of a stream: it is always :class:`~bowstring.errors.BrokenError`,
  after everything that had arrived was received.
* No wait is without a deadline. Deadlines are kept to about a tenth of a second.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn

from bowstring.closing import Closing
from bowstring.errors import (
    BowstringError,
    DeadlineExceeded,
    LimitExceeded,
    NotPicklable,
    ProtocolError,
    Unsupported,
    UsageError,
)
from bowstring.limits import Limits
from bowstring.transport.peer import Peer

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

    from bowstring import memory
    from bowstring.memory import Device, KeyedHandle, Region
    from bowstring.transport.scatter_read import Rows

    # NumPy tells type checkers of its buffers from Python 3.12 on only.
    BytesLike = Buffer | np.ndarray[Any, Any]
    Land = Callable[[int, int], BytesLike]
else:
    BytesLike = object
    Land = Callable[[int, int], object]

Passes = Literal["fd", "object", "rkey"]

_TAG_END = 1 << 64
_LAST_SECONDS = 1.0
# What is the peer's fault, which it can be told of; all else is a connection that is lost.
_LAST_ERRORS = (ProtocolError, LimitExceeded, DeadlineExceeded)


UNAUTHENTICATED_BYTES: Final = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Restriction:
    """Bounds for a connection as a whole, until its peer is authenticated.

    A deadline per wait, or a bound per message, would not stop a peer that sends a little now and then.
    """

    until: float  # latest time of authentication, on the monotonic clock
    # Most bytes of the connection, framing included; ``None`` for any number.
    nbytes: int | None = UNAUTHENTICATED_BYTES

    @property
    def left(self) -> float:
        """Seconds that are left, 0 where there are none."""
        return max(0.0, self.until - time.monotonic())

    def check(self, end: int) -> None:
        """Raise `LimitExceeded` if a message ends, at byte `end` of the connection, behind the bound."""
        if self.nbytes is not None and end > self.nbytes:
            raise LimitExceeded(
                "the peer sends too much before it is let in",
                expected=f"at most {self.nbytes} bytes in all",
                found=f"{end} bytes",
            )

    def check_time(self) -> None:
        """Raise `DeadlineExceeded` once the time is over."""
        if time.monotonic() >= self.until:
            raise DeadlineExceeded(
                "the peer was not let in in time", hint="Limits.connect_timeout bounds it."
            )


@dataclasses.dataclass(slots=True)
class Message:
    """One message to send.

    Parameters
    ----------
    tag
        The tag, 64 bits, or ``None`` for an untagged message.
    pieces
        C-contiguous bytes-like objects that follow one another in the body, or one buffer of a device that the
        channel `reaches`. They are read in place.
    attachments
        What travels beside the bytes, as ``Channel.passes_memory`` says: file descriptors (borrowed for the length
        of the call), objects, or nothing.

    Examples
    --------
    >>> Message(7, [b"ab", memoryview(b"cd")]).nbytes
    4
    """

    tag: int | None
    pieces: Sequence[BytesLike] = ()
    attachments: tuple[object, ...] = ()

    @property
    def nbytes(self) -> int:
        """Length of the body in bytes."""
        return sum(map(len, self.views()))

    def views(self) -> list[bytes | memoryview]:
        """Return the pieces that are not empty, as bytes or as views of bytes.

        Raises
        ------
        UsageError
            The tag has more than 64 bits, or a piece is not a C-contiguous bytes-like object.
        """
        if self.tag is not None and not 0 <= self.tag < _TAG_END:
            raise UsageError("a tag is an unsigned 64-bit number", found=self.tag)
        try:
            views = [piece if type(piece) is bytes else _bytes_of(piece) for piece in self.pieces]
        except TypeError as error:
            raise UsageError("a piece of a message must be C-contiguous bytes", found=str(error)) from error
        return [view for view in views if view]


def _bytes_of(piece: Any) -> memoryview:
    view = memoryview(piece)
    if view.format == "B" and view.ndim == 1:
        return view
    # A view with a zero in its shape cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


@dataclasses.dataclass(slots=True)
class Received:
    """One message that arrived.

    Parameters
    ----------
    tag
        The tag, or ``None`` for an untagged message.
    body
        The bytes: of a tagged message the :class:`~bowstring.memory.Buffer` that ``land`` gave, or a view of other
        memory that it gave; of an untagged one read-only memory of its own.
    attachments
        What came beside the bytes. File descriptors of ``unix:`` close with the last reference to them, or by
        :meth:`Channel.drop`; ``os.close`` would close a number that is another's by then.
    """

    tag: int | None
    body: Any
    attachments: tuple[object, ...] = ()


class _End(Closing):
    """What belongs to the process that made it, until it is closed."""

    @property
    @abc.abstractmethod
    def closed(self) -> bool:
        """Whether this side closed it."""

    def __reduce__(self) -> NoReturn:
        raise NotPicklable(
            f"a connection belongs to its process: {self}", hint="Pickle its address and dial it there."
        )

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<{type(self).__name__} {self}{state}>"


class Channel(_End):
    """One end of a connection.

    One thread may receive while others send; ``close`` may be called from any thread at any time. A channel
    belongs to the process that made it: a forked child gets :class:`~bowstring.errors.ForkedError`.

    Attributes
    ----------
    scheme
        The transport's name: ``unix``, ``tcp``, ``inproc``.
    passes_memory
        How a region of memory reaches the peer: beside a message as a file descriptor (``"fd"``) or as an object
        (``"object"``), as a key for remote reads (``"rkey"``), or not at all (``None``).
    authenticated
        Whether the peer is known to be a process of this user.
    certified
        Whether the peer has shown a certificate of an authority that this end trusts (``tls:`` with clients'
        certificates).
    ordered
        Whether all messages arrive in the order in which they were sent, untagged and tagged ones together.
    most_attachments
        How many one message may have.
    takes_rows
        Whether `receive_rows` can be of use.
    hands_over
        Whether, on this connection, it is better to hand memory over than to send its bytes.
    means
        What moves the bytes, in words, where the transport has a choice; empty where it has none, or not made it.
    position
        A number that grows with each message that is received, so that an interrupted caller knows whether one
        was taken; -1 where that is not counted.
    address
        The address that was dialled or listened on.
    peer
        Who is at the other end.
    limits
        The bounds that incoming messages are held to.
    restriction
        Further ones, for a peer that is not let in yet; ``None`` where there are none. The receiver sets it,
        between two messages: what breaks it breaks the connection. A wait for a message to begin has its own time.
    last_words
        Called with the error where `receive` refuses what the peer sent (`ProtocolError`, `LimitExceeded`) or gives
        up on a peer that went silent inside a message (`DeadlineExceeded`). What it returns is sent before the
        connection breaks. The code that sets it removes it again.
    """

    scheme: ClassVar[str]
    passes_memory: ClassVar[Passes | None] = None
    authenticated: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    most_attachments: ClassVar[int] = 0
    takes_rows: ClassVar[bool] = False
    means: str = ""
    hands_over: bool = True
    position: int = -1
    address: str
    peer: Peer
    limits: Limits
    certified: bool = False
    restriction: Restriction | None = None
    last_words: Callable[[BowstringError], Message | None] | None = None

    def attachments_of(self, region: Region) -> tuple[object, ...]:  # noqa: ARG002  for transports that pass memory
        """Return what travels beside the announcement of a region, so that the peer can use its memory."""
        return ()

    def reaches(self, device: Device) -> bool:  # noqa: ARG002  for transports that do
        """Whether bodies are sent from memory of a device as it lies, and received into such memory."""
        return False

    def keyed(self, region: Region) -> KeyedHandle | None:  # noqa: ARG002  for transports that read remote memory
        """Return what the peer reads a region with; ``None`` where `passes_memory` is not ``"rkey"``."""
        return None

    def reads_with(self, key: bytes) -> bool:  # noqa: ARG002  for transports that read remote memory
        """Whether bytes have the form of a key for `read_remote`."""
        return False

    def read_remote(
        self,
        reads: Sequence[tuple[bytes, int, int]],
        buffer: memory.Buffer,
        offsets: Sequence[int],  # noqa: ARG002  for transports that read remote memory
    ) -> None:
        """Read memory of the peer; only where `passes_memory` is ``"rkey"``.

        Parameters
        ----------
        reads
            Key, address of the peer's and number of bytes of each part.
        buffer
            Where they go: memory of this process, whose pages are taken as the bytes arrive.
        offsets
            Where in it each begins, in order.

        Raises
        ------
        BrokenError
            The peer is gone, or its memory cannot be read, or it took some of it back meanwhile.
        ProtocolError
            A key is none.
        DeadlineExceeded
            Nothing came for ``limits.stall_timeout`` seconds.
        """
        raise Unsupported(
            f"{self.scheme}: reads no remote memory", found=f"{len(reads)} parts", where=repr(buffer)
        )

    def drop(self, attachments: tuple[object, ...]) -> None:
        """Let go of attachments that were received and are of no use."""

    @abc.abstractmethod
    def send(self, messages: Sequence[Message], deadline: float) -> None:
        """Send all messages, in order, one after the other.

        Parameters
        ----------
        messages
            What to send; an empty sequence sends nothing.
        deadline
            Longest time in seconds that nothing moves: while the peer takes nothing, or while another thread
            has its turn.

        Raises
        ------
        UsageError
            A message that this transport cannot carry; nothing was sent.
        DeadlineExceeded
            Nothing moved for ``deadline`` seconds. The connection is broken, unless it was another thread's
            turn all the time.
        BrokenError
            The peer is gone. What it sent before can still be received.
        ClosedError
            This side closed the channel, before or meanwhile.
        """

    @abc.abstractmethod
    def receive(self, idle: float, land: Land | None = None) -> Received | None:
        """Receive the next message, or ``None`` when none began within ``idle`` seconds.

        Parameters
        ----------
        idle
            How long to wait for a message to begin, in seconds; 0 looks once.
        land
            ``land(tag, nbytes)`` gives writable memory of exactly ``nbytes`` where the body of a tagged
            message lands (also of an empty one): a :class:`~bowstring.memory.Buffer`, whose pages are taken as its
            bytes arrive, or other memory. It is called after the length was held
            against ``limits``, and may raise to refuse the message, which breaks the connection: a length is only a
            claim until the bytes have come. Without it a body lands in memory of its own.

        Raises
        ------
        BrokenError
            The peer is gone, or its end of the connection is; the message says how many bytes were missing.
        ProtocolError
            Bytes that are no message of this transport, or attachments that do not fit theirs.
        LimitExceeded
            A message longer than ``limits`` allow (``metadata_bytes`` for untagged ones, ``message_bytes``
            for tags whose top byte is 0 or 1, ``control_bytes`` for all other tags), or than ``restriction``
            allows. Nothing was allocated.
        DeadlineExceeded
            A message began and then nothing came for ``limits.stall_timeout`` seconds, or ``restriction`` allows
            no more of them.
        ClosedError
            This side closed the channel, before or meanwhile.
        UsageError
            Another thread is receiving.
        """

    def receive_whole(self, land: Land | None = None) -> Received | None:
        """Receive the next message if all of it has come, where messages are short; else wait for nothing.

        What a message that has begun lacks must come within the same times as for `receive`. Where there is nothing
        to watch (`watch`), this looks once, as `receive` does.
        """
        return self.receive(0.0, land)

    def send_soon(self, messages: Sequence[Message]) -> bool:
        """Send what the peer takes at once; return whether that was all.

        The rest is sent before anything else, by the next call that sends; ``send_soon(())`` does that alone. Where
        a transport does not know how, this waits as `send` does.
        """
        self.send(messages, self.limits.stall_timeout)
        return True

    def receive_rows(
        self,
        rows: Rows,  # noqa: ARG002 - for others
        bodies: Sequence[memoryview],  # noqa: ARG002
        idle: float = 0.0,  # noqa: ARG002
    ) -> int:
        """Receive messages in turns that were foreseen, as many as are there; return how many turns.

        Only where `takes_rows`. It waits for the rest of a body whose turn comes first, for
        ``limits.stall_timeout`` seconds of silence; if `idle` is 0, for a moment only. After 0, where
        ``rows.begun`` is 0 as well, `receive` says what comes, or what is wrong.

        Parameters
        ----------
        rows
            What is foreseen. While ``rows.begun``, nothing else may be received.
        bodies
            Where each of the next bodies lands; if `rows` has begun, the first of them is in its place.
        idle
            How long to wait for anything to come where nothing is there, in seconds.

        Raises
        ------
        BrokenError, DeadlineExceeded, ClosedError, UsageError
            As for `receive`; all turns before were returned.
        """
        return 0

    @property
    def takes_more(self) -> bool:
        """Whether a few kilobytes can be sent at once, as far as is known."""
        return False

    def watch(self, register: Callable[[Sequence[int]], None]) -> bool:  # noqa: ARG002  for those with descriptors
        """Say what becomes readable when `receive`, which found nothing, finds something, or the end.

        Parameters
        ----------
        register
            Called with the descriptors; they are open until it returns, and not longer for sure.

        Returns
        -------
        bool
            False where there are none, and `register` was not called: `receive` is what waits then.

        Raises
        ------
        ClosedError, ForkedError
            As for `receive`.
        """
        return False

    def peer_exited(self, wait: float) -> bool:
        """Return whether the peer's process is known to be gone, and all copies of its end of the connection.

        Where C code forked, a child may outlive the peer with a copy of its end and of all that the peer looked at.
        Ask before closing this end.

        Parameters
        ----------
        wait
            How long to wait for the end of the process, in seconds.
        """
        return self.peer.exited(wait)

    @abc.abstractmethod
    def close(self) -> None:
        """Close this end. Idempotent; wakes threads that send or receive, which raise ``ClosedError``.

        Closing waits for nothing: what the peer has not received yet may be lost where it still sends to us.
        """

    def _say_last(self, error: BaseException) -> None:
        """Tell the peer why its message is refused, before the connection breaks."""
        if self.last_words is None or not isinstance(error, _LAST_ERRORS):
            return
        message = self.last_words(error)
        if message is not None:
            with contextlib.suppress(BowstringError):
                self.send([message], _LAST_SECONDS)

    def __str__(self) -> str:
        return f"{self.address} ({self.peer.description})"


class Listener(_End):
    """Where connections come in.

    Attributes
    ----------
    uri
        The address that ``dial`` takes: ``unix:/run/user/1000/bowstring/x.sock``, ``tcp://127.0.0.1:4711``,
        ``inproc:name``.
    channels
        The class of the connections.
    asks_certificates
        Whether all who are let in have shown a certificate (:attr:`Channel.certified`).
    """

    uri: str
    channels: type[Channel]
    asks_certificates: bool = False

    @abc.abstractmethod
    def accept(self, timeout: float) -> Channel | None:
        """Return the next connection, or ``None`` when none came within ``timeout`` seconds.

        Raises
        ------
        AccessDenied
            A peer was turned away (``unix:``, another user). The listener goes on.
        LimitExceeded
            The process has no descriptor left for the connection, which stays waiting. The listener goes on.
        ClosedError
            This side closed the listener, before or meanwhile.
        """

    def watch(self, register: Callable[[Sequence[int]], None]) -> bool:  # noqa: ARG002  as that of channels
        """Say what becomes readable when `accept`, which found nobody, finds somebody (:meth:`Channel.watch`)."""
        return False

    @abc.abstractmethod
    def close(self) -> None:
        """Accept no more connections. Idempotent; accepted ones live on; wakes a thread in ``accept``."""

    def __str__(self) -> str:
        return self.uri
