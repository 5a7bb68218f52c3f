"""What a case declares: the ways that are measured in turns, where a report draws them, and their targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

__all__ = ["Axis", "Case", "Explanation", "LineUp", "Measured", "Role", "Scale", "Skipped", "Target", "Way"]

Role = Literal["subject", "baseline", "floor", "beside"]

Axis = Literal["bytes", "columns", "rows", "batches", "cores", "readers"]
"""What a report may draw figures over."""


class Measured(NamedTuple):
    """One sample.

    Attributes
    ----------
    seconds
        The timed region alone.
    sent, arrived
        Fingerprints of the bytes at their source, and of every byte that arrived, taken outside the timed
        region. Where no bytes move: what should have come of it, and what has.
    device_seconds
        The same region by the events of a GPU, where there is one.
    memory
        Bytes that were held at times after the begin, for a case that is about memory: ``(seconds, bytes)``.
    """

    seconds: float
    sent: str
    arrived: str
    device_seconds: float | None = None
    memory: Sequence[tuple[float, int]] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """One way to do the thing.

    Parameters
    ----------
    name
        Unique in its line-up.
    role
        ``"subject"`` is Bowstring, ``"baseline"`` what a user would use instead, ``"floor"`` what nothing can
        beat, ``"beside"`` is reported for comparison.
    once
        Does it once, and checks what came of it.
    nbytes
        Bytes of payload, each counted once; ``None`` where a rate means nothing.
    baseline, floor
        Names of the ways of the same line-up that this one is compared with.
    series
        The line of a plot that this way is a point of; `name` where it is the same in all line-ups.
    at
        Where the point is, where line-ups mix sizes: goes before the `at` of the line-up.
    """

    name: str
    role: Role
    once: Callable[[], Measured]
    nbytes: int | None = None
    baseline: str | None = None
    floor: str | None = None
    series: str = dataclasses.field(default="", kw_only=True)
    at: Mapping[Axis, float] = dataclasses.field(default_factory=dict, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A bound on the median of one way, as a multiple of another one's of the same run.

    Developers see it with ``--check``; users do not.

    Parameters
    ----------
    way
        The way that is held to it.
    sense, bound
        ``"at most"`` bounds the time, ``"at least"`` the speed.
    against
        The way that it is a multiple of.

    Examples
    --------
    >>> Target("bowstring", "at least", 3, "flight").found({"bowstring": 1.0, "flight": 4.0})
    4.0
    >>> Target("bowstring", "at most", 1.1, "memcpy").holds({"bowstring": 1.0, "memcpy": 1.0})
    True
    """

    way: str
    sense: Literal["at most", "at least"]
    bound: float
    against: str

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
    """Ways that are measured in turns, round after round, on the same data.

    Parameters
    ----------
    name
        The data and circumstances.
    ways
        In the order of their turns.
    rounds
        Samples of each way.
    targets
        What is asked of them.
    warm_ups
        Rounds before those that count; the very first sample of each way is kept apart.
    clock
        What figures are compared by: the wall, or the events of the device, where it has any.
    panel
        The plot that the line-ups of a case share, such as ``"8 float64 columns"``. Those with the same `panel`
        and the same axes become lines of one plot.
    at
        Where on its axes the line-up is, such as ``{"bytes": 64 << 20}``; see `Axis`.
    """

    name: str
    ways: tuple[Way, ...]
    rounds: int
    targets: tuple[Target, ...] = ()
    warm_ups: int = 2
    clock: Literal["wall", "device"] = "wall"
    panel: str = ""
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
    """How much to measure.

    Parameters
    ----------
    quick
        Small data, few rounds.
    repeat
        Rounds that the user asks for.
    device
        What the cases of a GPU run on.
    asked
        Sizes in bytes that the user asks for.
    """

    quick: bool = False
    repeat: int | None = None
    device: str = "cuda:0"
    asked: tuple[int, ...] = ()

    def rounds(self, full: int, quick: int) -> int:
        """Return how many rounds to run where a case has two numbers in mind.

        Examples
        --------
        >>> Scale(quick=True).rounds(20, 3), Scale(repeat=5).rounds(20, 3)
        (3, 5)
        """
        if self.repeat is not None:
            return self.repeat
        return quick if self.quick else full

    def sizes(self, full: Sequence[int], quick: Sequence[int]) -> Sequence[int]:
        """Return the sizes in bytes to measure: those that were asked for, or the case's own.

        Examples
        --------
        >>> Scale(quick=True).sizes([1 << 30], [1 << 20]), Scale(asked=(4096,)).sizes([1 << 30], [1 << 20])
        ([1048576], (4096,))
        """
        if self.asked:
            return self.asked
        return quick if self.quick else full


@dataclasses.dataclass(frozen=True, slots=True)
class Explanation:
    """What ``bowstring bench explain CASE`` prints, a sentence or a few in each place.

    Parameters
    ----------
    measured
        The timed region, from what to what, and what is outside.
    baseline
        What a user would use instead, and how it is used here; empty where there is nothing.
    floor
        What nothing can beat, and why; empty where there is no such way.
    reading
        What a ratio means for a user, and what disturbs it.
    """

    measured: str
    baseline: str
    floor: str
    reading: str


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One question, in one file.

    Parameters
    ----------
    name, title
        What ``list`` prints.
    line_ups
        Yields the line-ups one after the other. What one needs (processes, data) lives until the next is
        asked for, or the generator is closed.
    explanation
        What ``explain`` prints.
    judged_from
        The least of an axis from which a comparison says something: a smaller line-up is shown as "too small to
        judge", and its targets are not judged.
    sized
        Whether ``--sizes`` means something to it: it calls :meth:`Scale.sizes`.
    """

    name: str
    title: str
    line_ups: Callable[[Scale], Iterator[LineUp | Skipped]]
    explanation: Explanation
    judged_from: Mapping[Axis, float] = dataclasses.field(default_factory=dict)
    sized: bool = False

    def too_small(self, at: Mapping[Axis, float]) -> bool:
        """Whether a place on the axes is below what can be judged.

        Examples
        --------
        >>> nothing = Explanation("", "", "", "")
        >>> case = Case("a", "b", lambda scale: iter(()), nothing, judged_from={"bytes": 1 << 20})
        >>> case.too_small({"bytes": 4096}), case.too_small({"bytes": 1 << 20}), case.too_small({})
        (True, False, False)
        """
        return any(at[axis] < least for axis, least in self.judged_from.items() if axis in at)
