"""Rows: messages that come in turns and look alike, read many at a time, each body straight into its place.

A stream of small batches is an untagged message, a body, an untagged message, a body, and so on, all of the same
lengths. Who knows that can say beforehand where the bytes of many of them shall go, and one system call puts them
there. That what came is what was foreseen is seen by the headers; from the first that is another one, the bytes are
put back to be read as any others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.transport.header import HEADER_BYTES, pack_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

# Of a header: where the tag lies, whose numbers differ, and in it the byte that says what kind of body it is.
_TAG: Final = 8
_KIND: Final = 15
_LENGTH: Final = 16
_KIND_SHIFT: Final = 56
_MOST_BETWEEN: Final = 4096
_MOST_PIECES: Final = 1024
# Rows that room is offered for, whatever was there the last time.
_LEAST: Final = 8


class Rows:
    """What is foreseen, and a row of bytes for all that lies before each body: header, untagged message, header."""

    def __init__(self, untagged: int, body: int, kind: int, count: int) -> None:
        self.before = 2 * HEADER_BYTES + untagged  # bytes of a row
        self.body = body
        # Bytes of the first row and its body that are there, because a call ended inside that body; until it is
        # complete nothing else can be received.
        self.begun = self._next = 0
        self.landing = False  # the rest of a body is waited for
        self._first = pack_header(None, 0, untagged)
        second = pack_header(kind << _KIND_SHIFT, 0, body)
        self._second = second[:_TAG], second[_KIND:]
        self._view = memoryview(bytearray(self.before * count))
        self._befores = cut(self._view, self.before)
        self._table = np.frombuffer(self._view, np.uint8).reshape(count, self.before)
        self.most = count  # rows that are read at once
        self._likely = count

    @classmethod
    def suits(cls, untagged: int, count: int) -> bool:
        """Whether that many can be read at once, and not too much lies before each body."""
        return 2 * HEADER_BYTES + untagged <= _MOST_BETWEEN and 2 * count <= _MOST_PIECES

    def begin(self, there: memoryview, bodies: Sequence[memoryview]) -> int:
        """Put bytes that are there already into their places; return how many, 0 if they begin something else."""
        if there[:HEADER_BYTES] != self._first[: there.nbytes]:
            return 0
        taken = 0
        for place in self.places(bodies, 0):
            piece = there[taken : taken + place.nbytes]
            place[: piece.nbytes] = piece
            taken += piece.nbytes
            if taken == there.nbytes:
                break
        return taken

    def places(self, bodies: Sequence[memoryview], begun: int) -> list[memoryview]:
        """Return where bytes go, of as many rows as there are `bodies` for; `begun` bytes are there already."""
        before, body = self.before, self.body
        if self.begun:
            self._befores[0][:] = self._befores[self._next]
        first, within = divmod(begun, before + body)
        count = min(len(bodies), self.most, self._likely)
        if first >= count:
            return []
        places = [self._view] * (2 * (count - first))
        places[::2] = self._befores[first:count]
        places[1::2] = bodies[first:count]
        if within < before:
            places[0] = places[0][within:]
        else:
            places[:2] = [places[1][within - before :]]
        return places

    def expect(self, count: int) -> None:
        """Take note of how many were there: offering room for many more costs more than another call."""
        self._likely = 2 * count + _LEAST

    def right(self, most: int) -> int:
        """Return how many of the first rows have the headers that were foreseen."""
        if self._are_right(0, most):
            return most
        return next(row for row in range(most) if not self._are_right(row, row + 1))

    def _are_right(self, first: int, end: int) -> bool:
        rows, second = self._table[first:end], self.before - HEADER_BYTES
        count = end - first
        return (
            rows[:, :HEADER_BYTES].tobytes() == self._first * count
            and rows[:, second : second + _TAG].tobytes() == self._second[0] * count
            and rows[:, second + _KIND :].tobytes() == self._second[1] * count
        )

    def rest(self, bodies: Sequence[memoryview], row: int, nbytes: int) -> bytes:
        """Return the bytes from a row on, in the order in which they came."""
        pieces: list[memoryview] = []
        while nbytes > 0:
            pieces.append(self._befores[row][:nbytes])
            nbytes -= self.before
            if nbytes > 0:
                pieces.append(bodies[row][:nbytes])
            nbytes -= self.body
            row += 1
        return b"".join(pieces)

    def go_on(self, row: int, begun: int) -> None:
        """Begin the next time with another row: of it and its body, so many bytes are there."""
        # Not moved before what stands in the first row was taken.
        self._next, self.begun = row, begun

    def messages(self, count: int) -> npt.NDArray[np.uint8]:
        """Return the untagged messages of the first rows, a copy of shape ``(count, bytes)``."""
        return self._table[:count, HEADER_BYTES:-HEADER_BYTES].copy()

    def tags(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the tags of the bodies of the first rows."""
        start = self.before - HEADER_BYTES + _TAG
        return self._table[:count, start : start - _TAG + _LENGTH].copy().view("<u8").reshape(count)


def cut(view: memoryview, nbytes: int) -> list[memoryview]:
    """Return pieces of that many bytes each, as many as there are."""
    return [view[start : start + nbytes] for start in range(0, view.nbytes - nbytes + 1, nbytes)]
