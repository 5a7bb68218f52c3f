"""Measuring: the ways of a line-up take turns, and every sample's bytes are checked."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import traceback
from collections.abc import Callable, Iterator, Sequence

from bowstring.benchmarks.case import Case, LineUp, Measured, Scale, Skipped, Way
from bowstring.benchmarks.summary import Summary, summarize


class WrongBytes(Exception):
    """What arrived is not what was sent."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredWay:
    """A way with its samples in seconds, of the wall and maybe of a device; `first` is the very first one.

    `memory` is what the last sample says of bytes held over time.
    """

    way: Way
    first: float
    samples: tuple[float, ...]
    device_samples: tuple[float, ...] | None = None
    memory: tuple[tuple[float, int], ...] = ()

    @property
    def summary(self) -> Summary:
        """Statistics of the samples."""
        return summarize(self.samples, self.way.nbytes)


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredLineUp:
    """A line-up with the samples of its ways, in the order of the ways."""

    line_up: LineUp
    ways: tuple[MeasuredWay, ...]

    @property
    def judged(self) -> dict[str, Summary]:
        """What ways are compared by, by their names: the line-up's clock, or the wall's where it has none."""
        samples = [each.device_samples for each in self.ways]
        if self.line_up.clock == "wall" or not all(samples):
            return {each.way.name: each.summary for each in self.ways}
        pairs = zip(self.ways, samples, strict=True)
        return {each.way.name: summarize(found) for each, found in pairs if found}

    @property
    def medians(self) -> dict[str, float]:
        """Median seconds by the name of the way."""
        return {name: each.median for name, each in self.judged.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """A line-up, or the rest of a case, that came to a bad end."""

    name: str
    why: str
    wrong_bytes: bool


def measure(line_up: LineUp, tick: Callable[[int, int], None] = lambda _done, _of: None) -> MeasuredLineUp:
    """Run a line-up: A B C, A B C, …; call `tick` before each round, with those that are done and all."""
    total = line_up.warm_ups + line_up.rounds

    def one_round(number: int) -> list[Measured]:
        tick(number, total)
        return [_sample(way) for way in line_up.ways]

    rounds = [one_round(number) for number in range(total)]
    firsts = [each.seconds for each in rounds[0]]
    rounds = rounds[line_up.warm_ups :]
    columns = zip(*rounds, strict=True)
    return MeasuredLineUp(
        line_up,
        tuple(
            MeasuredWay(
                way,
                first,
                tuple(each.seconds for each in samples),
                _of_device(samples),
                tuple(samples[-1].memory),
            )
            for way, first, samples in zip(line_up.ways, firsts, columns, strict=True)
        ),
    )


def _of_device(samples: Sequence[Measured]) -> tuple[float, ...] | None:
    found = [each.device_seconds for each in samples if each.device_seconds is not None]
    return tuple(found) if len(found) == len(samples) else None


def _sample(way: Way) -> Measured:
    gc.collect()
    measured = way.once()
    if measured.sent != measured.arrived:
        raise WrongBytes(f"{way.name}: sent {measured.sent}, arrived {measured.arrived}")
    if not measured.seconds > 0:
        raise ValueError(f"{way.name}: a sample took {measured.seconds} s")
    return measured


def measure_case(
    case: Case, scale: Scale, progress: Callable[[str, int, int], None] = lambda _name, _done, _of: None
) -> Iterator[MeasuredLineUp | Skipped | Failed]:
    """Yield what became of each line-up of a case; a failure ends the case, not the program.

    `progress` takes the name of the line-up, the rounds that are done and all; 0 of 0 while data are made.
    """
    name = case.name
    with contextlib.closing(case.line_ups(scale)) as line_ups:  # type: ignore[type-var]  # it is a generator
        try:
            progress(name, 0, 0)
            for line_up in line_ups:
                name = line_up.name
                if isinstance(line_up, Skipped):
                    yield line_up
                else:
                    yield measure(line_up, functools.partial(progress, name))
                name = f"after {name}"
                progress(name, 0, 0)
        except WrongBytes as error:
            yield Failed(name, str(error), wrong_bytes=True)
        except Exception as error:  # noqa: BLE001  the other cases still run
            traceback.print_exc()
            # The whole text, on standard error, has paths; a result has none.
            said = str(error).partition("\n")[0]
            yield Failed(name, f"{type(error).__name__}: {said}", wrong_bytes=False)
