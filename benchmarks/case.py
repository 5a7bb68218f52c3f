"""What a case consists of: line-ups of ways to do the same thing, and the targets that they are held to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

__all__ = ["Case", "LineUp", "Measured", "Role", "Scale", "Skipped", "Target", "Way"]

Role = Literal["subject", "baseline", "floor", "beside"]


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
    """

    seconds: float
    sent: str
    arrived: str
    device_seconds: float | None = None


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
    """

    name: str
    role: Role
    once: Callable[[], Measured]
    nbytes: int | None = None
    baseline: str | None = None
    floor: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What the median of one way should be.

    Parameters
    ----------
    way
        The way that is held to it.
    sense, bound
        ``"at most"`` bounds the time, ``"at least"`` the speed.
    against
        The way that it is a multiple of; without it the bound is in seconds.
    beyond
        Seconds that the way may take on top.

    Examples
    --------
    >>> Target("bowstring", "at least", 3, "flight").found({"bowstring": 1.0, "flight": 4.0})
    4.0
    >>> Target("bowstring", "at most", 0.002).holds({"bowstring": 0.001})
    True
    """

    way: str
    sense: Literal["at most", "at least"]
    bound: float
    against: str | None = None
    beyond: float = 0.0

    def found(self, medians: dict[str, float]) -> float:
        """Return what stands beside the bound: seconds, or a ratio of times or of speeds."""
        if self.against is None:
            return medians[self.way]
        ratio = (medians[self.way] - self.beyond) / medians[self.against]
        return 1 / ratio if self.sense == "at least" else ratio

    def holds(self, medians: dict[str, float]) -> bool:
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
        What the targets are judged by: the wall, or the events of the device, where it has any.
    """

    name: str
    ways: tuple[Way, ...]
    rounds: int
    targets: tuple[Target, ...] = ()
    warm_ups: int = 2
    clock: Literal["wall", "device"] = "wall"


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
    """

    quick: bool = False
    repeat: int | None = None
    device: str = "cuda:0"

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
    """

    name: str
    title: str
    line_ups: Callable[[Scale], Iterator[LineUp | Skipped]]
