"""Numbers of many messages at once: whether each pair of metadata and body is the one behind the pair before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bowstring.dissociated.messages import METADATA, PREFIX_BYTES
from bowstring.dissociated.tags import PACKED, SEQUENCE_MASK, body_tag

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["are_numbered", "numbered"]


def are_numbered(
    first: int, prefixes: npt.NDArray[np.uint8], tags: npt.NDArray[np.uint64], kind: int = PACKED
) -> bool:
    """Whether pairs of metadata and body have the numbers from `first` on, which do not roll over.

    Parameters
    ----------
    first
        The sequence number of the first pair.
    prefixes : ndarray of uint8, shape (pairs, bytes)
        The untagged messages, or their beginnings.
    tags : ndarray of uint64, shape (pairs,)
        Of the bodies.
    kind
        Of all the bodies: the type in their tags.

    Examples
    --------
    >>> prefixes = np.array([[METADATA, 7, 0, 0, 0], [METADATA, 8, 0, 0, 0]], np.uint8)
    >>> (
    ...     are_numbered(7, prefixes, np.array([7, 8], np.uint64)),
    ...     are_numbered(7, prefixes, np.array([7, 9], np.uint64)),
    ... )
    (True, False)
    """
    count = len(tags)
    numbers = np.arange(first, first + count, dtype=np.uint64)
    said = prefixes[:, 1:PREFIX_BYTES].tobytes()
    return (
        first + count - 1 <= SEQUENCE_MASK
        and prefixes[:, 0].tobytes() == bytes((METADATA,)) * count
        and said == numbers.astype("<u4").tobytes()
        and tags.tobytes() == (numbers | np.uint64(body_tag(0, kind))).tobytes()
    )


def numbered(
    message: npt.NDArray[np.uint8], count: int, kind: int = PACKED
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
    """Return the messages and tags of pairs that would follow one, if their metadata were the same as its.

    Parameters
    ----------
    message : ndarray of uint8, shape (bytes,)
        An untagged message, with its prefix.
    count
        How many.
    kind
        As for `are_numbered`.

    Examples
    --------
    >>> messages, tags = numbered(np.array([METADATA, 6, 0, 0, 0, 9], np.uint8), 2)
    >>> messages.tolist(), tags.tolist()
    ([[1, 7, 0, 0, 0, 9], [1, 8, 0, 0, 0, 9]], [7, 8])
    """
    last = int.from_bytes(message[1:PREFIX_BYTES].tobytes(), "little")
    numbers = np.arange(last + 1, last + 1 + count, dtype=np.uint64) & np.uint64(SEQUENCE_MASK)
    messages = np.empty((count, len(message)), np.uint8)
    messages[:] = message
    messages[:, 1:PREFIX_BYTES] = numbers.astype("<u4").view(np.uint8).reshape(count, -1)
    return messages, numbers | np.uint64(body_tag(0, kind))
