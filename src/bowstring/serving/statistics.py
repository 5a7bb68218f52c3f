"""What a server can be asked about itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bowstring.memory import PoolStatistics

__all__ = ["ServerStatistics"]


@dataclasses.dataclass(frozen=True, slots=True)
class ServerStatistics:
    """What a server has done, and does now.

    Attributes
    ----------
    connections, readers
        Connections now; streams served to their end so far.
    bytes_offered
        Bytes of the resident data sets.
    refused
        Connections that were not served: too many at once, a wrong token, no such data set or column.
    lost
        Readers that disconnected in the middle of a stream without a word, still held memory when they
        disconnected, did not answer in time, or broke the protocol.
    bytes_lent
        Bytes of the data sets that are lent where they lie (``share="in_place"``).
    kept
        Allocations of this process's users that are kept alive until it ends, because a reader of what was lent
        in them was lost and may look at them still.
    pool
        The memory.
    stopped
        Streams that ended before their reader had read everything, with nothing amiss: the reader closed early, or
        disconnected after the end without confirming that it read it, or the producer closed or failed.
    idle
        Connections that ended before they asked for a data set, such as a health check.
    """

    connections: int
    readers: int
    bytes_offered: int
    refused: int
    lost: int
    bytes_lent: int
    kept: int
    pool: PoolStatistics
    stopped: int = 0
    idle: int = 0
