"""How a connection ends: by this side, by the peer, by a fork."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from typing import NoReturn

from bowstring.errors import BrokenError, ClosedError, ForkedError, NotPicklable
from bowstring.limits import DEFAULT_LIMITS
from bowstring.testing.transport_kit.harness import (
    MIB,
    PATIENCE,
    Maker,
    in_thread,
    let_it_wait,
    next_from,
    raises,
    send,
)
from bowstring.transport import Channel, Message


def check_close(make: Maker) -> None:
    """Closing twice is closing once; the channel is then closed, not broken, and says so."""
    with make(DEFAULT_LIMITS) as (here, there):
        assert not here.closed
        here.close()
        here.close()
        assert here.closed
        assert "closed" in repr(here)
        with raises(ClosedError):
            here.receive(0.0)
        with raises(ClosedError):
            send(here, Message(None))
        with raises(BrokenError):
            next_from(there)
        with raises(BrokenError):
            next_from(there)


def check_drain(make: Maker) -> None:
    """What was sent before the end of a connection arrives before the end is told."""
    with make(DEFAULT_LIMITS) as (here, there):
        send(here, *[Message(n, [b"body"]) for n in range(10)], Message(None, [b"last"]))
        here.close()
        assert [next_from(there).tag for _ in range(11)] == [*range(10), None]
        with raises(BrokenError):
            there.receive(0.0)
        with raises(BrokenError):
            for _ in range(100):
                send(there, Message(None, [bytes(1000)]))


def check_close_wakes_receiver(make: Maker) -> None:
    """Closing wakes a thread that waits for a message."""
    with make(DEFAULT_LIMITS) as (here, _):
        waiting = in_thread(here.receive, PATIENCE)
        let_it_wait(waiting)
        here.close()
        with raises(ClosedError):
            waiting.result()


def check_close_wakes_sender(make: Maker) -> None:
    """Closing wakes a thread whose message finds no room."""
    with make(DEFAULT_LIMITS) as (here, _):
        stuck = in_thread(send, here, *[Message(n, [bytes(MIB)]) for n in range(100)])
        let_it_wait(stuck)
        waiting = in_thread(send, here, Message(None, [b"behind it"]))
        let_it_wait(waiting)
        here.close()
        for thread in (stuck, waiting):
            with raises(ClosedError):
                thread.result()


def check_peers_end_wakes(make: Maker) -> None:
    """The peer's end wakes threads that wait for a message, or for room."""
    with make(DEFAULT_LIMITS) as (here, there):
        receiving = in_thread(here.receive, PATIENCE)
        sending = in_thread(send, here, *[Message(n, [bytes(MIB)]) for n in range(100)])
        let_it_wait(sending)
        there.close()
        for thread in (receiving, sending):
            with raises(BrokenError):
                thread.result()


def check_words(make: Maker) -> None:
    """A channel says where it leads and who is there, and does not pickle."""
    with make(DEFAULT_LIMITS) as ends:
        for end in ends:
            assert end.address in str(end)
            assert end.peer.description in repr(end)
            assert str(end).startswith(f"{end.scheme}:")
            assert not end.peer.exited(0.0)
            with raises(NotPicklable):
                pickle.dumps(end)


def check_fork(make: Maker) -> None:
    """A forked child cannot use the parent's channel, and does not keep it alive."""
    with make(DEFAULT_LIMITS) as (here, there):
        hold, release = os.pipe()
        child = os.fork()
        if child == 0:
            _in_child(here, hold, release)
        try:
            os.close(hold)
            send(here, Message(None, [b"after the fork"]))
            assert bytes(next_from(there).body) == b"after the fork"
            here.close()
            with raises(BrokenError):
                next_from(there)
        finally:
            os.close(release)
            _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "the child could use its parent's channel"


def _in_child(channel: Channel, hold: int, release: int) -> NoReturn:
    """Try to use the parent's channel, stay until the parent lets go, and leave by the short way."""
    code = 1
    try:
        with raises(ForkedError):
            channel.receive(0.0)
        with raises(ForkedError):
            send(channel, Message(None))
        channel.close()
        os.close(release)
        os.read(hold, 1)
        code = 0
    finally:
        os._exit(code)


CHECKS: Sequence[Callable[[Maker], None]] = (
    check_close,
    check_drain,
    check_close_wakes_receiver,
    check_close_wakes_sender,
    check_peers_end_wakes,
    check_words,
    check_fork,
)
