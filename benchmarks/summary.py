"""Statistics of a list of samples, and of two of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

Verdict = Literal["faster", "slower", "inconclusive", "too small to judge"]

_MANY: Final = 8
_FEW: Final = 3


class Summary(NamedTuple):
    """Seconds, but for `harmonic_mean_rate`: bytes per second over all samples, ``None`` without bytes.

    `low` to `high` is the spread: the middle half of the samples, or all of them where there are few.
    """

    n: int
    median: float
    low: float
    high: float
    p5: float
    p95: float
    p99: float
    harmonic_mean_rate: float | None


def summarize(samples: Sequence[float], nbytes: int | None = None) -> Summary:
    """Return the summary of some samples in seconds.

    Percentiles are interpolated linearly. The mean of rates is the harmonic one: all bytes over all seconds.
    """
    spread = (25, 75) if len(samples) >= _MANY else (0, 100)
    points = np.percentile(samples, (50, *spread, 5, 95, 99))
    median, low, high, p5, p95, p99 = (float(value) for value in points)
    rate = None if nbytes is None else len(samples) * nbytes / sum(samples)
    return Summary(len(samples), median, low, high, p5, p95, p99, rate)


def compared(one: Summary, other: Summary) -> Verdict:
    """Say whether the samples of one are faster than those of another: where there are a few, and no overlap."""
    if min(one.n, other.n) < _FEW:
        return "inconclusive"
    if one.high < other.low:
        return "faster"
    return "slower" if other.high < one.low else "inconclusive"
