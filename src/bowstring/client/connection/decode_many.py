"""Runs of bodies of pointers: pairs that came one after the other, and are made batches of together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from bowstring.dissociated.tags import POINTERS, is_pointers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from bowstring.dissociated.reader import ReaderProtocol

# Up to here, one by one costs less than arrays of all.
_FEW: Final = 2
MOST_SINGLE: Final = 2 * _FEW  # messages


class PointedRun(NamedTuple):
    """Pairs of an untagged message and a body of pointers, in the order in which they came."""

    messages: npt.NDArray[np.uint8]  # shape (pairs, bytes)
    tags: npt.NDArray[np.uint64]  # shape (pairs,)
    # Shape (pairs, 1 + buffers, 2): total and count, then address and length of each buffer.
    bodies: npt.NDArray[np.uint64]

    def in_order(self, protocol: ReaderProtocol) -> bool:
        """Whether these are surely the next parts of a stream, all of them."""
        return protocol.foreseen(self.messages, self.tags, POINTERS)

    @property
    def leading(self) -> int:
        """How many of the first bodies say rightly how many buffers they have, and of how many bytes."""
        lengths = self.bodies[:, 1:, 1]
        # The sum may wrap where lengths are larger than any region; then they lie in none.
        fine = (self.bodies[:, 0, 0] == lengths.sum(axis=1)) & (self.bodies[:, 0, 1] == lengths.shape[1])
        return len(fine) if fine.all() else int(fine.argmin())

    @classmethod
    def of(cls, received: Sequence[tuple[int | None, Any, Any]], start: int) -> Self | None:
        """Return the pairs at `start` that are equally long; ``None`` where they are too few to be worth it."""
        messages: list[Any] = []
        tags: list[int] = []
        bodies: list[Any] = []
        for (none, message, _), (tag, body, _) in zip(
            received[start::2], received[start + 1 :: 2], strict=False
        ):
            if none is not None or tag is None or not is_pointers(tag):
                break
            if messages and (len(message) != len(messages[0]) or len(body) != len(bodies[0])):
                break
            messages.append(message)
            tags.append(tag)
            bodies.append(body)
        count = len(tags)
        if count <= _FEW or len(bodies[0]) % 16 or not len(bodies[0]):
            return None
        return cls(
            np.frombuffer(b"".join(messages), np.uint8).reshape(count, -1),
            np.array(tags, np.uint64),
            np.frombuffer(b"".join(bodies), "<u8").reshape(count, -1, 2),
        )
