"""How connections come in."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Sequence

from bowstring.errors import BrokenError, ClosedError, NotPicklable, UsageError
from bowstring.testing.transport_kit.harness import (
    PATIENCE,
    SOON,
    in_thread,
    let_it_wait,
    next_from,
    raises,
    send,
)
from bowstring.transport import Message, dial, listen


def check_listener(address: str) -> None:
    """A listener takes every connection in order, waits no longer than told, and says where it is."""
    with listen(address) as listener:
        assert listener.accept(0.0) is None
        assert listener.accept(SOON / 4) is None
        assert listener.uri in repr(listener)
        with contextlib.ExitStack() as stack:
            here = [stack.enter_context(dial(listener.uri, deadline=PATIENCE)) for _ in range(20)]
            there = [listener.accept(PATIENCE) for _ in here]
            for number, (near, far) in enumerate(zip(here, there, strict=True)):
                assert far is not None
                stack.enter_context(far)
                send(near, Message(number))
            assert [next_from(far).tag for far in there if far is not None] == list(range(20))
        with raises(NotPicklable):
            pickle.dumps(listener)
        with raises(UsageError):
            listener.accept(float("inf"))


def check_listener_close(address: str) -> None:
    """Closing a listener wakes who accepts, keeps what was accepted, and frees the address."""
    listener = listen(address)
    with dial(listener.uri, deadline=PATIENCE) as here:
        there = listener.accept(PATIENCE)
        assert there is not None
        with there:
            waiting = in_thread(listener.accept, PATIENCE)
            let_it_wait(waiting)
            listener.close()
            listener.close()
            assert listener.closed
            with raises(ClosedError):
                waiting.result()
            with raises(ClosedError):
                listener.accept(0.0)
            send(here, Message(None, [b"still here"]))
            assert bytes(next_from(there).body) == b"still here"
    with raises(BrokenError):
        dial(listener.uri, deadline=PATIENCE)
    with listen(listener.uri) as again:
        assert again.uri == listener.uri


def check_listener_in_use(address: str) -> None:
    """An address with a living listener is refused to a second one."""
    with listen(address) as listener, raises(UsageError):
        listen(listener.uri)


CHECKS: Sequence[Callable[[str], None]] = (
    check_listener,
    check_listener_close,
    check_listener_in_use,
)
