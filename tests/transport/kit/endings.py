"""What is refused, which waits end, and how connections come in and end."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from bowstring.errors import BrokenError, ClosedError, ForkedError, LimitExceeded, NotPicklable, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.transport import Channel, Land, Listener, Message, dial, listen
from tests.transport.kit.harness import (
    MIB,
    PATIENCE,
    SOON,
    Maker,
    fill_until_stuck,
    in_thread,
    let_it_wait,
    next_from,
    raises,
    send,
)


def check_idle(make: Maker) -> None:
    """``receive`` returns nothing when nothing begins in time, and goes on; only finite waits are taken."""
    with make(DEFAULT_LIMITS) as (here, there):
        assert there.receive(0.0) is None
        assert there.receive(SOON / 4) is None
        waiting = in_thread(next_from, there)
        send(here, Message(None, [b"late"]))
        assert bytes(waiting.result().body) == b"late"
        for wait in (-1.0, float("inf"), float("nan")):
            with raises(UsageError):
                there.receive(wait)
            with raises(UsageError):
                here.send([Message(None)], wait)


def check_limits(make: Maker) -> None:
    """A message of exactly the bound of its kind passes; one byte more is refused before memory is asked for."""
    limits = DEFAULT_LIMITS.replace(metadata_bytes=1000, message_bytes=2000, control_bytes=500)
    bounds = [(None, 1000), (5, 2000), (1 << 56, 2000), (2 << 56, 500), ((1 << 64) - 1, 500)]

    def never(tag: int, nbytes: int) -> bytearray:
        raise AssertionError(f"memory was asked for: {nbytes} bytes for {tag}")

    for tag, most in bounds:
        with make(limits) as (here, there):
            send(here, Message(tag, [bytes(most)]))
            assert next_from(there).body.nbytes == most
            with contextlib.suppress(BrokenError):  # the receiver may be quicker to refuse than we to send
                send(here, Message(tag, [bytes(most + 1)]))
            with raises(LimitExceeded):
                next_from(there, never)
            with raises(BrokenError):
                there.receive(SOON)


def check_refusal_to_land(make: Maker) -> None:
    """What ``land`` raises comes out of ``receive``; that, and memory that does not fit, break the channel."""

    def refuse(tag: int, nbytes: int) -> bytearray:
        raise LimitExceeded("no such tag is expected", found=tag, where=f"a body of {nbytes} bytes")

    bad: list[tuple[type[BaseException], Land]] = [
        (LimitExceeded, refuse),
        (UsageError, lambda _, nbytes: bytearray(nbytes + 1)),
        (UsageError, lambda _, nbytes: bytes(nbytes)),
        (UsageError, lambda _, nbytes: np.zeros(2 * nbytes, dtype=np.uint8)[::2]),
    ]
    for kind, land in bad:
        with make(DEFAULT_LIMITS) as (here, there):
            send(here, Message(5, [b"body"]))
            with raises(kind):
                next_from(there, land)
            with raises(BrokenError):
                there.receive(SOON)
            with raises(BrokenError):
                for _ in range(1000):
                    here.send([Message(None, [bytes(1000)])], PATIENCE)


def check_stuck_peer(make: Maker) -> None:
    """A peer that takes nothing ends a send after its deadline; then both ends know the channel to be broken."""
    with make(DEFAULT_LIMITS) as (here, there):
        fill_until_stuck(here)
        with raises(BrokenError):
            send(here, Message(None, [b"more"]))
        with raises(BrokenError):
            while True:
                next_from(there)


def check_one_receiver(make: Maker) -> None:
    """A second thread that receives is refused, and the first one goes on."""
    with make(DEFAULT_LIMITS) as (here, there):
        inside, go_on = threading.Event(), threading.Event()

        def land(_: int, nbytes: int) -> bytearray:
            inside.set()
            assert go_on.wait(PATIENCE)
            return bytearray(nbytes)

        first = in_thread(next_from, there, land)
        send(here, Message(5, [b"body"]))
        assert inside.wait(PATIENCE)
        with raises(UsageError):
            there.receive(0.0)
        go_on.set()
        assert bytes(first.result().body) == b"body"


BOUND_CHECKS: Sequence[Callable[[Maker], None]] = (
    check_idle,
    check_limits,
    check_refusal_to_land,
    check_stuck_peer,
    check_one_receiver,
)


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
    """What was sent before the end of a connection arrives before the end does."""
    with make(DEFAULT_LIMITS) as (here, there):
        send(here, *[Message(n, [b"body"]) for n in range(10)], Message(None, [b"last"]))
        here.close()
        tags = [next_from(there).tag for _ in range(11)]
        assert tags == [*range(10), None] or not here.ordered
        assert [tag for tag in tags if tag is not None] == [*range(10)]
        with raises(BrokenError):
            there.receive(PATIENCE)
        with raises(BrokenError):
            for _ in range(100):
                send(there, Message(None, [bytes(1000)]))


def check_close_as_another_call_ends(make: Maker) -> None:
    """Whichever line `close` has come to when the last other call ends, it closes, and raises nothing."""
    line, lines = 0, 1
    while line < lines:
        with make(DEFAULT_LIMITS) as (here, there):
            lines = _close_as_another_call_ends(here, line)
            if lines:
                with raises(BrokenError):
                    next_from(there)
        line += 1


def _close_as_another_call_ends(here: Channel, line: int) -> int:
    """Let another call end before a line of `close`; return how many there are, 0 where no call can be held."""
    inside, leaves, lines = threading.Event(), threading.Event(), 0

    def stay(_: Sequence[int]) -> None:
        inside.set()
        assert leaves.wait(PATIENCE)

    def watch() -> None:
        here.watch(stay)
        inside.set()  # also where there is nothing to watch

    staying = in_thread(watch)
    assert inside.wait(PATIENCE)

    def on_line(_: FrameType, event: str, __: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines > line and not leaves.is_set():
            leaves.set()
            let_it_wait(staying)  # in vain, where this thread holds what that one needs
        return on_line

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: on_line if "bowstring" in frame.f_code.co_filename else None)
    try:
        here.close()
    finally:
        sys.settrace(before)
        leaves.set()
    return lines if staying.result() is True else 0


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


END_CHECKS: Sequence[Callable[[Maker], None]] = (
    check_close,
    check_drain,
    check_close_as_another_call_ends,
    check_close_wakes_receiver,
    check_close_wakes_sender,
    check_peers_end_wakes,
    check_words,
    check_fork,
)


def check_listener(address: str) -> None:
    """A listener takes every connection in order, waits no longer than its deadline, and says where it is."""
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
                # Where there is a handshake, the one end sends while the other receives.
                sending = in_thread(send, near, Message(number))
                assert next_from(far).tag == number
                sending.result()
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
            sending = in_thread(send, here, Message(None, [b"still here"]))
            assert bytes(next_from(there).body) == b"still here"
            sending.result()
    with raises(BrokenError):
        dial(listener.uri, deadline=PATIENCE)
    with listen(_place_of(listener, address)) as again:
        assert again.uri == listener.uri


def check_listener_in_use(address: str) -> None:
    """An address with a living listener is refused to a second one."""
    with listen(address) as listener, raises(UsageError):
        listen(_place_of(listener, address))


def _place_of(listener: Listener, address: str) -> str:
    """Return where a listener listens, by the scheme that was asked for: its own may be another one."""
    return address.partition(":")[0] + listener.uri[listener.uri.index(":") :]


LISTENER_CHECKS: Sequence[Callable[[str], None]] = (
    check_listener,
    check_listener_close,
    check_listener_in_use,
)
