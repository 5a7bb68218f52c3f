"""Messages over ``ucx:`` on loopback, beside ``ucx_perftest`` of the same libucp with the same transports."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import fingerprint
from bowstring.benchmarks.processes.child import Child
from bowstring.transport import Channel, Message, dial, listen
from bowstring.transport.ucx.library import wheel_folder

_TRANSPORTS: Final = ("tcp", "tcp,posix,cma")
_SIZES: Final = (64 << 10, 1 << 20, 16 << 20)
_FULL: Final = 256 << 20
_QUICK: Final = 64 << 20
_ROUND_TRIPS: Final = 1000
_TOGETHER: Final = 4 << 20
_SECONDS: Final = 60.0
_TAG: Final = 1
_FEW: Final = 16


class Sender:
    """A role for a started process: sends messages, and starts round trips."""

    def __init__(self, tls: str, size: int, total: int) -> None:
        os.environ["UCX_TLS"] = tls
        self._size = size
        self._bytes = [np.random.default_rng(seed).integers(0, 256, total, np.uint8) for seed in (1, 2)]
        self._sent = [fingerprint([each]) for each in self._bytes]
        self._listener = listen("ucx://")
        self._channel: Channel | None = None

    def about(self) -> dict[str, Any]:
        """Return where to connect, and the fingerprints of the bytes."""
        return {"address": self._listener.uri, "sent": self._sent}

    def accept(self) -> None:
        """Take the connection that the receiver makes once."""
        self._channel = self._listener.accept(_SECONDS)

    def send(self, turn: int) -> float:
        """Send as many messages in a call as a server does; return the seconds until the receiver has them all."""
        channel, view = self._connected, self._bytes[turn].data
        pieces = (view[start : start + self._size] for start in range(0, len(view), self._size))
        together = max(1, _TOGETHER // self._size)
        self._hear()
        begin = time.perf_counter()
        while messages := [Message(_TAG, [piece]) for piece in itertools.islice(pieces, together)]:
            channel.send(messages, _SECONDS)
        self._hear()
        return time.perf_counter() - begin

    def round_trips(self) -> float:
        """Return the seconds of one round trip of 8 bytes, the mean of many."""
        channel = self._connected
        self._hear()
        begin = time.perf_counter()
        for _ in range(_ROUND_TRIPS):
            channel.send([Message(_TAG, [bytes(8)])], _SECONDS)
            self._hear()
        return (time.perf_counter() - begin) / _ROUND_TRIPS

    @property
    def _connected(self) -> Channel:
        assert self._channel is not None
        return self._channel

    def _hear(self) -> None:
        if self._connected.receive(_SECONDS) is None:
            raise TimeoutError("the receiver says nothing")


class Receiver:
    """The other end of a `Sender`: receives into memory that was there before, and looks at every byte after."""

    def __init__(self, tls: str, size: int, total: int, address: str) -> None:
        os.environ["UCX_TLS"] = tls
        self._landing = np.zeros((total // size, size), np.uint8)
        self._channel = dial(address)

    def take(self) -> str:
        """Receive all messages of a sample."""
        self._landing[:] = 0
        waiting = iter(self._landing)
        self._say()
        for _ in self._landing:
            if self._channel.receive(_SECONDS, lambda _tag, _nbytes: next(waiting)) is None:
                raise TimeoutError("no message came")
        self._say()
        return fingerprint(list(self._landing))

    def answer(self) -> None:
        """Send back what comes, as often as it comes in a sample."""
        self._say()
        for _ in range(_ROUND_TRIPS):
            if self._channel.receive(_SECONDS) is None:
                raise TimeoutError("no message came")
            self._say()

    def _say(self) -> None:
        self._channel.send([Message(_TAG, [bytes(8)])], _SECONDS)


def _perftest(tls: str, test: str, size: int, count: int, mode: str) -> list[float]:
    """Return the last line of ``ucx_perftest``, as numbers: count, then microseconds and rates."""
    folder = wheel_folder()
    assert folder is not None
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = str(free.getsockname()[1])
    program = str(folder.parent / "bin" / "ucx_perftest")
    environment = {**os.environ, "UCX_TLS": tls, "UCX_NET_DEVICES": "lo", "LD_LIBRARY_PATH": str(folder)}
    options = ["-p", port, "-E", mode]
    with subprocess.Popen([program, *options], env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            time.sleep(0.3)
            what = ["-t", test, "-s", str(size), "-n", str(count), "-w", str(_FEW)]
            command = [program, "127.0.0.1", *options, *what]
            run = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=True
            )
        finally:
            server.kill()
    return [float(each) for each in run.stdout.strip().splitlines()[-1].partition("Final:")[2].split()]


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    if wheel_folder() is None:
        yield Skipped("ucx", "needs ucx_perftest of the wheel libucx-cu13")
        return
    total = _QUICK if scale.quick else _FULL
    for tls in _TRANSPORTS:
        for size in _SIZES:
            with _connected(tls, size, total) as (sender, receiver, sent):
                send = _sending(sender, receiver, sent)
                ours = Way("bowstring transport", "subject", send, total, "ucx_perftest")
                names = {"ucx_perftest": "sleep", "ucx_perftest, polling": "poll"}
                ways = [ours, *(_bandwidth(name, tls, size, total, mode) for name, mode in names.items())]
                # By shared memory ucx_perftest measures the processor's cache (decision 71).
                targets = (Target(ours.name, "at least", 0.9, "ucx_perftest"),) if tls == "tcp" else ()
                name = f"{tls}: {total >> 20} MiB in messages of {size >> 10} KiB"
                yield LineUp(name, tuple(ways), scale.rounds(11, 3), targets, panel=tls, at={"bytes": size})
        with _connected(tls, 8, 8) as (sender, receiver, _):
            trips = Way(
                "bowstring transport", "subject", _round_trips(sender, receiver), None, "ucx_perftest"
            )
            ways = [
                trips,
                _latency("ucx_perftest", tls, "sleep"),
                _latency("ucx_perftest, polling", tls, "poll"),
            ]
            yield LineUp(f"{tls}: round trip of 8 bytes", tuple(ways), scale.rounds(11, 3))


@contextlib.contextmanager
def _connected(tls: str, size: int, total: int) -> Iterator[tuple[Child, Child, list[str]]]:
    with Child(Sender, tls=tls, size=size, total=total) as sender:
        about = sender.call("about")
        sender.begin("accept")
        with Child(Receiver, tls=tls, size=size, total=total, address=about["address"]) as receiver:
            sender.finish()
            yield sender, receiver, about["sent"]


def _sending(sender: Child, receiver: Child, sent: list[str]) -> Callable[[], Measured]:
    turns = itertools.cycle((0, 1))

    def once() -> Measured:
        turn = next(turns)
        receiver.begin("take")
        seconds = sender.call("send", turn=turn)
        return Measured(seconds, sent[turn], receiver.finish())

    return once


def _round_trips(sender: Child, receiver: Child) -> Callable[[], Measured]:
    def once() -> Measured:
        receiver.begin("answer")
        seconds = sender.call("round_trips")
        receiver.finish()
        return Measured(seconds, "answers", "answers")

    return once


def _bandwidth(name: str, tls: str, size: int, total: int, mode: str) -> Way:
    def once() -> Measured:
        count = total // size
        overall = _perftest(tls, "tag_bw", size, count, mode)[3]  # microseconds of a message
        return Measured(overall * count / 1e6, "its own bytes", "its own bytes")

    return Way(name, "baseline" if mode == "sleep" else "beside", once, total)


def _latency(name: str, tls: str, mode: str) -> Way:
    def once() -> Measured:
        overall = _perftest(tls, "tag_lat", 8, _ROUND_TRIPS, mode)[3]  # half a round trip
        return Measured(2 * overall / 1e6, "its own bytes", "its own bytes")

    return Way(name, "baseline" if mode == "sleep" else "beside", once)


CASE: Final = Case(
    "ucx",
    "messages over ucx: on loopback, beside ucx_perftest",
    _line_ups,
    Explanation(
        measured=(
            "Messages over ucx: from the first one sent to the last one received, between two processes; and"
            " a round trip of 8 bytes."
        ),
        baseline=(
            "ucx_perftest of the same libucp with the same UCX_TLS, which sleeps while it waits, as "
            "Bowstring does. Beside it: ucx_perftest that polls."
        ),
        floor="",
        reading=(
            "What the protocol and Python add to UCX. The size is that of a message. Without fast network "
            "hardware UCX uses TCP or shared memory."
        ),
    ),
)
