"""Runs: pairs of metadata and body that are taken together; those of packed bodies are received many at a time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from bowstring.dissociated.tags import PACKED, POINTERS, TYPE_SHIFT, is_packed
from bowstring.dissociated.wire import PREFIX_BYTES, ROW_BYTES
from bowstring.errors import OutOfBudget
from bowstring.transport.scatter_read import Rows, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from bowstring.memory import Allocator, Buffer, Pool
    from bowstring.memory.buffer import PrivateMemory
    from bowstring.transport import Channel

# Each call finds the processor's caches full of the bodies of the one before: in calls of 1 MiB the Python of a
# batch of 64 KiB took twice as long.
_BLOCK: Final = 4 << 20
_LARGEST: Final = 1 << 20
_FEWEST: Final = 4
_GROWTH: Final = 4
_MOST: Final = 256
_ALIGNMENT: Final = 64
_WORTH: Final = 32
_MOST_PATIENCE: Final = 4096


class Run(NamedTuple):
    """Pairs of an untagged message and a packed body, in the order in which they came."""

    messages: npt.NDArray[np.uint8]  # shape (pairs, bytes)
    tags: npt.NDArray[np.uint64]  # shape (pairs,)
    bodies: Buffer  # one behind the other
    body: int  # bytes of each

    def pair(self, index: int) -> tuple[memoryview, int, Buffer]:
        """Return one pair as it would have come by itself: the message, the tag and the body."""
        message = memoryview(self.messages[index].tobytes())
        return message, int(self.tags[index]), self.bodies.slice(index * self.body, self.body)


class PointedPairs(NamedTuple):
    """Pairs of an untagged message and a body of pointers, in the order in which they came."""

    prefixes: bytearray
    messages: list[bytes]
    tags: list[int]
    bodies: list[bytes]

    @classmethod
    def of(cls, received: Sequence[tuple[int | None, Any, Any]]) -> Self:
        """Return the pairs that some messages begin with."""
        pairs = cls(bytearray(), [], [], [])
        for (untagged, message, one), (tag, body, other) in zip(received[::2], received[1::2], strict=False):
            # With descriptors beside them they are for `receive` to refuse.
            if untagged is not None or tag is None or tag >> TYPE_SHIFT != POINTERS or one or other:
                break
            if len(message) < PREFIX_BYTES or len(body) % ROW_BYTES or not len(body):
                break
            pairs.prefixes.extend(message[:PREFIX_BYTES])
            pairs.messages.append(message)
            pairs.tags.append(tag)
            pairs.bodies.append(body)
        return pairs


class Runs:
    """What comes over one connection, as far as it can be foreseen."""

    def __init__(self, channel: Channel, pool: Pool | PrivateMemory) -> None:
        self._channel = channel
        self._pool = pool
        self._untagged = -1
        self._last = (-1, -1)
        self._rows: Rows | None = None
        self._block: Buffer | None = None
        self._places: list[memoryview] = []
        self._used = self._next = 0
        self._turns = self._pause = 0
        self._patience = _WORTH

    @functools.cached_property
    def allocator(self) -> Allocator | PrivateMemory:
        return self._pool.allocator(prepare=False)

    @property
    def landing(self) -> bool:
        """Whether the rest of a body is waited for."""
        return self._rows is not None and self._rows.landing

    @property
    def begun(self) -> bool:
        """Whether a body has begun to land, and its rest must come first."""
        return self._rows is not None and self._rows.begun > 0

    def note(self, tag: int | None, nbytes: int) -> None:
        """Take note of a message that came by itself: two pairs that look alike let others be foreseen."""
        if not self._channel.takes_rows:
            return
        if tag is None:
            self._untagged = nbytes
        elif is_packed(tag):
            pair, self._untagged = (self._untagged, nbytes), -1
            if self._pause:
                self._pause -= 1
            elif pair != self._last:
                if self._rows is not None:
                    self._disappointed()
                self.forget()
                self._last = pair
            elif self._rows is None:
                self._foresee(*pair)

    def _disappointed(self) -> None:
        """Foresee nothing for a while, if it was hardly worth it: what else came had to be put back, and copied."""
        if self._turns < _WORTH:
            self._pause, self._patience = self._patience, min(2 * self._patience, _MOST_PATIENCE)
        else:
            self._patience = _WORTH
        self._turns = 0

    def _foresee(self, untagged: int, body: int) -> None:
        if not 0 < body <= _LARGEST or body % _ALIGNMENT or untagged <= 0:
            return
        count = max(_FEWEST, min(_BLOCK // body, _MOST))
        if Rows.suits(untagged, count):
            self._rows = Rows(untagged, body, PACKED, count)
            self._next = _FEWEST * body

    def receive(self, idle: float) -> Run | None:
        """Return what was foreseen and is there; ``None`` if that is nothing."""
        rows = self._rows
        if rows is None or self._untagged >= 0 or not self._room(rows.body):
            return None
        block, used = self._block, self._used
        count = self._channel.receive_rows(rows, self._places[used:], idle)
        if not count or block is None:  # without memory: the stream is over
            return None
        bodies = block.slice(used * rows.body, count * rows.body)
        self._used += count
        self._turns += count
        return Run(rows.messages(count), rows.tags(count), bodies, rows.body)

    def _room(self, body: int) -> bool:
        """Have room for one body at least; false where others must let some go before."""
        if self._used >= len(self._places):
            self.forget_memory()
            try:
                self._block = block = self.allocator.allocate(self._next)
            except OutOfBudget:
                # Whoever takes one body after the other waits for room, and needs less of it.
                self.forget()
                self._pause = self._patience
                return False
            block.region.prepare(block.offset + block.nbytes)
            array: Any = block.region.array(block.offset, block.nbytes, writable=True)
            self._places = cut(memoryview(array), body)
            # A short stream takes no more than it needs.
            self._next = max(self._next, min(_GROWTH * self._next, _BLOCK // body * body))
        return True

    def forget(self) -> None:
        self._last, self._rows = (-1, -1), None
        self.forget_memory()

    def forget_memory(self) -> None:
        """Let go of the memory that bodies would have landed in."""
        self._block, self._places, self._used = None, [], 0

    def end(self) -> None:
        """Let go of the memory that the next body would have landed in, too."""
        self.forget_memory()
        if "allocator" in self.__dict__:
            self.allocator.reset()
