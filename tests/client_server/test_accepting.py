"""Accepting: everybody is welcomed, nobody is kept, and what fails does not fail without a pause."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import pytest

from bowstring.dissociated.producer import Outcome
from bowstring.errors import AccessDenied, BowstringError, ClosedError, LimitExceeded
from bowstring.limits import DEFAULT_LIMITS
from bowstring.locks import Condition
from bowstring.server.acceptor import Acceptor


class Channel:
    """A connection that can be seen to be forgotten."""

    authenticated = True


class Listener:
    """Has some connections for whoever accepts, or errors, and is closed when there are no more."""

    def __init__(self, *given: Any) -> None:
        self.given = list(given)
        self.before_last: Any = None

    def accept(self, _: float) -> Any:
        """Return the next one."""
        if self.before_last is not None:
            self.before_last()
        if not self.given:
            raise ClosedError("closed")
        found = self.given.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def accept(listener: Any, welcome: Any) -> int:
    """Accept from what is no real listener; return how many were refused."""

    class Accepts(Acceptor):
        def _serve(self, channel: Any) -> None:
            welcome(channel)

    acceptor = Accepts(lambda _: pytest.fail("no session is wanted"), DEFAULT_LIMITS, Condition())
    acceptor.accept_all(listener)
    return acceptor.outcomes[Outcome.REFUSED]


def test_everybody_is_welcomed_until_it_is_closed() -> None:
    """Connections come in their order, moments without any are none, and a closed listener is the end."""
    first, second = Channel(), Channel()
    welcomed: list[Any] = []
    accept(Listener(first, None, second), welcomed.append)
    assert welcomed == [first, second]


def test_the_last_connection_is_not_kept() -> None:
    """While it waits for the next one, nothing here refers to a connection that was welcomed."""
    listener = Listener(Channel(), None)
    welcomed = weakref.ref(listener.given[0])
    seen: list[bool] = []
    listener.before_last = lambda: seen.append(welcomed() is None)
    accept(listener, lambda _: None)
    assert seen == [False, True, True]


@pytest.mark.parametrize(
    ("error", "counted"),
    [(LimitExceeded("no descriptor left"), 0), (AccessDenied("somebody else"), 10), (OSError(5, "odd"), 10)],
)
def test_what_fails_is_counted_and_does_not_spin(error: BowstringError | OSError, counted: int) -> None:
    """After each failure there is a pause, and then the next is let in; who only waits for a descriptor, which
    fails at once each time, has not been turned away.
    """
    welcomed: list[Any] = []
    began = time.monotonic()
    assert accept(Listener(*[error] * 10, Channel()), welcomed.append) == counted
    assert len(welcomed) == 1
    assert time.monotonic() - began >= 0.1


def test_the_thread_of_a_listener_that_fails_sleeps() -> None:
    """Failing for a long time takes next to no processor."""
    over = threading.Event()

    class Failing:
        def accept(self, _: float) -> Any:
            raise ClosedError("closed") if over.is_set() else LimitExceeded("no descriptor left")

    spent: list[float] = []

    def run() -> None:
        accept(Failing(), lambda _: None)
        spent.append(time.thread_time())

    thread = threading.Thread(target=run)
    thread.start()
    over.wait(0.5)
    over.set()
    thread.join(10.0)
    assert spent[0] < 0.25
