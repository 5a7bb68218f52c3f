"""What a stream has counted so far."""

from __future__ import annotations

import dataclasses

__all__ = ["Counters"]


@dataclasses.dataclass(slots=True)
class Counters:
    """What a receiver has counted so far; bytes are those of the buffers, times are seconds."""

    batches: int = 0
    rows: int = 0
    nbytes: int = 0
    seconds_waited: float = 0.0
    regions: int = 0
    cached_regions: int = 0

    def count(self, rows: int, nbytes: int) -> None:
        """Count a batch that the user has now."""
        self.batches += 1
        self.rows += rows
        self.nbytes += nbytes
