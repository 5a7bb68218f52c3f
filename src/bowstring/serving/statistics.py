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
    refused, lost
        Connections turned away; readers that went away before their end.
    bytes_lent
        Bytes of the data sets that are lent where they lie (``share="in_place"``).
    kept
        Allocations of this process's users that are kept alive until it ends, because a reader of what was lent
        in them was lost and may look at them still.
    pool
        The memory.
    """

    connections: int
    readers: int
    bytes_offered: int
    refused: int
    lost: int
    bytes_lent: int
    kept: int
    pool: PoolStatistics
