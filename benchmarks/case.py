"""What a case declares: the ways that are measured in turns, where a report draws them, and their targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

Role = Literal["subject", "baseline", "floor", "beside"]

Axis = Literal["bytes", "columns", "rows", "batches", "cores", "readers"]
"""What a report may draw figures over."""


class Measured(NamedTuple):
    """One sample."""

    seconds: float  # the timed region alone
    # sent, arrived: Fingerprints of the bytes at their source, and of every byte that arrived, taken
    # outside the timed region. Where no bytes move: what should have come of it, and what has.
    sent: str
    arrived: str
    device_seconds: float | None = None  # the same region by the events of a GPU, where there is one
    # Bytes that were held at times after the begin, for a case that is about memory: ``(seconds, bytes)``.
    memory: Sequence[tuple[float, int]] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """One way to do the thing."""

    name: str  # unique in its line-up
    # ``"subject"`` is Bowstring, ``"baseline"`` what a user would use instead, ``"floor"`` what nothing can
    # beat, ``"beside"`` is reported for comparison.
    role: Role
    once: Callable[[], Measured]  # does it once, and checks what came of it
    nbytes: int | None = None  # bytes of payload, each counted once; ``None`` where a rate means nothing
    # baseline, floor: names of the ways of the same line-up that this one is compared with
    baseline: str | None = None
    floor: str | None = None
    # The line of a plot that this way is a point of; `name` where it is the same in all line-ups.
    series: str = dataclasses.field(default="", kw_only=True)
    # Where the point is, where line-ups mix sizes: goes before the `at` of the line-up.
    at: Mapping[Axis, float] = dataclasses.field(default_factory=dict, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A bound on the median of one way, as a multiple of another one's of the same run.

    Developers see it with ``--check``; users do not.
    """

    way: str  # the way that is held to it
    # sense, bound: ``"at most"`` bounds the time, ``"at least"`` the speed
    sense: Literal["at most", "at least"]
    bound: float
    against: str  # the way that it is a multiple of

    def found(self, medians: Mapping[str, float]) -> float:
        """Return what stands beside the bound: a ratio of times, or of speeds."""
        ratio = medians[self.way] / medians[self.against]
        return 1 / ratio if self.sense == "at least" else ratio

    def holds(self, medians: Mapping[str, float]) -> bool:
        """Whether the medians of a line-up meet the target."""
        found = self.found(medians)
        return found >= self.bound if self.sense == "at least" else found <= self.bound


@dataclasses.dataclass(frozen=True, slots=True)
class LineUp:
    """Ways that are measured in turns, round after round, on the same data."""

    name: str  # the data and circumstances
    ways: tuple[Way, ...]
    rounds: int  # samples of each way
    targets: tuple[Target, ...] = ()
    warm_ups: int = 2  # rounds before those that count; the very first sample of each way is kept apart
    # What figures are compared by: the wall, or the events of the device, where it has any.
    clock: Literal["wall", "device"] = "wall"
    # The plot that the line-ups of a case share, such as ``"8 float64 columns"``. Those with the same
    # `panel` and the same axes become lines of one plot.
    panel: str = ""
    # Where on its axes the line-up is, such as ``{"bytes": 64 << 20}``; see `Axis`.
    at: Mapping[Axis, float] = dataclasses.field(default_factory=dict)

    def place(self, way: Way) -> dict[Axis, float]:
        """Return where on its axes a way of this line-up is."""
        return {**self.at, **way.at}


@dataclasses.dataclass(frozen=True, slots=True)
class Skipped:
    """A line-up that this machine cannot run, and why."""

    name: str
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure."""

    quick: bool = False  # small data, few rounds
    repeat: int | None = None  # rounds that the user asks for
    device: str = "cuda:0"  # what the cases of a GPU run on
    asked: tuple[int, ...] = ()  # sizes in bytes that the user asks for

    def rounds(self, full: int, quick: int) -> int:
        """Return how many rounds to run where a case has two numbers in mind."""
        if self.repeat is not None:
            return self.repeat
        return quick if self.quick else full

    def sizes(self, full: Sequence[int], quick: Sequence[int]) -> Sequence[int]:
        """Return the sizes in bytes to measure: those that were asked for, or the case's own."""
        if self.asked:
            return self.asked
        return quick if self.quick else full


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """What ``bowstring bench explain CASE`` prints, a sentence or a few in each place."""

    measured: str  # the timed region, from what to what, and what is outside
    baseline: str  # what a user would use instead, and how it is used here; empty where there is nothing
    floor: str  # what nothing can beat, and why; empty where there is no such way
    reading: str  # what a ratio means for a user, and what disturbs it


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One question, in one file."""

    # name, title: what ``list`` prints
    name: str
    title: str
    # Yields the line-ups one after the other. What one needs (processes, data) lives until the next is
    # asked for, or the generator is closed.
    line_ups: Callable[[Scale], Iterator[LineUp | Skipped]]
    explanation: Explanation  # what ``explain`` prints
    # The least of an axis from which a comparison says something: a smaller line-up is shown as "too small
    # to judge", and its targets are not judged.
    judged_from: Mapping[Axis, float] = dataclasses.field(default_factory=dict)
    sized: bool = False  # whether ``--sizes`` means something to it: it calls `Scale.sizes`

    def too_small(self, at: Mapping[Axis, float]) -> bool:
        """Whether a place on the axes is below what can be judged."""
        return any(at[axis] < least for axis, least in self.judged_from.items() if axis in at)
