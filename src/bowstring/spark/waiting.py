"""Tasks that wait for room in a depot: the driver says at once what holds the memory, and names it in the error."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import sys
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from bowstring.cli.terminal import size
from bowstring.depot.launch import connect
from bowstring.depot.slab_pool import LIMITED, REFUSED
from bowstring.errors import BowstringError, OutOfBudget
from bowstring.locks import Event
from bowstring.spark.progress import Progress
from bowstring.spark.refusals import reason
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bowstring.depot.client import Depot
    from bowstring.depot.options import DepotStatus
    from bowstring.spark.application_lease import Application
    from bowstring.spark.driver import Driver, TaskCount
    from bowstring.spark.task import Order
    from bowstring.transport.threads import Work

_LOG: Final = logging.getLogger("bowstring.spark")
_LOOK: Final = 0.3
_SHOWN: Final = 5
_ASK_SECONDS: Final = 30.0
_REFUSED: Final = re.compile(rf"{re.escape(REFUSED)}[^\n]*")
# Beyond it a new data set may well have to wait, and the job says what is held.
_NEARLY_FULL: Final = 0.5


def label(dataset: str) -> str:
    """Return what the user calls a data set of the depot."""
    name, mark, _ = dataset.partition("#")
    if not mark:
        return repr(dataset)
    return repr(unquote(name)) if name else "one without a name"


def _holders(status: DepotStatus, but: str) -> list[tuple[str, int]]:
    """Return which data sets hold memory, the largest first: what the user calls each, and how many bytes."""
    held: dict[str, int] = {}
    for each in status.datasets:
        if each.name != but and each.held:
            held[label(each.name)] = held.get(label(each.name), 0) + each.held
    return sorted(held.items(), key=lambda each: -each[1])


def _listed(held: list[tuple[str, int]]) -> str:
    more = ", …" if len(held) > _SHOWN else ""
    return ", ".join(f"{name} {size(nbytes)}" for name, nbytes in held[:_SHOWN]) + more


def _room(status: DepotStatus) -> str:
    used, budget = status.memory_in_use + status.memory_lost, status.memory_budget
    disk = (
        f" and {size(status.disk_in_use)} of {size(status.disk_budget)} of disk" if status.disk_budget else ""
    )
    return f"{size(used)} of {size(budget)} of memory{disk}"


def _warn(text: str) -> None:
    """Log a warning; where logging shows it nowhere, as in most notebooks, write it on stderr."""
    _LOG.warning(text)
    logger: logging.Logger | None = _LOG
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return
        logger = logger.parent if logger.propagate else None
    sys.stderr.write(f"bowstring: {text}\n")
    sys.stderr.flush()


@dataclasses.dataclass
class _Watch:
    """Looks at the depots that this process knows while a job runs."""

    _order: Order
    _application: Application
    _name: str | None = None
    _tasks: TaskCount | None = None
    _report: Callable[[Progress], object] | None = None
    _begun: float = dataclasses.field(default_factory=time.monotonic)
    _here: Depot | None = None
    _over: Event = dataclasses.field(default_factory=Event)

    def statuses(self) -> list[DepotStatus]:
        """Return what the depots say of themselves that can be asked."""
        if self._here is None:
            with contextlib.suppress(BowstringError):
                self._here = connect(start=False)
        known = {each.addresses[0]: each for each in self._application.depots}
        if self._here is not None:
            known.setdefault(self._here.addresses[0], self._here)
        statuses = []
        for each in known.values():
            with contextlib.suppress(BowstringError):
                statuses.append(each.status())
        return statuses

    def run(self) -> None:
        """Warn when tasks of the job begin to wait for room, and report how far it is."""
        warned = False
        while not self._over.wait(_LOOK):
            statuses = self.statuses()
            self._say(statuses)
            for status in statuses:
                mine = [each for each in status.datasets if each.name == self._order.dataset]
                if warned or not mine or not mine[0].waiting:
                    continue
                warned = True
                held = _listed(_holders(status, self._order.dataset)) or "attempts that go on"
                _warn(
                    f"publishing {label(self._order.dataset)} waits for room in the depot, for at most "
                    f"{self._order.wait:g} s: {_room(status)} are in use, held by {held}. Release what is not "
                    "needed (bow.spark.drop(name), or del of its handle), or give the depot a larger budget."
                )

    def _say(self, statuses: list[DepotStatus]) -> None:
        if self._report is None or self._tasks is None:
            return
        mine = [each for status in statuses for each in status.datasets if each.name == self._order.dataset]
        rows, nbytes = sum(each.num_rows for each in mine), sum(each.nbytes for each in mine)
        try:
            done, tasks = self._tasks.count()
            self._report(Progress(self._name, done, tasks, rows, nbytes, time.monotonic() - self._begun))
        except Exception:  # noqa: BLE001  a callback's, or of Spark that has stopped: the job's result counts
            _LOG.exception("the progress of a publication is not reported any more")
            self._report = None

    def close(self, thread: Work | None = None) -> None:
        """Look no more; report once more behind the thread that looked, and take a line off the terminal."""
        self._over.set()
        if thread is not None:
            thread.join(_LOOK + _ASK_SECONDS)
        if self._report is not None:
            self._say(self.statuses())
        end = getattr(self._report, "close", None)
        if end is not None:
            end()
        if self._here is not None:
            self._here.close()


@contextlib.contextmanager
def watched(
    driver: Driver,
    order: Order,
    application: Application,
    name: str | None,
    report: Callable[[Progress], object] | None = None,
) -> Iterator[None]:
    """Watch a job that publishes, in a ``with`` block: its description says what a full depot holds."""
    tag = f"bowstring-{order.dataset.rpartition('#')[2]}"
    tasks = None if report is None else driver.task_count(tag)
    watch = _Watch(order, application, name, tasks, report)
    thread = run_in_thread(watch.run, name="bowstring-spark-watch")
    try:
        with driver.described(_description(watch, order, name)):
            yield
    finally:
        watch.close(thread)
        if tasks is not None:
            tasks.close()


def _description(watch: _Watch, order: Order, name: str | None) -> str:
    text = f"bowstring: publish {'a data set without a name' if name is None else repr(name)}"
    for status in watch.statuses():
        if status.memory_in_use > _NEARLY_FULL * status.memory_budget:
            held = _listed(_holders(status, order.dataset))
            text += f"; the depot holds {_room(status)}" + (f": {held}" if held else "")
    return text


def no_room(
    error: BaseException, order: Order, application: Application, name: str | None
) -> OutOfBudget | None:
    """Return the error for a job that failed for lack of room, in the user's words; ``None`` for others."""
    said = reason(error)
    if not (isinstance(error, OutOfBudget) or said.startswith("OutOfBudget")):
        return None
    watch = _Watch(order, application)
    try:
        statuses = watch.statuses()
    finally:
        watch.close()
    held: list[tuple[str, int]] = []
    for status in statuses:
        held += _holders(status, order.dataset)
    names = [each for each, _ in held if each.startswith(("'", '"'))]
    refused = _REFUSED.search(str(error))
    hint = (
        "Give the depot a larger budget (depot_options=bow.depot.Options(memory_budget=…)), or publish less."
    )
    if held:
        free = " or ".join(f"bow.spark.drop({each})" for each in names[:2]) or "release() of its handle"
        hint = f"Free what is not needed: {free}. {hint}"
    if name is not None and repr(name) in names:
        hint = (
            f"The earlier {name!r} is kept until the new one is whole, so both need room: bow.spark.drop({name!r}) "
            f"first frees the earlier one. {hint}"
        )
    if LIMITED in str(error):
        hint = LIMITED
    return OutOfBudget(
        f"no room in the depot to publish {label(order.dataset)}",
        expected=f"room within {order.wait:g} s",
        found=f"{'; '.join(map(_room, statuses)) or said}, held by {_listed(held) or 'this data set itself'}"
        f"{'' if refused is None else refused[0]}",
        hint=hint,
    )
