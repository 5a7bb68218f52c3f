"""Trials: paths between two processes are used for real, one after the other, whatever the processes do."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.cli.doctor.child import Child, ChildFault, be_a_child
from bowstring.cli.terminal import as_json
from bowstring.client import connect
from bowstring.columnar.batch import Batch
from bowstring.errors import BowstringError, InvalidData
from bowstring.memory import Pool, device_by_name
from bowstring.server import Server
from bowstring.transport.socket_file import address_of, runtime_folder

if TYPE_CHECKING:
    from bowstring.memory import Device

PRODUCER: Final = "from bowstring.cli.doctor.trials import produce; produce()"
CONSUMER: Final = "from bowstring.cli.doctor.trials import consume; consume()"
IN_PLACE: Final = "in place"
_ROWS: Final = 100_000
_BUDGET: Final = 64 << 20


def sample() -> pa.Table:
    """Return the table of all trials: numbers, text, nulls."""
    numbers = np.arange(_ROWS)
    text = pa.array(["bow", None, "string", "→"] * (_ROWS // 4))
    return pa.table({"n": numbers, "f": numbers / 7, "text": text})


def produce() -> None:
    """Run the producer: report where the table is published, and wait until stdin closes."""
    order, say = be_a_child()
    for name in order["preload"]:
        importlib.import_module(name)
    with contextlib.ExitStack() as servers:
        say(_offers(order, servers))
        sys.stdin.read()


def _offers(order: dict[str, Any], servers: contextlib.ExitStack) -> dict[str, Any]:
    """Return, for each way to offer, the URI, or what is in its way."""
    offers: dict[str, Any] = {}
    for way, address in order["ways"].items():
        try:
            offers[way] = {"uri": _offer(way, address, device_by_name(order["device"]), servers)}
        except Exception as error:  # noqa: BLE001  whatever is wrong with this machine is what is wanted
            offers[way] = {"error": as_json(error)}
    return offers


def _offer(way: str, address: str, device: Device, servers: contextlib.ExitStack) -> str:
    server = servers.enter_context(Server(address, pool=Pool(device, budget=_BUDGET)))
    if way != IN_PLACE:
        batch = Batch.from_arrow(sample().combine_chunks()).to_device(device, server.pool)
        return str(server.publish("doctor", batch))
    # Arrays as a user has them, not one of our regions.
    columns = {
        name: device.from_host(sample().column(name).combine_chunks().to_numpy()) for name in ("n", "f")
    }
    return str(server.publish("doctor", columns, share="in_place"))


def consume() -> None:
    """Run the consumer: read the table by one path after the other, and report each outcome."""
    order, say = be_a_child()
    for name in order["preload"]:
        importlib.import_module(name)
    for trial in order["trials"]:
        try:
            say(_take(**trial))
        except Exception as error:  # noqa: BLE001  as above
            say({"error": as_json(error)})


def _take(uri: str | None, mode: Any, device: str | None, own: str) -> dict[str, Any]:
    if own != "cpu":
        device_by_name(own).synchronize()  # making a context takes long, and does not belong to a hand-over
    with contextlib.ExitStack() as stack:
        if uri is None:
            server = stack.enter_context(Server(f"inproc:doctor-{secrets.token_hex(4)}"))
            uri = str(server.publish("doctor", sample()))
        started = time.perf_counter()
        stream = stack.enter_context(connect(uri, mode=mode, device=device))
        batches = [next(iter(stream))]
        first_view = time.perf_counter() - started
        batches += stream
        table = pa.Table.from_batches([batch.to_arrow() for batch in batches], schema=stream.schema)
        if not table.num_columns or not table.equals(sample().select(table.column_names)):
            raise InvalidData("other bytes came than were sent")
        stats, devices = stream.stats, {own, batches[0].device.name}
        copied = f"; {stats.copied}: {stats.copied_why}" if stats.copied else ""
        # A GPU was given write access to memory that it should only read, because its driver gives no less.
        may_write = any(
            getattr(device_by_name(name), right, None) is False
            for name in devices
            for right in ("maps_read_only", "lets_read_only")
        )
        writable = _WRITABLE if may_write else ""
        took = f"{stats.path}: {stats.why}{writable}{copied}"
        return {"first_view": first_view, "nbytes": stats.nbytes, "path": stats.path, "took": took}


_WRITABLE: Final = "; the driver maps nothing read-only: a kernel can write memory of another process"


_MOMENT: Final = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One path to be tried."""

    name: str
    # How the table is offered: ``"unix"``, ``"tcp"``, ``"in place"``; ``"inproc"`` within the consumer.
    way: str
    mode: str = "map"  # of :func:`bowstring.connect`
    device: str | None = None  # the consumer's; that of the table by default
    meaning: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial."""

    # ``None``, as `hint`, if every byte arrived.
    failure: str | None = None
    hint: str | None = None
    first_view: float | None = None  # seconds from `connect` to the first batch
    nbytes: int | None = None
    path: str | None = None
    took: str | None = None  # `path`, and why


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
    """Return what came of each trial from one device. All processes have ended then, and no socket is left."""
    outcomes: list[Outcome] = []
    end = time.monotonic() + 3 * seconds
    while len(outcomes) < len(trials):
        if time.monotonic() > end:
            why = Outcome("not tried: the paths before it took too long")
            return outcomes + [why] * (len(trials) - len(outcomes))
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
    paths: list[str] = []
    addresses: dict[str, str] = {}
    for way in dict.fromkeys(trial.way for trial in trials):
        if way in ("tcp", "ucx"):
            addresses[way] = f"{way}://127.0.0.1:0"
        elif way != "inproc":
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
