"""How long a hand-over takes: Bowstring and Arrow Flight in turn, in the same run."""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from typing import Any

from bowstring.cli.demo.flight_side import read_through_flight
from bowstring.cli.demo.reading import arrays_of_batch, read_every_byte
from bowstring.client import connect
from bowstring.errors import DeadlineExceeded
from bowstring.memory import mappings

__all__ = ["Timings", "measure"]

_FORGET_SECONDS = 10.0
_PAUSE = 0.001


@dataclasses.dataclass(slots=True)
class Timings:
    """Seconds from ``connect`` on, one number per round.

    Attributes
    ----------
    views
        To all batches as views.
    bytes_read
        To every byte read once, in memory that this process had not mapped before.
    bytes_read_cached
        The same, with the mapping still there from an earlier stream.
    flight
        Arrow Flight, to every byte read once; empty where there is no Flight.
    nbytes, nbytes_flight
        How many bytes were read, each time.
    """

    views: list[float] = dataclasses.field(default_factory=list)
    bytes_read: list[float] = dataclasses.field(default_factory=list)
    bytes_read_cached: list[float] = dataclasses.field(default_factory=list)
    flight: list[float] = dataclasses.field(default_factory=list)
    nbytes: int = 0
    nbytes_flight: int = 0

    @property
    def ratio(self) -> float | None:
        """How many times as long Flight takes to every byte read, by the medians."""
        if not self.flight:
            return None
        return statistics.median(self.flight) / statistics.median(self.bytes_read)

    def as_json(self) -> dict[str, Any]:
        """Return medians, extremes and all numbers."""
        series = {
            "views": self.views,
            "bytes_read": self.bytes_read,
            "bytes_read_cached": self.bytes_read_cached,
            "flight_bytes_read": self.flight,
        }
        return {
            name: {
                "median": statistics.median(seconds),
                "least": min(seconds),
                "most": max(seconds),
                "all": seconds,
            }
            for name, seconds in series.items()
            if seconds
        }


def measure(uri: str, flight: str | None, rounds: int) -> Timings:
    """Read the data set in turn through both, `rounds` times, after one round that does not count.

    Parameters
    ----------
    uri
        The data set.
    flight
        The same table's Flight server, if any.
    rounds
        How often.
    """
    timings = Timings()
    for counted in range(-1, rounds):
        _forget_mappings()
        views, seconds, nbytes = _read(uri)
        through_flight = read_through_flight(flight) if flight is not None else None
        _, cached, _ = _read(uri)
        if counted < 0:
            continue
        timings.views.append(views)
        timings.bytes_read.append(seconds)
        timings.bytes_read_cached.append(cached)
        timings.nbytes = nbytes
        if through_flight is not None:
            timings.flight.append(through_flight[0])
            timings.nbytes_flight = through_flight[1]
    return timings


def _read(uri: str) -> tuple[float, float, int]:
    """Return the seconds to the views, the seconds to every byte read, and the bytes."""
    began = time.perf_counter()
    with connect(uri) as stream:
        batches = list(stream)
        views = time.perf_counter() - began
        nbytes, _ = read_every_byte(array for batch in batches for array in arrays_of_batch(batch))
        return views, time.perf_counter() - began, nbytes


def _forget_mappings() -> None:
    """Unmap what earlier streams mapped, so that the next one starts as a new process would."""
    end = time.monotonic() + _FORGET_SECONDS
    while True:
        gc.collect()  # a stream's threads and what they know of its regions refer to each other
        mappings().clear()
        if not mappings().statistics.in_use:
            return
        if time.monotonic() > end:
            raise DeadlineExceeded(
                "an earlier stream does not let go of its memory", found=mappings().statistics
            )
        time.sleep(_PAUSE)
