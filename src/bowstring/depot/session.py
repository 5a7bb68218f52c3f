"""A control session: one client's connection, as the depot answers it, in a thread of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.depot.handlers import HANDLERS, LOCAL
from bowstring.depot.protocol import VERSION, Fields, Verb, pack, pack_failure
from bowstring.errors import (
    AccessDenied,
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    ProtocolError,
    RefusedError,
)
from bowstring.transport import Message
from bowstring.transport.accepting import Restriction
from bowstring.transport.descriptors import close_all

if TYPE_CHECKING:
    from bowstring.depot.daemon import Depot
    from bowstring.depot.manifest import Attempt
    from bowstring.depot.registry import Holder
    from bowstring.transport import Channel, Received

__all__ = ["Session"]

_EXIT_GRACE: Final = 1.0
_GONE: Final = (BrokenError, ClosedError, DeadlineExceeded)
_MOST_TOKEN: Final = 200


class Session:
    """Answers one client.

    Parameters
    ----------
    depot
        What it asks of.
    channel
        The connection; descriptors go over it where it carries them.
    """

    def __init__(self, depot: Depot, channel: Channel) -> None:
        self.depot = depot
        self.channel = channel
        self.local = channel.carries == "fds"
        self.greeted = False
        self.attempt: Attempt | None = None
        self.holder: Holder | None = None
        # Which slabs it would write sooner than others.
        self.mapped: frozenset[bytes] = frozenset()
        self.after: list[Any] = []
        self._stall = channel.limits.stall_timeout

    def run(self) -> None:
        """Answer until the connection ends."""
        try:
            if self._greet():
                while not self.depot.stopping:
                    received = self.channel.receive(self.channel.limits.heartbeat)
                    if received is not None:
                        self._hear(received)
        except BowstringError as error:
            # Who breaks the protocol hears of it; who is gone does not.
            if isinstance(error, ProtocolError) or not isinstance(error, _GONE):
                self._say_no(error)
        finally:
            self._settle()
            self.depot.ended(self)

    def _greet(self) -> bool:
        """Hear the hello; return whether the client may go on."""
        seconds = self.channel.limits.connect_timeout
        self.channel.restriction = Restriction.within(seconds)
        received = self.channel.receive(seconds)
        if received is None:
            return False
        self._no_descriptors(received)
        fields = Fields(received.body)
        if received.tag == Verb.DRAIN:
            if self.local:
                self.depot.drain()
            self._answer({"version": VERSION})
            return False
        if received.tag != Verb.HELLO:
            raise ProtocolError("a client says hello first", found=f"tag {received.tag}")
        version = fields.number("version")
        if version != VERSION:
            raise RefusedError(
                "the depot speaks another version of its protocol",
                expected=f"version {VERSION}",
                found=f"version {version}",
                hint="A client of another version starts a depot of its own beside this one.",
            )
        if not self.local and not self._token_fits(fields.maybe_text("token", _MOST_TOKEN)):
            raise AccessDenied("the token is wrong", hint="Use the whole address that the depot gave.")
        self.greeted = True
        self.channel.restriction = None
        self._answer({"version": VERSION, "pid": os.getpid(), "remote": self.depot.remote_address})
        return True

    def _token_fits(self, token: str | None) -> bool:
        given = (token or "").encode(errors="replace")
        return secrets.compare_digest(given, self.depot.token.encode())

    def _hear(self, received: Received) -> None:
        self._no_descriptors(received)
        if received.tag is None:
            if self.attempt is None:
                raise ProtocolError("parts of an attempt that has not begun")
            self.attempt.hear(received.body)
            return
        answer = HANDLERS.get(received.tag)
        if answer is None:
            raise ProtocolError("the depot knows no such request", found=f"tag {received.tag:#x}")
        fields = Fields(received.body)
        self.depot.asked()
        try:
            if not self.local and received.tag in LOCAL:
                raise AccessDenied("that is for processes on the depot's own host", found=answer.__name__)
            said, descriptors = answer(self, fields)
        except (ProtocolError, BrokenError):
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the client hears of it and may go on
            self._say_no(error)
            return
        self._answer(said, descriptors)
        while self.after:
            self.after.pop()()

    def _no_descriptors(self, received: Received) -> None:
        if received.attachments:
            close_all(received.attachments)
            raise ProtocolError(
                "a client hands over no memory", found=f"{len(received.attachments)} descriptors"
            )

    def _answer(self, fields: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        self.channel.send([Message(Verb.DONE, [pack(fields)], descriptors)], self._stall)

    def _say_no(self, error: BaseException) -> None:
        with contextlib.suppress(BowstringError):
            self.channel.send([Message(Verb.FAILED, [pack_failure(error)])], self._stall)

    def check_there(self) -> None:
        """Raise when the client is gone; for answers that wait."""
        if self.depot.stopping:
            raise ClosedError("the depot ends")
        if self.channel.receive(0.0) is not None:
            raise ProtocolError("a client asks again before it has its answer")

    def wait(self, done: Any, seconds: float) -> bool:
        """Wait until something is so; return whether it is."""
        end = time.monotonic() + seconds
        pause = 0.001
        while not done():
            if time.monotonic() >= end:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            self.check_there()
        return True

    def _settle(self) -> None:
        """Decide what becomes of what the client had."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            # The next try may come while it is found out whether this one is gone.
            self.depot.slab_pool.give_up(attempt.regions)
            # Where its process is known to be gone, nobody writes there any more.
            gone = not attempt.regions or self.channel.peer.exited(_EXIT_GRACE)
            attempt.let_go(() if gone else None)
            self.depot.registry.over(attempt)
        if self.holder is not None:
            self.holder.close()
            self.depot.registry.let_go(self.holder)
        self.channel.close()

    def close(self) -> None:
        """End the session, from any thread."""
        self.channel.close()
