"""What is said about a list of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Summary", "summarize"]


class Summary(NamedTuple):
    """Seconds, but for `harmonic_mean_rate`: bytes per second over all samples, ``None`` without bytes."""

    n: int
    median: float
    p5: float
    p95: float
    harmonic_mean_rate: float | None


def summarize(samples: Sequence[float], nbytes: int | None = None) -> Summary:
    """Return the summary of some samples in seconds.

    Percentiles are interpolated linearly. The mean of rates is the harmonic one: all bytes over all seconds.

    Examples
    --------
    >>> summarize([1.0, 3.0, 2.0], 6)
    Summary(n=3, median=2.0, p5=1.1, p95=2.9, harmonic_mean_rate=3.0)
    """
    p5, median, p95 = (float(value) for value in np.percentile(samples, (5, 50, 95)))
    rate = None if nbytes is None else len(samples) * nbytes / sum(samples)
    return Summary(len(samples), median, p5, p95, rate)
