"""Trials: paths between two processes are used for real, one after the other, whatever the processes do."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from bowstring.cli.doctor.child import Child, ChildFault
from bowstring.cli.doctor.sides import CONSUMER, IN_PLACE, PRODUCER
from bowstring.cli.failure import as_json
from bowstring.errors import BowstringError
from bowstring.transport.socket_file import address_of, runtime_folder

__all__ = ["REAL", "Outcome", "Programs", "Trial", "run_trials"]

_MOMENT: Final = 0.2
_WAYS: Final = ("unix", "tcp", IN_PLACE)


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One path to be tried.

    Attributes
    ----------
    name
        Of the path.
    way
        How the table is offered: ``"unix"``, ``"tcp"``, ``"in place"``; ``"inproc"`` within the consumer.
    mode
        Of :func:`bowstring.connect`.
    device
        Where the consumer wants the table; where it is, by default.
    """

    name: str
    way: str
    mode: str = "map"
    device: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial.

    Attributes
    ----------
    failure, hint
        What went wrong, and what helps; ``None`` where every byte came.
    first_view
        Seconds from `connect` to the first batch.
    nbytes
        How many bytes the table has.
    device
        Where it was taken to.
    path, why, copied
        The path that the bodies took, and how they were copied, as the stream reports it.
    """

    failure: str | None = None
    hint: str | None = None
    first_view: float | None = None
    nbytes: int | None = None
    device: str | None = None
    path: str | None = None
    why: str | None = None
    copied: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Programs:
    """What the two processes run, and the modules that they import first."""

    producer: str = PRODUCER
    consumer: str = CONSUMER
    preload: tuple[str, ...] = ()


REAL: Final = Programs()


def run_trials(
    device: str, trials: Sequence[Trial], seconds: float, programs: Programs = REAL
) -> list[Outcome]:
    """Return what came of each trial from one device. All processes have ended then, and no socket is left.

    Parameters
    ----------
    device
        Where the producer has the table.
    trials
        What is tried, in order. After one that takes a process down, the next has new processes.
    seconds
        For each answer; three times as long for all of them together after the first failure.
    programs
        What the processes run.
    """
    outcomes: list[Outcome] = []
    end: float | None = None
    while len(outcomes) < len(trials):
        if end is not None and time.monotonic() > end:
            why = Outcome("not tried: the paths before it took too long")
            return outcomes + [why] * (len(trials) - len(outcomes))
        end = end or time.monotonic() + 3 * seconds
        outcomes += _round(device, trials[len(outcomes) :], seconds, programs)
    return outcomes


def _round(device: str, trials: Sequence[Trial], seconds: float, programs: Programs) -> list[Outcome]:
    """Start both processes; return outcomes up to the first trial that one of them does not survive."""
    outcomes: list[Outcome] = []
    with contextlib.ExitStack() as stack:
        order: dict[str, Any] = {"device": device, "preload": programs.preload}
        try:
            order["ways"] = stack.enter_context(_addresses(trials))
            producer = stack.enter_context(Child(programs.producer, order))
            # It loads what it needs while the producer does; the table's addresses come later.
            consumer = stack.enter_context(Child(programs.consumer))
        except (BowstringError, OSError) as error:
            failure = _outcome({"error": as_json(error)})
            return [failure] * len(trials)
        try:
            offers = producer.line(seconds) if order["ways"] else {}
        except ChildFault as fault:
            return [Outcome(f"the producer {fault}")] * len(trials)
        asked = [_question(trial, offers, device) for trial in trials]
        possible = [question for question in asked if isinstance(question, dict)]
        consumer.tell({"preload": programs.preload, "trials": possible})
        for question in asked:
            if isinstance(question, Outcome):
                outcomes.append(question)
                continue
            survives = True
            try:
                outcome = _outcome(consumer.line(seconds))
            except ChildFault as fault:
                outcome, survives = Outcome(f"the consumer {fault}"), False
            died = producer.fault(_MOMENT) if order["ways"] and outcome.failure else None
            if died:
                return [*outcomes, Outcome(f"the producer {died}")]
            outcomes.append(outcome)
            if not survives:
                break
    return outcomes


@contextlib.contextmanager
def _addresses(trials: Sequence[Trial]) -> Iterator[dict[str, str]]:
    """Choose where to offer; no socket file is left, even where its maker was killed."""
    ways = [way for way in _WAYS if any(trial.way == way for trial in trials)]
    paths: list[str] = []
    addresses: dict[str, str] = {}
    for way in ways:
        if way == "tcp":
            addresses[way] = "tcp://127.0.0.1:0"
            continue
        paths.append(os.path.join(runtime_folder(), f"{os.getpid()}-{secrets.token_hex(6)}.sock"))
        addresses[way] = address_of(paths[-1])
    try:
        yield addresses
    finally:
        for path in paths:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _question(trial: Trial, offers: Any, own: str) -> dict[str, Any] | Outcome:
    offer = {"uri": None} if trial.way == "inproc" else _part(offers, trial.way)
    if "error" in offer:
        return _outcome(offer)
    if "uri" not in offer:
        return Outcome(f"the producer talked nonsense: {str(offers)[:60]}")
    return {"uri": offer["uri"], "mode": trial.mode, "device": trial.device, "own": own}


def _part(found: Any, name: str) -> dict[str, Any]:
    part = found.get(name) if isinstance(found, dict) else None
    return part if isinstance(part, dict) else {}


def _outcome(said: Any) -> Outcome:
    error = _part(said, "error")
    if error:
        hint = error.get("hint")
        message = str(error.get("message"))
        # An error's text ends with its hint, which has a place of its own here.
        return Outcome(f"{error.get('kind')}: {message.removesuffix(str(hint)).rstrip(' .')}", hint)
    try:
        outcome = Outcome(**said)
    except TypeError:
        outcome = Outcome()
    if not isinstance(outcome.first_view, float) or not isinstance(outcome.path, str):
        return Outcome(f"the consumer talked nonsense: {str(said)[:60]}")
    return outcome
