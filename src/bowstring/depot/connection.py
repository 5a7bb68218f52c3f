"""A client's connection: one request, one answer."""

from __future__ import annotations

import threading
import urllib.parse
from typing import TYPE_CHECKING, Any, NamedTuple

from bowstring.depot.protocol import CONTROL_LIMITS, VERSION, Fields, Verb, failure_of, pack
from bowstring.errors import DeadlineExceeded, ProtocolError
from bowstring.transport import Message, dial
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Answer", "Connection"]


class Answer(NamedTuple):
    """What the depot says, and the descriptors that came beside it."""

    fields: Fields
    descriptors: tuple[int, ...]


class Connection:
    """A connection to a depot, after the hello.

    Parameters
    ----------
    address
        ``unix:/path`` or ``tcp://host:port``, with ``?token=…`` where one is needed.
    seconds
        How long the depot may take to say hello.

    Raises
    ------
    BrokenError
        There is no depot.
    RefusedError
        It speaks another version of its protocol.
    AccessDenied
        The token is wrong, or it is another user's.
    DeadlineExceeded
        It does not answer.
    """

    def __init__(self, address: str, seconds: float) -> None:
        where, _, query = address.partition("?")
        token = dict(urllib.parse.parse_qsl(query)).get("token")
        self._lock = threading.Lock()
        self._channel = dial(where, CONTROL_LIMITS, seconds)
        try:
            said: dict[str, Any] = {"version": VERSION}
            if token is not None:
                said["token"] = token
            answer = self.ask(Verb.HELLO, said, seconds).fields
            self.pid = answer.number("pid")
            self.remote_address = answer.maybe_text("remote")
        except BaseException:
            self._channel.close()
            raise

    def ask(self, verb: Verb, fields: dict[str, Any], seconds: float) -> Answer:
        """Return the answer to a request.

        Parameters
        ----------
        verb, fields
            What to ask.
        seconds
            How long the answer may take.

        Raises
        ------
        BowstringError
            What the depot says.
        BrokenError
            It is gone.
        DeadlineExceeded
            It does not answer; the connection is closed, as nobody knows what it has done.
        """
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
