"""What is refused, and which waits end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

import numpy as np

from bowstring.errors import BrokenError, LimitExceeded, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.testing.transport_kit.harness import (
    PATIENCE,
    SOON,
    Maker,
    fill_until_stuck,
    in_thread,
    next_from,
    raises,
    send,
)
from bowstring.transport import Land, Message


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


CHECKS: Sequence[Callable[[Maker], None]] = (
    check_idle,
    check_limits,
    check_refusal_to_land,
    check_stuck_peer,
    check_one_receiver,
)
