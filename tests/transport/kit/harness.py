"""Connections to check, waits that end, and the small words that the checks are written in."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from bowstring.errors import BowstringError, DeadlineExceeded
from bowstring.limits import Limits
from bowstring.transport import Channel, Land, Message, Received, dial, listen

Maker = Callable[[Limits], AbstractContextManager[tuple[Channel, Channel]]]

# Long enough for a machine that stalls; nothing waits for it where all is well.
PATIENCE = 20.0
# Short waits whose end is what is checked.
SOON = 0.2
MIB = 1 << 20


def pairs_at(address: str) -> Maker:
    """Return a maker of connections over ``address``: dialled end first, accepted end second.

    They have met: one message went each way, so that nothing is left of a handshake that takes both.
    """

    @contextlib.contextmanager
    def make(limits: Limits) -> Iterator[tuple[Channel, Channel]]:
        with listen(address, limits) as listener, dial(listener.uri, limits, PATIENCE) as here:
            there = listener.accept(PATIENCE)
            assert there is not None, "nobody came"
            with there:
                for one, other in ((here, there), (there, here)):
                    sending = in_thread(send, one, Message(None))
                    next_from(other)
                    sending.result()
                yield here, there

    return make


@contextlib.contextmanager
def raises(kind: type[BaseException]) -> Iterator[None]:
    """Hold that the block raises ``kind``, and that a Bowstring error says something."""
    try:
        yield
    except kind as error:
        if isinstance(error, BowstringError) and len(str(error)) < 10:
            raise AssertionError(f"an error without words: {error!r}") from error
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


class Running:
    """A call that runs in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="transport-kit", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - it is raised again by result()
            self._error = error

    def result(self, timeout: float = 3 * PATIENCE) -> Any:
        """Return what the call returned.

        Raises
        ------
        AssertionError
            It has not come back after ``timeout`` seconds.
        """
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"a call hangs: {self._call}"
        if self._error is not None:
            raise self._error
        return self._value


def in_thread(call: Callable[..., Any], *arguments: Any) -> Running:
    """Run a call in a thread; ``result()`` waits for it, and gives or raises what it gave or raised.

    Examples
    --------
    >>> in_thread(int, "42").result()
    42
    """
    return Running(lambda: call(*arguments))


def send(channel: Channel, *messages: Message) -> None:
    """Send with a deadline that nothing should need."""
    channel.send(messages, PATIENCE)


def next_from(channel: Channel, land: Land | None = None) -> Received:
    """Return the next message, which must come."""
    received = channel.receive(PATIENCE, land)
    assert received is not None, "no message came"
    return received


def pairs_from(channel: Channel, count: int, land: Land | None = None) -> list[tuple[Received, Received]]:
    """Return pairs of a tagged and an untagged message that were sent in turn, each of the two kinds in its order.

    Where the channel keeps one order for both, they must come in turn, too.
    """
    found = [next_from(channel, land) for _ in range(2 * count)]
    if channel.ordered:
        assert [message.tag is None for message in found] == [False, True] * count
    tagged = [message for message in found if message.tag is not None]
    return list(zip(tagged, [message for message in found if message.tag is None], strict=True))


def pattern(seed: int, nbytes: int) -> bytes:
    """Return bytes that differ from their neighbours and from those of other seeds."""
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8).tobytes()


def fill_until_stuck(channel: Channel) -> None:
    """Send until a deadline passes; nobody receives."""
    with raises(DeadlineExceeded):
        for number in range(10_000):
            channel.send([Message(number, [bytes(MIB)])], SOON)


def let_it_wait(thread: Running) -> None:
    """Give a thread the time to begin its wait; a check holds either way, but says more so."""
    with contextlib.suppress(AssertionError):
        thread.result(SOON)
